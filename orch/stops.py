"""Stopping what runs: a cancelled task is failed first and killed then.

In that order, as the answer of the killed one must not win: its claim is over when it speaks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orch import processes
from orch.queue import Queue
from orch.records import Task

GRACE = 5.0


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


def cancel(queue: Queue, id: int, database: str, *, grace: float = GRACE) -> Cancelled:
    """Cancel a task; `Conflict` when it has ended.

    A command is ended by itself and its worker goes on; a function can only be ended with its worker, whose seat the
    fire then gives to another one.
    """
    task, ran = queue.cancel(id)
    if not ran or task.owner is None:
        return Cancelled(task, ran)
    worker = queue.ledger.worker(task.owner)
    if worker is None or processes.is_alive(worker.process) is None:
        return Cancelled(task, ran, [f"its owner w{task.owner}, which cannot be reached from here"])
    if worker.deadline_at is None:
        # Somebody's own program claimed it; it will learn that its claim is over.
        return Cancelled(task, ran, [f"its owner, pid {worker.pid}, until it looks at its claim"])
    ended, left = processes.end_claim(task.id, task.attempts, database, grace)
    if not ended:
        left += processes.end_tree(worker.process, grace)
    return Cancelled(task, ran, left)
