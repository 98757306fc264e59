"""What is shown on a screen: pure functions from records to rich renderables.

Text that comes from tasks or files is always a `Text`, never markup, with its control characters escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from orch.barrier import Progress
from orch.clock import seconds_between
from orch.fires import Between
from orch.legible import count, shown
from orch.records import Attempt, Event, Fire, Note, Task
from orch.rollup import Rollup, needs_a_person, read_back
from orch.seating import Rehearsal
from orch.standing import ModeStanding, Standing

_BAR = 24
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


def tasks(found: Sequence[Task]) -> RenderableType:
    """A table of tasks."""
    table = _Grid(
        "id",
        "mode",
        "state",
        "tries",
        "key",
        "payload",
        "why",
        yielding=("mode", "key", "payload", "why"),
        spare=("why", "tries", "key"),
    )
    for task in found:
        table.add(
            str(task.id),
            one_line(task.mode),
            _state(task.state),
            str(task.attempts),
            one_line(task.key or ""),
            one_line(_short(task.payload_text, 60)),
            one_line(_short(_why(task), 60)),
        )
    return table if found else Text("no tasks")


def task(
    found: Task,
    attempts: Sequence[Attempt],
    events: Sequence[Event],
    needs: Sequence[tuple[str, int | None, bool]],
) -> RenderableType:
    """One task: its fields, its attempts, and its moves."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    for name, value in (
        ("task", found.id),
        ("mode", found.mode),
        ("state", found.state),
        ("key", found.key),
        ("priority", found.priority),
        ("payload", found.payload_text),
        ("due", _when(found.due_at) or None),
        ("waits for", ", ".join(name for name, _, met in needs if not met) or None),
        ("timeout", None if found.timeout is None else f"{found.timeout:g} s"),
        ("added", _when(found.created_at)),
        ("why", found.reason),
        ("result", next((attempt.result for attempt in reversed(attempts) if attempt.result), None)),
    ):
        if value is not None:
            facts.add_row(name, plain(value))
    tried = _Grid(
        "try",
        "worker",
        "claimed",
        "took",
        "outcome",
        "exit",
        "error",
        yielding=("claimed", "error"),
        spare=("claimed", "worker", "took"),
    )
    for attempt in attempts:
        tried.add(
            str(attempt.attempt),
            f"w{attempt.worker}" if attempt.worker else "",
            _when(attempt.claimed_at),
            _span(attempt.claimed_at, attempt.ended_at),
            _state(attempt.outcome or "processing"),
            "" if attempt.exit_code is None else str(attempt.exit_code),
            plain(attempt.error or attempt.reason or ""),
        )
    moved = _Grid("at", "from", "to", "by", "why", yielding=("at", "why"), spare=("at", "by"))
    for event in events:
        moved.add(
            _when(event.at),
            _state(event.old_state),
            _state(event.new_state),
            plain(event.moved_by or ""),
            plain(event.reason or ""),
        )
    return Group(facts, *([tried] if attempts else []), *([moved] if events else []))


def standing(found: Standing) -> RenderableType:
    """The whole project: modes with bars, the last fire, and what the caps leave."""
    numbers = ("ready", "later", "running", "done", "failed")
    table = _Grid(
        "mode", " ", *numbers, "", right=numbers, yielding=("mode", " ", ""), spare=("running", "later", " ", "done")
    )
    for mode in found.modes:
        backlog = mode.backlog
        later = backlog.delayed + backlog.retrying + backlog.blocked
        table.add(
            plain(mode.mode),
            _Bar(mode),
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
    if found.paused:
        lines.append(Text("everything is paused: 'orch resume --all' ends that", style="yellow"))
    for task_id, name, _, state in found.stuck:
        why = "which failed" if state else "which does not exist"
        lines.append(plain(f"task {task_id} waits for {name}, {why}", "yellow"))
    if found.undelivered:
        lines.append(Text(f"{count(found.undelivered, 'note')} not delivered yet", style="yellow"))
    return Group(*lines)


def rollup(found: Rollup) -> RenderableType:
    """The table that ends a fire."""
    left = {backlog.mode: backlog.ready for backlog in found.waiting}
    columns: dict[str, list[float]] = {
        "seats": [found.plan.granted.get(tally.mode, 0) for tally in found.tallies],
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
    table = _Grid("mode", *used, right=used, yielding=("mode",), spare=("sec", "seats", "back", "retry"))
    for row, tally in enumerate(found.tallies):
        cells = [
            Text(str(columns[name][row]), style="red" if name == "failed" and tally.failed else "") for name in used
        ]
        table.add(plain(tally.mode), *cells)
    lines: list[RenderableType] = [
        Text(f"fire {found.fire}: {found.ending if found.tallies else 'nothing was drained'}")
    ]
    if found.tallies:
        lines.append(table)
    lines += [plain(f"cut by {cap}: {what}", "yellow") for cap, what in found.cuts]
    lines += [plain(f"missing: {worker}", "red") for worker in found.missing]
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
    filled = min(_BAR, round(share * _BAR))
    line = Text("█" * filled, style="green")
    line.append("░" * (_BAR - filled), style="dim")
    line.append(f" {ended} of {found.planned}")
    if found.failed:
        line.append(f", {found.failed} failed", style="red")
    minutes, seconds = divmod(int(found.left_seconds), 60)
    line.append(f", {count(found.alive, 'worker')}, ends in {minutes}:{seconds:02} at the latest")
    return line


def between(found: Between) -> RenderableType:
    """What a sweep did."""
    swept = found.swept
    told = [(f"fire {fire} had died and was closed") for fire in found.closed]
    for number, what in (
        (swept.missing, "missing worker"),
        (swept.ended, "worker past its time"),
        (swept.crashed, "task without a live owner"),
        (swept.retried, "task to be retried"),
        (swept.failed, "task failed for good"),
        (swept.promoted, "task due now"),
        (swept.expired, "task expired"),
    ):
        if number:
            told.append(f"{what}: {number}")
    told += [f"still running: {process}" for process in swept.left]
    told += [f"note {posted.note} to {posted.sink}: {posted.error or 'delivered'}" for posted in found.posted]
    return Group(*(plain(line) for line in told or ["nothing to sweep"]))


def rehearsal(found: Rehearsal) -> RenderableType:
    """What a fire would do."""
    lines: list[RenderableType] = [hygiene(found)]
    table = _Grid("mode", "asked", "granted", right=("asked", "granted"), yielding=("mode",))
    for mode, asked in found.plan.asked.items():
        table.add(plain(mode), str(asked), str(found.plan.granted.get(mode, 0)))
    lines.append(table if found.plan.asked else Text("nothing to drain: no worker would start"))
    lines += [plain(f"cut by {cap}: {what}", "yellow") for cap, what in found.plan.cuts]
    return Group(*lines)


def hygiene(found: Rehearsal) -> RenderableType:
    """What the hygiene of a fire, or a sweep, would find."""
    return Text(
        f"hygiene would find: missing workers {found.missing}, workers past their time {found.overdue},"
        f" stale claims {found.stale}, crashed tasks {found.crashed}, due tasks {found.due}"
    )


def fires(found: Sequence[Fire]) -> RenderableType:
    """A table of fires."""
    table = _Grid(
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
            str(fire.id),
            _when(fire.opened_at),
            _span(fire.opened_at, fire.closed_at),
            fire.phase,
            str(rolled.drained) if rolled else "",
            str(rolled.failed) if rolled else "",
            one_line(_short((needs_a_person(rolled) or "") if rolled else "", 80)),
        )
    return table if found else Text("no fires yet")


def notes(found: Iterable[Note]) -> RenderableType:
    """Notes one after the other."""
    texts = [Group(*(plain(line) for line in note.body.splitlines()), "") for note in found]
    return Group(*texts) if texts else Text("no notes yet")


class _Grid:
    """A table that fits its screen.

    `yielding` columns are wrapped or cut first. Where that is not enough, the `spare` ones are left out, in that order;
    all others are always whole.
    """

    _LEAST = 8
    _GAP = 3

    def __init__(self, *names: str, yielding: Sequence[str] = (), spare: Sequence[str] = (), right: Sequence[str] = ()):
        self._names = names
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
        return min(width, self._LEAST) if name in self._yielding else width


def _when(stamp: str | None) -> str:
    """A stored moment as a person reads it, to the second."""
    return f"{stamp[:10]} {stamp[11:19]}Z" if stamp else ""


def _span(began: str, ended: str | None) -> str:
    return f"{seconds_between(began, ended):.1f} s" if ended else "runs"


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def _why(task: Task) -> str:
    if task.blocked:
        return "waits for another task"
    if task.due_at:
        return f"due {_when(task.due_at)}"
    return task.reason or ""


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class _Bar:
    """Done, failed, running and waiting as parts of one bar, as long as its column allows."""

    def __init__(self, mode: ModeStanding) -> None:
        backlog = mode.backlog
        self._parts = [
            (mode.done, "green"),
            (mode.failed, "red"),
            (backlog.running + backlog.crashed, "cyan"),
            (backlog.ready + backlog.delayed + backlog.retrying + backlog.blocked, "dim"),
        ]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, min(_BAR, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = sum(number for number, _ in self._parts)
        width = min(_BAR, options.max_width)
        solid, light = ("#", ".") if options.ascii_only else ("█", "░")
        bar = Text()
        for number, style in self._parts:
            share = min(width - len(bar), max(1, round(number / whole * width))) if number else 0
            bar.append((light if style == "dim" else solid) * share, style=style)
        yield bar


def _mode_note(mode: ModeStanding) -> str:
    notes = []
    if not mode.known:
        notes.append("not in orch.toml")
    if mode.pause:
        notes.append("paused" + (f": {mode.pause.reason}" if mode.pause.reason else ""))
    return ", ".join(notes)


def _running(found: Standing) -> Text:
    if found.running is None:
        alive = f"; {count(found.workers, 'worker')} alive" if found.workers else ""
        return Text(f"no fire is running{alive}")
    if found.gone:
        return Text(f"fire {found.running.id} has died: the next sweep or fire closes it", style="yellow")
    fire, workers = found.running, count(found.workers, "worker")
    return Text(f"fire {fire.id} is running: {fire.phase}, {workers}, pid {fire.pid}", style="cyan")


def _last(found: Standing) -> Text:
    if found.last is None:
        return Text("no fire has ended yet")
    rolled = read_back(found.last.rollup) if found.last.rollup else None
    what = f": {rolled.drained} done, {rolled.failed} failed" if rolled else ""
    line = plain(f"last fire: {found.last.id}, {found.last.phase} at {_when(found.last.closed_at)}{what}")
    person = needs_a_person(rolled) if rolled else None
    if person:
        line.append("\n")
        line.append_text(plain(f"needs a person: {person}", "bold red"))
    return line
