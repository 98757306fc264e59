"""The built file itself, as it lies on a machine that has no Python. Run by 'make binary-test'."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import orch
from orch.founding import templates
from orch.queue import Queue
from tests.conftest import LIMIT, PROGRAM, eventually

pytestmark = pytest.mark.skipif("BINARY" not in os.environ, reason="BINARY names no built file: 'make binary-test'")

BARE = {"PATH": "/usr/bin:/bin"}
WORK = """
import importlib, os, pkgutil, sys, time

def count(task):
    return len(task.payload["text"])

def wait(task):
    open(f"began-{task.id}", "w").close()
    time.sleep(1000)

def environment(task):
    import ssl, zoneinfo
    zoneinfo.ZoneInfo("Europe/Vienna")
    return [sys.executable, sys.argv, sys.prefix]

def modules(task):
    failed = {}
    for name in sorted(sys.stdlib_module_names - set(task.payload["besides"])):
        try:
            importlib.import_module(name)
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return failed

def spread(task):
    import multiprocessing
    found = {}
    for method in ("fork", "forkserver", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            found[method] = pool.map(abs, [-1, -2])
    return found
"""
MODES = "".join(
    f'[modes.{name}]\nfunction = "work:{name}"\n' for name in ("count", "wait", "environment", "modules", "spread")
)


class Place:
    """A project in an awkwardly named folder, and the binary in another one, unpacked where nobody else does it."""

    def __init__(self, top: Path) -> None:
        self.program = top / "100% mine [x]" / "orch"
        self.program.parent.mkdir()
        shutil.copy(PROGRAM[0], self.program)
        self.folder = top / "50% my project"
        self.folder.mkdir()
        self.cache = top / "cache"
        self.env = {**BARE, "ORCH_CACHE_DIR": str(self.cache)}
        self.started: list[subprocess.Popen[bytes]] = []

    def settings(self, text: str = "") -> None:
        (self.folder / "work.py").write_text(WORK)
        (self.folder / "orch.toml").write_text(f"{textwrap.dedent(text)}\n{MODES}")

    def orch(self, *words: str, code: int = 0, env: dict[str, str] | None = None, stdin: str | None = None) -> str:
        """Run the binary in the project with a bare environment; its standard output."""
        ran = subprocess.run(
            [self.program, *words], cwd=self.folder, env=self.env if env is None else env,
            input=stdin, capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
        self.err = ran.stderr
        assert "Traceback" not in ran.stderr, ran.stderr
        assert "no such option" not in (ran.stdout + ran.stderr).lower()
        assert ran.returncode == code, f"{words}: {ran.returncode}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def result(self, id: int) -> Any:
        return json.loads(self.orch("show", str(id), "--json"))["data"]["attempts"][-1]["result"]

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [self.program, *words], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **options,
        )  # fmt: skip
        self.started.append(process)
        return process

    @property
    def queue(self) -> Queue:
        return Queue.open(str(self.folder / ".orch" / "orch.db"))

    def processes(self) -> list[int]:
        """The processes of the binary: those that run what is unpacked here."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/exe").startswith(str(self.cache)):
                    found.append(int(name))
        return found

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def test_it_tells_its_versions_and_that_it_is_a_binary(place: Place) -> None:
    said = place.orch("--version")
    assert said.startswith(f"orch {orch.__version__}, Python 3.")
    assert ", SQLite 3." in said
    assert ", binary of " in said


def test_a_project_is_made_filled_fired_and_looked_at_in_an_empty_environment(place: Place) -> None:
    place.orch("init")
    place.settings("[limits]\nmax_pool = 12\ntask_cap = 3")
    for number in range(24):
        place.orch("add", "count", f"text={'x' * number}")
    for number in range(12):
        place.orch("add", "--cmd", "--", "sh", "-c", f"echo {number}")
    said = place.orch("fire")
    assert "fire 1: passed" in said
    assert place.err == ""
    fire = json.loads(place.orch("fires", "--json"))["data"][0]
    assert json.loads(fire["rollup"])["seats"] == 12
    assert place.result(24) == "23"
    assert place.orch("log", "36") == "11\n"
    assert "36" in place.orch("status")


@pytest.mark.parametrize("template", templates())
def test_every_template_is_in_it_whole(place: Place, template: str) -> None:
    place.orch("init", "--template", template)
    source = Path(orch.__file__).parent / "templates" / template
    names = {path.name for path in source.iterdir() if path.is_file()}
    assert {path.name for path in place.folder.iterdir() if path.is_file()} == names
    place.orch("status")


def test_the_crontab_lines_start_the_very_file_from_anywhere(place: Place, tmp_path: Path) -> None:
    place.settings()
    said = place.orch("init")
    place.orch("add", "count", "text=abc")
    [line] = [line for line in said.splitlines() if " fire " in line]
    command = line.split(" ", 5)[5].replace(r"\%", "%")
    assert str(place.program) in command
    home = tmp_path / "home"
    home.mkdir()
    env = {**BARE, "HOME": str(home), "LOGNAME": "me", "SHELL": "/bin/sh"}
    ran = subprocess.run(["/bin/sh", "-c", command], cwd=home, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert place.result(1) == "3"


@pytest.mark.parametrize("home", [None, "/dev/null", "/proc/nowhere"])
def test_it_needs_no_home(place: Place, home: str | None) -> None:
    env = {**BARE, **({} if home is None else {"HOME": home})}
    place.orch("init", env=env)
    place.settings()
    place.orch("add", "count", "text=abc", env=env)
    place.orch("fire", env=env)
    assert place.result(1) == "3"


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_it_starts_itself_again_for_workers_and_no_oftener(place: Place, method: str) -> None:
    place.orch("init")
    place.settings(f'[queue]\nstart_method = "{method}"\n[limits]\nmax_pool = 3')
    for _ in range(3):
        place.orch("add", "wait")
    fire = place.start("fire")
    eventually(lambda: len(list(place.folder.glob("began-*"))) == 3, "three workers")
    # The fire, its workers, and what serves them: the tracker of resources and, for one of the methods, a server.
    assert len(place.processes()) <= 3 + 3
    fire.send_signal(signal.SIGTERM)
    _, err = fire.communicate(timeout=LIMIT)
    assert fire.returncode == 128 + signal.SIGTERM
    assert b"option" not in err
    eventually(lambda: not place.processes(), "the end of all processes")
    assert {task.state for task in place.queue.tasks()} == {"incoming"}


def test_a_killed_worker_costs_its_task_one_try_and_the_fire_goes_on(place: Place) -> None:
    place.orch("init")
    place.settings("[orchestrator]\nretry_backoff_base_sec = 0")
    place.orch("add", "wait")
    for _ in range(5):
        place.orch("add", "count", "text=x")
    fire = place.start("fire")
    eventually(lambda: (place.folder / "began-1").exists(), "the task's start")
    queue = place.queue
    [owner] = [task.owner for task in queue.tasks() if task.mode == "wait"]
    [worker] = [one for one in queue.ledger.present() if one.id == owner]
    os.kill(worker.process.pid, signal.SIGKILL)
    eventually(lambda: queue.task(1).retry_count == 1, "the retry")
    fire.send_signal(signal.SIGINT)
    fire.communicate(timeout=LIMIT)
    assert queue.attempts(1)[0].outcome == "crashed"
    assert {task.state for task in queue.tasks() if task.mode == "count"} == {"done"}
    eventually(lambda: not place.processes(), "the end of all processes")


def test_nothing_outlives_a_killed_fire_and_the_next_sweep_puts_everything_right(place: Place) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        place.env["TMPDIR"] = temporary
        place.orch("init")
        place.settings()
        place.orch("add", "wait")
        place.orch("add", "--cmd", "--", "sleep", "2031")
        fire = place.start("fire")
        eventually(lambda: (place.folder / "began-1").exists(), "the task's start")
        fire.kill()
        fire.wait()
        eventually(lambda: not place.processes(), "the end of all processes")
        assert "had died and was closed" in place.orch("sweep")
        assert os.listdir(temporary) == []
        assert [entry.name for entry in place.cache.iterdir() if entry.name.startswith(".")] == []
        assert subprocess.run(["pgrep", "-f", "sleep 2031"], check=False).returncode == 1


def test_an_unpacking_that_was_killed_leaves_nothing_behind_the_next_start(place: Place) -> None:
    for _ in range(3):
        process = place.start("--version")
        eventually(lambda: any(place.cache.glob(".new-*/lib")), "the unpacking")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert list(place.cache.glob(".new-*"))
    assert place.orch("--version").startswith("orch ")
    [folder] = place.cache.iterdir()
    assert not folder.name.startswith(".")


def test_tasks_may_import_the_whole_standard_library(place: Place) -> None:
    besides = ["antigravity", "ensurepip", "idlelib", "lib2to3", "this", "tkinter", "turtle", "turtledemo", "venv"]
    # Those of other systems.
    besides += ["_tkinter", "_overlapped", "_scproxy", "_winapi", "msilib", "msvcrt", "nt", "winreg", "winsound"]
    besides += ["_msi", "_wmi", "_aix_support", "_osx_support", "_android_support", "_apple_support", "_ios_support"]
    besides += ["nturl2path"]
    place.orch("init")
    place.settings()
    place.orch("add", "modules", "--payload", json.dumps({"besides": besides}))
    place.orch("fire")
    assert json.loads(place.result(1)) == {}


def test_it_brings_public_authorities_and_none_of_the_machine_that_built_it(place: Place) -> None:
    place.orch("--version")
    [brought] = place.cache.rglob("certs.pem")
    assert brought.read_bytes().count(b"BEGIN CERTIFICATE") > 50
    here = os.environ.get("SSL_CERT_FILE", "")
    assert not (os.path.isfile(here) and Path(here).read_bytes() == brought.read_bytes())


def test_functions_may_use_multiprocessing_in_every_way(place: Place) -> None:
    place.orch("init")
    place.settings()
    place.orch("add", "spread")
    place.orch("fire")
    assert json.loads(place.result(1)) == {method: [1, 2] for method in ("fork", "forkserver", "spawn")}


def test_functions_import_what_lies_beside_the_settings_and_where_these_say(place: Place, tmp_path: Path) -> None:
    place.orch("init")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "strange.py").write_text("def call(task):\n    return 'from afar'\n")
    place.settings(f'python_path = ["{tmp_path}/site"]\n[modes.strange]\nfunction = "strange:call"')
    place.orch("add", "strange")
    place.orch("fire")
    assert place.result(1) == '"from afar"'


def test_commands_find_nothing_of_the_binary_in_their_environment(place: Place) -> None:
    place.orch("init")
    place.settings()
    place.orch("add", "environment")
    place.orch("add", "--cmd", "--", "env")
    place.orch("fire")
    assert json.loads(place.result(1))[0].startswith(str(place.cache))
    names = {line.partition("=")[0] for line in place.orch("log", "2").splitlines()}
    assert names >= {"PATH", "ORCH_TASK_ID"}
    assert not names & {"ORCH_PROGRAM", "LD_LIBRARY_PATH", "PYTHONTZPATH", "PYTHONHOME", "PYTHONPATH", "SSL_CERT_FILE"}


def test_it_is_polled_swept_watched_and_tailed_without_a_terminal(place: Place) -> None:
    place.orch("init")
    place.settings()
    tail = place.start("tail")
    place.orch("add", "count", "text=abc")
    place.orch("poll")
    place.orch("sweep")
    place.orch("watchdog")
    assert place.result(1) == "3"
    assert tail.stdout is not None
    os.set_blocking(tail.stdout.fileno(), False)
    seen = bytearray()

    def told() -> bool:
        seen.extend(tail.stdout.read() or b"")  # type: ignore[union-attr]
        return b"done" in seen

    eventually(told, "the line of the task that is done")
    assert b"\x1b" not in seen
    tail.send_signal(signal.SIGINT)
    assert tail.wait(LIMIT) in (0, 130)


def test_a_reader_that_has_enough_ends_it_quietly(place: Place) -> None:
    place.orch("init")
    lines = "".join(f'{{"mode": "m", "payload": {{"number": {number}}}}}\n' for number in range(5000))
    place.orch("add", "--from", "-", stdin=lines)
    listing = place.start("list", "-n", "5000")
    assert listing.stdout is not None
    listing.stdout.read(10)
    listing.stdout.close()
    assert listing.wait(LIMIT) == 141
    assert listing.stderr is not None
    assert listing.stderr.read() == b""


def test_a_ctrl_c_at_any_moment_of_the_start_ends_it_without_a_word(place: Place) -> None:
    place.orch("--version")
    for wait in range(40):
        process = place.start("--version")
        time.sleep(wait / 500)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
        assert (process.returncode, err) in ((0, b""), (-signal.SIGINT, b""))


def test_nothing_in_it_asks_for_a_newer_c_library_than_is_promised(place: Place) -> None:
    place.orch("--version")
    asked: dict[int, str] = {}
    for path in place.cache.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if content.startswith(b"\x7fELF"):
            for version in re.findall(rb"GLIBC_2\.(\d+)", content):
                asked[int(version)] = path.name
    assert max(asked) <= 28, asked[max(asked)]
