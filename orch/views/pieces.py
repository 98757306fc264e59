"""What every view is made of: text that is shown exactly, tables that fit, bars."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from orch.clock import seconds_between
from orch.legible import shown

BAR = 24
_STYLES = {
    "done": "green",
    "failed": "red",
    "crashed": "red",
    "processing": "cyan",
    "claimed": "cyan",
    "retry-pending": "yellow",
}


def plain(text: object, style: str = "") -> Text:
    """Any text exactly as it is; what would steer the terminal is shown instead of obeyed."""
    return Text(shown(text), style=style)


def one_line(text: object) -> Text:
    """Any text as far as it fits into one line of its column."""
    line = plain(text)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


class Grid:
    """A table that fits its screen.

    `yielding` columns are wrapped or cut first, to the `least` width. Where that is not enough, the `spare` ones are
    left out, in that order; all others are always whole.
    """

    _GAP = 3

    def __init__(
        self,
        *names: str,
        yielding: Sequence[str] = (),
        spare: Sequence[str] = (),
        right: Sequence[str] = (),
        least: int = 8,
    ):
        self._names, self._least = names, least
        self._yielding, self._spare, self._right = yielding, spare, right
        self._rows: list[list[RenderableType]] = []

    def add(self, *cells: RenderableType) -> None:
        self._rows.append(list(cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = [name for name in self._names if self._has_content(name)]
        for name in self._spare:
            if sum(self._width(other, console, options) + self._GAP for other in shown) <= options.max_width:
                break
            shown = [other for other in shown if other != name]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in shown:
            justify: JustifyMethod = "right" if name in self._right else "left"
            table.add_column(name.strip(), overflow="fold", no_wrap=name not in self._yielding, justify=justify)
        for row in self._rows:
            table.add_row(*(row[self._names.index(name)] for name in shown))
        yield table

    def _cells(self, name: str) -> list[RenderableType]:
        return [row[self._names.index(name)] for row in self._rows]

    def _has_content(self, name: str) -> bool:
        return any(not isinstance(cell, str | Text) or len(cell) for cell in self._cells(name))

    def _width(self, name: str, console: Console, options: ConsoleOptions) -> int:
        widths = [Measurement.get(console, options, cell).maximum for cell in self._cells(name)]
        width = max([len(name), *widths])
        return min(width, self._least) if name in self._yielding else width


class Bar:
    """Numbers, each in its style, as parts of one bar as long as its column allows; a dim part is still empty."""

    def __init__(self, *parts: tuple[float, str], most: int = BAR) -> None:
        self._parts, self._most = parts, most

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, min(self._most, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = sum(number for number, _ in self._parts)
        width = min(self._most, options.max_width)
        solid, light = ("#", ".") if options.ascii_only else ("█", "░")
        bar = Text()
        for number, style in self._parts:
            share = min(width - len(bar), max(1, round(number / whole * width))) if number else 0
            bar.append((light if style == "dim" else solid) * share, style=style)
        yield bar


def span(began: str, ended: str | None) -> str:
    return f"{seconds_between(began, ended):.1f} s" if ended else "runs"


def state_text(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
