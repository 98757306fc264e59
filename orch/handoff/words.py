"""The vocabulary: roles, ids, states of an answer, and what people write for numbers, times and money."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Collection, Iterable

ROLES = (
    "orchestrator",
    "engineer",
    "senior-engineer",
    "lead-engineer",
    "principal-engineer",
    "quality-engineer",
    "security-engineer",
    "model-engineer",
)

STATUSES = ("success", "failure", "partial", "blocked", "escalate")
_STATUS_WORDS = {
    "success": ("complete", "completed", "done", "pass", "passed", "ok", "approved"),
    "failure": ("failed", "error", "rejected", "timeout"),
    "partial": ("incomplete",),
    "blocked": ("needs input", "input required", "waiting"),
    "escalate": ("escalated", "needs human"),
}
_STATUS = {word: status for status, words in _STATUS_WORDS.items() for word in (status, *words)}

# An id becomes the name of a file and of others beside it.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}[A-Za-z0-9]|[A-Za-z0-9]")
_PLAIN_ID = re.compile(r"[a-z0-9][a-z0-9-]{1,48}[a-z0-9]")
_TAKEN_ENDINGS = (".meta", ".yaml", ".yml", ".json")
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\{\{.*\}\}|\[\s*(?:your|insert)\b.*\]|\.\.\.|…|TBD|TODO", re.IGNORECASE | re.DOTALL
)

_SAYS_DELEGATE = re.compile(r"(?im)^[ \t{,\"']*(?:handoff_type|type)[\"']?[ \t]*:[ \t]*[\"']?delegate\b")
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[+-]?\.\d+")
_COUNT = re.compile(r"~?\s*([\d.,]+)\s*([kKmM]?)(?:\s*(?:tokens?|tok))?\.?")
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_SPAN = re.compile(r"(?:(\d+(?:\.\d+)?)\s*h(?:ours?|rs?)?)?\s*(?:(\d+(?:\.\d+)?)\s*m(?:in(?:utes?|s)?)?)?\s*"
                   r"(?:(\d+(?:\.\d+)?)\s*s(?:ec(?:onds?|s)?)?)?")  # fmt: skip
_ISO_SPAN = re.compile(r"PT(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?")
_LONGEST_NAME = 100
# So much is looked at where a number or a moment is meant: the patterns for those are not made for more.
_LONGEST_NUMBER = 100
_PRIORITIES = {"lowest": 1, "low": 3, "medium": 5, "normal": 5, "high": 8, "urgent": 10, "critical": 10, "highest": 10}
_EFFORTS = ("low", "medium", "high", "max")


def all_roles(agents: Iterable[str]) -> list[str]:
    """The protocol's roles and those of a project's own agents."""
    return sorted({*ROLES, *agents})


def role_of(text: str, roles: Collection[str]) -> str | None:
    """The role that a title, a snake-case or a kebab-case name stands for; None when there is no such role."""
    if len(text) > _LONGEST_NAME:
        return None
    bare = re.sub(r"\s*\([^()]*\)", "", text).strip().lower()
    name = re.sub(r"[\s_]+", "-", bare)
    return name if name in roles else None


def near_roles(text: str, roles: Collection[str]) -> list[str]:
    """The roles that look like it."""
    return difflib.get_close_matches(text[:_LONGEST_NAME].strip().lower(), sorted(roles), n=2)


def is_safe_id(text: str) -> bool:
    """Whether an id can be the name of a file of ours, and of nothing else."""
    return (
        _SAFE_ID.fullmatch(text) is not None
        and ".." not in text
        and "-handback" not in text.lower()
        and not text.lower().endswith(_TAKEN_ENDINGS)
    )


def is_plain_id(text: str) -> bool:
    """Whether an id is in the protocol's own narrower form."""
    return _PLAIN_ID.fullmatch(text) is not None


def same_id(one: str, other: str) -> bool:
    """Whether an agent means that id: letter case, quotes and a file's ending do not matter."""
    return _bare_id(one) == _bare_id(other)


def _bare_id(text: str) -> str:
    return text.strip().strip("'\"`").strip().lower().removesuffix(".yaml").removesuffix(".yml")


def says_delegate(text: str) -> bool:
    """Whether a text says of itself that it is a DELEGATE, though it may not be readable."""
    return _SAYS_DELEGATE.search(text) is not None


def is_placeholder(text: str) -> bool:
    """Whether a form was left unfilled here."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None


def status_of(text: str) -> str | None:
    """One of the five states of an answer; None for any other word, which is never a success."""
    # Without signs, brackets and marks around it; but a question is no answer.
    bare = re.sub(r"[^\w\s/|?%<>=-]", "", text[:_LONGEST_NAME]).strip().lower()
    return _STATUS.get(re.sub(r"[\s_-]+", " ", bare))


def effort_of(text: str) -> tuple[str | None, bool]:
    """The effort, and whether the word had to be translated; None for what is none."""
    word = text.strip().lower()
    if word in _EFFORTS:
        return word, word != text
    return {"epic": "max", "xhigh": "max", "extra-high": "max", "maximum": "max", "minimal": "low"}.get(word), True


def priority_of(text: str) -> tuple[int | None, bool]:
    """A priority of 1 to 10, and whether a word had to be translated; None for what is none."""
    word = text.strip().lower()
    if word in _PRIORITIES:
        return _PRIORITIES[word], True
    return (int(word), False) if re.fullmatch(r"10|[1-9]", word) else (None, False)


def model_of(text: str) -> str:
    """A model's name with the dot in its version that some write as a dash."""
    return re.sub(r"(?<=[a-z])-(\d{1,2})-(\d{1,2})(?=$|-\d{8}$)", r"-\1.\2", text.strip())


def score_of(text: str) -> tuple[float | None, str | None]:
    """A share of 0 to 1 from "0.9", "92%", "9/10" or "92", and the code of a remark; None for what is none."""
    bare = _short(text)
    percent = bare.endswith("%")
    top, slash, bottom = bare.removesuffix("%").partition("/")
    value, whole = number_of(top), number_of(bottom) if slash else None
    if value is None or (slash and not whole):
        return None, "not_a_number"
    if whole:
        value, scaled = value / whole, True
    elif percent or 2 <= value <= 100:
        value, scaled = value / 100, True
    else:
        scaled = False
    if not 0 <= value <= 1:
        return None, "out_of_range"
    return round(value, 6), "score_scaled" if scaled else None


def number_of(text: str) -> float | None:
    """A plain decimal number, with or without commas between its thousands; None for anything else."""
    bare = _short(text)
    return float(bare.replace(",", "")) if _NUMBER.fullmatch(bare) else None


def _short(text: str) -> str:
    """A text without blanks around it; nothing where it is too long for any number."""
    bare = text.strip()
    return bare if len(bare) <= _LONGEST_NUMBER else ""


def count_of(text: str) -> tuple[int | None, str | None]:
    """A count from "1200", "1,200" or "12.4k", and the code of a remark; None for what is none."""
    bare = _short(text)
    if bare.startswith("-") and number_of(bare) is not None:
        return None, "out_of_range"
    match = _COUNT.fullmatch(bare)
    value = number_of(match[1]) if match else None
    if match is None or value is None:
        return None, "not_a_number"
    factor = {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()]
    count = round(value * factor)
    if count >= 2**53:
        return None, "out_of_range"
    return count, "mapped_value" if match[2] or not match[1].isdecimal() else None


def money_of(text: str) -> tuple[float | None, str | None]:
    """US dollars from "0.31", "$0.31" or "0.31 USD", and the code of a remark; None for what is none."""
    said = _short(text)
    bare = re.sub(r"^\$|(?i:\s*usd$|^usd\s*)", "", said)
    value = number_of(bare)
    if value is None:
        return None, "not_a_number"
    if not 0 <= value < 1e9:
        return None, "out_of_range"
    return value, "mapped_value" if bare != said else None


def seconds_of(text: str) -> tuple[float | None, str | None]:
    """Seconds from "200", "3m 20s", "0:03:20" or "PT3M20S", and the code of a remark; None for what is none."""
    bare = _short(text)
    value = number_of(bare)
    if value is not None:
        return (value, None) if 0 <= value < 1e9 else (None, "out_of_range")
    for pattern in (_CLOCK, _SPAN, _ISO_SPAN):
        match = pattern.fullmatch(bare)
        if match and any(match.groups()):
            hours, minutes, seconds = (float(part or 0) for part in match.groups())
            total = hours * 3600 + minutes * 60 + seconds
            return (total, "mapped_value") if total < 1e9 else (None, "out_of_range")
    return None, "not_a_number"


def moment_of(text: str) -> str | None:
    """A moment in UTC as ``YYYY-MM-DDTHH:MM:SSZ``; without a zone it is taken as UTC. None for what is none."""
    try:
        found = datetime.datetime.fromisoformat(re.sub(r"\s+(?=[+-]\d|Z$)", "", _short(text)))
        if found.tzinfo is None:
            found = found.replace(tzinfo=datetime.UTC)
        return found.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return None
