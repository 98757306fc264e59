"""The README is true: every command in it runs, and its tables are those of the program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import orch
from orch import errors
from orch.limits import Limits
from orch.states import STATUSES, State

ROOT = Path(orch.__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell in which `orch` is this very program."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "orch"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m orch "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def test_the_commands_of_the_readme_run_one_after_the_other(tmp_path: Path, environment: dict[str, str]) -> None:
    text = "".join(blocks("console"))
    # A session: each command after its "$ ", with the lines of its input.
    script = "set -e\n" + re.sub(r"^\$ ", "", text, flags=re.M)
    project = tmp_path / "project"
    project.mkdir()
    ran = subprocess.run(
        ["bash", "-c", script], cwd=project, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "exactly these words *" in ran.stdout
    assert '{"letters":5}' in ran.stdout
    assert "all is well" in ran.stdout


def test_the_examples_of_the_library_run_as_printed(tmp_path: Path) -> None:
    told = []
    for code in (block for block in blocks("python") if "def test_" not in block):
        (tmp_path / "example.py").write_text(code)
        ran = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert ran.stderr == ""
        told.append(ran.stdout)
    assert told == ["0 processed, 1 look found nothing\n", "Fire 1: 1 done\n", "Fire 1: 2 done\n", "Fire 1: 1 done\n"]


def test_the_tests_in_the_readme_run_as_printed_and_are_those_of_the_service(tmp_path: Path) -> None:
    [code] = [block for block in blocks("python") if "def test_" in block]
    service = ROOT / "tests" / "embedding"
    (tmp_path / "service.py").write_text((service / "service.py").read_text())
    (tmp_path / "test_orders.py").write_text(code)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "6 passed" in ran.stdout
    bodies = re.findall(r"^def (test_\w+)\(.*?\):\n((?:    .*\n)+)", code, re.M)
    source = (service / "test_service.py").read_text()
    assert len(bodies) == 2
    for name, body in bodies:
        assert re.search(rf"^def {name}\([^)]*\) -> None:\n{re.escape(body)}", source, re.M), name


def test_the_first_two_commands_are_targets_of_the_makefile() -> None:
    [first] = blocks("sh")
    makefile = (ROOT / "Makefile").read_text()
    assert first.split("\n")[:2] == ["make demo", "make test"]
    assert all(f"\n{target}:" in makefile for target in ("demo", "test"))


def test_the_states_the_caps_and_the_codes_are_those_of_the_program() -> None:
    for state in State:
        [row] = re.findall(rf"^\| {state} \|.*\| *(\w*) *\|$", README, re.M)
        words = {word for word, states in STATUSES.items() if state in states and word != state}
        assert {row} - {""} == words
    for name, default in re.findall(r"^\| `(\w+)` \| (\d+) \|", README, re.M):
        assert getattr(Limits(), name) == int(default)
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.M)}
    used = {
        error.exit_code for error in vars(errors).values() if isinstance(error, type) and issubclass(error, Exception)
    }
    assert used <= told


def test_the_crontab_lines_are_those_that_init_prints() -> None:
    from orch.crontab import lines
    from orch.project import Schedule

    [printed] = blocks("crontab")
    scheduled = Schedule("0 */4 * * *", "*/15 * * * *", "*/30 * * * *")
    assert printed.splitlines() == lines(["/home/me/orch/.venv/bin/orch"], "/home/me/project/orch.toml", scheduled)


def test_every_guarantee_names_tests_that_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", README)
    assert len(named) >= 10
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"
