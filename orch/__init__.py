"""One decider, many disposable workers: a work queue in one SQLite file, fired from cron.

>>> from orch import Queue
>>> with Queue.open("orch.db", create=True) as queue:
...     queue.add("resize", {"path": "a.png"})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from orch.embedding import connect as connect, fire as fire
    from orch.limits import Limits as Limits, Retries as Retries
    from orch.modes import Mode as Mode
    from orch.outcomes import NotNow as NotNow
    from orch.project import Project as Project
    from orch.queue import Queue as Queue
    from orch.records import NewTask as NewTask

# Looked up when first used: a worker that needs one of them does not pay for the rest.
_EXPORTS = {
    "Limits": "orch.limits",
    "Mode": "orch.modes",
    "NewTask": "orch.records",
    "NotNow": "orch.outcomes",
    "Project": "orch.project",
    "Queue": "orch.queue",
    "Retries": "orch.limits",
    "connect": "orch.embedding",
    "fire": "orch.embedding",
}

__all__ = ["Limits", "Mode", "NewTask", "NotNow", "Project", "Queue", "Retries", "__version__", "connect", "fire"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'orch' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
