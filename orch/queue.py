"""The verbs on tasks: everything that adds, claims, moves or reads one.

Each verb is one transaction, and every write by an owner carries the claim's number (``attempts``) as a fencing token:
a claim that was lost in the meantime changes nothing, and the verb says so by returning False. Inside
``with queue.transaction():`` several verbs make one.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from orch import backoff, clock, jsontext
from orch.adding import add_all, add_one, resolve
from orch.database import BUSY_TIMEOUT, Database
from orch.errors import Conflict, NotFound, UsageError
from orch.legible import storable
from orch.names import check_name
from orch.records import Added, NewTask, Task
from orch.states import OWNED, State

if TYPE_CHECKING:
    from orch.asks import Asks
    from orch.eventlog import EventLog
    from orch.ledger import Ledger
    from orch.limits import Retries
    from orch.look_records import Attempt, Backlog, Event, Pause
    from orch.mail import Mail
    from orch.outcomes import Evidence, Metrics
    from orch.spending import Spending
    from orch.workdirs import Workdirs

# Due tasks that one claim moves at the most, so that a claim stays short behind a million of them.
PROMOTE_BATCH = 100
_EVERYTHING = 2**62
F = TypeVar("F", bound=Callable[..., Any])
CANCELLED = "cancelled"
# Where anything is known of a task.
_TABLES = ("task", "event", "outcome", "payload", "dependency", "ask", "lineage", "kept_answer", "feedback",
           "workdir")  # fmt: skip
# What a move keeps of an error; all of it stands with the attempt.
_REASON = 300


class Queue:
    """A queue in an open database. `by` signs the moves that this process makes."""

    def __init__(self, database: Database, *, by: str = "library") -> None:
        self.database = database
        self.by = by
        self.handlers: dict[str, tuple[Callable[[Task], Any], dict[str, Any]]] = {}

    # Verbs that share the queue's connection, each loaded when it is first asked for: adding a task needs none.

    @cached_property
    def ledger(self) -> Ledger:
        """Who worked when: workers and fires."""
        from orch.ledger import Ledger

        return Ledger(self.database)

    @cached_property
    def log(self) -> EventLog:
        """The log of moves, for whoever follows it."""
        from orch.eventlog import EventLog

        return EventLog(self.database)

    @cached_property
    def mail(self) -> Mail:
        """Notes on their way up, and texts on their way down."""
        from orch.mail import Mail

        return Mail(self.database)

    @cached_property
    def asks(self) -> Asks:
        """What waits for a person, and which task followed from which."""
        from orch.asks import Asks

        return Asks(self.database)

    @cached_property
    def spending(self) -> Spending:
        """What attempts say that they cost."""
        from orch.spending import Spending

        return Spending(self.database)

    @cached_property
    def workdirs(self) -> Workdirs:
        """Where attempts worked that had a folder of their own."""
        from orch.workdirs import Workdirs

        return Workdirs(self.database)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        durability: str = "adds",
        by: str = "library",
        patience: float = BUSY_TIMEOUT,
    ) -> Queue:
        """Open the queue in the file `path`; with `create`, make it when it is missing or empty.

        A queue that others have locked is waited for, `patience` seconds at the most. `NotFound` when it is missing,
        `SchemaError` when the file is not a queue or is newer than this program.
        """
        from orch.database.sqlite import SQLite

        return cls(SQLite(os.fspath(path), create=create, durability=durability, busy_timeout=patience), by=by)

    def work(self, mode: str, **limits: Any) -> Callable[[F], F]:
        """Register the decorated function as how the tasks of `mode` are done by `orch.fire` from this queue.

        It takes the task and returns what JSON can hold, as a function that ``orch.toml`` names. `limits` are those of
        `orch.Mode`, such as ``timeout`` in seconds. Nothing of it is stored: it holds for this object.
        `UsageError` for a limit that is none, `TypeError` for one that there is not.
        """
        from orch.modes import Mode

        Mode(check_name(mode), **limits)

        def register(function: F) -> F:
            if not callable(function):
                raise UsageError(f"the work of {mode!r} has to be a function, and {function!r} is none")
            self.handlers[mode] = (function, limits)
            return function

        return register

    def transaction(self, *, durable: bool = True) -> AbstractContextManager[None]:
        """Several verbs as one transaction; it holds the write lock from its beginning.

        It is as durable as an add unless that is declined; what its verbs ask for one by one does not count.
        """
        return self.database.transaction(durable=durable)

    def close(self) -> None:
        """Close the connection; the queue cannot be used after that."""
        self.database.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Putting in

    def add(
        self,
        mode: str,
        payload: Any = None,
        *,
        key: str | None = None,
        priority: int = 0,
        at: datetime.datetime | None = None,
        delay: float | None = None,
        timeout: float | None = None,
        ttl: float | None = None,
        after: Iterable[int | str] = (),
    ) -> Added:
        """Add one task of `mode`; `payload` is anything JSON can hold (None: an empty object).

        `priority` runs from -100 to 100, higher first. It is not claimed before `at`, or before `delay` seconds have
        passed, nor before every task in `after` (ids or keys) is done. It fails as expired when it has not begun after
        `ttl` seconds; `timeout` bounds one attempt in seconds. A `key` is unique for the life of the queue: the same
        key with the same payload is the same task, with another one it is a `Conflict`.
        """
        now = clock.now()
        if delay is not None:
            at = clock.after(now, delay)
        new = NewTask(
            mode=mode,
            payload=jsontext.dump({} if payload is None else payload),
            key=key,
            priority=priority,
            due_at=None if at is None else clock.stamp(at),
            expires_at=None if ttl is None else clock.stamp(clock.after(now, ttl)),
            timeout=timeout,
            after=tuple(str(name) for name in after),
        )
        return add_one(self.database, new, stamp=clock.stamp(now), by=self.by)

    def add_many(self, tasks: Iterable[NewTask]) -> list[Added]:
        """Add tasks in one transaction: all of them, or none when one is refused. Answers in the order given.

        The payloads must be JSON text that was checked (`orch.jsontext`).
        """
        return add_all(self.database, list(tasks), stamp=clock.stamp(clock.now()), by=self.by)

    # Taking and doing

    def claim(
        self,
        mode: str,
        *,
        batch: int = 1,
        worker: int | None = None,
        start: bool = True,
        timeout: float | None = None,
        until: str | None = None,
        gate: Callable[[], bool] | None = None,
    ) -> list[Task]:
        """Take up to `batch` of the next tasks of `mode`: highest priority first, then oldest.

        With `start` they are processing at once, else claimed. `worker` is the owner's id from `Ledger.enrol`; without
        one the claim is judged by its age alone. `timeout` (seconds, the task's own comes first) and `until` (a stamp)
        bound each attempt. A `gate` is asked inside the claim's own transaction, so that what it judges by stands
        still, and may refuse. An empty list: nothing to claim, the mode is paused, or the gate refused.
        """
        now = clock.now()
        stamp = clock.stamp(now)
        promotable, expired, claimable = self.database.run("look", now=stamp, mode=mode)[0]
        # A look costs no lock: idle workers do not disturb those who write.
        if not (promotable or expired or claimable):
            return []
        with self.database.transaction():
            if gate is not None and not gate():
                return []
            tasks = self._claim(mode, batch, worker, start, timeout, until, now, stamp)
        if len(tasks) > 1:
            tasks.sort(key=lambda task: (-task.priority, task.id))
        return tasks

    def claim_this(
        self, id: int, *, worker: int | None = None, timeout: float | None = None, until: str | None = None
    ) -> Task | None:
        """Claim one certain task, whatever else there is; None when it is not waiting. Limits as in `claim`."""
        now = clock.now()
        deadline = until if timeout is None else _earlier(until, clock.stamp(clock.after(now, timeout)))
        with self.database.transaction():
            rows = self.database.run(
                "claim_this", id=id, owner=worker, deadline=deadline, now=clock.stamp(now), by=self._sign(worker)
            )
            return self.task(id) if rows else None

    def claim_for_gate(self, task: Task, id: int, *, timeout: float | None, until: str | None) -> Task:
        """Claim one certain task for the owner of another one, whose own clock stands still from now on.

        `Conflict` when either is somebody else's by now.
        """
        with self.database.transaction():
            found = self.claim_this(id, worker=task.owner, timeout=timeout, until=until) if self.holds(task) else None
            if found is None:
                raise Conflict(f"the claim on task {task.id} is lost")
            self.database.run("stop_clock", id=task.id, attempts=task.attempts)
            return found

    def start(self, task: Task, *, timeout: float | None = None, until: str | None = None) -> bool:
        """A claimed task's labour begins; False when the claim is lost. Limits as in `claim`."""
        now = clock.now()
        seconds = task.timeout if task.timeout is not None else timeout
        task.deadline_at = until if seconds is None else _earlier(until, clock.stamp(clock.after(now, seconds)))
        return self._fenced("start", task, now, deadline=task.deadline_at)

    def heartbeat(self, task: Task) -> bool:
        """A sign of life; False when the claim is lost and the labour can stop."""
        rows = self.database.run("heartbeat", id=task.id, attempts=task.attempts, now=clock.stamp(clock.now()))
        return bool(rows)

    def finish(
        self, task: Task, result: str | None = None, evidence: Evidence | None = None, *, reason: str | None = None
    ) -> bool:
        """The task is done, with a result as JSON text; False when the claim is lost and nothing was changed."""
        with self.database.transaction():
            return self._finish(task, result, evidence, clock.stamp(clock.now()), reason)

    def finish_and_claim(
        self,
        task: Task,
        result: str | None = None,
        evidence: Evidence | None = None,
        *,
        timeout: float | None = None,
        until: str | None = None,
        gate: Callable[[], bool] | None = None,
    ) -> tuple[bool, Task | None]:
        """Finish one task and claim the next of its mode for the same owner in one transaction.

        Whether the finish counted, and the next task. Limits and gate as in `claim`.
        """
        now = clock.now()
        stamp = clock.stamp(now)
        with self.database.transaction():
            kept = self._finish(task, result, evidence, stamp)
            if gate is not None and not gate():
                return kept, None
            tasks = self._claim(task.mode, 1, task.owner, True, timeout, until, now, stamp)
        return kept, tasks[0] if tasks else None

    def fail(
        self,
        task: Task,
        error: str,
        *,
        evidence: Evidence | None = None,
        result: str | None = None,
        retries: Retries | None = None,
    ) -> bool:
        """The task failed in an orderly way; with `retries` it is tried again later while any are left.

        `result` is JSON text that is kept with the error. False when the claim is lost and nothing was changed.
        """
        now = clock.now()
        state, due_at, count = State.FAILED, None, task.retry_count
        if retries is not None:
            state, due_at, count = _ladder(retries, task.retry_count + 1, now)
        with self.database.transaction():
            self._count_spend(task, _price(None, evidence), clock.stamp(now))
            kept = self._fenced(
                "fail", task, now, state=state.value, due_at=due_at, retry_count=count, reason=storable(error)[:_REASON]
            )
            if kept:
                self._keep(task, result, error, evidence)
        return kept

    def crash(self, task: Task, reason: str, *, error: str | None = None, evidence: Evidence | None = None) -> bool:
        """The owner is dead, stalled or out of time. False when the claim had ended by then."""
        now = clock.now()
        with self.database.transaction():
            self._count_spend(task, _price(None, evidence), clock.stamp(now))
            kept = self._fenced("crash", task, now, reason=storable(reason))
            if kept and (error is not None or evidence is not None):
                self._keep(task, None, error or reason, evidence)
        return kept

    def release(
        self,
        task: Task,
        reason: str,
        *,
        delay: float | None = None,
        fire: int | None = None,
        evidence: Evidence | None = None,
    ) -> bool:
        """Give a task back unharmed, due again after `delay` seconds and not before `fire` has ended."""
        now = clock.now()
        due_at = None if delay is None else clock.stamp(clock.after(now, delay))
        held = fire if delay is not None else None
        with self.database.transaction():
            self._count_spend(task, _price(None, evidence), clock.stamp(now))
            kept = self._fenced("release", task, now, due_at=due_at, held=held, reason=storable(reason))
            if kept:
                self._keep(task, None, None, evidence)
        return kept

    # Recovering

    def recover(self, task: Task, retries: Retries) -> State | None:
        """A crashed task goes up the retry ladder, or fails when its starts are spent. None: somebody else moved it.

        The backoff counts from the owner's last sign of life, so what was stranded long ago is due at once.
        """
        # A sign from the future is from before the clock was set back.
        since = min(clock.moment(task.last_sign), clock.now())
        state, due_at, count = _ladder(retries, task.retry_count + 1, since)
        reason = task.reason
        if state is State.FAILED:
            reason = f"{task.reason}; {count} of {max(1, retries.max_attempts)} starts were lost that way"
        kept = self._fenced(
            "recover", task, clock.now(), state=state.value, due_at=due_at, retry_count=count, reason=reason
        )
        return state if kept else None

    def promote(self, *, limit: int = _EVERYTHING) -> tuple[int, int]:
        """Make what is due claimable and fail what has expired, up to `limit` each: how many of both."""
        now = clock.stamp(clock.now())
        if not any(self.database.run("due", now=now)[0]):
            return 0, 0
        with self.database.transaction():
            return self._promote(now, limit)

    def due(self) -> tuple[int, int]:
        """How many tasks promote would make claimable now, and how many would expire."""
        promotable, expired = self.database.run("count_due", now=clock.stamp(clock.now()))[0]
        return promotable, expired

    def next_due(self) -> str | None:
        """When the next waiting task is due, as a stamp; None where none waits for a time."""
        due: str | None = self.database.run("next_due")[0][0]
        return due

    # What a person does

    def requeue(self, id: int, reason: str = "requeued") -> Task:
        """Make an ended or crashed task claimable again with fresh retries; `Conflict` when it has not ended."""
        with self.database.transaction(durable=True):
            now = clock.stamp(clock.now())
            rows = self.database.run("requeue", id=id, now=now, by=self.by, reason=reason)
            # Whoever queues it again has seen why it failed.
            self.database.run("close_asks_of", task=id, now=now)
            # And wants the work itself done again.
            self.database.run("drop_answer", task=id)
            task = self.task(id)
            if not rows:
                raise Conflict(f"task {id} is {task.state}: only a failed, crashed or done task can be queued again")
        return task

    def cancel(self, id: int) -> tuple[Task, bool]:
        """Fail a task that has not ended, for the reason ``cancelled``: the task before the move, and if it ran.

        `Conflict` when it has ended. A running one must be killed by the caller; its late answer changes nothing.
        """
        with self.database.transaction(durable=True):
            task = self.task(id)
            if not self._fenced("cancel", task, clock.now()):
                raise Conflict(f"task {id} is {task.state}: there is nothing left to cancel")
        return task, task.state in OWNED

    def pause(self, mode: str, reason: str | None = None, *, seconds: float | None = None) -> None:
        """Let nobody claim from a mode (``*``: from any) until it is resumed, or for so long; what runs goes on.

        It takes the place of a pause that is there.
        """
        until = None if seconds is None else clock.after(clock.now(), seconds)
        self._pause("pause", mode, reason, until)

    def put_off(self, mode: str, reason: str, seconds: float) -> None:
        """Pause a mode for so many seconds at the least: a longer pause, or one without an end, stays as it is."""
        self._pause("put_off", mode, reason[:_REASON], clock.after(clock.now(), seconds))

    def _pause(self, verb: str, mode: str, reason: str | None, until: datetime.datetime | None) -> None:
        told, ends = None if reason is None else storable(reason), None if until is None else clock.stamp(until)
        with self.database.transaction(durable=True):
            self.database.run(verb, mode=mode, now=clock.stamp(clock.now()), by=self.by, reason=told, until=ends)

    def resume(self, mode: str) -> list[str]:
        """End the pause of a mode (``*``: every pause). The modes that were paused."""
        with self.database.transaction(durable=True):
            ended = self.database.run("resume", mode=mode, now=clock.stamp(clock.now()))
        return [name for name, still in ended if still]

    def pauses(self) -> list[Pause]:
        """The pauses that hold now, those without an end included."""
        from orch.look_records import Pause

        return [Pause(*row) for row in self.database.run("pauses", now=clock.stamp(clock.now()))]

    def prunable(self, before: str, *, after: int, limit: int) -> list[int]:
        """Tasks that ended before a stamp and can be let go, behind an id, at most `limit`."""
        return [row[0] for row in self.database.run("prunable", before=before, after=after, batch=limit)]

    def prune(self, before: str, *, after: int, limit: int) -> list[int]:
        """Let go of the same, with all that is known of them: their ids. They stay in the totals."""
        with self.database.transaction():
            ids = self.prunable(before, after=after, limit=limit)
            self.store_totals()
            for id in ids:
                for table in _TABLES:
                    self.database.run(f"prune_{table}", id=id)
        return ids

    # Looking

    def task(self, id: int) -> Task:
        """One task; `NotFound` when there is none of that id."""
        rows = self.database.run("task", id=id) if abs(id) < 2**63 else []
        if not rows:
            raise NotFound(f"no task {id}")
        return Task(*rows[0])

    def holds(self, task: Task) -> bool:
        """Whether a claim still stands."""
        return bool(self.database.run("holds", id=task.id, attempts=task.attempts))

    def was_cancelled(self, task: Task) -> bool:
        """Whether a claim was lost because a person cancelled the task, as far as it is still known."""
        latest = [Task(*row) for row in self.database.run("task", id=task.id)]
        return any(one.attempts == task.attempts and one.reason == CANCELLED for one in latest)

    def has_key(self, key: str) -> bool:
        """Whether a task of that key is there."""
        return bool(self.database.run("find_key", key=key))

    def find(self, name: str) -> Task:
        """The task of a key or, where no key is named so, of an id; `NotFound` when there is none."""
        (_, id, _), *_ = resolve(self.database, [name])
        if id is None:
            raise NotFound(f"no task has the id or key {name!r}: see 'orch list'")
        return self.task(id)

    def tasks(
        self,
        *,
        mode: str | None = None,
        states: Iterable[State] | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[Task]:
        """The newest tasks first, at most `limit`, of one mode, in some states, with ids below `before`."""
        wanted = None if states is None else set(states)
        edge = {"mode": mode, "limit": limit, "before": _EVERYTHING if before is None else before}
        if wanted == {State.FAILED}:
            return [Task(*row) for row in self.database.run("tasks_failed", **edge)]
        names = None if wanted is None else "," + ",".join(state.value for state in wanted) + ","
        return [Task(*row) for row in self.database.run("tasks", states=names, **edge)]

    def ready(self, limit: int = _EVERYTHING) -> list[Task]:
        """The DELEGATEs that can be claimed now, in the order of a claim."""
        return [Task(*row) for row in self.database.run("ready", now=clock.stamp(clock.now()), limit=limit)]

    def owned(self, worker: int | None = None) -> list[Task]:
        """The tasks that a worker owns now; without one, all that anybody owns and those that crashed."""
        if worker is not None:
            return [Task(*row) for row in self.database.run("tasks_of", owner=worker)]
        return [Task(*row) for row in self.database.run("tasks_owned")]

    def events(self, id: int) -> list[Event]:
        """Every move of the task of that id, the first one first."""
        from orch.look_records import Event

        return [Event(*row) for row in self.database.run("events", task=id)]

    def attempts(self, id: int) -> list[Attempt]:
        """Every attempt at the task of that id with what it came to, the first one first."""
        from orch.look_records import Attempt

        return [Attempt(*row) for row in self.database.run("attempts", task=id)]

    def result(self, id: int) -> Any:
        """The result of a task as a Python value: the newest that any of its attempts has left; None without one."""
        self.task(id)
        left = [attempt.result for attempt in self.attempts(id) if attempt.result is not None]
        return json.loads(left[-1]) if left else None

    def needs(self, id: int) -> list[tuple[str, int | None, bool]]:
        """What a task waits for: the name that was given, that task's id if it exists, and whether it is done."""
        return [(name, need, bool(met)) for name, need, met in self.database.run("dependencies", task=id)]

    def stuck(self, limit: int = 20) -> list[tuple[int, str, int | None, str | None]]:
        """Tasks that wait for one that is unknown or failed: the task, the name, and that one's id and state."""
        return [(task, name, id, state) for task, name, id, state in self.database.run("blocked", limit=limit)]

    def ended_between(self, first: int, last: int, before: str) -> dict[int, bool]:
        """Which ids of a range there are, and whether they ended before a stamp."""
        rows = self.database.run("tasks_there", first=first, last=last, before=before)
        return {id: bool(ended) for id, ended in rows}

    def backlog(self) -> list[Backlog]:
        """What waits and runs, a record a mode, read from the indexes of live tasks alone."""
        from orch.look_records import Backlog

        modes_: dict[str, Backlog] = {}
        for mode, kind, count, oldest, priority in self.database.run("backlog"):
            record = modes_.setdefault(mode, Backlog(mode))
            setattr(record, kind, getattr(record, kind) + count)
            if kind == "ready":
                record.oldest_at, record.top_priority = oldest, priority
        return [modes_[mode] for mode in sorted(modes_)]

    def totals(self) -> dict[str, dict[State, int]]:
        """How many tasks of each mode are done and failed."""
        found: dict[str, dict[State, int]] = {}
        for mode, state, count in self.database.run("totals"):
            found.setdefault(mode, {})[State(state)] = count
        return found

    def store_totals(self) -> None:
        """Note the totals down as far as the event log reaches, so that the next look reads only what is new."""
        if not self.database.run("totals_behind"):
            return
        with self.database.transaction():
            for mode, state, count in self.database.run("totals"):
                self.database.run("store_total", mode=mode, state=state, count=count)
            self.database.run("mark_totals")

    # Inside

    def _claim(
        self,
        mode: str,
        batch: int,
        worker: int | None,
        start: bool,
        timeout: float | None,
        until: str | None,
        now: datetime.datetime,
        stamp: str,
    ) -> list[Task]:
        """The claim itself, inside a transaction, after what is due has been made claimable."""
        run = self.database.run
        self._promote(stamp, PROMOTE_BATCH)
        deadline = until if timeout is None else _earlier(until, clock.stamp(clock.after(now, timeout)))
        state = (State.PROCESSING if start else State.CLAIMED).value
        by = self._sign(worker)
        tasks = []
        for id, priority, key, attempts, retry_count, own_timeout, created_at, payload in run(
            "claim" if batch == 1 else "claim_batch",
            mode=mode, batch=batch, state=state, owner=worker, deadline=deadline, now=stamp, by=by,
        ):  # fmt: skip
            task_deadline = deadline
            if own_timeout is not None:
                task_deadline = _earlier(until, clock.stamp(clock.after(now, own_timeout)))
                run("set_deadline", id=id, attempts=attempts, deadline=task_deadline)
            tasks.append(
                Task(
                    id, mode, state, priority, key, attempts, retry_count, worker, None, 0, own_timeout, task_deadline,
                    stamp, None, None, created_at, stamp, by, None, payload,
                )
            )  # fmt: skip
        return tasks

    def _finish(
        self, task: Task, result: str | None, evidence: Evidence | None, stamp: str, reason: str | None = None
    ) -> bool:
        """The finish itself, inside a transaction."""
        run = self.database.run
        self._count_spend(task, _price(result, evidence), stamp)
        rows = run("finish", id=task.id, attempts=task.attempts, now=stamp, by=self._sign(task.owner), reason=reason)
        if not rows:
            return False
        self._keep(task, result, None, evidence)
        if rows[0][0]:
            run("unblock", id=task.id)
            run("meet", id=task.id)
        return True

    def _promote(self, stamp: str, limit: int) -> tuple[int, int]:
        promotable, expired = self.database.run("due", now=stamp)[0]
        if not (promotable or expired):
            return 0, 0
        ended = self.database.run("expire", now=stamp, by=self.by, batch=limit) if expired else []
        moved = self.database.run("promote", now=stamp, by=self.by, batch=limit) if promotable else []
        return len(moved), len(ended)

    def _sign(self, worker: int | None) -> str:
        return self.by if worker is None else f"w{worker}"

    def _fenced(self, move: str, task: Task, now: datetime.datetime, **params: Any) -> bool:
        """One move of one claim: whether that claim still stood."""
        with self.database.transaction():
            rows = self.database.run(
                move, id=task.id, attempts=task.attempts, now=clock.stamp(now), by=self.by, **params
            )
        return bool(rows)

    def _count_spend(self, task: Task, metrics: Metrics | None, stamp: str) -> None:
        """What an attempt says that it cost is spent, even if its claim was lost."""
        if metrics is not None:
            self.database.run(
                "spend",
                task=task.id,
                attempt=task.attempts,
                mode=task.mode,
                owner=task.owner,
                now=stamp,
                tokens=metrics.tokens,
                cost_usd=metrics.cost_usd,
            )

    def _keep(self, task: Task, result: str | None, error: str | None, evidence: Evidence | None) -> None:
        if evidence is not None and evidence.left:
            error = f"{error or ''}; still running: {', '.join(evidence.left)}".removeprefix("; ")
        exit_code, output = (None, None) if evidence is None else (evidence.exit_code, evidence.output)
        if result is None and error is None and exit_code is None and output is None:
            return
        self.database.run(
            "outcome",
            task=task.id,
            attempt=task.attempts,
            result=result,
            error=None if error is None else storable(error),
            exit_code=exit_code,
            output=output,
        )


def _price(result: str | None, evidence: Evidence | None) -> Metrics | None:
    """What an attempt says that it cost, beside its result or in it."""
    if evidence is not None and evidence.metrics is not None:
        return evidence.metrics
    if result is None:
        return None
    from orch.outcomes import metrics_in  # here, as whoever adds a task needs none of it

    return metrics_in(result)


def _ladder(retries: Retries, count: int, since: datetime.datetime) -> tuple[State, str | None, int]:
    """Where a task stands after its retry number `count`: the state, when it is due, and that number."""
    if backoff.spent(retries, count):
        return State.FAILED, None, count
    return State.RETRY_PENDING, clock.stamp(clock.after(since, backoff.delay(retries, count))), count


def _earlier(one: str | None, other: str) -> str:
    return other if one is None else min(one, other)
