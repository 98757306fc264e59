"""The barrier: wait for every seat of a fire, whatever happens to the processes in them, and always end.

What the children say is a hint; the database and the system's own word on each process decide.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from orch import clock, processes
from orch.hygiene import Ground, bury, last_words
from orch.pool import Crew
from orch.queue import Queue
from orch.records import Fire, Task, Worker
from orch.states import State
from orch.worker import Seat, had_its_time

TICK = 0.25
# A worker that enforces its own limits gets this long to do so before its parent does.
SLACK = 2.0
# A seat that nobody has taken for so long sits behind a lock that died with a child.
START_LIMIT = 20.0


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
    """What the barrier saw of the processes: the missing by their words, ends by a cap, and what could not be ended."""

    missing: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    unstarted: int = 0
    left: list[str] = field(default_factory=list)
    stopped: bool = False


@dataclass(slots=True)
class Watch:
    """The barrier's own memory between two looks."""

    waiting: dict[int, float]
    seats: dict[int, Seat]
    over: set[int] = field(default_factory=set)
    buried: set[int] = field(default_factory=set)
    seen: int = 0
    drained: int = 0
    failed: int = 0


def barrier(
    queue: Queue,
    fire: Fire,
    ground: Ground,
    crew: Crew,
    seats: Iterable[Seat],
    *,
    until: datetime.datetime,
    planned: int,
    report: Callable[[Progress], None],
    stopping: Callable[[], bool],
) -> Gathered:
    """Wait until every seat is over; `until` is the moment when whoever is left is ended.

    A seat whose worker died, having done something, is given to a new worker for the rest of its tasks.
    """
    gathered = Gathered()
    now = clock.monotonic()
    watch = Watch(waiting={}, seats={}, seen=fire.first_event)
    for seat in seats:
        watch.seats[seat.number] = seat
        watch.waiting[seat.number] = now
    while True:
        workers = queue.ledger.crew(fire.id)
        _note_ends(queue, crew, watch, workers, gathered)
        _bury_the_dead(queue, ground, crew, watch, workers, gathered)
        _enforce_deadlines(queue, ground, crew, watch, workers, gathered)
        _count_moves(queue, fire, watch)
        report(_progress(watch, workers, planned, until))
        if len(watch.over) == len(watch.seats):
            return gathered
        if stopping() or clock.now() > until:
            gathered.stopped = stopping()
            _end_all(queue, fire, ground, gathered, "stopped" if gathered.stopped else "wall_clock")
            gathered.unstarted = len(watch.waiting.keys() - watch.over)
            return gathered
        _free_the_stuck(crew, watch)
        crew.wait(TICK)


def _note_ends(queue: Queue, crew: Crew, watch: Watch, workers: list[Worker], gathered: Gathered) -> None:
    """Seats that are over by their worker's own word.

    One that was stopped by somebody else, as a cancelled function ends with its worker, is given to another.
    """
    for worker in workers:
        watch.waiting.pop(_number(worker), None)
        if worker.ended_at is not None and _number(worker) not in watch.over and worker.id not in watch.buried:
            watch.over.add(_number(worker))
            _note_ending(gathered, worker.ending or "", worker.mode or "")
            if worker.ending == "stopped":
                _seat_again(queue, crew, watch, worker)
    for number in list(watch.waiting):
        answer = crew.answer(number)
        if answer is not None and answer != "taken":
            del watch.waiting[number]
            watch.over.add(number)
            _note_ending(gathered, answer, watch.seats[number].mode.name)


def _note_ending(gathered: Gathered, ending: str, mode: str) -> None:
    if ending.startswith("broken: "):
        gathered.broken[mode] = ending.removeprefix("broken: ")
    elif ending in ("task_cap", "wall_clock"):
        gathered.cut[ending] = gathered.cut.get(ending, 0) + 1


def _bury_the_dead(
    queue: Queue,
    ground: Ground,
    crew: Crew,
    watch: Watch,
    workers: list[Worker],
    gathered: Gathered,
) -> None:
    for worker in workers:
        if worker.ended_at is not None or processes.is_alive(worker.process) is not False:
            continue
        how = crew.ending(worker.pid)
        tasks = queue.owned(worker.id)
        bury(queue, ground, worker, f"missing: {how}", f"the worker died ({how})", gathered.left)
        watch.buried.add(worker.id)
        watch.over.add(_number(worker))
        during = f" during task {', '.join(str(task.id) for task in tasks)}" if tasks else ""
        gathered.missing.append(f"w{worker.id} ({worker.mode}) {how}{during}")
        _seat_again(queue, crew, watch, worker)


def _enforce_deadlines(
    queue: Queue,
    ground: Ground,
    crew: Crew,
    watch: Watch,
    workers: list[Worker],
    gathered: Gathered,
) -> None:
    """End workers whose task or whose wall clock is over and who did not see to it themselves."""
    now = clock.now()
    for worker in workers:
        if worker.ended_at is not None or worker.id in watch.buried:
            continue
        for task in queue.owned(worker.id):
            mode = ground.modes.get(task.mode)
            slack = 0.0 if mode is not None and mode.function is not None else SLACK
            if task.deadline_at is not None and task.deadline_at < clock.stamp(clock.after(now, -slack)):
                _end_late(queue, ground, worker, task, gathered)
                watch.buried.add(worker.id)
                watch.over.add(_number(worker))
                _seat_again(queue, crew, watch, worker)
                break


def _end_late(queue: Queue, ground: Ground, worker: Worker, task: Task, gathered: Gathered) -> None:
    """End one worker for one late task. A worker that can still speak says the same of it; the first word stands."""
    only = queue.ledger.claims_of(worker) == 1
    gathered.left += processes.end_tree(worker.process, ground.limits.grace_sec)
    by_wall_clock = task.deadline_at == worker.deadline_at
    mode = ground.modes.get(task.mode)
    reason = "wall_clock" if by_wall_clock else "timeout"
    if by_wall_clock and mode is not None and not had_its_time(task, mode, only=only):
        queue.release(task, reason)
    else:
        queue.crash(task, reason, evidence=last_words(ground, worker, task))
    bury(queue, ground, worker, reason, reason, gathered.left)
    gathered.cut[reason] = gathered.cut.get(reason, 0) + 1


def _seat_again(queue: Queue, crew: Crew, watch: Watch, worker: Worker) -> None:
    """A dead worker's seat goes to a new one, for the tasks that it had left.

    A worker that died before its first task is not replaced: the next one would most likely die the same way.
    """
    seat = watch.seats[_number(worker)]
    claimed = queue.ledger.claims_of(worker)
    if not claimed or claimed >= seat.task_cap or clock.stamp(clock.now()) >= seat.until:
        return
    again = replace(seat, number=max(watch.seats) + 1, task_cap=seat.task_cap - claimed)
    watch.seats[again.number] = again
    watch.waiting[again.number] = clock.monotonic()
    crew.seat(again.number, again)


def _free_the_stuck(crew: Crew, watch: Watch) -> None:
    now = clock.monotonic()
    stuck = [number for number, since in watch.waiting.items() if now - since > START_LIMIT]
    if stuck:
        crew.reopen(len(stuck))
        for number in stuck:
            watch.waiting[number] = now
            crew.seat(number, watch.seats[number])


def _end_all(queue: Queue, fire: Fire, ground: Ground, gathered: Gathered, why: str) -> None:
    """Ask every worker to stop, which gives back what it holds; then end those that did not, and give theirs back."""
    workers = _present(queue, fire)
    for worker in workers:
        processes.ask_to_stop(worker.process)
    patience = clock.monotonic() + ground.limits.grace_sec
    while _present(queue, fire) and clock.monotonic() < patience:
        clock.sleep(0.05)
    for worker in _present(queue, fire):
        gathered.left += processes.end_tree(worker.process, 0)
        gathered.left += processes.end_marked(worker.id, ground.database, 0)
        for task in queue.owned(worker.id):
            queue.release(task, why)
        queue.ledger.retire(worker.id, why)


def _present(queue: Queue, fire: Fire) -> list[Worker]:
    return [worker for worker in queue.ledger.crew(fire.id) if worker.ended_at is None]


def _number(worker: Worker) -> int:
    """The seat of one of the fire's own workers, which all have one."""
    assert worker.seat is not None
    return worker.seat


def _count_moves(queue: Queue, fire: Fire, watch: Watch) -> None:
    """Count what ended since the last look, so that a look costs the same in a long fire as in a short one."""
    for state, count, last in queue.ledger.ended_since(fire, watch.seen):
        watch.seen = max(watch.seen, last)
        if state == State.DONE:
            watch.drained += count
        elif state in (State.FAILED, State.CRASHED, State.RETRY_PENDING):
            watch.failed += count


def _progress(watch: Watch, workers: list[Worker], planned: int, until: datetime.datetime) -> Progress:
    return Progress(
        phase="barrier",
        planned=planned,
        drained=watch.drained,
        failed=watch.failed,
        seats=len(watch.seats),
        alive=sum(worker.ended_at is None for worker in workers),
        left_seconds=max(0.0, (until - clock.now()).total_seconds()),
    )
