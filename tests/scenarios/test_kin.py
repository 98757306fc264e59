"""No process outlives its claim, however it tries to get away and whoever dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from orch import kin, processes
from orch.fire_records import Process
from orch.outcomes import Evidence
from orch.queue import Queue
from orch.rollup import body, collect
from tests.conftest import World, eventually, is_gone
from tests.scenarios.test_fire import notes, running
from tests.scenarios.test_recovery import kill, workers_of

# A child in the group, one in a session of its own, one without a parent, one without marks, and all of that at once.
FLIGHT = (
    "sleep {0} & setsid sleep {0} & (setsid sleep {0} &) ; env -i sleep {0} & (env -i setsid sleep {0} &) ;"
    " echo >> ran; exec env -i sleep {0}"
)


def flee(world: World, number: int) -> subprocess.Popen[bytes]:
    """A fire whose one task starts all that."""
    world.orch("add", "--cmd", "--", "sh", "-c", FLIGHT.format(number))
    fire = world.start("fire")
    eventually(lambda: len(running(f"sleep {number}")) == 6, "everybody's start")
    return fire


def test_at_a_timeout_nobody_gets_away(world: World) -> None:
    world.settings("", modes=f'[modes.flee]\ncommand = ["sh", "-c", "{FLIGHT.format(2001)}"]\ntimeout = 1')
    world.orch("add", "flee")
    world.orch("fire")
    assert world.queue.attempts(1)[0].reason == "timeout"
    assert world.lines("ran")
    assert not running("sleep 2001")


def test_when_a_task_is_cancelled_nobody_gets_away(world: World) -> None:
    fire = flee(world, 2002)
    assert "what it ran is ended" in world.orch("cancel", "1")
    assert fire.wait(60) == 0
    assert not running("sleep 2002")
    assert world.queue.task(1).reason == "cancelled"


def test_when_the_fire_is_stopped_nobody_gets_away(world: World) -> None:
    fire = flee(world, 2003)
    fire.terminate()
    assert fire.wait(60) == 128 + signal.SIGTERM
    assert not running("sleep 2003")
    assert (world.queue.task(1).state, world.queue.task(1).retry_count) == ("incoming", 0)


def test_when_the_fire_is_killed_nobody_gets_away(world: World) -> None:
    fire = flee(world, 2004)
    fire.kill()
    eventually(lambda: not running("sleep 2004"), "everybody's end")
    world.orch("sweep")
    assert world.queue.task(1).retry_count == 1
    assert len(notes(world)) == 1


def test_when_the_worker_is_killed_nobody_gets_away(world: World) -> None:
    fire = flee(world, 2005)
    [worker] = world.queue.ledger.present()
    os.kill(worker.pid, signal.SIGKILL)
    assert fire.wait(60) == 0
    assert not running("sleep 2005")
    assert world.queue.attempts(1)[0].reason == "the worker died (killed by signal 9)"


def test_when_all_are_killed_at_once_the_next_sweep_leaves_nobody_that_can_be_known(world: World) -> None:
    fire = flee(world, 2006)
    family = [psutil.Process(fire.pid), *(p for p in workers_of(fire) if "sleep" not in p.name())]
    for process in family:
        process.suspend()
    kill(*family)
    fire.wait()
    assert len(running("sleep 2006")) == 6
    world.orch("sweep")
    # The one that has neither parent nor session nor marks is nobody's any more.
    left = running("sleep 2006")
    assert len(left) == 1
    os.kill(int(left[0]), signal.SIGKILL)
    assert world.queue.task(1).state == "incoming"


def test_what_is_left_of_a_command_whose_first_process_is_dead_is_ended_by_the_next_sweep(world: World) -> None:
    script = "env -i sleep 2016 & echo >> ran; exec env -i sleep 0.3"
    world.orch("add", "--cmd", "--", "sh", "-c", script)
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    family = [psutil.Process(fire.pid), *(p for p in workers_of(fire) if "sleep" not in p.name())]
    for process in family:
        process.suspend()
    eventually(lambda: not running("sleep 0.3"), "the end of the first process")
    kill(*family)
    fire.wait()
    assert running("sleep 2016")
    world.orch("sweep")
    assert not running("sleep 2016")


def test_a_fire_that_is_killed_ends_its_workers_though_a_task_holds_its_pipe(world: World) -> None:
    world.orch("add", "mixed", "do=[note('began', str(os.getpid())), time.sleep(2000)]")
    # What watches the fire's end sees nothing while anybody has the other end of the pipe open.
    (world.folder / "holder.py").write_text(
        "import glob, os, sys, time\n"
        "held = [open(path) for path in glob.glob(f'/proc/{sys.argv[1]}/fd/*') if 'pipe:' in os.readlink(path)]\n"
        "held += [open(path, 'w') for path in glob.glob(f'/proc/{sys.argv[1]}/fd/*') if 'pipe:' in os.readlink(path)]\n"
        "print(len(held), flush=True)\n"
        "time.sleep(2000)\n"
    )
    fire = world.start("fire")
    eventually(lambda: world.lines("began"), "the task's start")
    holder = subprocess.Popen([sys.executable, world.folder / "holder.py", str(fire.pid)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert int(holder.stdout.readline()) > 0
        worker = psutil.Process(int(world.lines("began")[0]))
        fire.kill()
        fire.wait()
        eventually(lambda: is_gone(worker), "the worker's end")
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.full
def test_a_signal_while_a_note_is_delivered_ends_the_delivery_and_the_next_sweep_makes_up_for_it(world: World) -> None:
    script = "cat > note; echo >> trying; test -e go || exec sleep 2017"
    (world.folder / "deliver").write_text(script)
    world.settings('[notify]\nsinks = ["command:sh deliver"]')
    world.orch("add", "ok")
    fire = world.start("fire")
    eventually(lambda: world.lines("trying"), "the delivery")
    fire.terminate()
    assert fire.wait(60) == 128 + signal.SIGTERM
    assert fire.stderr is not None
    assert b"had ended (passed) when SIGTERM came" in fire.stderr.read()
    assert not running("sleep 2017")
    (world.folder / "go").touch()
    assert "delivered" in world.orch("sweep")
    assert world.states() == {1: "done"}


def test_what_a_successful_command_leaves_behind_is_ended_with_it(world: World) -> None:
    script = "(setsid sleep 2007 &); (env -i setsid sleep 2007 &); echo fine"
    world.orch("add", "--cmd", "--", "sh", "-c", script)
    world.orch("fire")
    assert world.states() == {1: "done"}
    assert not running("sleep 2007")


@pytest.mark.full
def test_a_function_may_use_multiprocessing_and_what_it_forks_ends_with_its_worker(world: World) -> None:
    pool = "do=__import__('multiprocessing').Pool(2).map(abs, [-1, -2, 3])"
    fork = "do=(os.fork() or time.sleep(2000)) and note('forked', '') or time.sleep(2000)"
    world.orch("add", "mixed", pool)
    world.orch("fire")
    assert world.queue.attempts(1)[0].result == "[1,2,3]", world.queue.attempts(1)
    world.orch("add", "mixed", fork)
    fire = world.start("fire")
    eventually(lambda: world.lines("forked"), "the fork")
    [worker] = world.queue.ledger.present()
    [child] = psutil.Process(worker.pid).children()
    os.kill(worker.pid, signal.SIGKILL)
    assert fire.wait(60) == 0
    assert is_gone(child)


def test_what_a_function_forked_is_ended_by_a_sweep_when_all_were_killed_at_once(world: World) -> None:
    world.orch("add", "mixed", "do=(os.fork() or time.sleep(2000)) and note('forked', '') or time.sleep(2000)")
    fire = world.start("fire")
    eventually(lambda: world.lines("forked"), "the fork")
    [worker] = world.queue.ledger.present()
    [child] = psutil.Process(worker.pid).children()
    family = [psutil.Process(fire.pid), psutil.Process(worker.pid)]
    for process in family:
        process.suspend()
    kill(*family)
    fire.wait()
    assert child.is_running()
    world.orch("sweep")
    assert is_gone(child)


def test_a_fork_that_comes_back_from_a_function_is_no_second_worker(world: World) -> None:
    world.orch("add", "mixed", "do=[os.fork(), 'both'][1]")
    world.orch("add", "mixed", "do='next'")
    rollup = world.answer("fire", "--max-pool", "1")
    assert world.states() == {1: "done", 2: "done"}
    assert (rollup["broken"], rollup["missing"], rollup["lost"]) == ({}, [], 0)


def test_a_fire_in_the_background_of_a_script_obeys_ctrl_c(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "echo >> ran; exec sleep 2008")
    line = f"{subprocess.list2cmdline(world.words('fire'))} & echo $! > pid; wait $!; echo $? > code"
    shell = subprocess.Popen(["sh", "-c", line], cwd=world.folder, stdout=subprocess.DEVNULL)
    eventually(lambda: world.lines("ran"), "the task's start")
    os.kill(int(world.lines("pid")[0]), signal.SIGINT)
    assert shell.wait(60) == 0
    assert world.lines("code") == [str(128 + signal.SIGINT)]
    assert not running("sleep 2008")
    assert (world.queue.task(1).state, world.queue.task(1).retry_count) == ("incoming", 0)


def test_ctrl_c_at_a_terminal_reaches_the_fire_alone_which_ends_all_in_order(world: World, terminal: Any) -> None:
    world.orch(
        "add", "mixed", "do=__import__('subprocess').run(['sh', '-c', 'echo >> ran; exec sleep 2014'], check=True)"
    )
    world.orch("add", "--cmd", "--", "sh", "-c", "echo >> ran; exec sleep 2014")
    terminal.start(80, 20, "fire")
    eventually(lambda: len(running("sleep 2014")) == 2, "both tasks' start")
    terminal.press("C-c")
    screen = terminal.wait_for("exit code 130")
    assert not any("Traceback" in line for line in screen)
    assert not running("sleep 2014")
    assert [(task.state, task.retry_count) for task in world.queue.tasks()] == [("incoming", 0)] * 2
    assert "stopped" in notes(world)[0]


BUSY = """
import threading, logging
logging.basicConfig(filename="log")
def log():
    while True:
        logging.info("busy")
threading.Thread(target=log, daemon=True).start()
def log_too(task):
    logging.warning("from the task")
    return 1
"""


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.parametrize("method", ["forkserver", pytest.param("fork", marks=pytest.mark.full)])
def test_a_thread_that_logs_without_pause_hangs_no_fire(world: World, method: str, rounds: int) -> None:
    (world.folder / "busy.py").write_text(BUSY)
    world.settings(f'[queue]\nstart_method = "{method}"', modes='[modes.busy]\nfunction = "busy:log_too"')
    for _ in range(rounds):
        world.orch("add", "busy")
        world.orch("fire", limit=30)
    assert set(world.states().values()) == {"done"}


EMBEDDED = """
import os, subprocess, sys, threading
from orch import Limits, Mode, Project, Queue, fire

marked, over = [], threading.Event()

def start_others():
    while not over.is_set():
        marked.append(b"ORCH_" in subprocess.run(["env"], capture_output=True).stdout)

def main():
    others = threading.Thread(target=start_others)
    others.start()
    own = subprocess.Popen(["sleep", "2015"])
    queue = Queue.open("jobs.db", create=True)
    ways = ["1", "sys.exit(0)", "os.kill(os.getpid(), 9)", *["task.id"] * 7]
    for way in ways:
        queue.add("m", {"do": way})
    project = Project("jobs.db", ".", "state", {"m": Mode("m", function="work:mixed")}, Limits(max_pool=4),
                      start_method=sys.argv[1])
    fire(queue, project)
    for _ in range(10):
        queue.add("m", {"do": "1"})
    print(len(queue.tasks()), queue.database._connection.execute("pragma integrity_check").fetchall()[0][0])
    print("alive" if own.poll() is None else "killed")
    own.kill()
    own.wait()
    over.set()
    others.join()
    print(any(marked), len(marked) > 5)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_program_fires_from_its_open_queue_and_goes_on_with_it_and_its_own_children(
    world: World, method: str
) -> None:
    (world.folder / "program.py").write_text(EMBEDDED)
    ran = subprocess.run(
        [sys.executable, "program.py", method], cwd=world.folder, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "20 ok\nalive\nFalse True\n", ran.stderr


@pytest.mark.full
def test_commands_can_be_told_to_stop_by_their_own_kin(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "(sleep 0.2; kill -INT $$) & trap 'echo told; exit 0' INT; wait; wait")
    world.orch("fire")
    assert world.orch("log", "1") == "told\n"


def test_a_decider_whose_plan_was_killed_is_ended_by_the_next_sweep(world: World) -> None:
    world.settings('[decide]\ncommand = ["sh", "-c", "echo >> ran; exec sleep 2009"]')
    world.orch("add", "ok")
    plan = world.start("plan")
    eventually(lambda: world.lines("ran"), "the decider's start")
    plan.kill()
    plan.wait()
    assert running("sleep 2009")
    world.orch("sweep")
    assert not running("sleep 2009")


def test_what_a_decider_leaves_behind_is_ended(world: World) -> None:
    world.settings("""[decide]\ncommand = ["sh", "-c", "(setsid sleep 2010 &); echo '{\\"seats\\": {\\"ok\\": 1}}'"]""")
    world.orch("add", "ok")
    world.orch("fire")
    assert world.states() == {1: "done"}
    assert not running("sleep 2010")


def test_neither_a_stranger_with_the_pid_of_a_leader_nor_one_with_a_live_keeper_is_ended(tmp_path: Path) -> None:
    database = str(tmp_path / "orch.db")
    marks = {**os.environ, **kin.marks(), kin.DATABASE_MARK: database}
    stranger = subprocess.Popen(["sleep", "2011"], env=marks, start_new_session=True)
    try:
        assert kin.end_led_by(processes.known_by(stranger.pid, "12345"), 0) == []
        assert kin.end_strays(database, 0) == (0, [])
        assert stranger.poll() is None
        started = processes.started(stranger.pid)
        assert kin.end_led_by(processes.known_by(stranger.pid, started or ""), 0) == []
        assert stranger.wait(10) == -signal.SIGTERM
    finally:
        stranger.kill()
        stranger.wait()


def test_the_orphans_of_a_dead_keeper_are_ended_and_no_others(tmp_path: Path) -> None:
    database = str(tmp_path / "orch.db")
    me = processes.myself()
    dead = kin._name(Process(me.host, me.boot, me.pid, "1"))
    sleepers = [
        subprocess.Popen(["sleep", "2012"], env={**os.environ, kin.KEEPER_MARK: keeper, kin.DATABASE_MARK: of})
        for keeper, of in ((dead, database), (dead, database + "-other"), ("nonsense", database))
    ]
    try:
        assert kin.end_strays(database, 1) == (1, [])
        assert sleepers[0].wait(10) == -signal.SIGTERM
        assert [sleeper.poll() for sleeper in sleepers[1:]] == [None, None]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


UNKILLABLE = """
import os, sys, psutil
from orch import kin, processes
os.setuid(65534)
print(kin.end_tree(processes.known_by(int(sys.argv[1]), processes.started(int(sys.argv[1]))), 0.1))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_cannot_be_ended_is_named(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "2013"])
    try:
        ran = subprocess.run(
            [sys.executable, "-c", UNKILLABLE, str(sleeper.pid)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.stdout == f"['{sleeper.pid} (sleep)']\n", ran.stderr
    finally:
        sleeper.kill()
        sleeper.wait()


def test_what_could_not_be_ended_is_in_the_note_though_its_task_succeeded(queue: Queue) -> None:
    fire = queue.ledger.open_fire(processes.myself(), day="2026-12-01")
    worker = queue.ledger.enrol(processes.myself(), fire=fire, seat=1, mode="m")
    queue.add("m")
    [task] = queue.claim("m", worker=worker)
    assert queue.finish(task, '"fine"', Evidence(0, left=("77 (stubborn)",)))
    opened = queue.ledger.fire(fire)
    assert opened is not None
    assert "still running: 77 (stubborn)" in body(collect(queue, opened, ending="passed", known=["m"]))


def test_the_number_of_a_worker_that_is_gone_is_never_used_again(queue: Queue) -> None:
    first = queue.ledger.enrol(processes.myself())
    queue.database._connection.execute("delete from worker").fetchall()  # type: ignore[attr-defined]
    assert queue.ledger.enrol(processes.myself()) == (first or 0) + 1


def test_a_process_that_is_just_becoming_another_program_is_found_all_the_same(monkeypatch: Any) -> None:
    real, asked = kin._environment, []

    def environment(pid: int) -> bytes:
        # So it is seen for a moment while it starts.
        asked.append(pid)
        return b"" if asked.count(pid) < 3 else real(pid)

    marks = {kin.KEEPER_MARK: "1:2:3", kin.RUN_MARK: "77"}
    sleeper = subprocess.Popen(["sleep", "2018"], env={**os.environ, **marks})
    try:
        monkeypatch.setattr(kin, "_environment", environment)
        assert kin.is_anything_left(marks)
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files with a path as short as a socket's has to be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_killed_fire_leaves_nothing_in_the_folder_for_temporary_files_after_the_next_sweep(
    world: World, temporary: Path
) -> None:
    strange = temporary / "pymp-strange"
    strange.mkdir()
    world.orch("add", "wait_for", "file=never")
    fire = world.start("fire", env={**os.environ, "TMPDIR": str(temporary)})
    eventually(lambda: world.lines("ran"), "the task's start")
    assert len(list(temporary.iterdir())) == 2
    world.orch("sweep", env={"TMPDIR": str(temporary)})
    assert len(list(temporary.iterdir())) == 2, "the fire is alive"
    fire.kill()
    fire.wait()
    world.orch("sweep", env={"TMPDIR": str(temporary)})
    assert list(temporary.iterdir()) == [strange]


def test_a_fire_that_is_killed_while_it_starts_its_workers_leaves_nothing_there_either(
    world: World, temporary: Path
) -> None:
    world.orch("add", "ok")
    fire = world.start("fire", env={**os.environ, "TMPDIR": str(temporary)})
    eventually(lambda: list(temporary.glob("pymp-*/listener-*")), "the socket")
    fire.kill()
    fire.wait()
    world.orch("sweep", env={"TMPDIR": str(temporary)})
    assert list(temporary.iterdir()) == []


def test_a_fire_that_ends_leaves_nothing_in_the_folder_for_temporary_files(world: World, temporary: Path) -> None:
    world.orch("add", "ok")
    world.orch("fire", env={"TMPDIR": str(temporary)})
    assert list(temporary.iterdir()) == []


def test_a_folder_for_temporary_files_whose_path_is_too_long_is_told_of(world: World, temporary: Path) -> None:
    long = temporary / ("x" * 100)
    long.mkdir()
    world.orch("add", "ok")
    world.orch("fire", env={"TMPDIR": str(long)}, code=1)
    assert "set TMPDIR to a folder with a shorter path" in world.err
    assert world.states() == {1: "incoming"}


def test_an_ancestor_that_ends_meanwhile_keeps_nobody_from_ending_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = processes.parent
    # As found by whoever looks while the process above it ends: its number, and then nothing.
    monkeypatch.setattr(processes, "parent", lambda pid: 2**22 + 7 if pid == os.getpid() else real(pid))
    child = subprocess.Popen(["sleep", "2047"])
    assert kin.end_tree(processes.known_by(child.pid, processes.started(child.pid) or ""), 0) == []
    assert child.wait(60) == -signal.SIGKILL or child.returncode == -signal.SIGTERM
