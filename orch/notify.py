"""Notes on their way out: each goes to every sink at least once, under the same id, and a sink's failure is only noted.

A sink is ``file:PATH`` (Markdown is appended), ``command:WORDS`` (the note on standard input), or ``stdout``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection
from dataclasses import dataclass

from orch.errors import UsageError
from orch.legible import storable
from orch.queue import Queue
from orch.records import Note
from orch.work import command

COMMAND_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Posted:
    """How one delivery went; ``error`` is None when it arrived."""

    note: int
    sink: str
    error: str | None


def check_sink(sink: str) -> str:
    """The sink itself; `UsageError` when it is not one."""
    kind, _, rest = sink.partition(":")
    if sink == "stdout" or (kind in ("file", "command") and rest.strip()):
        return sink
    raise UsageError(f"{sink!r} is not a sink: use 'file:PATH', 'command:WORDS' or 'stdout'")


def deliver(queue: Queue, project: str, *, sinks: Collection[str]) -> list[Posted]:
    """Try what has not reached one of `sinks` yet, once each; paths and commands are the project's.

    A sink that fails is left alone for the rest of this round, and what is open for a sink that is no more stays open.
    """
    posted: list[Posted] = []
    for delivery, note in queue.ledger.outbox():
        failed = {one.sink for one in posted if one.error}
        if delivery.sink not in sinks or delivery.sink in failed:
            continue
        # Nobody else may be at it: a try holds its delivery for as long as it can take.
        tries = queue.ledger.try_delivery(delivery, held_for=COMMAND_LIMIT + 60)
        if not tries:
            continue
        try:
            _send(delivery.sink, note, project, again=tries > 1)
            error = None
        except (OSError, ValueError, UsageError, command.CannotRun) as problem:
            error = str(problem)
        queue.ledger.end_delivery(delivery, None if error is None else storable(error))
        posted.append(Posted(note.id, delivery.sink, error))
    return posted


def _send(sink: str, note: Note, project: str, *, again: bool) -> None:
    kind, _, rest = check_sink(sink).partition(":")
    match kind:
        case "stdout":
            sys.stdout.write(note.body + "\n")
            sys.stdout.flush()
        case "file":
            _append(os.path.join(project, os.path.expanduser(rest)), note, again=again)
        case "command":
            _pipe(shlex.split(rest), note, project)


def _append(path: str, note: Note, *, again: bool) -> None:
    mark = f"<!-- note {note.id} -->\n".encode()
    # An earlier try may have died between the write and its record.
    if again and os.path.exists(path):
        with open(path, "rb") as file:
            if mark in file.read():
                return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        data = mark + note.body.encode("utf-8", "replace") + b"\n\n"
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, data) != len(data):
            os.ftruncate(descriptor, size)
            raise OSError(f"{path}: the note could be written in part only; is the disk full?")
    finally:
        os.close(descriptor)


def _pipe(words: list[str], note: Note, project: str) -> None:
    environment = {**os.environ, "ORCH_NOTE": str(note.id), "ORCH_FIRE": str(note.fire)}
    ran = command.run(
        words,
        stdin=note.body.encode("utf-8", "replace"),
        environment=environment,
        folder=project,
        timeout=COMMAND_LIMIT,
    )
    if ran.cut:
        raise OSError(f"{words[0]} did not end within {COMMAND_LIMIT:g} s")
    if ran.exit_code:
        said = ran.err.text().strip()[-300:]
        raise OSError(f"{words[0]}: {command.describe_exit(ran.exit_code)} {said}".strip())
