"""The orchestrator's class: each method is a few verbs of the queue, and a span."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orch import clock
from orch.errors import NotFound, OrchError, UsageError
from orch.handoff import Delegate, Handback, HandoffError, fields, read_handback, routing, words, writing
from orch.limits import Limits, Retries
from orch.modes import JUDGE, Agent, Mode
from orch.outcomes import NOTHING, Done, Evidence, Failed, Later, Outcome
from orch.project import Project
from orch.records import Task
from orch.settings import DATABASE_NAME, load, locate, session_folder, session_names
from orch.skill.backend import Backend
from orch.skill.desk import KEPT, Desk
from orch.skill.errors import HandbackParseError, QueueValidationError, SubAgentError, TaskClaimError, TaskMissing
from orch.skill.idling import Idling
from orch.skill.polling import PollingConfig
from orch.skill.tracing import Tracing
from orch.states import State
from orch.work import agent, improvement
from orch.worker import settle

_log = logging.getLogger("orch.skill")
_REQUIRED = ("handoff_type", "task_id", "agent", "scope", "plan", "success_criteria")
_REJECTED = "rejected by the quality gate"


class OrchestratorSkill(Idling, Tracing):
    """Takes DELEGATEs from ``incoming``, has agents work on them, reads their HANDBACKs, and recovers what was lost.

    `session_id` and `harness` name the queue where `queue_root` does not; without any of the three it is that of the
    project here, if there is one with agents, else that of the session that the environment names. `polling_config` are
    the parameters, a `PollingConfig` or a mapping of them. The agents are those of `project`, without one those of the
    project here; where there is none, every `spawn_sub_agent` fails.

    It may be used from several threads. `QueueValidationError` says which name cannot be one of a folder.
    """

    QUEUE_STATES = (State.INCOMING.value, State.PROCESSING.value, State.DONE.value, State.FAILED.value)
    TASK_DEADLINE_SEC = 600
    POLL_INTERVAL_SEC = 180
    IDLE_THRESHOLD_POLLS = 3
    DEEP_SLEEP_SEC = 600
    RETRY_MAX_ATTEMPTS = 3

    def __init__(
        self,
        session_id: str | None = None,
        harness: str | None = None,
        queue_root: str | os.PathLike[str] | None = None,
        polling_config: PollingConfig | Mapping[str, Any] | None = None,
        *,
        project: Project | None = None,
    ) -> None:
        project = project or _project_here()
        is_named = not (session_id is None and harness is None and queue_root is None)
        names = session_names()
        self.session_id, self.harness = session_id or names[0], harness or names[1]
        if project is not None and project.queue_root is not None and not is_named:
            self.queue_root, database, state = Path(project.queue_root), project.database, project.state
        else:
            self.queue_root, database, state = _beside(queue_root, self.session_id, self.harness)
        if isinstance(polling_config, Mapping):
            polling_config = PollingConfig.from_dict(polling_config)
        limits = Limits() if project is None else project.limits
        self.config = polling_config or (PollingConfig() if project is None else PollingConfig.of(limits))
        self.clean_poll_count = 0
        self.heartbeat_tracker: dict[str, float] = {}
        self._limits = limits
        self._modes = {} if project is None else project.modes
        self._desk = Desk(self.queue_root, database, () if project is None else project.roles)
        self._spans_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for state_name in self.QUEUE_STATES:
            (self.queue_root / state_name / KEPT).touch()
        self._backend = None if project is None else Backend(project, database, state, self)
        self._running: dict[str, Evidence] = {}
        self._verdicts: dict[str, str] = {}

    def close(self) -> None:
        """Let go of the queue."""
        with self._desk.lock:
            self._desk.queue.close()

    # The queue, once round

    def poll_queue(self) -> tuple[int, int]:
        """Do what lies in ``incoming``: how many tasks were processed and how many failed. It never raises.

        First what stalled is recovered; what is invalid fails. A look that finds nothing adds to ``clean_poll_count``.
        """
        processed = failed = 0
        with self._step("poll_queue", quiet=True) as told:
            try:
                failed += self.wake_timer()["escalated"]
                with self._desk.lock:
                    self._desk.adopt()
                    refused = self._desk.take().refused
                    self._desk.queue.promote()
                    self._desk.mirror()
                    ready = [str(task.key) for task in self._desk.queue.ready()]
            except (OrchError, OSError) as error:
                _log.warning("the queue could not be polled: %s", error)
                return processed, failed
            for why in refused:
                _log.warning("refused: %s", why)
            failed += len(refused)
            if not ready and not refused:
                self.clean_poll_count += 1
            for task_id in ready:
                done = self._process(task_id)
                processed += done is True
                failed += done is False
            if processed or failed:
                told.update(processed=processed, failed=failed)
        return processed, failed

    def _process(self, task_id: str) -> bool | None:
        """One task, from the claim to its end: whether it got there; None when it was not to be had now."""
        try:
            path = self.queue_root / State.INCOMING / f"{task_id}.yaml"
            delegate = self.claim_task(task_id, path)
            self.handle_handback(task_id, self.spawn_sub_agent(delegate))
        except TaskClaimError as error:
            _log.info("%s", error)
            return None
        except Exception as error:
            _log.warning("task %s: %s", task_id, error)
            return self._give_up(task_id, error)
        self.clean_poll_count = 0
        return True

    def _give_up(self, task_id: str, error: Exception) -> bool | None:
        """A task that came to no answer: as its agent's end demands, else failed."""
        outcome = getattr(error, "outcome", None)
        try:
            if isinstance(outcome, Later):
                self.clean_poll_count = 0
            if outcome is None:
                self._move_task_to_failed(task_id, str(error) or type(error).__name__)
            else:
                self._settle(task_id, outcome)
        except Exception as further:
            # Somebody else has moved it, or the disk is full: the next recovery finds it.
            _log.warning("task %s: %s", task_id, further)
        return None if isinstance(outcome, Later) else False

    def claim_task(self, task_id: str, delegate_file: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Move a task to ``processing``: its DELEGATE, by its fields. Of several who try, one gets it.

        The file is ``incoming/{task_id}.yaml`` unless another one is named. `TaskClaimError` when the task is not
        there, or somebody has it already, `QueueValidationError` when it is no DELEGATE.
        """
        self._check_id(task_id)
        desk = self._desk
        with self._step("claim_task", task_id=task_id), desk.lock:
            desk.adopt()
            task = desk.find(task_id)
            if task is not None and task.state != State.INCOMING:
                raise TaskClaimError(f"task {task_id} is {task.state} already")
            if delegate_file is not None and not os.path.isfile(delegate_file):
                raise TaskMissing(f"there is no file {os.fspath(delegate_file)}: drop the DELEGATE first")
            if task is None:
                if delegate_file is not None:
                    desk.fetch(delegate_file)
                refused = desk.take().refused
                task = desk.find(task_id)
                if task is None and refused:
                    raise QueueValidationError("; ".join(refused))
                if task is None:
                    raise TaskMissing(f"there is no {task_id}.yaml in {self.queue_root / State.INCOMING}")
            delegate = desk.dict_of(task)
            self._validate_delegate(delegate)
            mode = self._modes.get(task.mode)
            if desk.claim(task, None if mode is None else mode.timeout) is None:
                raise TaskClaimError(f"somebody else was faster with task {task_id}")
            desk.mirror()
            return delegate

    def spawn_sub_agent(self, delegate: Mapping[str, Any]) -> str:
        """Have the agent of a role work on a DELEGATE, and wait: what it answered.

        `SubAgentError` says why there is no answer; it comes from a `NotImplementedError` where no project says how an
        agent of that role is started. An answer is never made up.
        """
        role = str(delegate.get("agent") or "")
        task_id = str(delegate.get("task_id") or "")
        with self._step("spawn_sub_agent", task_id=task_id, agent=role):
            mode = self._modes.get(role)
            if self._backend is None or mode is None or mode.agent is None:
                raise SubAgentError(f"no agent is set up for the role {role!r}") from NotImplementedError(
                    f"write how it is started into orch.toml, below [agents.{role or 'ROLE'}]"
                )
            with self._desk.lock:
                task = self._held(task_id, delegate)
            self.update_heartbeat(task_id)
            self._running[task_id] = NOTHING
            try:
                text, self._running[task_id] = self._backend.ask(task, mode)
            except SubAgentError:
                del self._running[task_id]
                raise
            return text

    def handle_handback(self, task_id: str, handback_text: str) -> dict[str, Any]:
        """Read an answer and do what it leads to: the HANDBACK by its fields, as they are written.

        A success that the quality gate lets pass is done, anything else has failed, and an escalation goes on with
        another role. `HandbackParseError` when it cannot be taken; the task is where it was then.
        """
        with self._step("handle_handback", task_id=task_id) as told:
            self._check_id(task_id)
            handback, found = self._read(task_id, handback_text)
            told["status"] = handback.status
            try:
                with self._desk.lock:
                    self._desk.adopt()
                    task = self._desk.held(task_id)
                if handback.status == "escalate":
                    self._move_task_to_escalation(task_id, found)
                else:
                    self._settle(task_id, self._outcome(task, handback, found))
                self._route_skill_feedback(task_id, handback.skill_feedback)
            except HandbackParseError:
                raise
            except (OrchError, OSError) as error:
                raise HandbackParseError(f"the answer to {task_id} cannot be taken: {error}") from error
            return found

    def _read(self, task_id: str, text: str) -> tuple[Handback, dict[str, Any]]:
        try:
            handback = read_handback(text, task_id, roles=self._desk.roles)
            return handback, {"task_id": task_id, **fields.plain(handback.text)}
        except HandoffError as error:
            raise HandbackParseError(f"the answer to {task_id or 'the task'}: {error}") from error

    def _outcome(self, task: Task, handback: Handback, found: dict[str, Any]) -> Outcome:
        result = agent.result_of(handback)
        evidence = self._running.get(str(task.key), NOTHING)
        if handback.status != "success":
            with self._desk.lock:
                outcome = agent.lead(
                    self._desk.queue,
                    task,
                    handback,
                    project=str(self.queue_root.parent),
                    roles=self._desk.roles,
                    delegate=self._order_of(task),
                )
            return replace(outcome, evidence=evidence)
        if self.invoke_qe_gate(str(task.key), found):
            return Done(result, evidence, also=lambda queue: queue.asks.drop_answer(task.id))
        why = self._verdicts.pop(str(task.key), _REJECTED)
        return Failed(why, evidence, result, also=lambda queue: queue.asks.drop_answer(task.id), again=False)

    def invoke_qe_gate(self, task_id: str, handback: Mapping[str, Any]) -> bool:
        """Whether a success counts: it contradicts nothing, and the quality engineer finds it good.

        Where no project has that agent, what the answer says of itself has to do: a confidence above 0.7 and a quality
        above 0.75, and less where it says nothing; the span says so. An error is no approval.
        """
        with self._step("invoke_qe_gate", task_id=task_id) as told:
            try:
                why = self._judge(task_id, handback, told)
            except Exception as error:
                why = f"the gate gave no verdict: {error}"
            told["approved"] = not why
            if why:
                told["why"] = self._verdicts[task_id] = why
            return not why

    def _judge(self, task_id: str, handback: Mapping[str, Any], told: dict[str, Any]) -> str:
        """Why a success does not count; empty when it does."""
        said = self._handback_of(task_id, handback)
        against = list(said.contradictions)
        if self._backend is not None:
            against += routing.missing(said, self._backend.folder)
        if against:
            return f"it says success, but {'; '.join(against)}"
        judge = self._modes.get(JUDGE)
        least = self._limits.gate_min_confidence, self._limits.gate_min_quality
        if self._backend is None or judge is None or judge.agent is None:
            told["self_reported"] = True
            for name, value, bound in zip(
                ("confidence", "quality"), (said.confidence, said.quality), least, strict=True
            ):
                if value is None or value <= bound:
                    return f"{_REJECTED}: its own {name} is {'not said' if value is None else f'{value:g}'}"
            return ""
        with self._desk.lock:
            task = self._desk.held(task_id)
        evidence = self._running.get(task_id, NOTHING)
        outcome = self._backend.judge(task, Done(agent.result_of(said), evidence), judge, least)
        return "" if isinstance(outcome, Done) else str(getattr(outcome, "error", getattr(outcome, "why", _REJECTED)))

    # What was lost

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
        return [task for task in self._desk.at_work() if task.key not in self._running]

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

    # Moves

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
            if outcome.evidence is NOTHING and task_id in self._running:
                outcome = replace(outcome, evidence=self._running[task_id])
            if isinstance(outcome, Later) and outcome.everybody:
                delay = self._limits.not_now_delay if outcome.retry_after is None else outcome.retry_after
                self._desk.queue.put_off(task.mode, f"not now: {outcome.why}", delay)
            if not settle(self._desk.queue, task, outcome, mode=mode, limits=self._limits, reason=reason):
                raise TaskClaimError(f"task {task_id} was moved by somebody else")
            self._running.pop(task_id, None)
            self.heartbeat_tracker.pop(task_id, None)
            self._desk.mirror()

    def _result(self, task_id: str, handback: Mapping[str, Any] | None, status: str) -> str | None:
        """An answer as it is kept, of that status where it names none; None when there is none."""
        return agent.result_of(self._handback_of(task_id, {"status": status, **handback})) if handback else None

    def _handback_of(self, task_id: str, values: Mapping[str, Any]) -> Handback:
        """An answer from its fields."""
        text = writing.as_yaml({"handoff_type": "HANDBACK", **values, "task_id": task_id})
        return self._read(task_id, f"```yaml\n{text}```\n")[0]

    def _held(self, task_id: str, delegate: Mapping[str, Any]) -> Task:
        """The task of a DELEGATE, at work; one that nobody has added is added."""
        self._check_id(task_id)
        if self._desk.find(task_id) is None and self._desk.root.find(task_id) is None:
            self._validate_delegate(delegate)
            path = self.queue_root / State.INCOMING / f"{task_id}.yaml"
            path.write_text(writing.as_yaml(delegate), encoding="utf-8")
            self._desk.take()
        return self._desk.held(task_id)

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

    @property
    def feedback_loop(self) -> Callable[[str, Iterable[Any]], None]:
        """What takes the remarks on skills: a task's id and its remarks."""
        return self._route_skill_feedback

    @property
    def _pending_improvement_tasks(self) -> list[str]:
        """The tasks that are to improve a skill and wait or are at work."""
        with self._desk.lock:
            states = [State.INCOMING, State.PROCESSING, State.RETRY_PENDING]
            found = self._desk.queue.tasks(states=states, limit=1000)
        return [str(task.key) for task in found if task.key and "improve-skill-" in task.key]

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

    # What a DELEGATE and a HANDBACK have to be

    def _validate_delegate(self, delegate: Mapping[str, Any]) -> None:
        """`QueueValidationError` says what a DELEGATE lacks."""
        if not isinstance(delegate, Mapping):
            raise QueueValidationError("a DELEGATE is a mapping of fields")
        missing = [name for name in _REQUIRED if delegate.get(name) is None]
        if missing:
            raise QueueValidationError(f"missing required fields: {', '.join(missing)}")
        if delegate["handoff_type"] != "DELEGATE":
            raise QueueValidationError(f"handoff_type is {delegate['handoff_type']!r} and not 'DELEGATE'")
        self._check_id(delegate["task_id"])

    def _validate_handback(self, handback: Mapping[str, Any]) -> None:
        """`QueueValidationError` says what a HANDBACK lacks."""
        if not isinstance(handback, Mapping):
            raise QueueValidationError("a HANDBACK is a mapping of fields")
        missing = [name for name in ("handoff_type", "task_id", "status") if handback.get(name) is None]
        if missing:
            raise QueueValidationError(f"missing required fields: {', '.join(missing)}")
        if handback["handoff_type"] != "HANDBACK":
            raise QueueValidationError(f"handoff_type is {handback['handoff_type']!r} and not 'HANDBACK'")
        if handback["status"] not in words.STATUSES:
            raise QueueValidationError(
                f"Invalid status {handback['status']!r}: it is one of {', '.join(words.STATUSES)}"
            )

    def _parse_handback(self, text: str) -> dict[str, Any]:
        """The fields of the HANDBACK in a text, whatever task it is for; `HandbackParseError` when there is none."""
        try:
            handback = read_handback(text, "", roles=self._desk.roles)
        except HandoffError as error:
            if error.kind != "task_id_mismatch" or not error.found:
                raise HandbackParseError(str(error)) from error
            return self._read(error.found, text)[1]
        return dict(fields.plain(handback.text))

    def _check_id(self, task_id: object) -> None:
        if not isinstance(task_id, str) or not words.is_safe_id(task_id):
            raise QueueValidationError(
                f"task_id {task_id!r} cannot be one: use letters, digits, '.', '_' and '-', and no path"
            )

    def _safe_queue_path(self, base: str | os.PathLike[str], name: str) -> Path:
        """The path of a file below a folder of the queue; `QueueValidationError` when it would lie elsewhere."""
        folder = self.queue_root / base
        path = Path(os.path.normpath(folder / name))
        if not name or "/" in name or "\\" in name or "\0" in name or path.parent != Path(os.path.normpath(folder)):
            raise QueueValidationError(f"{name!r} is no name of a file in {folder}")
        return path


def _project_here() -> Project | None:
    """The project of the working folder, if it has agents."""
    try:
        project = load(locate())
    except NotFound:
        return None
    return project if project.roles else None


def _beside(queue_root: str | os.PathLike[str] | None, session: str, harness: str) -> tuple[Path, str, str]:
    """The folders, the database beside them, and where what agents print is kept."""
    if queue_root is None:
        try:
            root = Path(session_folder(session, harness)) / "queue"
        except UsageError as error:
            raise QueueValidationError(str(error)) from error
    else:
        root = Path(os.path.abspath(Path(queue_root).expanduser()))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.name == "queue":
        return root, str(root.parent / DATABASE_NAME), str(root.parent)
    database = str(root.parent / f"{root.name}.db")
    return root, database, f"{database}.files"
