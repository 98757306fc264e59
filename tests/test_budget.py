"""Budgets: what an attempt says that it cost, whom it is counted for, and what ends when it is too much."""

from __future__ import annotations

import datetime
import json
import zoneinfo
from collections.abc import Iterator

import pytest
from freezegun import freeze_time

from orch import budget, clock
from orch.budget import Bill, exhausted
from orch.errors import Refused
from orch.fires import open_fire
from orch.limits import Limits
from orch.outcomes import Metrics, metrics_in, metrics_of
from orch.project import Project
from orch.queue import Queue
from tests.conftest import World

DAY = ("2026-11-30T00:00:00.000000Z", "2026-12-01T00:00:00.000000Z")


def command(tokens: object = 10, cost: object = 0.4, code: int = 0) -> list[str]:
    """The words of a task that says what it cost."""
    said = json.dumps({"metrics": {"tokens": tokens, "cost_usd": cost}})
    return ["add", "--cmd", "--", "sh", "-c", f"echo '{said}'; exit {code}"]


def add(world: World, count: int, **said: object) -> None:
    words = command(**said)[3:]  # type: ignore[arg-type]
    for _ in range(count):
        world.queue.add("run", {"words": words})


# What is said


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"tokens": 1200, "cost_usd": 0.03}, Metrics(1200, 0.03)),
        ({"tokens": 0, "cost_usd": 0}, Metrics(0, 0.0)),
        ({"tokens": 12.0}, Metrics(12, None)),
        ({"cost_usd": 1, "model": "any"}, Metrics(None, 1.0)),
        ({"tokens": -1, "cost_usd": 0.5}, Metrics(None, 0.5)),
        ({"tokens": 1.5, "cost_usd": -0.5}, None),
        ({"tokens": "12", "cost_usd": True}, None),
        ({"tokens": 10**400, "cost_usd": float("inf")}, None),
        ({"tokens": 2**53 - 1, "cost_usd": 1.7e308}, None),
        ({"tokens": None, "cost_usd": float("nan")}, None),
        ({}, None),
        ([1], None),
        (None, None),
    ],
)
def test_a_price_is_read_where_it_can_be_one(said: object, read: Metrics | None) -> None:
    assert metrics_of({"metrics": said}) == read


@pytest.mark.parametrize(
    "result", [None, "", "1", '"metrics"', "[]", '{"metrics": ', '{"other": {"metrics": {"tokens": 1}}}']
)
def test_a_result_without_a_price_has_none(result: str | None) -> None:
    assert metrics_in(result) is None


def test_an_attempt_keeps_what_it_said_also_when_its_claim_was_lost(queue: Queue) -> None:
    queue.add("m")
    [late] = queue.claim("m")
    queue.release(late, "somebody took it")
    [task] = queue.claim("m")
    assert not queue.finish(late, '{"metrics": {"tokens": 5, "cost_usd": 0.25}}')
    assert queue.finish(task, '{"metrics": {"tokens": 7}}')
    assert [(one.tokens, one.cost_usd) for one in queue.attempts(1)] == [(5, 0.25), (7, None)]
    today = clock.day_bounds(clock.now(), clock.UTC)
    assert queue.spending.on(*today) == (12, 0.25)


@pytest.mark.parametrize("code", [0, 1, 75])
def test_a_command_is_paid_for_whatever_it_came_to(world: World, code: int) -> None:
    add(world, 1, code=code)
    rollup = world.answer("fire")
    [tally] = rollup["tallies"]
    assert (tally["tokens"], tally["cost_usd"], tally["priced"]) == (10, 0.4, 1)
    assert "Spent:\n- run: $0.40, 10 tokens" in world.answer("notes")[0]["body"]


def test_a_function_is_paid_for_whether_it_returns_or_raises(world: World) -> None:
    with (world.folder / "work.py").open("a") as file:
        file.write(
            "def paid(task):\n"
            "    said = {'tokens': 3, 'cost_usd': 0.01}\n"
            "    if task.payload['fails']:\n"
            "        error = ValueError('no')\n"
            "        error.metrics = said\n"
            "        raise error\n"
            "    print('and it printed')\n"
            "    return {'metrics': said}\n"
        )
    world.settings("", modes='[modes.paid]\nfunction = "work:paid"')
    for fails in (False, True):
        world.queue.add("paid", {"fails": fails})
    world.orch("fire")
    assert [(one.outcome, one.tokens) for id in (1, 2) for one in world.queue.attempts(id)] == [
        ("done", 3),
        ("failed", 3),
    ]


def test_a_price_counts_though_the_result_cannot_be_stored(world: World) -> None:
    with (world.folder / "work.py").open("a") as file:
        file.write("def odd(task):\n    return {'metrics': {'cost_usd': 6}, 'at': object()}\n")
    world.settings("", modes='[modes.odd]\nfunction = "work:odd"', limits="daily_cost_usd = 10")
    for _ in range(4):
        world.queue.add("odd")
    world.orch("fire", "--max-pool", "1")
    assert sorted(world.states().values()) == ["failed", "failed", "incoming", "incoming"]


def test_only_attempts_that_ended_are_said_to_have_kept_silent(world: World) -> None:
    add(world, 1, code=75)
    world.queue.add("ok")
    world.orch("fire")
    body = world.answer("notes")[0]["body"]
    assert "- run: $0.40, 10 tokens\n" in body
    assert "- ok: $0.00, 0 tokens; 1 attempt did not say" in body


# What is too much


@pytest.mark.parametrize(
    ("limits", "today", "fire", "cap"),
    [
        (Limits(), Bill(10**9, 1e9), Bill(10**9, 1e9), None),
        (Limits(daily_cost_usd=1), Bill(cost_usd=0.99), None, None),
        (Limits(daily_cost_usd=1), Bill(cost_usd=sum([0.1] * 10)), None, "daily_cost_usd"),
        (Limits(daily_tokens=10), Bill(tokens=10), None, "daily_tokens"),
        (Limits(daily_tokens=0), Bill(), None, "daily_tokens"),
        (Limits(fire_cost_usd=1), Bill(cost_usd=50), Bill(cost_usd=0.5), None),
        (Limits(fire_cost_usd=1), Bill(), Bill(cost_usd=1.5), "fire_cost_usd"),
        (Limits(fire_tokens=5), Bill(), Bill(tokens=5), "fire_tokens"),
        (Limits(daily_cost_usd=1), Bill(without_cost=3), None, None),
        (Limits(daily_cost_usd=1, unknown_cost="stop"), Bill(without_cost=1), None, "unknown_cost"),
        (Limits(daily_tokens=1, unknown_cost="stop"), Bill(without_cost=1), None, None),
        (Limits(unknown_cost="stop"), Bill(without_cost=1), Bill(without_cost=1), None),
    ],
)
def test_a_budget_is_spent_when_it_is_reached(limits: Limits, today: Bill, fire: Bill | None, cap: str | None) -> None:
    found = exhausted(limits, today, fire)
    assert (found and found[0]) == cap


@pytest.mark.parametrize(
    "cap",
    [
        "daily_cost_usd = 1",
        "fire_tokens = 25",
        *(pytest.param(cap, marks=pytest.mark.full) for cap in ("fire_cost_usd = 1", "daily_tokens = 25")),
    ],
)
def test_a_budget_met_in_mid_fire_ends_new_claims_and_the_note_names_it(world: World, cap: str) -> None:
    world.settings("", limits=cap)
    add(world, 8)
    rollup = world.answer("fire", "--max-pool", "1")
    assert sorted(world.states().values()) == ["done"] * 3 + ["incoming"] * 5
    name = cap.split()[0]
    assert [name, "ended 1 worker; 5 tasks left for a later fire"] in rollup["cuts"]
    assert f"{name}: ended 1 worker" in world.answer("notes")[0]["body"]
    assert world.answer("fires")[0]["ending"] == "passed"
    if name.startswith("daily"):
        world.orch("fire", code=5)
        assert f"the budget {name} is used up" in world.err
        assert "resets at" in world.err
        assert len(world.answer("fires")) == 1
    else:
        world.orch("fire", "--max-pool", "1")
        assert sorted(world.states().values()).count("done") == 6


def test_no_worker_claims_after_the_budget_is_spent_however_many_there_are(world: World) -> None:
    world.settings("", limits="fire_cost_usd = 2")
    add(world, 60, cost=0.1)
    world.orch("fire", "--max-pool", "8", "--task-cap", "60")
    _, cost = world.queue.spending.of_fire(1)
    assert 2 - 1e-9 <= cost < 2.8, "what was under way when it was met is all that comes on top"
    events = sorted((event for id in world.states() for event in world.queue.events(id)), key=lambda event: event.id)
    done = [event.id for event in events if event.new_state == "done"]
    claimed = [event.id for event in events if event.new_state == "processing"]
    assert max(claimed) < done[19], "nobody claimed after the twentieth was done"
    assert len(claimed) == len(done)


@pytest.mark.full
def test_attempts_that_do_not_say_what_they_cost_are_ignored_or_end_new_claims(world: World) -> None:
    for unknown, done in (("ignore", 4), ("stop", 1)):
        world.settings("", limits=f'fire_cost_usd = 5\nunknown_cost = "{unknown}"')
        for _ in range(4):
            world.queue.add("ok")
        world.orch("fire", "--max-pool", "1")
        states = list(world.states().values())
        assert states.count("done") == (4 if unknown == "ignore" else 4 + done)
    assert "unknown_cost: ended 1 worker; 3 tasks left" in world.answer("notes")[0]["body"]


@pytest.mark.full
def test_the_account_tells_days_modes_and_fires_beside_the_caps(world: World) -> None:
    world.settings("", limits="daily_cost_usd = 2.5")
    add(world, 2)
    world.orch("fire")
    told = world.orch("budget")
    assert "$0.80 of $2.50 today" in told
    account = world.answer("budget")
    [[day, [mode]]] = account["days"]
    assert (mode["mode"], mode["priced"], mode["tokens"]) == ("run", 2, 20)
    assert [(one["fire"], one["tokens"]) for one in account["fires"]] == [(1, 20)]
    assert account["day"] == day
    assert "spent today: $0.80 of $2.50" in world.orch("status")


def test_the_account_keeps_days_apart_through_a_night_in_which_the_clock_is_set(queue: Queue) -> None:
    zone = "Europe/Berlin"
    for moment, cost in (
        ("2026-10-23T22:00:00Z", 1),
        ("2026-10-24T21:59:59Z", 2),
        ("2026-10-24T22:00:00Z", 4),
        ("2026-10-25T22:59:59Z", 8),
        ("2026-10-25T23:00:00Z", 16),
    ):
        with freeze_time(moment):
            queue.add("m")
            [task] = queue.claim("m")
            queue.finish(task, json.dumps({"metrics": {"cost_usd": cost}}))
    with freeze_time("2026-10-26T10:00:00Z"):
        account = budget.account(queue, Limits(), zone, 7)
    assert [(day, modes[0].cost_usd) for day, modes in account.days] == [
        ("2026-10-26", 16),
        ("2026-10-25", 12),
        ("2026-10-24", 3),
    ]


@pytest.mark.parametrize(
    ("amount", "told"), [(0, "$0.00"), (12.5, "$12.50"), (0.03, "$0.03"), (0.0123, "$0.012"), (1234.5, "$1,234.50")]
)
def test_money_is_told_in_two_figures_at_least(amount: float, told: str) -> None:
    assert budget.dollars(amount) == told


# Midnight


def zones() -> Iterator[tuple[str, datetime.datetime]]:
    """Every zone that this machine knows, each at another time, so that the nights differ."""
    begin = clock.moment("2026-01-01T09:00:00Z")
    for number, name in enumerate(sorted(zoneinfo.available_timezones() - {"localtime"})):
        yield name, clock.after(begin, number * 5 * 86_400)


def test_the_days_caps_end_at_midnight_in_every_zone(queue: Queue) -> None:
    def fire(project: Project) -> None:
        opened = open_fire(queue, project)
        queue.ledger.close_fire(opened.id, ending="passed", rollup="{}")

    def refused(project: Project, cap: str) -> None:
        with pytest.raises(Refused) as error:
            open_fire(queue, project)
        assert error.value.cap == cap

    def spend() -> None:
        queue.add("m")
        [task] = queue.claim("m")
        queue.finish(task, '{"metrics": {"cost_usd": 1}}')

    with freeze_time("2026-01-01") as frozen:
        for name, moment in zones():
            project = Project("x.db", ".", "x", {}, zone=name, limits=Limits(daily_fires=1, daily_cost_usd=1))
            midnight = clock.next_midnight(moment, clock.zone(name))
            frozen.move_to(midnight - datetime.timedelta(seconds=1))
            fire(project)
            refused(project, "daily_fires")
            frozen.move_to(midnight)
            spend()
            refused(project, "daily_cost_usd")
            frozen.move_to(clock.next_midnight(midnight, clock.zone(name)) - datetime.timedelta(seconds=1))
            refused(project, "daily_cost_usd")
            frozen.tick(1)
            fire(project)
            refused(project, "daily_fires")
