"""One decider, many disposable workers: a work queue in one SQLite file, fired from cron.

>>> import orch
>>> with orch.connect("jobs.db") as queue:
...     queue.add("resize", {"path": "a.png"})

What stands in ``orch.__all__`` is the library: it is what a program can build on. `orch.testing` is for its tests,
`orch.handoff` reads orders for agents and their answers, `orch.skill` is the protocol's orchestrator as a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from orch.clock import use_clock as use_clock
    from orch.embedding import (
        answer as answer,
        cancel as cancel,
        connect as connect,
        delegate as delegate,
        fire as fire,
        handback as handback,
        load_project as load_project,
        poll as poll,
        project_of as project_of,
        prune as prune,
        rehearse as rehearse,
        status as status,
        sweep as sweep,
        temporary as temporary,
        watch as watch,
    )
    from orch.errors import (
        Alarm as Alarm,
        Busy as Busy,
        Conflict as Conflict,
        Held as Held,
        NotFound as NotFound,
        OrchError as OrchError,
        Refused as Refused,
        SchemaError as SchemaError,
        Stopped as Stopped,
        StorageError as StorageError,
        UsageError as UsageError,
    )
    from orch.fires import Fired as Fired
    from orch.handoff import HandoffError as HandoffError
    from orch.limits import Limits as Limits, Pace as Pace, Patience as Patience, Retries as Retries
    from orch.modes import Agent as Agent, Mode as Mode
    from orch.outcomes import (
        Cut as Cut,
        Done as Done,
        Evidence as Evidence,
        Failed as Failed,
        Later as Later,
        Metrics as Metrics,
        NotNow as NotNow,
    )
    from orch.plan import Caps as Caps, Plan as Plan, Snapshot as Snapshot, Wish as Wish
    from orch.project import Decider as Decider, Guard as Guard, Project as Project, Schedule as Schedule
    from orch.queue import Queue as Queue
    from orch.records import Added as Added, NewTask as NewTask, Task as Task
    from orch.rollup import Rollup as Rollup
    from orch.runners import Died as Died
    from orch.states import State as State
    from orch.watchdog import Watched as Watched

# What each module gives to the library. Looked up when first used: who needs one of them does not pay for the rest.
_MODULES = {
    "clock": ("use_clock",),
    "embedding": (
        "answer", "cancel", "connect", "delegate", "fire", "handback", "load_project", "poll", "project_of", "prune",
        "rehearse", "status", "sweep", "temporary", "watch",
    ),
    "errors": (
        "Alarm", "Busy", "Conflict", "Held", "NotFound", "OrchError", "Refused", "SchemaError", "Stopped",
        "StorageError", "UsageError",
    ),
    "fires": ("Fired",),
    "handoff": ("HandoffError",),
    "limits": ("Limits", "Pace", "Patience", "Retries"),
    "modes": ("Agent", "Mode"),
    "outcomes": ("Cut", "Done", "Evidence", "Failed", "Later", "Metrics", "NotNow"),
    "plan": ("Caps", "Plan", "Snapshot", "Wish"),
    "project": ("Decider", "Guard", "Project", "Schedule"),
    "queue": ("Queue",),
    "records": ("Added", "NewTask", "Task"),
    "rollup": ("Rollup",),
    "runners": ("Died",),
    "states": ("State",),
    "watchdog": ("Watched",),
}  # fmt: skip
_EXPORTS = {name: f"orch.{module}" for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'orch' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_EXPORTS[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
