"""Reading a DELEGATE: what one agent, or a person, asks of another."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orch.handoff import fields as yamltext, words
from orch.handoff.fields import Fields, Piece
from orch.handoff.remarks import HandoffError, Remark

T = TypeVar("T")

# A larger one is no order for an agent.
LARGEST = 256 * 1024

_ALIASES = {
    "role": "agent", "to_agent": "agent", "task": "plan", "steps": "plan", "tasks": "plan",
    "acceptance_criteria": "success_criteria", "done_when": "success_criteria", "criteria": "success_criteria",
    "depends_on": "dependencies", "blocked_by": "dependencies", "timestamp": "created_at", "created": "created_at",
    "type": "handoff_type", "budget_usd": "budget", "ancestry": "escalation_chain", "parent": "parent_task_id",
}  # fmt: skip
_KNOWN = {
    "handoff_type", "task_id", "agent", "spec_version", "skill", "model", "effort", "scope", "context", "plan",
    "success_criteria", "created_at", "priority", "deadline", "dependencies", "parent_task_id", "budget",
    "token_quota", "escalation_chain", "from_agent", "depth",
}  # fmt: skip
_CONTROLS = {
    "handoff_type", "type", "task_id", "agent", "role", "to_agent", "model", "effort", "priority", "deadline",
    "dependencies", "depends_on", "blocked_by", "parent_task_id", "parent", "budget", "budget_usd", "token_quota",
    "escalation_chain", "ancestry", "depth", "spec_version", "skill",
}  # fmt: skip
_LISTS = {
    "plan",
    "task",
    "steps",
    "tasks",
    "success_criteria",
    "acceptance_criteria",
    "done_when",
    "criteria",
    "context",
}
_CORE = ("spec_version", "skill", "context")
_NUMBERED = re.compile(r"\d{1,2}[.)]\s+")
_MARK = re.compile(r"(?:^|(?<=\s))(\d{1,2})[.)]\s+")


@dataclass(slots=True)
class Delegate:
    """One order: who does what, by which steps, and what makes it a success.

    Times are stamps in UTC, ``priority`` is 1 to 10, ``budget_usd`` and ``token_limit`` are checked after the work.
    ``extra`` are the fields that mean nothing here, ``text`` is the document as it was written.
    """

    task_id: str
    agent: str
    scope: str
    plan: list[str]
    success_criteria: list[str]
    context: list[str] = field(default_factory=list)
    spec_version: str | None = None
    skill: str | None = None
    model: str | None = None
    effort: str | None = None
    priority: int | None = None
    created_at: str | None = None
    deadline: str | None = None
    dependencies: list[str] = field(default_factory=list)
    parent_task_id: str | None = None
    budget_usd: float | None = None
    token_limit: int | None = None
    escalation_chain: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    text: str = ""


def read_delegates(
    data: bytes, *, roles: Collection[str] = words.ROLES, strict: bool = False, largest: int = LARGEST
) -> list[Delegate]:
    """The DELEGATEs of a file, one for each of its documents that is one; all of them, or `HandoffError`.

    With `strict` whatever would be put right is an error instead, and the protocol's core fields have to be there.
    `largest` is the most that it may have, in bytes.
    """
    try:
        return _read(data, roles, strict, largest)
    except HandoffError as error:
        # It may be in the middle of being written.
        error.retry = not data or not data.endswith(b"\n")
        raise


def _read(data: bytes, roles: Collection[str], strict: bool, largest: int) -> list[Delegate]:
    if len(data) > largest:
        raise HandoffError(
            "too_large", f"it has {len(data):,} bytes, and a DELEGATE has {largest:,} at the most",
            fix="put the material into a file and name that in 'context'",
        )  # fmt: skip
    text, remarks = _decoded(data)
    pieces = yamltext.documents(text)
    if not pieces:
        raise HandoffError("empty", "there is nothing in it", fix="write a DELEGATE into it")
    first = yamltext.read(pieces[0], controls=_CONTROLS, lists=_LISTS, strict=strict)
    first.remarks[:0] = remarks
    found = [_delegate(first, pieces[0], roles, strict)]
    for piece in pieces[1:]:
        further = _further(piece, strict)
        if further is not None:
            found.append(_delegate(further, piece, roles, strict))
        elif strict:
            raise HandoffError("not_mapping", "a second document follows", fix="remove it", line=piece.line)
        else:
            found[0].remarks.append(Remark("ignored_document", "what follows is no DELEGATE", line=piece.line))
    for one in found:
        if strict and one.remarks:
            raise HandoffError(one.remarks[0].code, one.remarks[0].text, field=one.remarks[0].field,
                               line=one.remarks[0].line, fix="write it as the protocol says")  # fmt: skip
    return found


def _decoded(data: bytes) -> tuple[str, list[Remark]]:
    remarks = []
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
        remarks.append(Remark("bom", "a byte-order mark stands in front", line=1))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        raise HandoffError(
            "encoding",
            f"the byte {data[error.start]:#04x} is no UTF-8",
            fix="save the file as UTF-8",
            line=before.count(b"\n") + 1,
            column=len(before.rpartition(b"\n")[2]) + 1,
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n"), remarks


def _further(piece: Piece, strict: bool) -> Fields | None:
    """The fields of a further document that says of itself that it is a task; None for any other one."""
    if not words.says_delegate(piece.text):
        return None
    return yamltext.read(piece, controls=_CONTROLS, lists=_LISTS, strict=strict)


def _delegate(fields: Fields, piece: Piece, roles: Collection[str], strict: bool) -> Delegate:
    _check_kind(fields)
    _rename(fields, roles)
    missing = [name for name in ("task_id", "agent", "scope", "plan", "success_criteria") if name not in fields.entries]
    missing += [name for name in _CORE if strict and name not in fields.entries]
    if missing:
        raise HandoffError(
            "missing_field", f"there is no {missing[0]!r}", fix="add it", field=missing[0], line=fields.line
        )
    made = Delegate(
        task_id=_id(fields),
        agent=_agent(fields, roles),
        scope=_text(fields, "scope", needed=True) or "",
        plan=_items(fields, "plan", needed=True),
        success_criteria=_items(fields, "success_criteria", needed=True),
        context=_items(fields, "context", whole=True),
        spec_version=_text(fields, "spec_version"),
        skill=_text(fields, "skill"),
        model=_model(fields),
        effort=_word(fields, "effort", words.effort_of),
        priority=_word(fields, "priority", words.priority_of),
        created_at=_created(fields),
        deadline=_deadline(fields),
        dependencies=_names(fields, "dependencies"),
        parent_task_id=_text(fields, "parent_task_id"),
        budget_usd=_budget(fields),
        token_limit=_token_limit(fields),
        escalation_chain=_names(fields, "escalation_chain"),
        extra={name: found.value for name, found in sorted(fields.entries.items()) if name not in _KNOWN},
        text=piece.text.strip("\n") + "\n",
    )
    if any(words.same_id(name, made.task_id) for name in made.dependencies):
        raise HandoffError(
            "self_dependency",
            f"{made.task_id} waits for itself",
            fix="remove it from 'dependencies'",
            field="dependencies",
            line=fields.line_of("dependencies"),
        )
    made.remarks = fields.remarks
    return made


def _check_kind(fields: Fields) -> None:
    name = "handoff_type" if "handoff_type" in fields.entries else "type"
    kind = fields.get(name)
    if kind is None:
        # Plainly one all the same, by what it holds and what it does not.
        if "status" in fields.entries or "task_id" not in fields.entries:
            raise HandoffError(
                "missing_field", "there is no 'handoff_type'", fix="add 'handoff_type: DELEGATE'",
                field="handoff_type", line=fields.line,
            )  # fmt: skip
        fields.remark("handoff_type_inferred", "there is no 'handoff_type'; it is taken for a DELEGATE")
    elif not isinstance(kind, str) or kind.strip().upper() != "DELEGATE":
        raise HandoffError(
            "wrong_kind",
            f"this is a {str(kind)[:60]}, not a DELEGATE",
            fix="give an answer to 'orch handback'",
            field="handoff_type",
            line=fields.line_of(name),
        )


def _rename(fields: Fields, roles: Collection[str]) -> None:
    for old, new in _ALIASES.items():
        found = fields.entries.get(old)
        if found is None:
            continue
        if new in fields.entries:
            if new == "agent" and not _same_role(found.value, fields.get("agent"), roles):
                raise HandoffError(
                    "conflict", f"{old!r} and 'agent' name two roles", fix="leave one of them", field="agent",
                    line=found.line,
                )  # fmt: skip
            if new == "agent":
                del fields.entries[old]
            continue
        fields.entries[new] = fields.entries.pop(old)
        fields.remark("legacy_field", f"{old!r} is taken for {new!r}", new)


def _same_role(one: Any, other: Any, roles: Collection[str]) -> bool:
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    return words.role_of(one, roles) == words.role_of(other, roles)


# One field each


def _text(fields: Fields, name: str, *, needed: bool = False) -> str | None:
    value = fields.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        if needed:
            raise HandoffError("empty_field", f"{name!r} is empty", fix="fill it in", field=name,
                               line=fields.line_of(name))  # fmt: skip
        return None
    if not isinstance(value, str):
        if name in _CONTROLS:
            raise HandoffError("wrong_type", f"{name!r} is not a text", fix="write it as one", field=name,
                               line=fields.line_of(name))  # fmt: skip
        value = "\n".join(_flat(value))
    text = value.strip()
    if (needed or name in _CONTROLS) and words.is_placeholder(text):
        raise HandoffError("placeholder", f"{name!r} was left as {text!r}", fix="fill it in", field=name,
                           line=fields.line_of(name), found=text)  # fmt: skip
    return text


def _id(fields: Fields) -> str:
    id = _text(fields, "task_id", needed=True) or ""
    if not words.is_safe_id(id):
        raise HandoffError(
            "unsafe_task_id",
            f"{id[:80]!r} cannot be an id",
            fix="use letters, digits and '-', 128 at the most; no path, no ending of a file, no '-HANDBACK'",
            field="task_id",
            line=fields.line_of("task_id"),
            found=id[:200],
        )
    if not words.is_plain_id(id):
        fields.remark("nonstandard_task_id", "the id is not 3 to 50 lower-case letters, digits and '-'", "task_id")
    return id


def _agent(fields: Fields, roles: Collection[str]) -> str:
    said = _text(fields, "agent", needed=True) or ""
    role = words.role_of(said, roles)
    if role is None:
        near = words.near_roles(said, roles)
        raise HandoffError(
            "unknown_agent",
            f"there is no agent {said[:60]!r}",
            fix=f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(sorted(roles))}",
            field="agent",
            line=fields.line_of("agent"),
            found=said,
        )
    if role != said:
        fields.remark("mapped_value", f"{said!r} is taken for {role!r}", "agent")
    return role


def _items(fields: Fields, name: str, *, needed: bool = False, whole: bool = False) -> list[str]:
    """A list of texts; a `whole` text stays one item, any other one is cut at its numbers or its lines."""
    value = fields.get(name)
    if isinstance(value, str):
        items = [value.strip()] if whole else _split(value)
    elif isinstance(value, dict):
        items = [f"{key}: {_one_line(inner)}" for key, inner in value.items()]
    else:
        items = [_item(item) for item in value or []]
    items = [item for item in items if item]
    if needed and not items:
        raise HandoffError("empty_field", f"{name!r} is empty", fix="write at least one item", field=name,
                           line=fields.line_of(name))  # fmt: skip
    if needed and all(words.is_placeholder(item) for item in items):
        raise HandoffError("placeholder", f"{name!r} was left as a form", fix="fill it in", field=name,
                           line=fields.line_of(name), found=items[0])  # fmt: skip
    return items


def _split(text: str) -> list[str]:
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    if len(lines) > 1 and all(re.match(r"[-*•]\s|\d{1,2}[.)]\s", line) for line in lines):
        return [_NUMBERED.sub("", line, count=1) if line[0].isdigit() else line[1:].strip() for line in lines]
    # Numbered lines without dashes come as one text.
    marks, wanted = [], 1
    for mark in _MARK.finditer(text):
        if int(mark[1]) == wanted:
            marks.append(mark)
            wanted += 1
    if len(marks) > 1 and not text[: marks[0].start()].strip():
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        return [" ".join(text[mark.end() : end].split()) for mark, end in zip(marks, ends, strict=True)]
    return [_NUMBERED.sub("", text.strip(), count=1)] if text.strip() else []


def _item(item: Any) -> str:
    if isinstance(item, dict):
        named = {yamltext.spelled(key): inner for key, inner in item.items()}
        for name in ("action", "criterion", "description", "text"):
            if named.get(name):
                return _item(named[name])
    return _NUMBERED.sub("", _one_line(item), count=1).strip()


def _one_line(value: Any) -> str:
    return value.strip() if isinstance(value, str) else "; ".join(_flat(value))


def _flat(value: Any) -> list[str]:
    """A value of any depth as texts, without recursion deeper than the reader allows."""
    match value:
        case None:
            return []
        case dict():
            return [f"{key}: {_one_line(inner)}".strip() for key, inner in value.items()]
        case list():
            return [text for inner in value for text in _flat(inner)]
    return [value]


def _names(fields: Fields, name: str) -> list[str]:
    value = fields.get(name)
    if isinstance(value, str):
        if value.strip():
            fields.remark("mapped_value", f"{name!r} is a text and is cut at its commas", name)
        value = value.split(",")
    if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        raise HandoffError("wrong_type", f"{name!r} is not a list of names", fix="write one", field=name,
                           line=fields.line_of(name))  # fmt: skip
    found = [one.strip() for one in value or [] if one.strip()]
    for one in found:
        if name == "dependencies" and not words.is_safe_id(one):
            raise HandoffError("unsafe_task_id", f"{one[:80]!r} cannot be an id", fix="name a task by its id",
                               field=name, line=fields.line_of(name), found=one[:200])  # fmt: skip
    return found


def _model(fields: Fields) -> str | None:
    said = _text(fields, "model")
    model = None if said is None else words.model_of(said)
    if model != said:
        fields.remark("mapped_value", f"{said!r} is taken for {model!r}", "model")
    return model


def _word(fields: Fields, name: str, read: Callable[[str], tuple[T | None, bool]]) -> T | None:
    """A value that `read` knows, perhaps by another word; what it does not know is left out."""
    said = _text(fields, name)
    if said is None:
        return None
    found, is_mapped = read(said)
    if found is None:
        fields.remark("unknown_value", f"{said!r} is no {name}; it is left out", name)
    elif is_mapped:
        fields.remark("mapped_value", f"{said!r} is taken for {found!r}", name)
    return found


def _created(fields: Fields) -> str | None:
    value = fields.get("created_at")
    if value is None:
        return None
    moment = words.moment_of(value) if isinstance(value, str) else None
    if moment is None:
        fields.remark("bad_timestamp", "it is no moment; it is left out", "created_at")
    return moment


def _deadline(fields: Fields) -> str | None:
    said = _text(fields, "deadline")
    moment = None if said is None else words.moment_of(said)
    if said is not None and moment is None:
        raise HandoffError("wrong_type", f"the deadline {said!r} is no moment", fix="write 2026-03-20T18:00:00Z",
                           field="deadline", line=fields.line_of("deadline"), found=said)  # fmt: skip
    return moment


def _budget(fields: Fields) -> float | None:
    value = fields.get("budget")
    if isinstance(value, dict):
        value = value.get("usd") or value.get("cost_usd") or value.get("total")
    if value is None:
        return None
    found, code = words.money_of(value) if isinstance(value, str) else (None, "not_a_number")
    _check_number(fields, "budget", found, code)
    return found


def _token_limit(fields: Fields) -> int | None:
    value = fields.get("token_quota")
    if isinstance(value, dict):
        value = value.get("total")
    if value is None:
        return None
    found, code = words.count_of(value) if isinstance(value, str) else (None, "not_a_number")
    _check_number(fields, "token_quota", found, code)
    return found


def _check_number(fields: Fields, name: str, found: float | None, code: str | None) -> None:
    """A limit that was written down and cannot be read must not pass for none."""
    if found is None:
        raise HandoffError("wrong_type", f"{name!r} is not a number", fix="write one, or remove it", field=name,
                           line=fields.line_of(name))  # fmt: skip
    if code:
        fields.remark(code, f"{name!r} is taken for {found}", name)
