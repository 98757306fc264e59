"""Putting tasks in: keys, dependencies, and many at once. `Queue.add` and `Queue.add_many` are its face."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orch import jsontext
from orch.database import Database
from orch.errors import Conflict, UsageError
from orch.names import check_name
from orch.records import Added, NewTask

# What a task waits for: the name that was given, that task's id (None when it is not known yet), whether it is done.
Need = tuple[str, int | None, int]


def add_one(database: Database, new: NewTask, *, stamp: str, by: str) -> Added:
    """Add one task at the moment `stamp`, signed `by`."""
    _check(new)
    with database.transaction(durable=True):
        added = _insert(database, new, stamp, by)
        _name_by_id(database)
    return added


def add_all(database: Database, news: Sequence[NewTask], *, stamp: str, by: str) -> list[Added]:
    """Add tasks in one transaction: all of them, or none when one is refused. Answers in the order given."""
    for new in news:
        _check(new)
    added: list[Added] = []
    plain: list[NewTask] = []
    with database.transaction(durable=True):
        for new in news:
            if new.key is None and not new.after:
                plain.append(new)
                continue
            added += _insert_plain(database, plain, stamp, by)
            plain = []
            added.append(_insert(database, new, stamp, by))
        added += _insert_plain(database, plain, stamp, by)
        _name_by_id(database)
    return added


def resolve(database: Database, names: Iterable[str]) -> list[Need]:
    """The tasks that names stand for, each once: a whole number is an id, anything else a key."""
    found: dict[int | str, Need] = {}
    for name in names:
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 19 else 0
        if number:
            name = str(number)
        rows = database.run("find_needed", named=name, id=number)
        if rows:
            found[rows[0][0]] = (name, rows[0][0], rows[0][1])
        else:
            found[name] = (name, None, 0)
    return list(found.values())


def _insert(database: Database, new: NewTask, stamp: str, by: str) -> Added:
    run = database.run
    if new.key is not None:
        there = _of_that_key(database, new)
        if there is not None:
            return there
    needs = resolve(database, new.after)
    id = run(
        "add",
        mode=new.mode,
        priority=new.priority,
        key=new.key,
        due_at=new.due_at,
        expires_at=new.expires_at,
        timeout=new.timeout,
        blocked=sum(not met for _, _, met in needs),
        now=stamp,
        by=by,
    )[0][0]
    run("add_payload", task=id, payload=new.payload)
    for name, need, met in needs:
        run("add_dependency", task=id, named=name, needs=need, met=met)
        if need is not None:
            run("mark_needed", id=need)
    if new.key is not None:
        _take_dependents(database, id, new.key)
    return Added(id, True)


def _of_that_key(database: Database, new: NewTask) -> Added | None:
    """The task that has the key already: the same one, or a `Conflict`."""
    for id, mode, payload in database.run("find_key", key=new.key):
        if mode == new.mode and jsontext.same(payload, new.payload):
            return Added(id, False)
        raise Conflict(
            f"the key {new.key!r} stands for task {id} already, with another"
            f" {'payload' if mode == new.mode else 'mode'}: choose another key, or look at 'orch show {id}'"
        )
    return None


def _insert_plain(database: Database, news: Sequence[NewTask], stamp: str, by: str) -> list[Added]:
    """Tasks without key and dependency, by one statement for all of them."""
    if not news:
        return []
    rows = [
        {
            "mode": new.mode,
            "priority": new.priority,
            "due_at": new.due_at,
            "expires_at": new.expires_at,
            "timeout": new.timeout,
            "now": stamp,
            "by": by,
            "payload": new.payload,
        }
        for new in news
    ]
    database.run("add_plain", rows)
    # Ids of one transaction follow each other: nobody else can add in between.
    last = int(database.run("last_task")[0][0])
    return [Added(id, True) for id in range(last - len(news) + 1, last + 1)]


def _name_by_id(database: Database) -> None:
    """Dependencies that named the id of a task before it was there."""
    for (id,) in database.run("unknown_ids"):
        _take_dependents(database, id, str(id))


def _take_dependents(database: Database, id: int, name: str) -> None:
    """Those that waited for a task of that name wait for this one, unless it waits for them itself."""
    if not database.run("name_dependency", id=id, key=name):
        return
    database.run("mark_needed", id=id)
    if database.run("waits_for_itself", id=id)[0][0]:
        raise UsageError(f"the task {name!r} would wait for itself, through those that wait for it")


def _check(new: NewTask) -> None:
    check_name(new.mode)
    if not -100 <= new.priority <= 100:
        raise UsageError(f"priority {new.priority} is out of range: -100 to 100, higher goes first")
    if new.timeout is not None and not 0 < new.timeout < float("inf"):
        raise UsageError(f"timeout {new.timeout} must be a number of seconds above 0")
    for name in new.after if new.key is None else (new.key, *new.after):
        if not name or len(name) > 500 or not name.isprintable():
            raise UsageError(f"{name!r} cannot be a key: use 1 to 500 printable characters")
    if new.key is not None and new.key.isascii() and new.key.isdigit():
        raise UsageError(f"{new.key!r} cannot be a key: a whole number always means a task's id")
    if new.key is not None and new.key in new.after:
        raise UsageError(f"the task {new.key!r} cannot wait for itself")
