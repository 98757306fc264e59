"""A worker's slate: which command it runs right now, for whoever has to end that when the worker cannot.

A small file beside the outputs; the marks in a command's environment say as much, but a command may have wiped them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from orch import processes
from orch.fire_records import Process
from orch.records import Task
from orch.work.output import make_folders


@dataclass(frozen=True, slots=True)
class Running:
    """A command that runs: for which task, under which claim, and its first process."""

    task: int
    claim: int
    leader: Process


class Slate:
    """One worker's slate, opened once and written for each of its commands."""

    def __init__(self, state: str, worker: int) -> None:
        path = _path(state, worker)
        make_folders(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def write(self, task: Task, leader: Process) -> None:
        text = f"{task.id} {task.attempts} {leader.pid} {leader.started}\n".encode().ljust(80)
        try:
            os.pwrite(self._descriptor, text, 0)
        except OSError:
            # A full disk: the marks remain.
            pass

    def wipe(self) -> None:
        try:
            os.pwrite(self._descriptor, b" " * 80, 0)
        except OSError:
            pass

    def close(self) -> None:
        os.close(self._descriptor)


def read(state: str, worker: int) -> Running | None:
    """What a worker runs at present, or was running when it died."""
    try:
        with open(_path(state, worker)) as file:
            task, claim, pid, started = file.read().split()
    except (OSError, ValueError):
        return None
    return Running(int(task), int(claim), processes.known_by(int(pid), started))


def forget(state: str, worker: int) -> None:
    """The worker is gone, and with it all that it ran."""
    try:
        os.unlink(_path(state, worker))
    except OSError:
        pass


def _path(state: str, worker: int) -> str:
    return os.path.join(state, "output", f"w{worker}.run")
