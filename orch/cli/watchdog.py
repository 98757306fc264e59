"""``orch watchdog``: scream when the fleet is dark."""

from __future__ import annotations

import click

from orch.cli.talk import Talk, common
from orch.errors import Alarm, OrchError
from orch.queue import Queue
from orch.settings import load
from orch.watchdog import watch


@click.command()
@common
@click.pass_obj
def watchdog(talk: Talk) -> None:
    """Exit with 7 when no fire has succeeded within the expected interval and its grace.

    Whatever is wrong with the queue itself is an alarm too.
    """
    try:
        project = load(talk.place())
        with Queue.open(project.database, durability=project.durability) as queue:
            look = watch(
                queue,
                expected_interval_hours=project.expected_interval_hours,
                grace_minutes=project.grace_minutes,
            )
    except OrchError as error:
        raise Alarm(f"the watchdog cannot see the queue: {error}") from None
    if look.dark:
        raise Alarm(look.told())
    talk.line(look, look.told())
