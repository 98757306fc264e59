"""Tasks as people and programs write them, made into rows: words of a command line, and lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from orch import clock, jsontext
from orch.errors import UsageError
from orch.names import RUN
from orch.records import NewTask

_FIELDS = {"mode", "payload", "key", "priority", "in", "at", "after", "timeout", "ttl"}


class Wish(NamedTuple):
    """What may be said of a task beside its mode and payload, as it was written; `zone` reads times without one."""

    zone: str
    key: str | None = None
    priority: Any = 0
    delay: Any = None
    at: Any = None
    timeout: Any = None
    ttl: Any = None
    after: tuple[Any, ...] = ()


def from_command(words: Sequence[str], folder: str | None, wish: Wish) -> NewTask:
    """A task of the built-in mode that runs exactly these words."""
    if not words:
        raise UsageError("--cmd needs the words of the command: orch add --cmd -- WORDS…")
    payload: dict[str, Any] = {"words": list(words)}
    if folder:
        payload["folder"] = folder
    return _new(RUN, jsontext.dump(payload), wish)


def from_words(words: Sequence[str], payload: str | None, wish: Wish) -> NewTask:
    """A task from a mode and ``k=v`` or ``k:=json`` words, or from a mode and the text of its payload."""
    if not words:
        raise UsageError("name a mode: orch add MODE k=v …, or a command: orch add --cmd -- WORDS…")
    mode, *pairs = words
    if payload is None:
        return _new(mode, _payload(pairs), wish)
    if pairs:
        raise UsageError("give either --payload or k=v pairs")
    return _new(mode, jsontext.checked(payload), wish)


def from_lines(lines: Iterable[str], wish: Wish) -> list[NewTask]:
    """One task from each JSON line; blank lines are passed over. `UsageError` names the first line that is wrong."""
    return [_from_line(number, line, wish) for number, line in enumerate(lines, 1) if line.strip()]


def _payload(pairs: Iterable[str]) -> str:
    """JSON text of ``k=v`` and ``k:=json`` words; the JSON of the latter is kept as written."""
    members: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name:
            raise UsageError(f"{pair!r} is not of the form k=v or k:=json")
        if name in members:
            raise UsageError(f"{name!r} is given twice")
        members[name] = jsontext.checked(value, f"the value of {name!r}") if is_json else jsontext.dump(value)
    return "{" + ",".join(f"{jsontext.dump(name)}:{value}" for name, value in members.items()) + "}"


def _from_line(number: int, line: str, wish: Wish) -> NewTask:
    found = jsontext.parse(line, f"line {number}")
    if not isinstance(found, dict) or not isinstance(found.get("mode"), str):
        raise UsageError(f'line {number} must be an object with a "mode": {{"mode": "…", "payload": {{…}}}}')
    unknown = sorted(found.keys() - _FIELDS)
    if unknown:
        raise UsageError(f"line {number} has the unknown field {unknown[0]!r}: known are {', '.join(sorted(_FIELDS))}")
    given = {name: value for name, value in found.items() if value is not None}
    said = {name: given[name] for name in ("key", "priority", "at", "timeout", "ttl") if name in given}
    if "in" in given:
        said["delay"] = given["in"]
    if "after" in given:
        said["after"] = tuple(given["after"]) if isinstance(given["after"], list) else (given["after"],)
    for name in (given.get("key", ""), *said.get("after", ())):
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise UsageError(f"line {number}: {json.dumps(name)} is no id and no key")
    try:
        return _new(found["mode"], _member(line), wish._replace(**said))
    except UsageError as error:
        raise UsageError(f"line {number}: {error}") from None


def _member(line: str) -> str:
    """The text of a line's payload, exactly as it stands there."""
    decoder = json.JSONDecoder()
    at = line.index("{") + 1
    while True:
        name, at = decoder.raw_decode(line, _skip(line, at))
        begin = _skip(line, _skip(line, at) + 1)
        _, at = decoder.raw_decode(line, begin)
        if name == "payload":
            return jsontext.checked(line[begin:at])
        at = _skip(line, at)
        if line[at] == "}":
            return "{}"
        at += 1


def _skip(line: str, at: int) -> int:
    while line[at] in " \t\r\n":
        at += 1
    return at


def _new(mode: str, payload: str, wish: Wish) -> NewTask:
    now = clock.now()
    due = None
    if wish.delay is not None and wish.at is not None:
        raise UsageError("give either --in or --at")
    if wish.delay is not None:
        due = clock.after(now, _seconds(wish.delay))
    if wish.at is not None:
        due = clock.instant(str(wish.at), clock.zone(wish.zone))
    if isinstance(wish.priority, bool) or not isinstance(wish.priority, int):
        raise UsageError(f"priority {wish.priority!r} is not a whole number")
    return NewTask(
        mode=mode,
        payload=payload,
        key=None if wish.key is None else str(wish.key),
        priority=wish.priority,
        due_at=None if due is None else clock.stamp(due),
        expires_at=None if wish.ttl is None else clock.stamp(clock.after(now, _seconds(wish.ttl))),
        timeout=None if wish.timeout is None else _seconds(wish.timeout),
        after=tuple(str(name) for name in wish.after),
    )


def _seconds(value: Any) -> float:
    return clock.duration(str(value))
