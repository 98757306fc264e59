"""Fires that are bound to the slots of a schedule, and fleets that were asleep."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import psutil
import pytest
from freezegun import freeze_time

from orch import clock, hygiene, processes
from orch.errors import Held, Refused, UsageError
from orch.fires import due_slot, open_fire
from orch.hygiene import sweep
from orch.limits import Limits
from orch.project import Project, Schedule
from orch.queue import Queue
from tests.conftest import World, eventually


def scheduled(expression: str, **limits: int) -> Project:
    return Project("x.db", ".", "x", {}, Limits(**limits), "Europe/Berlin", schedule=Schedule(expression))  # type: ignore[arg-type]


def open_slot(queue: Queue, project: Project) -> str:
    """Open and close the fire of the slot that is due: the slot."""
    opened = open_fire(queue, project, due_slot(project))
    queue.ledger.close_fire(opened.id, ending="passed", rollup="{}")
    return opened.slot or ""


def test_a_slot_is_taken_once_and_a_manual_fire_takes_none(queue: Queue) -> None:
    project = scheduled("0 */4 * * *", daily_fires=99)
    with freeze_time("2026-11-30T11:00:03Z") as frozen:
        assert open_slot(queue, project) == "2026-11-30T11:00:00.000000Z"
        with pytest.raises(Held, match="is taken: it was fire 1"):
            open_slot(queue, project)
        queue.ledger.close_fire(open_fire(queue, project).id, ending="passed", rollup="{}")
        frozen.move_to("2026-11-30T14:59:59Z")
        with pytest.raises(Held):
            open_slot(queue, project)
        frozen.tick(1)
        assert open_slot(queue, project) == "2026-11-30T15:00:00.000000Z"


def test_after_a_gap_there_is_one_slot_to_catch_up_with(queue: Queue) -> None:
    project = scheduled("0 */4 * * *", daily_fires=99)
    with freeze_time("2026-11-28T11:00:00Z") as frozen:
        open_slot(queue, project)
        frozen.move_to("2026-11-30T12:34:56Z")
        assert open_slot(queue, project) == "2026-11-30T11:00:00.000000Z"
        for _ in range(3):
            with pytest.raises(Held):
                open_slot(queue, project)


def test_a_refused_fire_takes_no_slot_and_is_known(queue: Queue) -> None:
    project = scheduled("0 * * * *", daily_fires=1)
    with freeze_time("2026-11-30T11:00:00Z") as frozen:
        open_slot(queue, project)
        frozen.tick(3600)
        with pytest.raises(Refused):
            open_slot(queue, project)
        refusal = queue.ledger.last_refusal()
        assert refusal is not None
        assert (refusal.slot, refusal.cap) == ("2026-11-30T12:00:00.000000Z", "daily_fires")
        assert queue.ledger.slot_taken("2026-11-30T12:00:00.000000Z") is None


def test_a_slot_asks_for_a_schedule() -> None:
    with pytest.raises(UsageError, match="set 'fire' in"):
        due_slot(Project("x.db", ".", "x", {}))


@pytest.mark.full
def test_the_second_scheduled_fire_of_a_slot_exits_with_4(world: World) -> None:
    world.settings("[schedule]\nfire = '0 0 1 1 *'")
    world.orch("add", "ok")
    assert world.answer("fire", "--scheduled")["ending"] == "passed"
    world.orch("fire", "--scheduled", code=4)
    assert "is taken: it was fire 1" in world.err
    world.orch("fire", "--scheduled", "--ok", "4,5", "-q")
    assert world.err == ""
    assert "next fire due: " in world.orch("status")
    world.settings("")
    world.orch("fire", "--scheduled", code=2)


def test_of_fires_for_one_slot_at_the_same_time_exactly_one_runs(world: World) -> None:
    world.settings("[schedule]\nfire = '0 0 1 1 *'")
    world.orch("init")
    fires = [world.start("fire", "--scheduled") for _ in range(4)]
    assert sorted(fire.wait(60) for fire in fires) == [0, 4, 4, 4]
    assert len(world.answer("fires")) == 1


def test_the_crontab_lines_are_those_of_the_schedule(world: World) -> None:
    world.settings("[schedule]\nfire = '5 1-23/2 * * *'\nwatchdog = '@hourly'")
    lines = world.answer("init")["crontab"]
    assert [line.split(" /")[0] for line in lines] == ["5 1-23/2 * * *", "*/15 * * * *", "@hourly"]
    assert " fire --scheduled --ok 4,5 " in lines[0]


# Sleep: everybody is stopped for longer than any limit, and goes on in the same instant.


def tree(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def send(pids: list[int], signum: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            pass


@pytest.mark.parametrize(
    "who", ["everybody", pytest.param("fire", marks=pytest.mark.full), pytest.param("workers", marks=pytest.mark.full)]
)
@pytest.mark.full
def test_who_sleeps_past_every_limit_gets_a_moment_before_it_is_judged(world: World, who: str) -> None:
    world.settings("", limits="wall_clock_minutes = 0.04")
    world.orch("add", "mixed", "do=[note('began', '1'), [time.sleep(0.1) for _ in range(10)], note('ended', '1')]")
    world.orch(
        "add",
        "--cmd",
        "--",
        "sh",
        "-c",
        "echo 2 >> began; for i in 0 1 2 3 4 5 6 7 8 9; do sleep 0.1; done; echo 2 >> ended",
    )
    world.orch("watchdog")
    fire = world.start("fire")
    eventually(lambda: len(world.lines("began")) == 2, "the start of both")
    everybody = tree(fire.pid)
    asleep = {"everybody": everybody, "fire": [fire.pid], "workers": everybody[1:]}[who]
    send(asleep, signal.SIGSTOP)
    # Longer than the wall clock of 2.4 seconds and all that is added to it.
    time.sleep(5)
    send(asleep, signal.SIGCONT)
    sweep, watch = world.start("sweep"), world.start("watchdog")
    assert sweep.wait(60) == 0
    assert watch.wait(60) == 0
    assert fire.wait(60) == 0
    if who != "workers":
        assert sorted(world.lines("ended")) == ["1", "2"]
        assert world.states() == {1: "done", 2: "done"}
    assert sorted(world.lines("began")) == ["1", "2"], "nothing ran twice"
    assert max(task.attempts for task in world.queue.tasks()) == 1


def test_a_sweep_that_wakes_up_with_everybody_lets_their_own_parent_come_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hygiene, "_CHANCE", 15)
    queue, long_ago = world.queue, clock.stamp(clock.after(clock.now(), -3600))
    project = Project(world.database, str(world.folder), str(world.folder / ".orch"), {}, Limits(grace_sec=0.1))
    overdue = [subprocess.Popen(["sleep", "1004"]) for _ in range(2)]
    me = processes.myself()
    workers = []
    for process in overdue:
        who = processes.Process(me.host, me.boot, process.pid, processes._started(process.pid) or "")
        workers.append(queue.ledger.enrol(who, mode="ok", until=long_ago))

    def retire() -> None:
        with Queue.open(world.database) as other:
            other.ledger.retire(workers[0] or 0, "wall_clock")

    parent = threading.Timer(0.5, retire)
    parent.start()
    swept = sweep(queue, project)
    parent.join()
    assert swept.ended == 1, "the one that nobody has seen to"
    assert [process.poll() for process in overdue] == [None, -signal.SIGTERM]
    for process in overdue:
        process.kill()
        process.wait()
