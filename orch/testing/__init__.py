"""For the tests of whoever embeds a queue: what a test asserts, and beside it the pytest plugin with its fixtures.

The plugin loads by itself where pytest and this package are installed; its fixtures begin with ``orch_``, and nothing
of the queue is loaded before a test asks for one of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orch.fires import Fired
    from orch.queue import Queue
    from orch.records import Task
    from orch.testing.agents import ScriptedAgent as ScriptedAgent
    from orch.testing.clocks import Clock as Clock
    from orch.testing.faults import Faults as Faults
    from orch.testing.lines import CommandLine as CommandLine, Ran as Ran
    from orch.testing.plugin import Fire as Fire, Script as Script

# The types of the fixtures, for whoever annotates a test.
_EXPORTS = {
    "Clock": "clocks",
    "CommandLine": "lines",
    "Faults": "faults",
    "Fire": "plugin",
    "Ran": "lines",
    "Script": "plugin",
    "ScriptedAgent": "agents",
}

__all__ = [*_EXPORTS, "assert_drained", "assert_note", "assert_states"]

_ALL = 1_000_000
_SHOWN = 20


def assert_states(queue: Queue, tasks: Mapping[int | str, str] | None = None, /, **counts: int) -> None:
    """The `tasks`, by id or key, are in these states; or so many tasks, of all that there are, are in each state.

    >>> assert_states(queue, {1: "done", "invoice-7": "retry-pending"})
    >>> assert_states(queue, done=7, retry_pending=1)

    A failure shows the difference, and why a task stands where it does. `NotFound` when a task is not there.
    """
    __tracebackhide__ = True
    found = {name: queue.find(str(name)) for name in tasks or {}}
    expected = [_line(task, (tasks or {})[name]) for name, task in found.items()]
    _compare(
        "the tasks do not stand as expected", expected, [_line(task, task.state) for task in found.values()], queue
    )
    if counts or tasks is None:
        everything = queue.tasks(limit=_ALL)
        wanted = {name.replace("_", "-"): count for name, count in counts.items() if count}
        got: dict[str, int] = {}
        for task in everything:
            got[task.state] = got.get(task.state, 0) + 1
        if wanted != got:
            # Which they are says more than how many.
            detail = "\n".join(_listed(everything, queue))
            _compare("the tasks do not stand as expected", _counted(wanted), _counted(got), queue, detail)


def assert_drained(queue: Queue) -> None:
    """Every task has ended, as done or failed; a failure lists those that have not, and why they wait."""
    __tracebackhide__ = True
    left = [task for task in queue.tasks(limit=_ALL) if not _has_ended(task)]
    if left:
        listed = "\n".join(f"  {line}" for line in _listed(left, queue))
        raise AssertionError(f"the queue is not drained, {len(left)} of its tasks have not ended:\n{listed}")


def assert_note(fired: Fired, *parts: str | re.Pattern[str]) -> None:
    """The note of a fire, its title and its body, holds each of these texts or patterns; a failure shows all of it."""
    __tracebackhide__ = True
    text = f"{fired.note.title}\n\n{fired.note.body}"
    missing = [part for part in parts if not (part in text if isinstance(part, str) else part.search(text))]
    if missing:
        wanted = "\n".join(f"  {part if isinstance(part, str) else part.pattern!r}" for part in missing)
        shown = "\n".join(f"  | {line}" for line in text.splitlines())
        raise AssertionError(f"the note of fire {fired.fire.id} does not hold:\n{wanted}\nit says:\n{shown}")


def _line(task: Task, state: str) -> str:
    return f"{task.id} {task.key or task.mode}: {state}"


def _told(task: Task, queue: Queue) -> str:
    """A task in one line, with the reason for its state or its last error."""
    from orch.states import State

    errors = [attempt.error for attempt in queue.attempts(task.id) if attempt.error]
    why = task.reason or (errors[-1] if errors and task.state != State.DONE else "")
    due = f", due at {task.due_at}" if task.due_at and not _has_ended(task) else ""
    return f"{_line(task, task.state)}{due}{f' ({why})' if why else ''}"


def _listed(tasks: list[Task], queue: Queue) -> list[str]:
    """The first of some tasks, a line each, and how many more there are."""
    lines = [_told(task, queue) for task in sorted(tasks, key=lambda task: task.id)[:_SHOWN]]
    return lines + [f"… and {len(tasks) - _SHOWN:,} more"] * (len(tasks) > _SHOWN)


def _has_ended(task: Task) -> bool:
    from orch.states import ENDED

    return task.state in ENDED


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{state}: {count}" for state, count in sorted(counts.items())]


def _compare(head: str, expected: list[str], got: list[str], queue: Queue, detail: str = "") -> None:
    __tracebackhide__ = True
    if expected == got:
        return
    lines = [line for line in difflib.ndiff(expected, got) if not line.startswith("?")]
    wrong = [int(line.split()[0]) for line, wanted in zip(got, expected, strict=False) if line != wanted and not detail]
    detail = detail or "\n".join(_told(queue.task(id), queue) for id in wrong)
    raise AssertionError("\n".join([f"{head} (- expected, + found):", *(f"  {line}" for line in lines), detail]))


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'orch.testing' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"orch.testing.{_EXPORTS[name]}"), name)
    return found
