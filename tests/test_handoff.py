"""DELEGATEs and HANDBACKs: tolerant where nothing depends on it, exact in what decides, and never a made-up success."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from orch.handoff import HandoffError, read_delegates, read_handback, routing
from tests.conftest import World

CORPUS = Path(__file__).parent / "corpus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())

DELEGATE = b"""handoff_type: DELEGATE
task_id: t1
agent: engineer
scope: Do it.
plan: [one]
success_criteria: [two]
"""


def handback(status: str = "failure", **extra: Any) -> str:
    lines = ["handoff_type: HANDBACK", "task_id: t1", f"status: {status}", "output: nothing came of it"]
    return "\n".join([*lines, *(f"{name}: {value}" for name, value in extra.items())]) + "\n"


def fenced(text: str, info: str = "yaml") -> str:
    return f"```{info}\n{text}```\n"


def plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


# The corpus


@pytest.mark.parametrize("name", EXPECTED["delegates"])
def test_every_delegate_of_the_corpus_is_read_as_it_should_be(name: str) -> None:
    data, expected = (CORPUS / "delegates" / name).read_bytes(), EXPECTED["delegates"][name]
    if expected["verdict"] == "refused":
        check_refusal(lambda: read_delegates(data), expected)
        return
    found = read_delegates(data)
    assert len(found) == len(expected["normalized"])
    for one, wanted in zip(found, expected["normalized"], strict=True):
        got = {key: sorted(one.extra) if key == "extra" else getattr(one, key) for key in wanted}
        assert got == wanted
    assert set(expected["warnings"]) <= {remark.code for one in found for remark in one.remarks}
    check_strict(lambda: read_delegates(data, strict=True), expected)


@pytest.mark.parametrize("name", EXPECTED["agent_outputs"])
def test_every_answer_of_the_corpus_is_read_as_it_should_be(name: str) -> None:
    data, expected = (CORPUS / "agent_outputs" / name).read_bytes(), EXPECTED["agent_outputs"][name]
    if expected["verdict"] == "refused":
        check_refusal(lambda: read_handback(data, expected["task_id"]), expected)
        return
    found = read_handback(data, expected["task_id"])
    wanted = expected["normalized"]
    got = {key: len(found.skill_feedback) if key == "skill_feedback" else plain(getattr(found, key)) for key in wanted}
    assert got == wanted
    source = expected.get("source", {})
    assert {key: getattr(found, key) for key in source} == source
    assert set(expected["warnings"]) <= {remark.code for remark in found.remarks}
    check_strict(lambda: read_handback(data, expected["task_id"], strict=True), expected)


def check_refusal(read: Any, expected: dict[str, Any]) -> None:
    with pytest.raises(HandoffError) as caught:
        read()
    error, wanted = caught.value, dict(expected["error"])
    assert wanted.pop("message_has", "") in str(error)
    if "message" in wanted:
        wanted["found"] = wanted.pop("message")
    assert {key: getattr(error, key) for key in wanted} == wanted, error
    assert error.fix
    if "retry" in expected:
        assert error.retry == expected["retry"]


def check_strict(read: Any, expected: dict[str, Any]) -> None:
    if expected["strict"] == "accepted":
        read()
    else:
        with pytest.raises(HandoffError):
            read()


# Which block


def status_of(text: str, task: str = "t1") -> str:
    """The state of an answer, or the kind of the error."""
    try:
        return read_handback(text, task).status
    except HandoffError as error:
        return error.kind


def test_the_last_block_of_this_task_counts_and_no_other() -> None:
    success, failure = fenced(handback("success")), fenced(handback("failure"))
    assert status_of(f"I must answer so:\n{success}I could not build it.\n{failure}") == "failure"
    other = success.replace("t1", "t0")
    assert status_of(other + failure) == "failure"
    assert status_of(failure + other) == "failure"
    form = fenced(handback("success | failure | escalate"))
    assert status_of(form + failure) == "failure"
    assert status_of(failure + form) == "failure"
    quoted = "".join(f"> {line}\n" for line in success.splitlines())
    assert status_of(quoted + failure) == "failure"
    assert status_of(quoted) == "no_block"
    assert status_of(fenced(DELEGATE.decode())) == "delegate_echo"
    assert status_of(other) == "task_id_mismatch"


def test_an_unreadable_last_block_is_not_made_up_for_by_an_older_one() -> None:
    assert status_of(fenced(handback("success")) + fenced(handback('"success" (mostly)'))) == "yaml_syntax"


@pytest.mark.parametrize("body", ["", "\n", "# only a comment\n", "status:\n", "- status: success\n"])
def test_a_block_without_an_answer_is_none(body: str) -> None:
    assert status_of(f"```yaml\n{body}```\n") in ("no_block", "missing_field")


def test_a_deeper_fence_inside_a_block_is_part_of_it() -> None:
    text = fenced(handback("success") + "notes: |\n  ```python\n  status = 1\n  ```\n")
    assert read_handback(text, "t1").extra["notes"].strip() == "```python\nstatus = 1\n```"


@pytest.mark.parametrize("word", ["yes", "true", "not done", "unsuccessful", "success?no", "0", "[]", "succes"])
def test_no_other_word_is_a_success(word: str) -> None:
    assert status_of(fenced(handback(word))) != "success"


@pytest.mark.parametrize("word", [".nan", "yes", "high", "0,9", "-0.1", "1.5", "nan"])
def test_a_useless_number_costs_itself_and_not_the_answer(word: str) -> None:
    found = read_handback(fenced(handback("success", confidence=word)), "t1")
    assert (found.status, found.confidence) == ("success", None)
    json.dumps(dataclasses.asdict(found), allow_nan=False)


BLANKS = " " * 200_000


@pytest.mark.parametrize(
    "word", ["9" * 5000, f"{'9' * 400} h", f"1{BLANKS}x", f"1h{BLANKS}x"], ids=["digits", "hours", "blanks", "span"]
)
def test_a_number_of_any_length_is_read_at_once(word: str) -> None:
    names = ("tokens", "cost", "duration", "quality", "confidence", "created_at")
    found = read_handback(fenced(handback("success", **dict.fromkeys(names, json.dumps(word)))), "t1")
    assert (found.status, found.tokens.total, found.cost_usd, found.duration_seconds) == ("success", None, None, None)


def test_half_of_a_character_in_an_envelope_costs_itself_and_not_the_answer() -> None:
    found = read_handback(json.dumps({"type": "result", "result": handback("success", error="cut \ud83d")}), "t1")
    assert (found.status, found.error) == ("success", r"cut \ud83d")


@pytest.mark.parametrize("left", ["<what came of it, in your own words or as fields>", "...", "TODO"])
def test_a_form_that_was_left_unfilled_is_neither_an_output_nor_a_deliverable(left: str) -> None:
    text = handback("success", deliverables="[<each file that you made or changed>]").replace(
        "nothing came of it", left
    )
    told = routing.contradictions(read_handback(fenced(text), "t1"), exit_code=0, folder="")
    assert told == ["it names neither an output nor a deliverable"]


MADE_UP = ["a.py", "./a", "src/a", "src/a.b.py: new", "src/a: new", "/no/where.txt", "a.7z (packed)", "a-b/.env"]
NO_FILES = ["12/12 tests pass", "3/3", "v1.2 released", "and/or the tests", "e.g. this", "a" * 200_000 + "!", "made.py"]


def test_a_deliverable_that_looks_like_a_file_has_to_be_there_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "made.py").touch()
    said = read_handback(fenced(handback("success", deliverables=json.dumps([*MADE_UP, *NO_FILES]))), "t1")
    told = routing.contradictions(said, exit_code=0, folder=str(tmp_path))
    assert told == [f"{text.split(' ')[0].rstrip(':')} is not there" for text in MADE_UP]


def test_the_reset_that_a_limit_names_is_waited_for_within_bounds() -> None:
    assert routing.usage_limit("Usage limit; try again in 1h 5m", 0) == ("Usage limit; try again in 1h 5m", 3900.0)
    found = routing.usage_limit(f"Usage limit, try again in {'9' * 1000} days", 0)
    assert found is not None
    assert found[1] is None


@pytest.mark.parametrize("code", ["1", "-11", "--5", "137 (killed)", pytest.param("1" * 5000, id="long")])
def test_an_exit_code_but_0_speaks_against_a_success(code: str) -> None:
    assert read_handback(fenced(handback("success", exit_code=f"'{code}'")), "t1").contradictions
    assert not read_handback(fenced(handback("success", exit_code="0")), "t1").contradictions


def test_escalation_wins_over_anything_but_a_success() -> None:
    assert status_of(fenced(handback("blocked", escalation_required="true"))) == "escalate"
    found = read_handback(fenced(handback("escalate", escalate_to="../../pwn")), "t1")
    assert found.escalate_to is None
    assert "bad_escalate_to" in {remark.code for remark in found.remarks}


# What was cut off


@pytest.mark.parametrize("end", ["", "`", "``"])
def test_a_success_that_ends_in_mid_block_is_none(end: str) -> None:
    cut = "```yaml\n" + handback("success") + "files:\n  - a.py\n  - b" + end
    assert status_of(cut) == "truncated"
    assert status_of(cut.removeprefix("```yaml\n")) == "truncated"
    assert status_of("```yaml\n" + handback("success") + "```") == "success"
    assert status_of("```yaml\nhandoff_type: HANDBACK\ntask_id: t1\nstatus: success\n") == "truncated"


STATUSES = ["failure", "partial", "blocked", "escalate", "failed", "complete with errors", "passed, not quite", "done?"]


@given(
    status=st.sampled_from(STATUSES),
    info=st.sampled_from(["yaml", "", "json5", None]),
    extra=st.dictionaries(
        st.sampled_from(["error", "notes", "confidence", "summary"]),
        st.sampled_from(
            ["success", "status: success", "0.9", '"status: success"', "|\n  status: success\n  all is done"]
        ),
    ),
    prose=st.sampled_from(["", "Well.\n\n", "status is success\n"]),
    data=st.data(),
)
def test_no_prefix_of_an_answer_that_is_no_success_reads_as_one(
    status: str, info: str | None, extra: dict[str, str], prose: str, data: st.DataObject
) -> None:
    text = handback(status, **extra)
    text = prose + (text if info is None else fenced(text, info))
    assert status_of(text) != "success"
    assert status_of(text[: data.draw(st.integers(0, len(text)))]) != "success"


@given(
    before=st.sampled_from(["", "Done.\n\n", "> quoted\n\n", "1. one\n2. two\n\n", "\x1b[1mBold\x1b[0m\n"]),
    after=st.sampled_from(["", "\nThat is all.\n", "\n**Summary**\n- status: fine\n", "\nTokens 4.2k\n"]),
    fence=st.sampled_from(["```yaml", "```", "~~~", "````text"]),
    crlf=st.booleans(),
    colours=st.booleans(),
)
def test_what_stands_around_a_block_changes_nothing(
    before: str, after: str, fence: str, crlf: bool, colours: bool
) -> None:
    body = handback("success", confidence="0.9", error="none")
    text = f"{before}{fence}\n{body}{fence.rstrip('abcdefghijklmnopqrstuvwxyz')}\n{after}"
    text = text.replace("success", "\x1b[32msuccess\x1b[0m") if colours else text
    found = read_handback(text.replace("\n", "\r\n") if crlf else text, "t1")
    assert (found.status, found.confidence, found.output) == ("success", 0.9, "nothing came of it")


# Control fields and salvage


CONTROLS = ["task_id", "agent", "model", "effort", "priority", "deadline", "parent_task_id", "dependencies"]


@given(st.sampled_from(CONTROLS), st.sampled_from(['"a" b', "a: b: c", "[a", "'x' y", "{a: b", "@x"]))
def test_a_control_field_is_never_saved_from_bad_yaml(name: str, broken: str) -> None:
    lines = [line for line in DELEGATE.decode().splitlines() if not line.startswith(f"{name}:")]
    with pytest.raises(HandoffError) as caught:
        read_delegates("\n".join([*lines, f"{name}: {broken}", ""]).encode())
    assert caught.value.kind in ("yaml_syntax", "wrong_type", "unsafe_yaml")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=60))
def test_any_free_text_leaves_the_control_fields_as_they_are(text: str) -> None:
    data = DELEGATE.replace(b"Do it.", b"it is " + text.encode()) + b"priority: 7\n"
    [found] = read_delegates(data)
    assert (found.task_id, found.agent, found.priority) == ("t1", "engineer", 7)


@pytest.mark.parametrize("id", ["2024-01-15", "0123", "12_30", "1_000", "0x1F", "no", "1e5"])
def test_an_id_is_the_text_that_was_written(id: str) -> None:
    text = DELEGATE.replace(b"t1", id.encode())
    if "_" in id or id == id.upper():
        assert read_delegates(text)[0].task_id == id
    assert read_delegates(text)[0].task_id == id
    assert read_handback(handback("success").replace("t1", id), id).status == "success"


@pytest.mark.parametrize(
    "id",
    ["../../../tmp/pwn", "/tmp/pwn", "a/b", "..", "a..b", "x" * 300, '"t1\\nt2"', "t1.meta", "t1-HANDBACK-engineer",
     "a\\b", ".hidden", "t1.yaml", "-x", "null", "~", '""', "<task-id>", "[a]"],
)  # fmt: skip
def test_an_id_that_could_be_another_files_name_is_refused(id: str) -> None:
    with pytest.raises(HandoffError) as caught:
        read_delegates(DELEGATE.replace(b"t1", id.encode()))
    assert caught.value.kind in ("unsafe_task_id", "empty_field", "placeholder", "wrong_type")
    assert caught.value.line == 2


def test_two_tasks_in_one_file_are_two_tasks_and_a_broken_second_one_refuses_both() -> None:
    second = DELEGATE.replace(b"t1", b"task-two")
    assert [one.task_id for one in read_delegates(DELEGATE + b"---\n" + second)] == ["t1", "task-two"]
    with pytest.raises(HandoffError) as caught:
        read_delegates(DELEGATE + b"---\n" + second.replace(b"plan", b"plam"))
    assert (caught.value.kind, caught.value.line) == ("missing_field", 8)
    [one] = read_delegates(DELEGATE + b"---\n# A report\n\nIt says: nothing\n")
    assert "ignored_document" in {remark.code for remark in one.remarks}


def test_errors_name_the_place_and_the_fix() -> None:
    with pytest.raises(HandoffError) as caught:
        read_delegates(DELEGATE.replace(b"engineer", b"senior engineeer"))
    assert str(caught.value).startswith("line 3: there is no agent 'senior engineeer'; did you mean senior-engineer")
    assert caught.value.exit_code == 8
    with pytest.raises(HandoffError) as caught:
        read_delegates(DELEGATE + b"notes: caf\xe9\n")
    assert (caught.value.kind, caught.value.line, caught.value.column) == ("encoding", 7, 11)
    with pytest.raises(HandoffError, match="merge conflict"):
        read_delegates(DELEGATE + b"<<<<<<< HEAD\n")
    with pytest.raises(HandoffError) as caught:
        read_delegates(b"x" * 300_000)
    assert caught.value.kind == "too_large"


# Size

BOMB = (
    "x0: &a0 ["
    + ", ".join(["z"] * 9)
    + "]\n"
    + "".join(f"x{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]\n" for n in range(1, 9))
)
# Each alias stands 30 levels below the one before it.
DEEP = "x0: &a0 [z]\n" + "".join(f"x{n}: &a{n} {'[' * 30}*a{n - 1}{']' * 30}\n" for n in range(1, 20))


@pytest.mark.parametrize(
    "extra",
    [BOMB, DEEP, "context: &a [*a]\n", "context: " + "[" * 2000 + "\n", "context: " + "[" * 2000 + "]" * 2000 + "\n",
     "x: &a " + "y" * 100_000 + "\nz: [" + ", ".join(["*a"] * 1000) + "]\n"],
)  # fmt: skip
def test_what_would_explode_is_refused(extra: str) -> None:
    with pytest.raises(HandoffError) as caught:
        read_delegates(DELEGATE + extra.encode())
    assert caught.value.kind in ("unsafe_yaml", "yaml_syntax")
    with pytest.raises(HandoffError):
        read_handback(fenced(handback("success") + extra), "t1")


@pytest.mark.parametrize("size", [200_000, pytest.param(2_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "junk",
    ["\n", " ", "{", "```\n", "~~~x\n", "key: value\n", "status: success\n", "handoff_type: HANDBACK\n", "- \n", "|",
     '{"a": [\n', "\x1b]", "\x1b[", "aaaa ", "> ", "---\n", "12.3k ", "(", "\t", "\u00a0", "“", '"a": 1,\n'],
)  # fmt: skip
def test_any_amount_of_anything_before_the_answer_is_read_past(junk: str, size: int) -> None:
    # Whatever looks at a part again and again would not come to an end here.
    text = junk * (size // len(junk)) + "\n\n" + fenced(handback("failure"))
    assert status_of(text) in ("failure", "duplicate_key", "unsafe_yaml", "yaml_syntax", "no_block", "unknown_status")
    status_of(fenced(handback("success", error="a" * 1000 + junk * (size // 10))))


def test_a_closing_fence_with_anything_behind_it_is_read_at_once() -> None:
    assert status_of(fenced(handback("failure")).rstrip("\n") + " " * 200_000 + "!\n") == "failure"


@pytest.mark.parametrize("rounds", [200, pytest.param(3000, marks=pytest.mark.full)])
def test_any_bytes_are_an_answer_or_an_error(rounds: int) -> None:
    rng = random.Random(7)
    source = [(CORPUS / "agent_outputs" / name).read_bytes()[:3000] for name in EXPECTED["agent_outputs"]]
    for _ in range(rounds):
        data = bytearray(rng.choice(source))
        for _ in range(rng.randint(1, 12)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randint(0, 20)] = rng.choice([b"", b"\0", b"\xff", b": ", b"\n", b"```\n", b"[", b"&a "])
        for read in (read_handback, lambda data, _: read_delegates(data)):
            with contextlib.suppress(HandoffError):
                read(bytes(data), "t1")


# The commands


def test_delegates_become_tasks_once_with_their_order_and_their_needs(world: World) -> None:
    second = DELEGATE.replace(b"t1", b"t2") + b"depends_on: t1\npriority: high\ndeadline: 2999-01-01T00:00:00Z\n"
    (world.folder / "both.yaml").write_bytes(DELEGATE + b"---\n" + second)
    (world.folder / "third.yaml").write_bytes(DELEGATE.replace(b"t1", b"t3"))
    assert world.orch("delegate", "both.yaml", "third.yaml").splitlines() == ["1 t1", "2 t2", "3 t3"]
    assert "no [agents.engineer]" in world.err
    task = world.queue.find("t2")
    assert (task.mode, task.key, task.priority, task.blocked) == ("engineer", "t2", 3, 1)
    assert task.expires_at == "2999-01-01T00:00:00.000000Z"
    assert task.payload["delegate"].encode() == second
    assert world.orch("delegate", "third.yaml") == "3 t3 was there\n"
    world.orch("delegate", "-", stdin=DELEGATE.decode().replace("Do it.", "Do something else."), code=9)
    assert len(world.states()) == 3


def test_a_file_that_is_refused_adds_nothing_and_says_where_and_what_to_do(world: World) -> None:
    (world.folder / "good.yaml").write_bytes(DELEGATE)
    (world.folder / "bad.yaml").write_bytes(DELEGATE.replace(b"agent: engineer", b'agent: "engineer" (fast)'))
    world.orch("delegate", "good.yaml", "bad.yaml", code=8)
    assert "bad.yaml: line 3, column 19: 'agent' is not sound YAML; write it as one plain word" in world.err
    assert not Path(world.database).exists()
    world.orch("delegate", "missing.yaml", code=3)
    assert "good.yaml: t1 for engineer, 1 step" in world.orch("delegate", "--validate", "good.yaml")
    world.orch("delegate", "--validate", "--strict", "good.yaml", code=8)
    assert json.loads(world.orch("delegate", "--validate", "good.yaml", "--json"))["data"][0]["task_id"] == "t1"


def test_the_answer_is_taken_out_of_what_an_agent_printed(world: World) -> None:
    printed = f"All done.\n\n{fenced(handback('complete'))}\nTokens 4k\n"
    assert world.orch("handback", "t1", "--extract", stdin=printed) == handback("complete")
    (world.folder / "out").write_text(printed)
    found = json.loads(world.orch("handback", "t1", "out", "--extract", "--json"))["data"]
    assert (found["status"], found["form"], found["line"]) == ("success", "fenced", 4)
    world.orch("handback", "t2", "out", "--extract", code=8)
    assert "the answer is to 't1' and not to 't2'" in world.err
    world.orch("handback", "t1", "--extract", stdin="", code=8)
    assert "printed nothing" in world.err
