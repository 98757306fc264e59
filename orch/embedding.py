"""The face for programs: a queue by its path, and fires over work that is registered in code."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orch import fires
from orch.barrier import Progress
from orch.database import MEMORY
from orch.deciders import Callback
from orch.errors import UsageError
from orch.fires import Fired
from orch.limits import Limits
from orch.modes import Mode
from orch.names import check_name
from orch.place import locate
from orch.project import Project
from orch.queue import Queue
from orch.records import Task
from orch.runners import Hands
from orch.work import Labour

RUNNERS = ("pool", "inline", "threads")


def connect(path: str | None = None, *, create: bool = True) -> Queue:
    """Open a queue: the file `path`, made if it is missing and `create` says so, or ``":memory:"`` for one in no file.

    Without a path it is the queue of the project that the working folder lies in, as for the command line. `NotFound`
    without one, `SchemaError` when the file is not a queue.
    """
    if path is not None:
        return Queue.open(path, create=create)
    place = locate()
    return Queue.open(place.database, create=create, durability=place.durability)


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
    report: Callable[[Progress], None] = lambda _: None,
) -> Fired:
    """Run one fire: hygiene, decide, fan out, wait, one note.

    Its modes are those of the `project`, those that `Queue.work` has registered, and the functions in `work` by their
    modes; the later beat the earlier. Without a project one is made for the queue, without a settings file and without
    sinks; `limits` beat those of the project.

    The `runner` is ``"pool"``: worker processes, which import their functions; ``"inline"``: this process, one task
    after the other, in order; or ``"threads"``: threads of this process, each with a connection of its own. The last
    two take any callable, and put `wrap`, if there is one, around the doing of each task. All three leave the same
    records. Only ``"pool"`` ends a function that takes too long: the others find it late when it returns.

    `Held` when another fire runs or has the `slot`, `Refused` by a cap of the day, `UsageError` when the runner cannot
    do that work; nothing was started then. `Stopped` when a signal ended it.
    """
    if runner not in RUNNERS:
        raise UsageError(f"runner {runner!r} is not one of {', '.join(RUNNERS)}")
    handlers = {**queue.handlers, **{name: (function, {}) for name, function in (work or {}).items()}}
    modes = {check_name(name): Mode(name, **own) for name, (_, own) in handlers.items()}
    if runner == "pool":
        modes = {name: replace(mode, function=_importable(handlers[name][0], name)) for name, mode in modes.items()}
    project = _project(queue) if project is None else project
    project = replace(project, modes={**project.modes, **modes}, limits=limits or project.limits)
    hands = None
    if runner != "pool":
        hands = Hands(runner, {name: function for name, (function, _) in handlers.items()}, wrap or (lambda do: do))
    elif wrap is not None:
        raise UsageError("the runner 'pool' does its tasks in other processes, where 'wrap' cannot reach: use 'inline'")
    if _path(queue) == MEMORY and runner != "inline":
        raise UsageError(f"nobody else sees a queue in memory: with the runner {runner!r} it has to be in a file")
    return fires.fire(queue, project, slot=slot, decide=decide, report=report, hands=hands)


def _project(queue: Queue) -> Project:
    """A project for a queue that has none: nothing is written but its database and what commands print."""
    path = _path(queue)
    state = os.path.join(tempfile.gettempdir(), f"orch-{os.getpid()}") if path == MEMORY else f"{path}.files"
    return Project(database=path, folder=os.getcwd(), state=state, modes={}, sinks=())


def _path(queue: Queue) -> str:
    return str(getattr(queue.database, "path", MEMORY))


def _importable(function: Callable[..., Any], mode: str) -> str:
    """The name by which another process can import a function; `UsageError` where there is none."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    found: Any = None
    if module not in ("", "__main__") and "<" not in name:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part, None)
    if found is not function:
        raise UsageError(
            f"the work of {mode!r} ({name or function!r}) cannot be imported by a worker process: define it at the top"
            " of a module that is not the main program, or use runner='inline' or runner='threads'"
        )
    return f"{module}:{name}"
