"""The watchdog: when it is dark, what is told and how often, and what it makes of a queue that cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import apsw
import pytest
from freezegun import freeze_time

from orch import clock, notify, processes, vigil, watchdog
from orch.fire_records import Refusal
from orch.project import Guard, Project, Schedule
from orch.queue import Queue
from orch.watchdog import Watched, watch
from tests.conftest import World

MINUTE = 60.0


class Fleet:
    """A project whose clock is set by hand and whose fires are entered by hand; alerts go to a file."""

    def __init__(self, folder: Path, guard: Guard | None = None, schedule: Schedule | None = None) -> None:
        self.path = folder / ".orch" / "orch.db"
        self.path.parent.mkdir(exist_ok=True)
        self.queue = Queue.open(str(self.path), create=True, durability="normal")
        self.alerts = folder / "alerts.md"
        self.guard = guard or Guard(expected_interval_hours=60 / 3600, grace_minutes=10 / 60)
        self.project = Project(
            str(self.path),
            str(folder),
            str(self.path.parent),
            {},
            zone="Europe/Berlin",
            schedule=schedule or Schedule(),
            guard=Guard(
                self.guard.expected_interval_hours,
                self.guard.grace_minutes,
                self.guard.remind_hours,
                self.guard.alerts or ("file:alerts.md",),
            ),
        )

    def fire(self, ending: str = "passed", slot: str | None = None) -> int:
        number = self.queue.ledger.open_fire(processes.myself(), day=clock.stamp(clock.now())[:10], slot=slot)
        if ending != "runs":
            self.queue.ledger.close_fire(number, ending=ending, rollup="{}")
        return number

    def look(self) -> Watched:
        return watch(self.project)

    def told(self) -> list[str]:
        """The kinds of the alerts that have arrived."""
        if not self.alerts.exists():
            return []
        return [line.split()[-1] for line in self.alerts.read_text().splitlines() if line.startswith("## Watchdog")]


def test_an_outage_is_told_of_once_then_now_and_then_and_when_it_is_over(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        fleet = Fleet(tmp_path, Guard(60 / 3600, 10 / 60, remind_hours=0.1))
        states: list[str] = []

        def go_on(minutes: float) -> None:
            for _ in range(int(minutes * 60 / 5)):
                frozen.tick(5)
                states.append(fleet.look().state)

        fleet.fire()
        go_on(10)
        assert list(dict.fromkeys(states)) == ["lit", "late", "dark"]
        assert fleet.told() == ["dark", "reminder"], "8.8 dark minutes, a reminder every six"
        fleet.fire()
        go_on(0.2)
        assert states[-2:] == ["back", "lit"]
        assert fleet.told() == ["dark", "reminder", "back"]
        go_on(2)
        assert fleet.told() == ["dark", "reminder", "back", "dark"], "another outage, another alert"


def test_a_fleet_that_never_fired_is_judged_from_the_making_of_its_queue(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        fleet = Fleet(tmp_path)
        assert fleet.look().state == "new"
        frozen.tick(65)
        assert fleet.look().state == "late"
        frozen.tick(10)
        looked = fleet.look()
        assert (looked.state, looked.exit_code) == ("dark", 7)
        assert "no fire has succeeded yet" in looked.told


@pytest.mark.parametrize("ending", ["stopped", "broken", "broke", "died"])
def test_fires_that_never_succeed_do_not_keep_it_quiet(tmp_path: Path, ending: str) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        fleet = Fleet(tmp_path)
        fleet.fire()
        for _ in range(10):
            frozen.tick(15)
            number = fleet.fire(ending)
            fleet.look()
        looked = fleet.look()
        assert looked.state == "dark"
        assert f"fire {number} {ending}" in looked.told
        assert fleet.told() == ["dark"]


def test_a_fire_under_way_in_time_is_waited_for_and_one_that_began_too_late_is_not(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        fleet = Fleet(tmp_path)
        fleet.fire()
        frozen.tick(62)
        running = fleet.fire("runs")
        frozen.tick(600)
        assert fleet.look().state == "lit"
        fleet.queue.ledger.close_fire(running, ending="broke", rollup="{}")
        assert fleet.look().state == "dark"
        fleet.fire("runs")
        assert fleet.look().state == "dark"


def test_a_fire_that_hangs_past_all_its_limits_is_no_sign_of_life(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        fleet = Fleet(tmp_path)
        fleet.fire()
        frozen.tick(61)
        number = fleet.fire("runs")
        frozen.tick(14 * MINUTE)
        assert fleet.look().state == "lit", "a worker may run for fifteen minutes"
        frozen.tick(3 * MINUTE)
        looked = fleet.look()
        assert (looked.state, looked.exit_code) == ("dark", 7)
        assert f"fire {number} has been running since 2026-11-30 12:01:01Z" in looked.told


def test_a_fire_that_a_cap_refused_is_reported_and_not_missing(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        fleet = Fleet(tmp_path)
        fleet.fire()
        frozen.tick(61)
        fleet.queue.ledger.refuse(Refusal(clock.stamp(clock.now()), None, "daily_fires", "no more today"))
        frozen.tick(40)
        looked = fleet.look()
        assert looked.state == "lit"
        assert "refused at 2026-11-30 12:01:01Z by the cap daily_fires" in looked.told
        # The refusals end too: whoever starts the fires is gone.
        frozen.tick(40)
        assert fleet.look().state == "dark"
        # And after fires that failed a refusal is no sign of life.
        fleet.fire()
        fleet.fire("broke")
        frozen.tick(61)
        fleet.queue.ledger.refuse(Refusal(clock.stamp(clock.now()), None, "daily_fires", "no more today"))
        fleet.look()
        frozen.tick(11)
        assert fleet.look().state == "dark"


# Schedules, and the nights in which the clock is set

NIGHTLY = Schedule(fire="30 2 * * *")


@pytest.mark.parametrize(
    ("schedule", "last", "now", "dark"),
    [
        # 02:30 does not exist that night.
        (NIGHTLY, "2026-03-28T02:30+01:00", "2026-03-29T03:20+02:00", False),
        (NIGHTLY, "2026-03-28T02:30+01:00", "2026-03-29T03:46+02:00", True),
        # 02:30 exists twice that night; one fire is expected.
        (NIGHTLY, "2026-10-25T02:30+02:00", "2026-10-25T02:50+01:00", False),
        (NIGHTLY, "2026-10-25T02:30+02:00", "2026-10-25T03:40+01:00", False),
        (NIGHTLY, "2026-10-24T02:30+02:00", "2026-10-25T03:40+01:00", True),
        (NIGHTLY, "2026-10-24T02:30+02:00", "2026-10-25T02:14+01:00", False),
        (NIGHTLY, "2026-10-24T02:30+02:00", "2026-10-25T02:16+01:00", True),
        # A manual fire after the due time satisfies it, one before does not.
        (NIGHTLY, "2026-11-30T02:31+01:00", "2026-12-01T02:29+01:00", False),
        (NIGHTLY, "2026-11-30T02:29+01:00", "2026-11-30T03:16+01:00", True),
    ],
)
@pytest.mark.parametrize("caller", ["UTC", "Asia/Tokyo"])
def test_overdue_is_judged_by_the_schedule_in_the_zone_of_the_project(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    schedule: Schedule,
    last: str,
    now: str,
    dark: bool,
    caller: str,
) -> None:
    monkeypatch.setenv("TZ", caller)
    time.tzset()
    try:
        with freeze_time(clock.instant(last, clock.UTC)) as frozen:
            fleet = Fleet(tmp_path, Guard(grace_minutes=45), schedule)
            fleet.fire()
            frozen.move_to(clock.instant(now, clock.UTC))
            assert (fleet.look().state == "dark") is dark
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("night", ["2026-03-28T22:00:00Z", "2026-10-24T22:00:00Z"])
def test_quarter_hours_are_quiet_through_both_nights_and_dark_within_an_interval_and_the_grace(
    tmp_path: Path, night: str
) -> None:
    with freeze_time(night) as frozen:
        fleet = Fleet(tmp_path, Guard(grace_minutes=30), Schedule(fire="*/15 * * * *"))
        for _ in range(6 * 4):
            fleet.fire()
            assert fleet.look().state == "lit"
            frozen.tick(15 * MINUTE)
            assert fleet.look().state in ("lit", "late")
        # That was the last one, a quarter of an hour ago.
        frozen.tick(29 * MINUTE)
        assert fleet.look().state == "late"
        frozen.tick(2 * MINUTE)
        assert fleet.look().state == "dark"


# Sleep


def test_the_first_look_after_a_sleep_waits_for_the_next_due_time_and_the_second_does_not(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T11:00:00Z") as frozen:
        fleet = Fleet(tmp_path, Guard(), Schedule(fire="0 */4 * * *", watchdog="*/30 * * * *"))
        fleet.fire()
        assert fleet.look().state == "lit"
        # The lid is closed over the fire of 16:00 (15:00 UTC) and opened at 17:30.
        frozen.move_to("2026-11-30T16:30:00Z")
        looked = fleet.look()
        assert (looked.state, looked.exit_code) == ("late", 0)
        assert "when nobody was looking" in looked.told
        for half_hours in range(1, 6):
            frozen.move_to(clock.after(clock.moment("2026-11-30T16:30:00Z"), half_hours * 1800))
            assert fleet.look().state == "late"
        frozen.move_to("2026-11-30T19:31:00Z")
        assert fleet.look().state == "dark", "the fire of 20:00 did not come either"
        assert fleet.told() == ["dark"]


def test_a_watchdog_that_looks_as_often_as_it_should_excuses_nothing(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T11:00:00Z") as frozen:
        fleet = Fleet(tmp_path, Guard(grace_minutes=5), Schedule(fire="10 */4 * * *", watchdog="*/30 * * * *"))
        fleet.fire()
        for moment, state in (("T15:00", "lit"), ("T15:30", "dark")):
            frozen.move_to(f"2026-11-30{moment}:00Z")
            if moment == "T15:00":
                fleet.look()
            else:
                assert fleet.look().state == state


def test_a_clock_that_was_set_back_does_not_keep_it_quiet(tmp_path: Path) -> None:
    with freeze_time("2030-01-01T00:00:00Z") as frozen:
        fleet = Fleet(tmp_path, Guard(grace_minutes=30), Schedule(fire="0 */4 * * *"))
        fleet.fire()
        frozen.move_to("2026-11-30T11:10:00Z")
        assert fleet.look().state == "lit"
        for moment, state in (("T14:59", "lit"), ("T15:10", "late"), ("T15:31", "dark")):
            frozen.move_to(f"2026-11-30{moment}:00Z")
            assert fleet.look().state == state
        fleet.fire()
        assert fleet.look().state == "back"


def test_a_look_under_a_clock_far_ahead_is_not_believed_later(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T11:00:00Z") as frozen:
        fleet = Fleet(tmp_path, Guard(remind_hours=1), Schedule(fire="0 */4 * * *"))
        fleet.fire()
        fleet.look()
        frozen.move_to("2036-01-01T00:00:00Z")
        fleet.look()
        for day in (1, 2, 3):
            frozen.move_to(f"2026-12-{day:02}T16:00:00Z")
            looked = fleet.look()
        assert looked.state == "dark"
        frozen.move_to("2036-01-02T00:00:00Z")
        fleet.look()
        before = len(fleet.told())
        for hour in (17, 18, 19):
            frozen.move_to(f"2026-12-03T{hour}:30:00Z")
            fleet.look()
        assert len(fleet.told()) > before, "it is reminded of all the same"
        frozen.move_to("2036-01-02T00:00:00Z")
        fleet.look()
        frozen.move_to("2026-12-03T20:00:00Z")
        assert vigil.unwatched(fleet.queue, fleet.project) is not None


def test_a_try_is_noted_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(tmp_path, Guard(0.0000001, 0, alerts=("file:alerts.md", "command:slow")))
    sent = notify.send

    def send(sink: str, *rest: Any, **options: Any) -> str | None:
        if sink == "command:slow":
            raise KeyboardInterrupt
        return sent(sink, *rest, **options)

    monkeypatch.setattr(notify, "send", send)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            fleet.look()
    assert fleet.told() == ["dark"], "the other sink has it, once"


def test_a_look_that_was_stopped_for_good_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vigil, "_LOCK_TRIES", 2)
    fleet = Fleet(tmp_path, Guard())
    with vigil.alone(fleet.project):
        assert fleet.look().state == "new"


def test_a_watchdog_with_office_hours_is_not_missed_at_night_and_has_no_gap_in_the_morning(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T16:00:00Z") as frozen:
        hours = Schedule(fire="0 2 * * *", watchdog="0,30 9-17 * * *")
        fleet = Fleet(tmp_path, Guard(grace_minutes=30), hours)
        fleet.fire()
        frozen.move_to("2026-11-30T16:30:00Z")
        assert fleet.look().state == "lit"
        for moment, complaint in (
            ("2026-11-30T22:00:00Z", False),
            ("2026-12-01T08:00:00Z", False),
            ("2026-12-01T08:32:00Z", True),
        ):
            frozen.move_to(moment)
            assert (vigil.unwatched(fleet.queue, fleet.project) is not None) is complaint
        frozen.move_to("2026-12-01T08:00:01Z")
        assert fleet.look().state == "dark", "seven hours after the fire of 02:00"


# Alerts that do not arrive


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("command:sh -c 'exit 1'", "exit 1"),
        ("command:no-such-program-anywhere", "no program"),
        ("command:sleep 60", "did not end within"),
    ],
)
def test_an_alert_that_did_not_arrive_is_not_sent_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, told: str
) -> None:
    monkeypatch.setattr(watchdog, "ALERT_LIMIT", 0.3)
    fleet = Fleet(tmp_path, Guard(0.0000001, 0, alerts=(sink, "file:alerts.md")))
    for tries in (1, 2):
        looked = fleet.look()
        assert looked.exit_code == 7
        assert [(name, told in error) for name, error in looked.undelivered] == [(sink, True)]
        assert vigil.recall(fleet.project).pending[0].sinks == {sink: tries}
        assert fleet.told() == ["dark"], "the other one has it, once"


def test_a_sink_that_is_broken_silences_no_reminder_to_the_others(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        guard = Guard(60 / 3600, 10 / 60, remind_hours=0.1, alerts=("file:alerts.md", "file:/proc/nope"))
        fleet = Fleet(tmp_path, guard)
        news = 0
        for _ in range(120):
            frozen.tick(5)
            news += len(fleet.look().news)
        assert fleet.told() == ["dark", "reminder"]
        assert news == 2
        assert len(vigil.recall(fleet.project).pending) == 1, "only the newest word waits for it"


def test_what_nobody_heard_of_is_told_when_it_is_over(tmp_path: Path) -> None:
    with freeze_time("2026-11-30T12:00:00Z") as frozen:
        (tmp_path / "heard").mkdir()
        fleet = Fleet(tmp_path, Guard(60 / 3600, 10 / 60, alerts=("file:heard",)))
        frozen.tick(71)
        assert fleet.look().undelivered
        fleet.fire()
        looked = fleet.look()
        assert (looked.state, looked.exit_code) == ("back", 1), "it could not be told"
        (tmp_path / "heard").rmdir()
        assert fleet.look().exit_code == 0
        text = (tmp_path / "heard").read_text()
        assert text.count("## Watchdog") == 1
        assert "back after the outage that was found at 2026-11-30 12:01:11Z" in text


def test_what_has_to_be_said_is_said_before_it_is_remembered(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, Guard(0.0000001, 0))

    def die(state: str, text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(fleet.project, die)
    said: list[str] = []
    for _ in range(2):
        watch(fleet.project, lambda state, text: said.append(state))
    assert said == ["dark"]
    assert fleet.told() == ["dark"]


def test_it_can_be_killed_between_sending_and_noting_and_sends_twice_at_most(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, Guard(0.0000001, 0))
    fleet.look()
    memory = vigil.recall(fleet.project)
    memory.pending.append(vigil.Alert(1, "dark", "again", {"file:alerts.md": 1}, memory.dark_since or ""))
    vigil.remember(fleet.project, memory)
    fleet.look()
    assert fleet.told() == ["dark"], "a file shows what has arrived already"


# Queues that cannot be read


def lock(path: str) -> apsw.Connection:
    """Take a database for oneself, readers included."""
    connection = apsw.Connection(path)
    connection.execute("pragma locking_mode = exclusive; begin exclusive; commit").fetchall()
    return connection


@pytest.mark.parametrize("trouble", ["missing", "locked", "foreign", "newer", "junk"])
def test_whatever_is_wrong_with_the_queue_is_one_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(watchdog, "PATIENCE", 0.2)
    fleet = Fleet(tmp_path, Guard())
    fleet.fire()
    fleet.queue.close()
    path, kept = str(fleet.path), tmp_path / "kept.db"
    os.rename(path, kept)
    holder = None
    if trouble == "locked":
        os.rename(kept, path)
        holder = lock(path)
    elif trouble == "foreign":
        apsw.Connection(path).execute("create table theirs (x)").fetchall()
    elif trouble == "newer":
        Queue.open(path, create=True).close()
        apsw.Connection(path).execute("pragma user_version = 9999").fetchall()
    elif trouble == "junk":
        fleet.path.write_text("no database " * 100)
    for _ in range(3):
        looked = fleet.look()
        assert (looked.state, looked.exit_code) == ("dark", 7)
        assert "the queue cannot be looked at" in looked.told
    assert fleet.told() == ["dark"]
    if holder is not None:
        holder.close()
    else:
        os.replace(kept, path)
        for name in ("-wal", "-shm"):
            Path(path + name).unlink(missing_ok=True)
    assert fleet.look().state == "back"
    assert fleet.told() == ["dark", "back"]


DAMAGED = '{"pending": [{"id": 1, "kind": "dark", "text": "t", "sinks": {"file:alerts.md": "x"}}]}'


def test_a_memory_that_makes_no_sense_is_forgotten(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, Guard())
    for junk in (
        "",
        "[]",
        "{",
        '{"looked_at": "yesterday"}',
        '{"pending": [1]}',
        "null",
        DAMAGED,
        '{"pending":' + "[" * 100_000,
    ):
        (tmp_path / ".orch" / "watchdog.json").write_text(junk)
        assert fleet.look().state == "new"


def test_it_works_from_anywhere_with_nothing_but_the_path(world: World) -> None:
    world.settings("[schedule]\nfire = '0 0 1 1 *'\n[watchdog]\nalerts = ['file:alerts.md']")
    world.orch("init")
    words = world.words("watchdog", "--db", world.database, "--json")
    ran = subprocess.run(words, cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, timeout=60, check=True)
    seen = json.loads(ran.stdout)["data"]
    assert seen["state"] == "new"
    assert "-01-01T00:00:00" in seen["due_at"], "the settings beside the queue hold"


@pytest.mark.full
def test_under_cron_an_outage_is_one_line_and_the_exit_code_stays(world: World) -> None:
    world.orch("init")
    world.settings("[watchdog]\nexpected_interval_hours = 0.0000001\ngrace_minutes = 0")
    world.orch("watchdog", "-q", code=7)
    assert world.err.count("\n") == 1
    assert "the fleet is dark" in world.err
    world.orch("watchdog", "-q", code=7)
    assert world.err == ""
    world.settings("")
    world.orch("watchdog", "-q")
    assert "back after the outage" in world.err
    assert json.loads(world.orch("watchdog", "--json"))["data"]["state"] == "new"


@pytest.mark.full
def test_status_and_fire_complain_of_a_watchdog_that_does_not_look(world: World) -> None:
    world.orch("init")
    made = "update origin set made_at = '2026-01-01T00:00:00.000000Z'"
    world.queue.database._connection.execute(made).fetchall()  # type: ignore[attr-defined]
    world.orch("fire")
    assert "the watchdog has never looked: is 'orch watchdog' in the crontab?" in world.err
    assert "the watchdog has never looked" in world.orch("notes")
    assert "the watchdog has never looked" in world.orch("status")
    world.orch("watchdog")
    assert "lit" in world.orch("status")
    world.orch("fire")
    assert world.err == ""
