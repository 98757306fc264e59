"""The barrier: wait for every seat of a fire, whatever happens to the processes in them, and always end.

What the children say is a hint; the database and the system's own word on each process decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from orch import clock, kin, processes
from orch.fire_records import Fire, Worker
from orch.folders import Exchange
from orch.hygiene import Swept, bury, last_words, take_dropped
from orch.limits import WORKER_CAPS
from orch.pool import Crew
from orch.project import Project
from orch.queue import Queue
from orch.records import Task
from orch.silence import is_stalled
from orch.states import State
from orch.worker import NO_STORAGE, Seat, cut_by, put_back

TICK = 0.25
# A worker that enforces its own limits gets this long to do so before its parent does.
SLACK = 2.0
# A wait that took so much longer than asked was a sleep: of the machine, or of this process.
ASLEEP = 2.0
# A seat that nobody has taken for so long, while nobody works, sits behind a lock that died with a child.
START_LIMIT = 30.0
# The same where children have died without taking a seat.
STILLBORN_LIMIT = 3.0
REOPENINGS = 2
EXCHANGE_PAUSE = 1.0

# How a worker ends when a cap ends it: by the cap's name.
_SOUND = ("empty", *WORKER_CAPS)
_BROKEN = ("broken: ", NO_STORAGE)


@dataclass(slots=True)
class Progress:
    """Where a fire stands, for the live view."""

    phase: str
    planned: int = 0
    drained: int = 0
    failed: int = 0
    seats: int = 0
    alive: int = 0
    left_seconds: float = 0.0


@dataclass(slots=True)
class Gathered:
    """What the barrier saw of the processes.

    ``done`` counts tasks, ``sound`` seats that ended as they should; ``missing`` tells of the dead, ``broken`` why a
    mode could not work, ``cut`` counts ends by a cap, and ``left`` describes processes that could not be ended.
    """

    done: int = 0
    sound: int = 0
    missing: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    unstarted: int = 0
    left: list[str] = field(default_factory=list)
    stopped: bool = False

    def note_end(self, mode: str, ending: str) -> None:
        """A seat of a mode is over, and this is how its worker ended."""
        if ending in _SOUND:
            self.sound += 1
        if ending.startswith(_BROKEN):
            self.broken[mode] = ending.partition(": ")[2]
        elif ending in WORKER_CAPS:
            self.note_cut(ending)

    def note_cut(self, cap: str) -> None:
        """A cap has ended a worker."""
        self.cut[cap] = self.cut.get(cap, 0) + 1


@dataclass(slots=True)
class Barrier:
    """The wait for one fire's seats. `look` is one step of it; `wait` takes steps until nobody is left.

    Whoever is left when `clock.monotonic` says ``ends`` is ended, which is moments after the last seat's wall clock.
    Everything here is timed by a clock that nobody can set, on which time asleep counts.
    """

    queue: Queue
    fire: Fire
    project: Project
    crew: Crew = field(init=False)
    ends: float = 0.0
    seats: dict[int, Seat] = field(default_factory=dict)
    waiting: dict[int, float] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    seen: int = 0
    drained: int = 0
    failed: int = 0
    reopened: int = 0
    spared_until: float = 0.0
    exchange: Exchange | None = None
    swept: Swept = field(default_factory=Swept)
    exchanged: float = 0.0
    first: int = 1
    claims: dict[int, dict[tuple[int, int], float]] = field(default_factory=dict)
    gathered: Gathered = field(default_factory=Gathered)

    def seat(self, seats: Iterable[Seat]) -> None:
        """Give every seat to the crew."""
        for seat in seats:
            self.seats[seat.number] = seat
            self.ends = max(self.ends, seat.ends + SLACK + 2 * self.project.limits.grace_sec)
            self.waiting[seat.number] = clock.monotonic()
            self.crew.seat(seat.number, seat)

    def wait(
        self,
        planned: int,
        report: Callable[[Progress], None],
        stopping: Callable[[], bool],
        more: Callable[[], Iterable[Seat]] = tuple,
    ) -> Gathered:
        """Look until every seat is over. A seat whose worker died, having done something, goes to a new one.

        `more` is asked at each look for seats that have come up meanwhile.
        """
        while True:
            workers = self.look()
            if not stopping():
                self.seat(more())
            report(self._progress(workers, planned))
            if len(self.over) == len(self.seats):
                return self.gathered
            if stopping() or (clock.monotonic() > self.ends and not self._is_sparing()):
                self.gathered.stopped = stopping()
                self._end_all("stopped" if self.gathered.stopped else "wall_clock")
                return self.gathered
            self._rest()

    def _rest(self) -> None:
        """Wait for something to happen.

        Time asleep counts against every wall clock, but who wakes past its deadline gets a moment to end by itself
        before it is judged: it may be done already and just have had no time to say so.
        """
        before = clock.monotonic()
        self.crew.wait(TICK)
        if clock.monotonic() - before > TICK + ASLEEP:
            self.spared_until = clock.monotonic() + SLACK

    def _is_sparing(self) -> bool:
        return clock.monotonic() < self.spared_until

    def look(self) -> list[Worker]:
        """One step: note who is over, bury the dead, end the late, help the stuck. The workers as they were found."""
        workers = self._workers()
        self._note_ends(workers)
        for worker in workers:
            if _number(worker) not in self.over and processes.is_alive(worker.process) is False:
                self._bury_dead(worker)
        if not self._is_sparing():
            for worker in workers:
                if _number(worker) not in self.over:
                    self._enforce_deadline(worker)
        self._count_moves()
        self._help_the_stuck(workers)
        self._exchange()
        return workers

    def _exchange(self) -> None:
        """Now and then take in what was dropped as files, and show there what has moved."""
        if self.exchange is not None and clock.monotonic() - self.exchanged > EXCHANGE_PAUSE:
            take_dropped(self.queue, self.exchange, self.swept)
            self.exchanged = clock.monotonic()

    # Those who ended by themselves

    def _note_ends(self, workers: list[Worker]) -> None:
        """Seats that are over by their worker's own word.

        One that was ended by somebody else, as a cancelled function ends with its worker, is given to another.
        """
        sitting = {_number(worker): worker for worker in workers}
        for number in self.seats.keys() - self.over:
            worker = sitting.get(number)
            if worker is not None:
                self.waiting.pop(number, None)
            if worker is not None and worker.ended_at is not None:
                self._seat_is_over(number, worker.ending or "")
                if (worker.ending or "").startswith("missing"):
                    # A sweep has found it before this look.
                    self.gathered.missing.append(f"w{worker.id} ({worker.mode}) was found dead by a sweep")
                if worker.ending not in _SOUND and not (worker.ending or "").startswith(_BROKEN):
                    self._seat_again(worker)
                continue
            answer = self.crew.answer(number)
            if answer is not None and answer != "taken":
                self._seat_is_over(number, answer)
                self._bury_speechless(worker, answer)

    def _seat_is_over(self, number: int, ending: str) -> None:
        self.waiting.pop(number, None)
        self.over.add(number)
        self.gathered.note_end(self.seats[number].mode.name, ending)

    def _bury_speechless(self, worker: Worker | None, answer: str) -> None:
        """A worker gave its seat up without being able to say so in the database: what it held crashes."""
        latest = None if worker is None else self.queue.ledger.worker(worker.id)
        if latest is not None and latest.ended_at is None:
            if answer.startswith(NO_STORAGE):
                for task in self.queue.owned(latest.id):
                    put_back(self.queue, task, answer, self.project.limits, self.fire.id)
            bury(self.queue, self.project, latest, answer, answer, self.gathered.left)

    # Those who did not

    def _bury_dead(self, worker: Worker) -> None:
        latest = self.queue.ledger.worker(worker.id)
        if latest is not None and latest.ended_at is not None:
            # It ended in order after it was read; the next look takes its own word.
            return
        how = self.crew.ending(worker.pid)
        tasks = self.queue.owned(worker.id)
        bury(self.queue, self.project, worker, f"missing: {how}", f"the worker died ({how})", self.gathered.left)
        self.gathered.left += self.crew.end_orphans(self.project.limits.grace_sec)
        self.over.add(_number(worker))
        during = f" during task {', '.join(str(task.id) for task in tasks)}" if tasks else ""
        self.gathered.missing.append(f"w{worker.id} ({worker.mode}) {how}{during}")
        self._seat_again(worker)

    def _enforce_deadline(self, worker: Worker) -> None:
        """End a worker whose task or whose wall clock is over and who did not see to it itself."""
        now, owned = clock.monotonic(), self.queue.owned(worker.id)
        seen = self.claims.get(worker.id, {})
        self.claims[worker.id] = {(task.id, task.attempts): seen.get((task.id, task.attempts), now) for task in owned}
        for task in owned:
            mode = self.project.modes.get(task.mode)
            slack = 0.0 if mode is not None and mode.function is not None else SLACK
            since = self.claims[worker.id][task.id, task.attempts]
            if task.allotted is not None and now - since > task.allotted + slack:
                self._end_late(worker, task, cut_by(task, mode))
                return
            # Its worker sees that too, and gives it the grace that anybody has.
            patience, late = None if mode is None else mode.patience, SLACK + self.project.limits.grace_sec
            if is_stalled(self.project.state, task, patience, late):
                self._end_late(worker, task, "stalled")
                return

    def _end_late(self, worker: Worker, task: Task, reason: str) -> None:
        """End one worker for one late task. A worker that can still speak says the same; the first word stands."""
        only = self.queue.ledger.claims_of(worker) == 1
        self.gathered.left += kin.end_tree(worker.process, self.project.limits.grace_sec)
        if reason == "wall_clock" and not only:
            self.queue.release(task, reason)
        else:
            self.queue.crash(task, reason, evidence=last_words(self.project, worker, task))
        bury(self.queue, self.project, worker, reason, reason, self.gathered.left)
        if reason in WORKER_CAPS:
            self.gathered.note_cut(reason)
        self.over.add(_number(worker))
        self._seat_again(worker)

    def _seat_again(self, worker: Worker) -> None:
        """A dead worker's seat goes to a new one, for the tasks that it had left.

        A worker that died before its first task is not replaced: the next one would most likely die the same way.
        """
        seat = self.seats[_number(worker)]
        claimed = self.queue.ledger.claims_of(worker)
        if claimed and claimed < seat.task_cap and clock.monotonic() < seat.ends:
            self.seat([replace(seat, number=max(self.seats) + 1, task_cap=seat.task_cap - claimed)])

    def _help_the_stuck(self, workers: list[Worker]) -> None:
        """Seats that no child takes: a new pool, once nobody works in the old one; given up when that does not help."""
        if not self.waiting:
            return
        stillborn = self.crew.dead() - {worker.pid for worker in workers}
        now = clock.monotonic()
        limit = STILLBORN_LIMIT if stillborn else START_LIMIT
        stuck = [number for number, since in self.waiting.items() if now - since > limit]
        if not stuck or any(worker.ended_at is None for worker in workers):
            return
        if self.reopened == REOPENINGS:
            for number in stuck:
                self._seat_is_over(number, "broken: its workers die before they begin, or never begin")
            return
        self.reopened += 1
        self.crew.reopen(len(stuck))
        self.seat([self.seats[number] for number in stuck])

    # The end

    def _end_all(self, why: str) -> None:
        """Ask every worker to stop, which gives back what it holds; then end the others, and give theirs back."""
        grace = self.project.limits.grace_sec
        for worker in self._present():
            processes.ask_to_stop(worker.process)
        patience = clock.monotonic() + grace
        while self._present() and clock.monotonic() < patience:
            clock.sleep(0.05)
        self._give_back(why)
        self.gathered.left += self.crew.end_orphans(0)
        if why == "wall_clock":
            self.gathered.unstarted = len(self.waiting)

    def settle(self) -> None:
        """The crew is disbanded: what a child held that had taken its seat behind the last look is given back."""
        self._give_back("stopped")

    def _give_back(self, why: str) -> None:
        for worker in self._present():
            self.gathered.left += kin.end_tree(worker.process, 0)
            for task in self.queue.owned(worker.id):
                self.queue.release(task, why)
            bury(self.queue, self.project, worker, why, why, self.gathered.left, grace=0)

    def _present(self) -> list[Worker]:
        return [worker for worker in self._workers() if worker.ended_at is None]

    def _workers(self) -> list[Worker]:
        """The workers of the seats that are not over, and of those behind them: a poll has had many."""
        while self.first in self.over:
            self.first += 1
        return self.queue.ledger.crew(self.fire.id, first=self.first)

    def _count_moves(self) -> None:
        """Count what ended since the last look, so that a look costs the same in a long fire as in a short one."""
        for state, count, last in self.queue.ledger.ended_since(self.fire, max(self.seen, self.fire.first_event)):
            self.seen = max(self.seen, last)
            if state == State.DONE:
                self.drained += count
                self.gathered.done += count
            elif state in (State.FAILED, State.CRASHED, State.RETRY_PENDING):
                self.failed += count

    def _progress(self, workers: list[Worker], planned: int) -> Progress:
        return Progress(
            phase="barrier",
            planned=planned,
            drained=self.drained,
            failed=self.failed,
            seats=len(self.seats),
            alive=sum(worker.ended_at is None for worker in workers),
            left_seconds=max(0.0, self.ends - clock.monotonic()),
        )


def _number(worker: Worker) -> int:
    """The seat of one of the fire's own workers, which all have one."""
    assert worker.seat is not None
    return worker.seat
