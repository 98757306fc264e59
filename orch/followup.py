"""What follows a person's answer: the task that it was asked about goes on, with the answer in its context."""

from __future__ import annotations

from collections.abc import Iterable

from orch.errors import UsageError
from orch.handoff import HandoffError, read_delegates, words
from orch.queue import Queue
from orch.records import Task
from orch.work import agent


def answer(queue: Queue, id: int, text: str, *, agents: Iterable[str]) -> Task:
    """Answer a question, in one transaction with the task that follows: that task.

    `Conflict` when the question is closed by now, `UsageError` when what it is about is no DELEGATE.
    """
    roles = tuple(words.all_roles(agents))
    with queue.transaction():
        ask = queue.asks.one(id)
        queue.asks.close(id, text)
        task = queue.task(ask.task)
        said = task.payload.get("delegate") if isinstance(task.payload, dict) else None
        try:
            [delegate] = read_delegates(str(said or "").encode(), roles=roles)
        except (HandoffError, ValueError):
            raise UsageError(
                f"task {task.id} is no DELEGATE, so that nothing can follow: close the question with --close, and"
                f" queue the task again with 'orch retry {task.id}'"
            ) from None
        followed = agent.follow_up(
            queue,
            task,
            delegate,
            agent=delegate.agent,
            wanted=str(task.key or task.id),
            context=[f"Asked before: {ask.question}", f"A person answered: {text.strip()}"],
            relation="answer",
            chain=[],
            roles=roles,
        )
        return queue.task(followed)
