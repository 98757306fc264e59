"""``orch status``: how the project stands."""

from __future__ import annotations

import click

from orch.cli.talk import Talk, common
from orch.queue import Queue
from orch.settings import load
from orch.standing import stand


@click.command()
@common
@click.pass_obj
def status(talk: Talk) -> None:
    """Show modes with their backlog, the running and the last fire, and what the caps leave today."""
    project = load(talk.place())
    with Queue.open(project.database, durability=project.durability) as queue:
        standing = stand(queue, project)
    talk.show(standing, lambda: talk.views().standing(standing))
