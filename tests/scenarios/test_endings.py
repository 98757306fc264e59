"""Unkind endings: whoever dies or is stopped, no task is blamed for it and none is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from freezegun import freeze_time

from orch import clock, processes
from orch.barrier import Barrier
from orch.errors import Conflict, UsageError
from orch.limits import Limits
from orch.modes import Mode
from orch.outcomes import NotNow
from orch.place import locate
from orch.project import Project
from orch.queue import Queue
from orch.records import NewTask
from orch.settings import load
from orch.stops import cancel
from tests.conftest import World, eventually
from tests.scenarios.test_fire import add_many, notes, running
from tests.scenarios.test_recovery import replaced, workers_of

SLEEP = "echo >> ran; exec sleep {}"
FUNCTION = "do=__import__('subprocess').run(['sleep', '{}'], check=True)"


def terminate_everybody(fire: subprocess.Popen[bytes]) -> None:
    """As a signal to all processes of a user does, the youngest first."""
    for process in reversed([psutil.Process(fire.pid), *workers_of(fire)]):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()


@pytest.mark.full
def test_a_killed_fire_does_not_let_its_workers_call_what_they_end_a_failure(world: World) -> None:
    for _ in range(2):
        world.orch("add", "--cmd", "--", "sh", "-c", SLEEP.format(1010))
        world.orch("add", "mixed", FUNCTION.format(1010))
    fire = world.start("fire")
    eventually(lambda: len(running("sleep 1010")) == 4, "every task's start")
    fire.kill()
    fire.wait()
    eventually(lambda: not running("sleep 1010"), "the commands' end")
    eventually(lambda: not any(processes.is_alive(w.process) for w in world.queue.ledger.present()), "the workers' end")
    assert set(world.states().values()) == {"processing"}
    world.orch("sweep")
    assert [(task.state, task.retry_count) for task in world.queue.tasks()] == [("incoming", 1)] * 4


def test_a_signal_to_everybody_at_once_gives_everything_back(world: World) -> None:
    for _ in range(2):
        world.orch("add", "--cmd", "--", "sh", "-c", SLEEP.format(1011))
    fire = world.start("fire")
    eventually(lambda: len(running("sleep 1011")) == 2, "every task's start")
    terminate_everybody(fire)
    assert fire.wait(60) == 128 + signal.SIGTERM
    assert [(task.state, task.retry_count) for task in world.queue.tasks()] == [("incoming", 0)] * 2


def test_what_a_child_took_behind_the_last_look_is_given_back(world: World) -> None:
    queue = world.queue
    queue.add("ok")
    gone = subprocess.Popen(["true"])
    late = processes.known_by(gone.pid, processes.started(gone.pid) or "")
    fire = queue.ledger.fire(queue.ledger.open_fire(processes.myself(), day="2026-11-30"))
    assert fire is not None
    until = clock.stamp(clock.after(clock.now(), 900))
    worker = queue.ledger.enrol(late, fire=fire.id, seat=1, mode="ok", task_cap=25, until=until)
    queue.claim("ok", worker=worker)
    gone.wait()
    project = Project(world.database, str(world.folder), str(world.folder / ".orch"), {})
    Barrier(queue, fire, project).settle()
    task = queue.task(1)
    assert (task.state, task.retry_count, task.reason) == ("incoming", 0, "stopped")
    assert queue.ledger.present() == []


# Whichever of the shell and its child gets the signal first, the script does not end well.
TRAPS = [
    "trap 'exit 1' TERM; sleep 1015 & wait; exit 1",
    pytest.param("trap '' TERM; sleep 1015; exit 1", marks=pytest.mark.full),
]


@pytest.mark.parametrize("script", TRAPS)
def test_a_command_that_traps_the_signal_to_everybody_is_given_back_too(world: World, script: str) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", script)
    fire = world.start("fire")
    eventually(lambda: running("sleep 1015"), "the task's start")
    terminate_everybody(fire)
    assert fire.wait(60) == 128 + signal.SIGTERM
    assert (world.queue.task(1).state, world.queue.task(1).retry_count) == ("incoming", 0)


def test_cancelling_several_is_all_or_none(queue: Queue) -> None:
    queue.add_many([NewTask("m"), NewTask("m")])
    queue.finish(queue.claim("m")[0])
    project = Project("", "", "", {})
    with pytest.raises(Conflict):
        cancel(queue, [2, 1], project)
    assert queue.task(2).state == "incoming"


def test_a_crashed_task_can_be_cancelled(queue: Queue) -> None:
    queue.add("m")
    queue.crash(queue.claim("m")[0], "gone")
    cancel(queue, [1], Project("", "", "", {}))
    assert (queue.task(1).state, queue.task(1).reason) == ("failed", "cancelled")


HOST = """
import multiprocessing, sys, time
from orch import Mode, Project, Queue, fire

def main():
    mine = multiprocessing.Process(target=time.sleep, args=(1000,))
    mine.start()
    with Queue.open("jobs.db", create=True) as queue:
        queue.add("say", {})
        fire(queue, Project("jobs.db", ".", "jobs.files", {"say": Mode("say", command=("true",))}))
    print(mine.is_alive())
    mine.kill()

if __name__ == "__main__":
    main()
"""


def test_a_fire_leaves_the_other_children_of_its_program_alone(tmp_path: Path) -> None:
    (tmp_path / "host.py").write_text(HOST)
    ran = subprocess.run([sys.executable, "host.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "True\n", ran.stderr


@pytest.mark.full
def test_a_worker_that_a_sweep_finds_dead_is_replaced_by_its_fire(world: World) -> None:
    world.orch("add", "wait_for", "file=go")
    for _ in range(3):
        world.orch("add", "wait_for", "file=go")
    fire = world.start("fire", "--max-pool", "1", "--json")
    eventually(lambda: world.lines("ran"), "the first task's start")
    fire.send_signal(signal.SIGSTOP)
    os.kill(int(world.lines("ran")[0].split()[1]), signal.SIGKILL)
    (world.folder / "go").touch()
    eventually(lambda: "missing worker" in world.orch("sweep"), "the sweep's find")
    fire.send_signal(signal.SIGCONT)
    assert fire.wait(60) == 0
    assert [world.states()[id] for id in (2, 3, 4)] == ["done"] * 3
    assert "found dead by a sweep" in notes(world)[0]


def test_expired_tasks_are_in_the_next_note(world: World) -> None:
    with freeze_time("2026-01-01"):
        world.queue.add("ok", delay=3600, ttl=1)
    world.orch("sweep")
    world.orch("fire")
    assert "1 task has expired" in notes(world)[0]


def test_a_task_named_in_two_ways_before_it_is_there_is_waited_for_once(queue: Queue) -> None:
    queue.add("m", after=["2", "k"])
    queue.add("m", key="k")
    [task] = queue.claim("m", batch=5)
    queue.finish(task)
    assert [task.id for task in queue.claim("m")] == [1]


@pytest.mark.full
def test_cancelling_one_task_after_the_other_hits_no_other_task(world: World) -> None:
    lines = '{"mode": "run", "payload": {"words": ["sleep", "0.1"]}}\n' * 40
    world.orch("add", "--from", "-", stdin=lines)
    fire = world.start("fire", "--max-pool", "2", "--task-cap", "100")
    cancelled = set()
    project = load(locate(config=str(world.folder / "orch.toml")))
    while fire.poll() is None:
        for task in [task for task in world.queue.owned() if task.id % 3 == 0]:
            with contextlib.suppress(Conflict):
                cancel(world.queue, [task.id], project)
                cancelled.add(task.id)
    assert {task.id for task in world.queue.tasks(limit=100) if task.reason == "cancelled"} == cancelled
    assert {state for id, state in world.states().items() if id not in cancelled} == {"done"}
    assert cancelled
    assert all(id % 3 == 0 for id in cancelled)


def test_a_function_that_is_through_with_a_cancelled_task_is_not_ended_at_its_next_one(queue: Queue) -> None:
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        process = replaced(pid=sleeper.pid, started=processes._started(sleeper.pid))
        worker = queue.ledger.enrol(process, until="2099-01-01T00:00:00.000000Z")
        queue.add_many([NewTask("m"), NewTask("m")])
        queue.claim("m", batch=2, worker=worker)
        project = Project("", "", "", {"m": Mode("m", function="x:y")}, limits=Limits(grace_sec=0.1))
        cancel(queue, [1], project)
        assert psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED, "it owns task 2: it goes on"
        cancel(queue, [2], project)
        assert sleeper.wait(10) == -signal.SIGTERM
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_not_now_that_comes_after_its_fire_was_closed_is_not_held_for_ever(queue: Queue) -> None:
    fire = queue.ledger.open_fire(processes.myself(), day="2026-11-30")
    queue.add_many([NewTask("m"), NewTask("m")])
    early, late = queue.claim("m", batch=2)
    queue.release(early, "not now", delay=0, fire=fire)
    assert queue.claim("m") == []
    queue.ledger.close_fire(fire, ending="died", rollup="{}")
    queue.release(late, "not now", delay=0, fire=fire)
    assert len(queue.claim("m", batch=5)) == 2


@pytest.mark.parametrize("retry_after", ["300", float("nan"), -1, True, float("inf")])
def test_a_not_now_with_a_senseless_time_is_a_failure_that_says_so(world: World, retry_after: object) -> None:
    with pytest.raises(ValueError, match="is not a number of seconds"):
        NotNow(retry_after=retry_after)  # type: ignore[arg-type]


@pytest.mark.full
def test_a_worker_whose_state_folder_cannot_be_written_gives_its_seat_up_at_once(world: World) -> None:
    world.orch("init")
    (world.folder / ".orch" / "output").touch()
    world.orch("add", "ok")
    world.orch("fire", limit=40, code=1)
    assert "ok cannot work: " in notes(world)[0]
    assert world.states() == {1: "incoming"}
    (world.folder / ".orch" / "output").unlink()
    world.orch("fire")
    assert world.states() == {1: "done"}


def test_text_that_no_database_can_hold_is_escaped_and_holds_nobody_up(world: World) -> None:
    for _ in range(2):
        world.orch("add", "mixed", "do=(_ for _ in ()).throw(ValueError('bad name \\udcff'))")
    world.orch("add", "--cmd", "--folder", "no\udcff", "--", "true")
    world.orch("add", "mixed", "do=1")
    world.orch("fire")
    assert world.states() == {1: "failed", 2: "failed", 3: "failed", 4: "done"}
    assert world.queue.attempts(1)[0].error == "ValueError: bad name \\udcff"


def test_files_beside_the_caller_do_not_pass_for_modules_of_the_program(world: World) -> None:
    elsewhere = world.folder / "elsewhere"
    (elsewhere / "orch").mkdir(parents=True)
    for name in ("queue.py", "copy.py", "random.py", "select.py", "tempfile.py", "orch/__init__.py"):
        (elsewhere / name).write_text("raise RuntimeError('taken for a module')")
    program = elsewhere / "program"
    program.write_text("import sys; sys.path.pop(0)\nfrom orch.__main__ import main\nif __name__ == '__main__': main()")
    world.orch("add", "ok")
    # Its own folder is where the script lies, as with any installed program; the working folder is the trap.
    script = world.folder / "bin"
    script.mkdir()
    program.rename(script / "program")
    words = [sys.executable, str(script / "program"), "fire", "-q", "--config", str(world.folder / "orch.toml")]
    ran = subprocess.run(words, cwd=elsewhere, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert world.states() == {1: "done"}


@pytest.mark.full
def test_children_that_die_before_they_begin_are_given_up(world: World) -> None:
    world.orch("add", "ok")
    code = "import orch.barrier, orch.worker, os\norch.worker._sit = lambda seat: os._exit(3)\n"
    code += "orch.barrier.STILLBORN_LIMIT = 0.3"
    (world.folder / "sitecustomize.py").write_text(code)
    world.orch("fire", "-q", env={"PYTHONPATH": str(world.folder)}, limit=50, code=1)
    assert "nothing could work" in world.err
    assert world.states() == {1: "incoming"}
    assert "workers die before they begin" in notes(world)[0]
    assert world.answer("fires")[0]["ending"] == "broken"


def test_a_task_that_a_sweep_fails_for_good_is_in_the_next_note_and_only_there(world: World) -> None:
    world.settings("", retry="retry_max_attempts = 1")
    worker = world.queue.ledger.enrol(replaced(started="1"))
    world.queue.add("ok")
    world.queue.claim("ok", worker=worker)
    world.orch("sweep")
    assert world.states() == {1: "failed"}
    world.orch("fire")
    world.orch("fire")
    assert [("failed for good" in note) for note in notes(world)] == [True]
    assert (
        "needs a person: task 1 (ok) failed for good" in world.orch("status")
        or "Needs a person:** task 1" in notes(world)[0]
    )


def test_a_fire_whose_every_worker_broke_does_not_quiet_the_watchdog(world: World) -> None:
    world.settings(
        "[watchdog]\nexpected_interval_hours = 0.0000001\ngrace_minutes = 0",
        modes='[modes.broken]\nfunction = "nosuch:f"',
    )
    world.orch("add", "broken")
    world.orch("fire", code=1)
    assert world.answer("fires")[0]["ending"] == "broken"
    world.orch("watchdog", code=7)
    assert "no fire has succeeded yet" in world.err


def test_a_named_settings_file_means_its_own_queue_whatever_the_environment_says(world: World) -> None:
    world.orch("init")
    other = world.folder / "other"
    world.orch("init", "other")
    world.orch("add", "m", "--config", "other/orch.toml", env={"ORCH_DB": world.database})
    assert world.queue.tasks() == []
    with Queue.open(str(other / ".orch" / "orch.db")) as queue:
        assert len(queue.tasks()) == 1


def test_what_a_dead_worker_left_is_found_whichever_link_led_to_the_queue(world: World, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(world.folder)
    world.orch("add", "--cmd", "--", "sh", "-c", SLEEP.format(1012))
    fire = world.start("fire", "--config", str(link / "orch.toml"))
    eventually(lambda: running("sleep 1012"), "the task's start")
    workers = [p for p in workers_of(fire) if "sleep" not in p.name()]
    psutil.Process(fire.pid).suspend()
    for process in workers:
        process.kill()
    fire.kill()
    fire.wait()
    world.orch("sweep")
    assert not running("sleep 1012")


def test_a_descendant_that_left_group_session_and_parent_is_ended_with_its_task(world: World) -> None:
    world.orch("add", "--cmd", "--timeout", "0.5", "--", "sh", "-c", "(setsid sleep 1013 &); sleep 1013")
    world.settings("", retry="retry_max_attempts = 1")
    world.orch("fire")
    assert not running("sleep 1013")


MOUNT = """
set -e
mount -t tmpfs -o size=1500k none "$1/.orch"
cd "$1"; shift
"$@" add --cmd -- sh -c 'head -c 900000 /dev/zero | tr "\\\\0" x'
"$@" add --cmd -- sh -c 'head -c 900000 /dev/zero | tr "\\\\0" x >&2; echo fine'
"$@" fire -q || true
mount -o remount,size=50m .orch
"$@" fire -q || true
"$@" fire -q || true
"$@" list --json
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.full
def test_a_full_disk_fails_no_command_that_succeeded(world: World) -> None:
    (world.folder / ".orch").mkdir()
    world.settings("", limits="not_now_delay = 0.01")
    words = ["unshare", "-m", "sh", "-c", MOUNT, "sh", str(world.folder), sys.executable, "-m", "orch"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip(f"no mount namespaces here: {ran.stderr}")
    assert '"state": "failed"' not in ran.stdout, ran.stderr
    assert ran.stdout.count('"state": "done"') == 2, ran.stdout + ran.stderr


def test_functions_and_commands_speak_any_language_under_a_poor_locale(world: World) -> None:
    world.orch("add", "mixed", "do=print('naïve ✓')")
    world.orch("add", "--cmd", "--", "printf", "%s", "naïve ✓")
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": "/usr/bin:/bin"}
    subprocess.run(world.words("fire", "-q"), cwd=world.folder, env=poor, check=True, timeout=60)
    assert set(world.states().values()) == {"done"}
    for id in ("1", "2"):
        assert "naïve ✓" in world.orch("log", id)


def test_a_fire_that_died_is_not_shown_as_running(world: World) -> None:
    world.orch("init")
    world.queue.ledger.open_fire(replaced(started="1"), day="2026-11-30")
    assert "fire 1 has died" in world.orch("status")


def test_a_fire_that_died_is_closed_even_by_one_that_is_refused(world: World) -> None:
    world.orch("init")
    world.queue.ledger.open_fire(replaced(started="1"), day="2026-11-30")
    world.orch("pause", "--all")
    world.orch("fire", code=5)
    assert world.answer("fires")[0]["ending"] == "died"
    assert len(world.answer("notes")) == 1


def test_a_fire_that_cannot_be_seen_from_here_says_when_it_frees_itself(world: World) -> None:
    world.orch("init")
    world.queue.ledger.open_fire(replaced(host="elsewhere", boot="elsewhere/"), day="2026-11-30")
    world.orch("fire", code=4)
    assert "cannot be seen from here, so that it is taken for dead at 2" in world.err


# What is written in notes and on screens


def test_names_cannot_forge_a_note(world: World) -> None:
    world.orch("add", "ok", "--after", "x\n\n**Needs a person:** nothing", code=2)
    assert "cannot be a key" in world.err


def test_what_a_sink_says_is_shown_and_not_obeyed(world: World) -> None:
    world.settings('[notify]\nsinks = ["command:sh -c \'printf \\"\\\\\\\\033]0;title\\\\\\\\007\\" >&2; exit 1\'"]')
    world.orch("add", "ok")
    world.orch("fire")
    assert "could not be delivered" in world.err
    assert "\x1b" not in world.err
    assert "\\x1b]0;title\\x07" in world.err


def test_only_what_failed_for_good_is_called_failed(world: World) -> None:
    world.settings(
        "", modes='[modes.blip]\nfunction = "work:fail"\nretry_failures = true', retry="retry_backoff_base_sec = 60"
    )
    text = (world.folder / "orch.toml").read_text().replace("retry_backoff_base_sec = 0\n", "")
    (world.folder / "orch.toml").write_text(text)
    add_many(world, "blip", 3, {"text": "a blip"})
    world.orch("add", "fail", "text=the real one")
    world.orch("fire")
    assert "Needs a person:** 1 task failed, most often: ValueError: the real one" in notes(world)[0]


def test_a_cancelled_task_is_no_failure_of_the_fire(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", SLEEP.format(1014))
    fire = world.start("fire", "--exit-status")
    eventually(lambda: running("sleep 1014"), "the task's start")
    world.orch("cancel", "1")
    assert fire.wait(60) == 0


def test_a_note_on_standard_output_stands_beside_the_json_answer_not_in_it(world: World) -> None:
    world.settings('[notify]\nsinks = ["stdout"]')
    world.orch("add", "ok")
    assert world.answer("fire")["tallies"][0]["done"] == 1
    assert "## Fire 1" in world.err


# Adding


def test_a_task_that_would_wait_for_itself_through_others_is_refused(queue: Queue) -> None:
    queue.add("m", key="a", after=["b"])
    with pytest.raises(UsageError, match="wait for itself"):
        queue.add("m", key="b", after=["a"])
    assert [task.key for task in queue.tasks()] == ["a"]
    queue.add("m", key="b")


def test_a_circle_of_ids_is_refused_too(queue: Queue) -> None:
    with pytest.raises(UsageError, match="wait for itself"):
        queue.add("m", after=["001"])
    first = queue.add("m", after=[queue.add("m").id + 2]).id
    with pytest.raises(UsageError, match="wait for itself"):
        queue.add("m", after=[first])
    assert len(queue.tasks()) == 2


def test_an_id_may_be_waited_for_before_it_is_there(queue: Queue) -> None:
    queue.add("m", after=[2])
    second = queue.add("m").id
    [task] = queue.claim("m", batch=5)
    assert task.id == second
    queue.finish(task)
    assert [task.id for task in queue.claim("m")] == [1]


def test_a_whole_number_is_no_key(queue: Queue) -> None:
    with pytest.raises(UsageError, match="means a task's id"):
        queue.add("m", key="17")


def test_a_step_that_fails_inside_a_transaction_is_undone_alone(queue: Queue) -> None:
    queue.add("m", key="k")
    with queue.transaction():
        queue.add("m")
        with pytest.raises(Conflict):
            queue.add_many([NewTask("m"), NewTask("m", '{"x": 1}', key="k")])
        queue.add("m")
    assert len(queue.tasks()) == 3


@pytest.mark.parametrize("line", ['"after": null', '"key": null', '"in": null'])
def test_null_in_a_line_means_not_given(world: World, line: str) -> None:
    world.orch("add", "--from", "-", stdin=f'{{"mode": "ok", {line}}}')
    task = world.queue.task(1)
    assert (task.key, task.blocked, task.due_at) == (None, 0, None)


@pytest.mark.parametrize("line", ['"after": {"a": 1}', '"key": {"a": 1}', '"key": true', '"after": [[1]]'])
def test_a_name_that_is_none_is_refused(world: World, line: str) -> None:
    world.orch("add", "--from", "-", stdin=f'{{"mode": "ok", {line}}}', code=2)
    assert "is no id and no key" in world.err


@pytest.mark.parametrize(
    ("words", "env", "told"),
    [
        (["fire"], {"ORCH_TASK_CAP": "0"}, "ORCH_TASK_CAP='0'"),
        (["fire", "--minutes", "nan"], {}, "--wall-clock-minutes"),
        (["add", "--cmd", "--at", "0001-01-01T00:00:00+05:00", "--", "true"], {}, "out of range"),
        (["add", "--cmd", "--payload", "{}", "--", "true"], {}, "either --cmd or --payload"),
        (["init", "/proc/foo"], {}, "/proc/foo"),
    ],
)
def test_an_impossible_value_is_one_line_that_names_it(
    world: World, words: list[str], env: dict[str, str], told: str
) -> None:
    world.orch("add", "ok")
    world.orch(*words, env=env, code=1 if words[0] == "init" else 2)
    assert told in world.err
    assert world.err.count("\n") == 1


@pytest.mark.full
def test_a_number_fills_a_word_as_it_is_written(world: World) -> None:
    world.settings("", modes='[modes.say]\ncommand = ["echo", "{n}"]')
    for number in ("1.10", "12345678901234567890.5", "1e400"):
        world.orch("add", "say", f"n:={number}")
    world.orch("fire")
    assert [world.orch("log", str(id)) for id in (1, 2, 3)] == ["1.10\n", "12345678901234567890.5\n", "1e400\n"]


def test_a_closed_pipe_is_141_for_a_short_answer_too(world: World) -> None:
    script = f'"{sys.executable}" -m orch add ok | true; echo "${{PIPESTATUS[0]}}"'
    ran = subprocess.run(["bash", "-c", script], cwd=world.folder, capture_output=True, text=True, timeout=60)
    # Whether `true` has ended by the time of the answer is chance.
    assert ran.stdout in ("141\n", "0\n")
    assert ran.stderr == ""


def test_the_queue_and_its_files_are_for_their_owner_alone(world: World) -> None:
    world.orch("add", "chatty", "--db", "x/q.db")
    world.orch("fire", "--db", "x/q.db")
    for path, mode in (("x/q.db", 0o600), ("x/q.db.files", 0o700), ("x/q.db.files/output/0/1-1.out", 0o600)):
        assert (world.folder / path).stat().st_mode & 0o777 == mode, path
