"""What a live view sees of a queue: the moves and fires behind the last look, and how things stand now.

Every look reads its rows to the end before it returns them, so that a view that prints slowly holds nothing in the
database.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from orch import clock, processes
from orch.errors import NotFound, OrchError
from orch.fire_records import PHASES, Fire, Sitting
from orch.look_records import Backlog, Moved
from orch.plan import Plan
from orch.queue import Queue
from orch.rollup import read_back, title
from orch.states import State

BATCH = 1000
# How far back the last moves of one mode, and the fires of a moment, are looked for.
_BACK = 10_000
_FIRES = 1000


@dataclass(slots=True)
class Phase:
    """A fire, or a poll, came to a phase; at its end ``told`` is the title of its note."""

    fire: int
    phase: str
    at: str
    told: str | None = None
    kind: str = "fire"


@dataclass(slots=True)
class Sight:
    """How things stand: the running fire with its progress, the seats, the backlog, and the last fire.

    ``gone`` says that the running fire's process has died. ``left_seconds`` is the time until its last worker's wall
    clock is over.
    """

    at: str
    fire: Fire | None = None
    gone: bool = False
    planned: int = 0
    drained: int = 0
    failed: int = 0
    left_seconds: float = 0.0
    seats: list[Sitting] = field(default_factory=list)
    backlog: list[Backlog] = field(default_factory=list)
    last: Fire | None = None


class Follower:
    """Follows one queue, of one mode or of all, from the newest event on. Whoever replaces the file is followed too."""

    def __init__(self, path: str, *, mode: str | None = None) -> None:
        self.path = path
        self._mode = mode
        self._open()
        self._begin(clock.stamp(clock.now()))

    def _open(self) -> None:
        self._queue = Queue.open(self.path, by="tail")
        self._file = _identity(self.path)
        self._version: object = None

    def _begin(self, since: str) -> None:
        """News is what comes from a moment on."""
        self._since = self._seen_at = since
        self._cursor = self._queue.log.first_since(since) - 1
        self._progress = (0, 0, 0, 0)
        self._phases: dict[int, set[str]] = {}
        fires = self._queue.ledger.fires(_FIRES)
        self._fire = 1 + max((fire.id for fire in fires if fire.closed_at and fire.closed_at < since), default=0)

    def close(self) -> None:
        self._queue.close()

    def has_changed(self, *, peek: bool = False) -> bool:
        """Whether anybody has written since the last call that was not a `peek`."""
        version = self._queue.log.version()
        changed: bool = version != self._version
        if not peek:
            self._version = version
        return changed

    def was_replaced(self) -> bool:
        """Whether another file stands where this queue stood; it is followed from here on, behind what was seen.

        False too while there is none.
        """
        found = _identity(self.path)
        if found is None or found == self._file:
            return False
        old = self._queue
        try:
            self._open()
        except OrchError:
            # Not a queue yet: whoever writes it has not finished.
            return False
        old.close()
        self._begin(self._seen_at)
        return True

    def is_there(self) -> bool:
        """Whether the queue's file is there."""
        return _identity(self.path) is not None

    def go_back(self, *, since: str | None = None, last: int = 0) -> None:
        """Begin at a moment, or so many moves back."""
        if since is not None:
            self._begin(since)
        elif last:
            after = max(0, self._cursor - _BACK)
            moves = self._queue.log.last(last, mode=self._mode, behind=after)
            self._cursor = min((move.event.id for move in moves), default=self._cursor + 1) - 1

    def news(self) -> list[Moved | Phase]:
        """The moves and phases behind the last look, at most `BATCH` moves, in the order of time."""
        moves = self._queue.log.behind(self._cursor, mode=self._mode, limit=BATCH)
        if moves:
            self._cursor = moves[-1].event.id
        news: list[Moved | Phase] = [*moves]
        # Where there are more, what the fires did meanwhile comes with the last of them.
        if self._mode is None and len(moves) < BATCH:
            news += self._phases_behind()
        news.sort(key=lambda each: each.at)
        if news:
            self._seen_at = max(self._seen_at, news[-1].at)
        return news

    def skip_to_last(self, most: int) -> None:
        """Leave out all but the last so many moves."""
        moves = self._queue.log.last(most + 1, mode=self._mode, behind=self._cursor)
        if len(moves) > most:
            self._cursor = moves[most].event.id

    def look(self) -> Sight:
        """How things stand now."""
        now = clock.stamp(clock.now())
        fires = self._queue.ledger.fires(3)
        running = next(iter(self._queue.ledger.fires_open()), None)
        seats = self._queue.log.seats()
        backlog = self._queue.backlog()
        sight = Sight(
            at=now,
            fire=running,
            gone=running is not None and processes.is_alive(running.process) is False,
            seats=[seat for seat in seats if self._mode in (None, seat.mode)],
            backlog=[one for one in backlog if self._mode in (None, one.mode)],
            last=next((fire for fire in fires if fire.closed_at is not None), None),
        )
        if running is not None:
            sight.planned = Plan.read_back(json.loads(running.plan)).planned if running.plan else 0
            sight.drained, sight.failed = self._count(running)
            deadlines = [seat.deadline_at for seat in seats if seat.fire == running.id and seat.deadline_at]
            if deadlines:
                sight.left_seconds = max(0.0, clock.seconds_between(now, max(deadlines)))
        return sight

    def _count(self, fire: Fire) -> tuple[int, int]:
        """What a fire's attempts came to so far, counted on from the last look."""
        number, seen, drained, failed = self._progress
        if number != fire.id:
            number, seen, drained, failed = fire.id, fire.first_event, 0, 0
        for state, count, newest in self._queue.ledger.ended_since(fire, seen):
            seen = max(seen, newest)
            if state == State.DONE:
                drained += count
            elif state in (State.FAILED, State.CRASHED, State.RETRY_PENDING):
                failed += count
        self._progress = (number, seen, drained, failed)
        return drained, failed

    def _phases_behind(self) -> list[Moved | Phase]:
        """What fires have come to since the last look, each once."""
        found: list[Moved | Phase] = []
        fires = self._queue.log.fires_from(self._fire)
        for fire in fires:
            told = self._phases.setdefault(fire.id, set())
            for name in ("opened", *PHASES, "closed"):
                at = getattr(fire, f"{name}_at")
                if at is None or name in told:
                    continue
                told.add(name)
                if at < self._since:
                    continue
                if name == "closed":
                    told_of = title(read_back(fire.rollup)) if fire.rollup else None
                    found.append(Phase(fire.id, fire.ending or name, at, told_of, fire.kind))
                else:
                    found.append(Phase(fire.id, name, at, kind=fire.kind))
        if fires:
            # Behind the oldest that goes on: a poll outlives many fires.
            self._fire = min((fire.id for fire in fires if fire.closed_at is None), default=fires[-1].id + 1)
            self._phases = {id: told for id, told in self._phases.items() if id >= self._fire}
        return found


def find(path: str, *, mode: str | None = None) -> Follower:
    """A follower of the queue in that file; `NotFound` when there is none."""
    if _identity(path) is None:
        raise NotFound(f"no queue at {path}: 'orch init' makes one, and so does the first 'orch add'")
    return Follower(path, mode=mode)


def _identity(path: str) -> tuple[int, int] | None:
    """Which file stands at a path, without opening it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
