"""The tests of the print shop, by what the plugin offers alone, under each runner."""

from __future__ import annotations

import re

import pytest

from orch import Limits, Queue, Retries
from orch.testing import Faults, Fire, assert_drained, assert_note, assert_states
from tests.embedding.service import WORK, take

SOON = Limits(retries=Retries(backoff_base_sec=0))


@pytest.fixture(params=["inline", "threads", "pool"])
def orch_runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_order_is_printed_and_then_invoiced(orch_queue: Queue, orch_fire: Fire) -> None:
    order = take(orch_queue, "ada", pages=12)
    assert_note(orch_fire(WORK), "print: 1 done")
    assert_note(orch_fire(WORK), "invoice: 1 done")
    assert_drained(orch_queue)
    assert orch_queue.result(order) == {"sheets": 6}


def test_an_order_without_paper_fails_and_its_invoice_waits(orch_queue: Queue, orch_fire: Fire) -> None:
    order = take(orch_queue, "ada", pages=900)
    fired = orch_fire(WORK)
    assert_states(orch_queue, {order: "failed", f"invoice-{order}": "incoming"})
    assert_note(fired, "1 failed", re.compile(r"900 pages are more than"))


def test_what_is_urgent_is_printed_first(orch_queue: Queue, orch_fire: Fire) -> None:
    take(orch_queue, "ada", pages=12)
    urgent = take(orch_queue, "bob", pages=1, urgent=True)
    orch_fire(WORK, limits=Limits(max_pool=1, task_cap=1))
    assert_states(orch_queue, {urgent: "done"})
    assert_states(orch_queue, done=1, incoming=3)


def test_an_order_goes_on_after_the_printer_broke_down(orch_queue: Queue, orch_fire: Fire, orch_faults: Faults) -> None:
    order = take(orch_queue, "ada", pages=12)
    orch_faults.dies(order)
    assert_note(orch_fire(WORK, limits=SOON), f"during task {order}")
    assert_states(orch_queue, {order: "retry-pending"})
    orch_fire(WORK, limits=SOON)
    assert_states(orch_queue, {order: "done"})


def test_a_print_that_comes_too_late_is_printed_again(orch_queue: Queue, orch_fire: Fire, orch_faults: Faults) -> None:
    order = take(orch_queue, "ada", pages=12)
    orch_faults.late("print")
    for _ in range(3):
        orch_fire(WORK, limits=SOON)
    assert_drained(orch_queue)
    assert [attempt.outcome for attempt in orch_queue.attempts(order)] == ["crashed", "done"]
