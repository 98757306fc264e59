"""The budgets: what has been spent beside what may be, and the gate that every claim of a worker passes.

A day is the calendar day of the project's zone in which an attempt told what it cost.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orch import clock
from orch.fire_records import Fire, Overrun, Spent
from orch.limits import BUDGETS, Limits
from orch.queue import Queue

# A sum of many small prices may miss the cap by a rounding error.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Bill:
    """What was spent in a day or in a fire: tokens, US dollars, and the attempts that said nothing of either."""

    tokens: int = 0
    cost_usd: float = 0.0
    without_tokens: int = 0
    without_cost: int = 0


def exhausted(limits: Limits, today: Bill, fire: Bill | None) -> tuple[str, str] | None:
    """The first budget that is spent, by its cap's name, and what is to be said of it; None while there is room."""
    for span, bill in (("daily", today), ("fire", fire)):
        if bill is None:
            continue
        when = "today" if span == "daily" else "in this fire"
        cost, tokens = getattr(limits, f"{span}_cost_usd"), getattr(limits, f"{span}_tokens")
        if cost is not None and bill.cost_usd >= cost - _ROUNDING:
            return f"{span}_cost_usd", f"{dollars(bill.cost_usd)} of {dollars(cost)} are spent {when}"
        if tokens is not None and bill.tokens >= tokens:
            return f"{span}_tokens", f"{bill.tokens:,} of {tokens:,} tokens are spent {when}"
        if limits.unknown_cost == "stop":
            for cap, unknown in ((cost, bill.without_cost), (tokens, bill.without_tokens)):
                if cap is not None and unknown:
                    return "unknown_cost", f"{unknown} attempts {when} did not say what they cost"
    return None


def today(queue: Queue, limits: Limits, zone: datetime.tzinfo, now: datetime.datetime) -> Bill:
    """What the calendar day of `now` has cost so far."""
    since, until = clock.day_bounds(now, zone)
    tokens, cost = queue.spending.on(since, until)
    if limits.unknown_cost != "stop":
        return Bill(tokens, cost)
    # Only this question needs the log: an attempt that said nothing left no other trace.
    first = queue.log.first_since(since)
    return Bill(tokens, cost, *queue.spending.unpriced(since=since, after=first - 1))


def of_fire(queue: Queue, limits: Limits, fire: Fire) -> Bill:
    """What one fire has cost so far."""
    tokens, cost = queue.spending.of_fire(fire.id)
    if limits.unknown_cost != "stop":
        return Bill(tokens, cost)
    unpriced = queue.spending.unpriced(since=fire.opened_at, after=fire.first_event, fire=fire.id)
    return Bill(tokens, cost, *unpriced)


@dataclass(slots=True)
class Gate:
    """Asked by a worker before each claim, inside the claim's transaction: whether the budgets leave room for it.

    ``hit`` is the name of the cap that closed it. What runs goes on: a budget can be passed by what was under way.
    """

    queue: Queue
    limits: Limits
    zone: datetime.tzinfo
    fire: Fire | None
    hit: str | None = None

    def __call__(self) -> bool:
        day = today(self.queue, self.limits, self.zone, clock.now())
        bill = None if self.fire is None else of_fire(self.queue, self.limits, self.fire)
        found = exhausted(self.limits, day, bill)
        self.hit = found[0] if found else None
        return found is None


def dollars(amount: float) -> str:
    """An amount of money, to the cent; a smaller one as far as its first two figures go."""
    places = 2 if amount == 0 or amount >= 0.1 else min(9, 1 - math.floor(math.log10(amount)))
    whole, _, rest = f"{amount:,.{places}f}".partition(".")
    return f"${whole}.{rest[:2]}{rest[2:].rstrip('0')}"


def told_of_overrun(overrun: Overrun) -> str:
    """That an order has cost more than it allows."""
    parts = []
    if overrun.budget_usd is not None and overrun.cost_usd > overrun.budget_usd:
        parts.append(f"{dollars(overrun.cost_usd)} of a budget of {dollars(overrun.budget_usd)}")
    if overrun.token_limit is not None and overrun.tokens > overrun.token_limit:
        parts.append(f"{overrun.tokens:,} tokens of a quota of {overrun.token_limit:,}")
    return f"task {overrun.task} ({overrun.key or 'no key'}) is over its order: {', '.join(parts)}"


@dataclass(slots=True)
class Account:
    """What was spent, day by day and in today's fires, beside the caps.

    ``days`` are calendar days of ``zone``, the newest first, each with its modes; ``fires`` are today's. ``caps`` holds
    the budgets that are set, by name.
    """

    zone: str
    day: str
    resets_at: str
    today: Bill
    caps: dict[str, float]
    unknown_cost: str
    days: list[tuple[str, list[Spent]]]
    fires: list[Spent]


def account(queue: Queue, limits: Limits, zone_name: str, days: int) -> Account:
    """The account of the last `days` calendar days; those on which nothing was reported are left out."""
    now, zone = clock.now(), clock.zone(zone_name)
    told: list[tuple[str, list[Spent]]] = []
    fires: list[Spent] = []
    moment = now
    for number in range(days):
        since, until = clock.day_bounds(moment, zone)
        spent = queue.spending.between(since, until)
        if number == 0:
            fires = _summed(spent, lambda one: (one.fire, ""))
        if spent:
            told.append((clock.day(moment, zone), _summed(spent, lambda one: (None, one.mode))))
        # An hour before a day begins is the day before, whatever the zone does that night.
        moment = clock.after(clock.moment(since), -3600)
    return Account(
        zone=zone_name,
        day=clock.day(now, zone),
        resets_at=clock.next_midnight(now, zone).isoformat(timespec="minutes"),
        today=today(queue, limits, zone, now),
        caps={name: getattr(limits, name) for name in BUDGETS if getattr(limits, name) is not None},
        unknown_cost=limits.unknown_cost,
        days=told,
        fires=fires,
    )


def _summed(spent: Sequence[Spent], key: Callable[[Spent], tuple[int | None, str]]) -> list[Spent]:
    """Sums by fire or by mode, whichever the key keeps."""
    sums: dict[tuple[int | None, str], Spent] = {}
    for one in spent:
        fire, mode = key(one)
        total = sums.setdefault((fire, mode), Spent(fire, mode, 0, 0, 0.0))
        total.priced += one.priced
        total.tokens += one.tokens
        total.cost_usd += one.cost_usd
    return sorted(sums.values(), key=lambda one: (one.fire or 0, one.mode))
