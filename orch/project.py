"""What a fire needs to know of the project that it works for, as plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orch.limits import Limits
from orch.modes import Mode


@dataclass(frozen=True, slots=True)
class Project:
    """Where a project lies, its modes, its limits, and where its notes go.

    ``zone`` is the IANA name of the zone whose calendar day the daily cap counts; ``folder`` is where functions are
    imported from and commands run; ``state`` holds the outputs.
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
    expected_interval_hours: float = 4.0
    grace_minutes: float = 30.0

    def __post_init__(self) -> None:
        # One queue has one name, whichever way leads to it: what it left running is found by that name.
        for name in ("database", "folder", "state"):
            object.__setattr__(self, name, os.path.realpath(getattr(self, name)))
