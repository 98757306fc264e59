"""``orch plan``: what a fire would decide now, or what one has decided."""

from __future__ import annotations

import json

import click

from orch.cli.talk import Talk, common, stoppable
from orch.errors import NotFound
from orch.plan import Plan
from orch.queue import Queue
from orch.seating import rehearse, snapshot as take_snapshot
from orch.settings import load


@click.command()
@click.option("--explain", is_flag=True, help="Also what the plan was judged by, mode by mode, and what cut it.")
@click.option("--schema", is_flag=True, help="Print the JSON schemas of what a decider reads and writes.")
@click.option("--snapshot", is_flag=True, help="Print the JSON that a decider would be given now; ask nobody.")
@click.option("--fire", "number", type=int, metavar="N", help="What this fire asked for and was granted.")
@common
@click.pass_obj
def plan(talk: Talk, explain: bool, schema: bool, snapshot: bool, number: int | None) -> None:
    """Show what a fire would decide now; the decider is asked, nothing is written and no worker is started.

    A decider of your own reads the snapshot as JSON on standard input and prints its plan as JSON:
    'orch plan --snapshot | ./decide' tries one by hand.
    """
    if schema:
        from orch.decision import schemas

        click.echo(json.dumps(schemas(), indent=2))
        return
    project = load(talk.place())
    with Queue.open(project.database, durability=project.durability) as queue:
        if snapshot:
            from orch.decision import as_json

            click.echo(as_json(take_snapshot(queue, project)))
        elif number is not None:
            fire = queue.ledger.fire(number)
            if fire is None or fire.plan is None:
                raise NotFound(f"no fire {number} has a plan: see 'orch fires'")
            stored = Plan.read_back(json.loads(fire.plan))
            talk.show(stored, lambda: talk.views().plan(stored))
        else:
            with stoppable():
                found = rehearse(queue, project)
            seen = found.snapshot if explain else None
            talk.show(found if explain else found.plan, lambda: talk.views().plan(found.plan, seen))
