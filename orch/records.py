"""Slots dataclasses for the rows of the database; field order is the column order of the queries that fill them.

Moments are stored stamps (UTC text), spans are seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


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
class Process:
    """A process as it is known for good: ``started`` tells it from a later one with the same pid.

    ``boot`` names the boot of the host and, where the system has them, the pid namespace.
    """

    host: str
    boot: str
    pid: int
    started: str


@dataclass(slots=True)
class Worker:
    """One seat's process, or a program that claims on its own (``fire`` is None then)."""

    id: int
    fire: int | None
    seat: int | None
    mode: str | None
    host: str
    boot: str
    pid: int
    started: str
    task_cap: int | None
    enrolled_at: str
    deadline_at: str | None
    ended_at: str | None
    ending: str | None
    lost: int

    @property
    def process(self) -> Process:
        return Process(self.host, self.boot, self.pid, self.started)


@dataclass(slots=True)
class Fire:
    """One run of the decider. Each phase is stamped when it begins; ``closed_at`` is set with its note."""

    id: int
    day: str
    slot: str | None
    host: str
    boot: str
    pid: int
    started: str
    opened_at: str
    hygiene_at: str | None
    decide_at: str | None
    fan_out_at: str | None
    barrier_at: str | None
    rollup_at: str | None
    closed_at: str | None
    ending: str | None
    first_event: int
    plan: str | None
    rollup: str | None

    @property
    def process(self) -> Process:
        return Process(self.host, self.boot, self.pid, self.started)

    @property
    def phase(self) -> str:
        """The last phase that was begun, or how the fire ended."""
        if self.closed_at:
            return self.ending or "closed"
        begun = [name for name in PHASES if getattr(self, f"{name}_at")]
        return begun[-1] if begun else "opened"


PHASES = ("hygiene", "decide", "fan_out", "barrier", "rollup")


@dataclass(slots=True)
class Note:
    """The one note of a fire. A quiet one is stored and not sent."""

    id: int
    fire: int
    created_at: str
    title: str
    body: str
    quiet: int


@dataclass(slots=True)
class Delivery:
    """A note's way to one sink: delivered, or tried so often with this last error."""

    note: int
    sink: str
    tries: int
    delivered_at: str | None
    error: str | None


@dataclass(slots=True)
class Pause:
    """A paused mode, or all of them (``*``)."""

    mode: str
    paused_at: str
    paused_by: str | None
    reason: str | None


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
class Tally:
    """What one mode's attempts came to: counts by outcome, the seconds that they took, and what they say they cost.

    ``priced`` counts the attempts that say so.
    """

    mode: str
    claimed: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    crashed: int = 0
    released: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    priced: int = 0
    seconds: float = 0.0

    @property
    def ended(self) -> int:
        """Attempts that came to an end of their own, for better or worse."""
        return self.done + self.failed + self.retried + self.crashed


@dataclass(slots=True)
class Spent:
    """What attempts say that they cost: how many said anything, tokens, and US dollars.

    ``fire`` is None for attempts outside a fire.
    """

    fire: int | None
    mode: str
    priced: int
    tokens: int
    cost_usd: float


@dataclass(slots=True)
class Told:
    """A text for the decider. ``read_at`` is set once a decider was given it (``fire``) or somebody took it back."""

    id: int
    told_at: str
    told_by: str | None
    text: str
    read_at: str | None = None
    fire: int | None = None


@dataclass(slots=True)
class Refusal:
    """A fire that was not started, with the cap that refused it and what was said."""

    at: str
    slot: str | None
    cap: str
    told: str


@dataclass(slots=True)
class FailureGroup:
    """Equal failures of one mode, as one line; ``final`` ones are not tried again."""

    mode: str
    error: str
    count: int
    final: bool
    tasks: list[int] = field(default_factory=list)
