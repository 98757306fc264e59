"""Reading an agent's answer: which of its blocks is the HANDBACK of this task, and what that says.

Nothing here makes a success of anything: an unknown word, a cut-off block, a form that was left unfilled and the answer
to another task are errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from orch.handoff import blocks, envelopes, fields as yamltext, words
from orch.handoff.blocks import Block
from orch.handoff.envelopes import Opened
from orch.handoff.fields import Fields, Piece
from orch.handoff.remarks import HandoffError, Remark
from orch.legible import storable

# The end of a longer answer is looked at; the block stands there.
LARGEST = 2 * 1024 * 1024

_ALIASES = {
    "type": "handoff_type", "id": "task_id", "state": "status", "result": "output", "summary": "output",
    "agent_role": "agent", "role": "agent", "from_agent": "agent", "model_used": "model",
}  # fmt: skip
_CONTROLS = {
    "handoff_type", "type", "task_id", "id", "status", "state", "escalate_to", "escalation", "escalation_required",
    "spec_version",
}  # fmt: skip
_LISTS = {"deliverables", "artifacts", "skill_feedback", "blockers"}
_KNOWN = {
    "handoff_type", "task_id", "status", "output", "metrics", "quality", "quality_score", "confidence", "tokens",
    "tokens_consumed", "tokens_used", "tokens_in", "tokens_out", "token_usage", "total_tokens", "cost", "cost_usd",
    "duration", "duration_seconds", "duration_minutes", "agent", "model", "deliverables", "error", "escalate_to",
    "escalation_reason", "escalation", "escalation_required", "skill_feedback", "spec_version", "tests", "test_results",
    "exit_code", "handback_id", "blockers", "commit_sha",
}  # fmt: skip
_ANSI = re.compile(r"\x1b(?:\][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\n|$))|\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_INVISIBLE = {ord(char): None for char in "\u200b\u200c\u200d\u2060\ufeff"} | {0xA0: " ", 0x2007: " ", 0x202F: " "}
_FAILED_TESTS = re.compile(r"\b([1-9]\d*)\s+(?:tests?\s+)?(?:failed|failures?|errors?)\b", re.IGNORECASE)
# A number that is not 0, whatever stands behind it.
_SOME = re.compile(r"\s*[+-]*0*[1-9]")
_SAYS_STATUS = re.compile(r"(?im)^[ \t{,\"']*(?:handoff_type|handback_id|status)[\"']?[ \t]*:")
_NAMES_TASK = re.compile(r"(?im)^[ \t{,\"']*task_id[\"']?[ \t]*:[ \t]*(\S+)")
# A longer value is no word of a form.
_LONGEST_WORD = 200
_ALTERNATIVES = re.compile(r"\w+\s*[|/]\s*\w+")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts, None where nobody says."""

    input: int | None = None
    output: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What the agent's own program counted, as opposed to what the agent says of itself."""

    tokens: Tokens = Tokens()
    cost_usd: float | None = None
    duration_seconds: float | None = None
    session: str | None = None


@dataclass(slots=True)
class Handback:
    """An answer: one of the five states, what came of it, and what the agent says that it took.

    ``quality`` and ``confidence`` are 0 to 1, as the agent judges itself. ``tokens`` are the measured ones where there
    are such. ``form`` and ``line`` say where the block stood in the text, after ``envelope`` was taken off.
    """

    task_id: str
    status: str
    output: Any = None
    quality: float | None = None
    confidence: float | None = None
    tokens: Tokens = Tokens()
    cost_usd: float | None = None
    duration_seconds: float | None = None
    agent: str | None = None
    model: str | None = None
    deliverables: list[str] = field(default_factory=list)
    error: str | None = None
    escalate_to: str | None = None
    escalation_reason: str | None = None
    skill_feedback: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    form: str = ""
    line: int = 0
    envelope: str | None = None
    measured: Measured = Measured()
    text: str = ""

    @property
    def contradictions(self) -> list[str]:
        """Where the answer speaks against its own success."""
        return [remark.text for remark in self.remarks if remark.code == "contradiction"]


def read_handback(
    data: bytes | str, task_id: str, *, roles: Collection[str] = words.ROLES, strict: bool = False
) -> Handback:
    """The HANDBACK of a task in the whole output of the agent that was started for it, or in a file that it dropped.

    The last block of this task counts. `HandoffError` says why there is none that can be taken. With `strict` whatever
    would be put right is an error instead.
    """
    remarks: list[Remark] = []
    text = _cleaned(data, remarks)
    opened = envelopes.open_envelope(text)
    if opened.name is not None:
        remarks.append(Remark("envelope", f"the answer was in an envelope ({opened.name})"))
        text = _stripped(opened.text, remarks)
    elif not text.strip():
        raise HandoffError("empty_output", "the agent printed nothing", fix="see its standard error")
    try:
        handback = _chosen(text[-LARGEST:], text.count("\n", 0, max(0, len(text) - LARGEST)), task_id, roles, strict)
    except HandoffError as error:
        if error.kind not in ("no_block", "template_echo", "delegate_echo", "empty_output"):
            raise
        if opened.problem is not None:
            raise HandoffError(
                "agent_error",
                f"the agent's program reports {opened.problem}",
                fix="the work was not finished: try again, or let it do more",
                found=opened.problem,
            ) from None
        if opened.verdict is None:
            raise
        handback = Handback(task_id, opened.verdict, output=text.strip() or None, form="envelope")
    if opened.problem is not None:
        remarks.append(Remark("agent_error", f"the agent's program reports {opened.problem}"))
    handback.remarks[:0] = remarks
    handback.envelope = opened.name
    _measure(handback, opened)
    if strict and handback.remarks:
        first = handback.remarks[0]
        raise HandoffError(
            first.code, first.text, fix="answer as the protocol says", field=first.field, line=first.line
        )
    return handback


def measured_in(text: str) -> Measured:
    """What the agent's own program counted of one run, by what it printed."""
    opened = envelopes.open_envelope(text)
    return Measured(
        _summed(opened.input_tokens, opened.output_tokens, None), opened.cost_usd, opened.seconds, opened.session
    )


# The text


def _cleaned(data: bytes | str, remarks: list[Remark]) -> str:
    if isinstance(data, bytes):
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
        if "\ufffd" in text:
            remarks.append(Remark("encoding_replaced", "some bytes are no UTF-8"))
    else:
        text = data
    return _stripped(text, remarks)


def _stripped(text: str, remarks: list[Remark]) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    bare = _ANSI.sub("", text) if "\x1b" in text else text
    if bare != text:
        remarks.append(Remark("ansi_stripped", "control sequences of a terminal are taken out"))
    # A program that cuts its text in the middle of a character leaves half of one.
    whole = storable(bare)
    if whole != bare:
        remarks.append(Remark("encoding_replaced", "half of a character is escaped"))
    return whole.translate(_INVISIBLE)


# Which block


@dataclass(slots=True)
class _Candidate:
    block: Block
    fields: Fields | None
    problem: HandoffError | None
    kind: str


def _chosen(text: str, before: int, task_id: str, roles: Collection[str], strict: bool) -> Handback:
    candidates = [_candidate(block, before, task_id, strict) for block in blocks.find(text)]
    ours = [one for one in candidates if one.kind in ("ours", "nameless", "broken")]
    marked = [one for one in ours if one.kind == "ours"] or [one for one in ours if one.kind == "nameless"]
    broken = [one for one in ours if one.kind == "broken"]
    if broken and (not marked or candidates.index(broken[-1]) > candidates.index(marked[-1])):
        # The last word cannot be read; an older one is not used instead.
        assert broken[-1].problem is not None
        raise broken[-1].problem
    if not marked:
        raise _why_none(candidates, text, task_id)
    chosen = marked[-1]
    assert chosen.fields is not None
    handback = _handback(chosen, task_id, roles, strict)
    if len(marked) > 1:
        handback.remarks.append(Remark("multiple_handbacks", f"{len(marked)} answers; the last one counts"))
    if any(one.kind == "other" for one in candidates):
        handback.remarks.append(Remark("other_task_blocks", "there are answers to other tasks too"))
    return handback


def _candidate(block: Block, before: int, task_id: str, strict: bool) -> _Candidate:
    pieces = yamltext.documents(block.piece.text, block.piece.line + before)
    if not pieces:
        return _Candidate(block, None, None, "empty")
    try:
        fields = yamltext.read(pieces[0], controls=_CONTROLS, lists=_LISTS, strict=strict)
    except HandoffError as error:
        return _Candidate(block, None, error, _kind_of_broken(pieces[0], task_id))
    if strict and len(pieces) > 1:
        fields.remark("ignored_document", "a second document follows")
    _rename(fields)
    return _Candidate(block, fields, None, _kind(fields, task_id))


def _kind_of_broken(piece: Piece, task_id: str) -> str:
    """What a block that cannot be read was meant for, as far as its lines say."""
    if words.says_delegate(piece.text):
        return "delegate"
    named = _NAMES_TASK.search(piece.text)
    if named and not words.same_id(named[1].rstrip(","), task_id):
        return "other"
    return "broken" if _SAYS_STATUS.search(piece.text) else "empty"


def _kind(fields: Fields, task_id: str) -> str:
    marker, id, status = (fields.get(name) for name in ("handoff_type", "task_id", "status"))
    if isinstance(marker, str) and marker.strip().upper() == "DELEGATE":
        return "delegate"
    if any(isinstance(value, str) and _is_form(value) for value in (marker, id, status)):
        return "template"
    is_marked = (isinstance(marker, str) and marker.strip().upper() == "HANDBACK") or "handback_id" in fields.entries
    if marker is not None and not is_marked:
        return "empty"
    if isinstance(id, str) and id.strip():
        if not words.same_id(id, task_id):
            return "other" if is_marked else "empty"
        return "ours" if is_marked or status is not None else "empty"
    if is_marked or (status is not None and "output" in fields.entries):
        return "nameless"
    return "empty"


def _is_form(text: str) -> bool:
    """Whether a value was left as the form showed it."""
    bare = text.strip()
    if len(bare) > _LONGEST_WORD:
        return False
    if words.is_placeholder(bare) or words.is_placeholder(bare.strip("{}")):
        return True
    return bool(_ALTERNATIVES.search(bare)) and all(words.status_of(word) for word in re.split(r"\s*[|/]\s*", bare))


def _why_none(candidates: list[_Candidate], text: str, task_id: str) -> HandoffError:
    if not text.strip():
        return HandoffError("empty_output", "the agent said nothing", fix="see its standard error")
    kinds = {one.kind: one for one in candidates}
    if "other" in kinds:
        fields = kinds["other"].fields
        said = fields.get("task_id") if fields else None
        return HandoffError(
            "task_id_mismatch",
            f"the answer is to {said!r} and not to {task_id!r}",
            fix="ask the agent again with its own task",
            field="task_id",
            line=fields.line if fields else None,
            found=said if isinstance(said, str) else None,
        )
    if "template" in kinds:
        return HandoffError("template_echo", "there is only the empty form", fix="ask for a filled-in HANDBACK")
    if "delegate" in kinds:
        return HandoffError("delegate_echo", "there is only the task itself", fix="ask for a HANDBACK")
    return HandoffError(
        "no_block", "there is no HANDBACK block in the answer", fix="ask for one, fenced, at the very end"
    )


# What it says


def _rename(fields: Fields) -> None:
    for old, new in _ALIASES.items():
        if old in fields.entries and new not in fields.entries:
            fields.entries[new] = fields.entries.pop(old)
            if old in ("role", "agent_role", "from_agent", "summary", "state"):
                fields.remark("legacy_field", f"{old!r} is taken for {new!r}", new)


def _handback(chosen: _Candidate, task_id: str, roles: Collection[str], strict: bool) -> Handback:
    fields, block = chosen.fields, chosen.block
    assert fields is not None
    if strict and "spec_version" not in fields.entries:
        raise HandoffError("missing_field", "there is no 'spec_version'", fix="add it", field="spec_version",
                           line=fields.line)  # fmt: skip
    said = fields.get("task_id")
    if not isinstance(said, str) or not said.strip():
        fields.remark("task_id_assumed", f"the answer names no task; it is taken for that of {task_id}")
    elif said.strip() != task_id:
        fields.remark("task_id_respelled", f"{said!r} is taken for {task_id!r}", "task_id")
    status = _status(fields)
    _check_whole(block, fields, status)
    metrics = fields.get("metrics") if isinstance(fields.get("metrics"), dict) else {}
    numbers = _Numbers(fields, {yamltext.spelled(key): value for key, value in metrics.items()})
    output = fields.get("output")
    if isinstance(output, str) and words.is_placeholder(output):
        fields.remark("placeholder", "the output was left as the form showed it", "output")
        output = None
    handback = Handback(
        task_id=task_id,
        status=status,
        output=output.strip() if isinstance(output, str) else output,
        quality=numbers.score("quality", "quality_score"),
        confidence=numbers.score("confidence"),
        tokens=numbers.tokens(),
        cost_usd=numbers.money("cost", "cost_usd"),
        duration_seconds=numbers.duration(),
        agent=_role(fields, roles),
        model=words.model_of(fields.get("model")) if isinstance(fields.get("model"), str) else None,
        deliverables=[one for one in _texts(fields.get("deliverables")) if not words.is_placeholder(one)],
        error=_joined(fields.get("error")),
        skill_feedback=[item for item in _listed(fields.get("skill_feedback")) if isinstance(item, dict)],
        extra={name: found.value for name, found in sorted(fields.entries.items()) if name not in _KNOWN},
        form=block.form,
        line=fields.line if not block.piece.text.startswith("{") else block.piece.line,
        text=block.piece.text.strip("\n") + "\n",
    )
    if handback.status == "escalate":
        handback.escalate_to, handback.escalation_reason = _escalation(fields, roles)
    if handback.status == "success":
        _note_contradictions(fields)
    if not block.closed and block.form == "fenced":
        fields.remark("unterminated_fence", "the fence of the block is not closed")
    handback.remarks = fields.remarks
    return handback


def _status(fields: Fields) -> str:
    value = fields.get("status")
    if value is None or (isinstance(value, str) and not value.strip()):
        raise HandoffError("missing_field", "there is no 'status'", fix=f"say one of {', '.join(words.STATUSES)}",
                           field="status", line=fields.line_of("status"))  # fmt: skip
    status = words.status_of(value) if isinstance(value, str) else None
    if status is None:
        raise HandoffError(
            "unknown_status",
            f"{str(value)[:60]!r} is no status",
            fix=f"say one of {', '.join(words.STATUSES)}",
            field="status",
            line=fields.line_of("status"),
            found=value.strip() if isinstance(value, str) else None,
        )
    if value != status:
        fields.remark("mapped_value", f"{str(value)[:60]!r} is taken for {status!r}", "status")
    required = fields.get("escalation_required")
    if status != "success" and isinstance(required, str) and required.strip().lower() in ("true", "yes"):
        fields.remark(
            "mapped_value", f"escalation is required, so that {status!r} is 'escalate'", "escalation_required"
        )
        return "escalate"
    return status


def _check_whole(block: Block, fields: Fields, status: str) -> None:
    """A success that may be the beginning of something else is none."""
    if status != "success" or block.closed:
        return
    last = max(fields.entries.values(), key=lambda found: found.line)
    if not block.ended or fields.entries["status"] is last:
        raise HandoffError(
            "truncated",
            "the answer ends in the middle of its block",
            fix="ask for the HANDBACK again",
            line=last.line,
        )


def _escalation(fields: Fields, roles: Collection[str]) -> tuple[str | None, str | None]:
    output = fields.get("output") if isinstance(fields.get("output"), dict) else {}
    packet = fields.get("escalation") if isinstance(fields.get("escalation"), dict) else {}
    said = fields.get("escalate_to") or output.get("escalate_to") or packet.get("to_role") or packet.get("escalate_to")
    why = fields.get("escalation_reason") or output.get("escalation_reason") or packet.get("reason")
    target = words.role_of(said, roles) if isinstance(said, str) else None
    if said is not None and target is None:
        fields.remark("bad_escalate_to", f"there is no agent {str(said)[:60]!r} to escalate to", "escalate_to")
    reason = _joined(why)
    return target, " ".join(reason.split()) if reason else None


def _role(fields: Fields, roles: Collection[str]) -> str | None:
    said = fields.get("agent")
    return words.role_of(said, roles) if isinstance(said, str) else None


def _note_contradictions(fields: Fields) -> None:
    tests = fields.get("tests") if fields.get("tests") is not None else fields.get("test_results")
    if _failed_tests(tests):
        fields.remark("contradiction", "it says success, and that tests failed", "tests")
    code = fields.get("exit_code")
    if isinstance(code, str) and _SOME.match(code):
        fields.remark("contradiction", f"it says success, and exit code {code.strip()}", "exit_code")


def _failed_tests(tests: Any) -> bool:
    match tests:
        case str():
            return _FAILED_TESTS.search(tests) is not None
        case list():
            return any(_failed_tests(one) for one in tests)
        case dict():
            for key, value in tests.items():
                if yamltext.spelled(key) in ("failed", "failures", "errors", "tests_failed"):
                    if _SOME.match(value) if isinstance(value, str) else value:
                        return True
                elif _failed_tests(value):
                    return True
    return False


class _Numbers:
    """The numbers of an answer, beside the status or below ``metrics``. A useless one costs itself, not the answer."""

    def __init__(self, fields: Fields, metrics: dict[str, Any]) -> None:
        self._fields = fields
        self._metrics = metrics

    def _value(self, *names: str) -> tuple[str, Any]:
        for name in names:
            for holder in (self._metrics.get(name), self._fields.get(name)):
                if holder is not None:
                    return name, holder
        return "", None

    def _read(self, names: tuple[str, ...], read: Any) -> Any:
        name, value = self._value(*names)
        if value is None:
            return None
        found, code = read(value) if isinstance(value, str) else (None, "not_a_number")
        if code is not None:
            told = "cannot be read as a number" if found is None else f"is taken for {found}"
            self._fields.remark(code, f"{name} {_joined(value)!r} {told}", name)
        return found

    def score(self, *names: str) -> float | None:
        found: float | None = self._read(names, words.score_of)
        return found

    def money(self, *names: str) -> float | None:
        found: float | None = self._read(names, words.money_of)
        return found

    def duration(self) -> float | None:
        found: float | None = self._read(("duration_seconds", "duration"), words.seconds_of)
        if found is None and self._value("duration_minutes")[1] is not None:
            minutes: float | None = self._read(("duration_minutes",), words.seconds_of)
            return None if minutes is None else minutes * 60
        return found

    def tokens(self) -> Tokens:
        name, value = self._value("tokens", "tokens_consumed", "tokens_used", "token_usage")
        if isinstance(value, dict):
            parts = {yamltext.spelled(key): inner for key, inner in value.items()}
            split = [self._count(parts, *names) for names in (("input", "tokens_in"), ("output", "tokens_out"))]
            total = self._count(parts, "total", "actual", "used", "billable_total", "estimated")
            return _summed(split[0], split[1], total)
        input, output = (self._read((name,), words.count_of) for name in ("tokens_in", "tokens_out"))
        return _summed(input, output, self._read((name or "total_tokens",), words.count_of))

    def _count(self, parts: dict[str, Any], *names: str) -> int | None:
        for name in names:
            value = parts.get(name)
            if isinstance(value, str):
                found, code = words.count_of(value)
                if code is not None:
                    self._fields.remark(code, f"tokens {value!r}", "tokens")
                return found
        return None


def _summed(input: int | None, output: int | None, total: int | None) -> Tokens:
    if input is not None and output is not None:
        total = input + output
    return Tokens(input, output, total)


def _measure(handback: Handback, opened: Opened) -> None:
    tokens = _summed(opened.input_tokens, opened.output_tokens, None)
    handback.measured = Measured(tokens, opened.cost_usd, opened.seconds, opened.session)
    if tokens.total is not None:
        if handback.tokens != tokens:
            handback.remarks.append(Remark("tokens_measured", "the agent's program has counted the tokens"))
        handback.tokens = tokens


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _texts(value: Any) -> list[str]:
    """A list of things as texts: a file by its name, a mapping of one by "key: value"."""
    found = []
    for item in value.items() if isinstance(value, dict) else _listed(value):
        match item:
            case str():
                found.append(item.strip())
            case {"file": str(name)} | {"path": str(name)}:
                found.append(name.strip())
            case dict():
                found.append("; ".join(f"{key}: {_joined(inner)}" for key, inner in item.items()))
            case (str(key), inner):
                found.append(f"{key}: {_joined(inner)}")
    return [text for text in found if text]


def _joined(value: Any) -> str | None:
    """Any value as one text; None for nothing."""
    match value:
        case None:
            return None
        case str():
            return value.strip() or None
        case list():
            return "; ".join(filter(None, (_joined(item) for item in value))) or None
        case dict():
            return "; ".join(f"{key}: {_joined(inner)}" for key, inner in value.items()) or None
    return str(value)
