"""Spans on a screen: a tree of steps, each with its place in the time of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from orch.budget import dollars
from orch.clock import microseconds
from orch.legible import when
from orch.spans import Span
from orch.views.pieces import Bar, Grid, one_line, short, state_text

_STYLES = {"ok": "green", "error": "red", "unset": "cyan"}
_TIMELINE = 12


def spans(found: Sequence[Span], *, now: str, more: bool = False) -> RenderableType:
    """A table of spans, the children of each below it; what goes on lasts until the stamp `now`.

    `more` says that these are not all.
    """
    if not found:
        return Text("no fires yet")
    table = Grid(
        "span",
        "timeline",
        "began",
        "took",
        "end",
        "exit",
        "tokens",
        "cost",
        "why",
        right=("took", "exit", "tokens", "cost"),
        yielding=("span", "why"),
        spare=("began", "exit", "tokens", "cost", "timeline", "why"),
        least=16,
    )
    first = min(microseconds(span.start) for span in found)
    last = max(microseconds(span.end or now) for span in found)
    for depth, span in _tree(found):
        known = span.attributes
        cost = known.get("cost_usd")
        table.add(
            one_line("  " * depth + span.label),
            _timeline(span, first, last, now),
            when(span.start)[11:],
            "runs" if span.seconds is None else f"{span.seconds:.1f} s",
            _end(span),
            str(known.get("exit_code", "")),
            f"{known['tokens']:,}" if "tokens" in known else "",
            "" if cost is None else dollars(cost),
            one_line(short(span.message or "", 60)),
        )
    lines: list[RenderableType] = [table]
    if more:
        lines.append(Text(f"… the first {len(found)}; --limit shows more, --export all of them", style="dim"))
    return Group(*lines)


def _tree(found: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Each span with its depth, behind its parent or, where that is not among them, what it is linked to."""
    known = {span.span_id for span in found}
    below: dict[str | None, list[Span]] = {}
    for span in found:
        above = (span.parent_id, *(id for _, id in span.links))
        below.setdefault(next((id for id in above if id in known), None), []).append(span)
    waiting = [(0, span) for span in reversed(below.get(None, []))]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting += [(depth + 1, child) for child in reversed(below.get(span.span_id, []))]


def _timeline(span: Span, first: int, last: int, now: str) -> Bar:
    """A bar of whole cells, at least one of which is the span's."""
    cell = max(1, last - first) / _TIMELINE
    left = min(_TIMELINE - 1, int((microseconds(span.start) - first) / cell))
    length = round((microseconds(span.end or now) - microseconds(span.start)) / cell)
    length = min(_TIMELINE - left, max(1, length))
    return Bar((left, "dim"), (length, _STYLES[span.status]), (_TIMELINE - left - length, "dim"), most=_TIMELINE)


def _end(span: Span) -> Text:
    """How it ended, in its own word where it has one."""
    word = span.attributes.get("outcome") or span.attributes.get("ending") or span.attributes.get("state")
    if word is None:
        return Text("")
    told = state_text(str(word).partition(":")[0])
    return told if told.style else Text(told.plain, style=_STYLES[span.status])
