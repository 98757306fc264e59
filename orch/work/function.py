"""Work that is a Python function, imported from beside ``orch.toml``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any

from orch import jsontext
from orch.errors import OrchError, UsageError
from orch.limits import LARGEST_RESULT
from orch.outcomes import NOTHING, Done, Evidence, Failed, Later, NotNow, Outcome, check_delay, error_text, metrics_of
from orch.records import Task


class Stop(BaseException):
    """Raised in the middle of a function by the worker's signal handler."""


def load(name: str, folder: str, python_path: Sequence[str] = ()) -> Callable[[Any], Any]:
    """The function of ``"module:function"``, looked for in `folder` first; `OrchError` says what is missing.

    The folders of `python_path` come last, as installed packages do: nothing in them takes the place of our own.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise UsageError(f"{name!r} does not name a function: write it as 'module:function'")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.path += (further for further in python_path if further not in sys.path)
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
    """Do the task: whatever the function does, raises or returns, it comes to an outcome. It may be ``async``.

    A return value is the result. `SystemExit` and `KeyboardInterrupt` raised inside are failures like any other
    exception, an exit with status 0 included: a task succeeds by returning. An exception may carry ``metrics``, as a
    result does.
    """
    me = os.getpid()
    try:
        return _outcome(function, task)
    except Stop:
        raise
    except BaseException as error:
        # What it raised or returned misbehaves even when it is looked at.
        return Failed(error_text(error))
    finally:
        if os.getpid() != me:
            # A fork that the function made has come back from it: there is one worker here, and this is not it.
            os._exit(1)


def _outcome(function: Callable[[Task], Any], task: Task) -> Outcome:
    try:
        value = function(task)
        if isinstance(value, CoroutineType):
            value = _awaited(value)
    except NotNow as later:
        check_delay(later.retry_after)
        return Later(later.why, later.retry_after, _price(later))
    except Stop:
        raise
    except BaseException as error:
        return Failed(error_text(error), _price(error))
    if value is None:
        return Done(None)
    try:
        result = jsontext.dump(value, "result")
    except UsageError as error:
        return Failed(str(error), Evidence(metrics=metrics_of(value)))
    except Exception as error:
        return Failed(f"result is not JSON: {error_text(error)}", Evidence(metrics=metrics_of(value)))
    if len(result) > LARGEST_RESULT:
        return Failed(
            f"the result has {len(result):,} characters, and {LARGEST_RESULT:,} can be stored: write it to a file and"
            " return the file's name",
            Evidence(metrics=metrics_of(value)),
        )
    return Done(result)


def _awaited(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """What an ``async`` function comes to, in a loop of its own."""
    import asyncio  # here, as few need it

    try:
        return asyncio.run(coroutine)
    finally:
        # Else Python complains of one that could not be begun, as within another loop.
        coroutine.close()


def _price(error: BaseException) -> Evidence:
    """What a failed attempt says that it cost; nothing where that itself fails."""
    try:
        return Evidence(metrics=metrics_of({"metrics": getattr(error, "metrics", None)}))
    except Exception:
        return NOTHING
