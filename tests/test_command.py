"""Running a command: its input, its output, its time, and its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from orch.work import command
from orch.work.command import CannotRun, describe_exit, fill, run
from orch.work.output import Capture
from tests.scenarios.test_fire import running


def test_each_word_stays_one_word_whatever_the_payload_holds() -> None:
    payload = {"path": "a b; rm -rf *", "n": 2**70, "deep": {"x": [1]}, "yes": True, "none": None}
    assert fill(["{path}", "n={n}", "{deep}", "{yes}{none}", "{{path}}", "{}"], payload) == [
        "a b; rm -rf *",
        f"n={2**70}",
        '{"x":[1]}',
        "truenull",
        "{path}",
        "{}",
    ]


@pytest.mark.parametrize("payload", [{}, [], "text", None])
def test_a_field_that_the_payload_lacks_is_named(payload: object) -> None:
    with pytest.raises(CannotRun, match="'path'"):
        fill(["{path}"], payload)


def test_a_command_reads_exactly_its_input_and_then_the_end() -> None:
    data = os.urandom(500_000)
    ran = run(["cat"], stdin=data, cap=2_000_000)
    assert (ran.exit_code, ran.out.content(), ran.err.size) == (0, data, 0)


def test_a_command_that_does_not_read_its_input_is_not_held_up_by_it() -> None:
    ran = run(["true"], stdin=b"x" * 5_000_000)
    assert ran.exit_code == 0


def test_output_on_both_streams_at_once_does_not_block() -> None:
    script = "head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"
    ran = run(["sh", "-c", script], cap=1024)
    assert (ran.exit_code, ran.out.size, ran.err.size) == (0, 3_000_000, 6_000_000)
    assert len(ran.err.content()) < 1200


def test_a_command_is_ended_at_its_timeout_even_if_it_ignores_being_asked() -> None:
    ran = run(["sh", "-c", "trap '' TERM; echo begun; sleep 1006 & wait; sleep 1006"], timeout=0.5, grace=0.3)
    assert (ran.cut, ran.left) == ("timeout", [])
    assert ran.out.text() == "begun\n"
    assert not running("sleep 1006")


def test_a_child_in_a_session_of_its_own_is_ended_too() -> None:
    ran = run(["sh", "-c", "setsid sleep 1007 & sleep 1007"], timeout=0.5, grace=0.3)
    assert (ran.cut, ran.left) == ("timeout", [])
    assert not running("sleep 1007")


def test_an_endless_flood_is_ended_at_its_timeout_in_bounded_memory() -> None:
    ran = run(["yes"], timeout=0.5, grace=0.5, cap=4096)
    assert ran.cut == "timeout"
    assert ran.out.size > 4096
    assert len(ran.out.content()) < 4200


def test_a_reason_to_cut_ends_the_command() -> None:
    ran = run(["sleep", "1008"], cut=lambda: "stopped", grace=1)
    assert (ran.cut, running("sleep 1008")) == ("stopped", [])


@pytest.mark.parametrize(
    ("words", "folder", "told"),
    [
        ([], None, "no words"),
        (["no-such-program"], None, "no program 'no-such-program' on PATH="),
        (["true"], "/no/such/folder", "working folder /no/such/folder does not exist"),
        (["a\0b"], None, "NUL"),
        (["true", "x" * 3_000_000], None, "too long"),
        (["/dev/null"], None, "may not be run"),
    ],
)
def test_what_cannot_be_started_says_why(words: list[str], folder: str | None, told: str) -> None:
    with pytest.raises(CannotRun, match=told):
        run(words, folder=folder)


def test_a_command_leads_a_group_of_its_own() -> None:
    ran = run([sys.executable, "-c", "import os; print(os.getpgrp() == os.getpid() == os.getsid(0))"])
    assert ran.out.text() == "True\n"


def test_a_command_has_the_folder_and_environment_that_it_is_given(tmp_path: Path) -> None:
    ran = run(["sh", "-c", "pwd; echo $MARK"], folder=str(tmp_path), environment={**os.environ, "MARK": "x"})
    assert ran.out.text() == f"{tmp_path}\nx\n"


def test_an_exit_is_told_in_words() -> None:
    assert [describe_exit(code) for code in (3, -9, -64)] == ["exit 3", "killed by SIGKILL", "killed by SIGRTMAX"]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_capture_keeps_both_ends_and_the_true_size(piece: int) -> None:
    data = bytes(range(256)) * 40
    capture = Capture(1000)
    for at in range(0, len(data), piece):
        capture.feed(data[at : at + piece])
    assert capture.size == len(data)
    assert capture.content() == data[:500] + b"\n[cut: 10240 bytes in all]\n" + data[-500:]


def test_a_capture_below_its_cap_is_whole() -> None:
    capture = Capture(1000)
    capture.feed(b"x" * 999)
    assert (capture.cut, capture.content()) == (False, b"x" * 999)


@pytest.mark.parametrize("moment", ["its start is told", "it has just started"])
def test_a_signal_at_any_moment_of_a_commands_start_leaves_nothing(monkeypatch: Any, moment: str) -> None:
    class Came(BaseException):
        pass

    def come(*_: object) -> None:
        raise Came

    started = []

    def start_and_come(*words: Any) -> Any:
        started.append(start(*words))
        raise Came

    start = command._start
    if moment == "it has just started":
        monkeypatch.setattr(command, "_start", start_and_come)
    with pytest.raises(Came):
        run(["sleep", "1030"], began=come)
    assert not running("sleep 1030")
    for child in started:
        command._let_go(child)
