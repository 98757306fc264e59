"""``orch list``, ``orch show``, ``orch log``: looking at tasks."""

from __future__ import annotations

import codecs
import sys

import click

from orch.cli.talk import Talk, common
from orch.errors import NotFound, UsageError
from orch.states import STATUSES, State, states_named
from orch.transcript import follow as follow_task
from orch.work import output, workdir

_WORDS = ", ".join([*(state.value for state in State), *(word for word in STATUSES if word not in set(State))])


@click.command("list")
@click.option("--mode", metavar="MODE", help="Only this mode.")
@click.option("--state", "word", metavar="STATE", help=f"Only tasks in this state: {_WORDS}.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="ID", help="Only tasks older than this one.")
@common
@click.pass_obj
def list_tasks(talk: Talk, mode: str | None, word: str | None, limit: int, before: int | None) -> None:
    """List tasks, the newest first."""
    try:
        states = None if word is None else states_named(word)
    except KeyError:
        raise UsageError(f"{word!r} is not a state: use one of {_WORDS}") from None
    with talk.queue() as queue:
        found = queue.tasks(mode=mode, states=states, limit=limit, before=before)
    talk.show(found, lambda: talk.views().tasks(found))


@click.command()
@click.argument("name", metavar="ID|KEY")
@common
@click.pass_obj
def show(talk: Talk, name: str) -> None:
    """Show one task with its attempts and every move it made."""
    with talk.queue() as queue:
        task = queue.find(name)
        attempts, events, needs = queue.attempts(task.id), queue.events(task.id), queue.needs(task.id)
        overruns = queue.spending.overruns(task=task.id)
        workdirs = workdir.left(queue, task, talk.place().state)
    data = {
        "task": task,
        "attempts": attempts,
        "events": events,
        "needs": needs,
        "overruns": overruns,
        "workdirs": workdirs,
    }
    talk.show(data, lambda: talk.views().task(task, attempts, events, needs, overruns, workdirs))


@click.command()
@click.argument("name", metavar="ID|KEY")
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of this attempt, instead of the last one that wrote anything.",
)
@click.option("--err", is_flag=True, help="Standard error, instead of standard output.")
@click.option("-f", "--follow", is_flag=True, help="Go on as it is written, until the attempt has ended.")
@common
@click.pass_obj
def log(talk: Talk, name: str, attempt: int | None, err: bool, follow: bool) -> None:
    """Print what a task wrote, byte for byte.

    With -f of the attempt that runs or, where the task waits, of its next one. What a function writes to either stream
    is one stream.
    """
    ending = "err" if err else "out"
    if follow:
        _follow(talk, name, attempt, ending)
        return
    place = talk.place()
    with talk.queue() as queue:
        attempts = queue.attempts(queue.find(name).id)
    kept = [one for one in attempts if one.output and attempt in (None, one.attempt)]
    if not kept:
        runs = any(one.ended_at is None for one in attempts)
        hint = f"; it runs: 'orch log -f {name}' shows it" if runs else ""
        asked = f" in attempt {attempt}" if attempt else ""
        raise NotFound(f"nothing is kept of what task {name} wrote{asked}{hint}")
    streams = output.read(place.state, kept[-1].output or "")
    if not streams:
        raise NotFound(f"what task {name} wrote in attempt {kept[-1].attempt} is not kept any more: it was pruned")
    if talk.as_json:
        talk.data({ending: data.decode("utf-8", "replace") for ending, data in streams.items()})
    else:
        _write(streams.get(ending, b""))


def _follow(talk: Talk, name: str, attempt: int | None, ending: str) -> None:
    with talk.queue() as queue:
        pieces = follow_task(
            queue,
            talk.place().state,
            queue.find(name).id,
            ending,
            attempt=attempt,
            waiting=lambda: talk.say(f"orch: task {name} waits to be started"),
        )
        if talk.as_json:
            # A piece may end in the middle of a letter.
            for text in codecs.iterdecode(pieces, "utf-8", "replace"):
                talk.data({ending: text})
        else:
            for piece in pieces:
                _write(piece)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
