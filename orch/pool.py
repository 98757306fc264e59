"""The fan-out: a `multiprocessing.Pool` whose children are watched from outside, as it never learns of a killed one.

What a child returns is a hint. What really happened stands in the database.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Any

from orch import clock, files, jsontext, kin, processes
from orch.errors import OrchError, UsageError
from orch.fire_records import Process

# multiprocessing itself is loaded with the first crew: a fire that finds nothing to do starts none.
if TYPE_CHECKING:
    from multiprocessing.pool import AsyncResult, Pool
    from multiprocessing.process import BaseProcess

# forkserver forks from a process that has no threads, no locks and no open files of ours, whatever the embedding
# program is doing; fork alone would be faster by a tenth of a second a fire.
START_METHODS = ("forkserver", "spawn", "fork")

# What every child needs at once, loaded before the fork instead of after it, twelve times.
_PRELOAD = ("orch.worker", "orch.database.sqlite", "multiprocessing.pool", "multiprocessing.synchronize", "runpy")
_DISBAND_LIMIT = 2.0
# Seconds between a child's looks at whether its fire lives.
_LOOK = 1.0
# Seconds until a pool has surely learned how its child ended.
_CODE_LIMIT = 1.0
_TICK = 0.02
_SAFE_PATH = "PYTHONSAFEPATH"
_WARNINGS = "PYTHONWARNINGS"

# Where multiprocessing keeps its socket, and whose it is: a killed fire leaves it behind.
_ROOMS = "pymp-*"
_OWNER = "orch-owner.json"

# The processes that serve the pools of this process, by their pids.
_household: set[int] = set()


def check_clock() -> None:
    """`UsageError` when this process has a clock that its children could not have."""
    if clock.is_given():
        raise UsageError(
            "worker processes have the machine's clock, and this program has set another one: use runner='inline' or"
            " runner='threads'"
        )


class Crew:
    """The children of one fire. `job` is an importable function that takes plain data and returns plain data.

    Where the process is the fire's own, what is left of it when it dies is known by the path of the `database`.
    """

    def __init__(
        self, job: Callable[[Any], str], size: int, *, database: str, start_method: str = "forkserver"
    ) -> None:
        if start_method not in START_METHODS:
            raise UsageError(f"start_method {start_method!r} is not one of {', '.join(START_METHODS)}")
        import multiprocessing

        self._job = job
        self._database = database
        self._context = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            self._context.set_forkserver_preload([job.__module__, *_PRELOAD])
        self._pools: list[Pool] = []
        self._children: dict[int, BaseProcess] = {}
        self._results: dict[int, AsyncResult[str]] = {}
        # Rung when a child has answered, so that nobody has to look often.
        self._bell, self._rope = multiprocessing.Pipe(duplex=False)
        self._open(size)

    def seat(self, number: int, work: Any) -> None:
        """Give the next free child the work of seat `number`."""
        self._results[number] = self._pools[-1].apply_async(
            self._job, (work,), callback=self._ring, error_callback=self._ring
        )

    def reopen(self, size: int) -> None:
        """Take further seats through a new pool: a child that was killed while idle leaves the old one unusable.

        Only when nobody works: whoever is left of the old one is ended.
        """
        self._end_pools()
        self._open(size)

    def dead(self) -> set[int]:
        """The pids of children that have ended, those included that their pool has replaced."""
        self._note_children()
        return {pid for pid, child in self._children.items() if _has_ended(child)}

    def answer(self, number: int) -> str | None:
        """What the child said of its seat, or None while it has said nothing."""
        result = self._results.get(number)
        if result is None or not result.ready():
            return None
        try:
            return result.get(0)
        except Exception as error:
            return f"broken: {type(error).__name__}: {error}"

    def wait(self, seconds: float) -> None:
        """Return when a child has answered or has ended, or after so many seconds."""
        from multiprocessing import connection

        self._note_children()
        sentinels = [child.sentinel for child in self._children.values() if not _has_ended(child)]
        connection.wait([*sentinels, self._bell], timeout=seconds)
        while self._bell.poll():
            self._bell.recv_bytes()

    def ending(self, pid: int) -> str:
        """How a child ended, in words."""
        self._note_children()
        deadline = clock.monotonic() + _CODE_LIMIT
        while (code := _exit_code(self._children.get(pid))) is None and clock.monotonic() < deadline:
            clock.sleep(_TICK)
        if code is None:
            return "ended"
        return f"killed by signal {-code}" if code < 0 else f"exited with {code}"

    def end_orphans(self, grace: float) -> list[str]:
        """End what dead children have left to this process, if it is one that is given it: what could not be ended.

        Only where the children themselves are not its own, as their pool may just be starting another one.
        """
        if not kin.adopts() or self._context.get_start_method() != "forkserver":
            return []
        self._note_children()
        return kin.end_children(grace, besides=_household | self._children.keys())

    def disband(self) -> None:
        """End every child that is left. Bounded: a pool whose lock died with a child would never return."""
        self._end_pools()
        self._bell.close()
        self._rope.close()

    def _end_pools(self) -> None:
        self._note_children()
        enders = [threading.Thread(target=pool.terminate, daemon=True) for pool in self._pools]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join(_DISBAND_LIMIT)
        self._note_children()
        self._pools.clear()
        for pid, child in self._children.items():
            if not _has_ended(child):
                kin.end_tree(processes.known_by(pid, processes.started(pid) or ""), 0)

    def _ring(self, _: object) -> None:
        try:
            self._rope.send_bytes(b"!")
        except OSError:
            # Disbanded meanwhile.
            pass

    def _open(self, size: int) -> None:
        from multiprocessing import resource_tracker

        # A file of the working folder must not pass for a module of the standard library in the children.
        environment = {_SAFE_PATH: "1", _WARNINGS: _quietly(os.environ.get(_WARNINGS))}
        if kin.adopts():
            # All that they fork says who answers for it. Not in a program that starts children of its own meanwhile.
            environment |= {**kin.marks(), kin.DATABASE_MARK: self._database}
        before = {name: os.environ.get(name) for name in environment}
        others = kin.children() if kin.adopts() else set()
        os.environ.update(environment)
        # At its start it lets the signal through again.
        resource_tracker.ensure_running()
        # A Ctrl-C is told to the fire alone, and not to what it is just starting.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            if self._context.get_start_method() == "forkserver":
                _sign_room()
            self._pools.append(self._context.Pool(size, _begin, (before, processes.myself(), self._database)))
        except (OSError, EOFError) as error:
            ask = "is /dev/shm mounted, and are processes allowed?"
            if "AF_UNIX" in str(error):
                ask = "set TMPDIR to a folder with a shorter path"
            raise OrchError(f"no worker can be started here ({error}): {ask}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _restore(before)
        self._note_children()
        if kin.adopts():
            # What serves the pools themselves: begun with the first of them, and used by all that follow.
            _household.update(kin.children() - others)

    def _note_children(self) -> None:
        # The pools' own list: the program may have further children, which are none of our business.
        for pool in self._pools:
            for child in list(getattr(pool, "_pool", None) or ()):
                if child.pid is not None:
                    self._children.setdefault(child.pid, child)


def _sign_room() -> None:
    """Write down whose this process's folder for temporary files is, before anything is in it."""
    from multiprocessing import util

    path = os.path.join(util.get_temp_dir(), _OWNER)
    if not os.path.exists(path):
        with contextlib.suppress(OSError):
            files.replace(path, jsontext.dump(asdict(processes.myself())))


def clear_rooms() -> None:
    """Remove the folders for temporary files of fires that were killed."""
    import glob
    import shutil
    import tempfile

    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), _ROOMS, _OWNER)):
        room = os.path.dirname(path)
        # Anybody may have made it there, by any name.
        with contextlib.suppress(OSError, ValueError, TypeError):
            if os.lstat(room).st_uid != os.getuid() or os.path.islink(room):
                continue
            with open(path, encoding="utf-8") as file:
                owner = Process(**json.load(file))
            if processes.is_alive(owner) is False:
                shutil.rmtree(room)


def _has_ended(child: BaseProcess) -> bool:
    from multiprocessing import connection

    # What the child has forked may keep its sentinel open.
    return _exit_code(child) is not None or bool(connection.wait([child.sentinel], 0))


def _exit_code(child: BaseProcess | None) -> int | None:
    """What the pool's own thread has learned; two that ask for it at once spoil each other's answer."""
    return getattr(getattr(child, "_popen", None), "returncode", None)


def _quietly(warnings: str | None) -> str:
    """Python's filter of warnings, so that multiprocessing does not warn of what a killed fire could not give back."""
    return f"{warnings},ignore:resource_tracker" if warnings else "ignore:resource_tracker"


def _begin(environment: dict[str, str | None], fire: Process, database: str) -> None:
    """The first act of a child: it stands on its own, answers for its kin, and has the environment of the fire."""
    import multiprocessing

    _restore(environment)
    os.environ.update({**kin.marks(), kin.DATABASE_MARK: database})
    # By a handler, as what is ignored stays so in everything that is started.
    signal.signal(signal.SIGINT, unheard)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Nobody in here waits for what the fire's own input may never say.
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing:
        os.dup2(nothing, 0)
        os.close(nothing)
    if hasattr(os, "setsid"):
        # Out of reach of the terminal's signals, which the fire passes on in its own order.
        os.setsid()
    kin.adopt_orphans()
    # A pool's children may have none; ours end theirs.
    multiprocessing.current_process().daemon = False
    _end_with(fire)


def unheard(signum: int, frame: FrameType | None) -> None:
    """A signal that the fire passes on in its own way."""


def _restore(environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# Held by whoever writes: a child whose parent is gone says nothing more, least of all that a task failed.
last_word = threading.Lock()


def _end_with(fire: Process) -> None:
    """When the fire is gone, however it went, its children end within moments, and their commands with them."""
    import multiprocessing
    from multiprocessing import connection

    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        # Looked at too, as the pipe stays open when a task has inherited the fire's end of it.
        while not connection.wait([parent.sentinel], _LOOK) and processes.is_alive(fire) is not False:
            pass
        last_word.acquire()
        kin.end_children(grace=1.0)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
