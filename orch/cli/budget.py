"""``orch budget``: what was spent, beside what may be."""

from __future__ import annotations

import click

from orch.budget import account
from orch.cli.talk import Talk, common
from orch.queue import Queue
from orch.settings import load


@click.command()
@click.option("--days", type=click.IntRange(1, 366), default=7, show_default=True, help="So many calendar days.")
@common
@click.pass_obj
def budget(talk: Talk, days: int) -> None:
    """Show what attempts say that they cost, by day, mode and fire, beside the caps on it.

    An attempt says so in its result (or a command in the JSON that it prints): {"metrics": {"tokens": 1200, "cost_usd":
    0.03}}.
    """
    project = load(talk.place())
    with Queue.open(project.database, durability=project.durability) as queue:
        found = account(queue, project.limits, project.zone, days)
    talk.show(found, lambda: talk.views().account(found))
