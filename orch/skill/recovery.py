"""What was lost, and is tried again or handed on."""

from __future__ import annotations

from typing import Any

from orch import clock
from orch.records import Task
from orch.skill.moves import Moves
from orch.skill.tracing import Tracing
from orch.states import State


class Recovery(Moves, Tracing):
    """Crashed tasks and stalled ones: how they are found, and what becomes of them."""

    # What agents of this process are at work on.
    _busy: set[str]

    def recover_crashed_tasks(self) -> tuple[int, int]:
        """Give tasks that were claimed longer ago than the deadline another try: how many got one, how many had none
        left and failed."""
        with self._step("recover_crashed_tasks", quiet=True) as told, self._desk.lock:
            self._desk.adopt()
            now = clock.stamp(clock.now())
            ends = [
                self._recover(task, "crashed: its deadline has passed")
                for task in self._at_work()
                if clock.seconds_between(task.claimed_at or now, now) > self.config.task_deadline_sec
            ]
            self._desk.mirror()
            counts = ends.count(State.RETRY_PENDING), ends.count(State.FAILED)
            if any(counts):
                told.update(recovered=counts[0], failed=counts[1])
            return counts

    def update_heartbeat(self, task_id: str) -> None:
        """A sign of life of whoever works on a task."""
        last = self.heartbeat_tracker.get(task_id, 0.0)
        self.heartbeat_tracker[task_id] = max(clock.now().timestamp(), last + 1e-6)

    def detect_stalled_tasks(self) -> list[str]:
        """The tasks at work that have given no sign of life for longer than ``heartbeat_timeout_sec``."""
        with self._desk.lock:
            self._desk.adopt()
            now = clock.now().timestamp()

            def silence(task: Task) -> float:
                sign = clock.moment(task.last_sign).timestamp()
                return now - self.heartbeat_tracker.get(str(task.key), sign)

            return [str(one.key) for one in self._at_work() if silence(one) > self.config.heartbeat_timeout_sec]

    def recover_stalled_tasks(self) -> tuple[int, int]:
        """Give stalled tasks another try: how many got one, and how many had none left and were escalated."""
        recovered = escalated = 0
        with self._desk.lock:
            for task_id in self.detect_stalled_tasks():
                task = self._desk.held(task_id)
                if task.retry_count >= self.config.retry_max_attempts:
                    self._move_task_to_escalation_manual(task_id, "stalled, and it has had its last try")
                    escalated += 1
                else:
                    self._move_task_to_retry_pending(task_id, error="stalled: no sign of life")
                    recovered += 1
        return recovered, escalated

    def wake_timer(self) -> dict[str, Any]:
        """Look for stalled tasks and recover them: what was found, and why it woke."""
        with self._step("wake_timer", quiet=True) as told, self._desk.lock:
            stalled = self.detect_stalled_tasks()
            recovered, escalated = self.recover_stalled_tasks() if stalled else (0, 0)
            found = {
                "stalled_detected": len(stalled),
                "recovered": recovered,
                "escalated": escalated,
                "wake_reason": "heartbeat_timeout" if stalled else "no_stalled_tasks",
            }
            if stalled:
                told.update(found)
            return found

    def _at_work(self) -> list[Task]:
        """What may be lost: not what an agent of this process is at work on, which has limits of its own."""
        return [task for task in self._desk.at_work() if task.key not in self._busy]
