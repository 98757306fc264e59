"""The SQLite store: creating, refusing, locking, and what a claim costs."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from orch import errors
from orch.database.sqlite import SQLite
from orch.hygiene import sweep
from orch.project import Project
from orch.queue import Queue
from orch.records import NewTask
from tests.conftest import World, eventually


def python(code: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    """A separate interpreter that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )  # type: ignore[call-overload,no-any-return]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("rounds", [2, pytest.param(30, marks=pytest.mark.full)])
def test_twenty_processes_may_create_the_same_queue_at_once(tmp_path: Path, rounds: int) -> None:
    code = (
        "import sys; from orch.queue import Queue\n"
        "sys.stdin.read()\n"
        "with Queue.open(sys.argv[1], create=True) as q: print(q.add('noop', {'i': int(sys.argv[2])}).id)"
    )
    for turn in range(rounds):
        path = str(tmp_path / f"{turn}.db")
        adders = [python(code, path, str(i), stdin=subprocess.PIPE) for i in range(20)]
        for adder in adders:
            assert adder.stdin is not None
            adder.stdin.close()
        for adder in adders:
            assert adder.wait(60) == 0, adder.stderr.read() if adder.stderr else ""
            adder.stdout.close()  # type: ignore[union-attr]
            adder.stderr.close()  # type: ignore[union-attr]
        with Queue.open(path) as queue:
            assert sorted(task.payload["i"] for task in queue.tasks()) == list(range(20))
            mode = queue.database._connection.execute("pragma journal_mode").fetchall()  # type: ignore[attr-defined]
            assert mode == [("wal",)]


def test_a_missing_queue_is_only_made_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    with pytest.raises(errors.NotFound, match="orch init"):
        Queue.open(str(path))
    assert not path.exists()
    path.touch()
    with Queue.open(str(path)) as queue:
        assert queue.add("m").id == 1, "an empty file is a new queue"


def test_a_queue_made_by_a_newer_program_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    Queue.open(str(path), create=True).close()
    apsw.Connection(str(path)).execute("pragma user_version = 9999").fetchall()
    before = digest(path)
    for _ in range(2):
        with pytest.raises(errors.SchemaError, match=r"9999.*this orch knows \d"):
            Queue.open(str(path), create=True)
    assert digest(path) == before


def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    path.write_text("hello world, this is no database at all" * 50)
    before = digest(path)
    with pytest.raises(errors.SchemaError, match="not a database"):
        Queue.open(str(path), create=True)
    assert digest(path) == before


def test_a_database_of_another_program_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    other = apsw.Connection(str(path))
    other.execute("pragma journal_mode = wal").fetchall()
    other.execute("create table theirs (x)").fetchall()
    before = digest(path), (tmp_path / "orch.db-wal").stat().st_size
    with pytest.raises(errors.SchemaError, match="not a queue"):
        Queue.open(str(path), create=True)
    assert (digest(path), (tmp_path / "orch.db-wal").stat().st_size) == before
    assert other.execute("select count(*) from theirs").fetchall() == [(0,)]
    other.close()


def test_a_folder_that_does_not_exist_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.StorageError, match="folder"):
        Queue.open(str(tmp_path / "none" / "orch.db"), create=True)


def test_a_transaction_that_fails_leaves_nothing_and_the_next_one_works(queue: Queue) -> None:
    with pytest.raises(ZeroDivisionError), queue.transaction():
        queue.add("m")
        raise ZeroDivisionError
    assert queue.tasks() == []
    assert queue.add("m").id == 1


def test_a_second_writer_waits_for_the_first_and_gives_up_with_a_word(tmp_path: Path) -> None:
    path = str(tmp_path / "orch.db")
    first = Queue.open(path, create=True)
    second = Queue(SQLite(path, busy_timeout=0.2))
    with first.transaction():
        first.add("m")
        with pytest.raises(errors.Busy, match="locked by others"):
            second.add("m")
    assert second.add("m").id == 2
    first.close()
    second.close()


def test_a_write_lock_is_held_against_other_processes_whatever_else_is_looked_at(queue: Queue, tmp_path: Path) -> None:
    code = (
        "import sys; from orch.database.sqlite import SQLite; from orch.queue import Queue; from orch import errors\n"
        "try: Queue(SQLite(sys.argv[1], busy_timeout=0.3)).add('second')\n"
        "except errors.Busy: print('refused')"
    )
    path = queue.database.path  # type: ignore[attr-defined]
    with queue.transaction():
        queue.add("first")
        # Everything that a program may want to know of the file while it writes.
        os.stat(path)
        queue.backlog(), queue.totals(), queue.tasks()
        second = python(code, path)
        assert second.communicate(timeout=60)[0] == "refused\n"
    assert [task.mode for task in queue.tasks()] == ["first"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_command_opens_the_database_by_any_other_means(world: World) -> None:
    world.orch("init")
    world.orch("add", "ok")
    for command in (["fire"], ["status"], ["tail", "--no-follow"], ["show", "1"], ["sweep"], ["watchdog"]):
        log = world.folder / "strace.log"
        traced = ["strace", "-f", "-o", str(log), "-e", "trace=openat,open", *world.words(*command)]
        subprocess.run(traced, cwd=world.folder, check=True, capture_output=True, timeout=120)
        opened = [line for line in log.read_text().splitlines() if "orch.db" in line and "ENOENT" not in line]
        assert opened
        assert [line for line in opened if "O_RDONLY" in line] == []


def _use_inherited(queue: Queue, answers: multiprocessing.SimpleQueue[str]) -> None:
    try:
        queue.add("child")
        answers.put("added")
    except errors.OrchError as error:
        answers.put(str(error))
    os._exit(0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_connection_from_before_a_fork_is_refused_in_the_child_and_good_in_the_parent(queue: Queue) -> None:
    queue.add("parent")
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_use_inherited, args=(queue, answers))
    child.start()
    assert "another process" in answers.get()
    child.join(60)
    queue.add("parent")
    assert [task.mode for task in queue.tasks()] == ["parent", "parent"]
    assert queue.database._connection.execute("pragma integrity_check").fetchall() == [("ok",)]  # type: ignore[attr-defined]


# What it costs, in things that can be counted


def steps(queue: Queue, name: str, **params: object) -> int:
    """Virtual machine steps of one statement of the queue."""
    counted: list[int] = []

    def profile(event: dict[str, object]) -> None:
        counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])  # type: ignore[index]

    connection = queue.database._connection  # type: ignore[attr-defined]
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    queue.database.run(name, **params)
    connection.trace_v2(0, None)
    # The trigger's own statements are part of the one that fired it.
    return max(counted)


def reprepares(queue: Queue) -> list[int]:
    """How often cached statements were compiled again while a task was finished and the next one claimed."""
    counted: list[int] = []

    def profile(event: dict[str, object]) -> None:
        counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"])  # type: ignore[index]

    connection = queue.database._connection  # type: ignore[attr-defined]
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    [task] = queue.claim("m")
    for _ in range(20):
        _, following = queue.finish_and_claim(task)
        assert following is not None
        task = following
    connection.trace_v2(0, None)
    return counted


def fill(queue: Queue, kind: str, rows: int) -> None:
    """Rows that a claim must not notice: done, in another mode, delayed at a higher priority, or of its own mode."""
    stamp = "2026-01-01T00:00:00.000000Z"
    due = "'2099-01-01T00:00:00.000000Z'" if kind == "delayed" else "null"
    mode = "other" if kind == "other" else "m"
    priority = {"delayed": 100, "own": -100}.get(kind, 0)
    connection = queue.database._connection  # type: ignore[attr-defined]
    connection.execute("begin immediate")
    connection.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)"
        f" insert into task (mode, priority, due_at, created_at, updated_at)"
        f" select '{mode}', {priority}, {due}, '{stamp}', '{stamp}' from n",
        (rows,),
    ).fetchall()
    connection.execute(
        "insert into payload select id, '{}' from task where id not in (select task from payload)"
    ).fetchall()
    if kind == "done":
        connection.execute("update task set state = 'processing', attempts = 1").fetchall()
        connection.execute("update task set state = 'done'").fetchall()
    connection.execute("commit")


@pytest.mark.parametrize("kind", ["done", "other", "delayed", "own"])
@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_a_claim_costs_the_same_however_many_rows_there_are(tmp_path: Path, kind: str, rows: int) -> None:
    found = {}
    for size in (1000, rows):
        with Queue.open(str(tmp_path / f"{size}.db"), create=True, durability="normal") as queue:
            fill(queue, kind, size)
            queue.database._connection.execute("analyze").fetchall()  # type: ignore[attr-defined]
            queue.add_many([NewTask("m", priority=1) for _ in range(30)])
            common = {"now": "2026-12-01T00:00:00.000000Z", "by": "t"}
            claim = {"mode": "m", "batch": 1, "state": "processing", "owner": 1, "deadline": None, **common}
            found[size] = steps(queue, "claim", **claim), steps(queue, "look", mode="m", now=common["now"])
            assert steps(queue, "due", now=common["now"]) <= 60
            assert steps(queue, "tasks_owned") <= 60
    for small, large in zip(found[1000], found[rows], strict=True):
        # The guard, the event row and the payload included; a bare update of these columns takes 114.
        assert large <= 240
        assert abs(large - small) <= 0.05 * small


def test_a_whole_sweep_with_nothing_to_do_costs_next_to_nothing(queue: Queue) -> None:
    fill(queue, "done", 2000)
    sweep(queue, Project("", "", "", {}))
    counted: list[int] = []

    def profile(event: dict[str, object]) -> None:
        counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])  # type: ignore[index]

    connection = queue.database._connection  # type: ignore[attr-defined]
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    sweep(queue, Project("", "", "", {}))
    connection.trace_v2(0, None)
    assert sum(counted) <= 60


def test_a_cached_claim_is_never_compiled_again(queue: Queue) -> None:
    queue.add_many([NewTask("m") for _ in range(50)])
    queue.database._connection.execute("analyze").fetchall()  # type: ignore[attr-defined]
    queue.claim("m")
    assert set(reprepares(queue)) == {0}


def test_an_idle_worker_takes_no_write_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "orch.db")
    with Queue.open(path, create=True) as queue, Queue(SQLite(path, busy_timeout=0.0)) as idle, queue.transaction():
        queue.add("m")
        assert idle.claim("m") == []


SYNCS = """
import sys
from orch.queue import Queue
from orch.records import NewTask
path, durability, what = sys.argv[1:]
with Queue.open(path, durability=durability) as q:
    q.add("m")  # the first sync of a file syncs its folder too
    tasks = q.claim("m")
    print("ready", file=sys.stderr, flush=True)
    if what == "add": q.add("m")
    if what == "many": q.add_many([NewTask("m") for _ in range(1000)])
    if what == "fused": q.finish_and_claim(tasks[0])
    import os; os._exit(0)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    ("durability", "what", "syncs"),
    [
        ("full", "add", 1),
        ("full", "many", 1),
        ("full", "fused", 1),
        ("normal", "add", 0),
        ("normal", "many", 0),
        ("normal", "fused", 0),
        ("adds", "add", 1),
        ("adds", "many", 1),
        ("adds", "fused", 0),
    ],
)
def test_a_commit_is_synced_exactly_as_often_as_its_durability_says(
    tmp_path: Path, durability: str, what: str, syncs: int
) -> None:
    path = str(tmp_path / "orch.db")
    with Queue.open(path, create=True) as queue:
        queue.add_many([NewTask("m") for _ in range(5)])
        log = tmp_path / "log"
        # The queue is held open, so that no first or last connection checkpoints.
        subprocess.run(
            [
                "strace",
                "-f",
                "-o",
                log,
                "-e",
                "trace=fsync,fdatasync,write",
                sys.executable,
                "-c",
                SYNCS,
                path,
                durability,
                what,
            ],
            check=True,
            timeout=120,
            capture_output=True,
        )
    lines = log.read_text().splitlines()
    ready = next(index for index, line in enumerate(lines) if '"ready' in line)
    assert sum("sync(" in line for line in lines[ready:]) == syncs


def test_a_large_payload_is_not_written_again_when_its_task_moves(tmp_path: Path) -> None:
    sizes = {}
    for length in (100, 16_000):
        path = tmp_path / f"{length}.db"
        with Queue.open(str(path), create=True, durability="normal") as queue:
            queue.add_many([NewTask("m", f'"{"x" * length}"') for _ in range(300)])
            queue.database.truncate_wal()  # type: ignore[attr-defined]
            [task] = queue.claim("m")
            for _ in range(200):
                _, following = queue.finish_and_claim(task)
                assert following is not None
                task = following
            sizes[length] = (tmp_path / f"{length}.db-wal").stat().st_size
    assert sizes[16_000] <= 1.2 * sizes[100]


# Many at once

CLAIMER = """
import os, sys
from orch.queue import Queue
path, log = sys.argv[1:]
sys.stdin.read()
done = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with Queue.open(path, durability="normal") as q:
    tasks = q.claim("m")
    task = tasks[0] if tasks else None
    while task:
        os.write(done, f"{task.id} {os.getpid()}\\n".encode())
        kept, task = q.finish_and_claim(task)
        assert kept
"""


@pytest.mark.parametrize("count", [1500, pytest.param(120_000, marks=pytest.mark.full)])
def test_twelve_processes_do_every_task_once_and_the_oldest_first(tmp_path: Path, count: int) -> None:
    path, log = str(tmp_path / "orch.db"), tmp_path / "log"
    with Queue.open(path, create=True, durability="normal") as queue:
        queue.add_many([NewTask("m", priority=i % 3) for i in range(count)])
        claimers = [python(CLAIMER, path, str(log), stdin=subprocess.PIPE) for _ in range(12)]
        for claimer in claimers:
            assert claimer.stdin is not None
            claimer.stdin.close()
        eventually(lambda: all(claimer.poll() is not None for claimer in claimers), "the claimers' end", 900)
        for claimer in claimers:
            assert claimer.returncode == 0, claimer.stderr.read() if claimer.stderr else ""
            claimer.stdout.close()  # type: ignore[union-attr]
            claimer.stderr.close()  # type: ignore[union-attr]
        ids = [int(line.split()[0]) for line in log.read_text().splitlines()]
        assert sorted(ids) == list(range(1, count + 1)), "none twice, none lost"
        claims = queue.database._connection.execute(  # type: ignore[attr-defined]
            "select task.priority, task.id from event join task on task.id = event.task"
            " where event.new_state = 'processing' order by event.id"
        ).fetchall()
        assert claims == sorted(claims, key=lambda row: (-row[0], row[1]))
        assert {task.attempts for task in queue.tasks(limit=10**6)} == {1}
