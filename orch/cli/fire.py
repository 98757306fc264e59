"""``orch fire``: one fire, with a live line on a terminal and the rollup table at its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from orch import kin, notify
from orch.barrier import Progress
from orch.cli.talk import Talk, common, stoppable
from orch.errors import OrchError
from orch.fires import due_slot, fire as run_fire
from orch.queue import Queue
from orch.rollup import needs_a_person
from orch.seating import rehearse
from orch.settings import load


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what a fire would do; start nothing and write nothing.")
@click.option("--exit-status", is_flag=True, help="Exit with 6 when a task failed.")
@click.option(
    "--scheduled", is_flag=True, help="Take the slot that is due by [schedule]; exit with 4 when it is taken."
)
@click.option("--max-pool", type=click.IntRange(min=1), help="At most so many workers.")
@click.option("--task-cap", type=click.IntRange(min=1), help="At most so many tasks a worker.")
@click.option(
    "--minutes", "wall_clock_minutes", type=click.FloatRange(0, min_open=True), help="At most so long a worker."
)
@common
@click.pass_obj
def fire(talk: Talk, /, dry_run: bool, exit_status: bool, scheduled: bool, **caps: float | None) -> int:
    """Run one fire.

    Clean up after the dead, decide how many workers each mode gets, start them, wait for all of them, and write one
    note. An empty queue is no error.
    """
    place = talk.place()
    project = load(place, caps, remember=not dry_run)
    if talk.alone:
        kin.adopt_orphans()
    with Queue.open(project.database, durability=project.durability, by="fire") as queue:
        if dry_run:
            with stoppable():
                rehearsal = rehearse(queue, project)
            talk.show(rehearsal, lambda: talk.views().rehearsal(rehearsal))
            return 0
        with talk.beside(), live(talk) as report:
            fired = run_fire(queue, project, slot=due_slot(project) if scheduled else None, report=report)
    talk.show(fired.rollup, lambda: talk.views().rollup(fired.rollup))
    for posted in fired.posted:
        if posted.error:
            sink = notify.told(posted.sink)
            talk.say(f"orch: the note could not be delivered to {sink}: {posted.error}; it will be tried again")
    if fired.unwritten:
        talk.say(f"orch: {fired.unwritten}; the next fire or sweep tries again")
    if fired.rollup.unwatched:
        talk.say(f"orch: {fired.rollup.unwatched}")
    if fired.fire.ending == "broken":
        raise OrchError(f"fire {fired.fire.id}: nothing could work: {needs_a_person(fired.rollup)}")
    return 6 if exit_status and fired.rollup.failed else 0


@contextmanager
def live(talk: Talk) -> Iterator[Callable[[Progress], None]]:
    """A line that is redrawn as the fire goes on; nothing unless a person watches."""
    if talk.quiet or talk.as_json or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich.live import Live

    # Redrawn by the barrier's own looks, not by a thread: the fan-out may fork.
    with Live(console=talk.console(), auto_refresh=False, transient=True) as live:
        yield lambda progress: live.update(talk.views().progress(progress), refresh=True)
