"""``orch asks``, ``orch answer``: what waits for a person."""

from __future__ import annotations

import click

from orch.cli.talk import Talk, common
from orch.errors import UsageError
from orch.followup import answer as give_answer


@click.command()
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@common
@click.pass_obj
def asks(talk: Talk, limit: int) -> None:
    """List what waits for a person, the oldest first."""
    with talk.queue() as queue:
        found = queue.asks.open(limit)
    talk.show(found, lambda: talk.views().asks(found))


@click.command()
@click.argument("id", type=click.IntRange(min=1))
@click.argument("text", required=False)
@click.option("--close", is_flag=True, help="Close the question without an answer; nothing follows.")
@common
@click.pass_obj
def answer(talk: Talk, id: int, text: str | None, close: bool) -> None:
    """Answer a question.

    The answer goes to the same role with the task that it is about, as a task of its own.
    """
    if close == bool(text and text.strip()):
        raise UsageError(f"give either an answer or --close: orch answer {id} 'do it this way'")
    place = talk.place()
    with talk.queue() as queue:
        if close:
            queue.asks.close(id, None)
            talk.line({"closed": id}, f"question {id} is closed")
            return
        followed = give_answer(queue, id, text or "", agents=place.agents)
    told = f"question {id} is answered; it goes on as task {followed.id} ({followed.key})"
    talk.line({"answered": id, "task": followed.id, "key": followed.key}, told)
