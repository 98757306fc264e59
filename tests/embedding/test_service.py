"""The tests of the print shop, by what the plugin offers alone, under each runner."""

from __future__ import annotations

import re

import pytest

from orch import Limits, Queue, Retries
from orch.testing import Faults, Fire, assert_drained, assert_note, assert_states
from tests.embedding.service import WORK, take


@pytest.fixture(params=["inline", "threads", "pool"])
def orch_runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_order_is_printed_and_then_invoiced(orch_queue: Queue, orch_fire: Fire) -> None:
    order = take(orch_queue, "ada", pages=12)
    assert_note(orch_fire(WORK), "1 done")
    assert_note(orch_fire(WORK), "1 done")
    assert_drained(orch_queue)
    assert orch_queue.attempts(order)[0].result == '{"sheets":6}'


def test_an_order_without_paper_fails_and_its_invoice_waits(orch_queue: Queue, orch_fire: Fire) -> None:
    order = take(orch_queue, "ada", pages=900)
    fired = orch_fire(WORK)
    assert_states(orch_queue, {order: "failed", f"invoice-{order}": "incoming"})
    assert_note(fired, "1 failed", re.compile(r"900 pages are more than"))


def test_what_a_printer_that_breaks_down_had_is_printed_by_the_next_fire(
    orch_queue: Queue, orch_fire: Fire, orch_faults: Faults
) -> None:
    order = take(orch_queue, "ada", pages=12)
    orch_faults.dies(order)
    soon = Limits(retries=Retries(backoff_base_sec=0))
    fired = orch_fire(WORK, limits=soon)
    assert_states(orch_queue, {order: "retry-pending"})
    assert_note(fired, f"during task {order}")
    orch_fire(WORK, limits=soon)
    orch_fire(WORK, limits=soon)
    assert_drained(orch_queue)


def test_a_print_that_comes_too_late_is_printed_again(orch_queue: Queue, orch_fire: Fire, orch_faults: Faults) -> None:
    order = take(orch_queue, "ada", pages=12)
    orch_faults.late("print")
    soon = Limits(retries=Retries(backoff_base_sec=0))
    for _ in range(3):
        orch_fire(WORK, limits=soon)
    assert_drained(orch_queue)
    assert [attempt.outcome for attempt in orch_queue.attempts(order)] == ["crashed", "done"]


def test_a_regular_customer_is_invoiced_another_day(orch_queue: Queue, orch_fire: Fire) -> None:
    order = take(orch_queue, "library", pages=12)
    orch_fire(WORK)
    orch_fire(WORK)
    assert_states(orch_queue, {order: "done", f"invoice-{order}": "incoming"})
    assert_states(orch_queue, done=1, incoming=1)
