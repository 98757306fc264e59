"""The live view with real readers, real terminals and a real queue behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from orch.queue import Queue
from tests.conftest import World, eventually


class Reader:
    """A tail whose lines are collected as they come."""

    def __init__(self, world: World, *words: str) -> None:
        self.process = world.start("tail", *words)
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode())

    def has(self, text: str) -> None:
        eventually(lambda: any(text in line for line in list(self.lines)), f"a line with {text!r}")

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(30)
        self._thread.join(30)
        return code


def move(queue: Queue, mode: str = "ok", text: str = "") -> int:
    """One task that is added, claimed and done."""
    added = queue.add(mode, {"text": text})
    [task] = queue.claim(mode)
    queue.finish(task)
    return added.id


def test_a_pipe_gets_a_line_for_each_move_and_each_phase(world: World) -> None:
    world.orch("add", "ok")
    world.orch("add", "--cmd", "--", "false")
    tail = Reader(world, "-n", "0")
    # Whoever follows from here on may begin a moment later.
    eventually(lambda: _is_waiting(tail.process.pid), "the tail's wait")
    world.orch("fire", "--max-pool", "1")
    tail.has("fire 1 passed: Fire 1: ")
    assert tail.end() == 128 + signal.SIGTERM
    told = [line.rstrip().split("Z ", 1)[1] for line in tail.lines]
    assert told[:5] == [f"fire 1 {phase}" for phase in ("opened", "hygiene", "decide", "fan_out", "barrier")]
    assert "task 1 ok: incoming → processing, w1" in told
    assert "task 1 ok: processing → done, w1" in told
    assert told[-2:] == ["fire 1 rollup", "fire 1 passed: Fire 1: 1 done"]


def test_json_lines_are_one_object_each(world: World) -> None:
    world.queue.add("ok", key="a [key]")
    [task] = world.queue.claim("ok")
    world.queue.fail(task, "because\n\x1b[31m of this")
    lines = world.orch("tail", "--no-follow", "--json").splitlines()
    objects = [json.loads(line) for line in lines]
    assert [(each["schema_version"], each["type"]) for each in objects] == [(1, "move")] * 2
    assert objects[1]["data"]["reason"] == "because\n\x1b[31m of this"
    assert objects[1]["data"]["key"] == "a [key]"
    [_, line] = world.orch("tail", "--no-follow").splitlines()
    assert line.endswith("task 1 (a [key]) ok: processing → failed, test: because\\n\\x1b[31m of this")


@pytest.mark.full
def test_it_begins_so_many_moves_back_or_at_a_time_and_shows_one_mode(world: World) -> None:
    for mode in ("ok", "ran") * 4:
        move(world.queue, mode)
    assert len(world.orch("tail", "--no-follow").splitlines()) == 10
    assert len(world.orch("tail", "--no-follow", "-n", "3").splitlines()) == 3
    assert world.orch("tail", "--no-follow", "-n", "0") == ""
    assert len(world.orch("tail", "--no-follow", "--since", "1h").splitlines()) == 16
    assert len(world.orch("tail", "--no-follow", "--since", "1h", "--mode", "ran").splitlines()) == 8
    assert len(world.orch("tail", "--no-follow", "--since", "1h", "-n", "2").splitlines()) == 2
    assert world.orch("tail", "--no-follow", "--since", "2999-01-01") == ""
    assert len(world.orch("tail", "--no-follow", "--since", "2020-01-01T00:00Z").splitlines()) == 16
    world.orch("tail", "--since", "yesterday", code=2)
    assert "neither a span such as 15m" in world.err


def test_nothing_is_left_out_of_a_burst(world: World) -> None:
    with world.queue.transaction(durable=False):
        for _ in range(1500):
            move(world.queue)
    assert len(world.orch("tail", "--no-follow", "--since", "1h").splitlines()) == 3000


def test_a_reader_that_has_enough_ends_it_at_once_though_nothing_happens(world: World) -> None:
    move(world.queue)
    ran = subprocess.run(
        ["bash", "-c", '"$@" | head -1; echo ${PIPESTATUS[0]}', "-", *world.words("tail")],
        cwd=world.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = ran.stdout.splitlines()
    assert (len(lines), lines[1], ran.stderr) == (2, "141", "")
    # Idle, with nothing that could be written to the closed pipe.
    tail = world.start("tail", "-n", "0")
    eventually(lambda: _is_waiting(tail.pid), "the tail's wait")
    assert tail.stdout is not None
    tail.stdout.close()
    assert tail.wait(30) == 141
    tail.stdout = None


def test_a_queue_that_is_replaced_is_followed_on(world: World) -> None:
    def forget() -> None:
        """What belongs to the file that is gone: no other one can be whole beside it."""
        for name in ("-wal", "-shm"):
            Path(world.database + name).unlink(missing_ok=True)

    move(world.queue)
    tail = Reader(world)
    tail.has("task 1 ok")
    other = str(world.folder / "other.db")
    with Queue.open(other, create=True) as fresh:
        fresh.add("ran")
    os.replace(other, world.database)
    forget()
    with Queue.open(world.database) as fresh:
        [task] = fresh.claim("ran")
        fresh.finish(task)
    tail.has("task 1 ran: processing → done")
    os.unlink(world.database)
    forget()
    with Queue.open(world.database, create=True) as fresh:
        move(fresh, "fail")
    tail.has("task 1 fail: processing → done")
    tail.end()
    assert tail.process.stderr is not None
    said = tail.process.stderr.read().decode()
    assert "the queue was replaced by another file" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("tasks", [300, pytest.param(3000, marks=pytest.mark.full)])
def test_neither_a_reader_that_stops_reading_nor_an_idle_one_pins_the_log(world: World, tasks: int) -> None:
    move(world.queue)
    blocked = world.start("tail", "-n", "1000000")
    idle = world.start("tail", stdout=subprocess.DEVNULL)
    wal, most = Path(world.database + "-wal"), 0
    eventually(lambda: _is_waiting(idle.pid), "the idle tail's wait")
    for _ in range(tasks):
        task = world.queue.add("ok", {"text": "x" * 4096})
        world.queue.finish(world.queue.claim("ok")[0])
        most = max(most, wal.stat().st_size)
    assert task.id == tasks + 1
    assert most <= 20 * 1024 * 1024, "sixteen megabytes are written before the log begins again"
    assert (blocked.poll(), idle.poll()) == (None, None)
    # Both still follow, and neither stands in the way of cutting the log to nothing.
    assert world.queue.database.truncate_wal()  # type: ignore[attr-defined]
    assert wal.stat().st_size == 0


def test_a_missing_queue_is_an_error_that_says_so(world: World) -> None:
    world.orch("tail", code=3)
    assert "orch init" in world.err


# On a terminal


def test_the_screen_follows_a_fire_survives_a_resize_and_leaves_nothing_behind(world: World, terminal: Any) -> None:
    world.settings("", modes='[modes."a [mode]"]\nfunction = "work:wait_for"')
    world.orch("add", "a [mode]", "file=go", "--key", "the [first]")
    world.orch("add", "ok", "--in", "1h")
    terminal.start(80, 24, "tail")
    terminal.wait_for("no fire is running, and none has yet")
    fire = world.start("fire")
    screen = terminal.wait_for("a [mode]: task 1 (the [first])")
    assert any("fire 1" in line and "> barrier" in line for line in screen)
    assert any("0 of 1" in line and "left" in line for line in screen)
    assert any("a [mode]: 1 running" in line for line in screen)
    assert any("ok: 1 later" in line for line in screen)
    terminal.resize(40, 12)
    screen = terminal.wait_for("0 of 1")
    assert any("> barrier" in line for line in screen)
    assert max(len(line) for line in screen) <= 40
    terminal.resize(100, 30)
    terminal.wait_for("task 1 (the [first]) a [mode]: processing, w1")
    (world.folder / "go").touch()
    assert fire.wait(60) == 0
    terminal.wait_for("fire 1 passed: Fire 1: 1 done")
    terminal.press("q")
    terminal.wait_for("exit code 0")


def test_control_c_ends_the_screen_with_130(world: World, terminal: Any) -> None:
    move(world.queue)
    terminal.start(60, 15, "tail")
    terminal.wait_for("task 1 ok: done")
    terminal.press("C-z")
    terminal.press("C-c")
    screen = terminal.wait_for("exit code 130")
    assert not any("task 1" in line for line in screen)


def _is_waiting(pid: int) -> bool:
    """Whether a tail has come so far that it is told of changes."""
    try:
        return any("inotify" in os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
