"""Agents that say nothing, people who step in, and one whole life of everything at once."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from orch import clock, place, settings, silence
from orch.errors import Conflict, UsageError
from orch.followup import hand_in
from orch.handoff import read_handback
from tests.conftest import World, eventually
from tests.scenarios.test_agents import SCRIPTED, agents, delegate, reason, states_by_key
from tests.scenarios.test_fire import notes, running
from tests.scenarios.test_folders import drop, files, keys, loaded, order

FULL = pytest.mark.full
ORCH = "__import__('subprocess').run([sys.executable, '-m', 'orch', {}])"


def begun(world: World) -> bool:
    return (world.folder / "begun").exists()


def silent(world: World) -> list[str]:
    found = silence.silent(world.queue, loaded(world))
    return [f"{one.key} {one.word}" for one in found]


def backdate(world: World, seconds: float) -> None:
    """Let the agents at work have begun, and have said their last word, so long ago."""
    for path in (world.folder / ".orch" / "output").rglob("*"):
        when = time.time() - seconds
        os.utime(path, (when, when))
    long_ago = clock.stamp(clock.after(clock.now(), -seconds))
    for task in world.queue.owned():
        with world.queue.transaction():
            world.queue.database.run(
                "backdate", id=task.id, attempts=task.attempts, claimed_at=long_ago, retry_count=task.retry_count
            )


# Silence


def test_who_is_silent_is_told_of_as_stalled_and_then_as_stale(world: World) -> None:
    agents(world, retry="heartbeat_timeout_sec = 60\nstale_threshold_sec = 300")
    delegate(world, "pass")
    delegate(world, "pass", "t2")
    world.queue.claim("engineer")
    assert silent(world) == []
    backdate(world, 100)
    assert silent(world) == ["t1 stalled"]
    backdate(world, 400)
    world.orch("fire")
    assert "task 1 (t1) is stale: silent for 40" in notes(world)[0]
    assert keys(world)["t1"] == "processing"


def test_what_an_agent_prints_and_its_heartbeat_are_signs_of_life(world: World) -> None:
    agents(world, retry="heartbeat_timeout_sec = 60")
    beat = ORCH.format("'heartbeat', ID")
    delegate(
        world,
        "open('begun', 'w')\nwhile not os.path.exists('say'): time.sleep(0.01)\nsay('still here')\n"
        f"while not os.path.exists('beat'): time.sleep(0.01)\nassert {beat}.returncode == 0\nopen('beaten', 'w')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nsay(answer('success'))",
    )
    fire = world.start("fire")
    eventually(lambda: begun(world), "the agent's start")
    for sign in ("say", "beat"):
        backdate(world, 100)
        assert silent(world) == ["t1 stalled"]
        (world.folder / sign).write_text("")
        eventually(lambda: silent(world) == [], "the sign of life")
    eventually(lambda: (world.folder / "beaten").exists())
    (world.folder / "go").write_text("")
    assert fire.wait(60) == 0
    assert keys(world) == {"t1": "done"}, reason(world)


@FULL
def test_a_silent_agent_is_ended_and_tried_again_where_its_role_wants_that(world: World) -> None:
    agents(world, "engineer", extra="heartbeat_timeout_sec = 1\nkill_stalled = true")
    with open(world.folder / "orch.toml", "a") as file:
        file.write(f"[agents.lead-engineer]\ncommand = {json.dumps([sys.executable, str(SCRIPTED)])}\n")
        file.write("heartbeat_timeout_sec = 1\n")
    delegate(world, "say('Let me think.')\nif not os.path.exists('tried'): time.sleep(2000)\nsay(answer('success'))")
    delegate(world, "time.sleep(2.5); say(answer('success'))", "t2", "lead-engineer")
    delegate(world, "[(say('working'), time.sleep(0.4)) for _ in range(6)]; say(answer('success'))", "t3")
    poll = world.start("poll")
    eventually(lambda: world.queue.attempts(1) and world.queue.attempts(1)[0].reason, "the end of the silent one")
    (world.folder / "tried").write_text("")
    assert poll.wait(60) == 0
    assert keys(world) == {"t1": "done", "t2": "done", "t3": "done"}, reason(world)
    first = world.queue.attempts(1)[0]
    assert (first.outcome, first.reason, first.error) == ("crashed", "stalled", "ended for its silence")
    assert [world.queue.task(id).attempts for id in (1, 2, 3)] == [2, 1, 1]
    assert world.orch("log", "1").count("Let me think.") >= 1
    assert not running(str(SCRIPTED))


def test_a_role_has_its_own_patience_and_its_own_number_of_tries(world: World) -> None:
    command = json.dumps([sys.executable, str(SCRIPTED)])
    world.settings(
        f"[agents.engineer]\ncommand = {command}\nretry_max_attempts = 1\nheartbeat_timeout_sec = 7\n"
        f"[agents.lead-engineer]\ncommand = {command}\nretry_backoff_multiplier = 3\ncrash_threshold_sec = 90\n",
        retry="retry_max_attempts = 2\nheartbeat_timeout_sec = 50\nstale_threshold_sec = 70\ntask_deadline_sec = 33",
    )
    modes = loaded(world).modes
    engineer, lead = modes["engineer"], modes["lead-engineer"]
    assert None not in (engineer.patience, lead.patience, engineer.retries, lead.retries)
    assert (engineer.patience.heartbeat_timeout_sec, lead.patience.heartbeat_timeout_sec) == (7, 50)
    assert (engineer.patience.stale_threshold_sec, lead.patience.crash_threshold_sec) == (70, 90)
    assert (engineer.timeout, lead.stale_hours) == (33, 0.025)
    assert (engineer.retries.backoff_multiplier, lead.retries.backoff_multiplier) == (1.5, 3)


@FULL
def test_a_role_is_tried_as_often_as_it_says(world: World) -> None:
    command = json.dumps([sys.executable, str(SCRIPTED)])
    world.settings(
        f"[agents.engineer]\ncommand = {command}\nretry_max_attempts = 1\n[agents.lead-engineer]\ncommand = {command}",
        retry="retry_max_attempts = 2",
    )
    delegate(world, "sys.exit(3)", "t1")
    delegate(world, "sys.exit(3)", "t2", "lead-engineer")
    world.orch("poll")
    assert [world.queue.find(id).attempts for id in ("t1", "t2")] == [1, 2]
    assert len(world.queue.asks.open()) == 2


@pytest.mark.parametrize(
    ("table", "line", "told"),
    [
        ("orchestrator", "heartbeat_timeout_sec = 0", "orchestrator.heartbeat_timeout_sec"),
        ("orchestrator", "idle_threshold_polls = -1", "orchestrator.idle_threshold_polls"),
        ("orchestrator", "poll_interval = 3", "there is no such setting"),
        ("agents.engineer", "retry_backoff_multiplier = 0.5", "agents.engineer.retry_backoff_multiplier"),
        ("agents.engineer", "kill_stalled = 'maybe'", "agents.engineer.kill_stalled"),
        ("queue", "session = 3", "session 3 cannot be"),
    ],
)
def test_a_wrong_setting_is_named(table: str, line: str, told: str, tmp_path: Path) -> None:
    command = "command = ['true']\n" if table.startswith("agents") else ""
    (tmp_path / "orch.toml").write_text(f"[{table}]\n{command}{line}\n")
    with pytest.raises(UsageError) as caught:
        settings.load(place.locate(config=str(tmp_path / "orch.toml")))
    assert told in str(caught.value)


# A person steps in


HANDBACK = "handoff_type: HANDBACK\ntask_id: t1\nstatus: {}\noutput: by hand\n"


def test_a_person_hands_in_whoever_is_at_work_and_what_runs_is_ended(world: World) -> None:
    agents(world)
    delegate(world, "open('begun', 'w'); time.sleep(2000)")
    world.orch("handback", "t1", "--force", stdin=HANDBACK.format("success"), code=9)
    assert "at work" in world.err
    fire = world.start("fire")
    eventually(lambda: begun(world), "the agent's start")
    claim = {"ORCH_CLAIM": "1", "ORCH_TASK_ID": "1"}
    world.orch("handback", "t1", "--force", stdin=HANDBACK.format("success"), env=claim, code=2)
    world.orch("handback", "t1", "--force", stdin=HANDBACK.format("perhaps"), code=8)
    assert keys(world) == {"t1": "processing"}
    told = world.orch("handback", "t1", "--force", stdin=HANDBACK.format("success"))
    assert told == "handed in: t1 is success, and done now\n"
    assert fire.wait(60) == 0
    assert not running(str(SCRIPTED))
    assert keys(world) == {"t1": "done"}
    [attempt] = world.queue.attempts(1)
    assert (attempt.outcome, attempt.reason) == ("done", "handed in by a person")
    assert json.loads(attempt.result or "")["output"] == "by hand"
    last = world.queue.events(1)[-1]
    assert (last.moved_by, last.reason) == ("person", "handed in by a person")
    assert "output: by hand" in (world.folder / ".orch/queue/done/t1-HANDBACK.yaml").read_text()
    world.queue.add("ok", key="t2")
    world.queue.claim("ok")
    for id in ("t1", "t2"):
        with pytest.raises(Conflict, match="only a role's task that is at work"):
            hand_in(world.queue, loaded(world), world.queue.find(id), read_handback(HANDBACK.format("failure"), "t1"))


@pytest.mark.parametrize(
    "status", ["failure", "blocked", pytest.param("escalate\nescalate_to: lead-engineer", marks=FULL)]
)
def test_what_a_person_hands_in_leads_where_an_agents_answer_would(world: World, status: str) -> None:
    agents(world)
    delegate(world, "pass")
    world.queue.claim("engineer")
    world.orch("handback", "t1", "--force", stdin=HANDBACK.format(status))
    word = status.partition("\n")[0]
    assert keys(world)["t1"] == ("done" if word == "escalate" else "failed")
    assert len(world.queue.asks.open()) == (word == "blocked")
    if word == "escalate":
        assert keys(world)["t1-escalated-to-lead-engineer"] == "incoming"
    else:
        assert reason(world).startswith("handed in by a person: ")


@FULL
def test_handing_in_for_a_task_at_the_gate_ends_its_judging_for_good(world: World) -> None:
    command = json.dumps([sys.executable, str(SCRIPTED)])
    judge = json.dumps([sys.executable, str(SCRIPTED), "open('begun', 'w'); time.sleep(2000)"])
    world.settings(
        f"[agents.engineer]\ncommand = {command}\ngate = true\n[agents.quality-engineer]\ncommand = {judge}",
        retry="retry_max_attempts = 2",
    )
    delegate(world, "say(answer('success', 'by the agent'))")
    fire = world.start("fire")
    eventually(lambda: begun(world), "the judge's start")
    world.orch("handback", "t1", "--force", stdin=HANDBACK.format("failure"))
    assert fire.wait(60) == 0
    assert states_by_key(world) == {"t1": "failed", "t1-qe-gate": "failed"}
    assert reason(world).startswith("handed in by a person")
    assert world.queue.asks.kept_answer(1) is None


# All of it at once


def test_one_poll_lives_through_everything_that_agents_do(world: World) -> None:
    command = json.dumps([sys.executable, str(SCRIPTED)])
    judge = json.dumps(
        [sys.executable, str(SCRIPTED), "say(answer('failure' if 'rejected' in DELEGATE else 'success'))"]
    )
    tables = "".join(
        f"[agents.{role}]\ncommand = {command}\n{extra}\n"
        for role, extra in (
            ("engineer", "gate = true\ntimeout = 20"),
            ("lead-engineer", ""),
            ("security-engineer", "timeout = 1"),
            ("model-engineer", "heartbeat_timeout_sec = 0.5\nkill_stalled = true"),
        )
    )
    world.settings(f"{tables}[agents.quality-engineer]\ncommand = {judge}", retry="retry_max_attempts = 2")
    assert world.queue.tasks() == []
    to_and_fro = "'engineer' if ROLE[0] == 'l' else 'lead-engineer'"
    lives = {
        "good": ("engineer", "say(answer('success', 'made', metrics='{tokens: 5}'))", "done"),
        "bad": ("engineer", "say(answer('success', 'to be rejected'))", "failed"),
        "loop": ("engineer", f"say(answer('escalate', 'x', escalate_to={to_and_fro}))", "done"),
        "crash": ("lead-engineer", "os.kill(os.getppid(), 9); time.sleep(2000)", "failed"),
        "stall": ("model-engineer", "time.sleep(2000)", "failed"),
        "late": ("security-engineer", "time.sleep(2000)", "failed"),
        "noise": ("lead-engineer", "sys.stdout.buffer.write(bytes(range(256)) * 100)", "failed"),
        "silent": ("lead-engineer", "pass", "failed"),
        "long": ("lead-engineer", "[say('x' * 99_999) for _ in range(50)]; say(answer('success'))", "done"),
    }  # fmt: skip
    for id, (role, scope, _) in lives.items():
        drop(world, f"{id}.yaml", order(id, scope, role))
    rollup = world.answer("poll")
    ended = keys(world)
    assert {id: ended[id] for id in lives} == {id: state for id, (_, _, state) in lives.items()}
    assert ended["loop-escalated-to-lead-engineer"] == "failed"
    assert (ended["good-qe-gate"], ended["bad-qe-gate"]) == ("done", "failed")
    assert set(ended.values()) == {"done", "failed"}
    tries = {id: world.queue.find(id).attempts for id in lives}
    assert {id for id, tried in tries.items() if tried == 2} == {"crash", "stall", "late", "noise", "silent"}
    asked = {world.queue.task(one.task).key for one in world.queue.asks.open()}
    assert asked == {"crash", "stall", "late", "noise", "silent", "loop-escalated-to-lead-engineer"}
    assert world.queue.attempts(world.queue.find("stall").id)[0].reason == "stalled"
    assert len(notes(world)) == 1
    assert rollup["kind"] == "poll"
    for id, state in ended.items():
        there = [name for name in files(world) if name.endswith(f"/{id}.yaml")]
        assert there == [f"{state}/{id}.yaml"]
        if state == "failed":
            assert f"failed/{id}-ERROR.json" in files(world)
    assert not running(str(SCRIPTED))


def test_a_file_that_is_refused_while_others_work_is_in_the_note_too(world: World) -> None:
    agents(world)
    world.orch("add", "wait_for", "file=go")
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    drop(world, "x.yaml", "no: order\n")
    os.utime(world.folder / ".orch/queue/incoming/x.yaml", (1, 1))
    eventually(lambda: "failed/x.yaml" in files(world), "the refusal")
    (world.folder / "go").write_text("")
    assert fire.wait(60) == 0
    assert "a dropped file was refused: x.yaml" in notes(world)[0]
