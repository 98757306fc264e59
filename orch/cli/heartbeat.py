"""``orch heartbeat``: a sign of life from who works on a task; it loads next to nothing, as it comes often."""

from __future__ import annotations

import dataclasses
import os

import click

from orch import files
from orch.cli.talk import Talk, common
from orch.errors import Conflict, UsageError
from orch.queue import Queue
from orch.records import Task


@click.command()
@click.argument("task", metavar="TASK")
@common
@click.pass_obj
def heartbeat(talk: Talk, task: str) -> None:
    """Give a sign of life for the task that one is at work on; exit 9 when the claim is lost."""
    with talk.queue() as queue:
        mine = own_task(queue, task)
        if not queue.heartbeat(mine):
            raise Conflict(f"the claim on task {mine.id} is lost: stop working on it")
    # What its silence is counted from.
    files.touch(os.environ.get("DELEGATE_PATH", ""))
    talk.line({"task": mine.id}, f"task {mine.id} lives")


def own_task(queue: Queue, name: str) -> Task:
    """The task of that name, if this process works on it by the claim in its environment.

    `UsageError` outside of any task, `Conflict` when the claim is on another task or lost.
    """
    id, claim = (os.environ.get(variable, "") for variable in ("ORCH_TASK_ID", "ORCH_CLAIM"))
    if not (id.isdecimal() and claim.isdecimal()):
        raise UsageError("only who works on a task can do that: ORCH_TASK_ID and ORCH_CLAIM are not set here")
    found = queue.find(name)
    mine = dataclasses.replace(found, attempts=int(claim))
    if found.id != int(id) or not queue.holds(mine):
        raise Conflict(f"the claim on task {found.id} is not yours, or lost: stop working on it")
    return mine
