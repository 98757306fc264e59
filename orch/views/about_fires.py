"""Fires on a screen: how one goes, what it came to, and what one would do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from orch import notify
from orch.budget import told_of_overrun
from orch.legible import count, figure, when
from orch.rollup import Rollup, needs_a_person, priced, read_back
from orch.views.pieces import BAR, Grid, one_line, plain, short, span

if TYPE_CHECKING:
    from orch.barrier import Progress
    from orch.fire_records import Fire, Note
    from orch.fires import Between
    from orch.plan import Demand, Plan, Snapshot
    from orch.seating import Rehearsal


def rollup(found: Rollup) -> RenderableType:
    """The table that ends a fire."""
    left = {backlog.mode: backlog.ready for backlog in found.waiting}
    decided = found.plan
    cut = any(decided.granted.get(mode, 0) != asked for mode, asked in decided.asked.items())
    columns: dict[str, list[float]] = {
        "asked": [decided.asked.get(tally.mode, 0) if cut else 0 for tally in found.tallies],
        "seats": [decided.granted.get(tally.mode, 0) for tally in found.tallies],
        "done": [tally.done for tally in found.tallies],
        "failed": [tally.failed for tally in found.tallies],
        "retry": [tally.retried for tally in found.tallies],
        "crashed": [tally.crashed for tally in found.tallies],
        "back": [tally.released for tally in found.tallies],
        "left": [left.get(tally.mode, 0) for tally in found.tallies],
        "sec": [round(tally.seconds, 1) for tally in found.tallies],
    }
    # What did not happen takes no room.
    used = [name for name, values in columns.items() if any(values) or name in ("done", "failed")]
    table = Grid("mode", *used, right=used, yielding=("mode",), spare=("sec", "asked", "seats", "back", "retry"))
    for row, tally in enumerate(found.tallies):
        cells = [
            Text(str(columns[name][row]), style="red" if name == "failed" and tally.failed else "") for name in used
        ]
        table.add(plain(tally.mode), *cells)
    lines: list[RenderableType] = [
        Text(f"{found.kind} {found.fire}: {found.ending if found.tallies else 'nothing was drained'}")
    ]
    if found.tallies:
        lines.append(table)
    lines += [plain(f"cut by {cap}: {what}", "yellow") for cap, what in found.cuts]
    lines += [plain(f"missing: {worker}", "red") for worker in found.missing]
    if found.is_priced:
        lines.append(Text(f"spent: {priced(found.cost_usd, found.tokens)}"))
    lines += [plain(told_of_overrun(overrun), "yellow") for overrun in found.overruns]
    if decided.problem:
        lines.append(plain(f"{decided.problem}: {decided.decider} decided instead", "yellow"))
    if decided.reasoning:
        lines.append(plain(f"{decided.decider}: {decided.reasoning}"))
    if found.inbox:
        lines.append(Text(f"{count(len(found.inbox), 'text')} for the decider not read yet", style="yellow"))
    person = needs_a_person(found)
    if person:
        lines.append(plain(f"needs a person: {person}", "bold red"))
    return Group(*lines)


def progress(found: Progress) -> RenderableType:
    """One line that tells where a running fire is."""
    if found.phase != "barrier":
        return Text(f"{found.phase} …")
    ended = found.drained + found.failed
    share = ended / found.planned if found.planned else 1.0
    filled = min(BAR, round(share * BAR))
    line = Text("█" * filled, style="green")
    line.append("░" * (BAR - filled), style="dim")
    line.append(f" {ended} of {found.planned}")
    if found.failed:
        line.append(f", {found.failed} failed", style="red")
    minutes, seconds = divmod(int(found.left_seconds), 60)
    line.append(f", {count(found.alive, 'worker')}, ends in {minutes}:{seconds:02} at the latest")
    return line


def between(found: Between) -> RenderableType:
    """What a sweep did."""
    swept = found.swept
    told = [f"{fire} had died and was closed" for fire in found.closed]
    for number, what in (
        (swept.missing, "missing worker"),
        (swept.ended, "worker past its time"),
        (swept.strays, "process of a dead worker"),
        (swept.crashed, "task without a live owner"),
        (swept.retried, "task to be retried"),
        (swept.failed, "task failed for good"),
        (swept.promoted, "task due now"),
        (swept.expired, "task expired"),
        (swept.taken, "dropped task"),
    ):
        if number:
            told.append(f"{what}: {number}")
    told += [f"refused: {why}" for why in swept.refused]
    told += swept.silent
    told += [f"still running: {process}" for process in swept.left]
    told += [f"note {one.note} to {notify.told(one.sink)}: {one.error or 'delivered'}" for one in found.posted]
    if found.unwritten:
        told.append(found.unwritten)
    return Group(*(plain(line) for line in told or ["nothing to sweep"]))


def rehearsal(found: Rehearsal) -> RenderableType:
    """What a fire would do."""
    return Group(hygiene(found), plan(found.plan))


def plan(found: Plan, snapshot: Snapshot | None = None) -> RenderableType:
    """A plan: what was asked and granted, what cut it, and who decided; with a snapshot, what it was judged by."""
    demands = {demand.mode: demand for demand in snapshot.modes} if snapshot else {}
    numbers = ("ready", "sec each", "failing", "asked", "granted")
    table = Grid(
        "mode", *numbers, "cut by", right=numbers, yielding=("mode", "cut by"), spare=("failing", "sec each", "ready")
    )
    for mode in dict.fromkeys([*found.asked, *(demand.mode for demand in demands.values() if demand.ready)]):
        demand = demands.get(mode)
        measured = demand.measured if demand else None
        table.add(
            plain(mode),
            str(demand.ready) if demand else "",
            f"{measured.seconds:.1f}" if measured else "",
            f"{measured.failure_rate:.0%}" if measured else "",
            str(found.asked.get(mode, 0)),
            str(found.granted.get(mode, 0)),
            plain(_why_cut(found, mode, demand), "yellow"),
        )
    lines: list[RenderableType] = []
    if found.problem:
        lines.append(plain(f"{found.problem}: {found.decider} decides instead", "yellow"))
    said = f": {found.reasoning}" if found.reasoning else ""
    lines.append(plain(f"decided by {found.decider}{said}"))
    lines.append(table if found.asked or demands else Text("nothing to drain: no worker would start"))
    if found.caps:
        lines.append(plain("lower caps: " + ", ".join(f"{name} {figure(value)}" for name, value in found.caps.items())))
    lines += [plain(f"cut by {cap}: {what}", "yellow") for cap, what in found.cuts if cap != "backlog"]
    return Group(*lines)


def _why_cut(found: Plan, mode: str, demand: Demand | None) -> str:
    if demand is not None and not demand.known:
        return "not in orch.toml"
    if demand is not None and demand.paused:
        return "paused"
    return ", ".join(cap for cap, what in found.cuts if what.startswith(f"{mode}: "))


def hygiene(found: Rehearsal) -> RenderableType:
    """What the hygiene of a fire, or a sweep, would find."""
    return Text(
        f"hygiene would find: missing workers {found.missing}, workers past their time {found.overdue},"
        f" stale claims {found.stale}, crashed tasks {found.crashed}, due tasks {found.due}"
    )


def fires(found: Sequence[Fire]) -> RenderableType:
    """A table of fires."""
    table = Grid(
        "fire",
        "opened",
        "took",
        "end",
        "done",
        "failed",
        "needs a person",
        yielding=("needs a person",),
        spare=("end", "took", "opened"),
    )
    for fire in found:
        rolled = read_back(fire.rollup) if fire.rollup else None
        table.add(
            str(fire.id) if fire.kind == "fire" else fire.name,
            when(fire.opened_at),
            span(fire.opened_at, fire.closed_at),
            fire.phase,
            str(rolled.drained) if rolled else "",
            str(rolled.failed) if rolled else "",
            one_line(short((needs_a_person(rolled) or "") if rolled else "", 80)),
        )
    return table if found else Text("no fires yet")


def notes(found: Iterable[Note]) -> RenderableType:
    """Notes one after the other."""
    texts = [Group(*(plain(line) for line in note.body.splitlines()), "") for note in found]
    return Group(*texts) if texts else Text("no notes yet")
