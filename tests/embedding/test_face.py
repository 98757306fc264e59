"""What a program can do with a queue without a command line, by what the package gives."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from freezegun import freeze_time

import orch
from orch import Guard, Limits, Mode, Queue, Schedule, Task, UsageError, clock
from orch.database.sqlite import SQLite
from orch.testing import assert_drained, assert_states

IN_PROCESS = ["inline", "threads"]


def nothing(task: Task) -> None:
    """For worker processes too."""


# Queues and projects


def test_a_temporary_queue_takes_any_runner_and_leaves_nothing() -> None:
    with orch.temporary() as queue:
        folder = Path(str(queue.database.path)).parent  # type: ignore[attr-defined]
        queue.add("nothing")
        orch.fire(queue, work={"nothing": nothing})
        assert_drained(queue)
    assert not folder.exists()


def test_a_queue_is_opened_by_a_path_object_and_made_where_the_project_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with orch.connect(tmp_path / "jobs.db") as queue:
        assert queue.add("m").id == 1
    (tmp_path / "orch.toml").write_text('zone = "UTC"\n[modes.m]\ncommand = ["true"]\ntimeout = 5\n')
    monkeypatch.chdir(tmp_path)
    with orch.connect() as queue:
        queue.add("m")
    assert os.stat(tmp_path / ".orch").st_mode & 0o777 == 0o700
    project = orch.load_project()
    assert project.database == str(tmp_path / ".orch" / "orch.db")
    assert project.modes["m"].timeout == 5
    (tmp_path / "orch.toml").write_text("[modes.m]\ncommand = 7\n")
    with pytest.raises(UsageError, match=r"modes\.m\.command"):
        orch.load_project()


def test_a_function_stands_in_for_the_command_of_a_project_within_its_limits(
    orch_queue: Any, orch_clock: Any, tmp_path: Path
) -> None:
    (tmp_path / "orch.toml").write_text('[modes.m]\ncommand = ["false"]\ntimeout = 5\n')
    project = orch.load_project(str(tmp_path / "orch.toml"))
    assert project.database == str(orch_queue.database.path)
    orch_queue.add("m")
    orch_queue.add("m")
    slow = {2: 6}
    orch.fire(
        orch_queue, project, work={"m": lambda task: orch_clock.advance(slow.get(task.id, 0)) and None}, runner="inline"
    )
    assert_states(orch_queue, {1: "done", 2: "retry-pending"})
    assert orch_queue.attempts(2)[0].reason == "timeout"


def test_a_project_of_another_queue_is_refused(orch_queue: Any, tmp_path: Path) -> None:
    project = replace(orch.project_of(orch_queue), database=str(tmp_path / "other.db"))
    for act in (orch.fire, orch.sweep, orch.status, orch.rehearse, orch.poll):
        with pytest.raises(UsageError, match=r"has another one: .*other\.db"):
            act(orch_queue, project)  # type: ignore[operator]
    assert orch_queue.ledger.fires(1) == []


def test_what_is_exported_is_there_and_nothing_else_is_offered() -> None:
    for name in orch.__all__:
        assert getattr(orch, name) is not None
    assert set(orch.__all__) <= set(dir(orch))
    with pytest.raises(AttributeError, match="no attribute 'manager'"):
        _ = orch.manager  # type: ignore[attr-defined]


def test_opening_a_queue_loads_no_fire() -> None:
    code = "import orch, sys\nwith orch.connect(':memory:') as q: q.add('m')\nprint(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"orch.fires", "orch.pool", "multiprocessing.pool", "pydantic", "rich", "psutil", "yaml"} & set(loaded)


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a path for a queue": (lambda q: orch.fire("jobs.db"), "queue has to be a Queue, .* orch.connect opens one"),
    "a path for a project": (lambda q: orch.fire(q, "orch.toml"), "project has to be a Project"),
    "a table for limits": (lambda q: orch.fire(q, limits={"max_pool": 3}), "limits has to be a Limits"),
    "names for work": (lambda q: orch.fire(q, work=["m"]), "work has to be a Mapping"),
    "a number for a function": (lambda q: orch.fire(q, work={"m": 7}, runner="inline"), "'m' has to be a function"),
    "a number to register": (lambda q: q.work("m")(7), "'m' has to be a function"),
    "a time before now": (lambda q: q.work("m", timeout=-5), "timeout of the mode 'm' has to be a number above 0"),
    "a time in words": (lambda q: q.work("m", timeout="5m"), "timeout of the mode 'm' has to be a number above 0"),
    "an age in words": (lambda q: orch.prune(q, "30d"), "seconds has to be a number from 0 on"),
    "an age in the future": (lambda q: orch.prune(q, -1), "seconds has to be a number from 0 on"),
    "a file for a text": (lambda q: orch.delegate(q, Path("order.yaml")), "read its file first"),
    "a watchdog in memory": (lambda q: orch.watch(orch.connect(":memory:")), "nobody else sees one in memory"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_in_a_call_is_said_before_anything_begins(orch_queue: Any, what: str) -> None:
    orch_queue.add("m")
    call, told = WRONG[what]
    with pytest.raises(UsageError, match=told):
        call(orch_queue)
    assert orch_queue.ledger.fires(1) == []
    assert orch_queue.handlers == {}


def test_a_limit_that_there_is_not_is_refused_where_it_is_written(orch_queue: Any) -> None:
    with pytest.raises(TypeError, match="timeot"):
        orch_queue.work("m", timeot=5)


# What the command line does


def test_a_sweep_recovers_a_claim_whose_owner_has_vanished(orch_queue: Any, orch_clock: Any) -> None:
    orch_queue.add("m")
    orch_queue.claim("m")
    assert not orch.sweep(orch_queue).swept.anything
    orch_clock.advance("7h")
    swept = orch.sweep(orch_queue).swept
    # The backoff counts from the last sign of life, so that it is over.
    assert (swept.crashed, swept.retried, swept.promoted) == (1, 1, 1)
    assert_states(orch_queue, {1: "incoming"})
    assert not orch.sweep(orch_queue).swept.anything


def test_a_look_at_what_a_fire_would_do_and_at_how_the_queue_stands_changes_nothing(orch_queue: Any) -> None:
    @orch_queue.work("known", max_seats=1)
    def known(task: Task) -> None: ...

    for mode in ("known", "known", "unknown"):
        orch_queue.add(mode)
    rehearsed = orch.rehearse(orch_queue)
    assert rehearsed.plan.granted == {"known": 1}
    assert orch.rehearse(orch_queue, decide=lambda snapshot: {"seats": {}}).plan.granted == {}
    stands = orch.status(orch_queue)
    assert {mode.mode: (mode.backlog.ready, mode.known) for mode in stands.modes} == {
        "known": (2, True),
        "unknown": (1, False),
    }
    assert_states(orch_queue, incoming=3)
    assert orch_queue.ledger.fires(1) == []


def test_a_poll_drains_the_queue_and_refuses_what_no_worker_process_could_import(orch_queue: Any) -> None:
    orch_queue.work("nothing")(nothing)
    orch_queue.add("nothing")
    fired = orch.poll(orch_queue)
    assert (fired.fire.kind, fired.fire.ending) == ("poll", "passed")
    assert_drained(orch_queue)
    orch_queue.work("closure")(lambda task: None)
    with pytest.raises(UsageError, match="the work of 'closure'"):
        orch.poll(orch_queue)


def test_cancelled_tasks_are_failed_and_old_ones_are_let_go(orch_queue: Any, orch_fire: Any, orch_clock: Any) -> None:
    for _ in range(3):
        orch_queue.add("nothing")
    [cancelled] = orch.cancel(orch_queue, [2])
    assert cancelled.told() == "task 2 is cancelled"
    orch_fire({"nothing": nothing})
    assert_states(orch_queue, {1: "done", 2: "failed", 3: "done"})
    orch_clock.advance("10d")
    assert orch.prune(orch_queue, 20 * 86400).tasks == 0
    # The one that moved last stays.
    assert orch.prune(orch_queue, 5 * 86400, dry_run=True).tasks == 2
    assert orch.prune(orch_queue, 5 * 86400).tasks == 2
    assert_states(orch_queue, done=1)


@pytest.mark.parametrize("runner", IN_PROCESS)
def test_cancelling_what_runs_in_a_program_never_ends_the_program(orch_queue: Any, orch_fire: Any, runner: str) -> None:
    told: list[str] = []
    path = str(orch_queue.database.path)

    def long(task: Task) -> str:
        # As another process would: by a connection of its own, after the time that the worker had.
        code = f"import orch\nwith orch.connect({path!r}) as q: print(orch.cancel(q, [{task.id}])[0].told())"
        told.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        return "too late"

    orch_queue.add("long")
    fired = orch_fire({"long": long}, runner=runner)
    assert f"its worker in the program with pid {os.getpid()}, until the task at hand returns" in told[0]
    assert_states(orch_queue, {1: "failed"})
    assert fired.fire.ending == "passed"


def test_a_sweep_from_outside_never_ends_a_program_whose_task_takes_too_long(orch_queue: Any, orch_fire: Any) -> None:
    path = str(orch_queue.database.path)
    shift = (
        "import orch, sys, datetime\n"
        "later = lambda: datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=5)\n"
        f"with orch.use_clock(later), orch.connect({path!r}) as q: print(orch.sweep(q).swept.ended)\n"
    )
    said: list[str] = []

    def long(task: Task) -> str:
        ran = subprocess.run([sys.executable, "-c", shift], capture_output=True, text=True)
        said.append(ran.stdout + ran.stderr)
        return "still here"

    orch_queue.add("long")
    orch_fire({"long": long})
    assert said == ["0\n"]
    assert_states(orch_queue, {1: "done"})


def test_orders_are_added_answered_and_handed_back(orch_queue: Any, orch_agent: Any, orch_fire: Any) -> None:
    text = (
        "handoff_type: DELEGATE\ntask_id: t1\nagent: engineer\nscope: count\n"
        "plan: [count]\nsuccess_criteria: [counted]\n"
    )
    assert orch.delegate(orch_queue, text)[0].new
    assert not orch.delegate(orch_queue, text)[0].new
    with pytest.raises(orch.HandoffError, match="scope"):
        orch.delegate(orch_queue, text.replace("scope: count\n", ""))
    orch_agent("engineer", {"status": "blocked", "output": "which words?"}, {"output": "42 words"})
    orch_fire()
    [ask] = orch_queue.asks.open()
    followed = orch.answer(orch_queue, ask.id, "all of them")
    orch_fire()
    assert_states(orch_queue, {"t1": "failed", followed.id: "done"})
    project, said = orch.project_of(orch_queue), "```yaml\nhandoff_type: HANDBACK\nstatus: success\noutput: 42\n```\n"
    with pytest.raises(orch.HandoffError, match=r"no HANDBACK|there is no"):
        orch.handback(orch_queue, "t1", "it went well", project)
    with pytest.raises(orch.Conflict, match="is failed"):
        orch.handback(orch_queue, "t1", said, project)


# Time


class Hand:
    """A clock that is passed in."""

    def __init__(self) -> None:
        self.at = datetime.datetime(2026, 11, 30, 20, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.at

    def tick(self, delta: datetime.timedelta) -> None:
        self.at += delta


@pytest.fixture(params=["freezegun", "passed in"])
def hand(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A frozen clock, by either way; `tick` moves it."""
    if request.param == "freezegun":
        with freeze_time("2026-11-30T20:00:00Z") as frozen:
            yield frozen
    else:
        own = Hand()
        with orch.use_clock(own):
            yield own


def hours(count: float) -> datetime.timedelta:
    return datetime.timedelta(hours=count)


@pytest.mark.parametrize("runner", IN_PROCESS)
def test_delays_expiry_caps_backoff_and_the_schedule_follow_a_frozen_clock(
    orch_queue: Any, hand: Any, runner: str
) -> None:
    project = replace(
        orch.project_of(orch_queue), schedule=Schedule(fire="0 */4 * * *"), limits=Limits(daily_fires=2), zone="UTC"
    )
    tries: list[int] = []

    def flaky(task: Task) -> str:
        tries.append(task.id)
        if len(tries) == 1:
            # It returns when its time is long over.
            hand.tick(hours(0.2))
        return "now"

    work = {"flaky": flaky}
    orch_queue.add("flaky", timeout=60, key="slow")
    orch_queue.add("flaky", delay=3600, key="delayed")
    orch_queue.add("never", ttl=3600, key="expiring")

    def fire(**options: Any) -> Any:
        return orch.fire(orch_queue, project, work=work, runner=runner, **options)

    from orch.fires import due_slot

    assert due_slot(project) == "2026-11-30T20:00:00.000000Z"
    fire(slot=due_slot(project))
    with pytest.raises(orch.Held, match=r"the slot 2026-11-30T20:00:00\.000000Z is taken"):
        fire(slot=due_slot(project))
    assert_states(orch_queue, {"slow": "retry-pending", "delayed": "incoming", "expiring": "incoming"})
    hand.tick(hours(2))
    fire()
    assert_states(orch_queue, {"slow": "done", "delayed": "done", "expiring": "failed"})
    with pytest.raises(orch.Refused, match="2 fires a day"):
        fire()
    hand.tick(hours(2))
    assert due_slot(project) == "2026-12-01T00:00:00.000000Z"
    fire(slot=due_slot(project))


def test_the_watchdog_follows_a_frozen_clock(orch_queue: Any, orch_fire: Any, hand: Any) -> None:
    guard = Guard(expected_interval_hours=4, grace_minutes=30, alerts=("file:alerts.md",))
    project = replace(orch.project_of(orch_queue), guard=guard, folder=os.path.dirname(str(orch_queue.database.path)))
    orch_fire()
    told: list[str] = []

    def look() -> str:
        return orch.watch(orch_queue, project, tell=lambda state, text: told.append(state)).state

    states = []
    for _ in range(16):
        hand.tick(hours(0.5))
        states.append(look())
    assert list(dict.fromkeys(states)) == ["lit", "late", "dark"]
    orch_fire()
    assert look() == "back"
    assert told == ["dark", "back"]
    assert "## Watchdog: dark" in Path(project.folder, "alerts.md").read_text()


def test_nobody_waits_for_ever_under_a_frozen_clock(orch_queue: Any, orch_fire: Any, hand: Any) -> None:
    before = clock.monotonic()
    project = replace(orch.project_of(orch_queue), modes={"slow": Mode("slow", command=("sleep", "600"), timeout=0.3)})
    orch_queue.add("slow")
    orch_fire(project=project, limits=Limits(grace_sec=0.2))
    assert orch_queue.attempts(1)[0].reason == "timeout"
    path = str(orch_queue.database.path)
    with orch_queue.transaction(), pytest.raises(orch.Busy), Queue.open(path, patience=0.2) as other:
        other.add("m")
    assert 0.5 < clock.monotonic() - before < 60


@pytest.mark.parametrize("number", [time.CLOCK_MONOTONIC, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)])
def test_the_clock_for_waiting_cannot_be_frozen(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_STEADY", number)
    with freeze_time("2026-11-30"):
        before = clock.monotonic()
        clock.sleep(0.001)
        assert clock.monotonic() > before


def test_a_clock_is_one_for_the_block_alone_and_says_moments_with_a_zone() -> None:
    berlin = datetime.datetime(2026, 7, 1, 12, tzinfo=clock.zone("Europe/Berlin"))
    with orch.use_clock(lambda: berlin):
        assert clock.stamp(clock.now()) == "2026-07-01T10:00:00.000000Z"
        with orch.use_clock(lambda: berlin + hours(1)):
            assert clock.stamp(clock.now()) == "2026-07-01T11:00:00.000000Z"
        assert clock.stamp(clock.now()) == "2026-07-01T10:00:00.000000Z"
    assert abs((clock.now() - datetime.datetime.now(datetime.UTC)).total_seconds()) < 60
    for wrong in (datetime.datetime(2026, 7, 1), 12345.0):
        with pytest.raises(UsageError, match="datetime with a time zone"), orch.use_clock(lambda: wrong):  # type: ignore[arg-type,return-value]  # noqa: B023
            pass


def test_worker_processes_are_refused_where_the_clock_is_not_the_machines(orch_queue: Any, orch_clock: Any) -> None:
    orch_queue.add("nothing")
    for act in (orch.fire, orch.poll):
        with pytest.raises(UsageError, match="worker processes have the machine's clock"):
            act(orch_queue)
    assert orch_queue.ledger.fires(1) == []


# Asyncio


def test_a_loop_goes_on_while_a_fire_runs_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    released = threading.Event()

    def wait(task: Task) -> str:
        return "released" if released.wait(60) else "nobody came"

    def fire() -> orch.Fired:
        with orch.connect(path) as queue:
            return orch.fire(queue, work={"wait": wait}, runner="threads")

    def add() -> int:
        with orch.connect(path) as queue:
            return queue.add("wait").id

    def state() -> str:
        with orch.connect(path) as queue:
            return queue.task(1).state

    async def program() -> orch.Fired:
        await asyncio.to_thread(add)
        firing = asyncio.create_task(asyncio.to_thread(fire))
        # Only a loop that is free can let the task go on.
        while await asyncio.to_thread(state) != "processing":
            assert not firing.done()
            await asyncio.sleep(0.001)
        released.set()
        return await firing

    fired = asyncio.run(program())
    assert fired.fire.ending == "passed"
    with orch.connect(path) as queue:
        assert json.loads(queue.attempts(1)[0].result or "") == "released"
        assert isinstance(queue.database, SQLite)
