"""The verbs on who worked when: workers, fires, and the fires that were refused."""

from __future__ import annotations

from orch import clock
from orch.database import Database
from orch.fire_records import Fire, Process, Refusal, Tally, Worker


class Ledger:
    """Who worked when: it shares the queue's connection, so that its verbs can join the queue's transactions."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # Workers

    def enrol(
        self,
        process: Process,
        *,
        fire: int | None = None,
        seat: int | None = None,
        mode: str | None = None,
        task_cap: int | None = None,
        until: str | None = None,
    ) -> int | None:
        """A worker begins in `process`, until a stamp at the most; the id by which it owns its claims.

        None: that seat of the fire was taken by another process.
        """
        with self.database.transaction():
            rows = self.database.run(
                "enrol",
                fire=fire,
                seat=seat,
                mode=mode,
                host=process.host,
                boot=process.boot,
                pid=process.pid,
                started=process.started,
                task_cap=task_cap,
                now=clock.stamp(clock.now()),
                deadline=until,
            )
        return int(rows[0][0]) if rows else None

    def retire(self, worker: int, ending: str) -> bool:
        """A worker ended, or was found missing; False when its end was known already."""
        with self.database.transaction():
            return bool(self.database.run("retire", id=worker, ending=ending, now=clock.stamp(clock.now())))

    def count_lost(self, worker: int) -> None:
        """One of this worker's answers came too late."""
        with self.database.transaction():
            self.database.run("count_lost", id=worker)

    def worker(self, id: int) -> Worker | None:
        rows = self.database.run("worker", id=id)
        return Worker(*rows[0]) if rows else None

    def is_embedded(self, worker: Worker) -> bool:
        """Whether a worker is its fire's own process, a program's that drains the queue itself: nobody may end that."""
        fire = None if worker.fire is None else self.fire(worker.fire)
        return fire is not None and fire.process == worker.process

    def present(self) -> list[Worker]:
        """The workers whose end is not known."""
        return [Worker(*row) for row in self.database.run("workers_present")]

    def crew(self, fire: int, *, first: int = 0) -> list[Worker]:
        """Every worker that a fire had, from one seat on."""
        return [Worker(*row) for row in self.database.run("workers_of", fire=fire, first=first)]

    def claims_of(self, worker: Worker) -> int:
        """How many tasks a worker has claimed."""
        return int(self.database.run("claims_of", worker=worker.id, fire=worker.fire)[0][0])

    # Fires

    def open_fire(self, process: Process, *, day: str, slot: str | None = None, kind: str = "fire") -> int:
        """A fire begins; whether it may is judged by the caller, in the same transaction."""
        rows = self.database.run(
            "open_fire",
            day=day,
            slot=slot,
            host=process.host,
            boot=process.boot,
            pid=process.pid,
            started=process.started,
            now=clock.stamp(clock.now()),
            kind=kind,
        )
        return int(rows[0][0])

    def stamp(self, fire: int, phase: str) -> bool:
        """A phase of a fire begins; False when the fire was closed by somebody else."""
        with self.database.transaction():
            return bool(self.database.run("stamp_fire", id=fire, phase=phase, now=clock.stamp(clock.now())))

    def store_plan(self, fire: int, plan: str) -> None:
        with self.database.transaction():
            self.database.run("store_plan", id=fire, plan=plan)

    def close_fire(self, fire: int, *, ending: str, rollup: str) -> bool:
        """A fire ends, and what it put off may be tried again; False when it was closed already."""
        with self.database.transaction():
            rows = self.database.run("close_fire", id=fire, ending=ending, rollup=rollup, now=clock.stamp(clock.now()))
            if rows:
                self.database.run("unhold", fire=fire)
        return bool(rows)

    def fires_open(self) -> list[Fire]:
        """The fire and the poll that have not ended; the fire first."""
        return [Fire(*row) for row in self.database.run("fires_open")]

    def fire(self, id: int) -> Fire | None:
        rows = self.database.run("fire", id=id)
        return Fire(*rows[0]) if rows else None

    def fires(self, limit: int = 20) -> list[Fire]:
        """The newest fires first."""
        return [Fire(*row) for row in self.database.run("fires", limit=limit)]

    def rouse(self) -> None:
        """Ask the poll that runs to look."""
        with self.database.transaction():
            self.database.run("rouse")

    def roused(self) -> int:
        """How often a poll was asked to look; it goes up."""
        return int(self.database.run("roused")[0][0])

    def last_success(self, endings: tuple[str, str]) -> tuple[int, str] | None:
        """The newest fire that ended in one of two ways: its number and when it was closed."""
        rows = self.database.run("last_success", one=endings[0], other=endings[1])
        return (rows[0][0], rows[0][1]) if rows else None

    def last_closed(self) -> tuple[int, str, str] | None:
        """The newest fire that has ended: its number, when, and how."""
        rows = self.database.run("last_closed")
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def slot_taken(self, slot: str) -> tuple[int, str] | None:
        """The fire that has a slot, and when it was opened."""
        rows = self.database.run("slot_taken", slot=slot)
        return (rows[0][0], rows[0][1]) if rows else None

    def refuse(self, refusal: Refusal) -> None:
        """A fire was refused by a cap; nothing was started, and that is known."""
        with self.database.transaction():
            self.database.run("refuse_fire", now=refusal.at, slot=refusal.slot, cap=refusal.cap, told=refusal.told)

    def last_refusal(self) -> Refusal | None:
        rows = self.database.run("last_refusal")
        return Refusal(*rows[0]) if rows else None

    def made_at(self) -> str:
        """When the queue was made."""
        return str(self.database.run("made_at")[0][0])

    def fires_on(self, day: str) -> int:
        """How many fires a calendar day has had; polls do not count."""
        return int(self.database.run("fires_today", day=day)[0][0])

    def tallies(self, fire: Fire) -> dict[str, Tally]:
        """What the attempts of a fire came to, counted in the event log."""
        found: dict[str, Tally] = {}
        for row in self.database.run("tally", fire=fire.id, first_event=fire.first_event):
            found[row[0]] = Tally(*row)
        for mode, began, ended in self.database.run("spans_of", fire=fire.id, first_event=fire.first_event):
            found[mode].seconds += clock.seconds_between(began, ended)
        return found

    def ended_since(self, fire: Fire, event: int) -> list[tuple[str, int, int]]:
        """Ends of a fire's attempts behind an event: the state reached, how many, and the newest event of them."""
        rows = self.database.run("ended_since", fire=fire.id, since=event)
        return [(state, count, last) for state, count, last in rows]

    def failures(self, fire: Fire) -> list[tuple[int, str, str, str]]:
        """Attempts of a fire that did not succeed: task, mode, the state that they ended in, and why."""
        rows = self.database.run("failures", fire=fire.id, first_event=fire.first_event)
        return [(task, mode, state, why) for task, mode, state, why in rows]

    def spent(self, fire: Fire) -> list[tuple[int, str, str]]:
        """Tasks that failed for good after a crash and that no earlier note told of: task, mode, and why."""
        rows = self.database.run("spent_retries", fire=fire.id)
        return [(task, mode, why or "") for task, mode, why in rows]

    def expired(self, fire: Fire) -> int:
        """How many tasks have expired that no earlier note told of."""
        return int(self.database.run("expired_since", fire=fire.id)[0][0])
