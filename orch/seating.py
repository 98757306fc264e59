"""From the state of the queue to seats: the snapshot that a decider sees, and what its plan means in workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orch import clock, rollup as rollups
from orch.hygiene import look
from orch.plan import Plan, Snapshot, by_backlog
from orch.project import Project
from orch.queue import Queue
from orch.worker import Seat

# Fires whose measured durations the decision looks at.
_MEASURED_FIRES = 5


@dataclass(slots=True)
class Rehearsal:
    """What a fire would do now: what its hygiene would find, and its plan."""

    missing: int
    overdue: int
    stale: int
    crashed: int
    due: int
    plan: Plan
    seats: list[Seat]


def rehearse(queue: Queue, project: Project, *, decide: Callable[[Snapshot], Plan] = by_backlog) -> Rehearsal:
    """Look and decide as a fire would; nothing is written and nothing is started."""
    findings = look(queue, project)
    plan = decide(snapshot(queue, project))
    return Rehearsal(
        missing=len(findings.missing),
        overdue=len(findings.overdue),
        stale=len(findings.stale),
        crashed=len(findings.crashed),
        due=sum(queue.due()),
        plan=plan,
        seats=seats_of(plan, project, fire=0),
    )


def snapshot(queue: Queue, project: Project) -> Snapshot:
    """The state of the queue as a decider sees it."""
    return Snapshot(
        backlog=queue.backlog(),
        modes=project.modes,
        paused=frozenset(pause.mode for pause in queue.pauses()),
        seconds=_measured(queue),
        limits=project.limits,
    )


def seats_of(plan: Plan, project: Project, *, fire: int) -> list[Seat]:
    """One seat for each worker that was granted, the caps of its mode before those of the fire."""
    seats: list[Seat] = []
    now = clock.now()
    for name, count in plan.granted.items():
        mode = project.modes[name]
        minutes = mode.wall_clock_minutes or project.limits.wall_clock_minutes
        for _ in range(count):
            seats.append(
                Seat(
                    number=len(seats) + 1,
                    mode=mode,
                    task_cap=mode.task_cap or project.limits.task_cap,
                    until=clock.stamp(clock.after(now, minutes * 60)),
                    fire=fire,
                    database=project.database,
                    durability=project.durability,
                    project=project.folder,
                    state=project.state,
                    limits=project.limits,
                )
            )
    return seats[: project.limits.max_pool]


def _measured(queue: Queue) -> dict[str, float]:
    """Seconds a task by mode, as the last fires measured them."""
    seconds: dict[str, float] = {}
    ended: dict[str, int] = {}
    for past in queue.ledger.fires(_MEASURED_FIRES):
        if past.rollup is None:
            continue
        for tally in rollups.read_back(past.rollup).tallies:
            seconds[tally.mode] = seconds.get(tally.mode, 0.0) + tally.seconds
            ended[tally.mode] = ended.get(tally.mode, 0) + tally.done + tally.failed
    return {mode: seconds[mode] / count for mode, count in ended.items() if count}


def planned(queue: Queue, seats: Sequence[Seat]) -> int:
    """How many tasks the seats can drain at the most."""
    caps: dict[str, int] = {}
    for seat in seats:
        caps[seat.mode.name] = caps.get(seat.mode.name, 0) + seat.task_cap
    return sum(min(caps.get(backlog.mode, 0), backlog.ready) for backlog in queue.backlog())
