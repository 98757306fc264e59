"""The orchestrator's class: each method is a few verbs of the queue, and a span."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orch.errors import NotFound, OrchError, UsageError
from orch.handoff import Handback, routing, writing
from orch.limits import Limits
from orch.modes import JUDGE
from orch.outcomes import NOTHING, Done, Evidence, Failed, Later, Outcome
from orch.place import DATABASE_NAME, locate, session_folder, session_names
from orch.project import Project
from orch.records import Task
from orch.settings import load
from orch.skill.backend import Backend
from orch.skill.desk import KEPT, Desk
from orch.skill.errors import HandbackParseError, QueueValidationError, SubAgentError, TaskClaimError, TaskMissing
from orch.skill.idling import Idling
from orch.skill.polling import PollingConfig
from orch.skill.recovery import Recovery
from orch.states import State
from orch.work import agent

_log = logging.getLogger("orch.skill")
_REJECTED = "rejected by the quality gate"


class OrchestratorSkill(Recovery, Idling):
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
        self._evidence: dict[str, Evidence] = {}
        self._busy: set[str] = set()
        self._verdicts: dict[str, str] = {}
        # What takes the remarks on skills: a task's id and its remarks.
        self.feedback_loop: Callable[[str, Iterable[Any]], None] = self._route_skill_feedback
        self._pending_improvement_tasks = self._improvements()

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
            self._busy.add(task_id)
            try:
                text, self._evidence[task_id] = self._backend.ask(task, mode)
            finally:
                self._busy.discard(task_id)
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

    def _outcome(self, task: Task, handback: Handback, found: dict[str, Any]) -> Outcome:
        result = agent.result_of(handback)
        evidence = self._evidence.get(str(task.key), NOTHING)
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
            with self._desk.lock:
                folder = self._backend.folder_of(self._desk.queue, self._desk.find(task_id))
            against += routing.missing(said, folder)
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
        evidence = self._evidence.get(task_id, NOTHING)
        outcome = self._backend.judge(task, Done(agent.result_of(said), evidence), judge, least)
        return "" if isinstance(outcome, Done) else str(getattr(outcome, "error", getattr(outcome, "why", _REJECTED)))

    def _held(self, task_id: str, delegate: Mapping[str, Any]) -> Task:
        """The task of a DELEGATE, at work; one that nobody has added is added."""
        self._check_id(task_id)
        if self._desk.find(task_id) is None and self._desk.root.find(task_id) is None:
            self._validate_delegate(delegate)
            path = self.queue_root / State.INCOMING / f"{task_id}.yaml"
            path.write_text(writing.as_yaml(delegate), encoding="utf-8")
            self._desk.take()
        return self._desk.held(task_id)


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
