"""Agents at work in folders of their own, and orders that cost more than they allow."""

from __future__ import annotations

from tests.conftest import World
from tests.scenarios.test_agents import agents, delegate
from tests.scenarios.test_fire import notes

# What an order allows


def test_an_order_that_cost_more_than_it_allows_is_done_and_told_of(world: World) -> None:
    agents(world)
    for n, metrics in enumerate(("{cost: 1.5, tokens: 900}", "{cost: 0.5, tokens: 1200}", "{cost: 1.0}"), 1):
        allowed = "budget: 1.00\ntoken_quota: {total: 1000}\n"
        delegate(world, f"say(answer('success', metrics={metrics!r}))", f"t{n}", extra=allowed)
    world.orch("fire")
    assert world.states() == {1: "done", 2: "done", 3: "done"}
    note, shown = notes(world)[0], world.orch("show", "t1")
    assert "- task 1 (t1) is over its order: $1.50 of a budget of $1.00\n" in note
    assert "- task 2 (t2) is over its order: 1,200 tokens of a quota of 1,000\n" in note
    assert "task 3" not in note
    assert "is over its order: $1.50 of a budget of $1.00" in shown


def test_all_attempts_of_an_order_count_together(world: World) -> None:
    agents(world, retry="retry_max_attempts = 2")
    envelope = "{'type': 'result', 'result': 'It is all done.', 'total_cost_usd': 0.4}"
    delegate(world, f"import json; say(json.dumps({envelope})); sys.exit(1)", extra="budget: 0.50\n")
    world.orch("fire")
    assert [attempt.cost_usd for attempt in world.queue.attempts(1)] == [0.4, 0.4]
    assert "task 1 (t1) is over its order: $0.80 of a budget of $0.50" in notes(world)[0]
