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
from types import FrameType, TracebackType

from orch import clock

# Without the system's help; and with it, as a net below it.
_POLL = 0.1
_NET = 1.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Changes:
    """What a live view waits for: the database's log, signals, a key, and the end of whoever reads.

    Used as a context manager in the main thread: signals that would end the process end the wait instead.
    ``caught`` is the last such signal.
    """

    def __init__(self, database: str, *, reader: int | None = None, keys: int | None = None) -> None:
        self._reader, self._keys = reader, keys
        self._names = {os.path.basename(database), os.path.basename(database) + "-wal"}
        self._poll = select.poll()
        self._inotify = _inotify(os.path.dirname(database))
        if self._inotify is not None:
            self._poll.register(self._inotify, select.POLLIN)
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
        self.caught: int | None = None

    def __enter__(self) -> Changes:
        for signum in (*_ENDING, signal.SIGWINCH):
            self._before[signum] = signal.signal(signum, self._catch)
        signal.set_wakeup_fd(self._rope.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        self._bell.close()
        self._rope.close()
        if self._inotify is not None:
            os.close(self._inotify)

    def wait(self) -> set[str]:
        """Wait a second at the most: any of ``changed``, ``gone`` (the reader), ``signal``, and the keys pressed.

        An empty set when nothing came, so that the caller looks now and then in any case.
        """
        seen: set[str] = set()
        deadline = clock.monotonic() + (_POLL if self._inotify is None else _NET)
        while not seen:
            rest = deadline - clock.monotonic()
            if rest <= 0:
                break
            for descriptor, event in self._poll.poll(rest * 1000):
                seen |= self._take(descriptor, event)
        return seen

    def _take(self, descriptor: int, event: int) -> set[str]:
        if descriptor == self._inotify:
            return {"changed"} if self._is_about_the_database() else set()
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

    def _is_about_the_database(self) -> bool:
        from inotify_simple import parse_events  # here, as it loads ctypes

        assert self._inotify is not None
        try:
            events = parse_events(os.read(self._inotify, 65536))
        except BlockingIOError:
            return False
        return any(event.name in self._names for event in events)

    def _catch(self, signum: int, frame: FrameType | None) -> None:
        if signum != signal.SIGWINCH:
            self.caught = signum


def _inotify(folder: str) -> int | None:
    """A descriptor that tells of changes in a folder; None where the system has no such thing, or no more of them."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        from inotify_simple import INotify, flags

        watching = INotify(nonblocking=True, closefd=False)
        try:
            watching.add_watch(folder, flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE)
        except OSError:
            os.close(watching.fileno())
            return None
        return int(watching.fileno())
    except OSError:
        return None
