"""When a fire is due: cron expressions in a zone, the nights in which its clock is set included."""

from __future__ import annotations

import pytest

from orch import clock, schedule
from orch.errors import UsageError

BERLIN = clock.zone("Europe/Berlin")


def local(text: str) -> str:
    """A local time with its offset, as UTC."""
    return clock.stamp(clock.instant(text, clock.UTC))


@pytest.mark.parametrize(
    ("expression", "after", "due"),
    [
        ("30 2 * * *", "2026-03-27T02:30+01:00", "2026-03-28T02:30+01:00"),
        # 02:30 does not exist: right after the gap.
        ("30 2 * * *", "2026-03-28T02:30+01:00", "2026-03-29T03:00+02:00"),
        # 02:30 exists twice: once, at the first.
        ("30 2 * * *", "2026-10-24T02:30+02:00", "2026-10-25T02:30+02:00"),
        ("30 2 * * *", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),
        # Asked in the second pass, it was due in the first.
        ("50 2 * * *", "2026-10-25T02:10+01:00", "2026-10-26T02:50+01:00"),
        ("30 2 * * *", "2026-10-25T02:02+01:00", "2026-10-26T02:30+01:00"),
        # A wildcard follows the clock on the wall.
        ("*/15 * * * *", "2026-03-29T01:45+01:00", "2026-03-29T03:00+02:00"),
        ("*/15 * * * *", "2026-10-25T02:45+02:00", "2026-10-25T02:00+01:00"),
        ("@daily", "2026-12-01T10:00+01:00", "2026-12-02T00:00+01:00"),
        ("0 9 * * MON-FRI", "2026-12-04T09:00+01:00", "2026-12-07T09:00+01:00"),
    ],
)
def test_the_next_due_time_is_that_of_cron_in_the_zone(expression: str, after: str, due: str) -> None:
    found = schedule.next_due(expression, BERLIN, clock.moment(local(after)))
    assert clock.stamp(found) == local(due)


@pytest.mark.parametrize(
    ("expression", "now", "due"),
    [
        ("30 2 * * *", "2026-12-01T02:30:00+01:00", "2026-12-01T02:30+01:00"),
        ("30 2 * * *", "2026-12-01T02:29:59+01:00", "2026-11-30T02:30+01:00"),
        ("30 2 * * *", "2026-03-29T03:20+02:00", "2026-03-29T03:00+02:00"),
        # In the second pass of the hour the first one is the last due time, before 02:30 and after it.
        ("30 2 * * *", "2026-10-25T02:20+01:00", "2026-10-25T02:30+02:00"),
        ("30 2 * * *", "2026-10-25T02:50+01:00", "2026-10-25T02:30+02:00"),
        ("*/15 * * * *", "2026-10-25T02:20+01:00", "2026-10-25T02:15+01:00"),
    ],
)
def test_the_last_due_time_is_not_after_now(expression: str, now: str, due: str) -> None:
    assert clock.stamp(schedule.last_due(expression, BERLIN, clock.moment(local(now)))) == local(due)


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/15 * * * *", "0 */4 * * *", "5 1-3 * * *"])
@pytest.mark.parametrize("night", ["2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z"])
def test_forwards_and_backwards_agree_through_both_nights(expression: str, night: str) -> None:
    began = clock.moment(night)
    due = [schedule.next_due(expression, BERLIN, began)]
    while (due[-1] - began).total_seconds() < 10 * 3600:
        due.append(schedule.next_due(expression, BERLIN, due[-1]))
    for minute in range(0, 10 * 60, 5):
        now = clock.after(began, minute * 60 + 1)
        passed = [moment for moment in due if moment <= now]
        if passed:
            assert schedule.last_due(expression, BERLIN, now) == passed[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write five fields"),
        ("* * * *", "write five fields"),
        ("0 0 0 * * *", "write five fields"),
        ("@reboot", "write five fields"),
        ("61 * * * *", "bad minute"),
        ("*/5 * * * *\n", "write five fields"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("every day at nine oclock", "bad minute"),
    ],
)
def test_what_is_no_expression_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        schedule.check_expression(text)


def test_an_expression_is_kept_as_it_is_written() -> None:
    assert schedule.check_expression("@hourly") == "@hourly"
    assert schedule.check_expression(" 0  4 * * 1 ") == " 0  4 * * 1 "
