"""``orch delegate``, ``orch handback``: orders for agents, and their answers."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable

import click

from orch import files
from orch.cli.heartbeat import own_task
from orch.cli.talk import Talk, common
from orch.errors import NotFound, UsageError
from orch.handoff import Delegate, Handback, HandoffError, Remark, orders, read_delegates, read_handback, words
from orch.legible import count

_STDIN = "-"


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--validate", is_flag=True, help="Only say what each file holds and what is wrong with it.")
@click.option("--strict", is_flag=True, help="Refuse whatever would be put right.")
@common
@click.pass_obj
def delegate(talk: Talk, files: tuple[str, ...], validate: bool, strict: bool) -> None:
    """Add the DELEGATEs of files to the queue; "-" reads standard input.

    All of them or none. A task's mode is its agent's role and its key is its task_id, so that the same file given again
    changes nothing. Exit 8 when a file cannot be taken.
    """
    place = talk.place()
    roles = words.all_roles(place.agents)
    found = [(name, one) for name in files for one in _read(name, roles, strict)]
    if validate:
        talk.line([_plain(one) for _, one in found], "\n".join(_told(name, one) for name, one in found))
        return
    for name, one in found:
        _say(talk, name, one.remarks)
    with talk.queue(create=True) as queue:
        added = queue.add_many([orders.task_of(one) for _, one in found])
    for role in sorted({one.agent for _, one in found if not place.names_mode(one.agent)}):
        talk.say(f"orch: note: no [agents.{role}] in orch.toml yet; its tasks wait until there is one")
    lines = [
        f"{got.id} {one.task_id}{'' if got.new else ' was there'}" for got, (_, one) in zip(added, found, strict=True)
    ]
    talk.line({"added": [dataclasses.asdict(one) for one in added]}, "\n".join(lines))


@click.command()
@click.argument("task", metavar="TASK")
@click.argument("file", default=_STDIN, metavar="[FILE|-]")
@click.option("--extract", is_flag=True, help="Print the block that counts, as the agent wrote it, and change nothing.")
@click.option("--force", is_flag=True, help="Take it from a person, whoever works on the task: what runs is ended.")
@click.option("--strict", is_flag=True, help="Refuse whatever would be put right.")
@common
@click.pass_obj
def handback(talk: Talk, task: str, file: str, extract: bool, force: bool, strict: bool) -> None:
    """Read the HANDBACK of a task in what its agent printed, and hand it in.

    TASK is the task_id that the answer has to be for. Only the agent that is at work on the task can hand in; what it
    prints does not count then. With --force a person does, and the task's story says so. Exit 8 when there is no answer
    that can be taken, 9 when the claim is lost.
    """
    data = _bytes(file)
    try:
        found = read_handback(data, task, roles=_roles(talk, extract), strict=strict)
    except HandoffError as error:
        raise _of_file(file, error) from None
    _say(talk, file, found.remarks)
    if extract:
        talk.line(_plain(found), found.text.rstrip("\n"))
        return
    if force:
        _force(talk, task, found)
        return
    with talk.queue() as queue:
        # Asked for last, so that an answer that cannot be taken is told of first.
        mine = own_task(queue, task)
        files.replace(_handback_path(mine.key or task), data)
    talk.line({"task": mine.id, "status": found.status}, f"handed in: {task} is {found.status}")


def _force(talk: Talk, task: str, found: Handback) -> None:
    if os.environ.get("ORCH_CLAIM"):
        raise UsageError("--force is a person's: hand the answer in with the claim that is set here, without --force")
    from orch.folders import Exchange
    from orch.followup import hand_in
    from orch.settings import load

    project = load(talk.place())
    with talk.queue() as queue:
        taken = hand_in(queue, project, queue.find(task), found)
        exchange = Exchange.of(project)
        if exchange is not None:
            exchange.show(queue)
    talk.line(
        {"task": taken.id, "status": found.status, "state": taken.state},
        f"handed in: {task} is {found.status}, and {taken.state} now",
    )


def _roles(talk: Talk, extract: bool) -> list[str]:
    return words.all_roles([] if extract else talk.place().agents)


def _handback_path(key: str) -> str:
    path = os.environ.get("HANDBACK_PATH")
    if not path:
        raise UsageError(f"the task {key} is no agent's: HANDBACK_PATH is not set here")
    return path


def _read(name: str, roles: list[str], strict: bool) -> list[Delegate]:
    try:
        return read_delegates(_bytes(name), roles=roles, strict=strict)
    except HandoffError as error:
        raise _of_file(name, error) from None


def _bytes(name: str) -> bytes:
    if name == _STDIN:
        return sys.stdin.buffer.read()
    try:
        with open(name, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound(f"there is no file {name}") from None
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None


def _of_file(name: str, error: HandoffError) -> HandoffError:
    """The same error, with the file that it is about."""
    error.args = (f"{'standard input' if name == _STDIN else name}: {error}",)
    return error


def _plain(one: Delegate | Handback) -> dict[str, object]:
    return dataclasses.asdict(one)


def _told(name: str, one: Delegate) -> str:
    head = f"{name}: {one.task_id} for {one.agent}, {count(len(one.plan), 'step')}"
    return "\n".join([head, *(f"  line {remark.line}: {remark.text}" for remark in one.remarks)])


def _say(talk: Talk, name: str, remarks: Iterable[Remark]) -> None:
    for remark in remarks:
        place = f"{'standard input' if name == _STDIN else name}: "
        talk.say(f"orch: note: {place}{f'line {remark.line}: ' if remark.line else ''}{remark.text}")
