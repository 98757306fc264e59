"""Where a task goes: its row in the queue first, its files after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from orch.handoff import Delegate, Handback, routing, words, writing
from orch.limits import Limits, Retries
from orch.modes import Agent, Mode
from orch.outcomes import NOTHING, Done, Evidence, Failed, Later, Outcome
from orch.records import Task
from orch.skill.backend import Backend
from orch.skill.checks import Checks
from orch.skill.errors import QueueValidationError, TaskClaimError
from orch.skill.polling import PollingConfig
from orch.states import State
from orch.work import agent, improvement
from orch.worker import settle


class Moves(Checks):
    """The moves of an orchestrator's tasks, and what follows from them."""

    config: PollingConfig
    heartbeat_tracker: dict[str, float]
    _pending_improvement_tasks: list[str]
    _limits: Limits
    _backend: Backend | None
    _modes: Mapping[str, Mode]
    # What it took agents of this process to answer, until that is marked.
    _evidence: dict[str, Evidence]

    def _move_task_to_done(self, task_id: str, handback: Mapping[str, Any] | None = None) -> None:
        """A task is done, with its answer, if there is one."""
        self._settle(task_id, Done(self._result(task_id, handback, "success")))

    def _move_task_to_failed(
        self, task_id: str, error: str = "failed", handback: Mapping[str, Any] | None = None
    ) -> None:
        """A task has failed; beside it lies why, and its answer, if there is one."""
        self._settle(task_id, Failed(str(error), result=self._result(task_id, handback, "failure"), again=False))

    def _move_task_to_retry_pending(
        self, task_id: str, retry_count: int | None = None, error: str = "put back for another try"
    ) -> None:
        """A task waits for another try, the longer the more it has had; `retry_count` is the number of it."""
        with self._desk.lock:
            task = self._desk.held(task_id)
            if retry_count is not None:
                self._desk.backdate(task, task.claimed_at, max(0, retry_count - 1))
                task = self._desk.held(task_id)
            self._recover(task, error)
            self._desk.mirror()

    def _move_task_to_escalation(self, task_id: str, handback: Mapping[str, Any]) -> None:
        """A task is done here, and goes on as one of the role that its answer names, the lead engineer otherwise.

        `QueueValidationError` when that is no role; nothing has moved then.
        """
        output = handback.get("output")
        said = output if isinstance(output, Mapping) else {}
        named = said.get("escalate_to") or handback.get("escalate_to") or routing.DEFAULT_TARGET
        target = words.role_of(str(named), self._desk.roles)
        if target is None:
            raise QueueValidationError(f"escalate_to: there is no role {str(named)[:60]!r}")
        why = said.get("escalation_reason") or handback.get("escalation_reason") or "it gives no reason"
        chain = said.get("escalation_chain") or handback.get("escalation_chain")
        self._escalate(task_id, target, str(why), handback, chain if isinstance(chain, list) else [])

    def _move_task_to_escalation_manual(self, task_id: str, reason: str = "it needs a person's review") -> None:
        """A task is done here, and the lead engineer is to find out what is the matter with it."""
        self._escalate(task_id, routing.DEFAULT_TARGET, str(reason), None, [])

    def _escalate(
        self, task_id: str, target: str, why: str, handback: Mapping[str, Any] | None, chain: list[Any]
    ) -> None:
        with self._desk.lock:
            task = self._desk.held(task_id)
            order = self._order_of(task)
            line = [one.mode or "?" for one in self._desk.queue.asks.ancestors(task.id) if one.relation == "escalation"]
            bound = routing.target_of(Handback(task_id, "escalate", escalate_to=target), [*reversed(line), order.agent])
            result = self._result(task_id, handback, "escalate")
            if isinstance(bound, routing.Bound):
                question = f"{task_id} needs somebody else: {why}; {bound.why}"
                self._settle(
                    task_id,
                    Failed(
                        f"escalate: {why}; {bound.why}",
                        result=result,
                        also=lambda queue: queue.asks.ask(task.id, "escalation", question),
                        again=False,
                    ),
                )
                return
            values = writing.follow_on(
                order,
                task_id=writing.unused_id(f"{task_id}-escalated-to-{target}", self._desk.queue.has_key),
                agent=target,
                context=[],
                chain=[*map(str, chain), order.agent],
            )
            context = {
                "original_task_id": task_id,
                "original_role": order.agent,
                "original_handback": None if handback is None else dict(handback),
                "escalation_reason": why,
                "original_context": order.context or None,
            }
            values |= {"role": target, "context": {name: it for name, it in context.items() if it is not None}}
            roles = self._desk.roles
            self._settle(
                task_id,
                Done(result, also=lambda q: agent.attach(q, task, values, relation="escalation", roles=roles)),
                reason=f"escalated to {target}",
            )

    def _settle(self, task_id: str, outcome: Outcome, reason: str | None = None) -> None:
        """Mark what a task came to, and move its files."""
        self._check_id(task_id)
        with self._desk.lock:
            task = self._desk.held(task_id)
            mode = self._modes.get(task.mode) or Mode(task.mode, agent=Agent())
            if outcome.evidence is NOTHING and task_id in self._evidence:
                outcome = replace(outcome, evidence=self._evidence[task_id])
            if isinstance(outcome, Later) and outcome.everybody:
                delay = self._limits.not_now_delay if outcome.retry_after is None else outcome.retry_after
                self._desk.queue.put_off(task.mode, f"not now: {outcome.why}", delay)
            if not settle(self._desk.queue, task, outcome, mode=mode, limits=self._limits, reason=reason):
                raise TaskClaimError(f"task {task_id} was moved by somebody else")
            self._evidence.pop(task_id, None)
            self.heartbeat_tracker.pop(task_id, None)
            self._desk.mirror()
            if self._backend is not None:
                self._backend.tidy(self._desk.queue, task)

    def _result(self, task_id: str, handback: Mapping[str, Any] | None, status: str) -> str | None:
        """An answer as it is kept, of that status where it names none; None when there is none."""
        return agent.result_of(self._handback_of(task_id, {"status": status, **handback})) if handback else None

    def _recover(self, task: Task, why: str) -> State | None:
        retries = Retries(
            # The first start is none of its retries.
            max_attempts=self.config.retry_max_attempts + 1,
            backoff_base_sec=self._limits.retries.backoff_base_sec,
            backoff_multiplier=self.config.retry_backoff_multiplier,
            backoff_max_sec=self._limits.retries.backoff_max_sec,
            jitter=self._limits.retries.jitter,
        )
        self.heartbeat_tracker.pop(str(task.key), None)
        queue = self._desk.queue
        with queue.transaction():
            if not queue.crash(task, why):
                return None
            return queue.recover(queue.task(task.id), retries)

    def _order_of(self, task: Task) -> Delegate:
        """The order of a task, as far as there is one."""
        try:
            return self._desk.delegate_of(task)
        except QueueValidationError:
            todo = f"Go on with {task.key}, whose own order cannot be read."
            return Delegate(
                str(task.key), task.mode, todo, ["See what is known of it", "Finish it"], ["It is finished"]
            )

    # What is said of skills

    def _route_skill_feedback(self, task_id: str, items: Iterable[Any]) -> None:
        """Keep what was said of skills; enough of it on one makes a task that improves it, one at a time."""
        said = [item for item in items or () if isinstance(item, dict)]
        if not said:
            return
        with self._desk.lock:
            task = self._desk.find(task_id) if words.is_safe_id(task_id) else None
            with self._desk.queue.transaction():
                threshold = self.config.skill_improvement_threshold
                improvement.record(self._desk.queue, 0 if task is None else task.id, said, threshold)
            self._desk.mirror()
            self._pending_improvement_tasks = self._improvements()

    def _improvements(self) -> list[str]:
        """The tasks that are to improve a skill and wait or are at work."""
        states = [State.INCOMING, State.PROCESSING, State.RETRY_PENDING]
        found = self._desk.queue.tasks(states=states, limit=1000)
        return [str(task.key) for task in found if task.key and "improve-skill-" in task.key]
