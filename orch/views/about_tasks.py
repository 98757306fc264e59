"""Tasks on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orch.budget import dollars, told_of_overrun
from orch.legible import when
from orch.views.pieces import Grid, one_line, plain, short, span, state_text
from orch.workdirs import Workdir

if TYPE_CHECKING:
    from orch.asks import Ask
    from orch.fire_records import Overrun
    from orch.look_records import Attempt, Event
    from orch.records import Task


def tasks(found: Sequence[Task]) -> RenderableType:
    """A table of tasks."""
    table = Grid(
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
            state_text(task.state),
            str(task.attempts),
            one_line(task.key or ""),
            one_line(short(task.payload_text, 60)),
            one_line(short(_why(task), 60)),
        )
    return table if found else Text("no tasks")


def asks(found: Sequence[Ask]) -> RenderableType:
    """Questions that wait for a person: each with what it is about and how to answer it."""
    lines: list[RenderableType] = []
    for ask in found:
        times = f", asked {ask.count} times" if ask.count > 1 else ""
        head = f"{ask.id}  {ask.kind}, task {ask.task} ({ask.key or ask.mode or 'pruned'}), {when(ask.asked_at)}{times}"
        lines += [plain(head, "bold"), plain(f"   {ask.question}")]
    if found:
        lines.append(Text("'orch answer ID TEXT' answers, 'orch answer ID --close' closes", style="dim"))
    return Group(*lines) if lines else Text("nothing waits for a person")


def task(
    found: Task,
    attempts: Sequence[Attempt],
    events: Sequence[Event],
    needs: Sequence[tuple[str, int | None, bool]],
    overruns: Sequence[Overrun] = (),
    workdirs: Sequence[Workdir] = (),
) -> RenderableType:
    """One task: its fields, what is left of where it was worked on, what it has cost beyond its order, its attempts,
    and its moves."""
    parts = [_facts(found, attempts, needs)]
    parts += [plain(_left(one)) for one in workdirs]
    parts += [plain(told_of_overrun(overrun), "yellow") for overrun in overruns]
    if attempts:
        parts.append(_tries(attempts))
    if events:
        parts.append(_moves(events))
    return Group(*parts)


def _facts(found: Task, attempts: Sequence[Attempt], needs: Sequence[tuple[str, int | None, bool]]) -> RenderableType:
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
        ("due", when(found.due_at) or None),
        ("waits for", ", ".join(name for name, _, met in needs if not met) or None),
        ("timeout", None if found.timeout is None else f"{found.timeout:g} s"),
        ("added", when(found.created_at)),
        ("why", found.reason),
        ("result", next((attempt.result for attempt in reversed(attempts) if attempt.result), None)),
    ):
        if value is not None:
            facts.add_row(name, plain(value))
    return facts


def _left(one: Workdir) -> str:
    parts = [f"branch {one.branch}"] if one.branch else []
    parts += [f"folder {one.folder}"] if one.folder else []
    return f"left of try {one.attempt}: {', '.join(parts)}"


def _tries(attempts: Sequence[Attempt]) -> RenderableType:
    tried = Grid(
        "try",
        "worker",
        "claimed",
        "took",
        "outcome",
        "exit",
        "tokens",
        "cost",
        "error",
        yielding=("claimed", "error"),
        spare=("claimed", "worker", "took", "tokens"),
    )
    for attempt in attempts:
        tried.add(
            str(attempt.attempt),
            f"w{attempt.worker}" if attempt.worker else "",
            when(attempt.claimed_at),
            span(attempt.claimed_at, attempt.ended_at),
            state_text(attempt.outcome or "processing"),
            "" if attempt.exit_code is None else str(attempt.exit_code),
            "" if attempt.tokens is None else f"{attempt.tokens:,}",
            "" if attempt.cost_usd is None else dollars(attempt.cost_usd),
            plain(attempt.error or attempt.reason or ""),
        )
    return tried


def _moves(events: Sequence[Event]) -> RenderableType:
    moved = Grid("at", "from", "to", "by", "why", yielding=("at", "why"), spare=("at", "by"))
    for event in events:
        moved.add(
            when(event.at),
            state_text(event.old_state),
            state_text(event.new_state),
            plain(event.moved_by or ""),
            plain(event.reason or ""),
        )
    return moved


def _why(task: Task) -> str:
    if task.blocked:
        return "waits for another task"
    if task.due_at:
        return f"due {when(task.due_at)}"
    return task.reason or ""
