"""Stopping what runs: a cancelled task is failed first and killed then.

In that order, as the answer of the killed one must not win: its claim is over when it speaks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orch import clock, kin, processes
from orch.fire_records import Worker
from orch.project import Project
from orch.queue import Queue
from orch.records import Task
from orch.work import slate


@dataclass(slots=True)
class Cancelled:
    """A cancelled task, whether it ran, and what of it could not be ended from here."""

    task: Task
    ran: bool
    left: list[str] = field(default_factory=list)

    def told(self) -> str:
        """The outcome in one line."""
        if not self.ran:
            return f"task {self.task.id} is cancelled"
        if self.left:
            return f"task {self.task.id} is cancelled; still running: {', '.join(self.left)}"
        return f"task {self.task.id} is cancelled, and what it ran is ended"


def cancel(queue: Queue, ids: Iterable[int], project: Project) -> list[Cancelled]:
    """Cancel tasks, all of them or none: `Conflict` when one has ended. What ran is ended after that."""
    with queue.transaction():
        moved = [queue.cancel(id) for id in ids]
    return [_end(queue, task, project) if ran else Cancelled(task, ran) for task, ran in moved]


def _end(queue: Queue, task: Task, project: Project) -> Cancelled:
    """End what works on a task whose claim is over.

    A command is ended by itself and its worker goes on; a function can only be ended with its worker, whose seat the
    fire then gives to another one.
    """
    worker = None if task.owner is None else queue.ledger.worker(task.owner)
    if worker is None or processes.is_alive(worker.process) is None:
        return Cancelled(task, True, [f"its owner w{task.owner}, which cannot be reached from here"])
    if worker.deadline_at is None:
        # Somebody's own program claimed it; it will learn that its claim is over.
        return Cancelled(task, True, [f"its owner, pid {worker.pid}, until it looks at its claim"])
    if queue.ledger.is_embedded(worker):
        return Cancelled(
            task, True, [f"its worker in the program with pid {worker.pid}, until the task at hand returns"]
        )
    grace, mode = project.limits.grace_sec, project.modes.get(task.mode)
    if mode is None or mode.function is None:
        found, left = _end_command(task, worker, project)
        if found or mode is not None:
            return Cancelled(task, True, left)
    return Cancelled(task, True, _end_function(queue, worker, grace))


def _end_command(task: Task, worker: Worker, project: Project) -> tuple[bool, list[str]]:
    """End the command that does a task under one claim: whether there was one, and what could not be ended.

    Looks again for one that is just starting.
    """
    for _ in range(5):
        running = slate.read(project.state, worker.id)
        if running is not None and (running.task, running.claim) == (task.id, task.attempts):
            return True, kin.end_led_by(running.leader, project.limits.grace_sec)
        clock.sleep(0.1)
    return False, []


def _end_function(queue: Queue, worker: Worker, grace: float) -> list[str]:
    """End the worker, unless it is through with the task and at the next one: held for a moment, it cannot claim."""
    if not processes.hold(worker.process):
        return []
    if queue.owned(worker.id):
        processes.let_go(worker.process)
        return []
    return kin.end_tree(worker.process, grace)
