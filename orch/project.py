"""What a fire needs to know of the project that it works for, as plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orch.limits import Limits
from orch.modes import Mode


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides instead of the built-in rule: a function (``"module:function"``) or a command, as a list of words.

    Exactly one of both is given. ``timeout`` is in seconds.
    """

    function: str | None = None
    command: tuple[str, ...] | None = None
    timeout: float = 300.0

    @property
    def name(self) -> str:
        """Who that is, in words."""
        return f"function {self.function}" if self.command is None else f"command {self.command[0]}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """When things are due, as cron expressions in the project's zone; None where nobody said."""

    fire: str | None = None
    sweep: str | None = None
    watchdog: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """How the watchdog judges, and whom it alarms.

    A fire is missing ``grace_minutes`` after it was due; it is due by the schedule or, without one,
    ``expected_interval_hours`` after the last one that succeeded. ``alerts`` are sinks as for notes; an outage that
    goes on is told again every ``remind_hours``.
    """

    expected_interval_hours: float = 4.0
    grace_minutes: float = 30.0
    remind_hours: float = 24.0
    alerts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Project:
    """Where a project lies, its modes, its limits, who decides and when, and where its notes go.

    ``zone`` is the IANA name of the zone whose calendar day the daily caps count and whose clock the schedule follows;
    ``folder`` is where functions are imported from (then from the folders of ``python_path``) and where commands run;
    ``state`` holds the outputs. Below ``queue_root``
    DELEGATEs lie as files (None: nowhere). With ``spans`` each fire and poll that ends writes its spans as files.
    """

    database: str
    folder: str
    state: str
    modes: Mapping[str, Mode]
    limits: Limits = field(default_factory=Limits)
    zone: str = "UTC"
    sinks: Sequence[str] = ("file:.orch/notes.md",)
    durability: str = "adds"
    start_method: str = "forkserver"
    decider: Decider | None = None
    schedule: Schedule = Schedule()
    guard: Guard = Guard()
    queue_root: str | None = None
    spans: bool = False
    python_path: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that have an agent here."""
        return tuple(sorted(name for name, mode in self.modes.items() if mode.agent is not None))

    @property
    def spans_folder(self) -> str:
        """Where spans are written: below the ``queue_root``, or with the state of a project that has none."""
        return os.path.join(self.queue_root or self.state, "spans")

    def __post_init__(self) -> None:
        # One queue has one name, whichever way leads to it: what it left running is found by that name.
        for name in ("database", "folder", "state"):
            object.__setattr__(self, name, os.path.realpath(getattr(self, name)))
