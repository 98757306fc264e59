"""A poll: the queue is drained as tasks come, until nothing is left, or for ever.

It is no fire: it counts against no day's cap, takes no slot and satisfies no watchdog. Its workers, caps, hygiene and
note are a fire's, and its seats count against the same pool. Nothing that comes while it looks is missed: what is to
wake it is watched from before the first look to behind the last one.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field, fields, replace

from orch import budget, clock, notify, pool, processes, span_files
from orch.barrier import Barrier, Progress
from orch.changes import Changes
from orch.errors import Held, NotFound, OrchError, Refused, Stopped
from orch.fire_records import Fire
from orch.fires import Fired, close, close_dead_fires, told_of, trim
from orch.folders import Exchange
from orch.hygiene import Swept, recover, sweep
from orch.plan import Plan, Snapshot, by_backlog
from orch.project import Project
from orch.queue import Queue
from orch.seating import room, seats_of, snapshot
from orch.states import State
from orch.worker import Seat, sit

KIND = "poll"
# Seconds between looks for seats that are worth having, and between looks at a file that is being written.
_SEAT_PAUSE = 0.5
_WRITE_PAUSE = 0.2
_NET = 1.0


@dataclass(frozen=True, slots=True)
class Round:
    """What a poll did since it last slept, and what woke it: ``normal``, ``file_event``, ``signal`` or ``timeout``.

    A ``file_event`` is a dropped file or an added task; after ``normal`` a short sleep was over, after ``timeout`` a
    deep one. ``done`` and ``failed`` count tasks, ``taken`` dropped DELEGATEs; ``refused`` tells of dropped files.
    """

    at: str
    reason: str
    done: int
    failed: int
    taken: int
    refused: list[str] = field(default_factory=list)


def poll(
    queue: Queue,
    project: Project,
    *,
    forever: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
    news: Callable[[Round], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Fired:
    """Drain the queue until nothing is left to do; with `forever`, sleep then and go on. How the last poll went.

    Nothing is left when nothing can be claimed, nobody works, and nothing is due within ``poll_interval_fast``. A poll
    that goes on for ever writes a note at the end of each day. `report` is told of the progress, `news` of each round
    that came to anything, `say` of what makes it slower. `Held` when another poll runs, `Refused` when everything is
    paused and it would only end. `Stopped` when a signal ended it: what ran is given back, and the note is written all
    the same.
    """
    pool.check_clock()
    exchange = Exchange.of(project)
    incoming = None
    if exchange is not None:
        exchange.root.prepare()
        incoming = exchange.root.folder(State.INCOMING)
    # From before the poll is known by its row: whoever reads that may send the signal.
    with Changes(project.database, incoming=incoming, rouse=True) as changes:
        if changes.is_out_of_watches:
            say("the system has no inotify watch left: the poll looks for changes once a second")
        return _Poll(queue, project, changes, exchange, report, news).run(forever)


def wake(queue: Queue) -> Fire:
    """Wake the poll that sleeps; `NotFound` when none runs.

    It is asked by way of the database and not by a signal, which would end a program that polls in a thread.
    """
    for running in queue.ledger.fires_open():
        if running.kind == KIND and processes.is_alive(running.process):
            queue.ledger.rouse()
            return running
    raise NotFound("no poll is running here: 'orch poll --forever' is one")


@dataclass(slots=True)
class _Poll:
    """One process's poll: its row, and what it has done since that was opened."""

    queue: Queue
    project: Project
    changes: Changes
    exchange: Exchange | None
    report: Callable[[Progress], None]
    news: Callable[[Round], None]
    opened: Fire = field(init=False)
    barrier: Barrier = field(init=False)
    plan: Plan = field(init=False)
    swept: Swept = field(init=False)
    crew: pool.Crew | None = None
    unsettled: bool = False
    looked: float = 0.0
    seated: float = 0.0
    avoided: set[str] = field(default_factory=set)
    asked: int = 0

    def run(self, forever: bool) -> Fired:
        self.asked = self.queue.ledger.roused()
        self._open(forever)
        clean, reason = 0, "normal"
        try:
            while True:
                acted = self._round(reason)
                clean = 0 if acted else clean + 1
                if self.changes.caught is not None or not (forever or self._is_any_left()):
                    break
                if self._is_another_day():
                    self._deliver(self._end("passed"))
                    self._open(forever)
                reason = self._sleep(clean)
        except Exception as error:
            problem = str(error) if isinstance(error, OrchError) else f"{type(error).__name__}: {error}"
            self._end("broke", problem)
            raise
        finally:
            self._disband()
        caught = self.changes.caught
        fired = self._deliver(self._end("passed" if caught is None else "stopped"))
        if caught is not None:
            name = signal.Signals(caught).name
            raise Stopped(f"{self.opened.name} was stopped by {name}; what ran was given back", caught)
        return fired

    # Its beginning and its end

    def _open(self, forever: bool) -> None:
        queue, project = self.queue, self.project
        close_dead_fires(queue, project)
        with queue.transaction(durable=True):
            for running in queue.ledger.fires_open():
                if running.kind == KIND:
                    raise Held(told_of(running, project.limits))
            if not forever and any(pause.mode == "*" for pause in queue.pauses()):
                raise Refused("everything is paused: 'orch resume --all' ends that", cap="paused")
            id = queue.ledger.open_fire(processes.myself(), day=self._day(), kind=KIND)
            opened = queue.ledger.fire(id)
        assert opened is not None
        self.opened, self.plan, self.swept = opened, Plan(), Swept()
        self.barrier = Barrier(queue, opened, project, exchange=self.exchange, swept=self.swept)

    def _end(self, ending: str, error: str | None = None) -> Fired:
        recover(self.queue, self.project, Swept())
        fired = close(
            self.queue, self.project, self.opened, ending, self.swept, self.plan, self.barrier.gathered, error=error
        )
        if self.exchange is not None:
            self.exchange.show(self.queue)
        return fired

    def _deliver(self, fired: Fired) -> Fired:
        fired.unwritten = span_files.write(self.queue, self.project)
        trim(self.queue)
        cut = self.changes.renewed()
        fired.posted = notify.deliver(self.queue, self.project.folder, sinks=self.project.sinks, cut=cut)
        return fired

    def _day(self) -> str:
        return clock.day(clock.now(), clock.zone(self.project.zone))

    def _is_another_day(self) -> bool:
        return self._day() != self.opened.day

    # Its rounds

    def _round(self, reason: str) -> bool:
        """Look, and work until nobody works any more: whether anything came of it."""
        before = (self.barrier.drained, self.barrier.failed, self.swept.taken, len(self.swept.refused))
        acted = self._look()
        if self._drain():
            acted = True
            # What has crashed is due for its next try, or has had its last one.
            recover(self.queue, self.project, self.swept)
        done, failed, taken, refused = before
        told = Round(
            at=clock.stamp(clock.now()),
            reason=reason,
            done=self.barrier.drained - done,
            failed=self.barrier.failed - failed,
            taken=self.swept.taken - taken,
            refused=self.swept.refused[refused:],
        )
        if told.done or told.failed or told.taken or told.refused:
            self.news(told)
        return acted

    def _look(self) -> bool:
        """The hygiene of a fire, now and then: whether it found anything."""
        self.report(Progress("hygiene"))
        found = sweep(self.queue, self.project, self.exchange)
        self.looked = clock.monotonic()
        for each in fields(Swept):
            if each.name != "silent":
                setattr(self.swept, each.name, getattr(self.swept, each.name) + getattr(found, each.name))
        self.swept.silent = found.silent
        self.unsettled = self.exchange is not None and self.exchange.unsettled > 0
        return any(astuple(replace(found, silent=[])))

    def _drain(self) -> bool:
        """Seat workers as long as there is anything for them, and wait for all of them: whether there was."""
        self.seated = 0.0
        seats = self._seats()
        if not seats:
            return False
        self.crew = pool.Crew(
            sit, self.project.limits.max_pool, database=self.project.database, start_method=self.project.start_method
        )
        self.barrier.crew = self.crew
        try:
            self.queue.ledger.stamp(self.opened.id, "fan_out")
            self.barrier.seat(seats)
            self.queue.ledger.stamp(self.opened.id, "barrier")
            self.barrier.wait(self.plan.planned, self.report, self._is_stopping, more=self._more)
        finally:
            self._disband()
        return True

    def _disband(self) -> None:
        if self.crew is not None:
            self.crew.disband()
            self.crew = None
            self.barrier.settle()

    def _is_stopping(self) -> bool:
        return self.changes.caught is not None

    def _more(self) -> list[Seat]:
        """What the barrier asks for at each look: seats for what has come up, and now and then the hygiene."""
        self._is_roused()
        now = clock.monotonic()
        if now - self.looked >= self.project.limits.pace.poll_interval_fast:
            self._look()
        if now - self.seated < _SEAT_PAUSE:
            return []
        return self._seats()

    def _seats(self) -> list[Seat]:
        """Seats for what can be claimed and nobody is about to claim, as a fire would give them out by the backlog."""
        self.seated = clock.monotonic()
        plan = self._worth()
        if not plan.granted:
            return []
        for mode, seats in plan.granted.items():
            self.plan.granted[mode] = self.plan.granted.get(mode, 0) + seats
        self.plan.asked = dict(self.plan.granted)
        self.plan.planned += plan.planned
        self.queue.ledger.store_plan(self.opened.id, json.dumps(asdict(self.plan)))
        number = max(self.barrier.seats, default=0)
        return [
            replace(seat, number=number + seat.number, holds=False)
            for seat in seats_of(plan, self.project, fire=self.opened.id)
        ]

    def _worth(self) -> Plan:
        """The seats that are worth having now; none where the pool is full, or nobody could claim anything."""
        # A mode whose workers cannot begin is not tried again before a sleep has had its time.
        self.avoided |= self.barrier.gathered.broken.keys()
        if not self._claimable():
            return Plan()
        return by_backlog(self._wanted(snapshot(self.queue, self.project, fire=self.opened.id)))

    def _wanted(self, seen: Snapshot) -> Snapshot:
        """The same, without what those who have a seat are about to take."""
        live = [self.barrier.seats[number] for number in self.barrier.seats.keys() - self.barrier.over]
        waiting = [self.barrier.seats[number] for number in self.barrier.waiting]
        demands = []
        for demand in seen.modes:
            of_mode = sum(seat.mode.name == demand.mode for seat in live)
            about = sum(seat.mode.name == demand.mode for seat in waiting)
            most = None if demand.max_seats is None else max(0, demand.max_seats - of_mode)
            ready = 0 if demand.mode in self.avoided else max(0, demand.ready - about)
            demands.append(replace(demand, ready=ready, max_seats=most))
        left = room(self.queue, self.project, fire=self.opened.id) - len(live)
        return replace(seen, modes=demands, caps=replace(seen.caps, max_pool=max(0, left)))

    def _claimable(self) -> bool:
        """Whether anything waits that a worker of this project could claim now."""
        paused = {pause.mode for pause in self.queue.pauses()}
        if "*" in paused:
            return False
        modes = self.project.modes.keys() - paused - self.avoided
        if not any(backlog.ready and backlog.mode in modes for backlog in self.queue.backlog()):
            return False
        limits = self.project.limits
        if not limits.budgeted:
            return True
        today = budget.today(self.queue, limits, clock.zone(self.project.zone), clock.now())
        return budget.exhausted(limits, today, budget.of_fire(self.queue, limits, self.opened)) is None

    # Its sleep

    def _is_any_left(self) -> bool:
        """Whether a poll that is to end when it is idle has something to do, now or in a moment."""
        due = self._seconds_to_due()
        is_soon = due is not None and due <= self.project.limits.pace.poll_interval_fast
        return self.unsettled or is_soon or bool(self._worth().granted)

    def _seconds_to_due(self) -> float | None:
        due = self.queue.next_due()
        return None if due is None else max(0.0, clock.seconds_between(clock.stamp(clock.now()), due))

    def _sleep(self, clean: int) -> str:
        """Sleep until there is something to do: what it was that ended the sleep."""
        pace = self.project.limits.pace
        is_deep = clean >= pace.idle_threshold_polls
        length = pace.idle_sleep_sec if is_deep else pace.poll_interval_idle
        began = clock.monotonic()
        ends = began + length
        # Who goes on writing for long is looked at less and less often.
        pause = min(_NET, _WRITE_PAUSE * 2**clean) if self.unsettled else 0.0
        self.report(Progress("asleep"))
        while self.changes.caught is None:
            if self._is_roused():
                self._forgive()
                return "signal"
            is_early = clock.monotonic() - began < pause
            if not is_early and (self._has_dropped() or self._worth().granted):
                return "file_event"
            # Asked for each time: what comes meanwhile may be due before the sleep is over.
            due = self._seconds_to_due()
            rest = ends - clock.monotonic() if due is None else min(ends - clock.monotonic(), due)
            if rest <= 0:
                self._forgive()
                return "timeout" if is_deep else "normal"
            self.changes.wait(min(rest, pause) if is_early else rest)
        return "signal"

    def _is_roused(self) -> bool:
        """Whether somebody has asked for a look, by a signal or by way of the database."""
        before, self.asked = self.asked, self.queue.ledger.roused()
        roused, self.changes.roused = self.changes.roused, False
        return roused or self.asked != before

    def _forgive(self) -> None:
        """Try those modes again whose workers could not begin."""
        self.avoided.clear()
        self.barrier.gathered.broken.clear()

    def _has_dropped(self) -> bool:
        return self.exchange is not None and self.exchange.dropped.is_waiting()
