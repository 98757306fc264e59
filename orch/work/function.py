"""Work that is a Python function, imported from beside ``orch.toml``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from orch import jsontext
from orch.errors import OrchError, UsageError
from orch.outcomes import Done, Evidence, Failed, Later, NotNow, Outcome, error_text, metrics_of
from orch.records import Task


class Stop(BaseException):
    """Raised in the middle of a function by the worker's signal handler."""


def load(name: str, folder: str) -> Callable[[Any], Any]:
    """The function of ``"module:function"``, looked for in `folder` first; `OrchError` says what is missing."""
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise UsageError(f"{name!r} does not name a function: write it as 'module:function'")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
        for part in function_name.split("."):
            found = getattr(found, part)
    except BaseException as error:
        # A module may do anything at import, sys.exit included.
        raise OrchError(f"cannot load {name!r} from {folder}: {error_text(error)}") from error
    if not callable(found):
        raise OrchError(f"{name!r} is a {type(found).__name__}, not a function")
    function: Callable[[Any], Any] = found
    return function


def call(function: Callable[[Task], Any], task: Task) -> Outcome:
    """Do the task: whatever the function does, it comes to an outcome.

    A return value is the result. `SystemExit` and `KeyboardInterrupt` raised inside are failures like any other
    exception, an exit with status 0 included: a task succeeds by returning. An exception may carry ``metrics``, as a
    result does.
    """
    try:
        value = function(task)
    except NotNow as later:
        return Later(later.why, later.retry_after, _price(later))
    except Stop:
        raise
    except BaseException as error:
        return Failed(error_text(error), _price(error))
    try:
        return Done(None if value is None else jsontext.dump(value, "result"))
    except UsageError as error:
        return Failed(str(error), Evidence(metrics=metrics_of(value)))
    except Exception as error:
        return Failed(f"result is not JSON: {error_text(error)}", Evidence(metrics=metrics_of(value)))


def _price(error: BaseException) -> Evidence:
    """What a failed attempt says that it cost."""
    return Evidence(metrics=metrics_of({"metrics": getattr(error, "metrics", None)}))
