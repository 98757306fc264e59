"""DELEGATEs as files: what is dropped is taken once and whole, and every file lies where its task is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orch import clock, place, settings
from orch.errors import UsageError
from orch.folders import Exchange, taking
from orch.folders.taking import Taken
from orch.limits import Retries
from orch.project import Project
from orch.queue import Queue
from tests.conftest import World, eventually
from tests.scenarios.test_agents import agents, delegate, reason

FULL = pytest.mark.full
OPEN = os.open


def root(world: World) -> Path:
    return world.folder / ".orch" / "queue"


def order(id: str = "t1", scope: str = "say(answer('success'))", role: str = "engineer") -> str:
    return (
        f"handoff_type: DELEGATE\ntask_id: {id}\nagent: {role}\nscope: {json.dumps(scope)}\n"
        "plan: [do it]\nsuccess_criteria: [it is done]\n"
    )


def staffed(world: World, *roles: str, extra: str = "", retry: str = "retry_max_attempts = 1") -> None:
    """Agents that do what their scope says, and a queue."""
    agents(world, *roles, extra=extra, retry=retry)
    assert world.queue.tasks() == []


def drop(world: World, name: str, text: str | bytes, state: str = "incoming") -> Path:
    folder = root(world) / state
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def loaded(world: World) -> Project:
    return settings.load(place.locate(config=str(world.folder / "orch.toml")))


def age(world: World, name: str) -> None:
    """Let a dropped file be an old one, which nobody goes on writing."""
    os.utime(root(world) / "incoming" / name, (1, 1))


def exchange(world: World) -> Exchange:
    return Exchange(str(root(world)), ("engineer",))


def look(world: World) -> Taken:
    """One look by somebody who has never looked before."""
    return exchange(world).run(world.queue)


def files(world: World) -> list[str]:
    """Every file below the root, but for the lock."""
    found = [path for path in root(world).rglob("*") if not path.is_dir() and path.name != ".lock"]
    return sorted(str(path.relative_to(root(world))) for path in found)


def keys(world: World) -> dict[str | None, str]:
    return {task.key: task.state for task in world.queue.tasks(limit=10**5)}


def why(world: World, name: str) -> str:
    told = json.loads((root(world) / "failed" / name).read_text())
    assert told["failed_at"]
    return str(told["error"])


# A life


def test_a_dropped_file_is_taken_once_and_lies_in_the_folder_of_its_state_all_its_life(world: World) -> None:
    staffed(world)
    scope = (
        "paths = lambda: sorted(n for s in ('incoming', 'processing') for n in os.listdir('.orch/queue/' + s)"
        " if n[0] != '.')\n"
        "while paths() != ['t1.meta.json', 't1.yaml']: time.sleep(0.01)\n"
        "open('story', 'w').write(open('.orch/queue/processing/t1.meta.json').read())\nsay(answer('success'))"
    )
    drop(world, "my order.yaml", order(scope=scope))
    assert look(world).added == 1
    assert files(world) == ["incoming/t1.yaml"]
    assert not look(world).anything
    world.orch("fire")
    assert keys(world) == {"t1": "done"}, reason(world)
    assert files(world) == ["done/t1-HANDBACK.yaml", "done/t1.meta.json", "done/t1.yaml"]
    assert (root(world) / "done/t1.yaml").read_text() == order(scope=scope)
    story = json.loads((world.folder / "story").read_text())
    assert (story["task_id"], story["state"], story["retry_count"], story["attempts"]) == ("t1", "processing", 0, 1)
    assert clock.moment(story["claimed_at"])
    answer = (root(world) / "done/t1-HANDBACK.yaml").read_text()
    assert "handoff_type: HANDBACK\ntask_id: t1\nstatus: success\n" in answer


def answered(status: str, output: str) -> str:
    return json.dumps({"status": status, "output": output})


def test_a_failure_lies_with_its_reason_and_each_attempts_answer_keeps_its_number(world: World) -> None:
    drop(world, "t1.yaml", order())
    look(world)
    for n in range(1, 4):
        [task] = world.queue.claim("engineer")
        look(world)
        assert {"processing/t1.yaml", "processing/t1.meta.json"} <= set(files(world))
        world.queue.fail(task, f"no luck {n}", result=answered("failure", f"got to {n}"))
        look(world)
        assert why(world, "t1-ERROR.json") == f"no luck {n}"
        if n < 3:
            world.queue.requeue(1)
            look(world)
            assert {"incoming/t1.yaml", "incoming/t1.meta.json"} <= set(files(world))
    kinds = (("ERROR", "json"), ("HANDBACK", "yaml"))
    assert files(world) == sorted(
        ["failed/t1.meta.json", "failed/t1.yaml"]
        + [f"failed/t1-{kind}{number}.{ending}" for kind, ending in kinds for number in ("", "-1", "-2")]
    )
    for n, name in ((1, "t1-HANDBACK-1.yaml"), (2, "t1-HANDBACK-2.yaml"), (3, "t1-HANDBACK.yaml")):
        assert f"output: got to {n}\n" in (root(world) / "failed" / name).read_text()
    told = json.loads((root(world) / "failed/t1.meta.json").read_text())
    assert (told["attempts"], told["last_error"]) == (3, "no luck 3")


def test_a_task_that_came_by_a_command_gets_a_file_and_one_that_is_no_delegate_gets_none(world: World) -> None:
    staffed(world)
    delegate(world, "say(answer('success'))")
    world.orch("add", "ok", "--key", "t2")
    look(world)
    assert files(world) == ["incoming/t1.yaml"]
    world.queue.cancel(1)
    look(world)
    assert files(world) == ["failed/t1-ERROR.json", "failed/t1.yaml"]
    assert "cancelled" in why(world, "t1-ERROR.json")


def test_crashes_and_retries_have_folders_of_their_own_when_they_are_first_used(world: World) -> None:
    drop(world, "t1.yaml", order())
    look(world)
    assert sorted(path.name for path in root(world).iterdir() if path.is_dir()) == [
        "done", "failed", "incoming", "processing",
    ]  # fmt: skip
    [task] = world.queue.claim("engineer", start=False)
    look(world)
    assert files(world) == ["claimed/t1.meta.json", "claimed/t1.yaml"]
    world.queue.crash(task, "missing")
    look(world)
    assert files(world) == ["crashed/t1.meta.json", "crashed/t1.yaml"]
    world.queue.recover(world.queue.task(1), Retries(max_attempts=2))
    look(world)
    assert files(world) == ["retry-pending/t1.meta.json", "retry-pending/t1.yaml"]


# What is dropped


def test_several_orders_in_one_file_are_several_tasks_with_a_file_each(world: World) -> None:
    both = f"{order('t1')}---\n{order('t2')}"
    drop(world, "both.yaml", both)
    assert look(world).added == 2
    assert files(world) == ["incoming/both.yaml.taken", "incoming/t1.yaml", "incoming/t2.yaml"]
    assert (root(world) / "incoming/both.yaml.taken").read_text() == both
    assert look(world).added == 0
    assert keys(world) == {"t1": "incoming", "t2": "incoming"}


def test_of_several_orders_in_one_file_none_is_taken_when_one_cannot_be(world: World) -> None:
    drop(world, "both.yaml", f"{order('t1')}---\n{order('../t2')}")
    age(world, "both.yaml")
    assert len(look(world).refused) == 1
    assert keys(world) == {}
    assert files(world) == ["failed/both-ERROR.json", "failed/both.yaml"]


def test_the_same_order_dropped_again_is_set_aside_once_and_changes_nothing(world: World) -> None:
    drop(world, "t1.yaml", order())
    look(world)
    drop(world, "again.yaml", order())
    [told] = look(world).refused
    assert "same as task 1 (t1)" in told
    [task] = world.queue.claim("engineer")
    world.queue.finish(task, answered("success", "x"))
    look(world)
    # By a program that names its file as the task, at any time.
    drop(world, "t1.yaml", order())
    assert len(look(world).refused) == 1
    drop(world, "t1.yaml", order())
    assert len(look(world).refused) == 1
    assert not look(world).anything
    assert keys(world) == {"t1": "done"}
    assert files(world) == [
        "done/t1-HANDBACK.yaml", "done/t1.meta.json", "done/t1.yaml",
        *(f"failed/{name}" for name in ("again-ERROR.json", "again.yaml", "t1-2-ERROR.json", "t1-2.yaml",
                                        "t1-ERROR.json", "t1.yaml")),
    ]  # fmt: skip


def test_another_order_of_the_same_id_is_refused_and_the_task_keeps_its_own_file(world: World) -> None:
    drop(world, "t1.yaml", order())
    look(world)
    # In the place of the task's own.
    drop(world, "t1.yaml", order(scope="something else"))
    [told] = look(world).refused
    assert "t1" in told
    assert why(world, "t1-ERROR.json") == told
    assert (root(world) / "failed/t1.yaml").read_text() == order(scope="something else")
    [task] = world.queue.claim("engineer")
    look(world)
    assert (root(world) / "processing/t1.yaml").read_text() == order()
    world.queue.fail(task, "no luck")
    look(world)
    assert (root(world) / "failed/t1.yaml").read_text() == order()
    assert why(world, "t1-ERROR.json") == "no luck"
    assert (root(world) / "failed/t1-2.yaml").read_text() == order(scope="something else")
    assert why(world, "t1-2-ERROR.json") == told


def test_a_refused_file_is_not_taken_for_the_one_that_was_put_right(world: World) -> None:
    drop(world, "t1.yaml", order().replace("agent: engineer\n", ""))
    age(world, "t1.yaml")
    assert len(look(world).refused) == 1
    # By a command, so that no file comes with it.
    delegate(world, "say(answer('success'))")
    look(world)
    assert (root(world) / "incoming/t1.yaml").read_text() == order()
    assert files(world) == ["failed/t1-ERROR.json", "failed/t1.yaml", "incoming/t1.yaml"]
    assert not look(world).anything


def test_files_that_have_each_others_names_stay_what_they_are(world: World) -> None:
    drop(world, "t1.yaml", order("t2", "two"))
    drop(world, "t2.yaml", order("t1", "one"))
    for _ in range(3):
        look(world)
    assert keys(world) == {"t1": "incoming", "t2": "incoming"}
    assert (root(world) / "incoming/t1.yaml").read_text() == order("t1", "one")
    assert (root(world) / "incoming/t2.yaml").read_text() == order("t2", "two")
    assert len(files(world)) == 2


def test_of_two_that_claim_one_id_the_first_wins_and_the_other_one_is_refused(world: World) -> None:
    drop(world, "a.yaml", order("t1", "the first"))
    drop(world, "t1.yaml", order("t1", "the second"))
    for _ in range(3):
        look(world)
    assert world.queue.find("t1").payload["scope"] == "the first"
    assert (root(world) / "incoming/t1.yaml").read_text() == order("t1", "the first")
    [refused] = [name for name in files(world) if name.startswith("failed/") and name.endswith(".yaml")]
    assert (root(world) / refused).read_text() == order("t1", "the second")


@pytest.mark.parametrize(
    "id",
    ["../../../tmp/pwn", "/tmp/pwn", "a/b", "..", "", "x" * 300, '"t1\\nt2"', "t1.meta", "t1-HANDBACK-engineer", ".t1"],
)
def test_an_id_that_cannot_be_a_files_name_is_refused_and_the_next_file_is_taken(world: World, id: str) -> None:
    drop(world, "x.yaml", order().replace("task_id: t1", f"task_id: {id}"))
    drop(world, "y.yaml", order())
    age(world, "x.yaml")
    assert len(look(world).refused) == 1
    assert why(world, "x-ERROR.json").startswith("x.yaml: ")
    assert keys(world) == {"t1": "incoming"}
    assert files(world) == ["failed/x-ERROR.json", "failed/x.yaml", "incoming/t1.yaml"]
    assert not Path("/tmp/pwn").exists()


def test_what_is_no_plain_file_is_set_aside_and_nobody_elses_is_touched(world: World) -> None:
    outside = world.folder / "outside.yaml"
    outside.write_text(order("t9"))
    incoming = drop(world, "good.yaml", order()).parent
    (incoming / "link.yaml").symlink_to(outside)
    (incoming / "dangling.yaml").symlink_to(world.folder / "nowhere")
    (incoming / "d.yaml").mkdir()
    (incoming / "d.yaml" / "inside.yaml").write_text("kept")
    os.mkfifo(incoming / "pipe.yaml")
    assert len(look(world).refused) == 4
    assert keys(world) == {"t1": "incoming"}
    assert outside.read_text() == order("t9")
    assert (root(world) / "failed/link.yaml").is_symlink()
    assert (root(world) / "failed/d.yaml/inside.yaml").read_text() == "kept"
    assert why(world, "d-ERROR.json") == "d.yaml is a folder: drop a file"
    assert os.listdir(incoming) == ["t1.yaml"]


def test_names_of_any_bytes_are_told_of_escaped(world: World) -> None:
    incoming = os.fsencode(drop(world, "a b.yaml", order()).parent)
    bad = [b"new\nline.yaml", b"\xff.yaml", b"\x1b[31m.yaml", b"x" * 250 + b".yaml", "é[b]:x:".encode() + b".YML"]
    for name in bad:
        path = os.path.join(incoming, name)
        with open(path, "wb") as file:
            file.write(b"no: order\n")
        os.utime(path, (1, 1))
    told = look(world).refused
    assert len(told) == len(bad)
    assert all(one.isprintable() for one in told)
    assert keys(world) == {"t1": "incoming"}
    assert os.listdir(incoming) == [b"t1.yaml"]
    kept = os.listdir(os.fsencode(root(world) / "failed"))
    assert set(bad) <= set(kept)
    assert len(kept) == 2 * len(bad)


def test_long_names_find_room_for_what_is_put_behind_them(world: World) -> None:
    long = "x" * 250 + ".yaml"
    drop(world, long, f"{order('t1')}---\n{order('t2')}")
    assert look(world).added == 2
    for _ in range(2):
        drop(world, long, "no: order\n")
        age(world, long)
        assert len(look(world).refused) == 1
    assert not look(world).anything
    assert [name for name in files(world) if name.startswith("incoming/t")] == ["incoming/t1.yaml", "incoming/t2.yaml"]
    assert len([name for name in files(world) if name.startswith("failed/")]) == 4


def test_other_files_are_never_touched(world: World) -> None:
    names = ["notes.txt", "t1.yaml.tmp", ".t1.yaml", "t1.part", "README", ".keep.me"]
    for state in ("incoming", "processing", "done", "failed"):
        for name in names:
            drop(world, name, f"{state} {order()}", state)
    drop(world, "other.yaml", "of somebody else", "done")
    before = files(world)
    drop(world, "t1.yaml", order())
    look(world)
    [task] = world.queue.claim("engineer")
    world.queue.finish(task, answered("success", "x"))
    look(world)
    assert set(files(world)) - set(before) == {"done/t1-HANDBACK.yaml", "done/t1.meta.json", "done/t1.yaml"}
    assert set(before) <= set(files(world))
    for state in ("incoming", "processing", "done", "failed"):
        assert {(root(world) / state / name).read_text() for name in names} == {f"{state} {order()}"}


def test_a_huge_file_is_refused_at_once_and_the_good_one_beside_it_is_taken(world: World) -> None:
    big = drop(world, "big.yaml", order())
    with open(big, "ab") as file:
        file.truncate(50 * 1024 * 1024)
    drop(world, "bomb.yaml", order() + "context: &a [*a]\n")
    drop(world, "deep.yaml", order() + "context: " + "[" * 2000 + "\n")
    drop(world, "good.yaml", order("t2"))
    for name in ("big.yaml", "bomb.yaml", "deep.yaml"):
        age(world, name)
    began = clock.monotonic()
    look(world)
    assert clock.monotonic() - began < 5
    assert keys(world)["t2"] == "incoming"
    assert "big-ERROR.json" in os.listdir(root(world) / "failed")


def test_json_is_an_order_too_and_bytes_that_are_no_text_are_refused(world: World) -> None:
    fields = {"handoff_type": "DELEGATE", "task_id": "t1", "agent": "engineer", "scope": "s", "plan": ["do it"],
              "success_criteria": ["done"]}  # fmt: skip
    drop(world, "T1.JSON", json.dumps(fields))
    drop(world, "bad.yaml", b"\xff\xfe\x00" + order("t2").encode())
    age(world, "bad.yaml")
    look(world)
    assert keys(world) == {"t1": "incoming"}
    assert (root(world) / "incoming/t1.yaml").read_text() == json.dumps(fields)
    assert files(world)[:2] == ["failed/bad-ERROR.json", "failed/bad.yaml"]


def test_a_file_that_may_not_be_read_is_refused(world: World) -> None:
    staffed(world)
    drop(world, "t1.yaml", order()).chmod(0)
    drop(world, "t2.yaml", order("t2"))
    words = world.words("sweep", "--json")
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed")
        # So that the system asks for permissions.
        words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", *words]
    ran = subprocess.run(words, cwd=world.folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "t1.yaml cannot be read" in ran.stdout
    assert files(world) == ["failed/t1-ERROR.json", "failed/t1.yaml", "incoming/t2.yaml"]


# Answers that are dropped


def test_an_answer_among_the_orders_goes_to_its_task_or_is_refused(world: World) -> None:
    answer = "handoff_type: HANDBACK\ntask_id: t1\nstatus: success\noutput: made\n"
    drop(world, "t1-HANDBACK.yaml", answer)
    age(world, "t1-HANDBACK.yaml")
    [told] = look(world).refused
    assert "HANDBACK" in told
    drop(world, "t1.yaml", order())
    look(world)
    world.queue.claim("engineer")
    drop(world, "HANDBACK-t1.yaml", answer)
    age(world, "HANDBACK-t1.yaml")
    assert not look(world).refused
    assert "processing/HANDBACK-t1.yaml" in files(world)
    assert keys(world) == {"t1": "processing"}


def test_an_agent_may_drop_its_answer_beside_its_order(world: World) -> None:
    staffed(world)
    into = "open('.orch/queue/{}', 'w').write(answer('success', 'dropped')[8:-4])"
    delegate(world, into.format("processing/t1-HANDBACK-Engineer.yaml"))
    delegate(world, into.format("processing/HANDBACK-t2-20261201T101500Z.yaml"), "t2")
    # Of an earlier time, and of somebody else.
    delegate(world, "say('bye')", "t3")
    old = "handoff_type: HANDBACK\ntask_id: {}\nstatus: success\noutput: old\n"
    drop(world, "t3-HANDBACK.yaml", old.format("t3"), "processing")
    delegate(
        world, "open('.orch/queue/processing/t4-HANDBACK.yaml', 'w').write(answer('success').replace(ID, 't9'))", "t4"
    )
    world.orch("fire")
    assert keys(world) == {"t1": "done", "t2": "done", "t3": "failed", "t4": "failed"}, reason(world)
    for id in (1, 2):
        assert json.loads(world.queue.attempts(id)[-1].result or "")["output"] == "dropped"
    assert {"done/t1-HANDBACK-Engineer.yaml", "done/HANDBACK-t2-20261201T101500Z.yaml"} <= set(files(world))
    assert (root(world) / "failed/t3-HANDBACK.yaml").read_text() == old.format("t3")


# Files that are being written


def test_a_file_is_not_taken_while_somebody_writes_it_however_whole_it_looks(world: World) -> None:
    looking = exchange(world)
    path = drop(world, "t1.yaml", "")
    with open(path, "w") as file:
        for line in order().splitlines(keepends=True):
            file.write(line)
            file.flush()
            os.utime(path, (1, 1))
            assert looking.run(world.queue) == Taken(unsettled=1)
        file.write("context: written last\n")
    assert looking.run(world.queue).added == 1
    assert "written last" in world.queue.task(1).payload["delegate"]


def test_a_file_that_a_writer_of_another_process_holds_open_waits_for_it(world: World) -> None:
    path = drop(world, "t1.yaml", "")
    writer = subprocess.Popen(["sh", "-c", 'exec 3>"$1"; cat >&3', "sh", path], stdin=subprocess.PIPE)
    try:
        assert writer.stdin
        writer.stdin.write(order().encode())
        writer.stdin.flush()
        eventually(lambda: path.read_text() == order())
        assert look(world) == Taken(unsettled=1)
    finally:
        writer.communicate()
    assert look(world).added == 1


def test_a_file_that_changes_while_it_is_read_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = drop(world, "t1.yaml", order())
    judge = taking._is_free

    def change(descriptor: int) -> bool | None:
        # It was read, and now a writer comes and goes.
        monkeypatch.setattr(taking, "_is_free", judge)
        path.write_text(order(scope="at last"))
        return judge(descriptor)

    monkeypatch.setattr(taking, "_is_free", change)
    assert look(world) == Taken(unsettled=1)
    assert look(world).added == 1
    assert world.queue.task(1).payload["scope"] == "at last"


def test_a_broken_file_gets_time_to_be_completed(world: World) -> None:
    looking = Exchange(str(root(world)), ("engineer",), settled=0.2)
    path = drop(world, "t1.yaml", order()[:40])
    assert looking.run(world.queue) == Taken(unsettled=1)
    path.write_text(order())
    assert looking.run(world.queue).added == 1
    drop(world, "t2.yaml", order("t2")[:40])
    eventually(lambda: looking.run(world.queue).refused)
    assert files(world)[:2] == ["failed/t2-ERROR.json", "failed/t2.yaml"]


def test_without_leases_a_file_is_taken_once_it_has_been_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "_is_free", lambda _: None)
    looking = Exchange(str(root(world)), ("engineer",), settled=0.2)
    path = drop(world, "t1.yaml", order())
    # By a clock that is ahead, so that its age says nothing.
    os.utime(path, (2**31, 2**31))
    assert looking.run(world.queue) == Taken(unsettled=1)
    eventually(lambda: looking.run(world.queue).added)


# Crashes, and several at once


class PowerCut(BaseException):
    """Nothing that comes after it happens."""


def cut_look(world: World, monkeypatch: pytest.MonkeyPatch, number: int) -> bool:
    """A look in which the power goes at the n-th change of a file; whether there were so many."""
    calls = [0]

    def cutting(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                raise PowerCut
            return change(*args, **kwargs)

        return run

    for name in ("link", "unlink", "rename", "replace", "makedirs"):
        monkeypatch.setattr(os, name, cutting(getattr(os, name)))
    with suppress(PowerCut):
        look(world)
    return calls[0] >= number


def lives(queue: Queue, id: str) -> Iterator[None]:
    """Everything that happens to a task, with a look in between."""
    yield
    [task] = queue.claim("engineer", start=False)
    yield
    queue.start(task)
    yield
    queue.crash(task, "missing")
    yield
    queue.recover(queue.find(id), Retries(max_attempts=5, backoff_base_sec=0))
    yield
    [task] = queue.claim("engineer")
    queue.fail(task, "no luck", result=answered("failure", "one"))
    yield
    queue.requeue(task.id)
    yield
    [task] = queue.claim("engineer")
    yield
    queue.fail(task, "no luck again", result=answered("failure", "two"))
    yield
    queue.requeue(task.id)
    [task] = queue.claim("engineer")
    queue.finish(task, answered("success", "three"))
    yield


@pytest.mark.parametrize("step", [0, 1, *(pytest.param(step, marks=FULL) for step in range(2, 10))])
def test_wherever_a_look_is_cut_off_the_next_one_makes_up_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    number, was_cut = 0, True
    while was_cut:
        number += 1
        id = f"t{number}"
        drop(world, f"{id} order.yaml", order(id))
        for at, _ in enumerate(lives(world.queue, id)):
            if at == step:
                with monkeypatch.context() as patch:
                    was_cut = cut_look(world, patch, number)
            look(world)
        told = [f"failed/{id}-{kind}" for kind in ("ERROR-2.json", "ERROR.json", "HANDBACK-2.yaml", "HANDBACK.yaml")]
        assert files(world) == [f"done/{id}-HANDBACK.yaml", f"done/{id}.meta.json", f"done/{id}.yaml", *told], number
        assert (root(world) / f"done/{id}.yaml").read_text() == order(id)
        shutil.rmtree(root(world))
    assert number > 3


def test_a_file_whose_task_was_added_before_a_crash_is_taken_for_that_task(world: World) -> None:
    delegate(world, "say(answer('success'))")
    drop(world, "my order.yaml", order())
    [task] = world.queue.claim("engineer")
    assert not look(world).anything
    assert files(world) == ["processing/t1.meta.json", "processing/t1.yaml"]
    assert world.queue.holds(task)


def test_several_that_look_at_once_take_every_file_once(world: World) -> None:
    staffed(world)
    for n in range(60):
        drop(world, f"order {n}.yaml", order(f"t{n}"))
    looks = [world.start("sweep", "--json") for _ in range(2)]
    told = [json.loads(one.communicate()[0])["data"]["swept"] for one in looks]
    assert [one.returncode for one in looks] == [0, 0]
    assert sum(one["taken"] for one in told) == 60
    assert [one["refused"] for one in told] == [[], []]
    assert keys(world) == {f"t{n}": "incoming" for n in range(60)}
    assert files(world) == sorted(f"incoming/t{n}.yaml" for n in range(60))


@FULL
def test_looks_that_are_killed_at_random_lose_nothing(world: World) -> None:
    staffed(world)
    for n in range(400):
        drop(world, f"order {n}.yaml", order(f"t{n}"))
    for n in range(12):
        sweep = world.start("sweep", "-q")
        limit = 0.25 + n / 20
        with suppress(subprocess.TimeoutExpired):
            sweep.wait(limit)
        sweep.kill()
        sweep.wait()
    look(world)
    assert keys(world) == {f"t{n}": "incoming" for n in range(400)}
    assert files(world) == sorted(f"incoming/t{n}.yaml" for n in range(400))


def test_a_look_that_finds_nothing_new_opens_no_file(world: World) -> None:
    looking = exchange(world)
    for n in range(200):
        drop(world, f"t{n}.yaml", order(f"t{n}"))
    assert looking.run(world.queue).added == 200
    opened: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", lambda path, *rest, **more: opened.append(str(path)) or OPEN(path, *rest, **more))
        assert not looking.run(world.queue).anything
    assert [Path(path).name for path in opened] == [".lock"]


# Where they lie


def test_the_root_may_be_anywhere_and_a_project_without_agents_has_none(world: World) -> None:
    assert world.queue.tasks() == []
    assert loaded(world).queue_root is None
    command = json.dumps([sys.executable, "-c", ""])
    world.settings(f'[queue]\nroot = "elsewhere/queue"\n[agents.engineer]\ncommand = {command}')
    other = world.folder / "elsewhere" / "queue"
    (other / "incoming").mkdir(parents=True)
    (other / "incoming" / "x.yaml").write_text(order())
    exchange = Exchange.of(loaded(world))
    assert exchange is not None
    exchange.run(world.queue)
    assert (other / "incoming" / "t1.yaml").read_text() == order()
    assert not root(world).exists()


def test_a_session_of_a_harness_has_a_queue_and_folders_of_its_own(world: World, tmp_path: Path) -> None:
    staffed(world)
    env = {"HOME": str(tmp_path), "ORCH_SESSION": "s-1", "ORCH_HARNESS": "claude"}
    mine = tmp_path / ".agentic-engineers" / "artifacts" / "s-1" / "claude"
    world.orch("delegate", "-", stdin=order(), env=env)
    (mine / "queue" / "incoming").mkdir(parents=True, exist_ok=True)
    (mine / "queue" / "incoming" / "x.yaml").write_text(order("t2"))
    told = json.loads(world.orch("poll", "--json", env=env))["data"]
    assert sum(tally["done"] for tally in told["tallies"]) == 2
    assert sorted(path.name for path in (mine / "queue" / "done").glob("t?.yaml")) == ["t1.yaml", "t2.yaml"]
    assert (mine / "orch.db").exists()
    assert keys(world) == {}
    for wrong in ("a/b", "../x", "", "..", None):
        with pytest.raises(UsageError, match="cannot be the name of a folder"):
            place.session_folder("s-1", wrong)
