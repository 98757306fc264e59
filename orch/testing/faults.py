"""Faults on purpose: a worker that dies, a finish that comes too late, a clock that jumps, a sink that fails.

A fault is planned for a task and one of its attempts, so that it happens at the same place whoever does the task. Where
the doing is in this process, it is put around it; a worker process imports a module in the function's place, which
does the same there.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from orch.errors import NotFound, UsageError
from orch.queue import Queue
from orch.records import Task
from orch.runners import Died
from orch.work import Labour, function

if TYPE_CHECKING:
    from orch.notify import Letter
    from orch.project import Project
    from orch.testing.clocks import Clock

_numbers = itertools.count(1)
_MODULE = """\
from orch.testing.faults import suffer

PLAN = {plan}


def do(task):
    return suffer(PLAN, task)
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong: ``dies``, ``late`` or ``jumps`` (by so many ``seconds``), for a task by its id, key or mode.

    ``attempt`` counts claims from 1; None stands for each of them.
    """

    kind: str
    task: int | str
    attempt: int | None
    seconds: float = 0.0

    def meets(self, task: Task) -> bool:
        """Whether it is this claim's."""
        return self.task in (task.id, task.key, task.mode) and self.attempt in (None, task.attempts)

    def __str__(self) -> str:
        return f"task {self.task!r} {self.kind}{'' if self.attempt is None else f' in attempt {self.attempt}'}"


class Faults:
    """The faults of one test. One that was planned and never happened fails the test: it has shown nothing."""

    def __init__(self, queue: Queue, folder: str, clock: Clock | None) -> None:
        self._queue = queue
        self._folder = folder
        self._clock = clock
        self._planned: list[Fault] = []
        self._sinks: list[_Sink] = []

    # What a test plans

    def dies(self, task: int | str, *, attempt: int | None = 1) -> None:
        """The worker dies while it does this task (an id, a key, or a mode): nothing is marked, its claim is left."""
        self._planned.append(Fault("dies", task, attempt))

    def late(self, task: int | str, *, attempt: int | None = 1) -> None:
        """The task is done, but its claim has been taken away before that is marked."""
        self._planned.append(Fault("late", task, attempt))

    def clock_jumps(self, task: int | str, by: float | str, *, attempt: int | None = 1) -> None:
        """While the task is done the clock jumps, by seconds or as in ``"2h"`` or ``"-1h"``.

        It is the clock of the fixture `orch_clock`; `UsageError` in a test without it.
        """
        if self._clock is None:
            raise UsageError("there is no clock that could jump: let the test take the fixture orch_clock too")
        before = self._clock.now()
        seconds = (self._clock.advance(by) - before).total_seconds()
        self._clock.set(before)
        self._planned.append(Fault("jumps", task, attempt, seconds))

    def sink_fails(self, sink: str, error: str = "out of order", *, times: int | None = None) -> None:
        """The sink of that name does not take what is sent, so many times (None: never)."""
        self._sinks.append(_Sink(sink, error, times))

    # How they happen

    def around(self, wrap: Callable[[Labour], Labour] | None) -> Callable[[Labour], Labour]:
        """For a runner in this process: the same around a labour, and within it the faults."""

        def wrapped(do: Labour) -> Labour:
            def doing(task: Task) -> Any:
                return _suffer(
                    task, do, self._planned, happened=self._note, die=_vanish, queue=self._open, jump=self._jump
                )

            return doing if wrap is None else wrap(doing)

        return wrapped

    def stand_ins(self, project: Project, functions: Mapping[str, str]) -> dict[str, Callable[[Task], Any]]:
        """For worker processes: what stands in for each function, of the project and of these, and has the faults.

        `UsageError` for a fault that no other process can have.
        """
        if any(fault.kind == "jumps" for fault in self._planned):
            raise UsageError("the clock of worker processes is the machine's, and cannot jump: use another runner")
        named = {name: mode.function for name, mode in project.modes.items() if mode.function is not None}
        named |= functions
        for fault in self._planned:
            mode = self._mode_of(fault)
            if mode in project.modes and mode not in named:
                raise UsageError(
                    f"the tasks of {mode!r} are done by a command, and no fault reaches that in a worker process: use"
                    " runner='inline' or runner='threads'"
                )
        plan = {
            "database": self._path(),
            "folder": self._folder,
            "project": project.folder,
            "functions": named,
            "faults": [asdict(fault) for fault in self._planned],
        }
        # Another one for each fire: a module is loaded once.
        module = f"orch_stand_in_{next(_numbers)}"
        with open(os.path.join(self._folder, f"{module}.py"), "w", encoding="utf-8") as file:
            file.write(_MODULE.format(plan=repr(json.dumps(plan))))
        importlib.invalidate_caches()
        return dict.fromkeys(named, importlib.import_module(module).do)

    def send(self, send: Callable[..., str | None]) -> Callable[..., str | None]:
        """The same door to the sinks, with those shut that fail."""

        def sending(sink: str, letter: Letter, *further: Any, **options: Any) -> str | None:
            for failing in self._sinks:
                if failing.sink == sink and failing.fails():
                    return failing.error
            return send(sink, letter, *further, **options)

        return sending

    def missed(self) -> list[str]:
        """What was planned and has not happened."""
        missed = [str(fault) for number, fault in enumerate(self._planned) if not os.path.exists(self._mark(number))]
        return missed + [f"the sink {one.sink!r} fails" for one in self._sinks if not one.failed]

    def _note(self, number: int) -> None:
        _touch(self._mark(number))

    def _mark(self, number: int) -> str:
        return os.path.join(self._folder, f"fault-{number}")

    def _jump(self, seconds: float) -> None:
        if self._clock is not None:
            self._clock.advance(seconds)

    def _mode_of(self, fault: Fault) -> str:
        """The mode of the task that a fault is planned for, as far as that task is there; else what it names."""
        try:
            return self._queue.find(str(fault.task)).mode
        except NotFound:
            return str(fault.task)

    def _path(self) -> str | None:
        path = getattr(self._queue.database, "path", None)
        return None if path in (None, ":memory:") else os.path.realpath(str(path))

    def _open(self) -> AbstractContextManager[Queue]:
        path = self._path()
        return nullcontext(self._queue) if path is None else Queue.open(path, by="test")


@dataclass(slots=True)
class _Sink:
    sink: str
    error: str
    times: int | None
    failed: int = 0

    def fails(self) -> bool:
        if self.times is not None and self.failed >= self.times:
            return False
        self.failed += 1
        return True


def suffer(plan: str, task: Task) -> Any:
    """In a worker process: do a task as the function of its mode does, with the faults of a plan."""
    told = json.loads(plan)
    return _suffer(
        task,
        function.load(told["functions"][task.mode], told["project"]),
        [Fault(**fault) for fault in told["faults"]],
        happened=lambda number: _touch(os.path.join(told["folder"], f"fault-{number}")),
        die=lambda: os.kill(os.getpid(), signal.SIGKILL),
        queue=lambda: Queue.open(told["database"], by="test"),
        # Not planned for a process whose clock is its own.
        jump=lambda _: None,
    )


def _suffer(
    task: Task,
    do: Callable[[Task], Any],
    planned: list[Fault],
    *,
    happened: Callable[[int], None],
    die: Callable[[], None],
    queue: Callable[[], AbstractContextManager[Queue]],
    jump: Callable[[float], None],
) -> Any:
    """Do a task, and let happen what was planned for it."""
    met = [(number, fault) for number, fault in enumerate(planned) if fault.meets(task)]
    for number, _ in met:
        happened(number)
    for _, fault in met:
        if fault.kind == "dies":
            die()
        elif fault.kind == "jumps":
            jump(fault.seconds)
    came_to = do(task)
    if any(fault.kind == "late" for _, fault in met):
        with queue() as opened:
            opened.crash(task, "the claim was taken away by the test")
    return came_to


def _vanish() -> None:
    raise Died("killed by the test")


def _touch(path: str) -> None:
    with open(path, "a", encoding="utf-8"):
        pass
