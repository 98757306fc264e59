"""The seven states of a task and the only moves between them.

This module is the one place in Python that spells a state's name. The guard trigger in the database says the same in
SQL, and a test tries every pair of states against a real database to hold the two together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """Where a task stands. The values are stored, and are the names of the protocol's folders."""

    INCOMING = "incoming"
    CLAIMED = "claimed"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"
    RETRY_PENDING = "retry-pending"


WAITING: Final = frozenset({State.INCOMING, State.RETRY_PENDING})
OWNED: Final = frozenset({State.CLAIMED, State.PROCESSING})
ENDED: Final = frozenset({State.DONE, State.FAILED})


class Move(NamedTuple):
    """One named move: the states it may leave and the states it may reach."""

    sources: frozenset[State]
    targets: frozenset[State]


def _move(sources: set[State] | frozenset[State], *targets: State) -> Move:
    return Move(frozenset(sources), frozenset(targets))


MOVES: Final[dict[str, Move]] = {
    "claim": _move({State.INCOMING}, State.CLAIMED, State.PROCESSING),
    "start": _move({State.CLAIMED}, State.PROCESSING),
    "finish": _move({State.PROCESSING}, State.DONE),
    "fail": _move(OWNED, State.FAILED, State.RETRY_PENDING),
    "crash": _move(OWNED, State.CRASHED),
    "recover": _move({State.CRASHED}, State.RETRY_PENDING, State.FAILED),
    "promote": _move({State.RETRY_PENDING}, State.INCOMING),
    "release": _move(OWNED, State.INCOMING),
    "requeue": _move({State.FAILED, State.CRASHED, State.DONE}, State.INCOMING),
    "cancel": _move(WAITING | OWNED | {State.CRASHED}, State.FAILED),
    "refuse": _move({State.INCOMING}, State.FAILED),
    "expire": _move(WAITING, State.FAILED),
}

LEGAL: Final = frozenset(
    (source, target) for move in MOVES.values() for source in move.sources for target in move.targets
)

# The shorter vocabulary of a plain work queue: each word is a set of states, and the command line takes both.
STATUSES: Final[dict[str, frozenset[State]]] = {
    "queued": WAITING,
    "in_progress": OWNED | {State.CRASHED},
    "done": frozenset({State.DONE}),
    "failed": frozenset({State.FAILED}),
}


def states_named(word: str) -> frozenset[State]:
    """The states meant by a state's own name or by a status word such as ``queued``; `KeyError` for any other word."""
    if word in STATUSES:
        return STATUSES[word]
    try:
        return frozenset({State(word)})
    except ValueError:
        raise KeyError(word) from None
