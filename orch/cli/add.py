"""``orch add``: from words, JSON or a file of JSON lines to tasks in the queue."""

from __future__ import annotations

from typing import Any

import click

from orch import intake
from orch.cli.talk import Talk, common
from orch.errors import UsageError
from orch.intake import Wish
from orch.legible import count
from orch.records import NewTask

_LINES = 'Add one task a line, {"mode": …, "payload": …, "key": …}; "-" reads standard input.'


@click.command()
@click.argument("words", nargs=-1)
@click.option("--cmd", "as_command", is_flag=True, help="WORDS are a command: exactly these words, never a shell.")
@click.option("--payload", metavar="JSON", help="The payload, kept exactly as written.")
@click.option("--from", "source", metavar="FILE", help=_LINES)
@click.option("--key", metavar="TEXT", help="Unique name: adding it again with the same payload changes nothing.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, show_default=True, help="Higher goes first.")
@click.option("--in", "delay", metavar="TIME", help="Not before so long: 90, 15m, 2h, 1d.")
@click.option("--at", metavar="TIME", help="Not before this ISO 8601 time, in the project's zone if it names none.")
@click.option("--after", multiple=True, metavar="ID|KEY", help="Not before this task is done; may be given again.")
@click.option("--timeout", metavar="TIME", help="The most that one attempt may take.")
@click.option("--ttl", metavar="TIME", help="Fail as expired when it has not begun by then.")
@click.option("--folder", metavar="PATH", help="With --cmd: the folder to run in, instead of the project's.")
@common
@click.pass_obj
def add(
    talk: Talk,
    /,
    words: tuple[str, ...],
    as_command: bool,
    payload: str | None,
    source: str | None,
    folder: str | None,
    **said: Any,
) -> None:
    """Add tasks to the queue.

    \b
    orch add MODE k=v k:=json      one task; := takes JSON
    orch add MODE --payload JSON   one task, its payload as written
    orch add --cmd -- WORDS…       one command, run by the mode 'run'
    orch add --from FILE           one task a line, all of them or none
    """
    wish = Wish(zone=talk.place().zone, **said)
    if source is not None:
        if words or payload or as_command or folder or wish.key:
            raise UsageError("--from takes mode, payload and key from the lines: give no others beside it")
        _add_lines(talk, source, wish)
    elif as_command:
        if payload is not None:
            raise UsageError("a command has no payload beside its words: give either --cmd or --payload")
        _add_one(talk, intake.from_command(words, folder, wish))
    else:
        _add_one(talk, intake.from_words(words, payload, wish))


def _add_one(talk: Talk, new: NewTask) -> None:
    with talk.queue(create=True) as queue:
        added = queue.add_many([new])[0]
    if not talk.place().names_mode(new.mode):
        talk.say(f"orch: note: no [modes.{new.mode}] in orch.toml yet; the task waits until there is one")
    talk.line({"id": added.id, "new": added.new}, str(added.id))


def _add_lines(talk: Talk, source: str, wish: Wish) -> None:
    try:
        with click.open_file(source, encoding="utf-8") as file:
            news = intake.from_lines(file, wish)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} cannot be read: {error}") from None
    with talk.queue(create=True) as queue:
        added = queue.add_many(news)
    fresh = [one.id for one in added if one.new]
    span = f" ({fresh[0]} to {fresh[-1]})" if fresh else ""
    there = f", {len(added) - len(fresh)} were there" if len(fresh) < len(added) else ""
    talk.line(
        {"added": len(fresh), "ids": [one.id for one in added]}, f"added {count(len(fresh), 'task')}{span}{there}"
    )
