"""What happened, as spans: one for each step of a fire or poll and of a task's life, read off what the database holds.

A fire is a trace: the fire itself, its phases and its workers below it, the attempts of tasks below their workers, the
judging of a gate below the attempt that is judged. A task is a trace too: its waits, and those attempts that no fire
made. Nothing is stored, and the ids come from the rows: the same span has the same id whoever reads it, and when.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orch import clock
from orch.fire_records import PHASES, SUCCESSFUL, Fire, Worker
from orch.limits import WORKER_CAPS
from orch.queue import Queue
from orch.records import Task
from orch.states import ENDED, OWNED, State

# Attempts that are read at once.
_BATCH = 500
_SOUND = ("empty", "stopped", *WORKER_CAPS)


@dataclass(frozen=True, slots=True)
class Span:
    """One step, with its ``attributes`` (text, whole numbers, floats; what is not known is not there).

    ``start`` and ``end`` are stamps; ``end`` is None while it goes on. ``sound`` says whether it went well, None where
    it did neither; ``message`` says why it did not. ``trace_id`` is 16 bytes and ``span_id`` 8 bytes, as hex; ``links``
    are pairs of them: other spans that it belongs to. ``label`` is what a person calls it, ``lane`` the process and the
    thread that a timeline draws it in.
    """

    name: str
    label: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start: str
    end: str | None
    sound: bool | None
    message: str | None
    attributes: dict[str, Any]
    lane: tuple[str, str]
    links: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> str:
        """``ok``, ``error`` or ``unset``."""
        return {True: "ok", False: "error", None: "unset"}[self.sound]

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it goes on."""
        return None if self.end is None else clock.seconds_between(self.start, self.end)


def as_protocol(span: Span) -> dict[str, Any]:
    """A span in the shape of the protocol's ``capture_span``, for JSON; moments are stamps."""
    return {
        "span_name": f"orchestrator-{span.name}",
        "span_id": span.span_id,
        "trace_id": span.trace_id,
        "parent_span_id": span.parent_id,
        "start_time": span.start,
        "end_time": span.end,
        "duration_ms": None if span.seconds is None else round(span.seconds * 1000),
        "status": span.status,
        "status_message": span.message,
        "attributes": span.attributes,
        "links": [{"trace_id": trace, "span_id": span_id} for trace, span_id in span.links],
    }


def of_fire(queue: Queue, fire: Fire) -> Iterator[Span]:
    """The spans of a fire or poll: itself, its phases, its workers, then the attempts in the order of their claims.

    Parents come before their children. Attempts are read a few hundred at a time, however many there are. A poll has no
    phases: its row is stamped for each drain anew.
    """
    maker = _Maker(queue)
    yield maker.fire(fire)
    if fire.kind == "fire":
        yield from maker.phases(fire)
    for worker in queue.ledger.crew(fire.id):
        yield maker.worker(fire, worker)
    last = fire.first_event
    while rows := queue.database.run("attempts_of_fire", fire=fire.id, after=last, limit=_BATCH):
        for row in rows:
            yield maker.attempt(_Row(*row))
        last = rows[-1][-1]


def of_task(queue: Queue, task: Task) -> list[Span]:
    """The life of one task: itself, then its waits and attempts in the order of time.

    An attempt that a fire made belongs to the fire's trace, and is the same span there.
    """
    maker = _Maker(queue)
    attempts = [maker.attempt(_Row(*row)) for row in queue.database.run("attempts_of_task", task=task.id)]
    steps = [*attempts, *maker.waits(task, queue)]
    return [maker.task(task, queue), *sorted(steps, key=lambda span: span.start)]


@dataclass(frozen=True, slots=True)
class _Row:
    """One attempt, as the queries read it; ``judged`` is the attempt of the parent that it is the gate of."""

    task: int
    attempt: int
    mode: str
    key: str | None
    worker: int | None
    fire: int | None
    kind: str | None
    claimed_at: str
    ended_at: str | None
    outcome: str | None
    exit_code: int | None
    error: str | None
    tokens: int | None
    cost_usd: float | None
    parent: int | None
    relation: str | None
    judged: int | None
    event: int


class _Maker:
    """Makes spans of rows; the ids are of this queue, by the moment it was made."""

    def __init__(self, queue: Queue) -> None:
        self._made_at = queue.ledger.made_at()

    def fire(self, fire: Fire) -> Span:
        return Span(
            name=fire.kind,
            label=fire.name,
            trace_id=self._trace("fire", fire.id),
            span_id=self._span("fire", fire.id),
            parent_id=None,
            start=fire.opened_at,
            end=fire.closed_at,
            sound=_sound(fire),
            message=None if _sound(fire) else fire.ending,
            attributes=_known(fire=fire.id, ending=fire.ending, slot=fire.slot, host=fire.host, pid=fire.pid),
            lane=(fire.name, "phases"),
        )

    def phases(self, fire: Fire) -> Iterator[Span]:
        """The phases that were begun, each to the beginning of the next one."""
        begun = [(phase, str(at)) for phase in PHASES if (at := getattr(fire, f"{phase}_at"))]
        ends = [*(at for _, at in begun[1:]), fire.closed_at]
        for (phase, start), end in zip(begun, ends, strict=False):
            sound = True if end != fire.closed_at else _sound(fire)
            yield Span(
                name=phase,
                label=phase,
                trace_id=self._trace("fire", fire.id),
                span_id=self._span("phase", fire.id, phase),
                parent_id=self._span("fire", fire.id),
                start=start,
                end=end,
                sound=sound,
                message=None if sound else fire.ending,
                attributes={"fire": fire.id},
                lane=(fire.name, "phases"),
            )

    def worker(self, fire: Fire, worker: Worker) -> Span:
        sound = None if worker.ended_at is None else worker.ending in _SOUND
        return Span(
            name="worker",
            label=f"w{worker.id} {worker.mode or ''}".rstrip(),
            trace_id=self._trace("fire", fire.id),
            span_id=self._span("worker", worker.id),
            parent_id=self._span("fire", fire.id),
            start=worker.enrolled_at,
            end=worker.ended_at,
            sound=sound,
            message=None if sound else worker.ending,
            attributes=_known(
                fire=fire.id,
                worker=worker.id,
                seat=worker.seat,
                mode=worker.mode,
                ending=worker.ending,
                host=worker.host,
                pid=worker.pid,
            ),
            lane=(fire.name, f"w{worker.id}"),
        )

    def attempt(self, row: _Row) -> Span:
        whole = (self._trace("task", row.task), self._span("task", row.task))
        if row.fire is None:
            trace, parent, links = whole[0], whole[1], []
        else:
            trace, parent, links = self._trace("fire", row.fire), self._span("worker", row.worker), [whole]
        if row.judged is not None:
            parent = self._span("attempt", row.parent, row.judged)
        owner = f"{row.kind} {row.fire}" if row.fire is not None else f"task {row.task}"
        sound = None if row.outcome in (None, State.INCOMING) else row.outcome == State.DONE
        return Span(
            name="attempt",
            label=f"{row.key or f'task {row.task}'}{f' #{row.attempt}' if row.attempt > 1 else ''}",
            trace_id=trace,
            span_id=self._span("attempt", row.task, row.attempt),
            parent_id=parent,
            start=row.claimed_at,
            end=row.ended_at,
            sound=sound,
            message=None if sound else row.error,
            attributes=_known(
                task=row.task,
                key=row.key,
                mode=row.mode,
                attempt=row.attempt,
                fire=row.fire,
                worker=row.worker,
                outcome=row.outcome,
                exit_code=row.exit_code,
                tokens=row.tokens,
                cost_usd=row.cost_usd,
                parent_task=row.parent,
                relation=row.relation,
            ),
            links=(*links, *self._followed(row.parent)),
            lane=(owner, "life" if row.worker is None else f"w{row.worker}"),
        )

    def task(self, task: Task, queue: Queue) -> Span:
        ended = task.state in ENDED
        origin = next(iter(queue.asks.ancestors(task.id)), None)
        parent, relation = (origin.id, origin.relation) if origin else (None, None)
        return Span(
            name="task",
            label=f"task {task.id}{f' ({task.key})' if task.key else ''}",
            trace_id=self._trace("task", task.id),
            span_id=self._span("task", task.id),
            parent_id=None,
            start=task.created_at,
            end=task.updated_at if ended else None,
            sound=task.state == State.DONE if ended else None,
            message=None if task.state == State.DONE else task.reason,
            attributes=_known(
                task=task.id,
                key=task.key,
                mode=task.mode,
                state=task.state,
                attempts=task.attempts,
                retry_count=task.retry_count,
                parent_task=parent,
                relation=relation,
            ),
            links=self._followed(parent),
            lane=(f"task {task.id}", "life"),
        )

    def waits(self, task: Task, queue: Queue) -> Iterator[Span]:
        """Each time that the task spent in a state in which nobody had it; moments of no length are left out."""
        events = queue.events(task.id)
        spent = [("incoming", task.created_at, 0), *((event.new_state, event.at, event.id) for event in events)]
        ends = [*(event.at for event in events), None]
        for (state, start, event), end in zip(spent, ends, strict=True):
            if state in OWNED | ENDED or start == end:
                continue
            yield Span(
                name=state,
                label=state,
                trace_id=self._trace("task", task.id),
                span_id=self._span("wait", task.id, event),
                parent_id=self._span("task", task.id),
                start=start,
                end=end,
                sound=None,
                message=None,
                attributes={"task": task.id, "mode": task.mode},
                lane=(f"task {task.id}", "life"),
            )

    def _followed(self, task: int | None) -> tuple[tuple[str, str], ...]:
        """A link to the task that another one followed from."""
        return () if task is None else ((self._trace("task", task), self._span("task", task)),)

    def _trace(self, *parts: object) -> str:
        return self._hash(16, "trace", *parts)

    def _span(self, *parts: object) -> str:
        return self._hash(8, "span", *parts)

    def _hash(self, size: int, *parts: object) -> str:
        text = " ".join(map(str, (self._made_at, *parts)))
        return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def _sound(fire: Fire) -> bool | None:
    return None if fire.closed_at is None else fire.ending in SUCCESSFUL


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
