"""The verbs on the log of moves, for whoever follows it: what came behind an event, and who is at work now."""

from __future__ import annotations

from orch.database import Database
from orch.fire_records import Fire, Sitting
from orch.look_records import Event, Moved


class EventLog:
    """Reads that share the queue's connection; each is read to its end before it returns. ``mode`` None means any."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def version(self) -> int:
        """A number that changes when somebody else has written anything."""
        return int(self.database.run("data_version")[0][0])

    def first_since(self, stamp: str) -> int:
        """The number of the first event at a moment or behind it; one more than the newest where there is none.

        Found by halving, as the log is in the order of time and an index on it would cost every move.
        """
        low, high = 1, int(self.database.run("last_event")[0][0]) + 1
        while low < high:
            middle = (low + high) // 2
            found = self.database.run("event_at", id=middle)
            if found and found[0][1] < stamp:
                low = found[0][0] + 1
            else:
                high = middle
        return low

    def behind(self, event: int, *, mode: str | None, limit: int) -> list[Moved]:
        """The moves behind an event, the oldest first."""
        return [_moved(row) for row in self.database.run("events_behind", after=event, mode=mode, limit=limit)]

    def last(self, limit: int, *, mode: str | None, behind: int) -> list[Moved]:
        """The newest moves, the newest first, looking back no further than an event."""
        return [_moved(row) for row in self.database.run("events_last", after=behind, mode=mode, limit=limit)]

    def seats(self) -> list[Sitting]:
        """The workers that have not ended, each with what it works on."""
        return [Sitting(*row) for row in self.database.run("seats_taken")]

    def fires_from(self, number: int) -> list[Fire]:
        """Fires from one number on, the oldest first."""
        return [Fire(*row) for row in self.database.run("fires_behind", id=number)]


def _moved(row: tuple[object, ...]) -> Moved:
    return Moved(Event(*row[:9]), *row[9:])  # type: ignore[arg-type]
