"""How long a task waits before it is tried again: a pure rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orch.limits import Retries


def delay(retries: Retries, retry_count: int, chance: float | None = None) -> float:
    """Seconds to wait before start number ``retry_count + 1``.

    ``retry_count`` is the number of retries already counted, this one included (1 for the first). `chance` in [0, 1)
    places the result within the jitter; without it a random one is drawn, so that tasks that failed together do not
    come back together.
    """
    if chance is None:
        import random  # here, as few of those who load this ever draw

        chance = random.random()
    try:
        plain = retries.backoff_base_sec * retries.backoff_multiplier ** max(0, retry_count - 1)
    except OverflowError:
        plain = retries.backoff_max_sec
    capped = min(plain, retries.backoff_max_sec)
    return float(capped * (1 + retries.jitter * (2 * chance - 1)))


def spent(retries: Retries, retry_count: int) -> bool:
    """Whether a task whose retries count `retry_count` has had all its starts."""
    return retry_count >= retries.max_attempts
