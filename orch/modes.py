"""A mode: one kind of work, and how it is done."""

from __future__ import annotations

import os
from dataclasses import dataclass

from orch.errors import UsageError
from orch.limits import Patience, Retries

# The places that the command of an agent may have; FLAGS is a word of its own.
FLAGS = "{flags}"
AGENT_PLACES = ("task_id", "role", "model", "effort", "delegate", "handback")

# The role whose agent judges the answers of those that ask for it.
JUDGE = "quality-engineer"


@dataclass(frozen=True, slots=True)
class Agent:
    """How the tasks of a role are given to an agent's program.

    Its ``command`` is that of the mode, with ``{task_id}``, ``{role}``, ``{model}``, ``{effort}``, ``{delegate}`` and
    ``{handback}`` (paths) filled in, and ``{flags}`` standing for all of ``flags``. ``model`` and ``effort`` hold where
    the DELEGATE names none. Of the environment all is handed on but ``drop`` or, where ``keep`` is given, only that and
    what any program needs. With a ``gate`` its successes are judged before they count. ``workdir`` is where an attempt
    works: in the ``project``, in a ``fresh`` folder, or in a ``worktree`` of the project's repository.
    """

    model: str | None = None
    effort: str | None = None
    flags: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    gate: bool = False
    workdir: str = "project"


@dataclass(frozen=True, slots=True)
class Mode:
    """How tasks of one mode are done, with the limits that the mode sets for itself (None: the fire's own).

    Exactly one of ``function`` (``"module:function"``) and ``command`` (words with ``{field}`` places) is given. Both
    are None in the built-in mode `run`, whose words come from the payload. ``timeout`` is in seconds. With an ``agent``
    the mode is a role, its tasks are DELEGATEs, and what the command prints is read as the answer.
    """

    name: str
    function: str | None = None
    command: tuple[str, ...] | None = None
    folder: str | None = None
    timeout: float | None = None
    task_cap: int | None = None
    wall_clock_minutes: float | None = None
    stale_hours: float | None = None
    max_seats: int | None = None
    retry_failures: bool = False
    agent: Agent | None = None
    retries: Retries | None = None
    patience: Patience | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "task_cap", "wall_clock_minutes", "stale_hours", "max_seats"):
            limit = getattr(self, name)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0):
                raise UsageError(
                    f"the {name} of the mode {self.name!r} has to be a number above 0, and {limit!r} is none"
                )

    def folder_in(self, project: str) -> str:
        """Where its commands run in a project."""
        return os.path.join(project, self.folder or "")
