"""Cron expressions: when a fire was due last and is due next, in the project's zone. The only import of cronsim.

The hour that a zone skips or repeats is treated as Debian's cron does: a job at a fixed time runs once in each of these
nights, right after the gap where its own time does not exist; one with a wildcard follows the clock on the wall.
"""

from __future__ import annotations

import datetime

from cronsim import CronSim, CronSimError

from orch import clock
from orch.errors import UsageError

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def check_expression(text: str) -> str:
    """The expression itself, five fields or a name such as ``@daily``; `UsageError` says what is wrong with it."""
    fields = _NAMED.get(text.strip(), text).split()
    if len(fields) != 5 or not text.isprintable():
        raise UsageError(
            f"{text!r} is not a cron expression: write five fields, such as '0 */4 * * *', or one of "
            + ", ".join(_NAMED)
        )
    try:
        next(CronSim(" ".join(fields), clock.now()))
    except CronSimError as error:
        raise UsageError(f"{text!r} is not a cron expression: {str(error).lower()}") from None
    except StopIteration:
        raise UsageError(f"{text!r} is never due") from None
    return text


def next_due(expression: str, zone: datetime.tzinfo, after: datetime.datetime) -> datetime.datetime:
    """The first due time behind a moment, in UTC."""
    # A job at a fixed time is found again in the second pass of a repeated hour, where it was due in the first.
    found = (due.astimezone(clock.UTC) for due in _from(expression, zone, after))
    return next(due for due in found if due > after)


def last_due(expression: str, zone: datetime.tzinfo, now: datetime.datetime) -> datetime.datetime:
    """The last due time that is not after `now`, in UTC."""
    found = next(_from(expression, zone, now, reverse=True))
    # Backwards out of a repeated hour its first pass is stepped over: look again from there.
    for due in _from(expression, zone, found):
        if due.astimezone(clock.UTC) > now:
            break
        found = due
    return found.astimezone(clock.UTC)


def _from(expression: str, zone: datetime.tzinfo, moment: datetime.datetime, *, reverse: bool = False) -> CronSim:
    return CronSim(_NAMED.get(expression.strip(), expression), _plain(moment).astimezone(zone), reverse=reverse)


def _plain(moment: datetime.datetime) -> datetime.datetime:
    """The same moment in Python's own class: that of a frozen clock forgets which pass of a repeated hour it is."""
    own = next(each for each in type(moment).__mro__ if each.__module__ == "datetime")
    return own(*moment.astimezone(clock.UTC).timetuple()[:6], moment.microsecond, clock.UTC)  # type: ignore[no-any-return]
