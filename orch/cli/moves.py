"""``orch retry``, ``orch cancel``, ``orch pause``, ``orch resume``: what a person changes."""

from __future__ import annotations

import click

from orch import clock
from orch.cli.talk import Talk, common
from orch.errors import UsageError
from orch.names import check_name
from orch.settings import load
from orch.stops import cancel as cancel_tasks


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="ID|KEY…")
@common
@click.pass_obj
def retry(talk: Talk, names: tuple[str, ...]) -> None:
    """Queue failed, crashed or done tasks again, with fresh retries."""
    with talk.queue() as queue, queue.transaction(durable=True):
        tasks = [queue.requeue(queue.find(name).id) for name in names]
    talk.line(tasks, "\n".join(f"task {task.id} is queued again" for task in tasks))


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="ID|KEY…")
@common
@click.pass_obj
def cancel(talk: Talk, names: tuple[str, ...]) -> None:
    """Cancel tasks that have not ended; what runs is killed."""
    project = load(talk.place())
    with talk.queue() as queue:
        tasks = [queue.find(name) for name in names]
        cancelled = cancel_tasks(queue, [task.id for task in tasks], project)
    talk.line(cancelled, "\n".join(one.told() for one in cancelled))


@click.command()
@click.argument("mode", required=False)
@click.option("--all", "everything", is_flag=True, help="Every mode; fires are refused as long as it lasts.")
@click.option("--reason", metavar="TEXT", help="Shown in the status.")
@click.option("--for", "duration", metavar="TIME", help="End by itself after so long: 90s, 15m, 2h, 1d12h.")
@common
@click.pass_obj
def pause(talk: Talk, mode: str | None, everything: bool, reason: str | None, duration: str | None) -> None:
    """Let nobody claim from a mode until it is resumed; what runs goes on."""
    name = _lane(mode, everything)
    seconds = None if duration is None else clock.duration(duration)
    with talk.queue() as queue:
        queue.pause(name, reason, seconds=seconds)
        told = [pause.told for pause in queue.pauses() if pause.mode == name]
    talk.line({"paused": name}, f"{_told(name)} is {told[0] if told else 'not paused any more'}")


@click.command()
@click.argument("mode", required=False)
@click.option("--all", "everything", is_flag=True, help="End every pause.")
@common
@click.pass_obj
def resume(talk: Talk, mode: str | None, everything: bool) -> None:
    """End a pause."""
    name = _lane(mode, everything)
    with talk.queue() as queue:
        ended = queue.resume(name)
    talk.line({"resumed": ended}, "\n".join(f"{_told(name)} is resumed" for name in ended) or "nothing was paused")


def _told(name: str) -> str:
    return "everything" if name == "*" else name


def _lane(mode: str | None, everything: bool) -> str:
    if (mode is None) != everything:
        raise UsageError("name one mode, or give --all")
    return "*" if mode is None else check_name(mode)
