"""The one world that tests live in: a project in a temporary folder, with the real program to run on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

# Models that are first defined while time is frozen are broken for good.
import orch.settings_schema  # noqa: F401
from orch import kin, processes
from orch.queue import Queue
from orch.testing import CommandLine

T = TypeVar("T")

# Whoever runs the tests side by side says how wide its own terminal is; ours have widths of their own.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# The program that is tested: the built one where that is named, and these sources otherwise.
PROGRAM = [os.environ["BINARY"]] if os.environ.get("BINARY") else [sys.executable, "-m", "orch"]

# Commands that start and end nobody.
PLAIN = frozenset(
    ["add", "answer", "asks", "budget", "delegate", "fires", "list", "log", "notes", "pause", "resume", "retry", "show",
     "spans", "status", "tell"]
)  # fmt: skip

LIMIT = float(os.environ.get("LIMIT", 60))

WORK = '''
import os, signal, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))

def note(name, text):
    """One line in one write, so that lines of many processes do not mix."""
    descriptor = os.open(os.path.join(HERE, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (text + "\\n").encode())
    os.close(descriptor)

def ok(task):
    return task.payload

def ran(task):
    note("ran", f"{task.id} {os.getpid()}")

def fail(task):
    raise ValueError(task.payload.get("text", "no luck"))

def die(task):
    note("died", str(task.id))
    os.kill(os.getpid(), signal.SIGKILL)

def mixed(task):
    """Does what the payload says."""
    note("ran", f"{task.id} {os.getpid()}")
    return eval(task.payload["do"], globals())

def wait_for(task):
    """Until a file of that name stands in the project."""
    note("ran", f"{task.id} {os.getpid()}")
    while not os.path.exists(os.path.join(HERE, task.payload["file"])):
        time.sleep(0.01)

def chatty(task):
    print("hello from", task.id)
    print("and an error", file=sys.stderr)
'''


def eventually(condition: Callable[[], T], what: str = "the condition", limit: float = LIMIT) -> T:
    """Poll until a condition holds, and give what it returned; the limit is generous and only there to fail."""
    deadline = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {limit:g} s")
        time.sleep(0.01)


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended, though nobody may have collected it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class World:
    """A project folder with settings, work and a queue; `orch` runs the real program in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = str(folder / ".orch" / "orch.db")
        self.started: list[subprocess.Popen[bytes]] = []
        (folder / "work.py").write_text(WORK)
        self.settings("")

    def settings(self, extra: str, *, modes: str = "", limits: str = "", retry: str = "") -> None:
        """Write orch.toml: a mode for each function of the work module, and what the test adds."""
        functions = ["ok", "ran", "fail", "die", "mixed", "wait_for", "chatty"]
        tables = "\n".join(f'[modes.{name}]\nfunction = "work:{name}"' for name in functions)
        (self.folder / "orch.toml").write_text(
            'zone = "UTC"\n'
            f"[limits]\ndaily_fires = 1000\ngrace_sec = 1\n{limits}\n"
            f"[orchestrator]\nretry_backoff_base_sec = 0\n{retry}\n"
            f"{tables}\n{modes}\n{textwrap.dedent(extra)}\n"
        )

    @property
    def queue(self) -> Queue:
        """A connection to the project's queue, opened when first asked for."""
        if not hasattr(self, "_queue"):
            os.makedirs(os.path.dirname(self.database), exist_ok=True)
            self._queue = Queue.open(self.database, create=True, durability="normal", by="test")
        return self._queue

    def words(self, *words: str) -> list[str]:
        return [*PROGRAM, *words]

    def orch(
        self,
        *words: str,
        code: int = 0,
        stdin: str | None = None,
        env: dict[str, str] | None = None,
        limit: float = LIMIT,
    ) -> str:
        """Run the program to its end: its standard output. The exit code is checked, and that it shows no traceback.

        What only asks and moves runs in this process, which saves its start; what starts or ends others never does.
        """
        if words and words[0] in PLAIN and "BINARY" not in os.environ:
            own = {name: value for name, value in os.environ.items() if name.startswith("ORCH_")}
            done = CommandLine(str(self.folder))(*words, code=None, stdin=stdin or "", env={**own, **(env or {})})
            returncode, out, self.err = done.exit_code, done.out, done.err
        else:
            ran = subprocess.run(
                self.words(*words),
                cwd=self.folder,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=limit,
                env={**os.environ, **(env or {})},
            )
            returncode, out, self.err = ran.returncode, ran.stdout, ran.stderr
        assert "Traceback" not in self.err, self.err
        assert returncode == code, f"{words} exited with {returncode}: {out}{self.err}"
        return out

    def answer(self, *words: str, code: int = 0) -> Any:
        """The data of a command's JSON answer."""
        return json.loads(self.orch(*words, "--json", code=code))["data"]

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the program; whatever is left of it is killed after the test."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        process = subprocess.Popen(self.words(*words), cwd=self.folder, **options)
        self.started.append(process)
        return process

    def lines(self, name: str) -> list[str]:
        """The lines that tasks have written to a file of the project."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def states(self) -> dict[int, str]:
        return {task.id: task.state for task in self.queue.tasks(limit=10**6)}

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
        # A failed test may leave behind what the program would have ended later.
        for pid, marks in kin.marked():
            # What serves the pools that were opened in this very process goes on serving.
            if marks.get(kin.DATABASE_MARK) == self.database and processes.parent(pid) != os.getpid():
                os.kill(pid, signal.SIGKILL)
        if hasattr(self, "_queue"):
            self._queue.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A project in a folder whose name is as awkward as a name can be."""
    folder = tmp_path / "100% mine [x]"
    folder.mkdir()
    made = World(folder)
    yield made
    made.close()


@pytest.fixture
def queue(orch_queue: Queue) -> Queue:
    """An empty queue in a real file, as everybody's tests have it."""
    return orch_queue


@pytest.fixture
def terminal(world: World) -> Iterator[Any]:
    """A real terminal that runs a shell in the project; `show` gives its screen."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    socket = ["tmux", "-L", f"orch-{os.getpid()}", "-f", "/dev/null"]

    class Terminal:
        def start(self, width: int, height: int, *words: str) -> None:
            line = subprocess.list2cmdline(["env", *world.words(*words)])
            subprocess.run(
                [*socket, "new-session", "-d", "-x", str(width), "-y", str(height),
                 f"{line}; echo exit code $?; exec cat"],
                cwd=world.folder, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip

        def show(self) -> list[str]:
            shown = subprocess.run([*socket, "capture-pane", "-p"], capture_output=True, text=True, check=True)
            return shown.stdout.splitlines()

        def wait_for(self, text: str) -> list[str]:
            return eventually(
                lambda: any(text in line for line in self.show()) and self.show(), f"{text!r} on the screen"
            )

        def resize(self, width: int, height: int) -> None:
            subprocess.run([*socket, "resize-window", "-x", str(width), "-y", str(height)], check=True)

        def press(self, *keys: str) -> None:
            subprocess.run([*socket, "send-keys", *keys], check=True)

    yield Terminal()
    subprocess.run([*socket, "kill-server"], capture_output=True, check=False)
