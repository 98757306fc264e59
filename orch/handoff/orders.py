"""A DELEGATE as a task of the queue: its role is the mode, its id the key, its text in the payload."""

from __future__ import annotations

from orch import clock, jsontext
from orch.handoff.delegate import Delegate
from orch.records import NewTask

# The priority of a DELEGATE that names none, on the protocol's scale of 1 to 10.
_MIDDLE = 5


def task_of(delegate: Delegate) -> NewTask:
    """The task that a DELEGATE is. Its fields are the payload's, so that a command can name them; all of it as text."""
    payload: dict[str, object] = {
        "task_id": delegate.task_id,
        "agent": delegate.agent,
        "model": delegate.model,
        "effort": delegate.effort,
        "skill": delegate.skill,
        "scope": delegate.scope,
        "delegate": delegate.text,
    }
    limits = {"budget_usd": delegate.budget_usd, "token_limit": delegate.token_limit}
    payload |= {name: limit for name, limit in limits.items() if limit is not None}
    return NewTask(
        mode=delegate.agent,
        payload=jsontext.dump(payload),
        key=delegate.task_id,
        priority=(delegate.priority or _MIDDLE) - _MIDDLE,
        expires_at=None if delegate.deadline is None else clock.stamp(clock.instant(delegate.deadline, clock.UTC)),
        after=tuple(delegate.dependencies),
    )
