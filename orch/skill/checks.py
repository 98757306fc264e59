"""What a name, a DELEGATE and a HANDBACK have to be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orch.handoff import Handback, HandoffError, fields, read_handback, words, writing
from orch.skill.desk import Desk
from orch.skill.errors import HandbackParseError, QueueValidationError

_REQUIRED = ("handoff_type", "task_id", "agent", "scope", "plan", "success_criteria")


class Checks:
    """The checks of an orchestrator, and how it reads an answer."""

    queue_root: Path
    _desk: Desk

    def _validate_delegate(self, delegate: Mapping[str, Any]) -> None:
        """`QueueValidationError` says what a DELEGATE lacks."""
        if not isinstance(delegate, Mapping):
            raise QueueValidationError("a DELEGATE is a mapping of fields")
        missing = [name for name in _REQUIRED if delegate.get(name) is None]
        if missing:
            raise QueueValidationError(f"missing required fields: {', '.join(missing)}")
        if delegate["handoff_type"] != "DELEGATE":
            raise QueueValidationError(f"handoff_type is {delegate['handoff_type']!r} and not 'DELEGATE'")
        self._check_id(delegate["task_id"])

    def _validate_handback(self, handback: Mapping[str, Any]) -> None:
        """`QueueValidationError` says what a HANDBACK lacks."""
        if not isinstance(handback, Mapping):
            raise QueueValidationError("a HANDBACK is a mapping of fields")
        missing = [name for name in ("handoff_type", "task_id", "status") if handback.get(name) is None]
        if missing:
            raise QueueValidationError(f"missing required fields: {', '.join(missing)}")
        if handback["handoff_type"] != "HANDBACK":
            raise QueueValidationError(f"handoff_type is {handback['handoff_type']!r} and not 'HANDBACK'")
        if handback["status"] not in words.STATUSES:
            raise QueueValidationError(
                f"Invalid status {handback['status']!r}: it is one of {', '.join(words.STATUSES)}"
            )

    def _parse_handback(self, text: str) -> dict[str, Any]:
        """The fields of the HANDBACK in a text, whatever task it is for; `HandbackParseError` when there is none."""
        try:
            handback = read_handback(text, "", roles=self._desk.roles)
        except HandoffError as error:
            if error.kind != "task_id_mismatch" or not error.found:
                raise HandbackParseError(str(error)) from error
            return self._read(error.found, text)[1]
        return dict(fields.plain(handback.text))

    def _read(self, task_id: str, text: str) -> tuple[Handback, dict[str, Any]]:
        try:
            handback = read_handback(text, task_id, roles=self._desk.roles)
            # An envelope may say how it ended without any block.
            said = {"handoff_type": "HANDBACK", "status": handback.status, "output": handback.output}
            return handback, {"task_id": task_id, **(fields.plain(handback.text) if handback.text else said)}
        except HandoffError as error:
            raise HandbackParseError(f"the answer to {task_id or 'the task'}: {error}") from error

    def _handback_of(self, task_id: str, values: Mapping[str, Any]) -> Handback:
        """An answer from its fields."""
        text = writing.as_yaml({"handoff_type": "HANDBACK", **values, "task_id": task_id})
        return self._read(task_id, f"```yaml\n{text}```\n")[0]

    def _check_id(self, task_id: object) -> None:
        if not isinstance(task_id, str) or not words.is_safe_id(task_id):
            raise QueueValidationError(
                f"task_id {task_id!r} cannot be one: use letters, digits, '.', '_' and '-', and no path"
            )

    def _safe_queue_path(self, base: str | os.PathLike[str], name: str) -> Path:
        """The path of a file below a folder of the queue; `QueueValidationError` when it would lie elsewhere."""
        folder = Path(os.path.normpath(self.queue_root / base))
        path = Path(os.path.normpath(folder / name))
        is_plain = bool(name) and not set(name) & {"/", "\\", "\0"}
        if not is_plain or path.parent != folder or not folder.is_relative_to(self.queue_root):
            raise QueueValidationError(f"{name!r} is no name of a file in {folder}")
        return path
