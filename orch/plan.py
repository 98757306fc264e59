"""The decision: how many seats each mode gets in this fire. Plain records, and pure functions from one to the other.

A decider is given a `Snapshot` and answers with a `Wish`; what the caps leave of it is the `Plan`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from orch.fire_records import Told
from orch.legible import figure
from orch.limits import Limits

# The shape of what a decider reads and writes; it goes up when a reader of the old shape would be misled.
VERSION = 1
# A mode that was never measured is taken for slow: it is better to start a worker too many than to crawl.
UNMEASURED_SECONDS = 30.0
# So much expected work is worth a process of its own.
SECONDS_A_SEAT = 1.0
BUILT_IN = "the backlog"


@dataclass(frozen=True, slots=True)
class Measured:
    """What the last fires measured of one mode: attempts that ended, their mean seconds and mean price, and failures.

    ``failure_rate`` is the share of attempts that did not succeed, from 0 to 1. Prices are as reported, over the
    attempts that reported one.
    """

    attempts: int
    seconds: float
    failure_rate: float
    tokens: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """One mode as the decider sees it: what waits and runs, how old it is, its own caps, and what was measured.

    ``ready`` can be claimed now; the others wait for a time (``delayed``), for their next try (``retrying``) or for
    another task (``blocked``). ``oldest_seconds`` is the age of the oldest ready task. A mode that is not ``known`` has
    no settings here and can get no seat, nor can one that is ``paused``; ``pause_reason`` is what was said of it.
    """

    mode: str
    ready: int = 0
    delayed: int = 0
    retrying: int = 0
    blocked: int = 0
    running: int = 0
    crashed: int = 0
    oldest_at: str | None = None
    oldest_seconds: float | None = None
    top_priority: int = 0
    known: bool = True
    paused: bool = False
    pause_reason: str | None = None
    task_cap: int | None = None
    max_seats: int | None = None
    timeout: float | None = None
    wall_clock_minutes: float | None = None
    measured: Measured | None = None

    @property
    def drainable(self) -> bool:
        return self.ready > 0 and self.known and not self.paused


@dataclass(frozen=True, slots=True)
class Spend:
    """What today's attempts say that they cost, beside the caps of the day (None: no cap)."""

    tokens: int = 0
    cost_usd: float = 0.0
    daily_tokens: int | None = None
    daily_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Something that waits for a person, and the fire that asked."""

    text: str
    fire: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One of the last notes."""

    fire: int
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps of one fire. As part of a wish: lower ones than those configured (None: as configured)."""

    max_pool: int | None = None
    task_cap: int | None = None
    wall_clock_minutes: float | None = None
    fire_cost_usd: float | None = None
    fire_tokens: int | None = None

    @classmethod
    def of(cls, limits: Limits) -> Caps:
        """Those that are configured."""
        return cls(**{each.name: getattr(limits, each.name) for each in fields(cls)})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decider judges by. Times are UTC texts, ages and durations seconds, costs US dollars.

    ``day`` is the calendar day in ``zone`` whose fires and spend the daily caps count. ``questions`` wait for people,
    ``inbox`` holds what people told the decider and no decider has read, ``notes`` are the last ones, newest first.
    """

    at: str = ""
    zone: str = "UTC"
    day: str = ""
    fires_today: int = 0
    daily_fires: int = 0
    caps: Caps = Caps()
    modes: Sequence[Demand] = ()
    spend: Spend = Spend()
    questions: Sequence[Question] = ()
    inbox: Sequence[Told] = ()
    notes: Sequence[Report] = ()
    schema_version: int = VERSION

    def drainable(self) -> list[Demand]:
        """The modes that have something to claim, that are known here and not paused; the most pressing first."""
        found = [demand for demand in self.modes if demand.drainable]
        return sorted(found, key=lambda demand: (-demand.top_priority, demand.oldest_at or "", demand.mode))


@dataclass(frozen=True, slots=True)
class Wish:
    """What a decider asks for: seats by mode in the order in which they are given out, lower caps, and why."""

    seats: Mapping[str, int]
    caps: Caps = Caps()
    reasoning: str | None = None


@dataclass(slots=True)
class Plan:
    """Seats by mode: what was asked for, what was granted, and which cap cut the difference.

    A cut is the name of a cap and what it cut, in words; the cap ``backlog`` stands for "no more tasks than that".
    ``decider`` is who asked, ``problem`` why the configured decider did not, ``caps`` those of this fire that are lower
    than the configured ones, ``planned`` how many tasks the seats can drain at the most, and ``read`` the numbers of
    the texts that the decider was given.
    """

    asked: dict[str, int] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    cuts: list[tuple[str, str]] = field(default_factory=list)
    decider: str = BUILT_IN
    reasoning: str | None = None
    problem: str | None = None
    caps: dict[str, float] = field(default_factory=dict)
    planned: int = 0
    read: list[int] = field(default_factory=list)

    @classmethod
    def read_back(cls, raw: Mapping[str, Any]) -> Plan:
        """A stored plan as a record again."""
        return cls(**{**raw, "cuts": [tuple(cut) for cut in raw.get("cuts", ())]})


def by_backlog(snapshot: Snapshot) -> Plan:
    """Seats by expected work.

    A mode asks for as many seats as its backlog can use: one for each ``task_cap`` of tasks and each second of expected
    work, never more than tasks or than its ``max_seats``. Every mode with work gets one seat while seats last, the most
    pressing first; each further seat goes to the mode with the most work a seat.
    """
    plan = Plan()
    work: dict[str, float] = {}
    for demand in snapshot.drainable():
        seconds = demand.measured.seconds if demand.measured else UNMEASURED_SECONDS
        work[demand.mode] = demand.ready * max(seconds, 0.001)
        useful = math.ceil(max(demand.ready / _task_cap(demand, snapshot.caps), work[demand.mode] / SECONDS_A_SEAT))
        plan.asked[demand.mode] = min(useful, demand.ready)
    bounds = _bounds(plan, snapshot)
    seats = snapshot.caps.max_pool or 0
    plan.granted = dict.fromkeys(list(bounds)[:seats], 1)
    while sum(plan.granted.values()) < seats:
        hungry = [mode for mode in plan.granted if plan.granted[mode] < bounds[mode]]
        if not hungry:
            break
        plan.granted[max(hungry, key=lambda mode: work[mode] / plan.granted[mode])] += 1
    _note_pool_cut(plan, bounds)
    return _counted(plan, snapshot)


def grant(wish: Wish, snapshot: Snapshot, *, decider: str) -> Plan:
    """What the caps leave of a wish. Seats are given out in its order, until the pool is full."""
    plan = Plan(asked=dict(wish.seats), decider=decider, reasoning=wish.reasoning)
    plan.read = [told.id for told in snapshot.inbox]
    snapshot = replace(snapshot, caps=_lowered(wish.caps, snapshot, plan))
    bounds = _bounds(plan, snapshot)
    left = snapshot.caps.max_pool or 0
    for mode, bound in bounds.items():
        seats = min(bound, left)
        left -= seats
        if seats:
            plan.granted[mode] = seats
    _note_pool_cut(plan, bounds)
    return _counted(plan, snapshot)


def capped(limits: Limits, plan: Plan) -> Limits:
    """The limits of a fire whose plan lowers some of them."""
    changed: dict[str, Any] = {}
    for name, value in plan.caps.items():
        have = getattr(limits, name)
        changed[name] = value if have is None else min(value, have)
    return replace(limits, **changed) if changed else limits


def worker_cap(name: str, plan: Plan, own: float | None, fires: float) -> float:
    """What bounds one worker: its mode's own cap before the fire's, and a lower one of the plan before both."""
    cap = own or fires
    return min(cap, plan.caps.get(name, cap))


def _lowered(wanted: Caps, snapshot: Snapshot, plan: Plan) -> Caps:
    """The fire's caps, lower where that is wanted. A wish that is below nothing is cut back to what is configured.

    A mode's own cap can be higher than the fire's: then it is that one which the wish lowers.
    """
    configured = snapshot.caps
    changed: dict[str, Any] = {}
    for name in (each.name for each in fields(Caps)):
        want, have = getattr(wanted, name), getattr(configured, name)
        if want is None or want == have:
            continue
        if have is None or want < have:
            changed[name] = plan.caps[name] = want
        elif any((getattr(demand, name, None) or 0) > want for demand in snapshot.modes):
            plan.caps[name] = want
        else:
            plan.cuts.append((name, f"{figure(have)} and not {figure(want)}, as the decider asked"))
    return replace(configured, **changed)


def _bounds(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """What each mode may have at the most; noted where something of its own cuts."""
    demands = {demand.mode: demand for demand in snapshot.modes}
    bounds = {}
    for name, asked in plan.asked.items():
        demand = demands.get(name, Demand(name))
        bound = asked
        if demand.paused:
            bound = _cut(plan, "paused", name, bound, 0)
        if demand.max_seats is not None:
            bound = _cut(plan, "max_seats", name, bound, demand.max_seats)
        bound = _cut(plan, "backlog", name, bound, demand.ready)
        if bound:
            bounds[name] = bound
    return bounds


def _cut(plan: Plan, cap: str, mode: str, seats: int, most: int) -> int:
    if most < seats:
        plan.cuts.append((cap, f"{mode}: {most} of {seats} seats"))
    return min(seats, most)


def _note_pool_cut(plan: Plan, bounds: Mapping[str, int]) -> None:
    wanted, given = sum(bounds.values()), sum(plan.granted.values())
    if given < wanted:
        without = [name for name in bounds if name not in plan.granted]
        tail = f"; no seat for {', '.join(without)}" if without else ""
        plan.cuts.append(("max_pool", f"{given} of {wanted} seats{tail}"))


def _counted(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan with how many tasks its seats can drain at the most."""
    demands = {demand.mode: demand for demand in snapshot.modes}
    for mode, seats in plan.granted.items():
        demand = demands[mode]
        cap = worker_cap("task_cap", plan, demand.task_cap, _task_cap(demand, snapshot.caps))
        plan.planned += int(min(demand.ready, seats * cap))
    return plan


def _task_cap(demand: Demand, caps: Caps) -> int:
    """A mode's own cap before the fire's."""
    return demand.task_cap or caps.task_cap or Limits().task_cap
