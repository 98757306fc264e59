"""Whole fires with real workers: what is drained, what is cut, and what the one note says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import World, eventually


def notes(world: World) -> list[str]:
    """The notes that reached the file, one text each."""
    path = world.folder / ".orch" / "notes.md"
    return path.read_text().split("<!-- note ")[1:] if path.exists() else []


def add_many(world: World, mode: str, count: int, payload: dict[str, object] | None = None) -> None:
    lines = "\n".join(json.dumps({"mode": mode, "payload": payload or {}}) for _ in range(count))
    world.orch("add", "--from", "-", stdin=lines)


def test_a_fire_drains_the_queue_and_writes_one_note(world: World) -> None:
    add_many(world, "ran", 30)
    add_many(world, "fail", 3, {"text": "no [luck] at :all:"})
    rollup = world.answer("fire")
    assert sorted(int(line.split()[0]) for line in world.lines("ran")) == list(range(1, 31))
    assert {tally["mode"]: (tally["done"], tally["failed"]) for tally in rollup["tallies"]} == {
        "ran": (30, 0),
        "fail": (0, 3),
    }
    [note] = notes(world)
    assert "30 done, 3 failed" in note
    assert "3 × ValueError: no [luck] at :all:" in note


def test_a_failure_does_not_end_its_worker(world: World) -> None:
    world.orch("add", "fail")
    add_many(world, "mixed", 3, {"do": "1"})
    world.orch("add", "mixed", "do=1/0")
    add_many(world, "mixed", 3, {"do": "1"})
    world.orch("fire", "--max-pool", "2")
    assert sorted(world.states().values()) == ["done"] * 6 + ["failed"] * 2
    assert len({line.split()[1] for line in world.lines("ran")}) == 1


def test_a_mode_that_retries_failures_tries_as_often_as_the_limit_says(world: World) -> None:
    world.settings("", modes='[modes.again]\nfunction = "work:fail"\nretry_failures = true')
    world.orch("add", "again")
    world.orch("fire")
    assert world.queue.task(1).state == "failed"
    assert [attempt.outcome for attempt in world.queue.attempts(1)] == ["retry-pending", "retry-pending", "failed"]


def test_an_empty_queue_is_a_quiet_fire(world: World) -> None:
    world.orch("init")
    world.orch("fire")
    assert notes(world) == []
    assert len(world.answer("notes")) == 1, "it is stored, but not sent"
    assert world.answer("fires")[0]["ending"] == "idle"


def test_the_caps_cut_and_the_note_says_which(world: World) -> None:
    world.settings("", limits="task_cap = 5\nmax_pool = 2")
    add_many(world, "ran", 30)
    rollup = world.answer("fire")
    assert len(world.lines("ran")) == 10
    assert {cap for cap, _ in rollup["cuts"]} == {"max_pool", "task_cap"}
    [note] = notes(world)
    assert "max_pool: 2 of" in note
    assert "task_cap: ended 2 workers; 20 tasks left" in note
    assert len({line.split()[1] for line in world.lines("ran")}) <= 2


def test_a_task_of_an_unknown_mode_stays_and_is_named_and_holds_nobody_up(world: World) -> None:
    world.orch("add", "unheard-of", "--priority", "100")
    assert "no [modes.unheard-of]" in world.err
    world.orch("add", "ran")
    world.orch("fire")
    assert world.states() == {1: "incoming", 2: "done"}
    assert "mode unheard-of, which orch.toml does not name, has 1 task waiting" in notes(world)[0]


def test_a_mode_whose_function_cannot_be_loaded_loses_nothing(world: World) -> None:
    world.settings("", modes='[modes.broken]\nfunction = "work:nothing_of_that_name"')
    add_many(world, "broken", 3)
    world.orch("add", "ran")
    rollup = world.answer("fire")
    assert "nothing_of_that_name" in rollup["broken"]["broken"]
    assert sorted(world.states().values()) == ["done", "incoming", "incoming", "incoming"]
    assert "broken cannot work" in notes(world)[0]


def test_dependents_of_a_failed_or_unknown_task_wait_and_are_named(world: World) -> None:
    world.orch("add", "fail", "--key", "first")
    world.orch("add", "ran", "--after", "first")
    world.orch("add", "ran", "--after", "never")
    world.orch("fire")
    assert world.states() == {1: "failed", 2: "incoming", 3: "incoming"}
    note = notes(world)[0]
    assert "task 2 waits for first: task 1, which failed" in note
    assert "task 3 waits for never: which does not exist" in note


def test_a_dry_run_starts_nothing_and_writes_nothing(world: World) -> None:
    world.orch("init")
    add_many(world, "ran", 4)
    world.orch("add", "ran", "--in", "1h")

    def stands() -> object:
        events = world.queue.database._connection.execute("select count(*) from event").fetchall()  # type: ignore[attr-defined]
        return events, world.queue.tasks(), world.answer("fires"), sorted(os.listdir(world.folder / ".orch"))

    before = stands()
    plan = world.answer("fire", "--dry-run")["plan"]
    assert plan["granted"] == {"ran": 4}
    assert stands() == before
    assert world.lines("ran") == []


def test_a_not_now_is_not_tried_again_in_the_same_fire(world: World) -> None:
    world.settings(
        "", limits="not_now_delay = 0", modes='[modes.later]\ncommand = ["sh", "-c", "echo busy upstream; exit 75"]'
    )
    world.orch("add", "later")
    world.orch("add", "later")
    world.orch("fire")
    assert [(task.state, task.attempts, task.retry_count) for task in world.queue.tasks()] == [("incoming", 1, 0)] * 2
    world.orch("fire")
    assert [task.attempts for task in world.queue.tasks()] == [2, 2]
    assert world.queue.attempts(1)[-1].reason == "not now: busy upstream"


# Commands


def test_a_command_gets_its_words_its_input_its_environment_and_its_folder(world: World) -> None:
    show = (
        "import json, os, sys; marks = {k: v for k, v in os.environ.items() if k.startswith('ORCH_')};"
        "print(json.dumps([sys.argv[1:], json.load(sys.stdin), os.getcwd(), marks]))"
    )
    command = json.dumps(
        [sys.executable, "-c", show.replace("{", "{{").replace("}", "}}"), "{path}", "a{n}b", "{{}}", "{flag}"]
    )
    world.settings("", modes=f"[modes.show]\ncommand = {command}")
    world.orch("add", "show", "path=a b; $HOME *", "n:=18446744073709551616", "flag:=true")
    world.orch("fire")
    result = json.loads(world.queue.attempts(1)[0].result or "")
    words, task, folder, environment = result
    assert words == ["a b; $HOME *", "a18446744073709551616b", "{}", "true"]
    assert task["payload"] == {"path": "a b; $HOME *", "n": 18446744073709551616, "flag": True}
    assert (task["id"], task["attempt"]) == (1, 1)
    assert Path(folder) == world.folder
    assert environment["ORCH_TASK_ID"] == environment["ORCH_CLAIM"] == environment["ORCH_FIRE"] == "1"
    assert environment["ORCH_DB"] == world.database
    assert environment["ORCH_WORKER"]


def test_a_command_added_by_its_words_is_run_with_exactly_these(world: World) -> None:
    code = "import sys; print(sys.argv[1:])"
    words = ["a b", "*", "$HOME", "it's", ""]
    world.orch("add", "--cmd", "--", sys.executable, "-c", code, *words)
    world.orch("fire")
    assert world.orch("log", "1") == f"{words}\n"


@pytest.mark.parametrize(
    ("script", "state", "told"),
    [
        ("exit 0", "done", None),
        ("echo oops >&2; exit 3", "failed", "exit 3: oops"),
        ("kill -9 $$", "failed", "killed by SIGKILL"),
        ("echo 7", "done", None),
    ],
)
def test_the_exit_code_decides_what_a_command_came_to(world: World, script: str, state: str, told: str | None) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", script)
    world.orch("fire")
    [attempt] = world.queue.attempts(1)
    assert (world.queue.task(1).state, attempt.error) == (state, told)


def test_the_output_of_a_command_is_its_result_as_json_where_it_is_json(world: World) -> None:
    for script in ("echo '{\"n\": 1.10}'", "echo plain text", "true", "echo NaN", "printf 'caf\\303\\251 \\377'"):
        world.orch("add", "--cmd", "--", "sh", "-c", script)
    world.orch("fire")
    results = [world.queue.attempts(id)[0].result for id in range(1, 6)]
    assert results == ['{"n": 1.10}', '"plain text"', None, '"NaN"', '"café �"']


def test_a_program_that_is_not_there_is_named_with_the_path_that_was_searched(world: World) -> None:
    world.orch("add", "--cmd", "--", "no-such-agent")
    world.orch("fire", env={"PATH": "/usr/bin:/bin"})
    assert world.queue.attempts(1)[0].error == "no program 'no-such-agent' on PATH=/usr/bin:/bin"


def test_a_command_past_its_timeout_is_ended_with_its_group_and_goes_up_the_retry_ladder(world: World) -> None:
    world.orch("add", "--cmd", "--timeout", "0.5", "--", "sh", "-c", "sleep 1000 & echo started; sleep 1000")
    for _ in range(3):
        world.orch("fire")
    assert (world.queue.task(1).state, world.queue.task(1).attempts) == ("failed", 3)
    assert [attempt.reason for attempt in world.queue.attempts(1)] == ["timeout"] * 3
    assert world.orch("log", "1") == "started\n", "what it wrote before is kept"
    assert not running("sleep 1000")


def test_a_command_that_leaves_a_process_with_the_pipe_open_is_done_at_once(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "sleep 1001 & echo RESULT")
    world.orch("fire", limit=30)
    assert json.loads(world.queue.attempts(1)[0].result or "") == "RESULT"
    assert not running("sleep 1001")


def test_a_chatty_command_is_kept_at_both_ends_up_to_the_cap(world: World) -> None:
    world.settings("", limits="output_cap = 4096")
    world.orch(
        "add",
        "--cmd",
        "--",
        "sh",
        "-c",
        "echo begin; yes 0123456789 | head -c 3000000; echo end; yes err | head -c 3000000 >&2",
    )
    world.orch("fire")
    kept = world.orch("log", "1")
    assert kept.startswith("begin\n")
    assert kept.endswith("end\n")
    assert "[cut: 3000010 bytes in all]" in kept
    assert len(kept) < 5000
    assert len(world.orch("log", "1", "--err")) < 5000


def test_what_a_function_prints_is_its_output_and_not_the_fires(world: World) -> None:
    world.orch("add", "chatty")
    world.orch("add", "chatty")
    told = world.orch("fire")
    assert "hello from" not in told + world.err
    assert world.orch("log", "2") == "hello from 2\nand an error\n"


# Ways to end that are not exceptions


@pytest.mark.full
def test_whatever_way_a_function_ends_it_comes_to_an_outcome(world: World) -> None:
    ways = [
        "sys.exit(0)",
        "sys.exit('bye')",
        "(_ for _ in ()).throw(KeyboardInterrupt)",
        "os._exit(0)",
        "os.abort()",
        "'good'",
    ]
    for way in ways:
        world.orch("add", "mixed", f"do={way}")
    world.settings("", retry="retry_max_attempts = 1")
    rollup = world.answer("fire")
    assert [world.states()[id] for id in range(1, 7)] == ["failed"] * 5 + ["done"]
    errors = [world.queue.attempts(id)[0].error for id in range(1, 4)]
    assert errors == ["SystemExit: 0", "SystemExit: bye", "KeyboardInterrupt"]
    assert "exited with 0" in (world.queue.task(4).reason or "")
    assert "killed by signal 6" in (world.queue.task(5).reason or "")
    assert len(rollup["missing"]) == 2
    assert len(notes(world)) == 1


def test_results_that_json_cannot_hold_are_failures_that_say_so(world: World) -> None:
    for value in ("float('nan')", "{1, 2}", "b'x'", "object()", "{'n': 2**64}"):
        world.orch("add", "mixed", f"do={value}")
    world.orch("fire")
    assert [world.states()[id] for id in range(1, 6)] == ["failed"] * 4 + ["done"]
    assert all("result is not JSON" in (world.queue.attempts(id)[0].error or "") for id in range(1, 5))
    assert json.loads(world.queue.attempts(5)[0].result or "") == {"n": 2**64}


def test_a_worker_that_is_killed_costs_its_task_one_try_and_the_others_nothing(world: World) -> None:
    world.orch("add", "die")
    add_many(world, "ran", 3)
    rollup = world.answer("fire", "--max-pool", "2")
    assert [world.states()[id] for id in (2, 3, 4)] == ["done"] * 3
    assert (world.queue.task(1).state, world.queue.task(1).attempts) == ("retry-pending", 1)
    assert "killed by signal 9 during task 1" in rollup["missing"][0]
    assert len(notes(world)) == 1


def test_a_task_that_kills_its_worker_is_started_as_often_as_the_limit_says(world: World) -> None:
    world.orch("add", "die", "--priority", "9")
    for _ in range(5):
        world.orch("add", "mixed", "do=1")
    world.settings("", modes='[modes.poison]\nfunction = "work:die"')
    for turn in range(6):
        world.orch("fire")
        world.orch("sweep")
        if turn == 0:
            assert [world.states()[id] for id in range(2, 7)] == ["done"] * 5
    assert world.lines("died") == ["1", "1", "1"]
    assert world.queue.task(1).state == "failed"
    assert "3 of 3 starts" in (world.queue.task(1).reason or "")
    assert sum("failed for good" in note for note in notes(world)) == 1


@pytest.mark.full
def test_a_poison_task_in_the_only_seat_does_not_keep_the_others_from_it(world: World) -> None:
    world.orch("add", "mixed", "do=os.kill(os.getpid(), 9)", "--priority", "9")
    for _ in range(5):
        world.orch("add", "mixed", "do=1")
    world.orch("fire", "--max-pool", "1")
    assert [world.states()[id] for id in range(2, 7)] == ["done"] * 5


def test_a_function_past_its_timeout_is_ended_by_the_parent(world: World) -> None:
    world.settings("", modes='[modes.slow]\nfunction = "work:wait_for"\ntimeout = 0.5')
    world.orch("add", "slow", "file=never")
    world.orch("add", "ran")
    world.orch("fire")
    assert world.queue.attempts(1)[0].reason == "timeout"
    assert world.states() == {1: "retry-pending", 2: "done"}
    assert "timeout" in notes(world)[0]


def test_the_wall_clock_ends_a_worker_and_counts_a_try_only_against_its_only_task(world: World) -> None:
    world.settings("", limits="wall_clock_minutes = 0.03")
    world.orch("add", "wait_for", "file=never")
    world.orch("add", "mixed", "do=1")
    world.orch("add", "mixed", "do=time.sleep(1000)")
    world.orch("fire", "--max-pool", "2")
    assert (world.queue.task(1).state, world.queue.task(1).retry_count) == ("retry-pending", 1)
    assert world.queue.task(2).state == "done"
    assert (world.queue.task(3).state, world.queue.task(3).retry_count) == ("incoming", 0)
    assert "wall_clock" in notes(world)[0]


def running(command: str) -> list[str]:
    """Processes of that very command line."""
    ran = subprocess.run(["pgrep", "-fx", command], capture_output=True, text=True)
    return ran.stdout.split()


# Two fires, and the cap of a day


def test_a_second_fire_is_refused_while_one_runs_and_costs_nothing(world: World) -> None:
    world.orch("add", "wait_for", "file=go")
    first = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    world.orch("fire", code=4)
    assert f"fire 1 is running (pid {first.pid}" in world.err
    (world.folder / "go").touch()
    assert first.wait(60) == 0
    assert len(world.answer("fires")) == 1
    assert len(notes(world)) == 1


def test_of_five_fires_at_once_with_one_left_exactly_one_runs(world: World) -> None:
    world.orch("init")
    world.settings("", limits="", retry="")
    text = (world.folder / "orch.toml").read_text().replace("daily_fires = 1000", "daily_fires = 2")
    (world.folder / "orch.toml").write_text(text)
    world.orch("fire")
    world.orch("add", "wait_for", "file=go")
    fires = [world.start("fire") for _ in range(5)]
    eventually(lambda: sum(fire.poll() is not None for fire in fires) == 4, "four refusals")
    (world.folder / "go").touch()
    codes = sorted(fire.wait(60) for fire in fires)
    assert codes[0] == 0
    assert set(codes[1:]) <= {4, 5}
    world.orch("fire", code=5)
    assert "the cap of 2 fires a day is reached" in world.err
    assert "resets at" in world.err
    world.orch("fire", "--ok", "4,5", "-q")
    assert len(world.answer("fires")) == 2


def test_a_fire_is_refused_when_everything_is_paused(world: World) -> None:
    world.orch("add", "ran")
    world.orch("pause", "--all")
    world.orch("fire", code=5)
    world.orch("resume", "--all")
    world.orch("fire")
    assert world.states() == {1: "done"}


def test_a_process_that_a_task_left_behind_does_not_lock_the_next_fire_out(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "setsid sleep 1002 >/dev/null 2>&1 & exit 0")
    world.orch("fire")
    world.orch("add", "ran")
    world.orch("fire")
    assert world.states() == {1: "done", 2: "done"}
    subprocess.run(["pkill", "-fx", "sleep 1002"], check=False)


@pytest.mark.full
def test_exit_status_tells_of_failures_only_when_asked(world: World) -> None:
    world.orch("add", "fail")
    world.orch("fire")
    world.orch("add", "fail")
    world.orch("fire", "--exit-status", code=6)


@pytest.mark.full
def test_a_fire_under_cron_is_silent_and_survives_its_poor_environment(world: World) -> None:
    world.orch("add", "--cmd", "--", "printf", "naïve → ✓ 日本")
    world.orch("add", "fail", "text=naïve → ✓ 日本")
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": "/usr/bin:/bin"}
    config = str(world.folder / "orch.toml")
    for words in (["fire", "-q"], ["status"], ["list"], ["notes"], ["show", "2"], ["sweep"], ["fires"]):
        ran = subprocess.run(
            [*world.words(*words), "--config", config],
            cwd="/",
            env=poor,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        assert (ran.returncode, ran.stderr) == (0, b""), words
        assert b"\x1b" not in ran.stdout
        ran.stdout.decode("ascii")
        assert (ran.stdout == b"") == (words == ["fire", "-q"])


# Signals


@pytest.mark.parametrize("words", [["fire"], ["poll"]])
def test_under_nohup_it_goes_on_when_its_terminal_is_gone(world: World, words: list[str]) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "echo >> ran; while [ ! -e go ]; do sleep 0.01; done")
    fire = world.start(*words, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    eventually(lambda: world.lines("ran"), "the task's start")
    fire.send_signal(signal.SIGHUP)
    (world.folder / "go").touch()
    assert fire.wait(60) == 0
    assert world.states() == {1: "done"}


@pytest.mark.parametrize(
    "signum", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.full) for each in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_fire_that_is_asked_to_stop_gives_back_what_runs_and_writes_its_note(world: World, signum: int) -> None:
    world.orch("add", "wait_for", "file=never")
    world.orch("add", "--cmd", "--", "sh", "-c", "echo >> ran; exec sleep 1003")
    # These tests may themselves be run under nohup.
    fire = world.start("fire", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    eventually(lambda: len(world.lines("ran")) == 2, "both tasks' start")
    fire.send_signal(signum)
    assert fire.wait(60) == 128 + signum
    assert not running("sleep 1003")
    assert [(task.state, task.retry_count) for task in world.queue.tasks()] == [("incoming", 0)] * 2
    [note] = notes(world)
    assert "stopped" in note
    assert world.answer("fires")[0]["ending"] == "stopped"
    assert world.queue.ledger.present() == []
