"""A mode: one kind of work, and how it is done."""

from __future__ import annotations

from dataclasses import dataclass

from orch.errors import UsageError

# Present in every project: the payload's own words are the command.
RUN = "run"


@dataclass(frozen=True, slots=True)
class Mode:
    """How tasks of one mode are done, with the limits that the mode sets for itself (None: the fire's own).

    Exactly one of ``function`` (``"module:function"``) and ``command`` (words with ``{field}`` places) is given. Both
    are None in the built-in mode `run`, whose words come from the payload. ``timeout`` is in seconds.
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


def check_name(name: str) -> str:
    """The name itself when it can stand for a mode; `UsageError` otherwise."""
    if not name or len(name) > 200 or not name.isprintable() or name != name.strip() or name.startswith("-"):
        raise UsageError(
            f"{name!r} cannot be the name of a mode: use 1 to 200 printable characters, not beginning with '-'"
        )
    if name == "*":
        raise UsageError("'*' means every mode and cannot be the name of one")
    return name
