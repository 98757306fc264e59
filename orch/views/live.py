"""The live view: one screen of a project at work, and the lines of its story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from orch.clock import seconds_between
from orch.fire_records import PHASES, Fire, Sitting
from orch.legible import count, when
from orch.sight import Phase, Sight
from orch.views.pieces import plain, state_text

if TYPE_CHECKING:
    from orch.look_records import Backlog, Moved

_ENDINGS = {"passed": "green", "idle": "green"}


def line(news: Moved | Phase, *, brief: bool = False) -> Text:
    """One move of a task or one phase of a fire, as one line; a `brief` one leaves the day and the old state out."""
    at = when(news.at)
    told = Text(f"{at[11:19] if brief else at} ", style="dim" if brief else "")
    if isinstance(news, Phase):
        told.append(f"{news.kind} {news.fire} ")
        told.append(news.phase, style="bold" if news.told is None else _ENDINGS.get(news.phase, "red"))
        return told.append_text(plain(f": {news.told}")) if news.told else told
    event = news.event
    key = f" ({news.key})" if news.key else ""
    before = "" if brief else f"{event.old_state} → "
    told.append_text(plain(f"task {event.task}{key} {news.mode}: {before}"))
    told.append_text(state_text(event.new_state))
    told.append_text(plain(f", {event.moved_by}" if event.moved_by else ""))
    return told.append_text(plain(f": {event.reason}" if event.reason else ""))


class Screenful:
    """One screen: where the running fire is, its seats, the backlog, and the last moves, as far as there is room."""

    def __init__(self, sight: Sight, news: Sequence[Moved | Phase], head: str) -> None:
        self._sight, self._news, self._head = sight, news, head

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        solid, light = ("#", ".") if options.ascii_only else ("█", "░")
        lines = [
            plain(f"{self._head}  {when(self._sight.at)}", "bold"),
            *_fire(self._sight, width, solid, light),
            Text(),
        ]
        seats = [_seat(seat, self._sight.at) for seat in self._sight.seats]
        lines += _at_most(seats, max(2, height // 3), "seats")
        most = max((_live(one) for one in self._sight.backlog), default=0)
        modes = [_mode(one, most, width, solid, light) for one in self._sight.backlog]
        lines += _at_most(modes, max(2, height // 4), "modes")
        if seats or modes:
            lines.append(Text())
        room = max(0, height - len(lines))
        lines += [line(news, brief=True) for news in self._news[max(0, len(self._news) - room) :]]
        for each in lines[:height]:
            each.truncate(width, overflow="ellipsis")
            yield each


def _fire(sight: Sight, width: int, solid: str, light: str) -> list[Text]:
    fire = sight.fire
    if fire is None:
        return [_last(sight.last)]
    if sight.gone:
        return [Text(f"{fire.name} has died: the next sweep or fire closes it", style="yellow")]
    phases = Text(f"{fire.name}  ")
    for name in PHASES:
        style = "bold cyan" if name == fire.phase else "green" if getattr(fire, f"{name}_at") else "dim"
        phases.append(("> " if name == fire.phase else "") + name + "  ", style=style)
    if phases.cell_len > width:
        phases = Text(f"{fire.name}  ").append(f"> {fire.phase}", style="bold cyan")
    if fire.fan_out_at is None:
        return [phases]
    ended = sight.drained + sight.failed
    long = max(4, min(40, width // 3, width - 34))
    filled = min(long, round(ended / sight.planned * long)) if sight.planned else long
    bar = Text(solid * filled, style="green").append(light * (long - filled), style="dim")
    bar.append(f" {ended} of {sight.planned}")
    if sight.failed:
        bar.append(f", {sight.failed} failed", style="red")
    minutes, seconds = divmod(int(sight.left_seconds), 60)
    bar.append(f", {minutes}:{seconds:02} left")
    return [phases, bar]


def _last(fire: Fire | None) -> Text:
    if fire is None:
        return Text("no fire is running, and none has yet")
    told = Text("no fire is running; the last one was ")
    return told.append(f"{fire.id}, {fire.phase}", style=_ENDINGS.get(fire.phase, "red")).append(
        f" {when(fire.closed_at)}"
    )


def _seat(seat: Sitting, now: str) -> Text:
    told = Text(f"w{seat.worker:<4} ", style="dim")
    if seat.task is None:
        return told.append_text(plain(f"{seat.mode or ''}: between two tasks"))
    took = max(0, int(seconds_between(seat.claimed_at or now, now)))
    told.append(f"{took // 60:>3}:{took % 60:02}  ", style="cyan")
    return told.append_text(plain(f"{seat.mode or ''}: task {seat.task}{f' ({seat.key})' if seat.key else ''}"))


def _live(backlog: Backlog) -> int:
    waiting = backlog.ready + backlog.delayed + backlog.retrying + backlog.blocked
    return waiting + backlog.running + backlog.crashed


def _mode(backlog: Backlog, most: int, width: int, solid: str, light: str) -> Text:
    """A mode's live tasks as a bar beside those of the fullest mode: running ones solid, waiting ones light."""
    long = max(4, min(24, width // 4))
    at_work = backlog.running + backlog.crashed
    whole = max(1, round(_live(backlog) / most * long)) if most else 0
    running = min(whole, max(1, round(at_work / most * long))) if at_work else 0
    bar = (
        Text(solid * running, style="cyan").append(light * (whole - running), style="dim").append(" " * (long - whole))
    )
    later = backlog.delayed + backlog.retrying + backlog.blocked
    parts = [(backlog.ready, "ready"), (at_work, "running"), (later, "later")]
    told = ", ".join(f"{number} {word}" for number, word in parts if number)
    return bar.append_text(plain(f" {backlog.mode}: {told}"))


def _at_most(lines: list[Text], most: int, what: str) -> list[Text]:
    if len(lines) <= most:
        return lines
    left = len(lines) - most + 1
    return [*lines[: most - 1], Text(f"… and {count(left, what.removesuffix('s'))} more", style="dim")]
