"""One fire, from hygiene to the one note upward.

`fire` is the list of its steps; their order is the design. Whatever ends it, the fire is closed with exactly one note:
by itself, or by the next hygiene when it could not.
"""

from __future__ import annotations

import datetime
import json
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from orch import budget, clock, deciders, notify, pool, processes, program, rollup as rollups, schedule, span_files
from orch.barrier import Barrier, Gathered, Progress
from orch.deciders import Callback
from orch.errors import Held, OrchError, Refused, Stopped, UsageError
from orch.fire_records import Fire, Note, Refusal
from orch.folders import Exchange
from orch.hygiene import Swept, recover, sweep, take_dropped
from orch.limits import Limits
from orch.notify import Posted
from orch.plan import Plan, capped
from orch.project import Project
from orch.queue import Queue
from orch.rollup import Rollup
from orch.seating import seats_of, snapshot
from orch.vigil import unwatched
from orch.worker import sit

if TYPE_CHECKING:
    from orch.runners import Hands


@dataclass(slots=True)
class Fired:
    """How a fire went: its record, its rollup, its note, where that went, and why its spans were not written."""

    fire: Fire
    rollup: Rollup
    note: Note
    posted: list[Posted] = field(default_factory=list)
    unwritten: str | None = None


def fire(
    queue: Queue,
    project: Project,
    *,
    slot: str | None = None,
    decide: Callback | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    hands: Hands | None = None,
) -> Fired:
    """Run one fire of a project. `report` is told of the progress, a few times a second.

    With `hands` no process is started: this one takes the seats. A `slot` (see `due_slot`) is taken by the first fire
    that asks for it. `decide` is given a `Snapshot` and returns a `Wish`, or the same as a mapping; without one the
    project's own decider is asked, or the built-in rule.

    `Held` when another fire runs or has the slot, `Refused` by the daily caps or when everything is paused; nothing was
    started then. `Stopped` when a signal ended it: what ran is given back, and the note is written all the same.
    """
    if hands is None:
        pool.check_clock()
    opened = open_fire(queue, project, slot)
    swept, plan, gathered = Swept(), Plan(), Gathered()
    exchange = Exchange.of(project)
    with _Signals() as signals:
        try:
            swept = _hygiene(queue, project, opened, exchange, report)
            plan = _decide(queue, project, opened, decide, report, signals)
            gathered = _drain(queue, project, opened, plan, swept, exchange, report, signals, hands)
            report(Progress("rollup"))
            queue.ledger.stamp(opened.id, "rollup")
            # Known to this fire already: its note can say which tasks have had their last start.
            recover(queue, project, Swept())
            fired = close(queue, project, opened, _ending(gathered, plan), swept, plan, gathered)
            if exchange is not None:
                exchange.show(queue)
        except Exception as error:
            # A surprise, or a storage that gave up: the note says so if it can be stored at all.
            problem = str(error) if isinstance(error, OrchError) else f"{type(error).__name__}: {error}"
            close(queue, project, opened, "broke", swept, plan, gathered, error=problem)
            raise
        fired.unwritten = span_files.write(queue, project)
        trim(queue)
        # The note of a fire that was stopped is sent all the same; who asks again does not want to wait for that.
        fired.posted = notify.deliver(queue, project.folder, sinks=project.sinks, cut=signals.renewed())
    if signals.caught is not None:
        name, ending = signal.Signals(signals.caught).name, fired.fire.ending
        told = f"had ended ({ending}) when {name} came; an undelivered note goes out with the next fire or sweep"
        if ending == "stopped":
            told = f"was stopped by {name}; what ran was given back"
        raise Stopped(f"fire {opened.id} {told}", signals.caught)
    return fired


def open_fire(queue: Queue, project: Project, slot: str | None = None) -> Fire:
    """Open a fire in one transaction: no other one alive, the day's cap not reached, the slot free.

    A fire that died is closed first, with its own note.
    """
    now = clock.now()
    # Apart: a refusal takes nothing of it back.
    close_dead_fires(queue, project)
    try:
        with queue.transaction(durable=True):
            _check_held(queue, project, slot)
            _check_caps(queue, project, now)
            day = clock.day(now, clock.zone(project.zone))
            id = queue.ledger.open_fire(processes.myself(), day=day, slot=slot)
            opened = queue.ledger.fire(id)
    except Refused as refused:
        # So that a watchdog can tell a fire that was kept from happening by its own rules from one that did not happen.
        queue.ledger.refuse(Refusal(clock.stamp(now), slot, refused.cap, str(refused)))
        raise
    assert opened is not None
    return opened


def due_slot(project: Project) -> str:
    """The slot of a scheduled fire: the last due time of the schedule, as a stamp.

    `UsageError` when the project has no schedule. After a gap there is one slot to catch up with, however many were
    missed.
    """
    if project.schedule.fire is None:
        raise UsageError("no schedule says when a fire is due: set 'fire' in [schedule] of orch.toml")
    return clock.stamp(schedule.last_due(project.schedule.fire, clock.zone(project.zone), clock.now()))


def close_dead_fires(queue: Queue, project: Project) -> list[str]:
    """Close fires and polls whose process is gone, each with its own note: their names."""
    closed: list[str] = []
    if not queue.ledger.fires_open():
        return closed
    with queue.transaction(durable=True):
        for opened in queue.ledger.fires_open():
            if _is_gone(opened, project.limits):
                error = f"its process (pid {opened.pid}) was gone in the phase {opened.phase}"
                close(queue, project, opened, "died", Swept(), _stored_plan(opened), Gathered(), error=error)
                closed.append(opened.name)
    if closed:
        pool.clear_rooms()
    return closed


@dataclass(slots=True)
class Between:
    """What a sweep between fires did, and why the spans of those that it closed were not written."""

    swept: Swept
    closed: list[str]
    posted: list[Posted]
    unwritten: str | None = None


def between_fires(queue: Queue, project: Project) -> Between:
    """The sweep from cron: the fire's own hygiene, and whatever notes are still on their way."""
    closed = close_dead_fires(queue, project)
    exchange = Exchange.of(project)
    swept = sweep(queue, project, exchange)
    # Once more, for what the sweep itself has moved.
    take_dropped(queue, exchange, swept)
    unwritten = span_files.write(queue, project)
    trim(queue)
    return Between(swept, closed, notify.deliver(queue, project.folder, sinks=project.sinks), unwritten)


def trim(queue: Queue) -> bool:
    """Give the log's disk space back when nobody is using it; False when somebody was in the way."""
    truncate = getattr(queue.database, "truncate_wal", None)
    return bool(truncate()) if truncate else True


# The steps


def _hygiene(
    queue: Queue,
    project: Project,
    opened: Fire,
    exchange: Exchange | None,
    report: Callable[[Progress], None],
) -> Swept:
    report(Progress("hygiene"))
    queue.ledger.stamp(opened.id, "hygiene")
    return sweep(queue, project, exchange)


def _decide(
    queue: Queue,
    project: Project,
    opened: Fire,
    callback: Callback | None,
    report: Callable[[Progress], None],
    signals: _Signals,
) -> Plan:
    """Ask who decides. A text counts as read once the plan of the decider that was given it is stored."""
    report(Progress("decide"))
    queue.ledger.stamp(opened.id, "decide")
    plan = deciders.decide(
        snapshot(queue, project, fire=opened.id),
        project,
        fire=opened.id,
        callback=callback,
        stopping=lambda: signals.caught is not None,
    )
    with queue.transaction(durable=bool(plan.read)):
        queue.ledger.store_plan(opened.id, json.dumps(asdict(plan)))
        queue.mail.mark_read(plan.read, fire=opened.id)
    return plan


def _drain(
    queue: Queue,
    project: Project,
    opened: Fire,
    plan: Plan,
    swept: Swept,
    exchange: Exchange | None,
    report: Callable[[Progress], None],
    signals: _Signals,
    hands: Hands | None,
) -> Gathered:
    """Fan out and wait. Without a seat no pool is started."""
    seats = seats_of(plan, project, fire=opened.id)
    if not seats or signals.caught is not None:
        return Gathered(stopped=signals.caught is not None)
    report(Progress("fan_out"))
    queue.ledger.stamp(opened.id, "fan_out")
    if hands is not None:
        from orch.runners import Shift  # here, as a fire from the command line needs none

        queue.ledger.stamp(opened.id, "barrier")
        shift = Shift(queue, opened, hands, stopping=lambda: signals.caught is not None)
        return shift.take(seats, plan.planned, report)
    crew = pool.Crew(sit, len(seats), database=project.database, start_method=project.start_method)
    barrier = Barrier(queue, opened, project, exchange=exchange, swept=swept)
    barrier.crew = crew
    try:
        barrier.seat(seats)
        queue.ledger.stamp(opened.id, "barrier")
        return barrier.wait(plan.planned, report, stopping=lambda: signals.caught is not None)
    finally:
        crew.disband()
        barrier.settle()


def close(
    queue: Queue,
    project: Project,
    opened: Fire,
    ending: str,
    swept: Swept,
    plan: Plan,
    gathered: Gathered,
    *,
    error: str | None = None,
) -> Fired:
    """The rollup, the fire's end and its one note, in one transaction."""
    with queue.transaction(durable=True):
        rollup = rollups.collect(
            queue,
            opened,
            ending=ending,
            known=list(project.modes),
            swept=swept,
            plan=plan,
            gathered=gathered,
            error=error,
            unwatched=unwatched(queue, project),
            limits=capped(project.limits, plan),
        )
        if queue.ledger.close_fire(opened.id, ending=ending, rollup=rollup.as_json()):
            queue.mail.write_note(
                opened.id,
                title=rollups.title(rollup),
                body=rollups.body(rollup),
                quiet=rollup.quiet,
                sinks=list(project.sinks),
            )
        closed, note = queue.ledger.fire(opened.id), queue.mail.note_of(opened.id)
    assert closed is not None
    assert note is not None
    return Fired(closed, rollup, note)


def _check_held(queue: Queue, project: Project, slot: str | None) -> None:
    """`Held` when another fire runs, or has the slot."""
    for running in queue.ledger.fires_open():
        if running.kind == "fire":
            raise Held(told_of(running, project.limits))
    taken = None if slot is None else queue.ledger.slot_taken(slot)
    if taken is not None:
        raise Held(f"the slot {slot} is taken: it was fire {taken[0]}, begun at {taken[1]}")


def _check_caps(queue: Queue, project: Project, now: datetime.datetime) -> None:
    """`Refused` when everything is paused, the day has had its fires, or a budget of the day is spent."""
    if any(pause.mode == "*" for pause in queue.pauses()):
        raise Refused("everything is paused: 'orch resume --all' ends that", cap="paused")
    zone = clock.zone(project.zone)
    day, cap = clock.day(now, zone), project.limits.daily_fires
    resets = f"it resets at {clock.next_midnight(now, zone).isoformat(timespec='minutes')}"
    if queue.ledger.fires_on(day) >= cap:
        raise Refused(f"the cap of {cap} fires a day is reached for {day}; {resets}", cap="daily_fires")
    if project.limits.budgeted:
        spent = budget.exhausted(project.limits, budget.today(queue, project.limits, zone, now), None)
        if spent is not None:
            raise Refused(f"the budget {spent[0]} is used up: {spent[1]}; {resets}", cap=spent[0])


def _is_gone(opened: Fire, limits: Limits) -> bool:
    """Whether a fire's process is dead or, where it cannot be seen from here, has been silent for too long."""
    alive = processes.is_alive(opened.process)
    return clock.now() > _given_up(opened, limits) if alive is None else not alive


def _given_up(opened: Fire, limits: Limits) -> datetime.datetime:
    """When a fire that cannot be seen from here is taken for dead."""
    patience = max(limits.stale_hours * 3600, limits.wall_clock_minutes * 120)
    return clock.after(clock.moment(opened.opened_at), patience)


def told_of(running: Fire, limits: Limits) -> str:
    """That a fire or a poll runs, and who that is."""
    told = f"{running.name} is running (pid {running.pid} on {running.host}, since {running.opened_at})"
    if processes.is_alive(running.process) is None:
        freed = clock.stamp(_given_up(running, limits))
        told += f"; its process cannot be seen from here, so that it is taken for dead at {freed} only"
    return told


def _ending(gathered: Gathered, plan: Plan) -> str:
    """How a fire ended. One in which nothing was done, as every worker died or could not begin, is no success."""
    if gathered.stopped:
        return "stopped"
    if not plan.granted:
        return "idle"
    return "passed" if gathered.done or gathered.sound or not (gathered.missing or gathered.broken) else "broken"


def _stored_plan(opened: Fire) -> Plan:
    return Plan.read_back(json.loads(opened.plan)) if opened.plan else Plan()


class _Signals:
    """TERM, INT and HUP are noted and obeyed at the barrier; outside the main thread they are left alone."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._count = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for signum in program.stop_signals():
                self._before[signum] = signal.signal(signum, self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def _catch(self, signum: int, frame: FrameType | None) -> None:
        self.caught = signum
        self._count += 1

    def renewed(self) -> Callable[[], str | None]:
        """Asks for the name of a signal that came after now."""
        before = self._count
        return lambda: None if self.caught is None or self._count == before else signal.Signals(self.caught).name
