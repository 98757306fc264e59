"""The command line as a person and a program meet it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import orch
from orch.cli import COMMANDS, cli, run
from tests.conftest import LIMIT, World, eventually

# Texts that a markup, an emoji or a terminal reader would change or choke on.
AWKWARD = [
    "missing [/etc/passwd]",
    "[/]",
    "list[int] a[red]b[i]",
    "root:x:0:0 host:100:1 :smile:",
    "ends with a backslash\\",
    "\x1b[31mred\x1b[0m \x07 \x9b31m",
    "line\nbreak\ttab",
    "naïve ✓ 日本",
]


def shown(text: str) -> str:
    """What is to be read of a text: itself, with control characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def test_init_makes_a_project_and_doing_it_again_is_harmless(world: World) -> None:
    (world.folder / "orch.toml").unlink()
    first = world.orch("init")
    assert "wrote orch.toml" in first
    assert first.count("\\% mine") == 3, "three crontab lines, percent signs escaped"
    text = (world.folder / "orch.toml").read_text()
    again = world.orch("init")
    assert "kept orch.toml as it is" in again
    assert (world.folder / "orch.toml").read_text() == text
    assert world.orch("list") == "no tasks\n"


def test_the_crontab_lines_run_as_cron_runs_them(world: World) -> None:
    lines = world.answer("init")["crontab"]
    for line in lines:
        # Cron takes a backslash from a percent sign and gives the rest to sh.
        command = line.split(None, 5)[5].replace("\\%", "%")
        ran = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "HOME": "/"},
            capture_output=True,
            timeout=120,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b""), command


def test_add_takes_words_json_and_lines(world: World) -> None:
    assert world.orch("add", "ok", "path=a b", "n:=1.10", 'deep:={"x": [1]}', "empty=") == "1\n"
    assert world.queue.task(1).payload_text == '{"path":"a b","n":1.10,"deep":{"x": [1]},"empty":""}'
    assert world.orch("add", "ok", "--payload", '{"id": 9223372036854775808, "u": 18446744073709551615}') == "2\n"
    assert world.queue.task(2).payload_text == '{"id": 9223372036854775808, "u": 18446744073709551615}'
    line = '{"mode": "ok", "payload": {"n": 0.10}, "key": "k", "priority": 5, "in": "1h", "after": [1]}'
    lines = line + '\n\n{"mode": "ok"}\n'
    assert world.orch("add", "--from", "-", stdin=lines) == "added 2 tasks (3 to 4)\n"
    task = world.queue.task(3)
    assert (task.payload_text, task.key, task.priority, task.blocked) == ('{"n": 0.10}', "k", 5, 1)
    assert task.due_at is not None
    assert world.orch("add", "--from", "-", stdin='{"mode": "ok", "payload": {"n": 0.10}, "key": "k"}') == (
        "added 0 tasks, 1 were there\n"
    )


def test_the_same_key_again_is_the_same_task_and_another_payload_a_conflict(world: World) -> None:
    assert world.orch("add", "ok", "n:=1", "--key", "k") == "1\n"
    assert world.answer("add", "ok", "n:=1", "--key", "k") == {"id": 1, "new": False}
    world.orch("add", "ok", "n:=2", "--key", "k", code=9)
    assert "the key 'k' stands for task 1" in world.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["add"], "name a mode"),
        (["add", "ok", "novalue"], "'novalue' is not of the form k=v"),
        (["add", "ok", "x:={"], "the value of 'x' is not valid JSON"),
        (["add", "ok", "--payload", '{"x": NaN}'], "NaN is not JSON"),
        (["add", "ok", "--payload", '{"x": 1, "x": 2}'], "'x' stands twice"),
        (["add", "ok", "x=1", "x=2"], "'x' is given twice"),
        (["add", "--cmd"], "--cmd needs the words"),
        (["add", "ok", "--in", "soon"], "not a duration"),
        (["add", "ok", "--at", "noon"], "not a time"),
        (["add", "ok", "--in", "1h", "--at", "2026-01-01"], "either --in or --at"),
        (["add", "ok", "--priority", "101"], "--priority"),
        (["add", "ok", "--timeout", "0"], "above 0"),
        (["add", "--from", "none.jsonl"], "none.jsonl"),
        (["add", "-x"], "No such option"),
        (["list", "--state", "[red]nonsense"], "'[red]nonsense' is not a state: use one of incoming"),
        (["frie"], "No such command 'frie'"),
        (["pause"], "name one mode, or give --all"),
        (["fire", "--ok", "x"], "not a list of exit codes"),
    ],
)
def test_a_wrong_call_says_what_to_do_and_exits_with_2(world: World, words: list[str], told: str) -> None:
    world.orch(*words, code=2)
    assert told in world.err
    assert world.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2 is not valid JSON"),
        ("[]", "line 2 must be an object"),
        ('{"mode": 5}', "line 2 must be an object"),
        ('{"mode": "ok", "payloads": {}}', "line 2 has the unknown field 'payloads'"),
        ('{"mode": "ok", "priority": "high"}', "line 2: priority 'high' is not a whole number"),
        ('{"mode": "ok", "payload": NaN}', "line 2 is not valid JSON"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_added(world: World, line: str, told: str) -> None:
    world.orch("init")
    world.orch("add", "--from", "-", stdin='{"mode": "ok"}\n' + line, code=2)
    assert told in world.err
    assert world.orch("list") == "no tasks\n"


def test_errors_are_json_where_json_is_asked_for(world: World) -> None:
    world.orch("init")
    for words, code, kind in (
        (["show", "7"], 3, "not_found"),
        (["list", "--state", "x"], 2, "usage"),
        (["nope"], 2, "usage"),
    ):
        world.orch(*words, "--json", code=code)
        if words != ["nope"]:
            error = json.loads(world.err)["error"]
            assert (error["kind"], error["exit_code"]) == (kind, code)


@pytest.mark.parametrize(
    "command",
    sorted(
        set(COMMANDS)
        - {"add", "init", "show", "log", "retry", "cancel", "pause", "resume", "tail"}
        - {"delegate", "handback", "heartbeat", "answer", "wake"}
    ),
)
def test_every_answer_is_one_json_envelope_with_its_version(world: World, command: str) -> None:
    world.orch("init")
    world.orch("add", "ok")
    envelope = json.loads(world.orch(command, "--json"))
    assert envelope["schema_version"] == 1
    assert "data" in envelope


def test_text_of_tasks_is_shown_exactly_and_never_obeyed(world: World) -> None:
    for text in AWKWARD:
        world.queue.add("fail", {"text": text})
        world.queue.add("ok", [text])
    world.orch("fire")
    listed, notes = world.orch("list"), world.orch("notes")
    for number, text in enumerate(AWKWARD):
        id, error = 2 * number + 1, f"ValueError: {text}"
        assert world.queue.attempts(id)[0].error == error
        for told in (world.orch("show", str(id)), notes):
            assert "".join(shown(error).split()) in "".join(told.split())
            assert "\x07" not in told
        assert shown(world.queue.task(id + 1).payload_text) in listed
    for told in (listed, notes, world.orch("status"), (world.folder / ".orch" / "notes.md").read_text()):
        assert "\x1b" not in told


@pytest.mark.full
def test_names_with_markup_are_shown_exactly(world: World) -> None:
    texts = ["list[int] a[red]b[i]", "root:x:0:0", "[/]"]
    for text in texts:
        world.queue.add(text, key=text)
        world.orch("pause", text, "--reason", text)
    world.orch("fire")
    for words in (["list"], ["status"], ["notes"]):
        told = world.orch(*words)
        assert all(text in told for text in texts), words
    assert all(text in world.orch("show", text) for text in texts)


def test_show_tells_the_attempts_and_moves_of_a_task(world: World) -> None:
    world.orch("add", "fail", "text=out of paper", "--key", "report")
    world.orch("fire")
    told = world.orch("show", "report")
    for part in ("report", "failed", "ValueError: out of paper", "incoming", "processing", "w1"):
        assert part in told
    data = world.answer("show", "1")
    assert (data["attempts"][0]["outcome"], len(data["events"])) == ("failed", 2)


def test_retry_queues_ended_tasks_again_and_takes_all_or_none(world: World) -> None:
    world.orch("add", "fail")
    world.orch("add", "ok", "--in", "1h")
    world.orch("fire")
    world.orch("retry", "1", "2", code=9)
    assert "task 2 is incoming" in world.err
    assert world.queue.task(1).state == "failed"
    assert world.orch("retry", "1") == "task 1 is queued again\n"
    world.orch("cancel", "2")
    world.orch("cancel", "2", code=9)
    world.orch("cancel", "99", code=3)


def test_pause_holds_a_mode_and_the_status_says_why(world: World) -> None:
    world.orch("add", "ok")
    world.orch("pause", "ok", "--reason", "upstream is down")
    assert "paused: upstream is down" in world.orch("status")
    world.orch("fire")
    assert world.states() == {1: "incoming"}
    assert world.orch("resume", "ok") == "ok is resumed\n"
    assert world.orch("resume", "--all") == "nothing was paused\n"


def test_list_takes_both_vocabularies_and_pages(world: World) -> None:
    world.orch("add", "--from", "-", stdin='{"mode": "ok"}\n' * 7)
    assert [task["id"] for task in world.answer("list", "-n", "3", "--before", "6")] == [5, 4, 3]
    assert len(world.answer("list", "--state", "queued")) == 7
    assert len(world.answer("list", "--state", "incoming", "--mode", "ok")) == 7
    assert world.answer("list", "--state", "done") == []


def test_the_status_counts_every_mode_and_what_the_caps_leave(world: World) -> None:
    world.orch("add", "ok")
    world.orch("add", "fail")
    world.orch("add", "ok", "--in", "1h")
    world.orch("fire")
    modes = {mode["mode"]: mode for mode in world.answer("status")["modes"]}
    assert (modes["ok"]["done"], modes["ok"]["backlog"]["delayed"], modes["fail"]["failed"]) == (1, 1, 1)
    told = world.orch("status")
    assert "1 of 1000 fires used today" in told
    assert "needs a person: 1 task failed" in told


@pytest.mark.full
def test_the_watchdog_is_quiet_until_a_fire_is_overdue_and_exits_with_7_then(world: World) -> None:
    world.orch("init")
    assert "all is well" in world.orch("watchdog")
    world.settings("[watchdog]\nexpected_interval_hours = 0.0000001\ngrace_minutes = 0")
    world.orch("watchdog", "-q", code=7)
    assert "the fleet is dark" in world.err
    world.orch("fire")
    world.settings("")
    assert "the last successful fire was 1" in world.orch("watchdog")
    world.orch("watchdog", "--db", "missing.db", code=7)
    (world.folder / "text.db").write_text("hello world")
    world.orch("watchdog", "--db", "text.db", code=7)


@pytest.mark.parametrize("words", [["list"], ["add", "m"], ["fire"], ["sweep"], ["status"], ["notes"]])
def test_a_file_of_a_newer_program_or_of_none_is_refused_with_10(world: World, words: list[str]) -> None:
    world.orch("init")
    world.queue.database._connection.execute("pragma user_version = 9999").fetchall()  # type: ignore[attr-defined]
    world.orch(*words, code=10)
    assert "newer orch" in world.err
    assert world.err.count("\n") == 1
    (world.folder / "text.db").write_text("hello world")
    world.orch(*words, "--db", "text.db", code=10)
    assert (world.folder / "text.db").read_text() == "hello world"


def test_nothing_there_is_an_error_that_says_how_to_begin(tmp_path: Path) -> None:
    for words in (["list"], ["add", "m"], ["fire"]):
        ran = subprocess.run(
            [sys.executable, "-m", "orch", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 3
        assert "orch init" in ran.stderr
    assert list(tmp_path.iterdir()) == []


# Pipes and terminals


@pytest.mark.parametrize("rows", [1500, pytest.param(5000, marks=pytest.mark.full)])
@pytest.mark.full
def test_a_reader_that_has_enough_is_no_failure(world: World, rows: int) -> None:
    world.orch(
        "add", "--from", "-", stdin="".join(f'{{"mode": "ok", "key": "{"k" * 35}{i:06}"}}\n' for i in range(rows))
    )
    script = f'"{sys.executable}" -m orch list -n {rows} | head -1; echo "${{PIPESTATUS[0]}}"'
    ran = subprocess.run(["bash", "-c", script], cwd=world.folder, capture_output=True, text=True, timeout=120)
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] == "141"
    listed = world.orch("list", "-n", str(rows), env={"COLUMNS": "20"})
    assert all(f"{'k' * 35}{i:06}" in listed for i in (0, rows // 2, rows - 1)), "a key is never shortened in a pipe"


def test_output_that_cannot_be_written_is_one_line_and_a_failure(world: World) -> None:
    world.orch("add", "ok")
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            world.words("list"), cwd=world.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert ran.returncode == 1
    assert ran.stderr == "orch: the output cannot be written: No space left on device\n"


def test_a_closed_output_and_no_colour_are_no_problem(world: World) -> None:
    world.orch("add", "ok")
    script = f'"{sys.executable}" -m orch list 2>&1 >&-'
    ran = subprocess.run(["bash", "-c", script], cwd=world.folder, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "\x1b" not in world.orch("list", env={"NO_COLOR": "1"})


def test_a_fire_works_without_any_of_the_standard_streams(world: World) -> None:
    world.orch("add", "--cmd", "--", "echo", "hello")
    program = shlex.join(world.words("fire"))
    assert subprocess.run(["sh", "-c", f"{program} <&- >&- 2>&-"], cwd=world.folder, timeout=LIMIT).returncode == 0
    assert world.orch("log", "1") == "hello\n"


def screen(name: str) -> str:
    return subprocess.run(["tmux", "-L", name, "capture-pane", "-p"], capture_output=True, text=True, timeout=10).stdout


@pytest.mark.skipif(
    subprocess.run(["which", "tmux"], capture_output=True).returncode != 0, reason="tmux is not installed"
)
@pytest.mark.parametrize("width", [40, pytest.param(100, marks=pytest.mark.full)])
def test_a_fire_on_a_terminal_shows_its_progress_and_ends_with_the_table(world: World, width: int) -> None:
    for _ in range(3):
        world.orch("add", "mixed", "do=1")
    world.orch("add", "wait_for", "file=go")
    name = f"orch-test-{os.getpid()}-{width}"
    tmux = ["tmux", "-L", name]
    shell = ["env", "-i", f"PATH={os.environ['PATH']}", "LANG=C.UTF-8", "TERM=xterm-256color", "PS1=$ ", "sh"]
    subprocess.run(
        [*tmux, "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", "30", *shell],
        cwd=world.folder,
        check=True,
    )
    try:
        subprocess.run([*tmux, "send-keys", f"'{sys.executable}' -m orch fire", "Enter"], check=True)
        eventually(lambda: "3 of 4" in screen(name), "the live line")
        assert "█" in screen(name)
        (world.folder / "go").touch()
        eventually(lambda: "fire 1: passed" in screen(name), "the table")
        final = eventually(lambda: screen(name) if screen(name).rstrip().endswith("$") else "", "the prompt")
        assert "3 of 4" not in final, "the live line is gone"
        assert re.search(r"mixed\s+\d", final)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


# Help


def test_every_command_has_help_with_its_options() -> None:
    for name, (line, _) in COMMANDS.items():
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0, name
        assert "--json" in result.output
        assert line in CliRunner().invoke(cli, ["--help"]).output


def test_the_version_is_told_from_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"orch {orch.__version__}, Python 3.")
