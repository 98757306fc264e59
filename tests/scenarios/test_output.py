"""What tasks write and read: bounded, followed while it comes, and exactly what is meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orch.work import output
from orch.work.output import Capture, Spool
from tests.conftest import World, eventually
from tests.scenarios.test_fire import running


def following(world: World, *words: str) -> subprocess.Popen[bytes]:
    """``orch log -f``, with what it prints in the file ``followed``."""
    with (world.folder / "followed").open("wb") as file:
        return world.start("log", "-f", *words, stdout=file)


def followed(world: World) -> str:
    return (world.folder / "followed").read_text()


@pytest.mark.full
def test_a_running_command_is_followed_to_its_end(world: World) -> None:
    script = "echo one; echo err >&2; until test -e go; do sleep 0.05; done; echo two"
    world.orch("add", "--cmd", "--", "sh", "-c", script)
    follower = following(world, "1")
    assert follower.stderr is not None
    assert b"waits to be started" in follower.stderr.readline()
    fire = world.start("fire")
    eventually(lambda: followed(world) == "one\n", "the first line")
    world.orch("log", "1", code=3)
    assert "orch log -f 1" in world.err
    (world.folder / "go").touch()
    assert follower.wait(60) == 0
    assert fire.wait(60) == 0
    assert followed(world) == "one\ntwo\n"
    # An attempt that has ended is printed, and that is all.
    assert world.orch("log", "-f", "1", "--err") == "err\n"
    assert json.loads(world.orch("log", "-f", "1", "--json"))["data"] == {"out": "one\ntwo\n"}
    world.orch("log", "-f", "1", "--attempt", "9", code=3)
    assert "no attempt 9" in world.err
    world.orch("log", "1", "--attempt", "0", code=2)


def test_a_letter_that_comes_in_two_pieces_is_one_letter_for_who_follows_as_json(world: World) -> None:
    script = "printf 'caf\\303'; until test -e go; do sleep 0.05; done; printf '\\251'"
    world.orch("add", "--cmd", "--", "sh", "-c", script)
    fire = world.start("fire")
    follower = following(world, "1", "--json")
    eventually(lambda: "caf" in followed(world), "the first piece")
    (world.folder / "go").touch()
    assert (follower.wait(60), fire.wait(60)) == (0, 0)
    assert "".join(json.loads(line)["data"]["out"] for line in followed(world).splitlines()) == "café"


def test_a_running_function_is_followed_and_so_is_only_its_own_attempt(world: World) -> None:
    do = "do=[print('said'), time.sleep(0.3), wait_for(task)]"
    world.orch("add", "mixed", "do=print('before')", "--priority", "1")
    world.orch("add", "mixed", do, "file=go")
    fire = world.start("fire", "--max-pool", "1")
    follower = following(world, "2")
    eventually(lambda: "said" in followed(world), "the first line")
    (world.folder / "go").touch()
    assert (follower.wait(60), fire.wait(60)) == (0, 0)
    assert followed(world) == "said\n"


def test_the_follower_of_a_task_that_is_cancelled_before_it_began_ends(world: World) -> None:
    world.orch("add", "ok")
    follower = following(world, "1")
    assert follower.stderr is not None
    follower.stderr.readline()
    world.orch("cancel", "1")
    assert follower.wait(60) == 0


def test_a_command_whose_worker_is_killed_leaves_its_last_words(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "echo last words; echo >&2 and more; echo >> ran; exec sleep 2020")
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    [worker] = world.queue.ledger.present()
    eventually(lambda: output.read_spool(str(world.folder / ".orch"), worker.id, "err", 0)[0], "the last words")
    os.kill(worker.pid, 9)
    assert fire.wait(60) == 0
    assert world.orch("log", "1") == "last words\n"
    assert world.orch("log", "1", "--err") == "and more\n"
    assert not running("sleep 2020")


@pytest.mark.parametrize("size", [20_000_000, pytest.param(500_000_000, marks=pytest.mark.full)])
def test_a_flood_costs_neither_disk_nor_database(world: World, size: int) -> None:
    world.settings("", limits="output_cap = 100_000")
    world.orch("add", "--cmd", "--", "sh", "-c", f"echo begin; yes | head -c {size}; echo end; sleep 0.3")
    flood = f"[print('y' * 99_999) for _ in range({size // 100_000})] and time.sleep(1.5)"
    memory = "note('memory', [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].strip())"
    world.orch("add", "mixed", f"do=[{flood}, {memory}]")
    world.orch("add", "--cmd", "--", "sh", "-c", "grep VmHWM /proc/$PPID/status >> memory")
    state = world.folder / ".orch"
    fire = world.start("fire")
    command = function = 0
    while fire.poll() is None:
        workers = {worker.id: worker.mode for worker in world.queue.ledger.present()}
        for id, mode in workers.items():
            spool = sum(allocated(state / "output" / f"w{id}.{ending}") for ending in output.ENDINGS)
            command = max(command, spool if mode == "run" else 0)
            function = max(function, spool if mode == "mixed" else 0)
        time.sleep(0.05)
    assert fire.returncode == 0
    assert set(world.states().values()) == {"done"}
    kept = world.orch("log", "1")
    assert kept.startswith("begin\n")
    assert kept.endswith("end\n")
    assert f"[cut: {size + 10} bytes in all]" in kept
    assert sum(path.stat().st_size for path in (state / "output").rglob("*-*")) < 2 * 100_000 + 1000
    assert Path(world.database).stat().st_size < 2_000_000
    # The function is looked at a few times a second, so that its spool holds what comes in between; of a command's
    # flood only what is kept reaches the disk.
    assert command < 1_000_000
    assert function < max(size, 100_000_000)
    peak = (int(line.split()[1]) * 1024 for line in world.lines("memory"))
    assert max(peak) < 120_000_000


def allocated(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def test_a_spool_holds_each_byte_at_its_place_and_lets_the_middle_go(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(output, "_SPOOL_PAUSE", 0.0)
    capture = Capture(40_000, Spool(str(tmp_path), 1, "out", 40_000))
    stream = b"".join(b"%09d\n" % number for number in range(50_000))
    for begin in range(0, len(stream), 30_011):
        capture.feed(stream[begin : begin + 30_011])
        capture.spool()
    path = Path(output.spool_path(str(tmp_path), 1, "out"))
    # What a killed worker leaves is what it would have kept itself.
    assert output.salvage(str(tmp_path), 1, 7, 2, 40_000) == output.name_of(7, 2)
    assert output.read(str(tmp_path), output.name_of(7, 2)) == {"out": capture.content()}
    assert b"\0" not in capture.content()
    assert path.stat().st_size == len(stream)
    assert path.read_bytes()[:20_000] == stream[:20_000]
    assert path.read_bytes()[-20_000:] == stream[-20_000:]
    assert allocated(path) < 200_000
    # Whoever reads it meets the head, a line that says what is missing, and the rest.
    pieces, place = [], 0
    while True:
        piece, behind = output.read_spool(str(tmp_path), 1, "out", place)
        if behind == place:
            break
        place = behind
        pieces.append(piece)
    read = b"".join(pieces)
    assert place == len(stream)
    assert read.startswith(stream[:20_000])
    assert read.endswith(stream[-20_000:])
    assert b"\0" not in read
    assert b"[cut: " in read


@pytest.mark.parametrize("place", [0, 10, 50, 60, 480, 500])
def test_what_is_stored_goes_on_where_the_follower_was(place: int) -> None:
    capture = Capture(100)
    stream = b"".join(b"%02d" % (number % 100) for number in range(250))
    capture.feed(stream)
    kept = capture.content()
    rest = output.behind(kept, place)
    assert stream.endswith(rest.rpartition(b"all]\n")[2])
    if place >= 450:
        assert rest == stream[place:]
    elif place >= 50:
        assert rest == kept[50:]
    else:
        assert rest == kept[place:]


# What tasks read


def test_nobody_waits_for_the_input_of_the_fire(world: World) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", "cat; echo done")
    world.orch("add", "mixed", "do=[__import__('subprocess').run('cat').returncode, os.read(0, 10).decode()]")
    fire = world.start("fire", stdin=subprocess.PIPE)
    assert fire.wait(60) == 0
    read = json.loads(world.queue.attempts(1)[0].result or "")
    assert read.endswith("done")
    assert json.loads(read.removesuffix("done"))["id"] == 1
    assert world.queue.attempts(2)[0].result == '[0,""]'


def test_a_payload_larger_than_a_word_reaches_a_command_on_its_input_or_is_refused_in_words(world: World) -> None:
    reads = f'{sys.executable} -c \'import json, sys; print(len(json.load(sys.stdin)["payload"]["text"]))\''
    world.settings("", modes=f'[modes.reads]\ncommand = ["sh", "-c", {json.dumps(reads)}]\n'
                             '[modes.words]\ncommand = ["echo", "{text}"]')  # fmt: skip
    line = json.dumps({"payload": {"text": "x" * 300_000}})
    for mode in ("reads", "words"):
        world.orch("add", "--from", "-", stdin=line.replace("{", f'{{"mode": "{mode}", ', 1))
    world.orch("fire")
    assert world.queue.attempts(1)[0].result == "300000"
    assert world.queue.task(2).state == "failed"
    error = world.queue.attempts(2)[0].error or ""
    assert "too long" in error
    assert "300,000 bytes" in error
    assert "standard input" in error


# What is let go


@pytest.mark.full
def test_output_goes_with_its_task(world: World) -> None:
    for key in ((), ("--key", "kept")):
        world.orch("add", "chatty", *key)
    world.orch("add", "ok")
    world.orch("add", "ok", "--after", "3")
    world.orch("add", "mixed", "do=1")
    world.orch("fire")
    world.orch("add", "ok", "--after", "9")
    # The one that moves last: it stays, as the numbers of the log must not begin again.
    world.queue.add("other")
    [task] = world.queue.claim("other")
    assert world.queue.finish(task)
    stray = world.folder / ".orch" / "output" / "0" / "77-1.out"
    stray.write_bytes(b"nobody's")
    assert "would prune 4 tasks and 3 files" in world.orch("prune", "--older", "0", "--dry-run")
    assert world.answer("prune", "--older", "1d") == {"tasks": 0, "files": 1, "size": 8, "kept": []}
    before = world.answer("status")["modes"]
    assert world.answer("prune", "--older", "0")["tasks"] == 4
    # The one with a key, the one that moved last, and those that have not ended.
    assert set(world.states()) == {2, 6, 7}
    assert not list((world.folder / ".orch" / "output").rglob("*-*"))
    world.orch("log", "kept", code=3)
    assert "it was pruned" in world.err
    after = world.answer("status")["modes"]
    assert [(mode["mode"], mode["done"]) for mode in after] == [(mode["mode"], mode["done"]) for mode in before]
    assert world.orch("prune", "--older", "0") == "pruned 0 tasks and 0 files (0 bytes)\n"
    world.orch("fire")
    assert world.queue.database._connection.execute("pragma integrity_check").fetchall() == [("ok",)]  # type: ignore[attr-defined]
