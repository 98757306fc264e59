"""One file for each step that did something: what it was, when, how long it took."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orch import clock, files

_log = logging.getLogger("orch.skill")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class Tracing:
    """The spans of an orchestrator, in the folder ``spans`` beside its queue."""

    queue_root: Path
    session_id: str

    @property
    def _spans_folder(self) -> Path:
        return self.queue_root.parent / "spans"

    def capture_span(self, method_name: str, **attrs: Any) -> None:
        """Write what a step was as a file, with the attributes given. It never raises."""
        try:
            ended = clock.now()
            began = attrs.pop("_began", ended)
            span = {
                "span_name": f"orchestrator-{method_name}",
                "span_id": uuid.uuid4().hex[:16],
                "trace_id": self.session_id,
                "start_time": clock.stamp(began),
                "end_time": clock.stamp(ended),
                "duration_ms": round((ended - began).total_seconds() * 1000),
                "attributes": attrs,
            }
            whose = _UNSAFE.sub("-", str(attrs.get("task_id") or "orchestrator"))[:100]
            step = _UNSAFE.sub("-", str(method_name))[:60]
            path = self._spans_folder / f"{whose}-{step}-{span['span_id'][:8]}.span.json"
            files.replace(str(path), json.dumps(span, indent=2, default=str) + "\n")
        except Exception as error:
            _log.warning("a span of %s could not be written: %s", method_name, error)

    @contextmanager
    def _step(self, name: str, *, quiet: bool = False, **attrs: Any) -> Iterator[dict[str, Any]]:
        """A step, and its span; a quiet one that tells nothing has none."""
        began, known = clock.now(), len(attrs)
        try:
            yield attrs
        except BaseException as error:
            attrs["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            if not quiet or len(attrs) > known:
                self.capture_span(name, _began=began, **attrs)
