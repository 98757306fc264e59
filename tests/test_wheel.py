"""The built wheel holds all that it needs, and the demo runs from it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
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


def installer() -> str:
    """An interpreter that has pip: not that of the tests where it was made without, but then the one it comes from."""
    has_pip = importlib.util.find_spec("pip") is not None
    return sys.executable if has_pip else os.path.realpath(sys.executable)


@pytest.fixture
def environment(tmp_path: Path, wheel: Path) -> Path:
    """The scripts of an empty environment with the wheel installed; its dependencies are those of the tests."""
    folder = tmp_path / "environment"
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [installer(), "-m", "pip", "--disable-pip-version-check", "--python", python]
    install = [*pip, "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    (packages,) = folder.glob("lib/*/site-packages")
    # As a plain folder at the end: what is installed there for the tests themselves does not count.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin"


def test_the_installed_program_and_the_module_are_the_same(environment: Path, tmp_path: Path) -> None:
    told = [
        subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
        for words in ([environment / "orch", "--version"], [environment / "python", "-m", "orch", "--version"])
    ]
    assert told[0] == told[1]
    assert told[0].startswith(f"orch {orch.__version__}, Python ")
    assert f"package in {environment.parent}" in told[0]


def test_the_demo_runs_from_the_wheel_and_shows_real_failures(environment: Path, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "ORCH": str(environment / "orch"),
        "PYTHON": str(environment / "python"),
        "TMPDIR": str(tmp_path),
    }
    ran = subprocess.run(
        [ROOT / "scripts" / "demo"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "fire 1: passed" in ran.stdout
    assert "fire 2: passed" in ran.stdout
    assert "ImportError: win32 only" in ran.stdout or "SyntaxError" in ran.stdout
    assert "cut by max_pool" in ran.stdout
    assert "2 of 6 fires used today" in ran.stdout


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("ensurepip") is None, reason="this Python cannot put pip in place")
def test_the_wheel_with_its_extras_installs_from_the_registry(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "environment", with_pip=True)
    scripts = tmp_path / "environment" / "bin"
    install = [scripts / "python", "-m", "pip", "install", "--quiet", f"{wheel}[notify,postgres]"]
    subprocess.run(install, check=True, capture_output=True, timeout=600)
    for words in (["orch", "--version"], ["apprise", "--version"], ["python", "-c", "import psycopg"]):
        subprocess.run([scripts / words[0], *words[1:]], check=True, capture_output=True, timeout=60)
