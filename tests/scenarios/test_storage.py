"""The disk fills, the medium is read-only, the file is somebody else's: one sentence, nothing lost, and it goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from orch import processes
from orch.cli import run
from orch.database import migrations, statement
from orch.errors import StorageError
from orch.queue import Queue
from tests.conftest import World, eventually
from tests.scenarios.test_fire import add_many, notes

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture
def disk(world: World) -> Iterator[Path]:
    """A small disk of its own under the queue; `resize` it as root."""
    folder = world.folder / ".orch"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr!r}")
    yield folder
    if hasattr(world, "_queue"):
        world._queue.close()
    subprocess.run(["umount", "-l", folder], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass
    return ballast


@AS_ROOT
def test_a_result_that_does_not_fit_costs_its_task_no_try_and_the_next_disk_takes_it(world: World, disk: Path) -> None:
    world.settings("", limits="not_now_delay = 0.01")
    world.orch("add", "mixed", "do='x' * 3_000_000")
    for turn in (1, 2, 3, 4):
        world.orch("fire", code=1)
        assert len(world.err.splitlines()) < 5
        assert "the disk is full" in world.err
        [task] = world.answer("list")
        assert len(world.lines("ran")) == task["attempts"] == turn
        assert task["state"] == "incoming"
        assert task["retry_count"] == 0
    resize(disk, "50m")
    world.orch("fire")
    assert world.states() == {1: "done"}
    assert len(notes(world)) == 5
    assert "the disk is full" in notes(world)[0]
    assert world.queue.database._connection.execute("pragma integrity_check").fetchall() == [("ok",)]  # type: ignore[attr-defined]


@AS_ROOT
@pytest.mark.full
def test_with_no_room_at_all_every_command_says_so_in_one_line_and_changes_nothing(world: World, disk: Path) -> None:
    add_many(world, "ran", 5)
    world.queue.close()
    del world._queue
    ballast = fill(disk)
    for words in (
        ["add", "ran"], ["fire", "-q"], ["sweep"], ["status"], ["list"], ["tail", "--no-follow"], ["plan"],
        ["pause", "ran"], ["cancel", "1"], ["prune"],
    ):  # fmt: skip
        assert world.orch(*words, code=1) == ""
        assert len(world.err.splitlines()) == 1
        assert "the disk is full" in world.err
    world.orch("watchdog", code=7)
    assert sorted(path.name for path in disk.iterdir() if path.name.startswith("settings")) in ([], ["settings.json"])
    ballast.unlink()
    world.orch("fire")
    assert set(world.states().values()) == {"done"}
    assert [task.attempts for task in world.queue.tasks()] == [1] * 5


@AS_ROOT
def test_a_disk_that_is_full_for_a_while_under_a_fire_loses_nothing(world: World, disk: Path) -> None:
    resize(disk, "8m")
    world.settings("", limits="not_now_delay = 0.01")
    add_many(world, "wait_for", 3, {"file": "go"})
    add_many(world, "ok", 20)
    fire = world.start("fire", "-q")
    eventually(lambda: world.lines("ran"), "a task's start")
    ballast = fill(disk)
    (world.folder / "go").touch()
    assert fire.wait(60) in (0, 1)
    ballast.unlink()
    for _ in range(2):
        world.orch("fire", "-q")
    assert set(world.states().values()) == {"done"}
    assert all(task.retry_count <= 1 for task in world.queue.tasks())
    fires = world.answer("fires")
    assert sorted(note["fire"] for note in world.answer("notes")) == sorted(one["id"] for one in fires)


@AS_ROOT
@pytest.mark.full
def test_a_read_only_medium_is_one_sentence(world: World, disk: Path) -> None:
    add_many(world, "ran", 1)
    world.queue.close()
    del world._queue
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for words in (["add", "ran"], ["fire"], ["status"], ["sweep"]):
        world.orch(*words, code=1)
        assert len(world.err.splitlines()) == 1, world.err
    world.orch("watchdog", code=7)
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    world.orch("fire")
    assert world.states() == {1: "done"}


AS_NOBODY = """
import os, sys
import ctypes, difflib, orch.cli, orch.fires, orch.settings_schema, orch.watchdog, psutil, apsw
import orch.cli.add, orch.cli.fire, orch.cli.tasks, orch.cli.watchdog, orch.standing, orch.seating
os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534)
for words in (["add", "m"], ["fire"], ["list"], ["watchdog", "-q"]):
    print(orch.cli.run([*words, "--db", sys.argv[2]]), flush=True)
"""


@AS_ROOT
def test_a_queue_of_another_user_is_one_sentence(world: World) -> None:
    world.queue.add("m")
    mode = Path(world.database).stat().st_mode
    for entered in (False, True):
        if entered:
            # Its folder can be entered, the file itself still is its owner's.
            Path(world.database).parent.chmod(0o755)
            for folder in (world.folder, *world.folder.parents[:3]):
                folder.chmod(0o755)
        ran = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(world.folder), world.database],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert ran.stdout.splitlines() == ["1", "1", "1", "7"], ran.stderr
        # The watchdog cannot remember what it saw either.
        assert len(ran.stderr.splitlines()) == 5, ran.stderr
        assert "Traceback" not in ran.stderr
    assert Path(world.database).stat().st_mode == mode
    assert len(world.queue.tasks()) == 1


# Files that are no queue


def make_missing(path: Path) -> None:
    path.unlink()


def make_text(path: Path) -> None:
    path.write_text("hello world\n" * 100)


def make_newer(path: Path) -> None:
    apsw.Connection(str(path)).execute("pragma user_version = 9999").fetchall()


def make_foreign(path: Path) -> None:
    path.unlink()
    apsw.Connection(str(path)).execute("create table mine (x)").fetchall()


def make_damaged(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


def make_cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(5000)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD = {
    make_missing: 3, make_text: 10, make_newer: 10, make_foreign: 10, make_damaged: 10, make_cut: 10, make_folder: 1,
}  # fmt: skip


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_every_command_meets_a_file_that_is_no_queue_with_one_sentence_and_its_code(
    tmp_path: Path, make: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "orch.db"
    with Queue.open(str(path), create=True) as queue:
        queue.add("m", {"text": "x" * 10_000})
    make(path)  # type: ignore[operator]
    before = path.read_bytes() if path.is_file() else None
    for words in (
        ["fire"], ["sweep"], ["status"], ["list"], ["show", "1"], ["log", "1"], ["log", "-f", "1"], ["plan"],
        ["tell", "x"], ["budget"], ["tail", "--no-follow"], ["retry", "1"], ["cancel", "1"], ["pause", "m"],
        ["resume", "m"], ["fires"], ["notes"], ["prune"],
    ):  # fmt: skip
        code = run([*words, "--db", str(path)])
        out, err = capsys.readouterr()
        assert (code, out, len(err.splitlines())) == (BAD[make], "", 1), (words, out, err)  # type: ignore[index]
        assert str(path) in err, words
    assert run(["watchdog", "--db", str(path)]) == 7
    if make is not make_missing:
        code = run(["add", "m", "--db", str(path)])
        assert code == BAD[make]  # type: ignore[index]
    assert (path.read_bytes() if path.is_file() else None) == before


def test_an_empty_file_is_a_new_queue(world: World) -> None:
    Path(world.database).parent.mkdir()
    Path(world.database).touch()
    world.orch("add", "ok")
    world.orch("fire")
    assert world.states() == {1: "done"}


@pytest.mark.full
def test_a_queue_that_was_put_back_from_a_backup_goes_on(world: World) -> None:
    world.orch("add", "ok")
    shutil.copy(world.database, world.folder / "backup")
    world.orch("fire")
    make_text(Path(world.database))
    world.orch("fire", code=10)
    shutil.copy(world.folder / "backup", world.database)
    world.orch("fire")
    assert world.states() == {1: "done"}


# The schema


def test_a_queue_of_the_earlier_schema_is_brought_up_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = str(tmp_path / "orch.db")
    with apsw.Connection(path) as made:
        for name in migrations()[:2]:
            made.execute(statement(name)).fetchall()
        made.execute(
            "insert into origin values (1, '2026-11-30T10:00:00.000000Z');"
            "insert into pause values ('m', '2026-11-30T10:00:00.000000Z', 'person', 'why');"
            "insert into fire (day, host, boot, pid, started, opened_at, first_event) values"
            " ('2026-11-30', 'h', 'b', 1, '1', '2026-11-30T10:00:00.000000Z', 0);"
            "insert into outcome (task, attempt, result, error) values (1, 1, null, 'no luck'), (1, 2, '7', null);"
            "pragma application_id = 0x6F726368; pragma user_version = 2"
        ).fetchall()
    made.close()
    with Queue.open(path) as queue:
        assert [(pause.mode, pause.told) for pause in queue.pauses()] == [("m", "paused: why")]
        assert [fire.id for fire in queue.ledger.fires(5)] == [1]
        assert queue.ledger.fires_on("2026-11-30") == 1
        rows = queue.database._connection.execute("select * from outcome").fetchall()  # type: ignore[attr-defined]
        assert rows == [(1, 1, None, "no luck", None, None), (1, 2, "7", None, None, None)]


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 shell is not installed")
def test_the_shell_of_any_version_finds_the_queue_whole(world: World) -> None:
    world.orch("add", "ok")
    world.orch("add", "fail")
    world.orch("fire")
    world.queue.ledger.open_fire(processes.myself(), day="2026-12-01")
    checked = subprocess.run(["sqlite3", world.database, "pragma integrity_check"], capture_output=True, text=True)
    assert checked.stdout == "ok\n"


# The log


def test_the_log_stays_short_under_busy_workers(world: World) -> None:
    world.settings("", limits="task_cap = 3000", modes='[modes.big]\ncommand = ["true"]')
    lines = '{"mode": "mixed", "payload": {"do": "\'x\' * 4000", "text": "%s"}}\n' % ("y" * 3000)
    world.orch("add", "-q", "--from", "-", stdin=lines * 3000)
    wal, most = Path(world.database + "-wal"), 0
    fire = world.start("fire", "-q", "--max-pool", "6")
    while fire.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            most = max(most, wal.stat().st_size)
    assert fire.returncode == 0
    assert set(world.states().values()) == {"done"}
    # Sixteen megabytes until it is written back, some more until everybody has made way, which takes longer on a busy
    # machine; left to the engine alone it grows to several hundred.
    assert most < 128 * 1024 * 1024


def test_a_full_disk_in_a_transaction_undoes_it_and_the_next_one_works(tmp_path: Path) -> None:
    with Queue.open(str(tmp_path / "orch.db"), create=True) as queue:
        connection = queue.database._connection  # type: ignore[attr-defined]
        pages = connection.execute("pragma page_count").fetchall()[0][0]
        connection.execute(f"pragma max_page_count = {pages}").fetchall()
        with pytest.raises(StorageError, match="disk is full"):
            queue.add("m", {"text": "x" * 100_000})
        assert queue.tasks() == []
        connection.execute(f"pragma max_page_count = {pages + 1000}").fetchall()
        queue.add("m", {"text": "x" * 100_000})


def test_a_full_device_behind_the_output_is_one_line(world: World) -> None:
    world.orch("add", "ok")
    with open("/dev/full", "w") as full:
        ran = subprocess.run(world.words("list"), cwd=world.folder, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
