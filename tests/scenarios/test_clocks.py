"""The clock is set, the machine sleeps: no live task is taken for dead, and no dead one lives for ever."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from orch import clock, processes
from orch.hygiene import look
from orch.limits import Limits, Retries
from orch.queue import Queue
from tests.conftest import World, eventually
from tests.scenarios.test_recovery import ground, workers_of

DAY = 86_400.0

# Loaded by every Python that is started with it: the program's clock is off by what stands in a file.
SET = """
import os
if os.path.exists(os.environ.get("SET", "")):
    import datetime
    from orch import clock
    real = clock.now
    def now():
        with open(os.environ["SET"]) as file:
            return real() + datetime.timedelta(seconds=float(file.read() or 0))
    clock.now = now
"""


@pytest.fixture
def set_clock(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock of every program that is started from now on, and of those that run."""
    folder, file = tmp_path / "set", tmp_path / "set" / "by"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SET)
    file.write_text("0")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("SET", str(file))

    def set_by(seconds: float) -> None:
        new = folder / "new"
        new.write_text(str(seconds))
        new.replace(file)

    return set_by


@pytest.mark.parametrize(
    "off", [-DAY, pytest.param(DAY, marks=pytest.mark.full), pytest.param(3600.0, marks=pytest.mark.full)]
)
def test_a_sweep_with_a_wrong_clock_leaves_what_lives_alone(
    world: World, set_clock: Callable[[float], None], off: float
) -> None:
    world.orch("add", "wait_for", "file=go")
    world.orch("add", "--cmd", "--", "sh", "-c", "until test -e go; do sleep 0.05; done")
    fire = world.start("fire")
    eventually(lambda: len(world.queue.ledger.present()) == 2 and world.lines("ran"), "both tasks' start")
    set_clock(off)
    for _ in range(2):
        world.orch("sweep")
    world.orch("fire", code=4)
    (world.folder / "go").touch()
    assert fire.wait(60) == 0
    assert set(world.states().values()) == {"done"}
    assert [(task.attempts, task.retry_count) for task in world.queue.tasks()] == [(1, 0)] * 2


@pytest.mark.parametrize("off", [-DAY, pytest.param(DAY, marks=pytest.mark.full)])
def test_a_clock_that_is_set_in_mid_fire_neither_shortens_nor_lengthens_anything(
    world: World, set_clock: Callable[[float], None], off: float
) -> None:
    world.settings("", modes='[modes.hang]\nfunction = "work:wait_for"\ntimeout = 2\n'
                             '[modes.deaf]\ncommand = ["sh", "-c", "echo >> ran; exec sleep 2030"]\ntimeout = 2',
                   retry="retry_max_attempts = 1")  # fmt: skip
    world.orch("add", "wait_for", "file=go")
    world.orch("add", "hang", "file=never")
    world.orch("add", "deaf")
    fire = world.start("fire")
    eventually(lambda: len(world.lines("ran")) == 3, "every task's start")
    set_clock(off)
    eventually(lambda: "processing" not in (world.states()[2], world.states()[3]), "the end of both limits")
    assert world.states()[1] == "processing"
    (world.folder / "go").touch()
    assert fire.wait(60) == 0
    assert world.states() == {1: "done", 2: "failed", 3: "failed"}
    assert [attempt.reason for id in (2, 3) for attempt in world.queue.attempts(id)] == ["timeout"] * 2


@pytest.mark.parametrize("off", [DAY, -DAY])
def test_what_died_is_recovered_whatever_the_clock_says(
    world: World, set_clock: Callable[[float], None], off: float
) -> None:
    world.orch("add", "wait_for", "file=go")
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    for process in [psutil.Process(fire.pid), *workers_of(fire)]:
        process.kill()
    fire.wait()
    set_clock(off)
    (world.folder / "go").touch()
    world.orch("fire")
    assert world.states() == {1: "done"}


def test_a_sign_of_life_from_the_future_makes_nobody_wait_for_it(queue: Queue, monkeypatch: Any) -> None:
    queue.add("m")
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: clock.after(real(), DAY))
    [task] = queue.claim("m")
    queue.crash(task, "died")
    monkeypatch.setattr(clock, "now", real)
    queue.recover(queue.task(1), Retries(jitter=0))
    due = queue.task(1).due_at
    assert due is not None
    assert clock.seconds_between(clock.stamp(real()), due) <= 30


def test_a_process_that_claims_on_its_own_is_not_taken_for_dead_by_a_clock_that_is_ahead(
    queue: Queue, monkeypatch: Any
) -> None:
    owner = subprocess.Popen(["sleep", "1000"])
    try:
        worker = queue.ledger.enrol(processes.known_by(owner.pid, processes.started(owner.pid) or ""))
        queue.add("m")
        queue.claim("m", worker=worker)
        real = clock.now
        monkeypatch.setattr(clock, "now", lambda: clock.after(real(), DAY))
        assert not look(queue, ground(Limits())).stale
        owner.kill()
        owner.wait()
        assert look(queue, ground(Limits())).missing
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.full
def test_a_healthy_task_longer_than_the_stale_limit_runs_once(world: World) -> None:
    world.settings("", limits="stale_hours = 0.0001", retry="heartbeat_interval = 0.1")
    world.orch("add", "wait_for", "file=go")
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    eventually(lambda: age(world) > 1, "an age beyond the limit")
    assert world.orch("sweep") == "nothing to sweep\n"
    (world.folder / "go").touch()
    assert fire.wait(60) == 0
    assert (world.queue.task(1).state, world.queue.task(1).attempts) == ("done", 1)


def age(world: World) -> float:
    return clock.seconds_between(world.queue.task(1).claimed_at or "", clock.stamp(clock.now()))


def test_the_clock_that_limits_are_kept_by_counts_the_time_asleep_and_cannot_be_set() -> None:
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    assert abs(clock.monotonic() - uptime) < 5
    own = processes.age(processes.myself())
    assert own is not None
    assert abs(own - (clock.monotonic() - uptime_of(os.getpid()))) < 5


def uptime_of(pid: int) -> float:
    return int(processes.started(pid) or 0) / os.sysconf("SC_CLK_TCK")
