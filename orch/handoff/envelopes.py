"""The envelopes of agent command lines: JSON around the agent's words, and what it measured of the work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# Lines of an event stream are JSON objects with one of these as their type.
_EVENTS = {
    "system", "assistant", "user", "result", "thread.started", "turn.started", "item.started", "item.updated",
    "item.completed", "turn.completed", "turn.failed", "error", "init", "message", "tool_use", "tool_result", "text",
    "step_start", "step_finish",
}  # fmt: skip
_FAILED = ("failed", "rejected", "canceled", "cancelled")
_WAITS = ("input-required", "input_required", "auth-required", "auth_required")


@dataclass(slots=True)
class Opened:
    """What was inside: the agent's ``text``, the envelope's ``name`` (None without one), and what it measured.

    ``problem`` is a word for an error that the agent's program reports, ``verdict`` the state of a task object that
    speaks for itself.
    """

    text: str
    name: str | None = None
    problem: str | None = None
    verdict: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    session: str | None = None


def open_envelope(text: str) -> Opened:
    """What an agent's program printed, without its envelope; the text itself where there is none that is known."""
    bare = text.strip()
    if not bare.startswith(("{", "[")):
        return _lines(bare) or Opened(text)
    try:
        found = json.loads(bare)
    except (ValueError, RecursionError):
        return _lines(bare) or Opened(text)
    events = [event for event in found if isinstance(event, dict)] if isinstance(found, list) else []
    if events and any(event.get("type") == "result" for event in events):
        return _claude([event for event in events if event.get("type") == "result"][-1], "claude-json")
    if not isinstance(found, dict):
        return Opened(text)
    for is_it, read in _OBJECTS:
        if is_it(found):
            return read(found)
    return Opened(text)


def _lines(text: str) -> Opened | None:
    """An event stream, one JSON object a line; other lines between them are the program's own talk."""
    events = list(_events(text))
    if not events:
        return None
    kinds = {event["type"] for event in events}
    if kinds & {"thread.started", "turn.started", "turn.completed", "turn.failed", "item.completed"}:
        return _codex(events)
    results = [event for event in events if event["type"] == "result"]
    if results and ("result" in results[-1] or "subtype" in results[-1]):
        return _claude(results[-1], "claude-jsonl", events)
    if kinds & {"assistant"}:
        # Cut off before its result: what it had said by then.
        return Opened("\n".join(_said(events)), "claude-jsonl")
    if kinds & {"message", "init"}:
        return _gemini_stream(events)
    texts = [_str(_dict(event.get("part")).get("text") or event.get("text")) for event in events]
    return Opened("\n".join(filter(None, texts)), "opencode-jsonl") if any(texts) else None


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.split("\n"):
        # A quick look, as there may be millions of lines.
        if line.startswith("{") and line.rstrip().endswith("}"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and event.get("type") in _EVENTS:
                yield event


def _claude(found: dict[str, Any], name: str, events: list[dict[str, Any]] | None = None) -> Opened:
    usage = _dict(found.get("usage"))
    spent = [
        _count(usage.get(key)) for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    ]
    structured = found.get("structured_output")
    text = _str(found.get("result")) or (json.dumps(structured) if isinstance(structured, dict) else "")
    if not text and events:
        text = "\n".join(_said(events))
    subtype = _str(found.get("subtype"))
    problem = None
    if found.get("is_error") or subtype not in ("", "success"):
        problem = subtype if subtype not in ("", "success") else "is_error"
    elif found.get("permission_denials"):
        problem = "permission_denied"
    return Opened(
        text,
        name,
        problem,
        input_tokens=sum(filter(None, spent)) if any(count is not None for count in spent) else None,
        output_tokens=_count(usage.get("output_tokens")),
        cost_usd=_number(found.get("total_cost_usd")),
        seconds=_thousandth(found.get("duration_ms")),
        session=_str(found.get("session_id")) or None,
    )


def _said(events: list[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        content = _dict(event.get("message")).get("content") if event["type"] == "assistant" else None
        for part in content if isinstance(content, list) else []:
            part = _dict(part)
            if part.get("type") == "text":
                yield _str(part.get("text"))
            elif part.get("type") == "tool_use" and "handback" in _str(part.get("name")).lower():
                yield _str(_dict(part.get("input")).get("message"))


def _codex(events: list[dict[str, Any]]) -> Opened:
    texts, opened = [], Opened("", "codex-jsonl")
    for event in events:
        item = _dict(event.get("item"))
        item = item if "type" in item else _dict(item.get("details"))
        if event["type"] == "item.completed" and item.get("type") == "agent_message":
            texts.append(_str(item.get("text")))
        elif event["type"] == "turn.completed":
            usage = _dict(event.get("usage"))
            opened.input_tokens = (opened.input_tokens or 0) + (_count(usage.get("input_tokens")) or 0)
            opened.output_tokens = (opened.output_tokens or 0) + (_count(usage.get("output_tokens")) or 0)
            opened.problem = None
        elif event["type"] in ("turn.failed", "error"):
            opened.problem = event["type"]
        elif event["type"] == "thread.started":
            opened.session = _str(event.get("thread_id")) or None
    opened.text = "\n".join(texts)
    return opened


def _gemini(found: dict[str, Any]) -> Opened:
    models = _dict(_dict(found.get("stats")).get("models")).values()
    tokens = [_dict(_dict(model).get("tokens")) for model in models]
    return Opened(
        _str(found.get("response")),
        "gemini-json",
        "error" if found.get("error") else None,
        input_tokens=sum(_count(one.get("prompt")) or 0 for one in tokens) if tokens else None,
        output_tokens=sum(_count(one.get("candidates")) or 0 for one in tokens) if tokens else None,
        session=_str(found.get("session_id")) or None,
    )


def _gemini_stream(events: list[dict[str, Any]]) -> Opened:
    texts = [
        _str(event.get("content"))
        for event in events
        if event["type"] == "message" and event.get("role") in ("assistant", "model", None)
    ]
    problem = "error" if any(event["type"] == "error" for event in events) else None
    return Opened("".join(texts), "gemini-jsonl", problem)


def _a2a(found: dict[str, Any]) -> Opened:
    status = _dict(found.get("status"))
    state = _str(status.get("state")).lower().removeprefix("task_state_")
    holders = [*_list(found.get("artifacts")), status.get("message")]
    parts = [_dict(part) for holder in holders for part in _list(_dict(holder).get("parts"))]
    return Opened("\n".join(_str(part.get("text")) for part in parts), "a2a-task", verdict=_verdict(state))


def _mcp(found: dict[str, Any]) -> Opened:
    result = _dict(found.get("result"))
    text = "\n".join(_str(_dict(part).get("text")) for part in _list(result.get("content")))
    return Opened(
        text or _str(found.get("statusMessage")), "mcp-task", verdict=_verdict(_str(found.get("status")).lower())
    )


def _verdict(state: str) -> str | None:
    if state in _FAILED:
        return "failure"
    return "blocked" if state in _WAITS else None


_OBJECTS: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], Opened]], ...] = (
    (
        lambda it: it.get("type") == "result" and ("result" in it or "subtype" in it),
        lambda it: _claude(it, "claude-json"),
    ),
    (lambda it: "response" in it and "handoff_type" not in it, _gemini),
    (lambda it: isinstance(it.get("status"), dict) and "state" in it["status"], _a2a),
    (lambda it: "taskId" in it and isinstance(it.get("status"), str), _mcp),
    (lambda it: it.get("type") in ("thread.started", "turn.failed", "turn.completed"), lambda it: _codex([it])),
)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else None


def _thousandth(value: Any) -> float | None:
    found = _number(value)
    return None if found is None else found / 1000
