"""A whole project on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orch.budget import Account, dollars
from orch.legible import count, figure, when
from orch.rollup import needs_a_person, priced, read_back
from orch.views.pieces import Bar, Grid, plain

if TYPE_CHECKING:
    from orch.fire_records import Spent, Told
    from orch.standing import ModeStanding, Standing
    from orch.watchdog import Watched

_WATCH_STYLES = {"lit": "green", "late": "yellow", "dark": "bold red", "back": "green"}


def standing(found: Standing) -> RenderableType:
    """The whole project: modes with bars, the last fire, and what the caps leave."""
    numbers = ("ready", "later", "running", "done", "failed")
    table = Grid(
        "mode", " ", *numbers, "", right=numbers, yielding=("mode", " ", ""), spare=("running", "later", " ", "done")
    )
    for mode in found.modes:
        backlog = mode.backlog
        later = backlog.delayed + backlog.retrying + backlog.blocked
        table.add(
            plain(mode.mode),
            Bar(
                (mode.done, "green"),
                (mode.failed, "red"),
                (backlog.running + backlog.crashed, "cyan"),
                (backlog.ready + later, "dim"),
            ),
            str(backlog.ready),
            str(later),
            str(backlog.running + backlog.crashed),
            str(mode.done),
            str(mode.failed),
            plain(_mode_note(mode), "yellow"),
        )
    lines: list[RenderableType] = [table if found.modes else Text("no tasks and no modes yet")]
    lines.append(_running(found))
    lines.append(_last(found))
    lines.append(
        Text(
            f"caps: {found.fires_today} of {found.daily_fires} fires used today (resets {found.resets_at}), "
            f"{found.max_pool} workers a fire, {found.task_cap} tasks and {found.wall_clock_minutes:g} minutes a worker"
        )
    )
    lines += _budget(found) + _next(found) + [_watchdog(found)]
    if found.paused:
        lines.append(Text("everything is paused: 'orch resume --all' ends that", style="yellow"))
    for task_id, name, _, state in found.stuck:
        why = "which failed" if state else "which does not exist"
        lines.append(plain(f"task {task_id} waits for {name}, {why}", "yellow"))
    if found.inbox:
        lines.append(Text(f"{count(found.inbox, 'text')} for the decider not read yet: 'orch tell'", style="yellow"))
    if found.undelivered:
        lines.append(Text(f"{count(found.undelivered, 'note')} not delivered yet", style="yellow"))
    return Group(*lines)


def _mode_note(mode: ModeStanding) -> str:
    notes = []
    if not mode.known:
        notes.append("not in orch.toml")
    if mode.pause:
        notes.append(mode.pause.told)
    return ", ".join(notes)


def _running(found: Standing) -> Text:
    if found.running is None:
        alive = f"; {count(found.workers, 'worker')} alive" if found.workers else ""
        return Text(f"no fire is running{alive}")
    if found.gone:
        return Text(f"{found.running.name} has died: the next sweep or fire closes it", style="yellow")
    fire, workers = found.running, count(found.workers, "worker")
    phase = "asleep" if fire.kind == "poll" and not found.workers else fire.phase
    return Text(f"{fire.name} is running: {phase}, {workers}, pid {fire.pid}", style="cyan")


def _last(found: Standing) -> Text:
    if found.last is None:
        return Text("no fire has ended yet")
    rolled = read_back(found.last.rollup) if found.last.rollup else None
    what = f": {rolled.drained} done, {rolled.failed} failed" if rolled else ""
    line = plain(f"last {found.last.kind}: {found.last.id}, {found.last.phase} at {when(found.last.closed_at)}{what}")
    person = needs_a_person(rolled) if rolled else None
    if person:
        line.append("\n")
        line.append_text(plain(f"needs a person: {person}", "bold red"))
    return line


def _budget(found: Standing) -> list[Text]:
    parts = []
    if found.daily_cost_usd is not None:
        parts.append(f"{dollars(found.cost_usd_today)} of {dollars(found.daily_cost_usd)}")
    if found.daily_tokens is not None:
        parts.append(f"{found.tokens_today:,} of {found.daily_tokens:,} tokens")
    if not parts and not (found.tokens_today or found.cost_usd_today):
        return []
    told = ", ".join(parts) or f"{priced(found.cost_usd_today, found.tokens_today)}, no cap on it"
    return [Text(f"spent today: {told}")]


def _next(found: Standing) -> list[Text]:
    return [Text(f"next fire due: {found.next_fire_at}")] if found.next_fire_at else []


def _watchdog(found: Standing) -> Text:
    if found.unwatched:
        return plain(found.unwatched, "yellow")
    if found.watchdog_looked_at is None:
        return Text("the watchdog has not looked yet")
    looked = when(found.watchdog_looked_at)
    if found.watchdog in ("dark", "late"):
        return plain(f"watchdog at {looked}: {found.watchdog}: {found.watchdog_told}", _WATCH_STYLES[found.watchdog])
    return plain(f"watchdog at {looked}: {found.watchdog}", _WATCH_STYLES.get(found.watchdog, ""))


def watched(found: Watched) -> RenderableType:
    """The state of the watchdog."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    for name, value in (
        ("state", Text(found.state, style=_WATCH_STYLES.get(found.state, ""))),
        ("since", when(found.since)),
        ("last successful fire", f"{found.last_fire}, {when(found.last_at)}" if found.last_at else "none yet"),
        ("due", when(found.due_at)),
        ("grace", f"{found.grace_minutes:g} minutes"),
        ("looked before", when(found.looked_before) or "never"),
        ("told", plain(found.told)),
    ):
        if len(value):
            facts.add_row(name, value)
    return facts


def account(found: Account) -> RenderableType:
    """What was spent beside the caps."""
    lines: list[RenderableType] = []
    for cap, most in found.caps.items():
        if not cap.startswith("daily"):
            continue
        cost = cap.endswith("cost_usd")
        spent = found.today.cost_usd if cost else found.today.tokens
        told = f"{dollars(spent)} of {dollars(most)}" if cost else f"{spent:,} of {most:,} tokens"
        row = Table.grid(padding=(0, 1))
        style = "red" if spent >= most else "green"
        row.add_row(Bar((min(spent, most), style), (max(0, most - spent), "dim")), Text(f"{told} today"))
        lines.append(row)
    per_fire = [f"{name} {figure(most)}" for name, most in found.caps.items() if name.startswith("fire")]
    if per_fire:
        lines.append(Text(f"a fire: {', '.join(per_fire)}"))
    if not found.caps:
        lines.append(Text("no budget is set: daily_cost_usd and daily_tokens in [limits] are caps"))
    else:
        silent = "ends new claims" if found.unknown_cost == "stop" else "counts as nothing"
        lines.append(Text(f"the day ends at {found.resets_at}; an attempt that does not say what it cost {silent}"))
    numbers = ("attempts", "tokens", "cost")
    days = Grid("day", "mode", *numbers, right=numbers, yielding=("mode",), spare=("attempts",))
    for day, modes in found.days:
        for row_number, spent_ in enumerate(modes):
            days.add(day if not row_number else "", plain(spent_.mode), *_amounts(spent_))
    fires = Grid("fire", *numbers, right=numbers, spare=("attempts",))
    for one in found.fires:
        fires.add(str(one.fire or "none"), *_amounts(one))
    if found.days:
        lines.append(days)
    else:
        lines.append(Text("no attempt has said yet what it cost"))
    if found.fires:
        lines += [Text(f"the fires of {found.day}:"), fires]
    return Group(*lines)


def inbox(found: Sequence[Told]) -> RenderableType:
    """Texts for the decider."""
    table = Grid("id", "told", "text", "read", yielding=("text", "read"), spare=("told",))
    for one in found:
        how = f"by the decider of fire {one.fire}" if one.fire else "taken back" if one.read_at else "not yet"
        table.add(str(one.id), when(one.told_at), plain(one.text), plain(how))
    return table if found else Text("nothing is waiting for the decider")


def _amounts(spent: Spent) -> tuple[str, str, str]:
    return f"{spent.priced:,}", f"{spent.tokens:,}", dollars(spent.cost_usd)
