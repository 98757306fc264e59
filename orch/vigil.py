"""What the watchdog remembers from look to look: one small file beside the queue.

Not in the queue itself: it has to be there when the queue is missing, damaged or newer than this program.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from orch import clock, files, schedule
from orch.legible import when
from orch.project import Project
from orch.queue import Queue

# How often it looks where no schedule says so, which is what the crontab lines of a new project do.
USUAL_PERIOD = 1800.0
_NAME = "watchdog.json"
# Seconds that a scheduler may be late.
_LATE = 60.0
# Tenths of a second.
_LOCK_TRIES = 600


@dataclass(slots=True)
class Alert:
    """A message on its way: its number, what it is, its text, and the tries of each sink that does not have it yet."""

    id: int
    kind: str
    text: str
    sinks: dict[str, int] = field(default_factory=dict)
    at: str = ""


@dataclass(slots=True)
class Memory:
    """The state of the last look and since when it holds; moments are stamps.

    ``dark_since`` is set during an outage, ``alerted_at`` when it was last told of, ``excused_until`` after a look that
    came after a gap in the watchdog's own looks.
    """

    looked_at: str | None = None
    state: str = "new"
    since: str | None = None
    told: str = ""
    due_at: str | None = None
    dark_since: str | None = None
    alerted_at: str | None = None
    excused_until: str | None = None
    alerts: int = 0
    pending: list[Alert] = field(default_factory=list)


def recall(project: Project) -> Memory:
    """What the last look left; a fresh memory when there was none, or when the file makes no sense."""
    try:
        with open(_path(project), encoding="utf-8") as file:
            raw = json.load(file)
        raw["pending"] = [Alert(**alert) for alert in raw.get("pending", ())]
        memory = Memory(**raw)
        counts = [memory.alerts, *(tries for alert in memory.pending for tries in alert.sinks.values())]
        if not all(isinstance(number, int) for number in counts):
            return Memory()
        for stamp in (memory.looked_at, memory.since, memory.dark_since, memory.alerted_at, memory.excused_until):
            if stamp is not None and clock.stamp(clock.moment(stamp)) != stamp:
                return Memory()
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return Memory()
    return memory


def forget_the_future(memory: Memory, now: str) -> None:
    """Drop what was noted under a clock that was ahead and has been set back since."""
    if memory.looked_at is not None and memory.looked_at > now:
        memory.looked_at = None
    if memory.alerted_at is not None and memory.alerted_at > now:
        memory.alerted_at = now


def remember(project: Project, memory: Memory) -> None:
    """Keep it for the next look, whole or not at all; `OSError` when that is not possible."""
    path = _path(project)
    os.makedirs(project.state, mode=0o700, exist_ok=True)
    files.replace(path, json.dumps(asdict(memory)), durable=True)


@contextmanager
def alone(project: Project) -> Iterator[None]:
    """One look at a time: another one waits until this is over.

    Where no lock can be had it goes without, also after a minute: who holds it so long may have been stopped for good.
    """
    try:
        os.makedirs(project.state, mode=0o700, exist_ok=True)
        descriptor = os.open(f"{_path(project)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield
        return
    try:
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                clock.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def expected_by(project: Project, looked: str) -> str:
    """Until when the watchdog should have looked again: its second due time behind the last look, and a minute."""
    after = clock.moment(looked)
    if project.schedule.watchdog is None:
        return clock.stamp(clock.after(after, 2 * USUAL_PERIOD + _LATE))
    for _ in range(2):
        after = schedule.next_due(project.schedule.watchdog, clock.zone(project.zone), after)
    return clock.stamp(clock.after(after, _LATE))


def unwatched(queue: Queue, project: Project) -> str | None:
    """The complaint that nobody guards the heartbeat; None while the watchdog looks as often as it should."""
    memory, now = recall(project), clock.stamp(clock.now())
    forget_the_future(memory, now)
    looked = memory.looked_at
    if now <= expected_by(project, looked or queue.ledger.made_at()):
        return None
    since = f"has not looked since {when(looked)}" if looked else "has never looked"
    return f"the watchdog {since}: is 'orch watchdog' in the crontab?"


def _path(project: Project) -> str:
    return os.path.join(project.state, _NAME)
