"""What a task's labour came to: values that the worker matches in one place, never exceptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orch import jsontext
from orch.errors import UsageError
from orch.limits import LARGEST

_LONGEST_ERROR = 10_000


@dataclass(frozen=True, slots=True)
class Metrics:
    """What an attempt says of its own price; None where it does not say."""

    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is kept of an attempt beside its outcome: a command's exit code and where its captured output lies.

    ``output`` is a path relative to the state folder, without an ending; ``.out`` and ``.err`` stand beside it when
    anything was written there. ``metrics`` is what it cost, where no result says so. ``left`` describes processes that
    it started and that could not be ended.
    """

    exit_code: int | None = None
    output: str | None = None
    metrics: Metrics | None = None
    left: tuple[str, ...] = ()


NOTHING = Evidence()


@dataclass(frozen=True, slots=True)
class Done:
    """The labour succeeded. ``result`` is JSON text, or None for no result.

    ``also`` is called with the queue in the transaction that marks the task, where its claim still stands.
    """

    result: str | None = None
    evidence: Evidence = NOTHING
    also: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The labour failed in an orderly way; ``error`` says how.

    ``result`` is JSON text that is kept all the same, and ``also`` as with `Done`. ``again`` says whether it is worth
    another try (None: as its mode has it).
    """

    error: str
    evidence: Evidence = NOTHING
    result: str | None = None
    also: Callable[[Any], object] | None = None
    again: bool | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """Not now: try again after ``retry_after`` seconds (None: the configured delay). No retry is counted.

    ``everybody`` says that it holds for every task of the mode.
    """

    why: str
    retry_after: float | None = None
    evidence: Evidence = NOTHING
    everybody: bool = False


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
        check_delay(retry_after)
        self.why = str(why)
        self.retry_after = retry_after


def check_delay(seconds: float | None) -> None:
    """`ValueError` when that is no delay."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 <= seconds < float("inf")):
        raise ValueError(f"retry_after {seconds!r} is not a number of seconds")


def metrics_of(value: Any) -> Metrics | None:
    """What a result says of its price: its member ``metrics`` with ``tokens`` and ``cost_usd``, both optional.

    A number that cannot be a price (negative, absurdly large, not a number at all) counts as not said.
    """
    said = value.get("metrics") if isinstance(value, dict) else None
    if not isinstance(said, dict):
        return None
    tokens, cost = _amount(said.get("tokens")), _amount(said.get("cost_usd"))
    if tokens is not None and tokens != int(tokens):
        tokens = None
    if tokens is None and cost is None:
        return None
    return Metrics(None if tokens is None else int(tokens), cost)


def metrics_in(result: str | None) -> Metrics | None:
    """The same of a result's JSON text, which is only read where the word stands in it."""
    if result is None or '"metrics"' not in result:
        return None
    try:
        return metrics_of(jsontext.parse(result, "result"))
    except UsageError:
        return None


def _amount(said: Any) -> float | None:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    try:
        amount = float(said)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and 0 <= amount <= LARGEST else None


def error_text(error: BaseException) -> str:
    """A text that names an exception, whatever its own ``__str__`` does and however much it says."""
    name: Any = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        text = "(its message cannot be shown)"
    if len(text) > _LONGEST_ERROR:
        text = f"{text[:_LONGEST_ERROR]}… ({len(text):,} characters in all)"
    return f"{name}: {text}" if text else str(name)
