"""The days of the print shop: its clock, its command line, its watchdog and an agent, in one process."""

from __future__ import annotations

from dataclasses import replace

import orch
from orch import Queue
from orch.testing import Clock, CommandLine, Faults, Fire, Script, assert_drained, assert_note, assert_states
from tests.embedding.service import WORK, take

PROOFS = """\
handoff_type: DELEGATE
task_id: proofs
agent: engineer
scope: Read the proofs of the catalogue.
plan: [Read every page]
success_criteria: [Every mistake is named]
"""


def test_a_regular_customer_is_invoiced_thirty_days_later(
    orch_queue: Queue, orch_fire: Fire, orch_clock: Clock
) -> None:
    order = take(orch_queue, "library", pages=12)
    orch_fire(WORK)
    orch_fire(WORK)
    assert_states(orch_queue, {order: "done", f"invoice-{order}": "incoming"})
    orch_clock.advance("29d")
    orch_fire(WORK)
    assert_states(orch_queue, {f"invoice-{order}": "incoming"})
    orch_clock.advance("1d")
    orch_fire(WORK)
    assert_drained(orch_queue)


def test_the_shop_says_when_nobody_prints(orch_queue: Queue, orch_fire: Fire, orch_clock: Clock) -> None:
    orch_fire(WORK)
    for _ in range(9):
        orch_clock.advance("30m")
        assert orch.watch(orch_queue).state in ("lit", "late")
    orch_clock.advance("30m")
    assert orch.watch(orch_queue).state == "dark"


def test_a_person_looks_at_an_order_and_cancels_it(orch_queue: Queue, orch_cli: CommandLine) -> None:
    order = take(orch_queue, "ada", pages=12)
    assert orch_cli("show", str(order), "--json").data["task"]["payload_text"] == '{"customer":"ada","pages":12}'
    orch_cli("cancel", str(order))
    assert_states(orch_queue, {order: "failed"})


def test_the_note_is_kept_while_the_mail_is_down(orch_queue: Queue, orch_fire: Fire, orch_faults: Faults) -> None:
    take(orch_queue, "ada", pages=12)
    project = replace(orch.project_of(orch_queue), sinks=["command:mail shop"])
    orch_faults.sink_fails("command:mail shop", "no route to host")
    orch_fire(WORK, project=project)
    assert orch.status(orch_queue, project).undelivered == 1


def test_an_agent_reads_the_proofs(orch_queue: Queue, orch_fire: Fire, orch_agent: Script) -> None:
    reader = orch_agent("engineer", {"output": "two mistakes on page 7", "metrics": {"tokens": 1200}})
    orch.delegate(orch_queue, PROOFS)
    assert_note(orch_fire(), "1 done", "1,200 tokens")
    assert "Read every page" in reader.orders[0]
