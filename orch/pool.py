"""The fan-out: a `multiprocessing.Pool` whose children are watched from outside, as it never learns of a killed one.

What a child returns is a hint. What really happened stands in the database.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.pool import AsyncResult, Pool
from multiprocessing.process import BaseProcess
from typing import Any

from orch.errors import OrchError, UsageError

# forkserver forks from a process that has no threads, no locks and no open files of ours, whatever the embedding
# program is doing; fork alone would be faster by a tenth of a second a fire.
START_METHODS = ("forkserver", "spawn", "fork")

_DISBAND_LIMIT = 2.0


class Crew:
    """The children of one fire. `job` is an importable function that takes plain data and returns plain data."""

    def __init__(self, job: Callable[[Any], str], size: int, *, start_method: str = "forkserver") -> None:
        if start_method not in START_METHODS:
            raise UsageError(f"start_method {start_method!r} is not one of {', '.join(START_METHODS)}")
        self._job = job
        self._context = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            self._context.set_forkserver_preload([job.__module__])
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
        """Take further seats through a new pool: a child that was killed while idle leaves the old one unusable."""
        self._open(size)

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
        self._note_children()
        sentinels = [child.sentinel for child in self._children.values() if child.exitcode is None]
        connection.wait([*sentinels, self._bell], timeout=seconds)
        while self._bell.poll():
            self._bell.recv_bytes()

    def ending(self, pid: int) -> str:
        """How a child ended, in words."""
        self._note_children()
        child = self._children.get(pid)
        if child is None:
            return "ended"
        child.join(1.0)
        code = child.exitcode
        if code is None:
            return "ended"
        return f"killed by signal {-code}" if code < 0 else f"exited with {code}"

    def disband(self) -> None:
        """End every child that is left. Bounded: a pool whose lock died with a child would never return."""
        enders = [threading.Thread(target=pool.terminate, daemon=True) for pool in self._pools]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join(_DISBAND_LIMIT)
        self._note_children()
        for child in self._children.values():
            if child.exitcode is None:
                child.kill()

    def _ring(self, _: object) -> None:
        self._rope.send_bytes(b"!")

    def _open(self, size: int) -> None:
        try:
            self._pools.append(self._context.Pool(size))
        except OSError as error:
            raise OrchError(
                f"no worker can be started here ({error}): is /dev/shm mounted, and are processes allowed?"
            ) from None
        self._note_children()

    def _note_children(self) -> None:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                self._children.setdefault(child.pid, child)
