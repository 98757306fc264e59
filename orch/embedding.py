"""The face for programs: a queue by its path, and what the command line does with it, over work registered in code.

Every function takes the queue and, where one is there, its `Project`; without one a project is made for the queue, with
the modes that `Queue.work` has registered, without a settings file and without sinks. What a function needs is loaded
when it is called: a program that only adds tasks pays for no fire.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orch import files
from orch.database import MEMORY
from orch.errors import UsageError
from orch.modes import Mode
from orch.names import check_name
from orch.place import locate, state_of
from orch.project import Project
from orch.queue import Queue

if TYPE_CHECKING:
    from orch.barrier import Progress
    from orch.deciders import Callback
    from orch.fires import Between, Fired
    from orch.house import Pruned
    from orch.limits import Limits
    from orch.records import Added, Task
    from orch.seating import Rehearsal
    from orch.standing import Standing
    from orch.stops import Cancelled
    from orch.watchdog import Watched
    from orch.work import Labour

RUNNERS = ("pool", "inline", "threads")


def connect(path: str | os.PathLike[str] | None = None, *, create: bool = True) -> Queue:
    """Open a queue: the file `path`, made if it is missing and `create` says so, or ``":memory:"`` for one in no file.

    Without a path it is the queue of the project that the working folder lies in, as for the command line. `NotFound`
    without one, `SchemaError` when the file is not a queue.
    """
    if path is not None:
        return Queue.open(path, create=create)
    place = locate()
    if create:
        files.make_private_folder(os.path.dirname(place.database))
    return Queue.open(place.database, create=create, durability=place.durability)


@contextlib.contextmanager
def temporary() -> Iterator[Queue]:
    """A new queue in a file of its own, for as long as the block lasts: any runner and any command can work on it."""
    with tempfile.TemporaryDirectory(prefix="orch-") as folder, connect(os.path.join(folder, "orch.db")) as queue:
        yield queue


def load_project(config: str | None = None, *, database: str | None = None) -> Project:
    """The project of a settings file, checked; without one it is found as the command line finds it.

    `database` names another queue than the project's own. `NotFound` when there is none, `UsageError` names what is
    wrong in the file.
    """
    from orch.settings import load

    return load(locate(database, config))


def project_of(queue: Queue, project: Project | None = None) -> Project:
    """The project that functions work with which are given none, or this one with what `Queue.work` has registered.

    It has no settings file and no sinks; ``dataclasses.replace(orch.project_of(queue), sinks=["file:notes.md"])`` is
    one with a sink. `UsageError` when the `project` is that of another queue.
    """
    _check(queue, "queue", Queue, "orch.connect opens one")
    path = _path(queue)
    if project is None:
        state = os.path.join(tempfile.gettempdir(), f"orch-{os.getpid()}") if path == MEMORY else state_of(path)
        project = Project(database=path, folder=os.getcwd(), state=state, modes={}, sinks=())
    _check(project, "project", Project, "orch.load_project reads one")
    if path != MEMORY and os.path.realpath(path) != project.database:
        raise UsageError(f"the queue is {path}, and the project has another one: {project.database}")
    return _with_work(project, queue.handlers)


def fire(
    queue: Queue,
    project: Project | None = None,
    *,
    work: Mapping[str, Callable[[Task], Any]] | None = None,
    runner: str = "pool",
    limits: Limits | None = None,
    wrap: Callable[[Labour], Labour] | None = None,
    slot: str | None = None,
    decide: Callback | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Fired:
    """Run one fire: hygiene, decide, fan out, wait, one note.

    Its modes are those of the `project`, those that `Queue.work` has registered, and the functions in `work` by their
    modes; the later stand in for the earlier, within the same limits. `limits` beat those of the project. A `slot` is
    taken by the first fire that asks for it. `decide` is given a `Snapshot` and returns a `Wish`; without it the
    project's decider is asked, or the built-in rule. `report` is told of the progress.

    The `runner` is ``"pool"``: worker processes, which import their functions; ``"inline"``: this process, one task
    after the other, in order; or ``"threads"``: threads of this process, each with a connection of its own. The last
    two take any callable, and put `wrap`, if there is one, around the doing of each task. All three leave the same
    records. Only ``"pool"`` ends a function that takes too long: the others find it late when it returns.

    `Held` when another fire runs or has the `slot`, `Refused` by a cap of the day, `UsageError` when the runner cannot
    do that work; nothing was started then. `Stopped` when a signal ended it.
    """
    from orch import fires
    from orch.limits import Limits
    from orch.runners import Hands

    _check(queue, "queue", Queue, "orch.connect opens one")
    _check(limits or Limits(), "limits", Limits, "orch.Limits(max_pool=3) is one")
    if runner not in RUNNERS:
        raise UsageError(f"runner {runner!r} is not one of {', '.join(RUNNERS)}")
    work = work or {}
    _check(work, "work", Mapping, "name a function for each mode")
    for name, function in work.items():
        if not callable(function):
            raise UsageError(f"the work of {name!r} has to be a function, and {function!r} is none")
    hands = None
    if runner != "pool":
        hands = Hands(runner, _functions(queue, work), wrap or (lambda do: do))
    elif wrap is not None:
        raise UsageError("the runner 'pool' does its tasks in other processes, where 'wrap' cannot reach: use 'inline'")
    else:
        importable(queue, work)
    if _path(queue) == MEMORY and runner != "inline":
        raise UsageError(f"nobody else sees a queue in memory: with the runner {runner!r} it has to be in a file")
    project = _with_work(project_of(queue, project), {name: (function, {}) for name, function in work.items()})
    project = replace(project, limits=limits or project.limits)
    return fires.fire(queue, project, slot=slot, decide=decide, report=report or (lambda _: None), hands=hands)


def sweep(queue: Queue, project: Project | None = None) -> Between:
    """Recover what the dead left behind, as at the top of every fire, and send the notes that are on their way.

    Doing it again changes nothing.
    """
    from orch import fires

    return fires.between_fires(queue, project_of(queue, project))


def watch(queue: Queue, project: Project | None = None, *, tell: Callable[[str, str], None] | None = None) -> Watched:
    """The watchdog's look: has the fire that was due succeeded? What it saw is remembered, and an outage told of once.

    `tell` is given the state and the text of what is told; the `alerts` of the project get it too. A fire is due by the
    project's schedule or, without one, every ``guard.expected_interval_hours``. `UsageError` for a queue in memory.
    """
    from orch import watchdog

    if _path(queue) == MEMORY:
        raise UsageError("a watchdog looks at a queue from outside, and nobody else sees one in memory: use a file")
    return watchdog.watch(project_of(queue, project), tell or (lambda *_: None))


def rehearse(queue: Queue, project: Project | None = None, *, decide: Callback | None = None) -> Rehearsal:
    """What a fire would find and decide now; nothing is written and no worker is started."""
    from orch import seating

    return seating.rehearse(queue, project_of(queue, project), callback=decide)


def poll(queue: Queue, project: Project | None = None, *, forever: bool = False) -> Fired:
    """Drain the queue in worker processes until nothing is left or, with `forever`, sleep then and go on.

    `Held` when another poll runs, `Stopped` when a signal ended it.
    """
    from orch import polls

    importable(queue)
    return polls.poll(queue, project_of(queue, project), forever=forever)


def status(queue: Queue, project: Project | None = None) -> Standing:
    """How the queue stands: its modes, its fires, and what is left of the day; changes nothing."""
    from orch import standing

    return standing.stand(queue, project_of(queue, project))


def cancel(queue: Queue, ids: Iterable[int], project: Project | None = None) -> list[Cancelled]:
    """Cancel tasks, all of them or none, and end what works on them; `Conflict` when one has ended."""
    from orch import stops

    return stops.cancel(queue, ids, project_of(queue, project))


def prune(queue: Queue, seconds: float, project: Project | None = None, *, dry_run: bool = False) -> Pruned:
    """Let go of tasks that ended more than so many `seconds` ago, with their history and output."""
    from orch import house

    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise UsageError(f"seconds has to be a number from 0 on, and {seconds!r} is none")
    return house.prune(queue, project_of(queue, project), seconds, dry_run=dry_run)


def _path(queue: Queue) -> str:
    return str(getattr(queue.database, "path", MEMORY))


def delegate(queue: Queue, text: str | bytes, project: Project | None = None) -> list[Added]:
    """Add the DELEGATEs of a text, all of them or none: each a task with its role for a mode and its id for a key.

    `HandoffError` says what is wrong, `Conflict` when an id stands for another order.
    """
    from orch.handoff import orders, read_delegates, words

    roles = words.all_roles(project_of(queue, project).roles)
    return queue.add_many([orders.task_of(one) for one in read_delegates(_bytes(text), roles=roles)])


def handback(queue: Queue, name: str, text: str | bytes, project: Project) -> Task:
    """Take a person's HANDBACK for the task of that id or key, whoever works on it: the task as it stands then.

    `HandoffError` when there is no answer in it that can be taken, `Conflict` when nobody is at work on the task.
    """
    from orch.followup import hand_in
    from orch.handoff import read_handback, words

    task = queue.find(name)
    found = read_handback(_bytes(text), task.key or name, roles=words.all_roles(project.roles))
    return hand_in(queue, project_of(queue, project), task, found)


def answer(queue: Queue, id: int, text: str, project: Project | None = None) -> Task:
    """Answer the question of that id (``queue.asks.open()`` lists them): the task with which it goes on.

    `Conflict` when the question is closed by now.
    """
    from orch import followup

    return followup.answer(queue, id, text, agents=project_of(queue, project).roles)


def _bytes(text: str | bytes) -> bytes:
    if not isinstance(text, str | bytes):
        raise UsageError(f"a text is str or bytes, and {text!r} is a {type(text).__name__}: read its file first")
    return text.encode() if isinstance(text, str) else text


def _check(value: object, name: str, kind: type, how: str) -> None:
    if not isinstance(value, kind):
        raise UsageError(f"{name} has to be a {kind.__name__}, and {value!r} is a {type(value).__name__}: {how}")


def _with_work(project: Project, work: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]]) -> Project:
    """The same with modes that are done by functions; the limits of a mode that is there stay, but for its new ones."""
    modes = dict(project.modes)
    for name, (function, own) in work.items():
        there = modes.get(check_name(name)) or Mode(name)
        modes[name] = replace(there, command=None, agent=None, function=_name(function), **own)
    return replace(project, modes=modes)


def importable(queue: Queue, work: Mapping[str, Callable[[Task], Any]] | None = None) -> dict[str, str]:
    """The work of a queue and this `work`, as ``"module:function"`` by modes; `UsageError` names what has no name."""
    named = {}
    for mode, function in _functions(queue, work or {}).items():
        name = _name(function)
        if name is None:
            raise UsageError(
                f"the work of {mode!r} ({getattr(function, '__qualname__', function)!r}) cannot be imported by a worker"
                " process: define it at the top of a module that is not the main program, or use runner='inline' or"
                " runner='threads'"
            )
        named[mode] = name
    return named


def _functions(queue: Queue, work: Mapping[str, Callable[[Task], Any]]) -> dict[str, Callable[[Task], Any]]:
    return {**{name: function for name, (function, _) in queue.handlers.items()}, **work}


def _name(function: Callable[..., Any]) -> str | None:
    """The name by which another process can import a function; None where there is none."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    found: Any = None
    if module not in ("", "__main__") and "<" not in name:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part, None)
    return f"{module}:{name}" if found is function else None
