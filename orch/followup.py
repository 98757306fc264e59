"""What a person says: an answer to a question, with which a task goes on, or the HANDBACK of a task that is at work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orch.errors import Conflict, UsageError
from orch.handoff import Handback, HandoffError, words
from orch.outcomes import Failed
from orch.project import Project
from orch.queue import Queue
from orch.records import Task
from orch.states import OWNED
from orch.work import agent, workdir
from orch.worker import settle

BY_HAND = "handed in by a person"


def hand_in(queue: Queue, project: Project, task: Task, handback: Handback) -> Task:
    """Take a person's HANDBACK for a task that is at work, whoever works on it: the task as it stands then.

    Whoever works on it finds its claim lost, and ends. There is no gate, as it is no agent that says so. `Conflict`
    when nobody is at work on it.
    """
    mode = project.modes.get(task.mode)
    if task.state not in OWNED or mode is None or mode.agent is None:
        raise Conflict(f"task {task.id} is {task.state}: only a role's task that is at work can be handed in")
    roles = tuple(words.all_roles(project.roles))
    own = workdir.latest(queue, task, project.state)
    folder = project.folder if own is None else workdir.place(project.state, own)
    outcome = agent.lead(queue, task, handback, project=folder, roles=roles)
    if isinstance(outcome, Failed):
        outcome = replace(outcome, error=f"{BY_HAND}: {outcome.error}")
    # The move is the person's and not the worker's.
    mine = replace(task, owner=None)
    with queue.transaction():
        if not settle(queue, mine, outcome, mode=mode, limits=project.limits, reason=BY_HAND):
            raise Conflict(f"task {task.id} has moved meanwhile: see 'orch show {task.id}'")
        # What was at the gate is judged by nobody any more.
        queue.asks.drop_answer(task.id)
    return queue.task(task.id)


def answer(queue: Queue, id: int, text: str, *, agents: Iterable[str]) -> Task:
    """Answer a question, in one transaction with the task that follows: that task.

    `Conflict` when the question is closed by now, `UsageError` when what it is about is no DELEGATE.
    """
    roles = tuple(words.all_roles(agents))
    with queue.transaction():
        ask = queue.asks.one(id)
        queue.asks.close(id, text)
        task = queue.task(ask.task)
        try:
            delegate = agent.delegate_of(task, roles)
        except HandoffError:
            raise UsageError(
                f"task {task.id} is no DELEGATE, so that nothing can follow: close the question with --close, and"
                f" queue the task again with 'orch retry {task.id}'"
            ) from None
        followed = agent.follow_up(
            queue,
            task,
            delegate,
            agent=delegate.agent,
            wanted=delegate.task_id,
            context=[f"Asked before: {ask.question}", f"A person answered: {text.strip()}"],
            relation="answer",
            chain=[],
            roles=roles,
        )
        return queue.task(followed)
