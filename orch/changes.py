"""Waiting for the queue to change, at next to no cost while it does not. The only import of inotify_simple.

A commit appends to the log beside the database; the system says so where it can, and a look each tenth of a second
stands in where it cannot. Nothing here opens the database.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from orch import clock, program

if TYPE_CHECKING:
    from inotify_simple import INotify

# Without the system's help; and with it, as a net below it.
_POLL = 0.1
_NET = 1.0


class Changes:
    """What a live view or a poll waits for: the database's log, dropped files, signals, a key, and the end of a reader.

    Used as a context manager; in the main thread signals that would end the process end the wait instead: ``caught`` is
    the last such signal. With ``rouse`` SIGUSR1 ends a wait too, and sets ``roused``. Files are watched for in the
    folder ``incoming``, which may be taken away and made anew.
    """

    def __init__(
        self,
        database: str,
        *,
        reader: int | None = None,
        keys: int | None = None,
        incoming: str | None = None,
        rouse: bool = False,
    ) -> None:
        self._reader, self._keys, self._incoming, self._rouse = reader, keys, incoming, rouse
        self._names = {os.path.basename(database), os.path.basename(database) + "-wal"}
        self._poll = select.poll()
        self._inotify, self._log = _inotify(os.path.dirname(database))
        self._folder: tuple[int, int] | None = None
        self._drops: int | None = None
        if self._inotify is not None:
            self._poll.register(self._inotify.fileno(), select.POLLIN)
        self._arm()
        if reader is not None:
            # Nothing but the hang-up.
            self._poll.register(reader, 0)
        if keys is not None:
            self._poll.register(keys, select.POLLIN)
        self._bell, self._rope = socket.socketpair()
        for end in (self._bell, self._rope):
            end.setblocking(False)
        self._poll.register(self._bell, select.POLLIN)
        self._before: dict[signal.Signals, object] = {}
        self._count = 0
        self.caught: int | None = None
        self.roused = False

    def __enter__(self) -> Changes:
        if threading.current_thread() is threading.main_thread():
            rousing = (signal.SIGUSR1,) if self._rouse else ()
            for signum in (*program.stop_signals(), signal.SIGWINCH, *rousing):
                self._before[signum] = signal.signal(signum, self._catch)
            signal.set_wakeup_fd(self._rope.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            signal.set_wakeup_fd(-1)
        for signum, handler in self._before.items():
            if signum == signal.SIGUSR1 and handler == signal.SIG_DFL:
                # Whoever has just been told of this process may send one more, which is not to end it.
                handler = signal.SIG_IGN
            signal.signal(signum, handler)  # type: ignore[arg-type]
        self._bell.close()
        self._rope.close()
        if self._inotify is not None:
            self._inotify.close()

    @property
    def is_watching(self) -> bool:
        """Whether the system tells of changes; else they are looked for."""
        return self._inotify is not None

    @property
    def is_out_of_watches(self) -> bool:
        """Whether the system could tell of changes, but has no watch left for this process."""
        return self._inotify is None and sys.platform.startswith("linux")

    def wait(self, most: float | None = None) -> set[str]:
        """Wait so many seconds, one at the most: for ``changed``, ``dropped``, ``gone`` (the reader), ``signal``, keys.

        An empty set when nothing came, so that the caller looks now and then in any case.
        """
        seen: set[str] = {"dropped"} if self._arm() else set()
        deadline = clock.monotonic() + min(_NET, (_POLL if self._inotify is None else _NET) if most is None else most)
        while not seen:
            rest = deadline - clock.monotonic()
            if rest <= 0:
                break
            for descriptor, event in self._poll.poll(rest * 1000):
                seen |= self._take(descriptor, event)
        return seen

    def renewed(self) -> Callable[[], str | None]:
        """Asks for the name of a signal that came after now."""
        before = self._count
        return lambda: None if self.caught is None or self._count == before else signal.Signals(self.caught).name

    def _arm(self) -> bool:
        """Watch the folder that stands where files are dropped; whether that is another one than before."""
        if self._inotify is None or self._incoming is None:
            return False
        try:
            found = os.stat(self._incoming)
        except OSError:
            self._folder = None
            return False
        folder = (found.st_dev, found.st_ino)
        if folder == self._folder:
            return False
        self._drops = _watch(self._inotify, self._incoming)
        self._folder = folder
        return True

    def _take(self, descriptor: int, event: int) -> set[str]:
        if self._inotify is not None and descriptor == self._inotify.fileno():
            return self._told(descriptor)
        if descriptor == self._reader:
            return {"gone"}
        if descriptor == self._bell.fileno():
            self._bell.recv(4096)
            return {"signal"}
        if event & (select.POLLHUP | select.POLLERR):
            self._poll.unregister(descriptor)
            return set()
        pressed = os.read(descriptor, 64).decode("utf-8", "replace")
        if not pressed:
            self._poll.unregister(descriptor)
        return set(pressed)

    def _told(self, descriptor: int) -> set[str]:
        """What the system tells of; when it tells of too much, anything may have happened."""
        from inotify_simple import flags, parse_events

        try:
            events = parse_events(os.read(descriptor, 65536))
        except BlockingIOError:
            return set()
        seen = {"changed" for one in events if one.wd == self._log and one.name in self._names}
        seen |= {"dropped" for one in events if one.wd == self._drops and one.wd != self._log}
        if any(one.mask & flags.Q_OVERFLOW for one in events):
            seen |= {"changed", "dropped"}
        return seen

    def _catch(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGUSR1:
            self.roused = True
        elif signum != signal.SIGWINCH:
            self.caught = signum
            self._count += 1


def _inotify(folder: str) -> tuple[INotify | None, int | None]:
    """What tells of changes in a folder, and its number there; None where there is none, or no more of them."""
    if not sys.platform.startswith("linux"):
        return None, None
    from inotify_simple import INotify  # here, as it loads ctypes

    try:
        watching = INotify(nonblocking=True)
    except OSError:
        return None, None
    watch = _watch(watching, folder)
    if watch is None:
        watching.close()
        return None, None
    return watching, watch


def _watch(watching: INotify, folder: str) -> int | None:
    from inotify_simple import flags

    mask = (
        flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE
        | flags.CLOSE_WRITE | flags.MOVE_SELF | flags.DELETE_SELF
    )  # fmt: skip
    try:
        return int(watching.add_watch(folder, mask))
    except OSError:
        return None
