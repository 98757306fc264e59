"""The orchestrator's class, as programs use it that were written against the protocol's text."""

from __future__ import annotations

import datetime
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from orch.place import locate
from orch.queue import Queue
from orch.settings import load
from orch.skill import (
    HandbackParseError,
    OrchestratorError,
    OrchestratorSkill,
    PollingConfig,
    QueueValidationError,
    SubAgentError,
    TaskClaimError,
)
from tests.conftest import World, eventually
from tests.scenarios.test_agents import agents


@pytest.fixture
def skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OrchestratorSkill]:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGUSR1)
    made = OrchestratorSkill("a-session", "a-harness", tmp_path / "queue", PollingConfig(deep_sleep_sec=0.05))
    yield made
    made.close()
    signal.signal(signal.SIGUSR1, before)


def fields(id: str = "t1", **more: Any) -> dict[str, Any]:
    core = {"handoff_type": "DELEGATE", "task_id": id, "agent": "engineer", "scope": "mend it"}
    return core | {"plan": ["mend"], "success_criteria": ["it works"]} | more


def drop(skill: OrchestratorSkill, id: str = "t1", **more: Any) -> Path:
    path = skill.queue_root / "incoming" / f"{id}.yaml"
    path.write_text(yaml.safe_dump(fields(id, **more)))
    return path


def handback(id: str = "t1", status: str = "success", **more: Any) -> str:
    core = {"handoff_type": "HANDBACK", "task_id": id, "status": status, "output": "mended", "confidence": 0.9}
    return f"I have done it.\n```yaml\n{yaml.safe_dump(core | {'metrics': {'quality': 0.8}} | more)}```\n"


def lay(skill: OrchestratorSkill, id: str, age: float, retry_count: int = 0, content: str = "test") -> None:
    """A task at work as its files tell it, claimed `age` seconds ago."""
    folder = skill.queue_root / "processing"
    claimed_at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    story = {"task_id": id, "claimed_at": claimed_at.isoformat(), "retry_count": retry_count, "last_error": None}
    (folder / f"{id}.yaml").write_text(content)
    (folder / f"{id}.meta.json").write_text(json.dumps(story))


def where(skill: OrchestratorSkill, id: str = "t1") -> list[str]:
    """The folders that a task's DELEGATE lies in."""
    return sorted(path.parent.name for path in skill.queue_root.glob(f"*/{id}.yaml"))


def spans(skill: OrchestratorSkill, step: str) -> list[dict[str, Any]]:
    found = (json.loads(path.read_text()) for path in (skill.queue_root.parent / "spans").glob("*.span.json"))
    return [span for span in found if span["span_name"] == f"orchestrator-{step}"]


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


# What it is made of


def test_it_makes_its_folders_and_has_the_parameters_of_the_protocol(skill: OrchestratorSkill) -> None:
    assert [(skill.queue_root / state / ".keep.me").exists() for state in skill.QUEUE_STATES] == [True] * 4
    assert (skill.queue_root.parent / "spans").is_dir()
    assert (skill.session_id, skill.harness) == ("a-session", "a-harness")
    assert PollingConfig().to_dict() == {
        "poll_interval_fast": 30, "poll_interval_idle": 180, "heartbeat_interval": 30, "heartbeat_timeout_sec": 120,
        "task_deadline_sec": 600, "stale_threshold_sec": 300, "crash_threshold_sec": 600, "idle_threshold_polls": 3,
        "deep_sleep_sec": 600, "retry_max_attempts": 3, "retry_backoff_multiplier": 1.5,
        "skill_improvement_threshold": 3,
    }  # fmt: skip
    assert PollingConfig.from_dict({"idle_sleep_sec": 7}).deep_sleep_sec == 7
    with pytest.raises(ValueError, match="retry_max_attempts"):
        PollingConfig(retry_max_attempts=-1)
    assert (skill.TASK_DEADLINE_SEC, skill.POLL_INTERVAL_SEC, skill.IDLE_THRESHOLD_POLLS) == (600, 180, 3)
    assert (skill.DEEP_SLEEP_SEC, skill.RETRY_MAX_ATTEMPTS) == (600, 3)


def test_a_session_without_a_name_finds_its_queue_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ORCH_SESSION", "AGENTIC_SESSION_ID", "CLAUDE_SESSION_ID", "COPILOT_SESSION_ID", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    one, other = OrchestratorSkill(), OrchestratorSkill()
    assert one.queue_root == other.queue_root
    monkeypatch.setenv("CLAUDE_SESSION_ID", "abc")
    named = OrchestratorSkill()
    assert named.queue_root == tmp_path / ".agentic-engineers/artifacts/abc/claude/queue"
    with pytest.raises(QueueValidationError, match="folder"):
        OrchestratorSkill("../x", "y")
    for each in (one, other, named):
        each.close()


# Claiming


def test_a_claimed_task_lies_in_processing_with_its_story_beside_it(skill: OrchestratorSkill) -> None:
    drop(skill, priority=7)
    assert skill.claim_task("t1") == fields(priority=7)
    assert where(skill) == ["processing"]
    story = json.loads((skill.queue_root / "processing/t1.meta.json").read_text())
    assert (story["task_id"], story["retry_count"], story["last_error"]) == ("t1", 0, None)
    assert datetime.datetime.fromisoformat(story["claimed_at"]).tzinfo is not None


def test_who_comes_too_late_leaves_the_file_of_the_loser_alone(skill: OrchestratorSkill) -> None:
    skill.claim_task("t1", drop(skill))
    loser = drop(skill, scope="something else")
    with pytest.raises(TaskClaimError, match="processing already"):
        skill.claim_task("t1", loser)
    assert loser.exists()
    with pytest.raises(FileNotFoundError):
        skill.claim_task("t2", skill.queue_root / "incoming/t2.yaml")
    with pytest.raises(QueueValidationError, match="task_id"):
        skill.claim_task("../t1")


def test_of_two_that_claim_at_once_exactly_one_has_the_task(skill: OrchestratorSkill) -> None:
    other = OrchestratorSkill("b", "b", skill.queue_root)
    for number in range(10):
        path = drop(skill, f"r{number}")
        gate, won = threading.Barrier(3), []

        def claim(
            which: OrchestratorSkill,
            id: str = f"r{number}",
            path: Path = path,
            gate: threading.Barrier = gate,
            won: list[Any] = won,
        ) -> None:
            gate.wait()
            try:
                won.append(which.claim_task(id, path)["task_id"])
            except TaskClaimError:
                pass

        threads = [threading.Thread(target=claim, args=(one,)) for one in (skill, skill, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [f"r{number}"]
    other.close()


# Working


def test_without_a_project_no_agent_is_made_up_and_nothing_is_done(skill: OrchestratorSkill) -> None:
    for role in ("engineer", "quality-engineer", "nobody"):
        with pytest.raises(SubAgentError) as caught:
            skill.spawn_sub_agent({"agent": role})
        assert isinstance(caught.value.__cause__, NotImplementedError)
    drop(skill)
    assert skill.poll_queue() == (0, 1)
    assert where(skill) == ["failed"]
    error = json.loads((skill.queue_root / "failed/t1-ERROR.json").read_text())
    assert error["task_id"] == "t1"
    assert "engineer" in error["error"]


def test_a_poll_counts_what_it_did_and_what_was_invalid(skill: OrchestratorSkill) -> None:
    for looks in (1, 2):
        assert skill.poll_queue() == (0, 0)
        assert skill.clean_poll_count == looks
    drop(skill)
    (skill.queue_root / "incoming/broken.yaml").write_text("handoff_type: [")
    with patch.object(skill, "spawn_sub_agent", side_effect=lambda delegate: handback(delegate["task_id"])):
        assert skill.poll_queue() == (1, 1)
    assert skill.clean_poll_count == 0
    assert where(skill) == ["done"]
    assert where(skill, "broken") == ["failed"]


def test_a_task_that_waits_for_another_is_done_after_it(skill: OrchestratorSkill) -> None:
    drop(skill, "a-later", dependencies=["b-first"])
    drop(skill, "b-first")
    done: list[str] = []

    def spawn(delegate: dict[str, Any]) -> str:
        done.append(delegate["task_id"])
        return handback(delegate["task_id"])

    with patch.object(skill, "spawn_sub_agent", side_effect=spawn):
        assert skill.poll_queue() == (1, 0)
        assert skill.poll_queue() == (1, 0)
    assert done == ["b-first", "a-later"]


def test_the_agents_of_a_project_do_the_work_and_judge_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    agents(world, extra="gate = true")
    with (world.folder / "orch.toml").open("a") as file:
        text = (world.folder / "orch.toml").read_text()
        command = text[text.index("command = [") :].split("\n", 1)[0]
        judge = "say(answer('success' if 'good-one' in ORDER else 'failure', error='it is not good'))"
        file.write(f"\n[agents.quality-engineer]\n{command[:-1]}, {json.dumps(judge)}]\n")
    monkeypatch.chdir(world.folder)
    skill = OrchestratorSkill()
    for id in ("good-one", "bad-one"):
        drop(skill, id, scope="say(answer('success', metrics='{tokens: 70}'))")
    drop(skill, "silent", scope="say('nothing')")
    assert skill.poll_queue() == (2, 1)
    states = {task.key: task.state for task in world.queue.tasks() if "gate" not in str(task.key)}
    assert states == {"good-one": "done", "bad-one": "failed", "silent": "retry-pending"}
    why = json.loads((skill.queue_root / "failed/bad-one-ERROR.json").read_text())["error"]
    assert "it is not good" in why
    attempt = world.queue.attempts(world.queue.find("good-one").id)[0]
    assert (attempt.tokens, attempt.exit_code) == (70, 0)
    skill.close()


# Answers


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        (handback(), "done"),
        (handback(status="complete"), "done"),
        (handback(confidence=0.7), "failed"),
        (handback(metrics={}), "failed"),
        (handback(tests={"failed": 2}), "failed"),
        (handback(status="failure"), "failed"),
        (handback(status="partial"), "failed"),
        (handback(status="blocked"), "failed"),
    ],
)
def test_an_answer_takes_its_task_where_its_status_and_the_gate_say(
    skill: OrchestratorSkill, text: str, folder: str
) -> None:
    drop(skill)
    skill.claim_task("t1")
    assert skill.handle_handback("t1", text)["status"] == loaded_block(text)["status"]
    assert where(skill) == [folder]
    assert loaded(skill.queue_root / folder / "t1-HANDBACK.yaml")["task_id"] == "t1"


def loaded_block(text: str) -> Any:
    return yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])


@pytest.mark.parametrize("text", ["", "all done!", handback("t2"), handback(status="great"), handback()[:-40]])
def test_an_answer_that_cannot_be_taken_moves_nothing(skill: OrchestratorSkill, text: str) -> None:
    drop(skill)
    skill.claim_task("t1")
    with pytest.raises(HandbackParseError):
        skill.handle_handback("t1", text)
    assert where(skill) == ["processing"]


def test_an_answer_without_a_task_is_kept_all_the_same(skill: OrchestratorSkill) -> None:
    assert skill.handle_handback("loose", handback("loose"))["status"] == "success"
    assert loaded(skill.queue_root / "done/loose-HANDBACK.yaml")["output"] == "mended"
    assert where(skill, "loose") == []
    with pytest.raises(ValueError, match="done already"):
        skill.handle_handback("loose", handback("loose"))


def test_the_gate_takes_the_agents_own_scores_only_strictly_above_the_thresholds(skill: OrchestratorSkill) -> None:
    def scored(confidence: Any, quality: Any) -> bool:
        metrics = {} if quality is None else {"quality": quality}
        core = {"handoff_type": "HANDBACK", "task_id": "t1", "status": "success", "metrics": metrics}
        return skill.invoke_qe_gate("t1", core if confidence is None else core | {"confidence": confidence})

    assert scored(0.71, 0.76)
    pairs = [(0.7, 0.9), (0.9, 0.75), (None, 0.9), (0.9, None), ("high", 0.9)]
    assert [scored(*pair) for pair in pairs] == [False] * len(pairs)
    told = spans(skill, "invoke_qe_gate")
    assert len(told) == 6
    assert all(span["attributes"]["self_reported"] for span in told)


def test_an_escalation_goes_on_with_another_role_and_leaves_a_trace(skill: OrchestratorSkill) -> None:
    drop(skill)
    skill.claim_task("t1")
    output = {"escalate_to": "security-engineer", "escalation_reason": "a secret", "escalation_chain": ["x"]}
    given = skill.handle_handback("t1", handback(status="escalate", output=output))
    assert where(skill) == ["done"]
    [child] = (loaded(path) for path in (skill.queue_root / "incoming").glob("*.yaml"))
    skill._validate_delegate(child)
    assert child["agent"] == child["role"] == "security-engineer"
    assert child["escalation_chain"] == ["x", "engineer"]
    told = {"original_task_id": "t1", "original_role": "engineer", "escalation_reason": "a secret"}
    assert child["context"] == told | {"original_handback": given}
    kept = loaded(skill.queue_root / "done/t1-HANDBACK.yaml")
    assert kept["escalation_delegate_created"] == child["task_id"]
    assert not (skill.queue_root / "escalation").exists()


def test_an_escalation_to_nobody_writes_nothing(skill: OrchestratorSkill) -> None:
    drop(skill)
    skill.claim_task("t1")
    with pytest.raises(QueueValidationError, match="escalate_to"):
        skill._move_task_to_escalation("t1", {"status": "escalate", "output": {"escalate_to": "../../etc"}})
    assert where(skill) == ["processing"]
    assert list((skill.queue_root / "incoming").glob("*.yaml")) == []
    skill._move_task_to_escalation("t1", {"status": "escalate"})
    assert where(skill, "t1-escalated-to-lead-engineer") == ["incoming"]


def test_whatever_bytes_there_are_are_moved_as_they_are(skill: OrchestratorSkill) -> None:
    for number, folder in enumerate(("incoming", "processing")):
        for target, move in (("done", skill._move_task_to_done), ("failed", skill._move_task_to_failed)):
            id, data = f"raw-{target}-{number}", b"\xff\x00: [ not yaml"
            (skill.queue_root / folder / f"{id}.yaml").write_bytes(data)
            move(id)
            assert where(skill, id) == [target]
            assert (skill.queue_root / target / f"{id}.yaml").read_bytes() == data


# Recovery


def test_tasks_whose_deadline_has_passed_are_tried_again_until_their_tries_are_spent(skill: OrchestratorSkill) -> None:
    lay(skill, "once", 700)
    lay(skill, "spent", 700, retry_count=3)
    lay(skill, "fresh", 10)
    assert skill.recover_crashed_tasks() == (1, 1)
    assert (where(skill, "once"), where(skill, "spent"), where(skill, "fresh")) == (
        ["retry-pending"], ["failed"], ["processing"],
    )  # fmt: skip
    assert json.loads((skill.queue_root / "retry-pending/once.meta.json").read_text())["retry_count"] == 1
    assert (skill.queue_root / "retry-pending/once.yaml").read_text() == "test"


def test_a_claim_that_somebody_has_backdated_is_as_old_as_that(skill: OrchestratorSkill) -> None:
    drop(skill)
    skill.claim_task("t1")
    assert skill.recover_crashed_tasks() == (0, 0)
    lay(skill, "t1", 3600, content=(skill.queue_root / "processing/t1.yaml").read_text())
    assert skill.recover_crashed_tasks() == (1, 0)
    with patch.object(skill, "spawn_sub_agent", return_value=handback()):
        assert skill.poll_queue() == (1, 0)
    assert where(skill) == ["done"]


def test_silence_stalls_a_task_and_a_heartbeat_does_not(skill: OrchestratorSkill) -> None:
    for id in ("quiet", "alive"):
        lay(skill, id, 200)
    skill.update_heartbeat("alive")
    first = skill.heartbeat_tracker["alive"]
    skill.update_heartbeat("alive")
    assert skill.heartbeat_tracker["alive"] > first
    assert skill.detect_stalled_tasks() == ["quiet"]
    expected = {"stalled_detected": 1, "recovered": 1, "escalated": 0, "wake_reason": "heartbeat_timeout"}
    assert skill.wake_timer() == expected
    assert where(skill, "quiet") == ["retry-pending"]
    assert skill.wake_timer()["wake_reason"] == "no_stalled_tasks"


def test_a_stalled_task_without_tries_left_goes_to_the_lead_engineer(skill: OrchestratorSkill) -> None:
    lay(skill, "t1", 200, retry_count=3, content=yaml.safe_dump(fields()))
    with patch.object(skill, "spawn_sub_agent", side_effect=SubAgentError("not today")):
        assert skill.poll_queue() == (0, 2)
    assert where(skill) == ["done"]
    [child] = (loaded(path) for path in (skill.queue_root / "failed").glob("*.yaml"))
    assert (child["agent"], child["context"]["original_task_id"]) == ("lead-engineer", "t1")


# Idling


def test_it_sleeps_once_below_the_threshold_and_deeply_at_it(skill: OrchestratorSkill) -> None:
    with patch("time.sleep") as sleep:
        assert skill.run_idle_loop() == {"work_processed": 0, "idle_entered": False, "wake_reason": "normal"}
    sleep.assert_called_once_with(180)
    skill.clean_poll_count = 3
    with patch.object(skill, "_deep_sleep", return_value="signal"):
        assert skill.run_idle_loop() == {"work_processed": 0, "idle_entered": True, "wake_reason": "signal"}
    assert skill.clean_poll_count == 0


@pytest.mark.parametrize("sleep", ["_deep_sleep", "_deep_sleep_polling"])
def test_a_deep_sleep_ends_for_its_time_a_file_a_task_or_a_signal(skill: OrchestratorSkill, sleep: str) -> None:
    def slept(act: Any) -> str:
        """The reason, where something happens as soon as it sleeps; several times, as nobody can see it sleep."""
        over = threading.Event()

        def again() -> None:
            while not over.wait(0.05):
                act()

        thread = threading.Thread(target=again)
        thread.start()
        try:
            return str(getattr(skill, sleep)())
        finally:
            over.set()
            thread.join()

    assert getattr(skill, sleep)() == "timeout"
    skill.config.deep_sleep_sec = 60
    skill._hear_signals()
    assert slept(lambda: os.kill(os.getpid(), signal.SIGUSR1)) == "signal"
    skill._roused = False
    assert slept(lambda: drop(skill)) == "file_event"
    assert getattr(skill, sleep)() == "file_event", "a file that nobody has looked at is no reason to sleep"
    skill.poll_queue()
    with Queue.open(str(skill.queue_root.parent / "orch.db")) as queue:
        payload = {"delegate": yaml.safe_dump(fields("added"))}
        assert slept(lambda: queue.add("engineer", payload, key="added")) == "file_event"


def test_where_nothing_tells_of_files_they_are_looked_for(skill: OrchestratorSkill) -> None:
    looks = iter([[], [skill.queue_root / "incoming/x.yaml"]])
    skill.config.deep_sleep_sec = 60
    with patch.object(Path, "glob", side_effect=lambda pattern: next(looks)):
        assert skill._deep_sleep_polling() == "file_event"


def test_a_deep_sleep_ends_when_a_retry_is_due(skill: OrchestratorSkill) -> None:
    skill.config.deep_sleep_sec = 3600
    lay(skill, "t1", 700)
    skill.recover_crashed_tasks()
    assert skill._deep_sleep() in ("timeout", "file_event")


def test_the_loop_of_the_protocols_text_runs(skill: OrchestratorSkill) -> None:
    drop(skill)
    results = []
    with (
        patch("time.sleep"),
        patch.object(skill, "spawn_sub_agent", side_effect=lambda delegate: handback(delegate["task_id"])),
    ):
        recovered, newly_failed = skill.recover_crashed_tasks()
        for _ in range(5):
            processed, failed = skill.poll_queue()
            results.append((processed, failed, skill.run_idle_loop()["idle_entered"]))
    assert (recovered, newly_failed) == (0, 0)
    assert results == [(1, 0, False), *[(0, 0, False)] * 2, (0, 0, True), (0, 0, False)]


# The rest


def test_three_remarks_on_one_skill_make_one_order(skill: OrchestratorSkill) -> None:
    remark = {"skill_name": "deploy", "effectiveness_score": 0.4}
    for number in range(7):
        drop(skill, f"t{number}")
        skill.claim_task(f"t{number}")
        skill.handle_handback(f"t{number}", handback(f"t{number}", status="failure", skill_feedback=[remark]))
    [order] = (skill.queue_root / "incoming").glob("*improve-skill-deploy*")
    assert skill._pending_improvement_tasks == [order.stem]
    skill._validate_delegate(loaded(order))


@pytest.mark.parametrize("id", ["../x", "/x", "..", "a/b", "a\\b", "", None, 7])
def test_no_id_leads_out_of_the_queue(skill: OrchestratorSkill, id: Any) -> None:
    with pytest.raises(QueueValidationError, match=r"task_id|missing"):
        skill._validate_delegate(fields(id))
    if isinstance(id, str):
        with pytest.raises(QueueValidationError):
            skill._safe_queue_path("incoming", id)


def test_what_a_delegate_and_a_handback_lack_is_said(skill: OrchestratorSkill) -> None:
    for name in fields():
        with pytest.raises(QueueValidationError, match="missing required fields"):
            skill._validate_delegate({key: value for key, value in fields().items() if key != name})
    skill._validate_delegate(fields())
    with pytest.raises(ValueError, match="Invalid status"):
        skill._validate_handback({"handoff_type": "HANDBACK", "task_id": "t1", "status": "complete"})
    assert skill._parse_handback("prose\n\nhandoff_type: HANDBACK\nstatus: partial\ntask_id: t9\n")["task_id"] == "t9"
    with pytest.raises(OrchestratorError):
        skill._parse_handback("prose")
    assert skill._safe_queue_path("incoming", "a.yaml") == skill.queue_root / "incoming/a.yaml"
    with pytest.raises(QueueValidationError):
        skill._safe_queue_path("../elsewhere", "a.yaml")


def test_a_span_never_breaks_anything(skill: OrchestratorSkill) -> None:
    skill.capture_span("a step", task_id="../../x", what={1, 2})
    [span] = spans(skill, "a step")
    assert (span["trace_id"], span["duration_ms"]) == ("a-session", 0)
    (skill.queue_root.parent / "spans").rename(skill.queue_root.parent / "gone")
    skill.capture_span("another")


def test_what_a_dead_orchestrator_was_at_can_be_answered_to_the_next(skill: OrchestratorSkill) -> None:
    drop(skill)
    if (child := os.fork()) == 0:
        other = OrchestratorSkill("x", "y", skill.queue_root)
        other.claim_task("t1")
        os._exit(0)
    os.waitpid(child, 0)
    eventually(lambda: where(skill) == ["processing"])
    assert skill.handle_handback("t1", handback())["status"] == "success"
    assert where(skill) == ["done"]


def test_a_project_and_its_orchestrator_share_one_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    agents(world)
    monkeypatch.chdir(world.folder)
    skill = OrchestratorSkill(project=load(locate()))
    drop(skill, scope="say(answer('success'))")
    world.orch("fire")
    assert where(skill) == ["done"]
    assert skill.poll_queue() == (0, 0)
    skill.close()
