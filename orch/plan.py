"""The decision: how many seats each mode gets in this fire. Pure functions from a snapshot to a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orch.limits import Limits
from orch.modes import Mode
from orch.records import Backlog

# A mode that was never measured is taken for slow: it is better to start a worker too many than to crawl.
UNMEASURED_SECONDS = 30.0
# So much expected work is worth a process of its own.
SECONDS_A_SEAT = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the decider judges by: the backlog, the known modes, what is paused, and measured seconds a task."""

    backlog: Sequence[Backlog]
    modes: Mapping[str, Mode]
    paused: frozenset[str]
    seconds: Mapping[str, float]
    limits: Limits

    def drainable(self) -> list[Backlog]:
        """The modes that have something to claim, that are known here and not paused; the most pressing first."""
        found = [
            backlog
            for backlog in self.backlog
            if backlog.ready and backlog.mode in self.modes and not self.paused & {backlog.mode, "*"}
        ]
        return sorted(found, key=lambda backlog: (-backlog.top_priority, backlog.oldest_at or "", backlog.mode))


@dataclass(slots=True)
class Plan:
    """Seats by mode: what was asked for, what was granted, and which cap cut the difference.

    A cut is the name of a cap and what it cut, in words.
    """

    asked: dict[str, int] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    cuts: list[tuple[str, str]] = field(default_factory=list)


def by_backlog(snapshot: Snapshot) -> Plan:
    """Seats by expected work.

    A mode asks for as many seats as its backlog can use: one for each ``task_cap`` of tasks and each second of expected
    work, never more than tasks or than its ``max_seats``. Every mode with work gets one seat while seats last, the most
    pressing first; each further seat goes to the mode with the most work a seat.
    """
    plan = Plan()
    work: dict[str, float] = {}
    for backlog in snapshot.drainable():
        mode = snapshot.modes[backlog.mode]
        cap = mode.task_cap or snapshot.limits.task_cap
        work[mode.name] = backlog.ready * max(snapshot.seconds.get(mode.name, UNMEASURED_SECONDS), 0.001)
        useful = max(math.ceil(backlog.ready / cap), math.ceil(work[mode.name] / SECONDS_A_SEAT))
        plan.asked[mode.name] = min(useful, backlog.ready)
    bounds = _bounds(plan, snapshot)
    seats = snapshot.limits.max_pool
    plan.granted = dict.fromkeys(list(bounds)[:seats], 1)
    while sum(plan.granted.values()) < seats:
        hungry = [mode for mode in plan.granted if plan.granted[mode] < bounds[mode]]
        if not hungry:
            break
        plan.granted[max(hungry, key=lambda mode: work[mode] / plan.granted[mode])] += 1
    _note_pool_cut(plan, bounds, seats)
    return plan


def _bounds(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """What each mode may have at the most; noted where the mode's own cap cuts."""
    bounds = {}
    for name, asked in plan.asked.items():
        most = snapshot.modes[name].max_seats
        bounds[name] = asked if most is None else min(asked, most)
        if bounds[name] < asked:
            plan.cuts.append(("max_seats", f"{name}: {bounds[name]} of {asked} seats"))
    return {name: bound for name, bound in bounds.items() if bound > 0}


def _note_pool_cut(plan: Plan, bounds: Mapping[str, int], seats: int) -> None:
    wanted, given = sum(bounds.values()), sum(plan.granted.values())
    if given < wanted:
        without = [name for name in bounds if name not in plan.granted]
        tail = f"; no seat for {', '.join(without)}" if without else ""
        plan.cuts.append(("max_pool", f"{given} of {wanted} seats{tail}"))
