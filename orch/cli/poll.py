"""``orch poll``, ``orch wake``: drain until idle, or for ever."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TextIO

import click

from orch import kin
from orch.cli.fire import live
from orch.cli.talk import SCHEMA_VERSION, Talk, common
from orch.legible import shown, when
from orch.polls import Round, poll as run_poll, wake as rouse
from orch.queue import Queue
from orch.settings import load


@click.command()
@click.option("--forever", is_flag=True, help="Sleep when nothing is left, and go on when something comes.")
@click.option("--exit-status", is_flag=True, help="Exit with 6 when a task failed.")
@common
@click.pass_obj
def poll(talk: Talk, forever: bool, exit_status: bool) -> int:
    """Drain the queue until it is idle.

    Workers start as tasks come, under the caps of any fire; dropped DELEGATEs are taken in. With --forever it sleeps
    when nothing is left: a dropped file, an added task, 'orch wake' or the time that a task is due wakes it. It is no
    fire: no daily cap counts it, and the watchdog does not take it for one. One note when it ends, and one a day.
    """
    project = load(talk.place(), remember=True)
    if talk.alone:
        kin.adopt_orphans()

    out = sys.stdout

    def news(told: Round) -> None:
        if forever:
            _tell(talk, told, out)

    with (
        Queue.open(project.database, durability=project.durability, by="poll") as queue,
        talk.beside(),
        live(talk) as report,
    ):
        fired = run_poll(
            queue, project, forever=forever, report=report, news=news, say=lambda text: talk.say(f"orch: note: {text}")
        )
    talk.show(fired.rollup, lambda: talk.views().rollup(fired.rollup))
    if fired.unwritten:
        talk.say(f"orch: {fired.unwritten}; the next fire or sweep tries again")
    return 6 if exit_status and fired.rollup.failed else 0


@click.command()
@common
@click.pass_obj
def wake(talk: Talk) -> None:
    """Wake the poll that sleeps; exit 3 when none runs."""
    with talk.queue() as queue:
        woken = rouse(queue)
    talk.line({"poll": woken.id, "pid": woken.pid}, f"{woken.name} (pid {woken.pid}) is woken")


def _tell(talk: Talk, told: Round, out: TextIO) -> None:
    """One line a round, as it comes."""
    if talk.as_json:
        data = {"schema_version": SCHEMA_VERSION, "type": "round", "data": dataclasses.asdict(told)}
        click.echo(json.dumps(data), file=out)
    elif not talk.quiet:
        counts = ((told.taken, "taken"), (told.done, "done"), (told.failed, "failed"), (len(told.refused), "refused"))
        parts = [f"{number} {word}" for number, word in counts if number]
        why = [f"  refused: {one}" for one in told.refused]
        click.echo("\n".join(map(shown, [f"{when(told.at)}  {told.reason}: {', '.join(parts)}", *why])), file=out)
    out.flush()
