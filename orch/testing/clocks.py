"""A clock for tests: it stands still until it is moved."""

from __future__ import annotations

import datetime

from orch import clock
from orch.errors import UsageError

# A Tuesday on which no zone changes its hour.
BEGINNING = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)


class Clock:
    """The present moment, for all that is stored and judged; it stands still until somebody moves it."""

    def __init__(self, now: datetime.datetime = BEGINNING) -> None:
        self._now = now

    def now(self) -> datetime.datetime:
        """The moment that it shows, in UTC."""
        return self._now

    def advance(self, by: float | str | datetime.timedelta) -> datetime.datetime:
        """Move it by so many seconds, by ``"90s"``, ``"2h"`` or ``"1d12h"``, or by a `timedelta`; back, if negative."""
        if isinstance(by, str):
            by = -clock.duration(by[1:]) if by.startswith("-") else clock.duration(by)
        self._now += by if isinstance(by, datetime.timedelta) else datetime.timedelta(seconds=by)
        return self._now

    def set(self, moment: str | datetime.datetime) -> datetime.datetime:
        """Set it to an ISO 8601 time (in UTC, if it names no zone) or an aware `datetime`."""
        if isinstance(moment, str):
            moment = clock.instant(moment, clock.UTC)
        if moment.tzinfo is None:
            raise UsageError(f"a moment needs a time zone: {moment!r} has none")
        self._now = moment.astimezone(clock.UTC)
        return self._now
