"""Whatever a task comes up with ends as a recorded outcome, and the next task runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from orch.queue import Queue
from tests.conftest import World
from tests.scenarios.test_fire import notes

WAYS = """
import os, signal, sys, threading
import orch

class Silent(Exception):
    def __str__(self): raise RuntimeError("no text")

class Leaving(Exception):
    def __str__(self): sys.exit(3)

class Dear(Exception):
    @property
    def metrics(self): raise KeyError("no price")

class Later(orch.NotNow):
    def __init__(self): pass

class Never(orch.NotNow):
    def __init__(self):
        super().__init__("later")
        self.retry_after = float("nan")

class Odd(dict):
    def items(self): sys.exit(4)
    def get(self, *_): raise LookupError("odd")

class Loud(int):
    def __repr__(self): raise ValueError("loud")

def raise_(error): raise error

def deep(n):
    found = []
    for _ in range(n): found = [found]
    return found

def cycle():
    found = []
    found.append(found)
    return found

def silent(task): raise Silent
def leaving(task): raise Leaving
def dear(task): raise Dear("too dear")
def later(task): raise Later
def never(task): raise Never
def odd(task): return Odd(a=1)
def loud(task): return {"n": Loud(7)}
def nested(task): return deep(100_000)
def round_(task): return cycle()
def huge(task): return "x" * 20_000_000
def long(task): raise ValueError("y" * 1_000_000)
def nul(task): raise ValueError("a\\0b \\ud800 \\x1b[31m")
def group(task): raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
def generator(task): yield 1
def memory(task): raise MemoryError
def recursion(task): return recursion(task)
def closes(task): sys.stdout.close(); os.close(2); return "closed"
def replaces(task): sys.stdout = None; sys.stderr = "nothing"; return "replaced"
def moves(task): os.mkdir("gone"); os.chdir("gone"); os.rmdir(os.getcwd()); return "moved"
def deafens(task): signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.alarm(1); return "deaf"
def threads(task):
    thread = threading.Thread(target=raise_, args=(SystemExit(1),))
    thread.start(); thread.join()
    return "thread"
def prints(task): print("heard", os.path.basename(os.getcwd())); return 1
"""

FAILS = {
    "silent": "Silent: (its message cannot be shown)",
    "leaving": "Leaving: (its message cannot be shown)",
    "dear": "Dear: too dear",
    "later": "AttributeError",
    "never": "retry_after nan is not a number of seconds",
    "odd": "SystemExit: 4",
    "nested": "result is not JSON",
    "round_": "result is not JSON",
    "huge": "20,000,002 characters",
    "long": "(1,000,000 characters in all)",
    "nul": "ValueError: a\0b \\ud800",
    "group": "ExceptionGroup: several",
    "generator": "result is not JSON",
    "memory": "MemoryError",
    "recursion": "RecursionError",
}
WORKS = ("loud", "closes", "replaces", "moves", "deafens", "threads")


def test_whatever_a_function_comes_up_with_the_next_one_runs(world: World) -> None:
    (world.folder / "ways.py").write_text(WAYS + "\ndef any(task): return globals()[task.payload['way']](task)\n")
    world.settings("", limits="task_cap = 1000", modes='[modes.any]\nfunction = "ways:any"')
    expected = {}
    for way in (*FAILS, *WORKS):
        for name in (way, "prints"):
            expected[int(world.queue.add("any", {"way": name}).id)] = name
    rollup = world.answer("fire", "--max-pool", "1")
    assert (rollup["missing"], rollup["broken"]) == ([], {})
    assert [(tally["done"], tally["failed"]) for tally in rollup["tallies"]] == [
        (len(WORKS) + len(expected) // 2, len(FAILS))
    ]
    for id, way in expected.items():
        [attempt] = world.queue.attempts(id)
        assert attempt.outcome == ("failed" if way in FAILS else "done"), (way, attempt)
        assert FAILS.get(way, "") in (attempt.error or ""), (way, attempt.error)
    for id in (id for id, way in expected.items() if way == "prints"):
        assert (world.folder / f".orch/output/0/{id}-1.out").read_text() == f"heard {world.folder.name}\n", id
    for words in (["list"], ["show", "11"], ["notes"], ["fires"], ["tail", "--no-follow"], ["status"]):
        world.orch(*words)
        world.orch(*words, "--json")
    assert len(notes(world)) == 1
    assert world.queue.database._connection.execute("pragma integrity_check").fetchall() == [("ok",)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("script", "ending", "written"),
    [
        ("printf '\\377\\376\\000\\033[2J'", "out", b"\xff\xfe\0\x1b[2J"),
        ("printf '\\355\\240\\200' >&2; exit 7", "err", b"\xed\xa0\x80"),
        ("printf '{\"a\": NaN}'", "out", b'{"a": NaN}'),
        ("printf '1e400'", "out", b"1e400"),
    ],
)
def test_whatever_bytes_a_command_writes_are_kept_and_shown_harmlessly(
    world: World, script: str, ending: str, written: bytes
) -> None:
    world.orch("add", "--cmd", "--", "sh", "-c", script)
    world.orch("fire")
    assert world.states()[1] == ("failed" if "exit" in script else "done")
    assert (world.folder / f".orch/output/0/1-1.{ending}").read_bytes() == written
    assert "\x1b[2J" not in world.orch("show", "1")
    world.orch("show", "1", "--json")


def test_a_result_of_any_kind_of_text_is_valid_json_for_the_database(queue: Queue, tmp_path: Path) -> None:
    for text in ("\0", "\ud800", "\U0010ffff", "\x7f", '"', "\\u0000"):
        queue.add("m", {"text": text})
        [task] = queue.claim("m")
        assert task.payload == {"text": text}
        assert queue.fail(task, text)
