"""What a test has left behind of a queue: processes, connections, and open files of its own folder.

What the test opens for itself is its own affair.
"""

from __future__ import annotations

import gc
import os

import psutil

from orch import clock, kin
from orch.database.sqlite import connections
from orch.place import STATE_NAME

# What multiprocessing keeps for this process until it ends.
_SERVANTS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
_LOOKS, _PAUSE = 20, 0.05


class Leftovers:
    """Compares what there is now with what was there when it was made. `folder` is where the test works."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._before = {child.pid for child in _family()}

    def found(self) -> list[str]:
        """What is left, each thing in words; what is just ending is given a moment."""
        # A connection that nobody holds any more is closed by that.
        gc.collect()
        for _ in range(_LOOKS):
            found = [*self._processes(), *self._connections(), *self._descriptors()]
            if not found:
                break
            clock.sleep(_PAUSE)
        return found

    def _processes(self) -> list[str]:
        pids = {child.pid for child in _family()} - self._before
        pids |= {
            pid
            for pid, marks in kin.marked()
            if marks.get(kin.DATABASE_MARK, "").startswith(self._folder + os.sep) and pid != os.getpid()
        }
        return [told for pid in sorted(pids) if (told := _told(pid)) is not None]

    def _connections(self) -> list[str]:
        return [f"a connection: {path}" for path in sorted(connections()) if path.startswith(self._folder + os.sep)]

    def _descriptors(self) -> list[str]:
        known, state = connections(), os.path.join(self._folder, STATE_NAME) + os.sep
        paths = sorted(file.path for file in psutil.Process().open_files() if file.path.startswith(state))
        return [f"an open file: {path}" for path in paths if not path.startswith(tuple(known))]


def _family() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _told(pid: int) -> str | None:
    """A process in words; None for one that has ended, and for what serves multiprocessing here."""
    try:
        child = psutil.Process(pid)
        words = child.cmdline()
        is_servant = child.ppid() == os.getpid() and any(name in word for name in _SERVANTS for word in words)
        if is_servant or child.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"a process: {pid} {' '.join(words) or child.name()}"
    except psutil.Error:
        return None
