"""Many processes on one queue at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import World, eventually
from tests.scenarios.test_fire import add_many
from tests.test_sqlite import CLAIMER, python


@pytest.mark.parametrize("scale", [2, pytest.param(40, marks=pytest.mark.full)])
def test_adds_sweeps_and_lists_during_a_fire_meet_no_lock_and_lose_nothing(world: World, scale: int) -> None:
    world.settings("", limits=f"max_pool = 8\ntask_cap = {10 * scale}")
    add_many(world, "ran", 10 * scale)
    fire = world.start("fire")
    adders = subprocess.Popen(
        ["sh", "-c", f"for i in $(seq {5 * scale}); do {sys.executable} -m orch add ran || exit 1; done"],
        cwd=world.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    told = ""
    while adders.poll() is None:
        told += world.orch("sweep") + world.orch("list", "-n", "5") + world.err
    _, err = adders.communicate()
    assert adders.returncode == 0, err
    assert fire.wait(300) == 0
    assert fire.stderr is not None
    told += fire.stderr.read().decode() + err
    world.orch("fire", limit=300)
    assert "lock" not in told
    assert "busy" not in told
    assert set(world.states().values()) == {"done"}
    assert sorted(int(line.split()[0]) for line in world.lines("ran")) == list(range(1, 15 * scale + 1))


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.full)])
def test_workers_that_are_stopped_and_continued_at_random_do_every_task_once(world: World, count: int) -> None:
    add_many(world, "m", count)
    log = world.folder / "log"
    claimers = [python(CLAIMER, world.database, str(log), stdin=subprocess.PIPE) for _ in range(12)]
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.close()
    chance = random.Random(5)

    def disturb() -> bool:
        going = [claimer for claimer in claimers if claimer.poll() is None]
        if going:
            victim = chance.choice(going)
            os.kill(victim.pid, signal.SIGSTOP)
            # Others finish a good many tasks while this one stands still in the middle of whatever it did.
            behind = len(world.lines("log")) + 20
            eventually(lambda: len(world.lines("log")) >= min(behind, count) or only_stopped(claimers, victim))
            os.kill(victim.pid, signal.SIGCONT)
        return not going

    eventually(disturb, "the claimers' end", 300)
    for claimer in claimers:
        assert claimer.wait() == 0, claimer.stderr.read() if claimer.stderr else ""
        claimer.stdout.close()  # type: ignore[union-attr]
        claimer.stderr.close()  # type: ignore[union-attr]
    ids = [int(line.split()[0]) for line in world.lines("log")]
    assert sorted(ids) == list(range(1, count + 1))
    assert {task.attempts for task in world.queue.tasks(limit=count)} == {1}


def only_stopped(claimers: list[subprocess.Popen[str]], stopped: subprocess.Popen[str]) -> bool:
    """Whether everybody else is blocked for good: the stopped one was in the middle of a transaction."""
    return all(psutil.Process(c.pid).status() != "running" for c in claimers if c is not stopped and c.poll() is None)


@pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=pytest.mark.full)])
@pytest.mark.full
def test_twenty_commands_may_add_the_first_task_at_once(world: World, rounds: int) -> None:
    for turn in range(rounds):
        database = str(world.folder / f"{turn}.db")
        adders = [world.start("add", "noop", f"i:={i}", "--db", database) for i in range(20)]
        for adder in adders:
            _, err = adder.communicate(timeout=120)
            assert adder.returncode == 0, err
        listed = world.answer("list", "--db", database)
        assert len({task["payload_text"] for task in listed}) == 20


def test_a_reader_that_stops_reading_does_not_pin_the_log(world: World) -> None:
    add_many(world, "m", 300, {"text": "x" * 4000})
    reader = world.start("list", "-n", "300", "--json")
    assert reader.stdout is not None
    reader.stdout.read(10)
    wal = Path(world.database + "-wal")
    for _ in range(4):
        add_many(world, "m", 300, {"text": "x" * 4000})
        world.queue.promote()
    # The reader blocks in the middle of its output and holds no snapshot: the log can be cut to nothing.
    assert reader.poll() is None
    assert world.queue.database.truncate_wal()  # type: ignore[attr-defined]
    assert wal.stat().st_size == 0


def test_the_log_is_small_again_after_a_fire(world: World) -> None:
    add_many(world, "ok", 200, {"text": "x" * 40_000})
    world.orch("fire")
    world.orch("sweep")
    # Without a connection left, the log is written back and gone.
    assert not Path(world.database + "-wal").exists()
