"""Agents that say what a test has written down for them, as the programs that a real fire would start."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from orch.modes import Agent, Mode

# A HANDBACK by its fields, a text that is printed as it is, or an exit code with nothing said.
Answer = Mapping[str, Any] | str | int


class ScriptedAgent:
    """A role whose agent gives one answer after the other; the last one again, when there is no other.

    ``mode`` is the role for a project, ``orders`` what its agent has been given so far.
    """

    def __init__(self, role: str, answers: Sequence[Answer], folder: str, options: Mapping[str, Any]) -> None:
        self.role = role
        self._folder = folder
        os.makedirs(folder)
        with open(os.path.join(folder, "answers.json"), "w", encoding="utf-8") as file:
            json.dump([_printed(answer) for answer in answers or [{}]], file)
        script = os.path.join(os.path.dirname(__file__), "actor.py")
        command = (sys.executable, "-I", script, folder, "{task_id}")
        agent = Agent(gate=bool(options.get("gate")), workdir=options.get("workdir", "project"))
        own = {name: value for name, value in options.items() if name not in ("gate", "workdir")}
        self.mode = Mode(role, command=command, agent=agent, **{"timeout": 3600.0, **own})

    @property
    def orders(self) -> list[str]:
        """The orders that it was given, as texts, in the order in which they came."""
        names = sorted((name for name in os.listdir(self._folder) if name.endswith(".order")), key=_number)
        return [_content(os.path.join(self._folder, name)) for name in names]


def _printed(answer: Answer) -> dict[str, Any]:
    """What the actor is told of an answer: the text that it prints, and how it ends."""
    if isinstance(answer, int):
        return {"text": "", "exit_code": answer}
    if isinstance(answer, str):
        return {"text": answer, "exit_code": 0}
    fields = {"handoff_type": "HANDBACK", "status": "success", "output": "as asked", **answer}
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    lines.insert(1, "task_id: {task_id}")
    return {"text": "\n".join(["```yaml", *lines, "```", ""]), "exit_code": 0}


def _number(name: str) -> int:
    return int(name.removesuffix(".order"))


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
