"""Slots dataclasses for tasks; field order is the column order of the queries that fill them.

Moments are stored stamps (UTC text), spans are seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from orch import clock


@dataclass(slots=True)
class NewTask:
    """A task to be added. ``payload`` is JSON text, kept as it is written; ``after`` holds ids or keys.

    It is not claimed before ``due_at`` and fails as expired when it has not begun by ``expires_at`` (stamps);
    ``timeout`` bounds one attempt in seconds. ``priority`` and ``key`` are as for `Queue.add`.
    """

    mode: str
    payload: str = "{}"
    key: str | None = None
    priority: int = 0
    due_at: str | None = None
    expires_at: str | None = None
    timeout: float | None = None
    after: tuple[str, ...] = ()


@dataclass(slots=True)
class Added:
    """The answer to an add: the task's id, and whether it is new (False: the key was there with the same payload)."""

    id: int
    new: bool


@dataclass(slots=True)
class Task:
    """One task, as it stood when it was read.

    ``attempts`` counts claims and is the fencing token of the present owner, ``retry_count`` those of them that count
    against its retries. ``owner`` is the id of the worker that has it, ``claimed_at`` and ``heartbeat_at`` say since
    when, and ``deadline_at`` until when. It waits for ``due_at`` and for so many other tasks as ``blocked`` says.
    ``moved_by`` and ``reason`` tell of its last move, at ``updated_at``. ``payload_text`` is the payload as it was
    written, and ``payload`` the same as Python values.
    """

    id: int
    mode: str
    state: str
    priority: int
    key: str | None
    attempts: int
    retry_count: int
    owner: int | None
    due_at: str | None
    blocked: int
    timeout: float | None
    deadline_at: str | None
    claimed_at: str | None
    heartbeat_at: str | None
    expires_at: str | None
    created_at: str
    updated_at: str
    moved_by: str | None
    reason: str | None
    payload_text: str

    @property
    def payload(self) -> Any:
        """The payload as Python values, integers of any size included."""
        return json.loads(self.payload_text)

    @property
    def allotted(self) -> float | None:
        """The seconds that its present attempt may take; None when nothing bounds it."""
        if self.deadline_at is None or self.claimed_at is None:
            return None
        return clock.seconds_between(self.claimed_at, self.deadline_at)

    @property
    def last_sign(self) -> str:
        """The owner's last sign of life: its heartbeat, else its claim."""
        return self.heartbeat_at or self.claimed_at or self.updated_at
