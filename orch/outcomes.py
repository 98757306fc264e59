"""What a task's labour came to: values that the worker matches in one place, never exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is kept of an attempt beside its outcome: a command's exit code and where its captured output lies.

    ``output`` is a path relative to the state folder, without an ending; ``.out`` and ``.err`` stand beside it when
    anything was written there.
    """

    exit_code: int | None = None
    output: str | None = None


NOTHING = Evidence()


@dataclass(frozen=True, slots=True)
class Done:
    """The labour succeeded. ``result`` is JSON text, or None for no result."""

    result: str | None = None
    evidence: Evidence = NOTHING


@dataclass(frozen=True, slots=True)
class Failed:
    """The labour failed in an orderly way; ``error`` says how."""

    error: str
    evidence: Evidence = NOTHING


@dataclass(frozen=True, slots=True)
class Later:
    """Not now: try again after ``retry_after`` seconds (None: the configured delay). No retry is counted."""

    why: str
    retry_after: float | None = None
    evidence: Evidence = NOTHING


@dataclass(frozen=True, slots=True)
class Cut:
    """The labour was ended from outside: ``timeout``, ``wall_clock`` or ``stopped``."""

    why: str
    error: str
    evidence: Evidence = NOTHING


Outcome = Done | Failed | Later | Cut


class NotNow(Exception):
    """Raised by a task's function that cannot work at present: the task goes back unharmed and is due again later.

    `retry_after` is in seconds; without it the configured ``not_now_delay`` holds.
    """

    def __init__(self, why: str = "not now", *, retry_after: float | None = None) -> None:
        super().__init__(why)
        number = isinstance(retry_after, int | float) and not isinstance(retry_after, bool)
        if retry_after is not None and not (number and 0 <= retry_after < float("inf")):
            raise ValueError(f"retry_after {retry_after!r} is not a number of seconds")
        self.why = str(why)
        self.retry_after = retry_after


def error_text(error: BaseException) -> str:
    """One line that names an exception, whatever its own ``__str__`` does."""
    name: Any = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return f"{name}: {text}" if text else str(name)
