"""The pure rules: backoff, time, JSON, seats, crontab lines."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import pytest
from freezegun import freeze_time
from hypothesis import given, strategies as st

from orch import backoff, clock, crontab, jsontext
from orch.errors import UsageError
from orch.limits import Limits, Retries
from orch.modes import Mode
from orch.plan import Caps, Demand, Measured, Snapshot, Wish, by_backlog, capped, grant
from orch.project import Project
from orch.seating import seats_of


def test_the_backoff_grows_up_to_its_ceiling() -> None:
    steady = Retries(jitter=0)
    assert [backoff.delay(steady, count) for count in (1, 2, 3)] == [30, 45, 67.5]
    assert backoff.delay(steady, 10**6) == 3600


@given(st.integers(1, 50), st.floats(0, 0.999))
def test_the_jitter_stays_within_a_fifth(count: int, chance: float) -> None:
    plain = backoff.delay(Retries(jitter=0), count)
    assert 0.8 * plain <= backoff.delay(Retries(), count, chance) <= 1.2 * plain


# Time


@given(st.datetimes(timezones=st.just(datetime.UTC)), st.datetimes(timezones=st.just(datetime.UTC)))
def test_stamps_sort_as_their_moments_do_and_read_back_the_same(
    one: datetime.datetime, other: datetime.datetime
) -> None:
    assert (clock.stamp(one) < clock.stamp(other)) == (one < other)
    assert clock.moment(clock.stamp(one)) == one
    assert len(clock.stamp(one)) == 27


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("15m", 900), ("2h", 7200), ("1d12h", 129600), ("0.5", 0.5)])
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert clock.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "5x", "-5", "1h x", "m", "1 h"])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        clock.duration(text)


def test_a_time_without_a_zone_is_the_projects() -> None:
    berlin = clock.zone("Europe/Berlin")
    assert clock.instant("2026-07-01T12:00", berlin) == clock.instant("2026-07-01T10:00Z", berlin)
    with pytest.raises(UsageError):
        clock.instant("tomorrow", berlin)
    with pytest.raises(UsageError, match="Nowhere"):
        clock.zone("Nowhere/City")


@pytest.mark.parametrize(
    ("zone", "moment", "day", "reset"),
    [
        ("Europe/Berlin", "2026-11-30T22:59:00Z", "2026-11-30", "2026-12-01T00:00:00+01:00"),
        ("Europe/Berlin", "2026-11-30T23:01:00Z", "2026-12-01", "2026-12-02T00:00:00+01:00"),
        ("Pacific/Kiritimati", "2026-11-30T10:00:00Z", "2026-12-01", "2026-12-02T00:00:00+14:00"),
        ("Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25", "2026-10-26T00:00:00+01:00"),
        ("America/Santiago", "2026-09-05T20:00:00Z", "2026-09-05", "2026-09-06T01:00:00-03:00"),
    ],
)
def test_a_day_is_the_zones_calendar_day_and_ends_at_its_midnight(zone: str, moment: str, day: str, reset: str) -> None:
    there = clock.zone(zone)
    at = clock.moment(moment)
    assert clock.day(at, there) == day
    assert clock.next_midnight(at, there).isoformat() == reset


def test_the_clock_follows_a_frozen_one() -> None:
    with freeze_time("2026-11-30T12:00:00Z"):
        assert clock.stamp(clock.now()) == "2026-11-30T12:00:00.000000Z"


# JSON

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_whatever_json_holds_comes_back_the_same(value: object) -> None:
    text = jsontext.dump(value)
    text.encode()
    assert json.loads(text) == value
    assert jsontext.same(text, json.dumps(value, indent=2))


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", '{"x": Infinity}', '{"a": 1, "a": 2}', "{'a': 1}", "[" * 100_000, "1 2", "\ufeff1"]
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        jsontext.checked(text)


def test_values_of_other_types_are_not_the_same() -> None:
    assert not jsontext.same("1", "1.0")
    assert not jsontext.same("1", "true")
    assert jsontext.same('{"a":1,"b":2}', '{ "b": 2, "a": 1 }')


# Seats


def snapshot(limits: Limits | None = None, seconds: dict[str, float] | None = None, **ready: int) -> Snapshot:
    limits = limits or Limits()
    demands = [
        Demand(
            mode,
            ready=count,
            oldest_at=f"2026-01-0{i}",
            max_seats=2 if mode == "narrow" else None,
            measured=Measured(1, seconds[mode], 0) if seconds and mode in seconds else None,
        )
        for i, (mode, count) in enumerate(ready.items(), 1)
    ]
    return Snapshot(modes=demands, caps=Caps(max_pool=limits.max_pool, task_cap=limits.task_cap))


def test_a_mode_gets_no_more_seats_than_it_has_tasks() -> None:
    assert by_backlog(snapshot(a=3)).granted == {"a": 3}


def test_a_mode_gets_no_more_seats_than_it_may_have_and_the_cut_is_told() -> None:
    plan = by_backlog(snapshot(narrow=10))
    assert plan.granted == {"narrow": 2}
    assert plan.cuts == [("max_seats", "narrow: 2 of 10 seats")]


def test_quick_work_gets_no_more_seats_than_it_is_worth() -> None:
    assert by_backlog(snapshot(seconds={"a": 0.01}, a=20)).granted == {"a": 1}
    assert by_backlog(snapshot(seconds={"a": 0.01}, a=60)).granted == {"a": 3}, "three times the task cap"


def test_every_mode_with_work_gets_a_seat_while_seats_last_and_the_rest_follow_the_work() -> None:
    plan = by_backlog(snapshot(Limits(max_pool=10), {"slow": 9.0, "quick": 1.0}, slow=100, quick=100))
    assert sum(plan.granted.values()) == 10
    assert plan.granted["slow"] == 9
    assert plan.granted["quick"] == 1


def test_when_seats_are_short_the_oldest_and_most_urgent_modes_come_first() -> None:
    snapped = snapshot(Limits(max_pool=2), a=5, b=5, c=5)
    modes = [*snapped.modes[:2], replace(snapped.modes[2], top_priority=7)]
    plan = by_backlog(replace(snapped, modes=modes))
    assert plan.granted == {"c": 1, "a": 1}
    assert plan.cuts == [("max_pool", "2 of 15 seats; no seat for b")]


@pytest.mark.parametrize("state", [{"paused": True}, {"known": False}])
def test_paused_and_unknown_modes_get_no_seat(state: dict[str, bool]) -> None:
    both = snapshot(a=5, b=5)
    seen = replace(both, modes=[both.modes[0], replace(both.modes[1], **state)])
    assert by_backlog(seen).granted == {"a": 5}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 500)),
    st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 100)),
    st.integers(1, 12),
)
def test_whatever_the_backlog_the_seats_keep_every_bound(
    ready: dict[str, int], seconds: dict[str, float], pool: int
) -> None:
    plan = by_backlog(snapshot(Limits(max_pool=pool), seconds, **ready))
    waiting = {mode for mode, count in ready.items() if count}
    assert sum(plan.granted.values()) <= pool
    assert all(0 < seats <= ready[mode] for mode, seats in plan.granted.items())
    assert len(plan.granted) == min(len(waiting), pool)


# What the caps leave of a wish


def test_seats_are_granted_in_the_order_of_the_wish_until_the_pool_is_full() -> None:
    plan = grant(Wish({"b": 8, "a": 8}), snapshot(a=50, b=50), decider="me")
    assert plan.asked == {"b": 8, "a": 8}
    assert plan.granted == {"b": 8, "a": 4}
    assert plan.cuts == [("max_pool", "12 of 16 seats")]
    assert plan.planned == 50 + 50


def test_what_cuts_a_wish_is_named_mode_by_mode() -> None:
    seen = snapshot(narrow=10, idle=1, quiet=9)
    seen = replace(seen, modes=[*seen.modes[:2], replace(seen.modes[2], paused=True)])
    plan = grant(Wish({"narrow": 5, "idle": 3, "quiet": 2}), seen, decider="me")
    assert plan.granted == {"narrow": 2, "idle": 1}
    assert plan.cuts == [
        ("max_seats", "narrow: 2 of 5 seats"),
        ("backlog", "idle: 1 of 3 seats"),
        ("paused", "quiet: 0 of 2 seats"),
    ]


def test_a_wish_can_lower_a_cap_and_never_raise_it() -> None:
    wish = Wish({"a": 9}, Caps(max_pool=3, task_cap=100, fire_cost_usd=1.5))
    plan = grant(wish, snapshot(a=500), decider="me")
    assert plan.granted == {"a": 3}
    assert plan.caps == {"max_pool": 3, "fire_cost_usd": 1.5}
    assert ("task_cap", "25 and not 100, as the decider asked") in plan.cuts
    assert capped(Limits(), plan) == Limits(max_pool=3, fire_cost_usd=1.5)


def test_a_wish_lowers_the_own_cap_of_a_mode_too_and_raises_no_other() -> None:
    seen = snapshot(a=60, b=60)
    seen = replace(seen, modes=[replace(seen.modes[0], task_cap=100), seen.modes[1]])
    plan = grant(Wish({"a": 1, "b": 1}, Caps(task_cap=50)), seen, decider="me")
    assert (plan.caps, plan.cuts, plan.planned) == ({"task_cap": 50}, [], 50 + 25)
    assert capped(Limits(), plan).task_cap == 25
    modes = {"a": Mode("a", command=("true",), task_cap=100), "b": Mode("b", command=("true",))}
    seats = seats_of(plan, Project("x.db", ".", "x", modes), fire=1)
    assert [(seat.mode.name, seat.task_cap) for seat in seats] == [("a", 50), ("b", 25)]


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 500)),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 30)),
    st.none() | st.integers(1, 20),
)
def test_whatever_the_wish_the_seats_keep_every_bound(
    wanted: dict[str, int], ready: dict[str, int], lower: int | None
) -> None:
    plan = grant(Wish(wanted, Caps(max_pool=lower)), snapshot(Limits(max_pool=12), **ready), decider="me")
    assert sum(plan.granted.values()) <= min(12, lower or 12)
    assert all(0 < seats <= min(wanted[mode], ready[mode]) for mode, seats in plan.granted.items())


# The crontab


def test_crontab_lines_are_whole_quoted_and_escape_the_percent_sign() -> None:
    lines = crontab.lines(["/opt/my tools/orch"], "/srv/100% mine/orch.toml")
    assert [line.split()[0] for line in lines] == ["0", "*/15", "*/30"]
    assert "'/opt/my tools/orch' fire --ok 4,5 --config '/srv/100\\% mine/orch.toml' -q" in lines[0]
    assert all("%" not in line.replace(r"\%", "") for line in lines)
