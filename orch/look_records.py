"""Slots dataclasses for what is seen of tasks from outside; field order is the column order of their queries.

Apart from the tasks themselves, as whoever adds or does one needs none of these. Moments are stored stamps (UTC text).
"""

from __future__ import annotations

from dataclasses import dataclass

from orch.legible import when


@dataclass(slots=True)
class Attempt:
    """One start of a task, told from its events and from what was kept of its outcome."""

    task: int
    attempt: int
    worker: int | None
    fire: int | None
    claimed_at: str
    ended_at: str | None
    outcome: str | None
    reason: str | None
    exit_code: int | None
    error: str | None
    result: str | None
    output: str | None
    tokens: int | None
    cost_usd: float | None


@dataclass(slots=True)
class Event:
    """One move of one task; the log of these is append-only."""

    id: int
    task: int
    attempt: int
    old_state: str
    new_state: str
    at: str
    moved_by: str | None
    reason: str | None
    worker: int | None


@dataclass(slots=True)
class Pause:
    """A paused mode, or all of them (``*``); ``until`` is a stamp where it ends by itself."""

    mode: str
    paused_at: str
    paused_by: str | None
    reason: str | None
    until: str | None = None

    @property
    def told(self) -> str:
        """The pause in words, without its mode."""
        until = f" until {when(self.until)}" if self.until else ""
        return f"paused{until}{': ' + self.reason if self.reason else ''}"


@dataclass(slots=True)
class Backlog:
    """What waits and runs in one mode. ``ready`` can be claimed now; the rest waits for a time or for another task."""

    mode: str
    ready: int = 0
    delayed: int = 0
    retrying: int = 0
    blocked: int = 0
    running: int = 0
    crashed: int = 0
    oldest_at: str | None = None
    top_priority: int = 0


@dataclass(slots=True)
class Moved:
    """One move of a task, with its mode and key."""

    event: Event
    mode: str
    key: str | None

    @property
    def at(self) -> str:
        return self.event.at
