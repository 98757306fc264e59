"""What agents say of the skills that they used: kept, and where it has come together, made into one task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orch import jsontext
from orch.errors import UsageError
from orch.handoff import orders, read_delegates, routing, words, writing

if TYPE_CHECKING:
    from orch.queue import Queue

_SKILL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,60}[a-z0-9])?")
# So many of them are shown, and so much of each: what has come together meanwhile must fit into one order.
_MOST = 50
_SHOWN = 2000


def record(queue: Queue, task: int, said: Sequence[dict[str, Any]], threshold: int) -> None:
    """Keep what an agent said of skills, in the transaction that marks its task; one improvement a skill at a time.

    As many as `threshold` on one skill make one.
    """
    skills = []
    for item in said:
        name = item.get("skill_name") or item.get("skill")
        skill = re.sub(r"[\s_]+", "-", name.strip().lower()) if isinstance(name, str) else ""
        if not _SKILL.fullmatch(skill):
            # It would become part of an id.
            continue
        score = item.get("effectiveness_score")
        try:
            body = jsontext.dump(item)
        except UsageError:
            continue
        queue.asks.add_feedback(task, skill, words.score_of(score)[0] if isinstance(score, str) else None, body)
        skills.append(skill)
    for skill in sorted(set(skills)):
        _improve(queue, task, skill, threshold)


def _improve(queue: Queue, task: int, skill: str, threshold: int) -> None:
    found = queue.asks.feedback(skill)
    if len(found) < threshold or queue.asks.is_improving(skill):
        return
    id = writing.unused_id(f"improve-skill-{skill}", queue.has_key)
    text = writing.as_yaml(
        {
            "handoff_type": "DELEGATE",
            "task_id": id,
            "agent": routing.DEFAULT_TARGET,
            "skill": skill,
            "scope": f"Improve the skill {skill} by what its users say of it.",
            "context": [body[:_SHOWN] for body in found[:_MOST]],
            "plan": ["Read what they say, and find what several of them mean", "Change the skill where it is to blame"],
            "success_criteria": ["Each remark is either answered by a change or refuted with a reason"],
        }
    )
    [order] = read_delegates(text.encode())
    [added] = queue.add_many([orders.task_of(order)])
    queue.asks.follow(added.id, task, "improvement")
    queue.asks.use_feedback(skill, added.id)
