"""Seats that are taken by this very process, one after the other or in threads: for tests, and for whoever embeds.

Everything that is stored is as with processes. What only a process can do is left out: a function that takes too long
is not ended but found late when it returns, and what a function prints is not captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from orch import clock, kin, work
from orch.barrier import Gathered, Progress
from orch.fire_records import Fire
from orch.outcomes import Cut, Outcome
from orch.queue import Queue
from orch.records import Task
from orch.states import State
from orch.work import Labour, function
from orch.worker import NO_STORAGE, Seat, bench_of, broken, drain, enrol, gate_of, put_back


class Died(function.Stop):
    """Raised while a task is done, its worker is gone in that moment, as if it had been killed: it marks nothing."""


@dataclass(frozen=True)
class Hands:
    """How the seats of a fire are taken in this process: by the runner ``inline`` or ``threads``.

    ``work`` are functions by their modes, which need not be importable; ``wrap`` is put around the doing of each task.
    """

    runner: str
    work: Mapping[str, Callable[[Task], Any]] = field(default_factory=dict)
    wrap: Callable[[Labour], Labour] = lambda do: do


@dataclass(frozen=True)
class _Left:
    """A seat is over: how its worker ended and, where it died, which tasks it held."""

    seat: Seat
    worker: int
    ending: str
    held: Sequence[int] | None = None


@dataclass
class Shift:
    """The seats of one fire in this process: `take` sits down in all of them and tells what became of them."""

    queue: Queue
    fire: Fire
    hands: Hands
    stopping: Callable[[], bool]
    gathered: Gathered = field(default_factory=Gathered)

    def take(self, seats: Sequence[Seat], planned: int, report: Callable[[Progress], None]) -> Gathered:
        """Sit down in every seat, and again in that of a worker that died, having done something."""
        last = len(seats)
        while seats and not self.stopping():
            again: list[Seat] = []
            for left in self._all(seats):
                self._note(left)
                report(self._progress(planned, last))
                if left.held is not None and (rest := self._rest(left)) is not None:
                    last += 1
                    again.append(replace(rest, number=last))
            seats = again
        self.gathered.stopped = self.stopping()
        return self.gathered

    def _all(self, seats: Sequence[Seat]) -> Iterable[_Left]:
        if self.hands.runner == "inline":
            return (self._sit(seat, self.queue) for seat in seats if not self.stopping())
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(seats), thread_name_prefix="orch") as threads:
            return list(threads.map(self._sit_apart, seats))

    def _sit_apart(self, seat: Seat) -> _Left:
        """In a thread: with a connection of its own."""
        with Queue.open(seat.database, durability=seat.durability) as queue:
            return self._sit(seat, queue)

    def _sit(self, seat: Seat, queue: Queue) -> _Left:
        """Enrol, drain, retire, as a worker process does."""
        worker = enrol(queue, seat)
        assert worker is not None, "seats are given once"
        held: list[int] | None = None
        by, queue.by = queue.by, f"w{worker}"
        try:
            with ExitStack() as exits:
                ending = drain(
                    queue,
                    seat.mode,
                    self.hands.wrap(_in_time(self._labour(seat, queue, worker, exits))),
                    worker=worker,
                    task_cap=seat.task_cap,
                    left=lambda: _seconds_until(seat.until),
                    limits=seat.limits,
                    fire=seat.fire,
                    stopping=self.stopping,
                    gate=gate_of(queue, seat),
                ).ending
        except Died as died:
            ending, held = f"missing: {died or 'died'}", []
        except BaseException as error:
            ending = broken(error)
        queue.by = by
        for task in queue.owned(worker):
            if held is not None:
                held.append(task.id)
                queue.crash(task, f"the worker died ({ending.removeprefix('missing: ')})")
            elif ending.startswith(NO_STORAGE):
                put_back(queue, task, ending, seat.limits, seat.fire)
            else:
                queue.crash(task, "the worker broke", error=ending)
        work.slate.forget(seat.state, worker)
        work.output.forget(seat.state, worker)
        queue.ledger.retire(worker, ending)
        return _Left(seat, worker, ending, held)

    def _labour(self, seat: Seat, queue: Queue, worker: int, exits: ExitStack) -> Labour:
        """How the tasks of a mode are done here; functions without what a process of their own is needed for."""
        found = self.hands.work.get(seat.mode.name)
        if found is None and seat.mode.function is not None:
            found = function.load(seat.mode.function, seat.project, seat.python_path)
        if found is not None:
            called = found
            return lambda task: function.call(called, task)
        bench = bench_of(
            seat,
            queue,
            worker,
            cut=lambda _: "stopped" if self.stopping() else None,
            edge=lambda: seat.until,
            marks={"ORCH_WORKER": str(worker), "ORCH_FIRE": str(seat.fire), kin.DATABASE_MARK: seat.database},
            alone=False,
            exits=exits,
        )
        return work.labour(seat.mode, bench)

    def _note(self, left: _Left) -> None:
        mode = left.seat.mode.name
        self.gathered.note_end(mode, left.ending)
        if left.held is not None:
            during = f" during task {', '.join(map(str, left.held))}" if left.held else ""
            how = left.ending.removeprefix("missing: ")
            self.gathered.missing.append(f"w{left.worker} ({mode}) {how}{during}")

    def _rest(self, left: _Left) -> Seat | None:
        """The seat of a worker that died, for the tasks that it had left; not if it died before its first one."""
        worker = self.queue.ledger.worker(left.worker)
        claimed = 0 if worker is None else self.queue.ledger.claims_of(worker)
        if not 0 < claimed < left.seat.task_cap or _seconds_until(left.seat.until) <= 0:
            return None
        return replace(left.seat, task_cap=left.seat.task_cap - claimed)

    def _progress(self, planned: int, seats: int) -> Progress:
        ended = {state: count for state, count, _ in self.queue.ledger.ended_since(self.fire, self.fire.first_event)}
        done = self.gathered.done = ended.get(State.DONE, 0)
        return Progress("barrier", planned=planned, drained=done, failed=sum(ended.values()) - done, seats=seats)


def _in_time(do: Labour) -> Labour:
    """The same labour; what came after its deadline is too late, whatever it came to."""

    def timed(task: Task) -> Outcome:
        outcome = do(task)
        if task.deadline_at is not None and task.deadline_at < clock.stamp(clock.now()):
            return Cut("timeout", "it came back after its timeout", outcome.evidence)
        return outcome

    return timed


def _seconds_until(stamp: str) -> float:
    return (clock.moment(stamp) - clock.now()).total_seconds()
