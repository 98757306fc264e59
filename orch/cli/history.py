"""``orch fires``, ``orch notes``: looking back."""

from __future__ import annotations

import click

from orch.cli.talk import Talk, common


@click.command()
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@common
@click.pass_obj
def fires(talk: Talk, limit: int) -> None:
    """List the last fires, the newest first."""
    with talk.queue() as queue:
        found = queue.ledger.fires(limit)
    talk.show(found, lambda: talk.views().fires(found))


@click.command()
@click.option("-n", "--limit", type=click.IntRange(min=1), default=5, show_default=True, help="At most so many.")
@common
@click.pass_obj
def notes(talk: Talk, limit: int) -> None:
    """Print the last notes, the newest first."""
    with talk.queue() as queue:
        found = queue.mail.notes(limit)
    talk.show(found, lambda: talk.views().notes(found))
