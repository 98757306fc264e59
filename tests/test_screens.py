"""The screens as they look: each view with fixed data, compared with what is stored beside the tests.

``ORCH_STORE_SCREENS=1`` stores them anew; look at the difference before it is committed.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from orch import views
from orch.budget import Account, Bill
from orch.fire_records import Fire, Sitting, Spent, Tally, Told
from orch.look_records import Backlog, Event, Moved, Pause
from orch.plan import Caps, Demand, Measured, Snapshot, Wish, grant
from orch.rollup import Rollup
from orch.sight import Phase, Sight
from orch.spans import Span
from orch.standing import ModeStanding, Standing
from orch.watchdog import Watched

STORED = Path(__file__).parent / "screens"
AT = "2026-11-30T12:00:{:02}.000000Z"


def fire(number: int, **stamps: str) -> Fire:
    names = ("hygiene_at", "decide_at", "fan_out_at", "barrier_at", "rollup_at", "closed_at", "ending")
    given = [stamps.get(name) for name in names]
    return Fire(number, "2026-11-30", None, "host", "boot", 4711, "1", AT.format(0), *given, 0, None, None)


def moved(number: int, task: int, old: str, new: str, reason: str | None = None, mode: str = "billing") -> Moved:
    return Moved(Event(number, task, 1, old, new, AT.format(number), "w3", reason, 3), mode, None)


SIGHT = Sight(
    at=AT.format(42),
    fire=fire(12, hygiene_at=AT.format(0), decide_at=AT.format(0), fan_out_at=AT.format(1), barrier_at=AT.format(1)),
    planned=300,
    drained=110,
    failed=4,
    left_seconds=754,
    seats=[
        Sitting(3, 12, 1, "billing", AT.format(1), None, 812, "invoice-2026-11-0815", AT.format(7)),
        Sitting(4, 12, 2, "a very long name of a mode [red]", AT.format(1), None, 813, None, AT.format(40)),
        Sitting(5, 12, 3, "reports", AT.format(1), None, None, None, None),
    ],
    backlog=[
        Backlog("billing", ready=170, running=1),
        Backlog("a very long name of a mode [red]", ready=12, delayed=3, running=1),
        Backlog("reports", retrying=2, blocked=1),
    ],
    last=fire(11, closed_at=AT.format(0), ending="passed"),
)
NEWS: list[Moved | Phase] = [
    Phase(12, "barrier", AT.format(1)),
    moved(7, 812, "incoming", "processing"),
    moved(8, 810, "processing", "failed", "exit 1: [/] no such list\n\x1b[31m :smile:"),
    moved(9, 811, "processing", "crashed", "the worker died (killed by signal 9)", "a very long name of a mode [red]"),
    Phase(11, "passed", AT.format(10), "Fire 11: 3 done"),
]
SNAPSHOT = Snapshot(
    modes=[
        Demand("billing", ready=170, measured=Measured(40, 2.25, 0.1), max_seats=4),
        Demand("reports", ready=3),
        Demand("mails", ready=9, paused=True),
        Demand("unheard-of", ready=1, known=False),
    ],
    caps=Caps(max_pool=6, task_cap=25),
)
PLAN = grant(
    Wish({"reports": 4, "billing": 8, "mails": 1}, Caps(task_cap=10), "reports are due at noon; [mails] can wait"),
    SNAPSHOT,
    decider="command ./decide.sh",
)
STANDING = Standing(
    database="/srv/fleet/.orch/orch.db",
    modes=[
        ModeStanding("billing", Backlog("billing", ready=170, running=1), 110, 4, True, None),
        ModeStanding(
            "mails", Backlog("mails", ready=9), 0, 0, True, Pause("mails", AT.format(0), None, "upstream is down")
        ),
    ],
    running=SIGHT.fire,
    last=SIGHT.last,
    fires_today=3,
    daily_fires=6,
    resets_at="2026-12-01T00:00+01:00",
    workers=3,
    max_pool=12,
    task_cap=25,
    wall_clock_minutes=15,
    undelivered=1,
    next_fire_at="2026-11-30T16:00+01:00",
    watchdog="late",
    watchdog_told="a fire was due at 2026-11-30 11:00:00Z and is late",
    watchdog_looked_at=AT.format(30),
    tokens_today=120_000,
    cost_usd_today=1.25,
    daily_cost_usd=5.0,
    inbox=1,
)
WATCHED = Watched(
    state="dark",
    since=AT.format(0),
    told="no fire has succeeded since one was due at 2026-11-30 07:00:00Z: the fleet is dark",
    due_at="2026-11-30T07:00:00.000000Z",
    grace_minutes=30,
    last_at="2026-11-30T03:01:12.000000Z",
    last_fire=11,
    looked_before="2026-11-30T11:30:01.000000Z",
)
ACCOUNT = Account(
    zone="Europe/Berlin",
    day="2026-11-30",
    resets_at="2026-12-01T00:00+01:00",
    today=Bill(120_000, 1.25),
    caps={"daily_cost_usd": 5.0, "daily_tokens": 100_000, "fire_cost_usd": 2.0},
    unknown_cost="ignore",
    days=[
        ("2026-11-30", [Spent(None, "billing", 12, 100_000, 1.2), Spent(None, "reports", 1, 20_000, 0.05)]),
        ("2026-11-29", [Spent(None, "billing", 3, 900, 0.0123)]),
    ],
    fires=[Spent(11, "", 1, 20_000, 0.05), Spent(12, "", 12, 100_000, 1.2)],
)
ROLLUP = Rollup(
    fire=12,
    ending="passed",
    tallies=[Tally("billing", 20, done=18, failed=2, tokens=5000, cost_usd=0.25, priced=20, seconds=41.5)],
    plan=PLAN,
    cuts=[("daily_cost_usd", "ended 4 workers; 150 tasks left for a later fire")],
)
INBOX = [
    Told(2, AT.format(5), "me", "only [billing] today, and nothing that costs more than a dollar"),
    Told(1, AT.format(1), "me", "hello", AT.format(2), 11),
]


def span(id: str, parent: str | None, label: str, start: int, end: int | None, **known: object) -> Span:
    sound = {None: None, "done": True, "passed": True, "empty": True}.get(
        known.get("outcome") or known.get("ending"), False
    )  # type: ignore[arg-type]
    why = None if sound else "ValueError: [/] no such list of customers\n\x1b[31m"
    stop = None if end is None else AT.format(end)
    return Span("step", label, "0" * 32, id, parent, AT.format(start), stop, sound, why, known, ("fire 12", "w3"))


SPANS = [
    span("1", None, "fire 12", 0, 40, ending="passed"),
    span("2", "1", "hygiene", 0, 2),
    span("3", "1", "w3 a very long name of a mode [red]", 2, 30, ending="empty"),
    span("4", "1", "w4 billing", 2, None),
    span("5", "3", "invoice-2026-11-0815", 2, 20, outcome="done", tokens=12_000, cost_usd=0.25),
    span("6", "4", "task 813", 3, 9, outcome="failed", exit_code=3, tokens=70, cost_usd=0.0123),
    span("7", "5", "invoice-2026-11-0815-qe-gate", 15, 19, outcome="done", tokens=90),
]


class Fixed:
    """A screenful of a fixed height."""

    def __init__(self, height: int) -> None:
        self.height = height

    def __rich_console__(self, console: Console, options: object) -> object:
        yield from console.render(
            views.Screenful(SIGHT, NEWS, "orch  /srv/fleet"), console.options.update(height=self.height)
        )


def lined(width: int) -> RenderableType:
    return Fixed(22 if width == 80 else 14)


VIEWS = {
    "tail": lined,
    "plan": lambda _: views.plan(PLAN, SNAPSHOT),
    "status": lambda _: views.standing(STANDING),
    "watchdog": lambda _: views.watched(WATCHED),
    "budget": lambda _: views.account(ACCOUNT),
    "rollup": lambda _: views.rollup(ROLLUP),
    "inbox": lambda _: views.inbox(INBOX),
    "spans": lambda _: views.spans(SPANS, now=AT.format(45), more=True),
}


@pytest.mark.parametrize("height", range(8, 30))
def test_a_taller_screen_never_shows_less(height: int) -> None:
    def moves(rows: int) -> int:
        console = Console(file=io.StringIO(), width=80, height=rows, force_terminal=False, color_system=None)
        console.print(Fixed(rows))
        assert isinstance(console.file, io.StringIO)
        return sum(line.startswith("12:00:") for line in console.file.getvalue().splitlines())

    assert moves(height) <= moves(height + 1) <= len(NEWS)
    assert moves(30) == len(NEWS)


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("name", VIEWS)
def test_a_screen_looks_as_it_is_stored(name: str, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None, highlight=False)
    console.print(VIEWS[name](width))
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    shown = "\n".join(lines).rstrip() + "\n"
    stored = STORED / f"{name}-{width}.txt"
    if os.environ.get("ORCH_STORE_SCREENS"):
        stored.write_text(shown)
    assert max(len(line) for line in lines) <= width
    assert shown == stored.read_text()
