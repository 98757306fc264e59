"""The only reader of time and the only sleeper.

A moment is an aware UTC `datetime` in Python and a fixed-width text in the database, so that texts sort as times do.
"""

from __future__ import annotations

import contextlib
import datetime as _datetime
import re
import time
from collections.abc import Callable, Iterator

from orch.errors import UsageError

UTC = _datetime.UTC

_EPOCH = _datetime.datetime(1970, 1, 1, tzinfo=UTC)
# By its number, which nobody freezes: who waits for a limit waits in the machine's own time.
_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_given: Callable[[], _datetime.datetime] | None = None


def now() -> _datetime.datetime:
    """This moment, in UTC."""
    return _datetime.datetime.now(UTC) if _given is None else _asked(_given)


@contextlib.contextmanager
def use_clock(now: Callable[[], _datetime.datetime]) -> Iterator[None]:
    """Within the block the present moment is what `now` returns, an aware `datetime`; in every thread of this process.

    All that is stored and judged follows it: caps of the day, due times, backoff, timeouts, stale claims, the schedule
    and the watchdog. How long this process itself waits does not: a clock that stands still keeps nobody waiting for
    ever. Worker processes have the machine's clock, so that a fire over them is refused. `UsageError` when the clock
    says anything else than a moment with a time zone.
    """
    global _given
    _asked(now)
    before, _given = _given, now
    try:
        yield
    finally:
        _given = before


def is_given() -> bool:
    """Whether the present moment is somebody's own, which no other process knows."""
    return _given is not None


def _asked(given: Callable[[], _datetime.datetime]) -> _datetime.datetime:
    moment = given()
    if not isinstance(moment, _datetime.datetime) or moment.tzinfo is None:
        raise UsageError(f"a clock has to return a datetime with a time zone: it returned {moment!r}")
    return moment.astimezone(UTC)


def stamp(moment: _datetime.datetime) -> str:
    """The stored form: ``2026-11-30T19:10:00.123456Z``."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def moment(stamped: str) -> _datetime.datetime:
    """A stored stamp, read back."""
    return _datetime.datetime.fromisoformat(stamped)


def after(start: _datetime.datetime, seconds: float) -> _datetime.datetime:
    """The moment `seconds` later; the last moment that can be written when that lies beyond it."""
    try:
        return start + _datetime.timedelta(seconds=seconds)
    except OverflowError:
        return _datetime.datetime.max.replace(tzinfo=UTC)


def microseconds(stamped: str) -> int:
    """Whole microseconds since 1970 of a stored stamp."""
    return (moment(stamped) - _EPOCH) // _datetime.timedelta(microseconds=1)


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one stored stamp to another."""
    return (moment(later) - moment(earlier)).total_seconds()


def monotonic() -> float:
    """Seconds on a clock that never goes back, for measuring on one machine; never stored.

    Where the system has such a clock, time asleep counts: it is that since boot.
    """
    return time.clock_gettime(_STEADY)


def sleep(seconds: float) -> None:
    """Wait. The whole program sleeps here."""
    time.sleep(seconds)


def zone(name: str) -> _datetime.tzinfo:
    """The time zone of that IANA name; `UsageError` when this machine does not know it."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # here, as a worker never needs one

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"time zone {name!r} is not known here: use a name such as 'Europe/Berlin' or 'UTC', or install tzdata"
        ) from None


def day(moment_: _datetime.datetime, zone_: _datetime.tzinfo) -> str:
    """The calendar day of a moment in a zone, as ``2026-11-30``."""
    return moment_.astimezone(zone_).date().isoformat()


def next_midnight(moment_: _datetime.datetime, zone_: _datetime.tzinfo) -> _datetime.datetime:
    """When the calendar day of a moment ends in a zone, with that zone's offset."""
    tomorrow = moment_.astimezone(zone_).date() + _datetime.timedelta(days=1)
    # Through UTC and back: a midnight that the zone skips becomes the first moment that exists.
    local = _datetime.datetime.combine(tomorrow, _datetime.time(), tzinfo=zone_)
    return local.astimezone(UTC).astimezone(zone_)


def day_bounds(moment_: _datetime.datetime, zone_: _datetime.tzinfo) -> tuple[str, str]:
    """The stamps at which the calendar day of a moment begins and ends in a zone."""
    today = moment_.astimezone(zone_).date()
    begins = _datetime.datetime.combine(today, _datetime.time(), tzinfo=zone_)
    return stamp(begins), stamp(next_midnight(moment_, zone_))


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)([smhd]?))")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Seconds from ``90``, ``15m``, ``2h`` or ``1d12h``; `UsageError` for anything else."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{text!r} is not a duration: write seconds or a form such as 90s, 15m, 2h, 1d12h")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def instant(text: str, zone_: _datetime.tzinfo) -> _datetime.datetime:
    """An ISO 8601 time, in the given zone when it names none; `UsageError` for anything else."""
    try:
        parsed = _datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time: write it like 2026-11-30T19:10 or 2026-11-30T19:10:00Z") from None
    try:
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=zone_)).astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{text!r} is out of range: the years 1 to 9999 can be written") from None
