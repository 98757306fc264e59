"""The content of ``orch.toml`` after its check, and what is remembered of a check.

The check loads pydantic, which costs more than all the rest of a command's start. So a file that was found good is
known again, and is not checked again until it, or this program, changes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orch import __version__, files

_NAME = "settings.json"


@dataclass(frozen=True, slots=True)
class Checked:
    """The file's content after the check, as plain values; limits that it does not name are not there."""

    zone: str | None
    python_path: list[str]
    limits: dict[str, Any]
    orchestrator: dict[str, Any]
    durability: str
    root: str | None
    start_method: str
    spans: bool
    sinks: tuple[str, ...] | None
    guard: dict[str, Any]
    decide: dict[str, Any] | None
    schedule: dict[str, Any]
    modes: dict[str, dict[str, Any]]
    agents: dict[str, dict[str, Any]]


def recall(state: str, raw: Mapping[str, Any]) -> Checked | None:
    """What was remembered of a file with this content; None when nothing fits."""
    try:
        with open(os.path.join(state, _NAME), encoding="utf-8") as file:
            kept = json.load(file)
        return Checked(**kept["checked"]) if kept["of"] == _known_by(raw) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def remember(state: str, raw: Mapping[str, Any], checked: Checked) -> None:
    """Keep a check in the state folder; where that is not possible the next command checks again."""
    path = os.path.join(state, _NAME)
    try:
        files.replace(path, json.dumps({"of": _known_by(raw), "checked": asdict(checked)}))
    except OSError:
        return


def _known_by(raw: Mapping[str, Any]) -> list[str]:
    """The rules that a file is checked by, and its content."""
    rules = os.path.join(os.path.dirname(__file__), "settings_schema.py")
    try:
        changed = str(os.stat(rules).st_mtime_ns)
    except OSError:
        # Compiled into the binary, whose folder is named by its content.
        changed = sys.prefix
    return [__version__, changed, json.dumps(raw, default=str)]
