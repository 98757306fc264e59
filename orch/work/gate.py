"""The quality gate: an independent agent judges an answer before its task is done.

It is a DELEGATE of its own, worked on by the same seat while the task that it is about stays at work with its clock
stopped. The answer is kept until there is a verdict, so that a crash costs the judging and not the work. An error in
here is no approval, and a verdict is never judged in its turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from orch.handoff import orders, read_delegates, words, writing
from orch.modes import Mode
from orch.outcomes import Cut, Done, Failed, Later, Outcome
from orch.records import Task
from orch.work import agent

if TYPE_CHECKING:
    from orch.queue import Queue

RELATION = "gate"
# Seconds for which a judge that says "not now" for everybody is left alone, where it does not say for how long.
_PATIENCE = 60.0

# Does a task as an agent of a mode: the outcome.
Work = Callable[[Task, Mode], Outcome]


def judged(
    queue: Queue, task: Task, answered: Done, judge: Mode, work: Work, *, least: tuple[float, float], until: str | None
) -> Outcome:
    """What a success comes to at the gate. `least` are the confidence and the quality that it has to exceed.

    `until` is the stamp by which the judge's own worker has to end.
    """
    result = json.loads(answered.result or "{}")
    below = _below(result, least)
    if below:
        return Failed(f"rejected: {below}", answered.evidence, result=answered.result, again=False)
    gate = _open(queue, task, answered, judge, until)
    verdict = work(gate, judge)
    _settle(queue, gate, verdict)
    evidence = answered.evidence
    match verdict:
        case Done(also=None):
            return Done(answered.result, evidence, also=lambda queue: queue.asks.drop_answer(task.id))
        case Done():
            return _rejected(task, answered, "the judge wants somebody else to decide")
        case Failed(again=True) | Failed(again=None):
            return Failed(f"the gate gave no verdict: {verdict.error}", evidence, again=True)
        case Failed():
            return _rejected(task, answered, verdict.error)
        case Later(why, delay):
            if verdict.everybody:
                queue.put_off(judge.name, f"not now: {why}", _PATIENCE if delay is None else delay)
            return Later(f"the gate: {why}", delay, evidence)
        case Cut(why, error):
            return Cut(why, error, evidence)


def kept(queue: Queue, task: Task) -> Done | None:
    """An answer of an earlier attempt that still waits for its verdict."""
    found = queue.asks.kept_answer(task.id)
    return None if found is None else Done(found)


def waits(queue: Queue, task: Task, outcome: Outcome) -> bool:
    """Whether an answer waits for its verdict even after this outcome, so that where it was made is still needed."""
    has_ended = isinstance(outcome, Done) or (isinstance(outcome, Failed) and outcome.again is False)
    return not has_ended and queue.asks.kept_answer(task.id) is not None


def _below(result: dict[str, object], least: tuple[float, float]) -> str:
    """What the agent itself thinks too little of; what it does not say is not held against it."""
    for name, bound in zip(("confidence", "quality"), least, strict=True):
        said = result.get(name)
        if isinstance(said, int | float) and said <= bound:
            return f"its own {name} is {said:g}, and more than {bound:g} is asked for"
    return ""


def _open(queue: Queue, task: Task, answered: Done, judge: Mode, until: str | None) -> Task:
    """Add the judge's task and claim it, and keep the answer, in one transaction."""
    original = agent.delegate_of(task, words.all_roles([task.mode]))
    id = writing.unused_id(f"{original.task_id}-qe-gate", queue.has_key)
    text = writing.as_yaml(
        writing.gate_of(original, task_id=id, judge=judge.name, answer=json.loads(answered.result or "{}"))
    )
    [order] = read_delegates(text.encode(), roles=words.all_roles([judge.name]), largest=agent.LARGEST_ORDER)
    with queue.transaction():
        [added] = queue.add_many([orders.task_of(order)])
        queue.asks.follow(added.id, task.id, RELATION)
        queue.asks.keep_answer(task.id, answered.result or "{}")
        return queue.claim_for_gate(task, added.id, timeout=judge.timeout, until=until)


def _settle(queue: Queue, gate: Task, verdict: Outcome) -> None:
    """End the judge's own task: it is never tried again, as its answer would be."""
    match verdict:
        case Done(result, evidence):
            queue.finish(gate, result, evidence)
        case Failed(error, evidence):
            queue.fail(gate, error, evidence=evidence, result=verdict.result)
        case Later(why, _, evidence) | Cut(why, _, evidence):
            queue.fail(gate, f"no verdict: {why}", evidence=evidence)


def _rejected(task: Task, answered: Done, why: str) -> Failed:
    return Failed(
        f"rejected by the quality gate: {why}",
        answered.evidence,
        result=answered.result,
        also=lambda queue: queue.asks.drop_answer(task.id),
        again=False,
    )
