"""Slots dataclasses for workers, fires, notes and what they cost; field order is the column order of the queries.

Apart from the records of tasks, as adding one needs none of these. Moments are stored stamps (UTC text), spans seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """One run of the decider, or a ``kind`` "poll". Each phase is stamped when it begins; ``closed_at`` is set with its
    note."""

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
    kind: str = "fire"

    @property
    def process(self) -> Process:
        return Process(self.host, self.boot, self.pid, self.started)

    @property
    def name(self) -> str:
        """What it is called: ``fire 7``."""
        return f"{self.kind} {self.id}"

    @property
    def phase(self) -> str:
        """The last phase that was begun, or how the fire ended."""
        if self.closed_at:
            return self.ending or "closed"
        begun = [name for name in PHASES if getattr(self, f"{name}_at")]
        return begun[-1] if begun else "opened"


PHASES = ("hygiene", "decide", "fan_out", "barrier", "rollup")
# A fire is successful when it passed its barrier and stored its note, whatever its tasks did.
SUCCESSFUL = ("passed", "idle")


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
class Tally:
    """What one mode's attempts came to: counts by outcome, the seconds that they took, and what they say they cost.

    ``priced`` counts the attempts that say so, ``silent`` those that came to an end and do not.
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
    silent: int = 0
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
class Overrun:
    """An order that has cost more than it allows, as far as its attempts told: US dollars and tokens, each with its
    limit (None: there is none)."""

    task: int
    key: str | None
    cost_usd: float
    budget_usd: float | None
    tokens: int
    token_limit: int | None


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


@dataclass(slots=True)
class Sitting:
    """A worker and the task that it works on, with the stamp of its claim."""

    worker: int
    fire: int | None
    seat: int | None
    mode: str | None
    enrolled_at: str
    deadline_at: str | None
    task: int | None
    key: str | None
    claimed_at: str | None
