"""Notes on their way out: each goes to every sink at least once, under the same id, and a sink's failure is only noted.

A sink is ``file:PATH`` (Markdown is appended), ``command:WORDS`` (the note on standard input), ``apprise:URL`` (any
service that the program `apprise` knows), or ``stdout``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from orch.errors import UsageError
from orch.legible import shown, storable
from orch.queue import Queue
from orch.work import command

COMMAND_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Posted:
    """How one delivery went; ``error`` is None when it arrived."""

    note: int
    sink: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Letter:
    """What is sent: a name that is the same at every try, its Markdown, and what a command finds in its environment."""

    name: str
    body: str
    marks: Mapping[str, str]


def check_sink(sink: str) -> str:
    """The sink itself; `UsageError` when it is not one."""
    kind, _, rest = sink.partition(":")
    if sink == "stdout" or (kind in ("file", "command") and rest.strip()) or (kind == "apprise" and "://" in rest):
        return sink
    raise UsageError(f"{sink!r} is not a sink: use 'file:PATH', 'command:WORDS', 'apprise:SERVICE://…' or 'stdout'")


def told(sink: str) -> str:
    """A sink as it can be shown: what a service's address says beside the service may be a secret."""
    kind, _, rest = sink.partition(":")
    return f"apprise:{rest.partition('://')[0]}://…" if kind == "apprise" else sink


def deliver(
    queue: Queue, project: str, *, sinks: Collection[str], cut: Callable[[], str | None] = lambda: None
) -> list[Posted]:
    """Try what has not reached one of `sinks` yet, once each; paths and commands are the project's.

    A sink that fails is left alone for the rest of this round, and what is open for a sink that is no more stays open.
    With a reason from `cut` the round ends, and a command that runs for it too.
    """
    posted: list[Posted] = []
    for delivery, note in queue.mail.outbox():
        failed = {one.sink for one in posted if one.error}
        if cut():
            break
        if delivery.sink not in sinks or delivery.sink in failed:
            continue
        # Nobody else may be at it: a try holds its delivery for as long as it can take.
        tries = queue.mail.try_delivery(delivery, held_for=COMMAND_LIMIT + 60)
        if not tries:
            continue
        marks = {"ORCH_NOTE": str(note.id), "ORCH_FIRE": str(note.fire)}
        error = send(delivery.sink, Letter(f"note {note.id}", note.body, marks), project, again=tries > 1, cut=cut)
        queue.mail.end_delivery(delivery, None if error is None else storable(error))
        posted.append(Posted(note.id, delivery.sink, error))
    return posted


def send(
    sink: str,
    letter: Letter,
    folder: str,
    *,
    again: bool,
    limit: float = COMMAND_LIMIT,
    cut: Callable[[], str | None] = lambda: None,
) -> str | None:
    """Try to send one letter to one sink, paths and commands being those of `folder`: what went wrong, or None.

    `again` says that an earlier try may have arrived; a command is ended after `limit` seconds, or for what `cut` says.
    """
    try:
        kind, _, rest = check_sink(sink).partition(":")
        match kind:
            case "stdout":
                sys.stdout.write(letter.body + "\n")
                sys.stdout.flush()
            case "file":
                _append(os.path.join(folder, os.path.expanduser(rest)), letter, again=again)
            case "command":
                _pipe(shlex.split(rest), letter, letter.marks, folder, limit, cut)
            case "apprise":
                # Not as a word: what others are told is readable by everybody on this machine.
                marks = {**letter.marks, "APPRISE_URLS": rest}
                _pipe([_apprise(), "--input-format", "markdown"], letter, marks, folder, limit, cut)
    except (OSError, ValueError, UsageError, command.CannotRun) as problem:
        return str(problem)
    return None


def one_line(text: str) -> str:
    """A text from outside as part of one line of a letter."""
    return shown(text)[:500]


def _append(path: str, letter: Letter, *, again: bool) -> None:
    mark = f"<!-- {letter.name} -->\n".encode()
    # An earlier try may have died between the write and its record.
    if again and os.path.exists(path):
        with open(path, "rb") as file:
            if mark in file.read():
                return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        data = mark + letter.body.encode("utf-8", "replace") + b"\n\n"
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, data) != len(data):
            os.ftruncate(descriptor, size)
            raise OSError(f"{path}: the note could be written in part only; is the disk full?")
    finally:
        os.close(descriptor)


def _apprise() -> str:
    """The program, which an installation of ours with the extra `notify` has beside it."""
    import shutil  # here, as few need it

    beside = os.path.join(os.path.dirname(sys.executable), "apprise")
    found = beside if os.access(beside, os.X_OK) else shutil.which("apprise")
    if found is None:
        raise UsageError("there is no program 'apprise': install orch with its extra 'notify', or apprise itself")
    return found


def _pipe(
    words: list[str],
    letter: Letter,
    marks: Mapping[str, str],
    folder: str,
    limit: float,
    cut: Callable[[], str | None],
) -> None:
    ran = command.run(
        words,
        stdin=letter.body.encode("utf-8", "replace"),
        environment={**os.environ, **marks},
        folder=folder,
        timeout=limit,
        cut=cut,
    )
    if ran.cut and ran.cut != "timeout":
        raise OSError(f"{words[0]} was ended: {ran.cut}")
    if ran.cut:
        raise OSError(f"{words[0]} did not end within {limit:g} s")
    if ran.exit_code:
        said = ran.err.text().strip()[-300:]
        raise OSError(f"{words[0]}: {command.describe_exit(ran.exit_code)} {said}".strip())
