"""Where an answer leads: to done or failed, to another role, or to a person. Nothing here is taken on an agent's word
that can be looked at."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from orch.handoff.handback import Handback

# So many times in a row a task is handed to another role before a person is asked.
ESCALATION_DEPTH = 3
DEFAULT_TARGET = "lead-engineer"

# What looks like a file: an ending with a letter in it ("v1.2" has none).
_FILE = re.compile(r"/?(?:[\w.-]+/)*[\w.-]*[\w-]\.(?=\d*[A-Za-z])[A-Za-z0-9]{1,8}")
# What looks like a path where nothing stands behind it ("and/or the tests"), and is no fraction.
_PATH = re.compile(r"(?=[\d/]*[^\d/])[\w.-]+(?:/[\w.-]+)+")
_USAGE_LIMIT = re.compile(
    r"(?i)\b(?:usage|rate|session|weekly|5-hour|quota)[ -]?limit|\bquota exceeded|\btoo many requests"
)
_RESET_STAMP = re.compile(r"limit reached\|(\d{10})\b")
_RESET_SPAN = re.compile(
    r"(?i)(?:try again|retry|reset(?:s|ting)?)\s+(?:in|after)\s+"
    r"(?:(\d{1,9})\s*d(?:ays?)?)?[\s,]*(?:(\d{1,9})\s*h(?:ours?|rs?)?)?[\s,]*(?:(\d{1,9})\s*m(?:in(?:ute)?s?)?)?"
    r"[\s,]*(?:(\d{1,9})\s*s(?:ec(?:ond)?s?)?)?"
)
_LOOKED_AT = 2_000
# Nobody is put off for longer, whatever a program says.
_LONGEST_WAIT = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Bound:
    """Why a task is not handed on any further."""

    why: str


def contradictions(handback: Handback, *, exit_code: int, folder: str) -> list[str]:
    """What speaks against a success that an agent reports: its exit code, its tests, and files that are not there."""
    found = list(handback.contradictions)
    if exit_code != 0:
        found.append(f"its program ended with exit code {exit_code}")
    if handback.output in (None, "", [], {}) and not handback.deliverables:
        found.append("it names neither an output nor a deliverable")
    return found + missing(handback, folder)


def missing(handback: Handback, folder: str) -> list[str]:
    """The deliverables that look like files and are not there."""
    found = []
    for deliverable in handback.deliverables:
        first, _, rest = deliverable.partition(" ")
        name = first.rstrip(":,;")
        is_path = _PATH.fullmatch(name) and (not rest or name != first)
        if (is_path or _FILE.fullmatch(name)) and not os.path.exists(os.path.join(folder, name)):
            found.append(f"{name} is not there")
    return found


def target_of(handback: Handback, chain: Sequence[str]) -> str | Bound:
    """The role that goes on with a task: never one that had it already, and not for ever.

    `chain` are the roles that have had it, as they are stored, this one last.
    """
    target = handback.escalate_to or DEFAULT_TARGET
    if len(chain) > ESCALATION_DEPTH:
        return Bound(f"it was handed on {len(chain) - 1} times already ({' to '.join(chain)})")
    if target in chain:
        return Bound(f"it was to go to {target}, which has had it already")
    return target


def usage_limit(text: str, now: float) -> tuple[str, float | None] | None:
    """Whether an agent's program says that its user has used up a limit: its words, and seconds until the reset.

    `now` is the time as seconds since 1970.
    """
    tail = text[-_LOOKED_AT:]
    match = _USAGE_LIMIT.search(tail)
    if match is None:
        return None
    line = tail[tail.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0].strip()[:200]
    stamp = _RESET_STAMP.search(tail)
    if stamp:
        return line, min(_LONGEST_WAIT, max(1.0, float(stamp[1]) - now))
    span = _RESET_SPAN.search(tail)
    if span and any(span.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in span.groups())
        return line, min(_LONGEST_WAIT, float(days * 86400 + hours * 3600 + minutes * 60 + seconds))
    return line, None
