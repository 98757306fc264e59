"""What a start loads: a new import on the way of a command that runs often is a decision, not an accident."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROGRAM, World

# The modules that a command may load, beside what they load themselves.
STORE = [
    "apsw",
    "bisect",
    "datetime",
    "contextlib",
    "dataclasses",
    "enum",
    "importlib",
    "json",
    "re",
    "signal",
    "typing",
]
COMMAND = [*STORE, "click", "locale", "tomllib", "unicodedata"]
WORK = [
    *STORE, "ctypes", "fcntl", "multiprocessing.pool", "multiprocessing.synchronize", "platform", "runpy", "selectors",
    "subprocess", "unicodedata",
]  # fmt: skip
# Our own modules that adding a task may load: whoever needs another one loads it where it is used.
QUEUE = {
    "adding", "backoff", "clock", "database", "database.sqlite", "errors", "files", "jsontext", "legible", "names",
    "place", "program", "queue", "records", "states",
}  # fmt: skip
ADD = {*QUEUE, "cli", "cli.add", "cli.talk", "intake"}
HEARTBEAT = {*QUEUE, "cli", "cli.heartbeat", "cli.talk"}
VERSION = {"__main__", "clock", "database", "database.sqlite", "errors", "files", "program", "versions"}

sources_only = pytest.mark.skipif(PROGRAM[0] != sys.executable, reason="looks into these sources, not into the binary")


def loaded(code: str, folder: Path | None = None) -> set[str]:
    """The modules that a program has loaded when it ends."""
    code += "\nimport json, sys; print(json.dumps([*sys.modules]), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stderr.splitlines()[-1]))


def others(modules: set[str]) -> set[str]:
    """The top-level names of all that is not ours, without what is private to Python or to a package."""
    tops = {name.partition(".")[0] for name in modules}
    return {name for name in tops if not name.startswith("_")} - {"orch"}


def ours(modules: set[str]) -> set[str]:
    return {name.removeprefix("orch.") for name in modules if name.startswith("orch.")}


def run(*words: str) -> str:
    return f"from orch.cli import run\nassert run({[*words]!r}) == 0"


def allowed(names: list[str]) -> set[str]:
    return others(loaded(f"import {', '.join(names)}"))


def test_the_version_loads_the_database_and_nothing_else() -> None:
    found = loaded("import sys; sys.argv = ['orch', '--version']\nfrom orch.__main__ import main; main()")
    assert others(found) <= allowed(STORE)
    assert ours(found) <= VERSION


def test_adding_a_task_loads_only_what_that_needs(world: World) -> None:
    world.orch("init")
    found = loaded(run("add", "ok", "n:=1"), world.folder)
    assert "apsw" in found
    assert others(found) <= allowed(COMMAND)
    assert ours(found) <= ADD


def test_a_heartbeat_loads_only_what_that_needs(world: World) -> None:
    world.queue.add("ok")
    [task] = world.queue.claim("ok", start=True)
    environment = f"import os; os.environ |= {{'ORCH_TASK_ID': '{task.id}', 'ORCH_CLAIM': '{task.attempts}'}}\n"
    found = loaded(environment + run("heartbeat", str(task.id)), world.folder)
    assert others(found) <= allowed(COMMAND)
    assert ours(found) <= HEARTBEAT


@sources_only
def test_a_worker_loads_only_what_the_work_needs(world: World) -> None:
    world.orch("add", "mixed", "do=sorted(sys.modules)")
    world.orch("fire")
    [attempt] = world.queue.attempts(1)
    found = set(json.loads(attempt.result or "[]"))
    assert "orch.worker" in found
    assert others(found) <= allowed(WORK) | {"work"}
    assert not {name for name in ours(found) if name.startswith(("cli", "views", "handoff", "settings", "fires"))}


def test_what_only_agents_need_is_not_loaded_without_them(world: World) -> None:
    world.orch("init")
    for command in ("list", "sweep", "fire"):
        assert "yaml" not in loaded(run(command), world.folder)


def test_help_is_shown_without_loading_any_command() -> None:
    assert ours(loaded("from orch.cli import run; run(['--help'])")) <= {
        "cli",
        "cli.talk",
        "errors",
        "legible",
        "program",
    }
