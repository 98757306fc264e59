"""The pytest plugin: its fixtures, what it says when a test fails, and that it costs nothing where it is not used."""

from __future__ import annotations

import datetime
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import orch
from orch import Guard, Limits, Mode, Retries, Task, UsageError, clock
from orch.testing import assert_drained, assert_note, assert_states
from orch.testing.leftovers import Leftovers

IN_PROCESS = ["inline", "threads"]
RUNNERS = [*IN_PROCESS, "pool"]
SOON = Limits(retries=Retries(backoff_base_sec=0))
ORDER = "handoff_type: DELEGATE\ntask_id: {id}\nagent: {role}\nscope: s\nplan: [p]\nsuccess_criteria: [c]\n"

pytest_plugins = ["pytester"]


def nothing(task: Task) -> None:
    """For worker processes too."""


def order(queue: Any, id: str = "t1", role: str = "engineer") -> None:
    orch.delegate(queue, ORDER.format(id=id, role=role))


# What it costs, and what is left


def test_a_run_that_uses_none_of_it_loads_nothing_of_the_queue(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("def test_it(): pass\n")
    code = (
        "import sys, pytest\n"
        "assert pytest.main(['-q', '-p', 'no:cacheprovider']) == 0\n"
        "ours = [name for name in sys.modules if name.partition('.')[0] in ('orch', 'apsw', 'psutil', 'rich')]\n"
        "print('loaded:', *sorted(ours))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "loaded: orch orch.testing orch.testing.plugin"


@pytest.mark.parametrize("runner", RUNNERS)
def test_nothing_is_left_of_commands_and_functions(orch_queue: Any, orch_fire: Any, runner: str) -> None:
    for _ in range(3):
        orch_queue.add("say")
        orch_queue.add("nothing")
    modes = {"say": Mode("say", command=("echo", "hello"))}
    project = replace(orch.project_of(orch_queue), modes=modes)
    orch_fire({"nothing": nothing}, project=project, runner=runner, limits=Limits(max_pool=4))
    assert_drained(orch_queue)
    assert sorted(os.listdir(os.path.join(project.state, "output"))) == ["0"]


LEAVERS = {
    "a process": "orch_queue.left = subprocess.Popen(['sleep', '7077'])",
    "a process of a task": "orch_fire({'m': lambda task: task_of(['setsid', 'sleep', '7077'])})",
    "a connection": "orch_queue.left = orch.connect(tmp_path / '.orch' / 'orch.db')",
    "a connection to another queue": "orch_queue.left = orch.connect(tmp_path / 'other.db')",
    "an open file": "orch_queue.left = open(tmp_path / '.orch' / 'output', 'w')",
}


@pytest.mark.parametrize("what", LEAVERS)
def test_what_a_test_leaves_behind_fails_it_by_name(pytester: pytest.Pytester, what: str) -> None:
    pytester.makepyfile(
        "import orch, subprocess\n"
        "def task_of(words):\n"
        "    subprocess.Popen(words)\n"
        "def test_it(orch_queue, orch_fire, tmp_path):\n"
        "    orch_queue.add('m')\n"
        f"    {LEAVERS[what]}\n"
        "    assert orch_queue.task(1)\n"
    )
    ran = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-W", "ignore")
    ran.assert_outcomes(passed=1, errors=1)
    kind = "a process: * sleep 7077" if "process" in what else f"{what.removesuffix(' to another queue')}: *"
    ran.stdout.fnmatch_lines(["*the test has left something behind:*", f"*{kind}*"])
    subprocess.run(["pkill", "-f", "^sleep 7077$"], check=False)


def test_what_a_test_opens_for_itself_is_its_own_affair(orch_queue: Any, tmp_path: Path) -> None:
    kept = open(tmp_path / "own.log", "w")  # noqa: SIM115
    other = sqlite3.connect(tmp_path / "own.db")
    other.execute("create table t (x)")
    assert Leftovers(str(tmp_path)).found() == [f"a connection: {orch_queue.database.path}"]
    other.close()
    kept.close()


# What a failure says


def test_a_failure_shows_how_the_tasks_stand_and_why(orch_queue: Any, orch_fire: Any) -> None:
    def resize(task: Task) -> None:
        raise ValueError("no such picture")

    orch_queue.add("resize", key="ada.png")
    orch_queue.add("resize", delay=60)
    orch_fire({"resize": resize})
    with pytest.raises(AssertionError) as failure:
        assert_states(orch_queue, {1: "done", 2: "incoming"})
    assert str(failure.value) == (
        "the tasks do not stand as expected (- expected, + found):\n"
        "  - 1 ada.png: done\n"
        "  + 1 ada.png: failed\n"
        "    2 resize: incoming\n"
        "1 ada.png: failed (ValueError: no such picture)"
    )
    with pytest.raises(AssertionError) as failure:
        assert_states(orch_queue, done=1, incoming=1)
    assert "  - done: 1\n  + failed: 1\n    incoming: 1\n1 ada.png: failed (ValueError" in str(failure.value)
    with pytest.raises(AssertionError, match=r"1 of its tasks have not ended:\n  2 resize: incoming, due at 20"):
        assert_drained(orch_queue)
    with pytest.raises(orch.NotFound, match="bob"):
        assert_states(orch_queue, {"bob.png": "done"})


def test_a_failure_of_many_tasks_shows_the_first_of_them(orch_queue: Any) -> None:
    orch_queue.add_many([orch.NewTask("m") for _ in range(1234)])
    with pytest.raises(AssertionError) as failure:
        assert_drained(orch_queue)
    assert str(failure.value).endswith("  20 m: incoming\n  … and 1,214 more")


def test_a_failure_shows_the_whole_note(orch_queue: Any, orch_fire: Any) -> None:
    orch_queue.add("nothing")
    fired = orch_fire({"nothing": nothing})
    assert_note(fired, "1 done", re.compile(r"^Fire \d+"))
    with pytest.raises(
        AssertionError, match=r"does not hold:\n  '2 failed'\n  'lost \\\\d\+'\nit says:\n  \| Fire 1: 1 done"
    ):
        assert_note(fired, "1 done", "2 failed", re.compile(r"lost \d+"))


# Faults


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_worker_dies_with_its_claim_and_its_seat_goes_on(
    orch_queue: Any, orch_fire: Any, orch_faults: Any, runner: str
) -> None:
    for number in range(4):
        orch_queue.add("nothing", key=f"n{number}")
    orch_faults.dies("n1")
    fired = orch_fire({"nothing": nothing}, runner=runner, limits=replace(SOON, max_pool=1))
    assert_note(fired, "during task 2")
    assert_states(orch_queue, done=3, retry_pending=1)
    orch_fire({"nothing": nothing}, runner=runner, limits=SOON)
    assert_drained(orch_queue)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_late_finish_changes_nothing(orch_queue: Any, orch_fire: Any, orch_faults: Any, runner: str) -> None:
    orch_queue.work("nothing", timeout=600)(nothing)
    orch_queue.add("nothing")
    orch_faults.late("nothing")
    orch_fire(runner=runner, limits=SOON)
    assert_states(orch_queue, {1: "retry-pending"})
    orch_fire(runner=runner, limits=SOON)
    assert [(one.outcome, one.reason) for one in orch_queue.attempts(1)] == [
        ("crashed", "the claim was taken away by the test"),
        ("done", None),
    ]


@pytest.mark.parametrize("runner", IN_PROCESS)
def test_a_clock_that_jumps_ahead_ends_what_runs_and_one_that_jumps_back_does_not(
    orch_queue: Any, orch_fire: Any, orch_faults: Any, orch_clock: Any, runner: str
) -> None:
    orch_queue.add("nothing", timeout=60, key="ahead")
    orch_queue.add("nothing", timeout=60, key="back")
    orch_faults.clock_jumps("ahead", "2h")
    orch_faults.clock_jumps("back", "-1h")
    orch_fire({"nothing": nothing}, runner=runner, limits=Limits(max_pool=1, wall_clock_minutes=600))
    assert orch_clock.now() == datetime.datetime(2030, 1, 1, 13, tzinfo=datetime.UTC)
    assert_states(orch_queue, {"ahead": "retry-pending", "back": "done"})


def test_without_a_clock_of_its_own_a_test_can_have_none_jump(orch_faults: Any) -> None:
    with pytest.raises(UsageError, match="take the fixture orch_clock too"):
        orch_faults.clock_jumps(1, 60)


def test_a_clock_of_worker_processes_cannot_jump(
    orch_queue: Any, orch_fire: Any, orch_faults: Any, orch_clock: Any
) -> None:
    orch_queue.add("nothing")
    orch_faults.clock_jumps(1, 60)
    with pytest.raises(UsageError, match="cannot jump"):
        orch_fire({"nothing": nothing}, runner="pool")
    orch_fire({"nothing": nothing})


@pytest.mark.parametrize("name", ["say", 1, "a key"])
def test_a_fault_that_cannot_reach_a_command_in_a_worker_process_is_refused(
    orch_queue: Any, orch_fire: Any, orch_faults: Any, name: int | str
) -> None:
    orch_queue.add("say", key="a key")
    project = replace(orch.project_of(orch_queue), modes={"say": Mode("say", command=("echo", "hello"))})
    orch_faults.dies(name)
    with pytest.raises(UsageError, match="the tasks of 'say' are done by a command"):
        orch_fire(project=project, runner="pool")
    orch_fire(project=project)
    assert_states(orch_queue, {1: "retry-pending"})


def test_a_sink_that_fails_keeps_the_note_for_the_next_sweep(
    orch_queue: Any, orch_fire: Any, orch_faults: Any, tmp_path: Path
) -> None:
    project = replace(orch.project_of(orch_queue), folder=str(tmp_path), sinks=["file:notes.md"])
    orch_faults.sink_fails("file:notes.md", "no room", times=2)
    orch_queue.add("nothing")
    fired = orch_fire({"nothing": nothing}, project=project)
    assert [posted.error for posted in fired.posted] == ["no room"]
    assert [posted.error for posted in orch.sweep(orch_queue, project).posted] == ["no room"]
    assert not (tmp_path / "notes.md").exists()
    assert [posted.error for posted in orch.sweep(orch_queue, project).posted] == [None]
    assert "Fire 1" in (tmp_path / "notes.md").read_text()


def test_an_alert_that_cannot_be_sent_is_tried_at_the_next_look(
    orch_queue: Any, orch_faults: Any, orch_clock: Any, tmp_path: Path
) -> None:
    guard = Guard(alerts=("file:alerts.md",))
    project = replace(orch.project_of(orch_queue), folder=str(tmp_path), guard=guard)
    orch_faults.sink_fails("file:alerts.md", times=1)
    undelivered = []
    for _ in range(12):
        orch_clock.advance("30m")
        watched = orch.watch(orch_queue, project)
        undelivered += watched.undelivered
    assert watched.state == "dark"
    assert undelivered == [("file:alerts.md", "out of order")]
    assert (tmp_path / "alerts.md").read_text().count("## Watchdog: dark") == 1


def test_a_fault_that_never_happened_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_it(orch_queue, orch_fire, orch_faults):\n"
        "    orch_queue.add('m')\n"
        "    orch_faults.dies('m', attempt=2)\n"
        "    orch_faults.sink_fails('file:notes.md')\n"
        "    orch_fire({'m': lambda task: None})\n"
    )
    ran = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    ran.assert_outcomes(passed=1, errors=1)
    ran.stdout.fnmatch_lines(
        ["*what was planned has not happened:*", "*task 'm' dies in attempt 2*", "*the sink 'file:notes.md' fails*"]
    )


def test_a_test_file_may_have_a_queue_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import orch, pytest\n"
        "from orch.testing import assert_drained, assert_states\n"
        "@pytest.fixture\n"
        "def orch_queue():\n"
        "    with orch.connect(':memory:') as queue:\n"
        "        yield queue\n"
        "def test_it(orch_queue, orch_fire, orch_faults):\n"
        "    orch_queue.add('m')\n"
        "    orch_queue.add('m')\n"
        "    orch_faults.dies(1)\n"
        "    orch_faults.late(2)\n"
        "    soon = orch.Limits(retries=orch.Retries(backoff_base_sec=0))\n"
        "    orch_fire({'m': lambda task: None}, limits=soon)\n"
        "    assert_states(orch_queue, retry_pending=2)\n"
        "    orch_fire({'m': lambda task: None}, limits=soon)\n"
        "    assert_drained(orch_queue)\n"
        "def test_cli(orch_cli):\n"
        "    pass\n"
    )
    ran = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    ran.assert_outcomes(passed=1, errors=1)
    ran.stdout.fnmatch_lines(["*orch_cli runs command lines on a queue in a file*"])


# The clock


def test_the_clock_stands_still_until_it_is_moved(orch_clock: Any) -> None:
    assert clock.stamp(clock.now()) == "2030-01-01T12:00:00.000000Z"
    orch_clock.advance(90)
    orch_clock.advance("1d12h")
    orch_clock.advance("-1h")
    orch_clock.advance(datetime.timedelta(minutes=-30))
    assert clock.stamp(clock.now()) == "2030-01-02T22:31:30.000000Z"
    orch_clock.set("2026-11-30T20:00")
    assert orch_clock.now() == clock.now() == datetime.datetime(2026, 11, 30, 20, tzinfo=datetime.UTC)
    with pytest.raises(UsageError, match="needs a time zone"):
        orch_clock.set(datetime.datetime(2026, 11, 30))


# The command line


def test_command_lines_run_here_and_on_the_queue_of_the_test(
    orch_queue: Any, orch_cli: Any, orch_fire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_CONFIG", "/nowhere/orch.toml")
    monkeypatch.setenv("ORCH_MAX_POOL", "0")
    before = dict(os.environ), os.getcwd(), sys.stdout
    assert orch_cli("add", "nothing", "n:=1").out == "1\n"
    assert orch_cli("add", "--from", "-", stdin='{"mode": "nothing"}\n', code=None).exit_code == 0
    assert orch_queue.task(1).payload == {"n": 1}
    orch_fire({"nothing": nothing})
    assert [task["state"] for task in orch_cli("list", "--json").data] == ["done", "done"]
    assert "done" in orch_cli("show", "1").out
    assert (dict(os.environ), os.getcwd(), sys.stdout) == before
    gone = orch_cli("show", "99", code=3)
    assert (gone.out, gone.err) == ("", "orch: no task has the id or key '99': see 'orch list'\n")
    with pytest.raises(AssertionError, match=r"'orch show 99' ended with 3 and not 0:\norch: no task"):
        orch_cli("show", "99")


def test_command_lines_find_the_settings_in_the_folder_of_the_test_and_follow_its_clock(
    orch_queue: Any, orch_cli: Any, orch_clock: Any, tmp_path: Path
) -> None:
    (tmp_path / "orch.toml").write_text('[modes.say]\ncommand = ["echo", "hello"]\n')
    orch_cli("add", "say", "--in", "2h")
    assert orch_queue.task(1).due_at == "2030-01-01T14:00:00.000000Z"
    refused = orch_cli("fire", code=2)
    assert "worker processes have the machine's clock" in refused.err


def test_a_fire_by_command_line_starts_real_workers(orch_queue: Any, orch_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "orch.toml").write_text('[modes.say]\ncommand = ["echo", "hello"]\n')
    orch_cli("add", "say")
    assert orch_cli("fire", "--json").data["ending"] == "passed"
    assert orch_queue.result(1) == "hello"


def test_what_a_fire_in_this_process_leaves_is_found_by_the_command_line(
    orch_queue: Any, orch_cli: Any, orch_fire: Any, orch_clock: Any
) -> None:
    orch_queue.add("say")
    orch_fire(project=replace(orch.project_of(orch_queue), modes={"say": Mode("say", command=("echo", "hello"))}))
    assert orch_cli("log", "1").out == "hello\n"
    orch_clock.advance("5h")
    orch.watch(orch_queue)
    assert orch_cli("status", "--json").data["watchdog"] == "dark"


# Agents


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_agent_gives_one_answer_after_the_other(
    orch_queue: Any, orch_agent: Any, orch_fire: Any, runner: str
) -> None:
    agent = orch_agent(
        "engineer",
        {"output": "42 words", "metrics": {"tokens": 1200, "cost": 0.5}},
        "I am not sure what to say.",
        {"status": "failure", "output": "no such file"},
    )
    for id in ("first", "second", "third"):
        order(orch_queue, id)
    fired = orch_fire(runner=runner, limits=Limits(max_pool=1))
    # The second one was asked again for its answer alone, which was the third.
    assert_states(orch_queue, {"first": "done", "second": "failed", "third": "failed"})
    assert_note(fired, "1,200")
    assert len(agent.orders) == 4
    assert "task_id: first" in agent.orders[0]


def test_a_judge_is_an_agent_too(orch_queue: Any, orch_agent: Any, orch_fire: Any) -> None:
    orch_agent("engineer", {"output": "42 words"}, gate=True)
    judge = orch_agent("quality-engineer", {"status": "failure", "output": "there are 43"})
    order(orch_queue)
    orch_fire()
    assert len(judge.orders) == 1
    assert orch_queue.task(1).state != "done"


def test_an_agent_may_break_down(orch_queue: Any, orch_agent: Any, orch_fire: Any) -> None:
    orch_agent("engineer", 3, {"output": "better now"}, timeout=60)
    order(orch_queue)
    orch_fire(limits=SOON)
    assert [attempt.exit_code for attempt in orch_queue.attempts(1)] == [3, 0]
    assert_states(orch_queue, {"t1": "done"})
