"""The seven states: what Python says of them and what the database holds are the same."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import apsw
import pytest

import orch
from orch.queue import Queue
from orch.states import LEGAL, MOVES, STATUSES, State, states_named

SQL = Path(orch.__file__).parent / "sql"


def put_into(connection: apsw.Connection, id: int, state: State) -> None:
    """Bring a fresh task into a state by legal moves alone."""
    ways = {
        State.INCOMING: [],
        State.CLAIMED: [State.CLAIMED],
        State.PROCESSING: [State.PROCESSING],
        State.DONE: [State.PROCESSING, State.DONE],
        State.FAILED: [State.FAILED],
        State.CRASHED: [State.CLAIMED, State.CRASHED],
        State.RETRY_PENDING: [State.CLAIMED, State.RETRY_PENDING],
    }
    for step in ways[state]:
        move(connection, id, step)


def move(connection: apsw.Connection, id: int, state: State) -> None:
    more = ", attempts = attempts + 1" if state in (State.CLAIMED, State.PROCESSING) else ""
    connection.execute(f"update task set state = ?{more} where id = ?", (state.value, id))


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(State, 2)))
def test_the_database_allows_exactly_the_moves_of_the_table(queue: Queue, old: State, new: State) -> None:
    id = queue.add("m").id
    connection = queue.database._connection  # type: ignore[attr-defined]
    put_into(connection, id, old)
    # A start is no claim: it alone leaves the number of attempts as it is.
    if (old, new) == (State.CLAIMED, State.PROCESSING):
        connection.execute("update task set state = 'processing' where id = ?", (id,))
    elif (old, new) in LEGAL:
        move(connection, id, new)
    else:
        with pytest.raises(apsw.ConstraintError, match="illegal move"):
            move(connection, id, new)
    assert queue.task(id).state == (new if (old, new) in LEGAL else old)


@pytest.mark.parametrize(
    "sql",
    [
        "update task set state = 'nonsense'",
        "update task set state = 'processing'",
        "update task set attempts = -1",
        "insert into task (mode, state, created_at, updated_at) values"
        " ('m', 'done', '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z')",
        "update task set claimed_at = '2026-01-01 00:00:00'",
        "update event set reason = 'rewritten'",
        "delete from event",
    ],
)
def test_the_database_refuses_what_would_make_its_story_false(queue: Queue, sql: str) -> None:
    queue.add("m")
    queue.release(queue.claim("m")[0], "test")
    with pytest.raises(apsw.ConstraintError):
        queue.database._connection.execute(sql)  # type: ignore[attr-defined]


def test_every_move_writes_one_event(queue: Queue) -> None:
    id = queue.add("m").id
    task = queue.claim("m")[0]
    queue.finish(task)
    events = queue.events(id)
    assert [(event.old_state, event.new_state) for event in events] == [
        ("incoming", "processing"),
        ("processing", "done"),
    ]
    assert all(event.moved_by == "test" and event.attempt == 1 for event in events)


def test_the_statements_spell_only_states_that_exist() -> None:
    named = set()
    for file in SQL.rglob("*.sql"):
        text = re.sub(r"--.*", "", file.read_text())
        for found in re.findall(r"state (?:=|<>|in) (\([^)]*\)|'[^']*')", text):
            named |= set(re.findall(r"'([^']*)'", found))
    assert named <= set(State)
    assert named


def test_each_move_of_the_table_has_its_statement() -> None:
    unwritten = {"refuse"}
    moves = {name for name in MOVES if (SQL / f"{name}.sql").exists()}
    assert moves == set(MOVES) - unwritten


def test_no_module_but_this_one_spells_a_state_in_python() -> None:
    package = Path(orch.__file__).parent
    spelled = {}
    for file in package.rglob("*.py"):
        if file.name == "states.py" or "templates" in file.parts:
            continue
        found = re.findall(r"state\w* (?:==|!=|in|is) \(?[\"'](\w+)", file.read_text())
        if found:
            spelled[file.name] = found
    assert spelled == {}


def test_a_status_word_means_its_states() -> None:
    assert states_named("queued") == {State.INCOMING, State.RETRY_PENDING}
    assert states_named("crashed") == {State.CRASHED}
    assert set().union(*STATUSES.values()) == set(State)
    with pytest.raises(KeyError):
        states_named("finished")
