"""Any process may die at any moment: the next hygiene finishes the story."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from orch import clock, processes
from orch.fire_records import Process
from orch.hygiene import look, sweep
from orch.limits import Limits, Retries
from orch.project import Project
from orch.queue import Queue
from tests.conftest import World, eventually, is_gone
from tests.scenarios.test_fire import notes, running


def ground(limits: Limits) -> Project:
    """A project that is nothing but limits."""
    return Project(database="", folder="", state="", modes={}, limits=limits)


GROUND = ground(Limits(stale_hours=1 / 3600, retries=Retries(backoff_base_sec=0)))


def workers_of(fire: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(fire.pid).children(recursive=True)


def kill(*processes_: psutil.Process) -> None:
    for process in processes_:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def worker_pids(world: World) -> list[int]:
    return [int(line.split()[1]) for line in world.lines("ran")]


def test_when_the_fire_is_killed_its_workers_end_and_the_next_fire_tells_both_stories(world: World) -> None:
    for _ in range(3):
        world.orch("add", "wait_for", "file=go")
    fire = world.start("fire")
    eventually(lambda: len(world.lines("ran")) == 3, "three tasks' start")
    family = workers_of(fire)
    fire.kill()
    fire.wait()
    eventually(lambda: all(is_gone(process) for process in family), "the workers' end")
    (world.folder / "go").touch()
    world.orch("fire")
    assert set(world.states().values()) == {"done"}
    assert [task.attempts for task in world.queue.tasks()] == [2, 2, 2]
    assert [fire["ending"] for fire in world.answer("fires")] == ["passed", "died"]
    told = notes(world)
    assert len(told) == 2
    assert "Fire 1 died" in told[0]


def test_when_worker_and_fire_are_killed_together_a_sweep_finishes_the_story(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "echo $$ >> ran; exec sleep 1004")
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    for process in workers_of(fire):
        process.suspend()
    everyone = [psutil.Process(fire.pid), *(p for p in workers_of(fire) if "sleep" not in p.name())]
    kill(*everyone)
    fire.wait()
    for pid in running("sleep 1004"):
        os.kill(int(pid), signal.SIGCONT)
    assert running("sleep 1004"), "the command outlived both"
    told = world.orch("sweep")
    assert "fire 1 had died" in told
    assert not running("sleep 1004")
    assert world.queue.task(1).state == "incoming"
    assert len(notes(world)) == 1
    assert world.orch("sweep") == "nothing to sweep\n"


@pytest.mark.parametrize("phase", ["hygiene", "decide", "fan_out", "barrier", "rollup"])
def test_a_fire_killed_in_any_phase_is_closed_with_exactly_one_note(world: World, phase: str) -> None:
    for _ in range(4):
        world.orch("add", "ran")
    code = (
        "import os, signal, sys\n"
        "from orch.ledger import Ledger\n"
        "stamp = Ledger.stamp\n"
        "def die_after(self, fire, phase):\n"
        "    stamp(self, fire, phase)\n"
        f"    if phase == {phase!r}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Ledger.stamp = die_after\n"
        "sys.argv = ['orch', 'fire']\n"
        "if __name__ == '__main__':\n"
        "    from orch.__main__ import main\n"
        "    main()\n"
    )
    (world.folder / "killed.py").write_text(code)
    killed = subprocess.run([sys.executable, "killed.py"], cwd=world.folder, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    eventually(lambda: not running_workers(world), "the workers' end")
    world.orch("fire")
    world.orch("fire")
    assert set(world.states().values()) == {"done"}
    finished = [event for id in range(1, 5) for event in world.queue.events(id) if event.new_state == "done"]
    assert len(finished) == 4
    endings = [(fire["id"], fire["ending"]) for fire in world.answer("fires")]
    assert endings[-1] == (1, "died")
    assert sorted(note["fire"] for note in world.answer("notes")) == [1, 2, 3]
    assert sum("Fire 1 died" in note for note in notes(world)) == 1


def running_workers(world: World) -> list[int]:
    return [w.pid for w in world.queue.ledger.present() if processes.is_alive(w.process)]


@pytest.mark.full
def test_a_note_cut_short_on_its_way_is_delivered_by_the_next_sweep_and_only_once(world: World) -> None:
    world.settings('[notify]\nsinks = ["file:notes.md", "command:sh -c \'cat >> piped; test -e up\'"]')
    world.orch("add", "ran")
    world.orch("fire")
    assert "it will be tried again" in world.err
    (world.folder / "up").touch()
    world.orch("sweep")
    world.orch("sweep")
    assert (world.folder / "notes.md").read_text().count("<!-- note 1 -->") == 1
    assert (world.folder / "piped").read_text().count("## Fire 1") == 2, "once for each try"


# A zombie's late answer


@pytest.mark.parametrize("late", ["finish", "fail"])
def test_a_stopped_worker_that_goes_on_after_its_task_has_a_new_owner_changes_nothing(world: World, late: str) -> None:
    world.queue.add("m")
    code = (
        "import sys, time; from orch import processes; from orch.queue import Queue\n"
        "q = Queue.open(sys.argv[1]); w = q.ledger.enrol(processes.myself())\n"
        "[task] = q.claim('m', worker=w)\n"
        "print('claimed', flush=True)\n"
        "sys.stdin.readline()\n"
        f"print(q.{late}(task, '\"late\"'))\n"
    )
    zombie = subprocess.Popen(
        [sys.executable, "-c", code, world.database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    world.started.append(zombie)  # type: ignore[arg-type]
    assert zombie.stdout is not None
    assert zombie.stdout.readline() == "claimed\n"
    zombie.send_signal(signal.SIGSTOP)
    first = world.queue.task(1)
    eventually(lambda: clock.seconds_between(first.claimed_at or "", clock.stamp(clock.now())) > 1.2, "the claim's age")
    sweep(world.queue, GROUND)
    [second] = world.queue.claim("m")
    zombie.send_signal(signal.SIGCONT)
    assert zombie.communicate("go on\n", timeout=60)[0] == "False\n"
    assert world.queue.task(1).state == "processing"
    assert world.queue.finish(second, '"mine"')
    assert [attempt.result for attempt in world.queue.attempts(1)] == [None, '"mine"']


def test_a_worker_of_a_fire_that_lost_its_claim_is_counted_in_the_note(world: World) -> None:
    world.orch("add", "wait_for", "file=go")
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    task = world.queue.task(1)
    world.queue.crash(task, "taken away by the test")
    world.queue.recover(world.queue.task(1), Retries(backoff_base_sec=0))
    [mine] = world.queue.claim("wait_for")
    (world.folder / "go").touch()
    assert fire.wait(60) == 0
    assert world.queue.task(1).state == "processing"
    assert world.queue.finish(mine)
    assert "1 answer came after the claim was lost" in notes(world)[0]


def test_a_task_that_became_done_between_a_sweeps_look_and_its_act_stays_done(queue: Queue) -> None:
    queue.add("m")
    [task] = queue.claim("m")
    stale = queue.task(1)
    assert queue.finish(task)
    assert not queue.crash(stale, "stale")
    assert queue.task(1).state == "done"


# Who is judged dead


def owned_by(queue: Queue, process: Process) -> int:
    worker = queue.ledger.enrol(process)
    queue.add("m")
    queue.claim("m", worker=worker)
    assert worker is not None
    return worker


def judged(queue: Queue, project: Project = GROUND) -> str:
    findings = look(queue, project)
    return "missing" if findings.missing else "stale" if findings.stale else "left alone"


def replaced(**fields: object) -> Process:
    mine = processes.myself()
    return Process(**{**{name: getattr(mine, name) for name in ("host", "boot", "pid", "started")}, **fields})  # type: ignore[arg-type]


def test_a_stranger_who_has_the_pid_now_is_neither_owner_nor_killed(queue: Queue) -> None:
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        owned_by(queue, replaced(pid=stranger.pid, started="12345"))
        assert judged(queue) == "missing"
        swept = sweep(queue, GROUND)
        assert (swept.missing, swept.crashed) == (1, 1)
        assert queue.task(1).state == "incoming"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_process_of_another_user_with_that_pid_is_left_alone(queue: Queue) -> None:
    owned_by(queue, replaced(pid=1, started="999999999"))
    sweep(queue, GROUND)
    assert psutil.pid_exists(1)
    assert queue.task(1).state == "incoming"


def test_a_defunct_process_is_dead(queue: Queue) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    started = processes._started(child.pid)
    owned_by(queue, replaced(pid=child.pid, started=started))
    assert judged(queue, ground(Limits())) == "left alone"
    child.send_signal(signal.SIGKILL)
    eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "the zombie")
    assert judged(queue) == "missing"
    child.wait()


def test_after_a_reboot_every_owner_of_the_earlier_boot_is_dead(queue: Queue) -> None:
    owned_by(queue, replaced(boot="another-boot/" + processes._boot().partition("/")[2]))
    assert judged(queue) == "missing"


def test_an_owner_on_another_host_is_judged_by_its_age_alone(queue: Queue) -> None:
    owned_by(queue, replaced(host="elsewhere"))
    assert judged(queue, ground(Limits())) == "left alone"
    eventually(lambda: judged(queue) == "stale", "the claim's age")


def test_a_claim_whose_owner_has_no_record_is_stale_at_once(queue: Queue) -> None:
    worker = owned_by(queue, processes.myself())
    queue.database._connection.execute("delete from worker where id = ?", (worker,))  # type: ignore[attr-defined]
    assert judged(queue, ground(Limits())) == "stale"


def test_a_live_owner_whose_heartbeat_is_late_keeps_its_claim_until_its_deadline(queue: Queue) -> None:
    queue.add("m")
    worker = queue.ledger.enrol(processes.myself())
    until = clock.stamp(clock.after(clock.now(), 3600))
    queue.claim("m", worker=worker, until=until)
    for _ in range(3):
        assert judged(queue) == "left alone"


def test_a_sweep_twice_is_a_sweep_once(queue: Queue) -> None:
    owned_by(queue, replaced(started="1"))
    assert sweep(queue, GROUND).anything
    before = queue.task(1), queue.events(1)
    assert not sweep(queue, GROUND).anything
    assert (queue.task(1), queue.events(1)) == before


def test_a_dry_sweep_changes_nothing(world: World) -> None:
    worker = world.queue.ledger.enrol(replaced(started="1"))
    world.queue.add("ran")
    world.queue.claim("ran", worker=worker)
    assert world.answer("sweep", "--dry-run")["missing"] == 1
    assert world.queue.task(1).state == "processing"
    assert "missing worker: 1" in world.orch("sweep")
    assert world.queue.task(1).state == "incoming"


# The barrier, with children that are killed in every way


def barrier_world(world: World, tasks: int, pool: int) -> subprocess.Popen[bytes]:
    lines = "\n".join(json.dumps({"mode": "wait_for", "payload": {"file": "go"}}) for _ in range(tasks))
    world.orch("add", "--from", "-", stdin=lines)
    fire = world.start("fire", "--max-pool", str(pool), "--json")
    eventually(lambda: len(world.lines("ran")) == pool, "every seat's first task")
    return fire


@pytest.mark.parametrize("victims", [1, 3])
def test_the_barrier_ends_though_busy_workers_are_killed(world: World, victims: int) -> None:
    fire = barrier_world(world, 4, 3)
    for pid in worker_pids(world)[:victims]:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: sum(e.new_state == "crashed" for i in range(1, 5) for e in world.queue.events(i)) == victims)
    (world.folder / "go").touch()
    out, _ = fire.communicate(timeout=60)
    assert fire.returncode == 0
    assert len(json.loads(out)["data"]["missing"]) == victims
    assert len(notes(world)) == 1
    assert sorted(world.states().values()) == ["done"] * (4 - victims) + ["retry-pending"] * victims


@pytest.mark.full
def test_the_barrier_ends_though_an_idle_worker_is_killed_with_the_pools_lock(world: World) -> None:
    world.orch("add", "ok")
    world.orch("add", "ok")
    world.orch("add", "wait_for", "file=go")
    world.settings("", modes="[modes.other]\nfunction = 'work:ran'")
    world.orch("add", "other")
    fire = world.start("fire", "--json")
    eventually(lambda: len(world.lines("ran")) == 2, "both tasks' start")
    busy = {int(line.split()[1]) for line in world.lines("ran") if line.startswith("3 ")}
    eventually(lambda: len(world.queue.ledger.present()) == 1, "the other seats' end")
    idle = [p for p in workers_of(fire) if p.pid not in busy and "forkserver" in " ".join(p.cmdline())]
    for process in idle:
        if process.children() == []:
            process.kill()
    (world.folder / "go").touch()
    assert fire.wait(60) == 0
    assert set(world.states().values()) == {"done"}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_start_method_survives_a_killed_and_an_exiting_worker(world: World, method: str) -> None:
    world.settings(f'[queue]\nstart_method = "{method}"')
    for way in ("1", "sys.exit(0)", "os.kill(os.getpid(), 9)", "1"):
        world.orch("add", "mixed", f"do={way}")
    world.orch("fire")
    assert world.states() == {1: "done", 2: "failed", 3: "retry-pending", 4: "done"}
    assert world.queue.database._connection.execute("pragma integrity_check").fetchall() == [("ok",)]  # type: ignore[attr-defined]


@pytest.mark.full
def test_a_worker_that_cannot_say_that_it_ended_is_over_all_the_same(world: World) -> None:
    break_off = "setattr(__import__('orch.ledger').ledger.Ledger, 'retire', None)"
    world.orch("add", "mixed", f"do={break_off}")
    world.orch("fire", limit=30)
    assert world.states() == {1: "done"}
    assert world.queue.ledger.present() == []
    assert "cannot work: TypeError" in notes(world)[0]


# People who intervene


def test_cancelling_a_running_command_ends_it_and_its_worker_goes_on(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "echo >> ran; exec sleep 1005")
    world.orch("add", "--cmd", "--", "true")
    fire = world.start("fire", "--max-pool", "1")
    eventually(lambda: world.lines("ran"), "the task's start")
    assert "what it ran is ended" in world.orch("cancel", "1")
    assert fire.wait(60) == 0
    assert not running("sleep 1005")
    assert (world.queue.task(1).state, world.queue.task(1).reason) == ("failed", "cancelled")
    assert world.queue.task(2).state == "done"


def test_cancelling_a_running_function_ends_its_worker_and_another_takes_the_seat(world: World) -> None:
    world.orch("add", "wait_for", "file=never")
    world.orch("add", "wait_for", "file=go")
    (world.folder / "go").touch()
    fire = world.start("fire", "--max-pool", "1")
    eventually(lambda: world.lines("ran"), "the task's start")
    world.orch("cancel", "1")
    assert fire.wait(60) == 0
    assert (world.queue.task(1).state, world.queue.task(1).reason) == ("failed", "cancelled")
    assert world.queue.task(2).state == "done"


PID_SPACE = """
set -e
"$1" -c 'import sys; from orch import processes; from orch.queue import Queue
q = Queue.open(sys.argv[1], create=True); q.add("m")
q.claim("m", worker=q.ledger.enrol(processes.myself()))
print(processes.myself().pid, flush=True)
import os; os.kill(os.getpid(), 9)' "$2" > pid || true
sleep 1
echo $(($(cat pid) - 1)) > /proc/sys/kernel/ns_last_pid
sleep 1000 &
test "$!" = "$(cat pid)"
"$1" -c 'import sys; from orch.hygiene import *; from orch.project import Project; from orch.queue import Queue
q = Queue.open(sys.argv[1]); s = sweep(q, Project(sys.argv[1], "", "", {})); print(s.missing, s.crashed)' "$2"
kill -0 "$!"
kill "$!"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand out a pid again")
def test_a_pid_that_was_handed_out_again_is_not_taken_for_its_owner(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", PID_SPACE, "sh", sys.executable, str(tmp_path / "orch.db")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare" in ran.stderr or "ns_last_pid" in ran.stderr:
        pytest.skip(f"no pid namespaces here: {ran.stderr}")
    assert (ran.returncode, ran.stdout) == (0, "1 1\n"), ran.stderr
