"""The pytest plugin: a fresh queue, fires, command lines, agents, a clock and faults, and a look at what is left.

What a fixture needs is loaded when a test asks for it: a run that uses none of them pays for none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from orch.fires import Fired
    from orch.modes import Mode
    from orch.project import Project
    from orch.queue import Queue
    from orch.records import Task
    from orch.testing.agents import Answer, ScriptedAgent
    from orch.testing.clocks import Clock
    from orch.testing.faults import Faults
    from orch.testing.lines import CommandLine
    from orch.work import Labour


class Fire(Protocol):
    """Runs a fire on the queue of the test; what is not said here is as for `orch.fire`."""

    def __call__(
        self,
        work: dict[str, Callable[[Task], Any]] | None = None,
        *,
        project: Project | None = None,
        runner: str | None = None,
        wrap: Callable[[Labour], Labour] | None = None,
        **options: Any,
    ) -> Fired: ...


class Script(Protocol):
    """Makes the agent of a role: its answers, and limits as those of `orch.Mode`, ``gate`` and ``workdir``."""

    def __call__(self, role: str, *answers: Answer, **options: Any) -> ScriptedAgent: ...


@pytest.fixture
def orch_leftovers(tmp_path: Any) -> Iterator[None]:
    """Fails the test when a process, an open file or a connection is left of it; `orch_queue` asks for it."""
    from orch.testing.leftovers import Leftovers

    leftovers = Leftovers(str(tmp_path))
    yield
    if found := leftovers.found():
        pytest.fail("\n  ".join(["the test has left something behind:", *found]), pytrace=False)


@pytest.fixture
def orch_queue(tmp_path: Any, orch_leftovers: None, request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A fresh queue in a file, as that of a project in ``tmp_path``; it is closed after the test."""
    from orch.queue import Queue

    # Made in the time of the test, whichever of both the test names first.
    _asked_for(request, "orch_clock")
    folder = tmp_path / ".orch"
    folder.mkdir(mode=0o700, exist_ok=True)
    # What a crash of the whole machine would lose is of no interest in a test.
    with Queue.open(folder / "orch.db", create=True, durability="normal", by="test") as queue:
        yield queue


@pytest.fixture
def orch_runner() -> str:
    """The runner of `orch_fire`: ``"inline"``. A test file that has a fixture of this name decides for its tests."""
    return "inline"


@pytest.fixture
def orch_clock() -> Iterator[Clock]:
    """A clock that stands still until the test moves it, at noon of 2030-01-01 in UTC."""
    from orch.clock import use_clock
    from orch.testing.clocks import Clock

    clock = Clock()
    with use_clock(clock.now):
        yield clock


@pytest.fixture
def orch_faults(
    orch_queue: Queue, tmp_path: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Faults]:
    """Faults that the test plans for the fires of `orch_fire`; one that has not happened fails the test."""
    from orch import notify
    from orch.testing.faults import Faults

    folder = tmp_path / ".orch-faults"
    folder.mkdir()
    # Where worker processes find what stands in for a function.
    monkeypatch.syspath_prepend(folder)
    faults = Faults(orch_queue, str(folder), _asked_for(request, "orch_clock"))
    monkeypatch.setattr(notify, "send", faults.send(notify.send))
    yield faults
    if missed := faults.missed():
        pytest.fail("\n  ".join(["what was planned has not happened:", *missed]), pytrace=False)


@pytest.fixture
def _orch_roles() -> dict[str, Mode]:
    """The roles whose agents are scripted."""
    return {}


@pytest.fixture
def orch_agent(tmp_path: Any, _orch_roles: dict[str, Mode]) -> Script:
    """Makes the agent of a role, which gives the answers that it is given, in the fires of `orch_fire`."""
    from orch.testing.agents import ScriptedAgent

    def make(role: str, *answers: Answer, **options: Any) -> ScriptedAgent:
        agent = ScriptedAgent(role, answers, os.path.join(tmp_path, ".orch-agents", role), options)
        _orch_roles[role] = agent.mode
        return agent

    return make


@pytest.fixture
def orch_fire(
    orch_queue: Queue, orch_runner: str, _orch_roles: dict[str, Mode], request: pytest.FixtureRequest
) -> Fire:
    """Runs a fire on `orch_queue`, by `orch_runner`: it returns as `orch.fire` does."""
    from dataclasses import replace

    from orch import embedding

    def fire(
        work: dict[str, Callable[[Task], Any]] | None = None,
        *,
        project: Project | None = None,
        runner: str | None = None,
        wrap: Callable[[Labour], Labour] | None = None,
        **options: Any,
    ) -> Fired:
        runner = runner or orch_runner
        project = embedding.project_of(orch_queue, project)
        project = replace(project, modes={**project.modes, **_orch_roles})
        faults: Faults | None = _asked_for(request, "orch_faults")
        if faults is not None:
            if runner == "pool":
                work = faults.stand_ins(project, embedding.importable(orch_queue, work))
            else:
                wrap = faults.around(wrap)
        return embedding.fire(orch_queue, project, work=work, runner=runner, wrap=wrap, **options)

    return fire


@pytest.fixture
def orch_cli(orch_queue: Queue, tmp_path: Any) -> CommandLine:
    """Runs command lines in this process, on `orch_queue` and in ``tmp_path``: ``orch_cli("add", "print", "n:=1")``."""
    from orch.database import MEMORY
    from orch.testing.lines import CommandLine

    path = str(getattr(orch_queue.database, "path", MEMORY))
    if path == MEMORY:
        pytest.fail("orch_cli runs command lines on a queue in a file, and orch_queue is in memory", pytrace=False)
    return CommandLine(str(tmp_path), path)


def _asked_for(request: pytest.FixtureRequest, name: str) -> Any:
    """The value of a fixture that the test has asked for too; None if it has not."""
    return request.getfixturevalue(name) if name in request.fixturenames else None
