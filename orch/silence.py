"""Agents that say nothing. What they print is a sign of life, and ``orch heartbeat``; a live worker is none."""

from __future__ import annotations

import os
from dataclasses import dataclass

from orch import clock
from orch.limits import Patience
from orch.project import Project
from orch.queue import Queue
from orch.records import Task
from orch.states import State
from orch.work import output


@dataclass(slots=True)
class Silent:
    """A task whose agent has said nothing for so many seconds: ``stalled``, or longer than that, ``stale``."""

    task: int
    key: str | None
    mode: str
    seconds: float
    word: str

    @property
    def told(self) -> str:
        return f"task {self.task} ({self.key or self.mode}) is {self.word}: silent for {self.seconds:.0f} s"


def silent(queue: Queue, project: Project) -> list[Silent]:
    """The tasks at work whose agents have been silent for longer than their role's patience."""
    found: list[Silent] = []
    roles = {name: mode.patience for name, mode in project.modes.items() if mode.patience is not None}
    for task in queue.owned() if roles else ():
        patience = roles.get(task.mode)
        if patience is None or task.state != State.PROCESSING:
            continue
        seconds = silence(project.state, task)
        if seconds > patience.heartbeat_timeout_sec:
            word = "stale" if seconds > patience.stale_threshold_sec else "stalled"
            found.append(Silent(task.id, task.key, task.mode, seconds, word))
    return found


def is_stalled(state: str, task: Task, patience: Patience | None, slack: float = 0.0) -> bool:
    """Whether an agent has been silent for so long that its role wants it ended, by so many seconds more."""
    if patience is None or not patience.kill_stalled or task.state != State.PROCESSING:
        return False
    return silence(state, task) > patience.heartbeat_timeout_sec + slack


def silence(state: str, task: Task) -> float:
    """Seconds since a task's agent began, printed something, or said that it lives."""
    now = clock.now()
    signs = [clock.moment(task.claimed_at or task.updated_at).timestamp()]
    for path in (paper_path(state, task), *(output.spool_path(state, task.owner or 0, end) for end in output.ENDINGS)):
        try:
            signs.append(os.stat(path).st_mtime)
        except OSError:
            continue
    return max(0.0, now.timestamp() - max(signs))


def paper_path(state: str, task: Task) -> str:
    """The file that an attempt's order is given in; a sign of life touches it."""
    return os.path.join(state, f"{output.name_of(task.id, task.attempts)}.delegate.yaml")
