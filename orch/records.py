"""Slots dataclasses for tasks and what happens to them; field order is the column order of the queries that fill them.

Moments are stored stamps (UTC text), spans are seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from orch import clock
from orch.legible import when


@dataclass(slots=True)
class NewTask:
    """A task to be added. ``payload`` is JSON text, kept as it is written; ``after`` holds ids or keys."""

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
    """One task. ``attempts`` counts claims and is the fencing token of the present owner."""

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


@dataclass(slots=True)
class Attempt:
    """One start of a task, told from its events and from what was kept of its outcome."""

    task: int
    attempt: int
    worker: int | None
    fire: int | None
    claimed_at: str
    ended_at: str | None
    outcome: str | None
    reason: str | None
    exit_code: int | None
    error: str | None
    result: str | None
    output: str | None
    tokens: int | None
    cost_usd: float | None


@dataclass(slots=True)
class Event:
    """One move of one task; the log of these is append-only."""

    id: int
    task: int
    attempt: int
    old_state: str
    new_state: str
    at: str
    moved_by: str | None
    reason: str | None
    worker: int | None


@dataclass(slots=True)
class Pause:
    """A paused mode, or all of them (``*``); ``until`` is a stamp where it ends by itself."""

    mode: str
    paused_at: str
    paused_by: str | None
    reason: str | None
    until: str | None = None

    @property
    def told(self) -> str:
        """The pause in words, without its mode."""
        until = f" until {when(self.until)}" if self.until else ""
        return f"paused{until}{': ' + self.reason if self.reason else ''}"


@dataclass(slots=True)
class Backlog:
    """What waits and runs in one mode. ``ready`` can be claimed now; the rest waits for a time or for another task."""

    mode: str
    ready: int = 0
    delayed: int = 0
    retrying: int = 0
    blocked: int = 0
    running: int = 0
    crashed: int = 0
    oldest_at: str | None = None
    top_priority: int = 0


@dataclass(slots=True)
class Moved:
    """One move of a task, with its mode and key."""

    event: Event
    mode: str
    key: str | None

    @property
    def at(self) -> str:
        return self.event.at
