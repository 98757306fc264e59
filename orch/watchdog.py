"""The guard over the one heartbeat: it says so when a fire that was due has not succeeded."""

from __future__ import annotations

from dataclasses import dataclass

from orch import clock
from orch.queue import Queue

# A fire is successful when it passed its barrier and stored its note, whatever its tasks did.
SUCCESSFUL = ("passed", "idle")


@dataclass(slots=True)
class Look:
    """One look: whether the fleet is dark, since when a fire has been due, and the last successful one.

    Moments are stamps; ``last`` is None when no fire has ever succeeded.
    """

    dark: bool
    due_at: str
    last: str | None
    last_fire: int | None

    def told(self) -> str:
        """The state in one line."""
        last = "no fire has succeeded yet"
        if self.last:
            last = f"the last successful fire was {self.last_fire}, at {self.last}"
        if self.dark:
            return f"no fire has succeeded since one was due at {self.due_at}; {last}: the fleet is dark"
        return f"all is well: {last}, the next is due at {self.due_at}"


def watch(queue: Queue, *, expected_interval_hours: float, grace_minutes: float) -> Look:
    """Judge by the last successful fire or, before the first one, by when the queue was made; changes nothing."""
    last = queue.ledger.last_success(SUCCESSFUL)
    since = last[1] if last else queue.ledger.made_at()
    due = clock.after(clock.moment(since), expected_interval_hours * 3600)
    dark = clock.now() > clock.after(due, grace_minutes * 60)
    return Look(dark, clock.stamp(due), last[1] if last else None, last[0] if last else None)
