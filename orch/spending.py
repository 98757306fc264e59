"""The verbs on what attempts say that they cost."""

from __future__ import annotations

from orch.database import Database
from orch.fire_records import Overrun, Spent


class Spending:
    """Sums over what was reported: it shares the queue's connection. Moments are stamps, costs US dollars."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def between(self, since: str, until: str) -> list[Spent]:
        """What was reported from `since` to before `until`, a record for each fire and mode."""
        return [Spent(*row) for row in self.database.run("spent_between", since=since, until=until)]

    def on(self, since: str, until: str) -> tuple[int, float]:
        """Tokens and dollars that were reported from `since` to before `until`."""
        tokens, cost = self.database.run("spent_on", since=since, until=until)[0]
        return tokens, cost

    def of_fire(self, fire: int) -> tuple[int, float]:
        """Tokens and dollars that the attempts of one fire have reported."""
        tokens, cost = self.database.run("spent_in_fire", fire=fire)[0]
        return tokens, cost

    def overruns(self, *, fire: int | None = None, task: int | None = None) -> list[Overrun]:
        """Orders that have cost more than they allow, all attempts together: those at work in a fire, or one task."""
        return [Overrun(*row) for row in self.database.run("overruns", fire=fire, task=task)]

    def unpriced(self, *, since: str, after: int = 0, fire: int | None = None) -> tuple[int, int]:
        """How many attempts ended from `since` on that did not say their tokens, and how many not their cost.

        Only events behind the number `after` are looked at; with `fire`, only attempts of that one.
        """
        tokens, cost = self.database.run("unpriced", since=since, after=after, fire=fire)[0]
        return tokens, cost
