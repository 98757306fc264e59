"""Spans in the formats of others, piece by piece: the Chrome trace event format, and OTLP as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from orch import __version__, clock
from orch.spans import Span

_INTERNAL = 1
_CODES = {"unset": 0, "ok": 1, "error": 2}


def chrome(spans: Iterable[Span], *, now: str) -> Iterator[str]:
    """The pieces of a JSON text in the Chrome trace event format, for Perfetto and ``chrome://tracing``.

    A complete event (``X``) a span, times in microseconds; each fire is a process and each worker a thread, by numbers
    that count up. What has not ended is drawn up to the stamp `now`. Events of a thread have to nest: one that outlasts
    what it lies in, as the end of a dead worker is found out step by step, is drawn as long as that.
    """
    timeline = _Timeline(clock.microseconds(now))
    before = '{"displayTimeUnit": "ms", "traceEvents": [\n'
    for span in spans:
        for event in timeline.events(span):
            yield before + json.dumps(event)
            before = ",\n"
    yield "]}\n" if before.startswith(",") else before + "]}\n"


class _Timeline:
    """The processes and threads that were met so far, and what is open in each thread."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._numbers: dict[tuple[str, ...], int] = {}
        self._open: dict[int, list[int]] = {}

    def events(self, span: Span) -> Iterator[dict[str, Any]]:
        process, thread = span.lane
        pid, is_new = self._number(process)
        if is_new:
            yield _named("process_name", process, pid, 0)
        tid, is_new = self._number(process, thread)
        if is_new:
            yield _named("thread_name", thread, pid, tid)
        start = clock.microseconds(span.start)
        yield {
            "ph": "X",
            "name": span.label,
            "cat": span.name,
            "ts": start,
            "dur": self._end(span, start, tid) - start,
            "pid": pid,
            "tid": tid,
            "args": {
                **span.attributes,
                "span_id": span.span_id,
                "status": span.status,
                **({"message": span.message} if span.message else {}),
            },
        }

    def _number(self, *names: str) -> tuple[int, bool]:
        is_new = names not in self._numbers
        return self._numbers.setdefault(names, len(self._numbers) + 1), is_new

    def _end(self, span: Span, start: int, tid: int) -> int:
        end = max(start, self._now if span.end is None else clock.microseconds(span.end))
        around = self._open.setdefault(tid, [])
        while around and around[-1] <= start:
            around.pop()
        end = min([end, *around[-1:]])
        around.append(end)
        return end


def _named(what: str, name: str, pid: int, tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def otlp(spans: Iterable[Span]) -> Iterator[str]:
    """The pieces of one line of JSON: an OTLP ``TracesData``, as a collector takes it in from a file or by HTTP.

    A span that has not ended is left out, as the standard knows none.
    """
    resource = {"attributes": _attributes({"service.name": "orch", "service.version": __version__})}
    scope = {"name": "orch", "version": __version__}
    before = (
        f'{{"resourceSpans": [{{"resource": {json.dumps(resource)}, "scopeSpans": [{{"scope": {json.dumps(scope)},'
        ' "spans": ['
    )
    is_empty = True
    for span in spans:
        if span.end is not None:
            yield before + json.dumps(_span(span))
            before, is_empty = ", ", False
    yield '{"resourceSpans": []}\n' if is_empty else "]}]}]}\n"


def _span(span: Span) -> dict[str, Any]:
    start = clock.microseconds(span.start)
    end = max(start, clock.microseconds(span.end or span.start))
    made: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": f"orchestrator-{span.name}",
        "kind": _INTERNAL,
        # 64-bit whole numbers are texts in the JSON of protobuf.
        "startTimeUnixNano": str(start * 1000),
        "endTimeUnixNano": str(end * 1000),
        "attributes": _attributes(span.attributes),
        "status": {"code": _CODES[span.status]},
    }
    if span.parent_id:
        made["parentSpanId"] = span.parent_id
    if span.message and span.sound is False:
        made["status"]["message"] = span.message
    if span.links:
        made["links"] = [{"traceId": trace, "spanId": id} for trace, id in span.links]
    return made


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _typed(value)} for key, value in values.items()]


def _typed(value: Any) -> dict[str, Any]:
    match value:
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": str(value)}
