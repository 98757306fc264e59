"""``orch spans``: what happened, step by step."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice

import click

from orch import clock
from orch.cli.talk import Talk, common
from orch.errors import NotFound, UsageError
from orch.queue import Queue
from orch.spans import Span, as_protocol, of_fire, of_task
from orch.traces import chrome, otlp

_SHOWN = 100


@click.command()
@click.argument("number", metavar="[FIRE]", required=False, type=click.IntRange(1, 2**63 - 1))
@click.option("--task", "name", metavar="ID|KEY", help="The life of one task, instead of a fire.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), help=f"At most so many: {_SHOWN}, or all of them with --export."
)
@click.option("--export", type=click.Choice(["chrome", "otlp"]), help="Print them in this format, as JSON.")
@common
@click.pass_obj
def spans(talk: Talk, number: int | None, name: str | None, limit: int | None, export: str | None) -> None:
    """Show the steps of a fire or poll, the newest without a number: its phases, its workers, each attempt of a task.

    --export chrome is for Perfetto and chrome://tracing, --export otlp for a collector of OpenTelemetry.
    """
    if number is not None and name is not None:
        raise UsageError("give either the number of a fire or --task")
    with talk.queue() as queue:
        found = _read(queue, number, name)
        if export:
            _print(islice(found, limit), export)
            return
        first = list(islice(found, (limit or _SHOWN) + 1))
    shown, more = first[: limit or _SHOWN], len(first) > (limit or _SHOWN)
    now = clock.stamp(clock.now())
    talk.show([as_protocol(span) for span in shown], lambda: talk.views().spans(shown, now=now, more=more))


def _read(queue: Queue, number: int | None, name: str | None) -> Iterable[Span]:
    if name is not None:
        return of_task(queue, queue.find(name))
    fire = next(iter(queue.ledger.fires(1)), None) if number is None else queue.ledger.fire(number)
    if fire is None and number is not None:
        raise NotFound(f"no fire {number}: 'orch fires' lists them")
    return () if fire is None else of_fire(queue, fire)


def _print(found: Iterable[Span], form: str) -> None:
    for piece in otlp(found) if form == "otlp" else chrome(found, now=clock.stamp(clock.now())):
        sys.stdout.write(piece)
