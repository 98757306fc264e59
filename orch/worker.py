"""The worker: claim, do, mark; it ends at its task cap, its wall clock or an empty queue.

`drain` is the loop. `sit` is what a child of the pool does with the one seat that it is given.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType

from orch import clock, kin, processes, work
from orch.budget import Gate
from orch.errors import Busy, OrchError, StorageError
from orch.limits import Limits
from orch.modes import Mode
from orch.outcomes import Cut, Done, Failed, Later, Outcome, error_text
from orch.pool import last_word, unheard
from orch.queue import Queue
from orch.records import Task
from orch.silence import is_stalled
from orch.states import State
from orch.work import Bench, Labour
from orch.work.function import Stop

# So many tasks of a mode in a row say "not now" until it is paused.
LANE_PATIENCE = 3
# How a worker ends whose storage has failed: its words begin so.
NO_STORAGE = "no storage: "
_SKEW = 0.05
# Seconds between looks at whether a command's claim still stands.
_CLAIM_LOOK = 1.0


@dataclass(frozen=True, slots=True)
class Seat:
    """One planned worker, as plain data that crosses the process border.

    Its wall clock is over when `clock.monotonic` says ``ends``; ``until`` is the stamp for those who only see the
    database. ``task_cap`` is how many tasks it may still claim. ``holds`` says that what its tasks put off waits for
    the fire's end too.
    """

    number: int
    mode: Mode
    task_cap: int
    until: str
    ends: float
    fire: int | None
    database: str
    durability: str
    project: str
    state: str
    limits: Limits
    zone: str = "UTC"
    roles: tuple[str, ...] = ()
    judge: Mode | None = None
    root: str | None = None
    holds: bool = True
    python_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drained:
    """What a worker did: how many tasks it handled, how many answers came too late, and why it ended."""

    handled: int
    lost: int
    ending: str


def drain(
    queue: Queue,
    mode: Mode,
    do: Labour,
    *,
    worker: int | None,
    task_cap: int,
    left: Callable[[], float],
    limits: Limits,
    fire: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
    gate: Gate | None = None,
) -> Drained:
    """Claim, do, mark, until `task_cap` tasks are handled, no seconds are `left`, or the mode has nothing to claim.

    A `gate` may end it before a claim, when a budget is spent. A failure fails its task and the worker goes on. An
    answer that came too late is counted as lost.
    """
    handled = lost = put_off = 0
    task = _first(queue.claim(mode.name, worker=worker, timeout=mode.timeout, until=_edge(left()), gate=gate))
    while task is not None:
        outcome = _attempt(do, task)
        handled += 1
        put_off = put_off + 1 if isinstance(outcome, Later) else 0
        if isinstance(outcome, Later) and (outcome.everybody or put_off % LANE_PATIENCE == 0):
            # All of them say so: the rest of the mode is left alone until then.
            queue.put_off(mode.name, f"not now: {outcome.why}", _delay(outcome, limits))
        more = handled < task_cap and left() > 0 and not stopping()
        with last_word:
            if isinstance(outcome, Done) and outcome.also is None and more:
                kept, following = queue.finish_and_claim(
                    task, outcome.result, outcome.evidence, timeout=mode.timeout, until=_edge(left()), gate=gate
                )
            else:
                kept = settle(queue, task, outcome, mode=mode, limits=limits, fire=fire, only=handled == 1)
                following = None
                if more:
                    following = _first(
                        queue.claim(mode.name, worker=worker, timeout=mode.timeout, until=_edge(left()), gate=gate)
                    )
        if not kept and not queue.was_cancelled(task):
            lost += 1
            if worker is not None:
                queue.ledger.count_lost(worker)
        task = following
    if stopping():
        return Drained(handled, lost, "stopped")
    if gate is not None and gate.hit:
        return Drained(handled, lost, gate.hit)
    if handled >= task_cap:
        return Drained(handled, lost, "task_cap")
    return Drained(handled, lost, "wall_clock" if left() <= 0 else "empty")


def settle(
    queue: Queue,
    task: Task,
    outcome: Outcome,
    *,
    mode: Mode,
    limits: Limits,
    fire: int | None = None,
    only: bool = True,
    reason: str | None = None,
) -> bool:
    """Mark what a task's labour came to; False when the claim was lost and nothing changed.

    A `reason` stands with the move of a task that is done. `only` says whether this was the worker's only task: one
    that came late in the worker's life and was cut by its wall clock is not to blame, and counts no retry.
    """
    match outcome:
        case Done(result, evidence):
            with queue.transaction(durable=outcome.also is not None):
                kept = queue.finish(task, result, evidence, reason=reason)
                if kept and outcome.also is not None:
                    outcome.also(queue)
            return kept
        case Failed(error, evidence):
            again = mode.retry_failures if outcome.again is None else outcome.again
            with queue.transaction(durable=outcome.also is not None):
                kept = queue.fail(
                    task,
                    error,
                    evidence=evidence,
                    result=outcome.result,
                    retries=(mode.retries or limits.retries) if again else None,
                )
                if kept and outcome.also is not None:
                    outcome.also(queue)
                elif kept and again and mode.agent is not None and queue.task(task.id).state == State.FAILED:
                    queue.asks.review(task, error)
            return kept
        case Later(why, _, evidence):
            delay = _delay(outcome, limits)
            return queue.release(task, f"not now: {why}", delay=delay, fire=fire, evidence=evidence)
        case Cut("timeout", error, evidence):
            reason = cut_by(task, mode)
            if reason == "wall_clock" and not only:
                return queue.release(task, reason, evidence=evidence)
            return queue.crash(task, reason, error=error, evidence=evidence)
        case Cut("stalled", error, evidence):
            return queue.crash(task, "stalled", error=error, evidence=evidence)
        case Cut(why, _, evidence):
            return queue.release(task, why, evidence=evidence)


def _delay(later: Later, limits: Limits) -> float:
    """Seconds until a task that said "not now" is due again."""
    return limits.not_now_delay if later.retry_after is None else later.retry_after


def cut_by(task: Task, mode: Mode | None) -> str:
    """Which limit an attempt was at that had all its time: its ``timeout``, or its worker's ``wall_clock``."""
    limit = task.timeout if task.timeout is not None or mode is None else mode.timeout
    return "wall_clock" if limit is None or (task.allotted or 0) < limit - _SKEW else "timeout"


def _edge(left: float) -> str:
    """The stamp of a worker's wall clock, as the clock says now: it may have been set meanwhile."""
    return clock.stamp(clock.after(clock.now(), left))


def sit(seat: Seat) -> str:
    """A pool's child takes its seat: enrol, drain, retire. Returns how it ended, in words; it never raises."""
    try:
        return _sit(seat)
    except BaseException as error:
        return broken(error)


def _sit(seat: Seat) -> str:
    signals = _Signals()
    queue = Queue.open(seat.database, durability=seat.durability)
    worker = enrol(queue, seat)
    if worker is None:
        return "taken"
    queue.by = f"w{worker}"
    _mark_environment(seat, worker)
    _speak_utf8()
    pulse = _Pulse(seat, worker)

    def left() -> float:
        return seat.ends - clock.monotonic()

    try:
        bench = bench_of(seat, queue, worker, cut=_Cut(queue, signals, seat), edge=lambda: _edge(left()))
        do = work.labour(seat.mode, bench)
        if seat.mode.function is not None:
            do = signals.around(do)
        pulse.start()
        ending = drain(
            queue,
            seat.mode,
            pulse.around(do),
            worker=worker,
            task_cap=seat.task_cap,
            left=left,
            limits=seat.limits,
            fire=seat.fire if seat.holds else None,
            stopping=lambda: signals.stopping,
            gate=gate_of(queue, seat),
        ).ending
    except BaseException as error:
        ending = broken(error)
    finally:
        pulse.stop()
        signals.restore()
    _leave(queue, seat, worker, ending)
    if signals.stopping:
        # Whoever asked waits for the process, not for its seat.
        os._exit(0)
    return ending


def enrol(queue: Queue, seat: Seat) -> int | None:
    """This process takes a seat: the id of its worker, or None where another one has it."""
    return queue.ledger.enrol(
        processes.myself(),
        fire=seat.fire,
        seat=seat.number,
        mode=seat.mode.name,
        task_cap=seat.task_cap,
        until=seat.until,
    )


def bench_of(
    seat: Seat,
    queue: Queue,
    worker: int,
    *,
    cut: Callable[[Task], str | None],
    edge: Callable[[], str],
    marks: Mapping[str, str] | None = None,
    alone: bool = True,
    exits: ExitStack | None = None,
) -> Bench:
    """Where the worker of a seat works."""
    return Bench(
        database=seat.database,
        project=seat.project,
        state=seat.state,
        worker=worker,
        fire=seat.fire,
        limits=seat.limits,
        roles=seat.roles,
        cut=cut,
        queue=queue,
        edge=edge,
        judge=seat.judge,
        root=seat.root,
        python_path=seat.python_path,
        marks=marks or {},
        alone=alone,
        exits=exits or ExitStack(),
    )


def broken(error: BaseException) -> str:
    """How a worker ends that cannot go on, in words."""
    kind = NO_STORAGE if isinstance(error, StorageError | Busy) else "broken: "
    return f"{kind}{error if isinstance(error, OrchError) else error_text(error)}"


def put_back(queue: Queue, task: Task, why: str, limits: Limits, fire: int | None) -> bool:
    """Give a task back that could not be marked as what it came to: no fault of its own, but not again in this fire."""
    return queue.release(task, why, delay=limits.not_now_delay, fire=fire)


def gate_of(queue: Queue, seat: Seat) -> Gate | None:
    """What judges this worker's claims by the budgets; None where none is set, so that nobody else pays for it."""
    if not seat.limits.budgeted:
        return None
    fire = None if seat.fire is None else queue.ledger.fire(seat.fire)
    return Gate(queue, seat.limits, clock.zone(seat.zone), fire)


def _leave(queue: Queue, seat: Seat, worker: int, ending: str) -> None:
    """Say how it ended. What a broken worker still holds goes up the retry ladder."""
    left = kin.end_children(seat.limits.grace_sec) if kin.any_child_left() else []
    if left:
        ending = f"broken: processes that could not be ended: {', '.join(left)}"
    with last_word:
        for task in queue.owned(worker):
            if ending.startswith(NO_STORAGE):
                put_back(queue, task, ending, seat.limits, seat.fire)
            else:
                queue.crash(task, "the worker broke", error=ending)
        # Before it is said that it ended: whoever finds it dead after that has nothing to do any more.
        work.slate.forget(seat.state, worker)
        work.output.forget(seat.state, worker)
        queue.ledger.retire(worker, ending)
    queue.close()


def _first(tasks: list[Task]) -> Task | None:
    return tasks[0] if tasks else None


def _attempt(do: Labour, task: Task) -> Outcome:
    try:
        return do(task)
    except Exception as error:
        # The labour's own frame failed (its output could not be stored, say): the task did not succeed for sure.
        return Failed(error_text(error))


def _mark_environment(seat: Seat, worker: int) -> None:
    os.environ["ORCH_WORKER"] = str(worker)
    if seat.fire is not None:
        os.environ["ORCH_FIRE"] = str(seat.fire)


def _speak_utf8() -> None:
    """What a function prints is kept as UTF-8, whatever the locale that cron gives.

    And line by line, in the order of both streams: the last words of a worker that is killed are kept too.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


class _Cut:
    """Whether what runs has to end: the worker is asked to stop, its agent is stalled, or its claim is over.

    A person may have cancelled the task, or somebody on another host taken it for dead; that is looked for seldom.
    """

    def __init__(self, queue: Queue, signals: _Signals, seat: Seat) -> None:
        self._queue = queue
        self._signals = signals
        self._seat = seat
        self._looked = clock.monotonic()

    def __call__(self, task: Task) -> str | None:
        if self._signals.stopping:
            # Whoever ends it for its silence asks it to stop, too.
            return "stalled" if self._is_stalled(task) else "stopped"
        now = clock.monotonic()
        if now - self._looked < _CLAIM_LOOK:
            return None
        self._looked = now
        if self._is_stalled(task):
            return "stalled"
        try:
            return None if self._queue.holds(task) else "lost"
        except OrchError:
            # Nobody knows; the claim's number decides when the task is marked.
            return None

    def _is_stalled(self, task: Task) -> bool:
        return is_stalled(self._seat.state, task, self._seat.mode.patience)


class _Signals:
    """TERM asks the worker to stop: between tasks or in the middle of a function; a command is cut by its runner."""

    def __init__(self) -> None:
        self.stopping = False
        self._in_task = False
        # The terminal's Ctrl-C reaches the whole foreground group: the fire ends its workers in order, by TERM.
        self._before = {
            signal.SIGINT: signal.signal(signal.SIGINT, unheard),
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._stop),
        }

    def around(self, do: Labour) -> Labour:
        """The same labour of a function, broken off by the signal."""

        def guarded(task: Task) -> Outcome:
            # The function before may have set its own.
            signal.signal(signal.SIGTERM, self._stop)
            began = clock.monotonic()
            try:
                self._in_task = True
                if self.stopping:
                    raise Stop
                outcome = do(task)
                if isinstance(outcome, Failed):
                    # What a signal to everybody did to the function's own children is no failure of the task; this
                    # process may get it a moment later, or have got it where the function could catch it.
                    clock.sleep(_SKEW)
                    if self.stopping:
                        raise Stop
                return outcome
            except Stop:
                if task.allotted is not None and clock.monotonic() - began >= task.allotted - _SKEW:
                    return Cut("timeout", "ended for its timeout")
                return Cut("stopped", "the worker was asked to stop")
            finally:
                self._in_task = False

        return guarded

    def restore(self) -> None:
        """Back to what was before; one who is asked to stop is not to be asked again on the way out."""
        if self.stopping:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self.stopping = True
        if self._in_task:
            # Once: a second signal must not break off the way out.
            self._in_task = False
            raise Stop


class _Pulse:
    """Heartbeats from beside the task: a thread with a connection of its own, opened when the first beat is due."""

    def __init__(self, seat: Seat, worker: int) -> None:
        self._seat = seat
        self._task: Task | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def around(self, do: Labour) -> Labour:
        def beating(task: Task) -> Outcome:
            self._task = task
            try:
                return do(task)
            finally:
                self._task = None

        return beating

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        queue: Queue | None = None
        while not self._over.wait(self._seat.limits.heartbeat_interval):
            task = self._task
            if task is None:
                continue
            try:
                if queue is None:
                    queue = Queue.open(self._seat.database, durability=self._seat.durability)
                queue.heartbeat(task)
            except OrchError:
                # A missed beat is no harm: the worker is judged by its process, and the next beat comes.
                continue
        if queue is not None:
            queue.close()
