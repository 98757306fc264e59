"""Writing what agents read: DELEGATEs as YAML, the order to an agent, and the request for a readable answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orch.handoff import fields
from orch.handoff.delegate import Delegate
from orch.handoff.remarks import HandoffError
from orch.handoff.words import STATUSES

# An id longer than this is shortened where something is put behind it: a file's name has 255 bytes at the most.
_LONGEST_ID = 127
# So much of an answer is shown to its judge.
_LONGEST_ANSWER = 200_000
# So much of an answer that could not be read is shown to its agent again.
_SHOWN = 20_000

_FORM = """```yaml
handoff_type: HANDBACK
task_id: {task_id}
status: <{statuses}>
output: <what came of it, in your own words or as fields>
deliverables: [<each file that you made or changed>]
confidence: <0 to 1>
metrics: {{quality: <0 to 1>}}
```"""


def as_yaml(values: Mapping[str, Any]) -> str:
    """A mapping as YAML, in its order and without what is None or empty."""
    return fields.dump({name: value for name, value in values.items() if value not in (None, [], {}, "")})


def order(delegate: Delegate, place: str = "") -> str:
    """What an agent is told on its standard input; `place` is a sentence on where it works."""
    return (
        f"You are the {delegate.agent} in charge of the task below. Do it completely, and check it against its success"
        f" criteria before you answer.{place and ' '}{place}\n\n"
        f"{delegate.text}\n"
        "When you are done, end your answer with one block of this form, every <...> filled in, and write nothing after"
        " it. Say success only when every criterion is met; blocked when a person has to decide something; escalate,"
        " with output.escalate_to and output.escalation_reason, when another role has to do it.\n\n"
        f"{_FORM.format(task_id=delegate.task_id, statuses=', '.join(STATUSES))}\n"
    )


def request(delegate: Delegate, answer: str, problem: HandoffError) -> str:
    """What an agent is told whose answer could not be read."""
    said = answer.strip()[-_SHOWN:]
    return (
        f"Your answer to the task {delegate.task_id} could not be read: {problem}.\n\n"
        "Do not do the work again. Write only the closing block, of this form, every <...> filled in with what is"
        f" true:\n\n{_FORM.format(task_id=delegate.task_id, statuses=', '.join(STATUSES))}\n\n"
        f"This is what you had answered:\n\n{said or '(nothing)'}\n"
    )


def follow_on(delegate: Delegate, *, task_id: str, agent: str, context: list[str], chain: list[str]) -> dict[str, Any]:
    """The fields of a DELEGATE that goes on where another one ended."""
    return {
        "handoff_type": "DELEGATE",
        "task_id": task_id,
        "agent": agent,
        "parent_task_id": delegate.task_id,
        "skill": delegate.skill,
        "model": delegate.model if agent == delegate.agent else None,
        "effort": delegate.effort,
        "priority": delegate.priority,
        "scope": delegate.scope,
        "context": [*context, *delegate.context],
        "plan": delegate.plan,
        "success_criteria": delegate.success_criteria,
        "escalation_chain": chain,
        # What means nothing here may be all that tells the agent what not to do.
        **delegate.extra,
    }


def gate_of(delegate: Delegate, *, task_id: str, judge: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the DELEGATE that has an answer judged."""
    return {
        "handoff_type": "DELEGATE",
        "task_id": task_id,
        "agent": judge,
        "parent_task_id": delegate.task_id,
        "priority": delegate.priority,
        "scope": f"Judge whether the answer to {delegate.task_id} meets its success criteria. Change nothing. Your own"
        " status is the verdict: success when every criterion is met, failure, with the reasons in 'error', when not.",
        "context": [
            f"The task was: {delegate.scope}",
            f"The answer, as YAML:\n{fields.dump(dict(answer))[:_LONGEST_ANSWER]}",
        ],
        "plan": ["Look at what was made, not only at what is said of it", "Hold it against each criterion"],
        "success_criteria": delegate.success_criteria,
    }


def unused_id(wanted: str, is_taken: Callable[[str], bool]) -> str:
    """An id that nobody has: as wanted, else with -2, -3 … behind it; shortened only where it would be too long."""
    number, suffix = 1, ""
    while is_taken(id := wanted[: _LONGEST_ID - len(suffix)].rstrip("-._") + suffix):
        number += 1
        suffix = f"-{number}"
    return id
