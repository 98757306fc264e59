"""From the state of the queue to seats: the snapshot that a decider sees, and what its plan means in workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orch import budget, clock, processes, rollup as rollups
from orch.deciders import Callback, decide
from orch.fire_records import Fire, Tally
from orch.hygiene import look
from orch.look_records import Backlog
from orch.modes import JUDGE, Mode
from orch.plan import Caps, Demand, Measured, Plan, Question, Report, Snapshot, Spend, capped, worker_cap
from orch.project import Project
from orch.queue import Queue
from orch.rollup import Rollup
from orch.worker import Seat

# The last fires that did anything are what the decision looks at, out of so many.
_TELLING_FIRES = 5
_FIRES = 20
_NOTES = 3


@dataclass(slots=True)
class Rehearsal:
    """What a fire would do now: what its hygiene would find, what its decider would see, and its plan."""

    missing: int
    overdue: int
    stale: int
    crashed: int
    due: int
    snapshot: Snapshot
    plan: Plan
    seats: list[Seat]


def rehearse(queue: Queue, project: Project, *, callback: Callback | None = None) -> Rehearsal:
    """Look and decide as a fire would; nothing is written and no worker is started."""
    findings = look(queue, project)
    seen = snapshot(queue, project)
    plan = decide(seen, project, callback=callback)
    return Rehearsal(
        missing=len(findings.missing),
        overdue=len(findings.overdue),
        stale=len(findings.stale),
        crashed=len(findings.crashed),
        due=sum(queue.due()),
        snapshot=seen,
        plan=plan,
        seats=seats_of(plan, project, fire=0),
    )


def snapshot(queue: Queue, project: Project, *, fire: int = 0) -> Snapshot:
    """The state of the queue as a decider sees it; seats that others have are none of this fire's."""
    now, zone, limits = clock.now(), clock.zone(project.zone), project.limits
    day = clock.day(now, zone)
    past = _past(queue)
    bill = budget.today(queue, limits, zone, now)
    return Snapshot(
        at=clock.stamp(now),
        zone=project.zone,
        day=day,
        fires_today=queue.ledger.fires_on(day),
        daily_fires=limits.daily_fires,
        caps=replace(Caps.of(limits), max_pool=room(queue, project, fire=fire)),
        modes=_demands(queue, project, [rollup for _, rollup in past], clock.stamp(now)),
        spend=Spend(bill.tokens, bill.cost_usd, limits.daily_tokens, limits.daily_cost_usd),
        questions=_questions(queue, past),
        inbox=queue.mail.unread(),
        notes=[Report(note.fire, note.created_at, note.body) for note in queue.mail.notes(_NOTES)],
    )


def room(queue: Queue, project: Project, *, fire: int) -> int:
    """How many workers a fire may have: the pool is one for the fire and the poll that run at the same time."""
    others = [worker for worker in queue.ledger.present() if worker.fire not in (None, fire)]
    taken = sum(processes.is_alive(worker.process) is not False for worker in others)
    return max(0, project.limits.max_pool - taken)


def seats_of(plan: Plan, project: Project, *, fire: int) -> list[Seat]:
    """One seat for each worker that was granted."""
    seats: list[Seat] = []
    now = clock.now()
    limits = capped(project.limits, plan)
    for name, count in plan.granted.items():
        mode = project.modes[name]
        minutes = worker_cap("wall_clock_minutes", plan, mode.wall_clock_minutes, limits.wall_clock_minutes)
        seat = Seat(
            number=0,
            mode=mode,
            task_cap=int(worker_cap("task_cap", plan, mode.task_cap, limits.task_cap)),
            until=clock.stamp(clock.after(now, minutes * 60)),
            ends=clock.monotonic() + minutes * 60,
            fire=fire,
            database=project.database,
            durability=project.durability,
            project=project.folder,
            state=project.state,
            limits=limits,
            zone=project.zone,
            roles=project.roles,
            judge=project.modes.get(JUDGE) if mode.agent is not None and mode.agent.gate else None,
            root=project.queue_root,
            python_path=project.python_path,
        )
        seats += [replace(seat, number=len(seats) + number) for number in range(1, count + 1)]
    return seats[: limits.max_pool]


def _demands(queue: Queue, project: Project, past: list[Rollup], now: str) -> list[Demand]:
    """Every mode that has tasks or that the project can work on."""
    backlogs = {backlog.mode: backlog for backlog in queue.backlog()}
    pauses = {pause.mode: pause for pause in queue.pauses()}
    measured = _measured(past)
    demands = []
    for name in sorted({*backlogs, *project.modes}):
        mode, backlog = project.modes.get(name, Mode(name)), backlogs.get(name, Backlog(name))
        pause = pauses.get(name) or pauses.get("*")
        demands.append(
            Demand(
                mode=name,
                ready=backlog.ready,
                delayed=backlog.delayed,
                retrying=backlog.retrying,
                blocked=backlog.blocked,
                running=backlog.running,
                crashed=backlog.crashed,
                oldest_at=backlog.oldest_at,
                oldest_seconds=clock.seconds_between(backlog.oldest_at, now) if backlog.oldest_at else None,
                top_priority=backlog.top_priority,
                known=name in project.modes,
                paused=pause is not None,
                pause_reason=pause.reason if pause else None,
                task_cap=mode.task_cap,
                max_seats=mode.max_seats,
                timeout=mode.timeout,
                wall_clock_minutes=mode.wall_clock_minutes,
                measured=measured.get(name),
            )
        )
    return demands


def _past(queue: Queue) -> list[tuple[Fire, Rollup]]:
    """The last fires that did anything, the newest first."""
    read = [(fire, rollups.read_back(fire.rollup)) for fire in queue.ledger.fires(_FIRES) if fire.rollup]
    return [(fire, rollup) for fire, rollup in read if not rollup.quiet][:_TELLING_FIRES]


def _measured(past: list[Rollup]) -> dict[str, Measured]:
    """What the last fires measured, by mode."""
    sums: dict[str, Tally] = {}
    for rollup in past:
        for tally in rollup.tallies:
            total = sums.setdefault(tally.mode, Tally(tally.mode))
            for name in ("done", "failed", "retried", "crashed", "seconds", "tokens", "cost_usd", "priced"):
                setattr(total, name, getattr(total, name) + getattr(tally, name))
    return {
        mode: Measured(
            attempts=total.ended,
            seconds=total.seconds / total.ended,
            failure_rate=1 - total.done / total.ended,
            tokens=total.tokens / total.priced if total.priced else None,
            cost_usd=total.cost_usd / total.priced if total.priced else None,
        )
        for mode, total in sums.items()
        if total.ended
    }


def _questions(queue: Queue, past: list[tuple[Fire, Rollup]]) -> list[Question]:
    """What waits for a person: said by the last fires, each thing once, and what waits in vain."""
    asked: dict[str, int | None] = {}
    for fire, rollup in past:
        person = rollups.needs_a_person(rollup)
        if person:
            asked.setdefault(person, fire.id)
    for task, name, _, state in queue.stuck():
        asked.setdefault(rollups.told_of_stuck(task, name, state), None)
    return [Question(text, fire) for text, fire in asked.items()]
