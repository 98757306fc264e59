"""The verbs on what is written: notes on their way up to the sinks, and texts on their way down to the decider."""

from __future__ import annotations

from orch import clock
from orch.database import Database
from orch.fire_records import Delivery, Note, Told
from orch.legible import storable


class Mail:
    """Notes and texts: it shares the queue's connection, so that its verbs can join the queue's transactions."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # Up

    def write_note(self, fire: int, *, title: str, body: str, quiet: bool, sinks: list[str]) -> int:
        """Store the one note of a fire and what sinks it is to reach (none when it is quiet)."""
        with self.database.transaction():
            rows = self.database.run(
                "write_note", fire=fire, title=title, body=body, quiet=int(quiet), now=clock.stamp(clock.now())
            )
            for sink in [] if quiet else sinks:
                self.database.run("post_note", note=rows[0][0], sink=sink)
        return int(rows[0][0])

    def notes(self, limit: int = 20) -> list[Note]:
        """The newest notes first."""
        return [Note(*row) for row in self.database.run("notes", limit=limit)]

    def note_of(self, fire: int) -> Note | None:
        rows = self.database.run("note_of", fire=fire)
        return Note(*rows[0]) if rows else None

    def outbox(self) -> list[tuple[Delivery, Note]]:
        """Notes that have not reached a sink, oldest first."""
        return [
            (Delivery(note, sink, tries, at, error), Note(note, fire, created, title, body, 0))
            for note, sink, tries, at, error, fire, created, title, body in self.database.run("deliveries_open")
        ]

    def try_delivery(self, delivery: Delivery, *, held_for: float) -> int:
        """Count a try before it happens: its number, or 0 when somebody delivered it, or is at it.

        A try that was never ended frees the delivery after `held_for` seconds.
        """
        now = clock.now()
        with self.database.transaction():
            rows = self.database.run(
                "try_delivery",
                note=delivery.note,
                sink=delivery.sink,
                now=clock.stamp(now),
                given_up=clock.stamp(clock.after(now, -held_for)),
            )
        return int(rows[0][0]) if rows else 0

    def end_delivery(self, delivery: Delivery, error: str | None) -> None:
        """A try is over: delivered, or failed with `error` and open for the next try."""
        at = clock.stamp(clock.now()) if error is None else None
        with self.database.transaction():
            self.database.run("end_delivery", note=delivery.note, sink=delivery.sink, delivered_at=at, error=error)

    # Down

    def tell(self, text: str, *, by: str | None = None) -> int:
        """Leave a text for the next decider: its number."""
        with self.database.transaction(durable=True):
            rows = self.database.run("tell", text=storable(text), by=by, now=clock.stamp(clock.now()))
        return int(rows[0][0])

    def unread(self) -> list[Told]:
        """Texts that no decider was given yet, in the order in which they came."""
        return [Told(*row) for row in self.database.run("inbox_unread")]

    def inbox(self, *, everything: bool = False, limit: int = 20) -> list[Told]:
        """The newest texts first; those that were read too, if so asked."""
        return [Told(*row) for row in self.database.run("inbox", all=int(everything), limit=limit)]

    def mark_read(self, ids: list[int], *, fire: int | None) -> list[int]:
        """A fire's decider was given these texts, or (None) a person took them back: those that were unread."""
        now = clock.stamp(clock.now())
        with self.database.transaction(durable=True):
            return [id for id in ids if self.database.run("read_inbox", id=id, fire=fire, now=now)]
