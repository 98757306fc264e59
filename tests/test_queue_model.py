"""The queue against a small model of it, by random stories."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import freezegun
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from orch import clock
from orch.limits import Retries
from orch.queue import Queue
from orch.records import Task
from orch.states import OWNED, State

RETRIES = Retries(max_attempts=2, backoff_base_sec=10, jitter=0)
MODES = st.sampled_from(["a", "b"])


@dataclass
class Expected:
    """What the model knows of a task."""

    mode: str
    priority: int
    state: State = State.INCOMING
    attempts: int = 0
    retries: int = 0
    due: float | None = None
    last: float = 0.0
    waits_for: set[int] = field(default_factory=set)


class Story(RuleBasedStateMachine):
    """Whatever people, workers and hygiene do, in whatever order, the queue tells the same as the model."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.frozen = freezegun.freeze_time("2026-11-30T00:00:00Z")
        self.time = self.frozen.start()
        self.start = clock.now()
        self.queue = Queue.open(str(Path(self.folder.name) / "q.db"), create=True, durability="normal")
        self.tasks: dict[int, Expected] = {}
        self.paused: set[str] = set()

    def teardown(self) -> None:
        self.queue.close()
        self.frozen.stop()
        self.folder.cleanup()

    def now(self) -> float:
        return (clock.now() - self.start).total_seconds()

    @rule(mode=MODES, priority=st.integers(-2, 2), delay=st.sampled_from([None, None, 5.0, 50.0]), data=st.data())
    def add(self, mode: str, priority: int, delay: float | None, data: st.DataObject) -> None:
        after = data.draw(st.sets(st.sampled_from(sorted(self.tasks)), max_size=2)) if self.tasks else set()
        id = self.queue.add(mode, priority=priority, delay=delay, after=sorted(after)).id
        waits = {need for need in after if self.tasks[need].state != State.DONE}
        due = None if delay is None else self.now() + delay
        self.tasks[id] = Expected(mode, priority, due=due, waits_for=waits)

    @rule(target=claims, mode=MODES)
    def claim(self, mode: str) -> Task | None:
        found = self.queue.claim(mode)
        self.promote_in_model(everything=self.would_look(mode))
        ready = [
            (-task.priority, id)
            for id, task in self.tasks.items()
            if task.mode == mode and task.state == State.INCOMING and task.due is None and not task.waits_for
        ]
        if mode in self.paused or not ready:
            assert found == []
            return None
        [task] = found
        assert task.id == min(ready)[1]
        expected = self.tasks[task.id]
        expected.state, expected.attempts, expected.last = State.PROCESSING, expected.attempts + 1, self.now()
        return task

    def would_look(self, mode: str) -> bool:
        return True

    def promote_in_model(self, *, everything: bool) -> None:
        for task in self.tasks.values():
            if task.due is not None and task.due <= self.now():
                task.due = None
                task.state = State.INCOMING

    def owns(self, claim: Task | None) -> bool:
        if claim is None:
            return False
        expected = self.tasks[claim.id]
        return expected.state in OWNED and expected.attempts == claim.attempts

    @rule(claim=consumes(claims))
    def finish(self, claim: Task | None) -> None:
        if claim is None:
            return
        owned = self.owns(claim)
        assert self.queue.finish(claim, "1") == owned
        if owned:
            self.tasks[claim.id].state = State.DONE
            for task in self.tasks.values():
                task.waits_for.discard(claim.id)

    @rule(claim=claims)
    def heartbeat(self, claim: Task | None) -> None:
        if claim is not None:
            owned = self.owns(claim)
            assert self.queue.heartbeat(claim) == owned
            if owned:
                self.tasks[claim.id].last = self.now()

    @rule(claim=consumes(claims), again=st.booleans())
    def fail(self, claim: Task | None, again: bool) -> None:
        if claim is None:
            return
        owned = self.owns(claim)
        assert self.queue.fail(claim, "no", retries=RETRIES if again else None) == owned
        if owned:
            self.tasks[claim.id].state = State.FAILED
            if again:
                self.retry(self.tasks[claim.id], self.now())

    @rule(claim=claims)
    def crash(self, claim: Task | None) -> None:
        if claim is not None:
            owned = self.owns(claim)
            assert self.queue.crash(claim, "gone") == owned
            if owned:
                self.tasks[claim.id].state = State.CRASHED

    @rule(claim=consumes(claims), delay=st.sampled_from([None, 20.0]))
    def release(self, claim: Task | None, delay: float | None) -> None:
        if claim is None:
            return
        owned = self.owns(claim)
        assert self.queue.release(claim, "not now", delay=delay) == owned
        if owned:
            expected = self.tasks[claim.id]
            expected.state = State.INCOMING
            expected.due = None if delay is None else self.now() + delay

    @rule()
    def recover(self) -> None:
        for task in self.queue.owned():
            if task.state == State.CRASHED:
                expected = self.tasks[task.id]
                self.retry(expected, expected.last)
                assert self.queue.recover(task, RETRIES) == expected.state

    def retry(self, expected: Expected, since: float) -> None:
        expected.retries += 1
        if expected.retries >= RETRIES.max_attempts:
            expected.state = State.FAILED
        else:
            expected.state = State.RETRY_PENDING
            expected.due = since + RETRIES.backoff_base_sec

    @rule()
    def promote(self) -> None:
        self.queue.promote()
        self.promote_in_model(everything=True)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        ended = [id for id, t in self.tasks.items() if t.state in (State.DONE, State.FAILED, State.CRASHED)]
        if ended:
            id = data.draw(st.sampled_from(sorted(ended)))
            self.queue.requeue(id)
            self.tasks[id].state, self.tasks[id].retries = State.INCOMING, 0

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        going = [id for id, t in self.tasks.items() if t.state not in (State.DONE, State.FAILED, State.CRASHED)]
        if going:
            id = data.draw(st.sampled_from(sorted(going)))
            self.queue.cancel(id)
            self.tasks[id].state, self.tasks[id].due = State.FAILED, None

    @rule(mode=MODES)
    def pause(self, mode: str) -> None:
        self.queue.pause(mode)
        self.paused.add(mode)

    @rule(mode=MODES)
    def resume(self, mode: str) -> None:
        assert self.queue.resume(mode) == ([mode] if mode in self.paused else [])
        self.paused.discard(mode)

    @rule(seconds=st.sampled_from([1, 7, 30]))
    def time_passes(self, seconds: int) -> None:
        self.time.tick(seconds)

    @rule()
    def note_totals_down(self) -> None:
        self.queue.store_totals()

    @invariant()
    def tells_the_same(self) -> None:
        for task in self.queue.tasks(limit=1000):
            expected = self.tasks[task.id]
            assert (task.state, task.attempts, task.retry_count, task.blocked) == (
                expected.state,
                expected.attempts,
                expected.retries,
                len(expected.waits_for),
            )
            assert (task.due_at is None) == (expected.due is None)

    @invariant()
    def counts_the_same(self) -> None:
        totals = self.queue.totals()
        for mode in ("a", "b"):
            for state in (State.DONE, State.FAILED):
                count = sum(task.mode == mode and task.state == state for task in self.tasks.values())
                assert totals.get(mode, {}).get(state, 0) == count


TestStory = Story.TestCase
TestStory.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
