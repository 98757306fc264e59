"""The built wheel holds all that it needs, and the demo runs from it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import orch

ROOT = Path(orch.__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network by the backend that is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_statement_and_template_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "orch").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == tracked
    assert {"orch/sql/claim.sql", "orch/sql/migrations/0001.sql", "orch/py.typed"} <= names


def test_the_demo_runs_from_the_wheel_and_shows_real_failures(wheel: Path, tmp_path: Path) -> None:
    """From its own copy of the package alone; the dependencies are those of the tests."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    program = tmp_path / "orch"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m orch "$@"\n')
    program.chmod(0o755)
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "installed"),
        "PYTHONSAFEPATH": "1",
        "ORCH": str(program),
        "PYTHON": sys.executable,
        "TMPDIR": str(tmp_path),
    }
    where = subprocess.run(
        [sys.executable, "-c", "import orch; print(orch.__file__)"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert str(tmp_path / "installed") in where.stdout
    ran = subprocess.run(
        [ROOT / "scripts" / "demo"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "fire 1: passed" in ran.stdout
    assert "fire 2: passed" in ran.stdout
    assert "ImportError: win32 only" in ran.stdout or "SyntaxError" in ran.stdout
    assert "cut by max_pool" in ran.stdout
    assert "2 of 6 fires used today" in ran.stdout
