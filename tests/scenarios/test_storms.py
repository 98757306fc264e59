"""Many tasks that go wrong in the same way are stopped, spread, told of once, and left alone for a while."""

from __future__ import annotations

import pytest

from orch import backoff, clock
from orch.limits import Retries
from orch.queue import Queue
from tests.conftest import World, eventually
from tests.scenarios.test_fire import notes


def test_a_mode_whose_tasks_all_say_not_now_is_left_alone_until_then(world: World) -> None:
    later = "do=(_ for _ in ()).throw(__import__('orch').NotNow('upstream is down', retry_after=600))"
    for _ in range(30):
        world.queue.add("mixed", {"do": later.removeprefix("do=")})
    world.orch("fire", "--max-pool", "2")
    asked = len(world.lines("ran"))
    assert 3 <= asked <= 6, "three in a row for each of two workers at the most"
    assert all(task.retry_count == 0 and task.state == "incoming" for task in world.queue.tasks())
    [mode] = [mode for mode in world.answer("status")["modes"] if mode["mode"] == "mixed"]
    assert mode["pause"]["reason"] == "not now: upstream is down"
    assert "upstream is down" in world.orch("status")
    assert "paused until" in notes(world)[0]
    world.orch("fire")
    assert len(world.lines("ran")) == asked
    world.orch("resume", "mixed")
    world.orch("fire", "--max-pool", "1", "--task-cap", "1")
    assert len(world.lines("ran")) == asked + 1


def test_a_not_now_among_others_pauses_nothing(world: World) -> None:
    later = "(_ for _ in ()).throw(__import__('orch').NotNow('busy'))"
    for do in (later, later, "1", later, later, "2", "3"):
        world.queue.add("mixed", {"do": do})
    world.orch("fire", "--max-pool", "1")
    assert len(world.lines("ran")) == 7
    assert world.queue.pauses() == []


def test_a_mode_is_put_off_for_as_long_as_anybody_says_and_a_person_has_the_last_word(queue: Queue) -> None:
    def reasons() -> list[str | None]:
        return [pause.reason for pause in queue.pauses()]

    queue.pause("m", "a person's")
    queue.put_off("m", "not now", 1000)
    assert reasons() == ["a person's"], "which does not end by itself"
    queue.pause("m", "a shorter one", seconds=500)
    queue.put_off("m", "not now", 400)
    assert reasons() == ["a shorter one"]
    queue.put_off("m", "longer", 600)
    assert reasons() == ["longer"]
    queue.add("m")
    assert queue.claim("m") == []
    queue.pause("m", "over soon", seconds=0.001)
    eventually(lambda: queue.pauses() == [], "the end of the pause")
    queue.put_off("m", "again", 1)
    assert reasons() == ["again"], "after one that is over"
    queue.pause("m", "a person's")
    assert [pause.until for pause in queue.pauses()] == [None]


@pytest.mark.full
def test_a_pause_for_a_time_ends_by_itself(world: World) -> None:
    world.orch("add", "ok")
    assert "paused until" in world.orch("pause", "ok", "--for", "3s", "--reason", "a moment")
    assert [pause.reason for pause in world.queue.pauses()] == ["a moment"]
    eventually(lambda: world.queue.pauses() == [], "the end of the pause")
    assert world.orch("resume", "ok") == "nothing was paused\n"
    assert len(world.queue.claim("ok")) == 1
    world.orch("pause", "ok", "--for", "soon", code=2)


def test_tasks_that_failed_together_do_not_come_back_together(queue: Queue) -> None:
    for _ in range(50):
        queue.add("m")
    tasks = queue.claim("m", batch=50)
    for task in tasks:
        queue.crash(task, "all at once")
        queue.recover(queue.task(task.id), Retries())
    due = sorted(task.due_at or "" for task in queue.tasks(limit=50))
    assert clock.seconds_between(due[0], due[-1]) > 6, "spread over a fifth to both sides of thirty seconds"
    assert backoff.delay(Retries(), 2) > 30


def test_equal_failures_are_one_line(world: World) -> None:
    for number in range(20):
        world.queue.add("fail", {"text": f"no route to 10.0.0.{number}: /tmp/{number}/x.txt"})
    world.orch("fire")
    [note] = notes(world)
    assert note.count("no route to") == 2, "what needs a person, and one line with a count"
    assert "20 × ValueError: no route to" in note


@pytest.mark.parametrize("limit", [2, *(pytest.param(limit, marks=pytest.mark.full) for limit in (0, 1, 3))])
def test_a_task_is_started_as_often_as_the_limit_says_whichever_way_it_fails(world: World, limit: int) -> None:
    world.settings(
        "",
        modes='[modes.throws]\nfunction = "work:mixed"\nretry_failures = true\n'
        '[modes.hangs]\nfunction = "work:mixed"\ntimeout = 0.3\n'
        '[modes.dies]\nfunction = "work:mixed"',
        retry=f"retry_max_attempts = {limit}",
    )
    ways = {"throws": "1 / 0", "hangs": "time.sleep(1000)", "dies": "os.kill(os.getpid(), 9)"}
    ids = {way: world.queue.add(way, {"do": do}).id for way, do in ways.items()}
    for _ in range(limit + 1):
        world.orch("fire")
    for way, id in ids.items():
        task = world.queue.task(id)
        assert (task.state, task.attempts) == ("failed", max(1, limit)), way
    assert len(world.lines("ran")) == 3 * max(1, limit)


@pytest.mark.full
def test_being_stopped_costs_no_try(world: World) -> None:
    world.settings("", retry="retry_max_attempts = 1")
    world.orch("add", "wait_for", "file=go")
    for turn in (1, 2, 3):
        fire = world.start("fire")
        eventually(lambda turn=turn: len(world.lines("ran")) == turn, "the task's start")
        fire.terminate()
        fire.wait(60)
    (world.folder / "go").touch()
    world.orch("fire")
    assert (world.queue.task(1).state, world.queue.task(1).attempts) == ("done", 4)
