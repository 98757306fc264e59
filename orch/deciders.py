"""Who decides: the built-in rule, or a function or command of the project's own, which may fail in every way.

Whatever happens to a decider costs nothing but a line in the note: the built-in rule decides then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

from orch import clock, jsontext, kin
from orch.errors import OrchError, Stopped
from orch.outcomes import error_text
from orch.plan import Plan, Snapshot, Wish, by_backlog, grant
from orch.pool import Crew
from orch.project import Decider, Project
from orch.work import command, function

Callback = Callable[[Snapshot], Wish | Mapping[str, Any]]

_TICK = 0.25


def decide(
    snapshot: Snapshot,
    project: Project,
    *,
    fire: int | None = None,
    callback: Callback | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Plan:
    """The plan of a fire. `callback` decides in this very process, before what the project has configured.

    Where nothing waits that can be drained and nobody has said anything, nobody is asked.
    """
    chosen = callback or project.decider
    if chosen is None or not (snapshot.drainable() or snapshot.inbox):
        return by_backlog(snapshot)
    name = chosen.name if isinstance(chosen, Decider) else f"function {getattr(chosen, '__qualname__', chosen)}"
    try:
        if isinstance(chosen, Decider):
            wish = _ask(chosen, snapshot, project, fire, stopping)
        else:
            wish = _checked(chosen(snapshot), snapshot)
        return grant(wish, snapshot, decider=name)
    except Stopped:
        # Whoever only looks at a plan was asked to stop.
        raise
    except Exception as error:
        decided = by_backlog(snapshot)
        decided.problem = f"{name}: {error if isinstance(error, OrchError) else error_text(error)}"
        return decided


def _checked(answer: Wish | Mapping[str, Any], snapshot: Snapshot) -> Wish:
    from orch import decision  # here, as it loads pydantic

    if isinstance(answer, Wish):
        answer = asdict(answer)
    return decision.check_plan(answer, snapshot)


def _ask(
    decider: Decider, snapshot: Snapshot, project: Project, fire: int | None, stopping: Callable[[], bool]
) -> Wish:
    from orch import decision  # here, as it loads pydantic

    text = decision.as_json(snapshot)
    if decider.command is not None:
        answer = _ask_command(decider, text, project, fire, stopping)
    else:
        answer = _ask_function(decider, text, project, stopping)
    return decision.read_plan(answer, snapshot)


def _ask_command(
    decider: Decider, snapshot: str, project: Project, fire: int | None, stopping: Callable[[], bool]
) -> str:
    assert decider.command is not None
    environment = {**os.environ, kin.DATABASE_MARK: project.database}
    if fire is not None:
        environment["ORCH_FIRE"] = str(fire)
    ran = command.run(
        decider.command,
        stdin=snapshot.encode(),
        environment=environment,
        folder=project.folder,
        timeout=decider.timeout,
        grace=project.limits.grace_sec,
        cut=lambda: "stopped" if stopping() else None,
    )
    if ran.cut:
        raise OrchError(_too_late(decider) if ran.cut == "timeout" else "the fire was asked to stop")
    if ran.exit_code:
        said = ran.err.text().strip().splitlines()
        raise OrchError(f"{command.describe_exit(ran.exit_code)}{': ' + said[-1][:300] if said else ''}")
    if ran.out.cut:
        raise OrchError(f"it printed {ran.out.size:,} bytes")
    return ran.out.text()


@dataclass(frozen=True, slots=True)
class _Errand:
    """A function's question, as plain data that crosses the process border."""

    function: str
    folder: str
    python_path: tuple[str, ...]
    snapshot: str


def _ask_function(decider: Decider, snapshot: str, project: Project, stopping: Callable[[], bool]) -> str:
    """Call a function in a process of its own: it may hang, exit or be killed, and takes nobody with it."""
    assert decider.function is not None
    deadline = clock.monotonic() + decider.timeout
    crew = Crew(_call, 1, database=project.database, start_method=project.start_method)
    try:
        crew.seat(1, _Errand(decider.function, project.folder, project.python_path, snapshot))
        while (answer := crew.answer(1)) is None:
            if stopping():
                raise OrchError("the fire was asked to stop")
            if clock.monotonic() > deadline:
                raise OrchError(_too_late(decider))
            for pid in crew.dead():
                raise OrchError(f"its process {crew.ending(pid)}")
            crew.wait(_TICK)
    finally:
        crew.disband()
    kind, _, rest = answer.partition(" ")
    if kind != "plan":
        raise OrchError(rest)
    return rest


def _call(errand: _Errand) -> str:
    """In the child: the function's answer as ``plan JSON``, or ``error`` with what went wrong."""
    from orch import decision

    signal.signal(signal.SIGTERM, _end)
    # What it prints is no answer, and must not stand in that of the fire; nor what its own commands print.
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            call = function.load(errand.function, errand.folder, errand.python_path)
            found: Any = call(decision.read_snapshot(errand.snapshot))
        return f"plan {jsontext.dump(found, 'its plan')}"
    except OrchError as error:
        return f"error {error}"
    except BaseException as error:
        return f"error {error_text(error)}"
    finally:
        if kin.any_child_left():
            kin.end_children(grace=1.0)


def _end(signum: int, frame: FrameType | None) -> None:
    kin.end_children(grace=1.0)
    os._exit(1)


def _too_late(decider: Decider) -> str:
    return f"it gave no plan within {decider.timeout:g} s"
