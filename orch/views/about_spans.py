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


def spans(found: Sequence[Span], *, now: str, more: bool = False) -> RenderableType:
    """A table of spans, the children of each below it; what goes on lasts until the stamp `now`.

    `more` says that these are not all.
    """
    if not found:
        return Text("no fires yet")
    table = Grid(
        "span",
        "when",
        "began",
        "took",
        "end",
        "exit",
        "tokens",
        "cost",
        "why",
        right=("took", "exit", "tokens", "cost"),
        yielding=("span", "why"),
        spare=("began", "when", "exit", "tokens", "cost", "why"),
    )
    first = min(microseconds(span.start) for span in found)
    last = max(microseconds(span.end or now) for span in found)
    for depth, span in _tree(found):
        known = span.attributes
        cost = known.get("cost_usd")
        table.add(
            one_line("  " * depth + span.label),
            _when(span, first, last, now),
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
    """Each span with its depth, behind its parent."""
    known = {span.span_id for span in found}
    below: dict[str | None, list[Span]] = {}
    for span in found:
        below.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)
    waiting = [(0, span) for span in reversed(below.get(None, []))]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting += [(depth + 1, child) for child in reversed(below.get(span.span_id, []))]


def _when(span: Span, first: int, last: int, now: str) -> Bar:
    start, end = microseconds(span.start), microseconds(span.end or now)
    whole = max(1, last - first)
    return Bar(
        ((start - first) / whole, "dim"),
        (max(1, end - start) / whole, _STYLES[span.status]),
        ((last - end) / whole, "dim"),
    )


def _end(span: Span) -> Text:
    """How it ended, in its own word where it has one."""
    word = span.attributes.get("outcome") or span.attributes.get("ending") or span.attributes.get("state")
    if word is None:
        return Text("")
    told = state_text(str(word).partition(":")[0])
    return told if told.style else Text(told.plain, style=_STYLES[span.status])
