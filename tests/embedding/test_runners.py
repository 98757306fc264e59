"""One scenario under every runner, and what each of them can do alone."""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

import orch
from orch import Limits, Mode, NotNow, Project, Queue, Retries, hygiene
from orch.errors import Stopped, UsageError
from orch.records import Task

IN_PROCESS = ["inline", "threads"]


def double(task: Task) -> int:
    return int(task.payload["n"]) * 2


def fail(task: Task) -> None:
    raise ValueError("no luck")


def put_off(task: Task) -> None:
    raise NotNow("closed", retry_after=300)


async def wait_for_others(task: Task) -> str:
    await asyncio.sleep(0)
    return (await asyncio.gather(asyncio.to_thread(str, task.id)))[0]


async def put_off_later(task: Task) -> None:
    await asyncio.sleep(0)
    raise NotNow("closed", retry_after=300)


async def hang(task: Task) -> None:
    await asyncio.sleep(3600)


WORK = {"double": double, "fail": fail, "later": put_off}


@pytest.fixture
def jobs(orch_queue: Queue) -> Queue:
    return orch_queue


def fill(queue: Queue) -> None:
    for number in range(7):
        queue.add("double", {"n": number})
    queue.add("fail")
    queue.add("later")
    queue.add("double", {"n": 100}, after=[1])


def story(queue: Queue) -> dict[str, Any]:
    """What is stored, without times and without who of several workers did it."""
    fired = queue.ledger.fires(1)[0]
    return {
        "tasks": {task.id: (task.mode, task.state, task.attempts, task.retry_count) for task in queue.tasks()},
        "moves": {
            task.id: [(event.old_state, event.new_state, event.reason) for event in queue.events(task.id)]
            for task in queue.tasks()
        },
        "attempts": {
            task.id: [(one.outcome, one.result, one.error) for one in queue.attempts(task.id)] for task in queue.tasks()
        },
        "ending": fired.ending,
        "note": queue.mail.notes(1)[0].title,
    }


def tell(runner: str, queue: Queue) -> dict[str, Any]:
    fill(queue)
    orch.fire(queue, work=WORK, runner=runner, limits=Limits(max_pool=3))
    return story(queue)


@pytest.mark.parametrize("runner", [*IN_PROCESS, "pool"])
def test_the_work_may_be_an_async_function(jobs: Queue, runner: str) -> None:
    jobs.add("wait")
    jobs.add("later")
    orch.fire(jobs, work={"wait": wait_for_others, "later": put_off_later}, runner=runner)
    assert jobs.result(1) == "1"
    assert (jobs.task(2).state, jobs.task(2).reason) == ("incoming", "not now: closed")


def test_an_async_function_that_takes_too_long_is_ended_by_its_timeout(jobs: Queue) -> None:
    jobs.add("hang", timeout=0.3)
    orch.fire(jobs, work={"hang": hang}, limits=Limits(retries=Retries(max_attempts=1)))
    assert jobs.attempts(1)[0].reason == "timeout"


def test_an_async_function_cannot_begin_within_another_loop_and_that_is_said(jobs: Queue) -> None:
    async def program() -> None:
        orch.fire(jobs, work={"wait": wait_for_others}, runner="inline")

    jobs.add("wait")
    asyncio.run(program())
    assert "cannot be called from a running event loop" in str(jobs.attempts(1)[0].error)


@pytest.mark.parametrize("runner", IN_PROCESS)
def test_every_runner_leaves_the_same_records(tmp_path: Path, runner: str) -> None:
    stories = []
    for name in ("pool", runner):
        with orch.connect(str(tmp_path / f"{name}.db")) as queue:
            stories.append(tell(name, queue))
    assert stories[0] == stories[1]
    assert stories[0]["tasks"][10] == ("double", "done", 1, 0)
    assert stories[0]["attempts"][8] == [("failed", None, "ValueError: no luck")]


def test_a_queue_in_memory_is_fired_inline() -> None:
    with orch.connect(":memory:") as queue:
        told = tell("inline", queue)
    assert told["ending"] == "passed"
    assert told["tasks"][10][1] == "done"


def test_inline_does_one_task_after_the_other_in_order_and_takes_closures(jobs: Queue) -> None:
    done: list[int] = []

    @jobs.work("note", timeout=5)
    def note(task: Task) -> None:
        done.append(task.payload["n"])
        assert threading.current_thread() is threading.main_thread()

    for number in (3, 1, 2):
        jobs.add("note", {"n": number}, priority=number)
    orch.fire(jobs, runner="inline")
    assert done == [3, 2, 1]


def test_threads_work_at_the_same_time(jobs: Queue) -> None:
    meeting = threading.Barrier(2, timeout=60)
    jobs.add("meet")
    jobs.add("meet")
    orch.fire(
        jobs, work={"meet": lambda task: meeting.wait() * 0}, runner="threads", limits=Limits(max_pool=2, task_cap=1)
    )
    assert {task.state for task in jobs.tasks()} == {"done"}


@pytest.mark.parametrize("runner", IN_PROCESS)
def test_commands_run_too_and_leave_the_other_children_of_the_program_alone(
    jobs: Queue, runner: str, tmp_path: Path
) -> None:

    own = subprocess.Popen(["sleep", "2041"])
    try:
        modes = {"say": Mode("say", command=("sh", "-c", "echo $ORCH_TASK_ID $ORCH_FIRE"))}
        for _ in range(3):
            jobs.add("say")
        orch.fire(jobs, replace(orch.project_of(jobs), modes=modes), runner=runner)
        assert [attempt.result for id in (1, 2, 3) for attempt in jobs.attempts(id)] == ['"1 1"', '"2 1"', '"3 1"']
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


def test_what_a_runner_cannot_do_is_said_before_anything_begins(jobs: Queue) -> None:
    jobs.add("m")
    local = {"m": lambda task: None}
    with pytest.raises(UsageError, match="cannot be imported by a worker process"):
        orch.fire(jobs, work=local)
    with pytest.raises(UsageError, match="is not one of pool, inline, threads"):
        orch.fire(jobs, work=local, runner="celery")
    with pytest.raises(UsageError, match="'wrap' cannot reach"):
        orch.fire(jobs, work={"m": double}, wrap=lambda do: do)
    with orch.connect(":memory:") as memory:
        for runner in ("pool", "threads"):
            with pytest.raises(UsageError, match="nobody else sees a queue in memory"):
                orch.fire(memory, work={"m": double}, runner=runner)
    assert jobs.ledger.fires(1) == []


def test_a_sweep_in_the_middle_of_a_task_ends_nobody_who_works_in_this_process(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    with freeze_time("2026-11-30 20:00") as clock, orch.connect(path) as queue:
        project = Project(path, ".", str(tmp_path / "state"), {}, sinks=())

        def long(task: Task) -> str:
            clock.tick(datetime.timedelta(hours=5))
            with orch.connect(path) as other:
                swept = hygiene.sweep(other, project)
            return f"{swept.ended} {swept.missing}"

        queue.add("long")
        orch.fire(queue, project, work={"long": long}, runner="inline", limits=Limits(wall_clock_minutes=600))
        assert queue.attempts(1)[0].result == '"0 0"'


def test_a_fire_that_is_asked_to_stop_ends_after_the_task_at_hand(jobs: Queue) -> None:
    def stop(task: Task) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    for _ in range(4):
        jobs.add("stop")
    with pytest.raises(Stopped, match="SIGTERM"):
        orch.fire(jobs, work={"stop": stop}, runner="inline", limits=Limits(max_pool=2))
    assert [task.state for task in sorted(jobs.tasks(), key=lambda task: task.id)] == ["done", *["incoming"] * 3]
