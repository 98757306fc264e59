"""``orch sweep``: the fire's hygiene, between fires."""

from __future__ import annotations

import click

from orch.cli.talk import Talk, common
from orch.fires import between_fires
from orch.queue import Queue
from orch.seating import rehearse
from orch.settings import load


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be found; change nothing.")
@common
@click.pass_obj
def sweep(talk: Talk, dry_run: bool) -> None:
    """Recover what the dead left behind.

    The same steps as at the top of every fire: close fires that died, release the claims of dead workers, end what
    they left running, put crashed tasks up for their next try, make due tasks claimable. Doing it again changes
    nothing.
    """
    project = load(talk.place(), remember=not dry_run)
    with Queue.open(project.database, durability=project.durability, by="sweep") as queue:
        if dry_run:
            found = rehearse(queue, project)
            talk.show(found, lambda: talk.views().hygiene(found))
        else:
            with talk.beside():
                done = between_fires(queue, project)
            talk.show(done, lambda: talk.views().between(done))
