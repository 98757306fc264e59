"""Polls: drained as tasks come, asleep while none do, and awake in time whatever it is that comes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from orch import polls
from orch.errors import Held
from orch.fire_records import Fire
from tests.conftest import World, eventually
from tests.scenarios.test_agents import SCRIPTED, agents, delegate, reason
from tests.scenarios.test_fire import notes, running
from tests.scenarios.test_folders import drop, files, keys, loaded, order

FULL = pytest.mark.full
PATIENT = "poll_interval_idle = 600\nidle_sleep_sec = 600"
# The system has no more of what tells of changes.
DEAF = """
import inotify_simple, sys
def none(*args, **more):
    raise OSError(24, "Too many open files")
inotify_simple.INotify = none
from orch.__main__ import main
main()
"""


def add_many(world: World, mode: str, count: int, payload: dict[str, object] | None = None, **more: Any) -> None:
    with world.queue.transaction():
        for _ in range(count):
            world.queue.add(mode, payload or {}, **more)


def forever(world: World, *words: str, program: list[str] | None = None) -> subprocess.Popen[bytes]:
    """A poll that goes on for ever and has begun; its lines go to a file."""
    command = [*(program or [sys.executable, "-m", "orch"]), "poll", "--forever", "--json", *words]
    with open(world.folder / "rounds", "ab") as out, open(world.folder / "errors", "ab") as err:
        process = subprocess.Popen(command, cwd=world.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    world.started.append(process)
    eventually(lambda: polling(world, process.pid), "the poll's beginning")
    return process


def polling(world: World, pid: int | None = None) -> Fire | None:
    return next((one for one in world.queue.ledger.fires_open() if one.kind == "poll" and pid in (None, one.pid)), None)


def rounds(world: World) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in world.lines("rounds") if '"type": "round"' in line]
    return [one["data"] for one in told]


def cpu(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def at_rest(pid: int) -> None:
    """Wait until a process sleeps, and goes on sleeping."""

    def rests() -> bool:
        before = cpu(pid)
        time.sleep(0.15)
        return cpu(pid) == before

    eventually(rests, "the poll's sleep")


def end(process: subprocess.Popen[bytes], signum: int = signal.SIGTERM) -> int:
    process.send_signal(signum)
    return process.wait(60)


# Until idle


def test_a_poll_drains_rows_and_dropped_files_until_it_is_idle_and_ends_with_one_note(world: World) -> None:
    agents(world)
    add_many(world, "ran", 30)
    add_many(world, "ran", 1, delay=1)
    add_many(world, "ran", 1, delay=3600)
    drop(world, "x.yaml", order())
    rollup = world.answer("poll")
    assert {tally["mode"]: tally["done"] for tally in rollup["tallies"]} == {"ran": 31, "engineer": 1}
    assert [task.state for task in world.queue.tasks(limit=100) if task.state != "done"] == ["incoming"]
    assert "done/t1-HANDBACK.yaml" in files(world)
    [note] = notes(world)
    assert "32 done" in note
    assert world.queue.ledger.fires_open() == []


@FULL
def test_a_poll_is_no_fire_for_the_caps_of_the_day_nor_for_the_watchdog(world: World) -> None:
    world.settings("[watchdog]\nexpected_interval_hours = 0.0001\ngrace_minutes = 0")
    text = (world.folder / "orch.toml").read_text()
    (world.folder / "orch.toml").write_text(text.replace("daily_fires = 1000", "daily_fires = 0"))
    world.orch("add", "ran")
    world.orch("fire", code=5)
    world.orch("poll")
    assert world.states() == {1: "done"}
    world.orch("watchdog", code=7)
    assert world.answer("fires")[0]["kind"] == "poll"


@FULL
def test_what_crashes_or_fails_for_a_while_is_tried_again_in_the_same_poll(world: World) -> None:
    agents(world, retry="retry_max_attempts = 3")
    first = "open(ID, 'x') and {} if not os.path.exists(ID) else say(answer('success'))"
    delegate(world, first.format("os.kill(os.getppid(), 9)"), "t1")
    delegate(world, first.format("sys.exit(3)"), "t2")
    world.orch("poll")
    assert keys(world) == {"t1": "done", "t2": "done"}, reason(world)


def test_a_worker_that_dies_after_others_have_come_and_gone_takes_nobody_with_it(world: World) -> None:
    agents(world, retry="retry_max_attempts = 3")
    process = forever(world)
    add_many(world, "ok", 1)
    eventually(lambda: world.states() == {1: "done"}, "the first drain")
    add_many(world, "die", 1)
    eventually(lambda: world.queue.task(2).state == "failed", "the last of its tries")
    assert world.lines("died") == ["2"] * 3
    add_many(world, "ok", 1)
    eventually(lambda: world.queue.task(3).state == "done", "the drain after it")
    end(process)
    assert [line for line in world.lines("errors") if "stopped by SIGTERM" not in line] == []


@FULL
def test_a_poll_of_nothing_ends_at_once_and_says_nothing(world: World) -> None:
    assert world.queue.tasks() == []
    assert world.answer("poll")["tallies"] == []
    assert notes(world) == []
    world.orch("pause", "--all")
    world.orch("poll", code=5)
    assert "orch resume --all" in world.err


# For ever


def test_a_sleeping_poll_is_woken_by_a_file_a_row_the_time_and_a_signal(world: World) -> None:
    agents(world, retry=PATIENT)
    process = forever(world)
    at_rest(process.pid)
    drop(world, "x.yaml", order())
    eventually(lambda: keys(world) == {"t1": "done"}, "the dropped task")
    eventually(lambda: rounds(world), "its line")
    assert rounds(world)[0]["reason"] == "file_event"
    at_rest(process.pid)
    world.queue.add("ran", {})
    eventually(lambda: world.queue.task(2).state == "done", "the added task")
    at_rest(process.pid)
    add_many(world, "ran", 1, delay=1)
    eventually(lambda: world.queue.task(3).state == "done", "the delayed task")
    # For a role that nobody has, so that nothing but the folders shows that somebody has looked.
    for id, wake in (("t2", lambda: world.orch("wake")), ("t3", lambda: process.send_signal(signal.SIGUSR1))):
        at_rest(process.pid)
        delegate(world, "pass", id, "lead-engineer")
        at_rest(process.pid)
        assert f"incoming/{id}.yaml" not in files(world)
        wake()
        eventually(lambda: f"incoming/{id}.yaml" in files(world), "the look", 10)  # noqa: B023
    with pytest.raises(Held, match=f"poll 1 is running \\(pid {process.pid} "):
        polls.poll(world.queue, loaded(world))
    assert end(process) == 128 + signal.SIGTERM
    assert [one["done"] for one in rounds(world)] == [1, 1, 1]
    [closed] = world.queue.ledger.fires()
    assert closed.ending == "stopped"
    world.orch("wake", code=3)
    assert "orch poll --forever" in world.err


@FULL
def test_without_anything_that_tells_of_changes_the_poll_looks_for_them_and_says_so(world: World) -> None:
    agents(world, retry=PATIENT)
    process = forever(world, program=[sys.executable, "-c", DEAF])
    at_rest(process.pid)
    incoming = world.folder / ".orch" / "queue" / "incoming"
    drop(world, "x.yaml", order())
    eventually(lambda: keys(world) == {"t1": "done"}, "the dropped task")
    # As many files as before.
    (incoming / "a.txt").write_text("")
    at_rest(process.pid)
    (incoming / "a.txt").unlink()
    drop(world, "y.yaml", order("t2"))
    eventually(lambda: keys(world).get("t2") == "done", "the other one")
    world.orch("add", "ran")
    eventually(lambda: world.queue.task(3).state == "done", "the added task")
    [warning] = [line for line in world.lines("errors") if "inotify" in line]
    assert warning.startswith("orch: note: ")
    end(process)


@FULL
def test_a_poll_looks_by_itself_when_its_interval_is_over(world: World) -> None:
    agents(world, retry="poll_interval_idle = 0.5\nidle_threshold_polls = 2\nidle_sleep_sec = 0.7")
    process = forever(world)
    for n in range(1, 5):
        delegate(world, "pass", f"t{n}", "lead-engineer")
        eventually(lambda: f"incoming/t{n}.yaml" in files(world), "the look", 20)  # noqa: B023
    end(process)


def test_no_file_that_is_dropped_at_any_moment_is_slept_over(world: World) -> None:
    agents(world, retry=PATIENT)
    process = forever(world)
    incoming = world.folder / ".orch" / "queue" / "incoming"
    seed = random.Random(7)
    for n in range(40):
        drop(world, f"t{n}.yaml", order(f"t{n}", role="lead-engineer"))
        time.sleep(seed.uniform(0, 0.05))
        if n % 10 == 9:
            eventually(lambda: len(world.queue.tasks(limit=100)) == n + 1, "the last files", 10)  # noqa: B023
    # The folder is made anew.
    incoming.rename(world.folder / "away")
    incoming.mkdir()
    at_rest(process.pid)
    drop(world, "last.yaml", order("last", role="lead-engineer"))
    eventually(lambda: "last" in keys(world), "the file in the new folder", 10)
    end(process)


@FULL
def test_a_burst_of_files_that_nobody_could_be_told_of_is_taken_whole(world: World) -> None:
    agents(world, retry=PATIENT)
    process = forever(world)
    at_rest(process.pid)
    process.send_signal(signal.SIGSTOP)
    for n in range(20_000):
        drop(world, f"t{n}.yaml", order(f"t{n}", role="lead-engineer"))
    process.send_signal(signal.SIGCONT)
    eventually(lambda: len(world.queue.tasks(limit=10**5)) == 20_000, "all of them", 110)
    end(process)


@FULL
def test_a_file_that_is_held_open_is_waited_for_without_haste(world: World) -> None:
    agents(world, retry=PATIENT)
    process = forever(world)
    path = drop(world, "t1.yaml", "")
    with open(path, "w") as file:
        file.write(order())
        file.flush()
        before = cpu(process.pid)
        time.sleep(2)
        assert cpu(process.pid) - before < 0.5
        assert keys(world) == {}
    eventually(lambda: keys(world) == {"t1": "done"}, "the file that is whole now")
    end(process)


def test_a_poll_that_has_nothing_to_do_costs_next_to_nothing(world: World) -> None:
    agents(world)
    add_many(world, "ok", 200)
    process = forever(world)
    eventually(lambda: set(world.states().values()) == {"done"})
    at_rest(process.pid)
    before, moves = cpu(process.pid), switches(process.pid)
    time.sleep(1.5)
    assert cpu(process.pid) - before <= 0.05
    assert switches(process.pid) - moves < 100
    end(process)


# Modes that cannot work, and caps


def workers(world: World) -> int:
    with closing(apsw.Connection(world.database)) as database:
        return int(next(database.execute("select count(*) from worker"))[0])


@pytest.mark.full
def test_a_mode_whose_program_is_missing_is_no_reason_to_hurry(world: World) -> None:
    agents(world, retry=PATIENT)
    with open(world.folder / "orch.toml", "a") as file:
        file.write('[agents.lead-engineer]\ncommand = ["no-such-agent"]\n')
    delegate(world, "pass", "t1", "lead-engineer")
    process = forever(world)
    eventually(lambda: workers(world) == 1, "the worker that cannot begin")
    at_rest(process.pid)
    delegate(world, "say(answer('success'))", "t2")
    eventually(lambda: keys(world).get("t2") == "done", "the other mode's task")
    at_rest(process.pid)
    seen = workers(world)
    time.sleep(1.5)
    assert workers(world) == seen == 2
    assert end(process) == 128 + signal.SIGTERM
    assert "no-such-agent" in notes(world)[0]
    assert keys(world)["t1"] == "incoming"


def test_a_poll_and_a_fire_share_the_pool_and_neither_hurries_while_it_is_full(world: World) -> None:
    world.settings("", limits="max_pool = 2", retry=PATIENT)
    add_many(world, "wait_for", 4, {"file": "go"})
    fire = world.start("fire")
    eventually(lambda: len(world.lines("ran")) == 2, "two tasks at work")
    process = forever(world)
    at_rest(process.pid)
    before = cpu(process.pid)
    time.sleep(1.5)
    assert cpu(process.pid) - before < 0.4
    assert len(world.queue.owned()) == 2
    assert len([one for one in world.queue.ledger.present() if one.fire]) == 2
    (world.folder / "go").write_text("")
    eventually(lambda: set(world.states().values()) == {"done"}, "all tasks")
    assert fire.wait(60) == 0
    end(process)


@FULL
def test_what_comes_while_the_pool_of_a_poll_is_full_is_left_by_a_fire_and_done_in_the_end(world: World) -> None:
    world.settings("", limits="max_pool = 2")
    add_many(world, "wait_for", 2, {"file": "go"})
    process = world.start("poll")
    eventually(lambda: len(world.queue.owned()) == 2, "two tasks at work")
    world.orch("add", "ran")
    world.orch("fire")
    assert world.queue.task(3).state == "incoming"
    (world.folder / "go").write_text("")
    assert process.wait(60) == 0
    assert set(world.states().values()) == {"done"}


@FULL
def test_a_budget_that_is_spent_ends_the_poll_and_lets_the_one_that_goes_on_sleep(world: World) -> None:
    world.settings("", limits="fire_tokens = 100\nmax_pool = 1", retry=PATIENT)
    add_many(world, "mixed", 5, {"do": "{'metrics': {'tokens': 60}}"})
    world.orch("poll")
    assert sorted(world.states().values()) == ["done"] * 2 + ["incoming"] * 3
    assert "fire_tokens" in notes(world)[0]
    process = forever(world, "--quiet")
    eventually(lambda: list(world.states().values()).count("done") >= 4, "two more")
    at_rest(process.pid)
    end(process)
    assert "incoming" in world.states().values()


# Its end


@pytest.mark.parametrize("signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=FULL)])
def test_a_poll_that_is_stopped_gives_back_what_runs_and_writes_its_note(world: World, signum: int) -> None:
    agents(world)
    delegate(world, "open('begun', 'w'); time.sleep(2000)")
    process = world.start("poll")
    eventually(lambda: (world.folder / "begun").exists(), "the agent's start")
    assert end(process, signum) == 128 + signum
    assert keys(world) == {"t1": "incoming"}
    assert world.queue.task(1).retry_count == 0
    assert files(world) == ["incoming/t1.meta.json", "incoming/t1.yaml"]
    assert len(notes(world)) == 1
    assert not running(str(SCRIPTED))


@FULL
def test_a_second_poll_is_refused_and_says_which_one_runs(world: World) -> None:
    assert world.queue.tasks() == []
    process = forever(world)
    world.orch("poll", code=4)
    assert f"poll 1 is running (pid {process.pid}" in world.err
    assert end(process, signal.SIGINT) == 128 + signal.SIGINT


@FULL
def test_a_poll_that_was_killed_is_closed_by_the_next_one_and_its_task_done_again(world: World) -> None:
    agents(world, retry="retry_max_attempts = 3")
    once = "open('begun', 'w') and time.sleep(2000) if not os.path.exists('begun') else say(answer('success'))"
    delegate(world, once)
    process = forever(world)
    eventually(lambda: (world.folder / "begun").exists(), "the agent's start")
    end(process, signal.SIGKILL)
    world.orch("wake", code=3)
    world.orch("poll")
    assert keys(world) == {"t1": "done"}, reason(world)
    assert [one["ending"] for one in world.answer("fires")] == ["passed", "died"]
    assert len(notes(world)) == 2
    assert not running(str(SCRIPTED))


def test_a_signal_to_wake_never_ends_a_poll_nor_its_agent(world: World) -> None:
    agents(world, retry=PATIENT)
    delegate(world, "time.sleep(0.7); say(answer('success'))")
    with open(world.folder / "rounds", "ab") as out:
        process = world.start("poll", "--forever", stdout=out)
    eventually(lambda: polling(world, process.pid), "the poll's row")
    seed = random.Random(46)
    while keys(world) != {"t1": "done"}:
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGUSR1)
        time.sleep(seed.uniform(0, 0.02))
    assert world.queue.task(1).attempts == 1
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.005)
    assert process.returncode == 128 + signal.SIGTERM


THREADED = """
import sys, threading
from orch import place, polls, settings
from orch.queue import Queue

def run():
    project = settings.load(place.locate())
    with Queue.open(project.database, by="poll") as queue:
        polls.poll(queue, project, forever=True)

if __name__ == "__main__":
    threading.Thread(target=run, daemon=True).start()
    sys.stdin.read()
"""


@FULL
def test_a_poll_in_a_thread_works_without_signals_and_is_woken_all_the_same(world: World) -> None:
    agents(world, retry=PATIENT)
    assert world.queue.tasks() == []
    (world.folder / "threaded.py").write_text(THREADED)
    process = subprocess.Popen([sys.executable, "threaded.py"], cwd=world.folder, stdin=subprocess.PIPE)
    world.started.append(process)
    eventually(lambda: polling(world), "the poll's beginning")
    drop(world, "x.yaml", order())
    eventually(lambda: keys(world) == {"t1": "done"}, "the dropped task")
    at_rest(process.pid)
    delegate(world, "pass", "t2", "lead-engineer")
    world.orch("wake")
    eventually(lambda: "incoming/t2.yaml" in files(world), "the look", 10)
    assert process.poll() is None
