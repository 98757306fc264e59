"""The template's own command line, with the real program behind it and a local server where its model would be.

Left out unless ``ORCH_TEST_AGENTS`` names the folder that the program is in; ``make test-agents`` puts it there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.agents.model_server import USAGE, ModelServer
from tests.conftest import World

PROGRAMS = os.environ.get("ORCH_TEST_AGENTS", "")

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="'make test-agents' runs it")


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC", "CLAUDE"))]:
        monkeypatch.delenv(name)


def founded(world: World, server: ModelServer) -> dict[str, str]:
    """A project from the template, and the environment that its agents work in."""
    (world.folder / "orch.toml").unlink()
    world.orch("init", "--template", "agents")
    home = world.folder / "home"
    home.mkdir()
    return {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }


def drop(world: World) -> None:
    text = "handoff_type: DELEGATE\ntask_id: t-1\nagent: engineer\nscope: look at it\nplan: [look]\n"
    path = world.folder / "order.yaml"
    path.write_text(f"{text}success_criteria: [it is as it should be]\n")
    world.orch("delegate", str(path))


def test_an_order_goes_through_the_program_and_its_gate(world: World) -> None:
    with ModelServer() as server:
        environment = founded(world, server)
        drop(world)
        world.orch("fire", env=environment)
        [work, verdict] = server.asked
    assert world.states() == {1: "done", 2: "done"}, world.queue.attempts(1)
    assert "task_id: t-1" in json.dumps(work["messages"])
    assert "task_id: t-1-qe-gate" in json.dumps(verdict["messages"])
    assert ("haiku" in work["model"], "sonnet" in verdict["model"]) == (True, True)
    attempt = world.queue.attempts(1)[0]
    assert attempt.exit_code == 0
    # What the program has counted, as the agent itself says nothing of it.
    assert attempt.tokens == USAGE["input_tokens"] + USAGE["output_tokens"]
    assert (attempt.cost_usd or 0) > 0
    assert json.loads(attempt.result or "")["envelope"] == "claude-json"


def test_a_limit_of_its_user_pauses_the_role_and_burns_no_try(world: World) -> None:
    with ModelServer(refusal="usage limit reached, try again in 2 hours") as server:
        environment = founded(world, server)
        drop(world)
        world.orch("fire", env=environment)
    task = world.queue.task(1)
    assert (task.state, task.retry_count) == ("incoming", 0), world.queue.attempts(1)
    [pause] = world.queue.pauses()
    assert (pause.mode, "usage limit" in str(pause.reason)) == ("engineer", True)


def test_a_program_that_is_not_there_is_said_before_anything_is_claimed(world: World, tmp_path: Path) -> None:
    with ModelServer() as server:
        environment = founded(world, server) | {"PATH": "/usr/bin:/bin"}
        drop(world)
        told = world.orch("fire", env=environment, code=1)
    assert "'claude' is not on PATH" in " ".join(told.split())
    assert world.states() == {1: "incoming"}
    assert server.asked == []
