"""The reference that is made from the docstrings is complete: all that is public stands in it, with a text."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import orch

ROOT = Path(orch.__file__).parent.parent
MODULES = ("orch", "orch.testing", "orch.handoff", "orch.skill")


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Everything that a module offers, the members of its classes included, by its name there."""
    for name in importlib.import_module(module).__all__:
        found = getattr(importlib.import_module(module), name)
        yield name, found
        if inspect.isclass(found):
            for member, value in vars(found).items():
                if not member.startswith("_") and (told := written(value)) is not None:
                    yield f"{name}.{member}", told


def written(value: Any) -> Any:
    """What carries the docstring of a member that somebody wrote; None for data."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, cached_property):
        return value.func
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    return value if inspect.isfunction(value) else None


@pytest.mark.parametrize("module", MODULES)
def test_whatever_is_public_says_what_it_is(module: str) -> None:
    silent = []
    for name, found in public(module):
        doc = (getattr(found, "__doc__", None) or "").strip()
        # A record without a text of its own gets its signature for one.
        if callable(found) and (not doc or doc.startswith(f"{name}(")):
            silent.append(name)
    assert silent == []


def test_all_that_is_public_stands_in_the_reference(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs"), str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    for module in MODULES:
        page = (tmp_path / f"{module.replace('.', '/')}.html").read_text()
        anchors = set(re.findall(r'id="([\w.]+)"', page))
        missing = {name for name, _ in public(module)} - anchors
        assert not missing, f"{module}: {sorted(missing)}"


def test_every_command_has_its_call_in_the_table_of_the_library() -> None:
    from orch.cli import COMMANDS

    readme = (ROOT / "README.md").read_text()
    rows = dict(re.findall(r"^\| `orch (\w+)` \| (.*) \|$", readme, re.M))
    assert set(rows) == set(COMMANDS)
    queue = orch.connect(":memory:")
    for calls in rows.values():
        for call in re.findall(r"`([\w.]+)", calls):
            root, *parts = call.split(".")
            found: Any = queue if root == "queue" else importlib.import_module(root)
            for part in parts:
                if inspect.ismodule(found) and not hasattr(found, part):
                    importlib.import_module(f"{found.__name__}.{part}")
                found = getattr(found, part)
            assert callable(found), call
    queue.close()
