"""What happened, told as spans: whole, with the same ids whoever reads them, and in formats that others understand."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from orch import clock, processes, span_files, spans
from orch.cli import run
from orch.fires import between_fires
from orch.house import prune
from orch.place import locate
from orch.project import Project
from orch.queue import Queue
from orch.rollup import Rollup
from orch.settings import load
from tests.conftest import World, eventually, is_gone
from tests.scenarios.test_agents import SCRIPTED, delegate

PRICED = {"do": "{'metrics': {'tokens': 70, 'cost_usd': 0.1}}"}
FAILS = '[modes.flaky]\ncommand = ["sh", "-c", "exit 3"]\nretry_failures = true'


def orch(world: World, *words: str, code: int = 0) -> str:
    """Run one command in this process: what it prints, or, where it fails, what it says."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert run([*words, "--config", str(world.folder / "orch.toml")]) == code
    streams = []
    for stream in (out, err):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        streams.append(stream.buffer.getvalue().decode())
    return streams[1] if code else streams[0]


def read(world: World, *words: str) -> Any:
    """Spans, as the command tells them as JSON."""
    return json.loads(orch(world, "spans", *words, "--json"))["data"]


def project_of(world: World) -> Project:
    return load(locate(config=str(world.folder / "orch.toml")))


class Story:
    """Two fires of a project with everything in it, read back in every form; nothing changes it any more."""

    def __init__(self, folder: Path) -> None:
        self.world = world = World(folder)
        program, judge = [sys.executable, str(SCRIPTED)], "say(answer('success', metrics='{tokens: 9, cost: 0.01}'))"
        world.settings(
            f"[queue]\nspans = true\n[agents.engineer]\ncommand = {json.dumps(program)}\ngate = true\n"
            f"[agents.quality-engineer]\ncommand = {json.dumps([*program, judge])}",
            modes=FAILS,
            retry="retry_max_attempts = 2",
        )
        for mode, payload in (("mixed", PRICED), ("mixed", PRICED), ("mixed", PRICED), ("fail", {}), ("die", {})):
            world.queue.add(mode, payload)
        world.queue.add("flaky", key="again [x]")
        delegate(world, "say(answer('success', metrics='{tokens: 1200, cost: 0.5}'))")
        delegate(world, "say(answer('failure', error='no compiler'))", "t2")
        self.rollups = {number: world.answer("fire") for number in (1, 2)}
        self.spans = {number: read(world, str(number), "-n", "1000") for number in (1, 2)}

    def attempts(self, fire: int) -> list[Any]:
        return [span for span in self.spans[fire] if span["span_name"] == "orchestrator-attempt"]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    told = Story(tmp_path_factory.mktemp("story"))
    yield told
    told.world.close()


@pytest.mark.parametrize("fire", [1, 2])
def test_the_attempts_of_a_fire_add_up_to_its_rollup(story: Story, fire: int) -> None:
    tallies = {tally["mode"]: tally for tally in story.rollups[fire]["tallies"]}
    sums: dict[str, dict[str, float]] = {}
    for span in story.attempts(fire):
        known = span["attributes"]
        sum_ = sums.setdefault(known["mode"], {"claimed": 0, "tokens": 0, "cost_usd": 0.0, "seconds": 0.0})
        sum_["claimed"] += 1
        sum_["tokens"] += known.get("tokens", 0)
        sum_["cost_usd"] += known.get("cost_usd", 0.0)
        sum_["seconds"] += clock.seconds_between(span["start_time"], span["end_time"])
    for mode, tally in tallies.items():
        assert sums[mode] == pytest.approx({name: tally[name] for name in sums[mode]}), mode
    assert sums.keys() == tallies.keys()
    if fire == 1:
        assert sums.keys() == {"mixed", "fail", "flaky", "die", "engineer", "quality-engineer"}
        assert sums["mixed"]["tokens"] == 210
        outcomes = {span["attributes"]["outcome"] for span in story.attempts(1)}
        assert outcomes == {"done", "failed", "retry-pending", "crashed"}


def test_each_step_is_a_span_below_the_one_that_it_belongs_to(story: Story) -> None:
    found = {span["span_id"]: span for span in story.spans[1]}
    root = story.spans[1][0]
    assert (root["span_name"], root["parent_span_id"], root["status"]) == ("orchestrator-fire", None, "ok")
    phases = [span for span in story.spans[1] if span["parent_span_id"] == root["span_id"]][:5]
    names = ["hygiene", "decide", "fan_out", "barrier", "rollup"]
    assert [span["span_name"] for span in phases] == [f"orchestrator-{name}" for name in names]
    assert [span["end_time"] for span in phases] == [*(span["start_time"] for span in phases[1:]), root["end_time"]]
    for span in story.attempts(1):
        parent = found[span["parent_span_id"]]
        if span["attributes"].get("relation") == "gate":
            assert parent["attributes"]["key"] == "t1"
            assert parent["start_time"] < span["start_time"] < span["end_time"] < parent["end_time"]
        else:
            assert parent["attributes"]["worker"] == span["attributes"]["worker"]
            assert parent["span_name"] == "orchestrator-worker"
    seen: set[str | None] = {None}
    for span in story.spans[1]:
        assert span["parent_span_id"] in seen, "the parent comes first"
        seen.add(span["span_id"])


def test_an_attempt_says_how_it_went(story: Story) -> None:
    by_mode = {span["attributes"]["mode"]: span for span in story.attempts(1)}
    flaky, died = by_mode["flaky"], by_mode["die"]
    assert (flaky["status"], flaky["attributes"]["exit_code"], flaky["attributes"]["key"]) == ("error", 3, "again [x]")
    assert died["status_message"] == "the worker died (killed by signal 9)"
    assert by_mode["mixed"]["status"] == "ok"
    [worker] = [span for span in story.spans[1] if span["span_id"] == died["parent_span_id"]]
    assert (worker["status"], worker["status_message"]) == ("error", "missing: killed by signal 9")
    assert [span["attributes"]["attempt"] for span in story.attempts(2) if span["attributes"]["mode"] == "die"] == [2]


def test_the_same_span_has_the_same_id_in_every_reading_and_another_one_in_another_queue(
    story: Story, tmp_path: Path
) -> None:
    again = {number: read(story.world, str(number), "-n", "1000") for number in (1, 2)}
    assert again == story.spans
    ids = [span["span_id"] for fire in (1, 2) for span in story.spans[fire]]
    assert len(set(ids)) == len(ids)
    assert all(len(bytes.fromhex(id)) == 8 and int(id, 16) for id in ids)
    traces = {span["trace_id"] for fire in (1, 2) for span in story.spans[fire]}
    assert len(traces) == 2
    assert all(len(bytes.fromhex(trace)) == 16 for trace in traces)
    lives = [read(story.world, "--task", name) for name in ("t1", "again [x]")]
    attempts = [span for life in lives for span in life if span["span_name"] == "orchestrator-attempt"]
    assert len(attempts) == 3
    assert all(span in story.spans[span["attributes"]["fire"]] for span in attempts)
    with Queue.open(str(tmp_path / "other.db"), create=True) as other:
        other.add("m")
        life = spans.of_task(other, other.task(1))
    assert life[0].span_id != read(story.world, "--task", "1")[0]["span_id"]


def test_the_life_of_a_task_has_no_gap(story: Story) -> None:
    whole, *steps = read(story.world, "--task", "again [x]")
    names = [span["span_name"].removeprefix("orchestrator-") for span in steps]
    assert [name for name in names if name != "incoming"] == ["attempt", "retry-pending", "attempt"]
    assert [span["end_time"] for span in steps[:-1]] == [span["start_time"] for span in steps[1:]]
    assert (whole["start_time"], whole["end_time"]) == (steps[0]["start_time"], steps[-1]["end_time"])
    assert (whole["status"], whole["attributes"]["state"]) == ("error", "failed")
    for span in steps:
        if span["span_name"] == "orchestrator-attempt":
            assert span["links"] == [{"trace_id": whole["trace_id"], "span_id": whole["span_id"]}]
        else:
            assert span["parent_span_id"] == whole["span_id"]
    gate = read(story.world, "--task", "t1-qe-gate")[0]
    work = read(story.world, "--task", "t1")[0]
    assert gate["links"] == [{"trace_id": work["trace_id"], "span_id": work["span_id"]}]
    assert gate["attributes"]["relation"] == "gate"


# Other formats


def check_chrome(text: str) -> dict[str, Any]:
    """Hold a text against the trace event format: its events, by the id of the span that they show."""
    trace = json.loads(text)
    processes, threads, shown = set(), set(), {}
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["args"]["name"]
            (processes if event["name"] == "process_name" else threads).add((event["pid"], event["tid"]))
            continue
        assert event["ph"] == "X"
        assert event["name"]
        assert all(isinstance(event[name], int) and event[name] >= 0 for name in ("ts", "dur"))
        assert (event["pid"], 0) in processes
        assert (event["pid"], event["tid"]) in threads
        shown[event["args"]["span_id"]] = event
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for lane in lanes.values():
        around: list[tuple[int, int]] = []
        # A stable sort, so that of two that begin together the first one is the outer one.
        for start, end in sorted(lane, key=lambda times: times[0]):
            while around and around[-1][1] <= start:
                around.pop()
            assert not around or end <= around[-1][1], "the events of a thread nest"
            around.append((start, end))
    return shown


def test_the_chrome_export_shows_every_span_in_its_place(story: Story) -> None:
    shown = check_chrome(orch(story.world, "spans", "1", "--export", "chrome"))
    assert shown.keys() == {span["span_id"] for span in story.spans[1]}
    for span in story.attempts(1):
        event = shown[span["span_id"]]
        assert event["name"].startswith(span["attributes"].get("key", "task "))
        # What outlasts its worker by the moments in which that was found dead is cut there.
        assert event["dur"] == pytest.approx(span["duration_ms"] * 1e3, abs=1e3 if span["status"] == "ok" else 2e6)
    check_chrome(orch(story.world, "spans", "--task", "t1", "--export", "chrome"))


KINDS = {"stringValue": str, "intValue": str, "doubleValue": float}


def check_otlp(text: str) -> list[Any]:
    """Hold a text against the JSON of OTLP: its spans."""
    assert text.count("\n") == 1, "one line, as in a file of them"
    [resource] = json.loads(text)["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "orch"}} in resource["resource"]["attributes"]
    [scope] = resource["scopeSpans"]
    assert scope["scope"]["name"] == "orch"
    for span in scope["spans"]:
        assert set(span) <= {
            "traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes",
            "status", "links",
        }  # fmt: skip
        for name, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
            assert name not in span or len(bytes.fromhex(span[name])) == size
        assert isinstance(span["startTimeUnixNano"], str)
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) > 10**18
        assert span["kind"] == 1
        assert span["status"]["code"] in (0, 1, 2)
        keys = [attribute["key"] for attribute in span["attributes"]]
        assert len(set(keys)) == len(keys)
        for attribute in span["attributes"]:
            [(kind, value)] = attribute["value"].items()
            assert isinstance(value, KINDS[kind])
        for link in span.get("links", []):
            assert (len(link["traceId"]), len(link["spanId"])) == (32, 16)
    return list(scope["spans"])


def test_the_otlp_export_holds_every_span_that_has_ended(story: Story) -> None:
    told = {span["spanId"]: span for span in check_otlp(orch(story.world, "spans", "1", "--export", "otlp"))}
    assert told.keys() == {span["span_id"] for span in story.spans[1]}
    assert {span["traceId"] for span in told.values()} == {story.spans[1][0]["trace_id"]}
    for span in story.spans[1]:
        took = int(told[span["span_id"]]["endTimeUnixNano"]) - int(told[span["span_id"]]["startTimeUnixNano"])
        assert took == pytest.approx(span["duration_ms"] * 1e6, abs=1e6)
        assert told[span["span_id"]].get("parentSpanId") == span["parent_span_id"]
    [died] = [span for span in story.attempts(1) if span["attributes"]["mode"] == "die"]
    assert told[died["span_id"]]["status"] == {"code": 2, "message": died["status_message"]}
    assert {"key": "task", "value": {"intValue": str(died["attributes"]["task"])}} in told[died["span_id"]][
        "attributes"
    ]


def test_a_large_fire_is_read_in_pieces(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_BATCH", 3)
    fire = queue.ledger.fire(queue.ledger.open_fire(processes.myself(), day="2026-11-30"))
    assert fire is not None
    worker = queue.ledger.enrol(processes.myself(), fire=fire.id, seat=1, mode="m")
    stranger = queue.ledger.enrol(processes.myself())
    for number in range(20):
        queue.add("m")
        [task] = queue.claim("m", worker=stranger if number % 4 == 0 else worker)
        queue.finish(task)
    root, crew, *found = spans.of_fire(queue, fire)
    assert (root.name, crew.name) == ("fire", "worker")
    assert [span.attributes["task"] for span in found] == [n for n in range(1, 21) if n % 4 != 1]
    life = spans.of_task(queue, queue.task(1))
    # An attempt that no fire made is part of its task's own trace.
    assert {span.trace_id for span in life} == {life[0].trace_id}
    assert life[-1].parent_id == life[0].span_id


def test_what_goes_on_is_shown_as_such_and_not_exported_before_its_end(world: World) -> None:
    world.queue.add("wait_for", {"file": "go"})
    assert orch(world, "spans") == "no fires yet\n"
    assert json.loads(orch(world, "spans", "--export", "otlp")) == {"resourceSpans": []}
    assert json.loads(orch(world, "spans", "--export", "chrome"))["traceEvents"] == []
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    found = read(world)
    assert [span["end_time"] for span in found if span["span_name"].endswith(("fire", "barrier", "attempt"))] == [
        None
    ] * 3
    assert "runs" in orch(world, "spans")
    assert {span["name"] for span in check_otlp(orch(world, "spans", "--export", "otlp"))} == {
        "orchestrator-hygiene", "orchestrator-decide", "orchestrator-fan_out"
    }  # fmt: skip
    assert len(check_chrome(orch(world, "spans", "--export", "chrome"))) == len(found)
    (world.folder / "go").touch()
    assert fire.wait() == 0
    assert all(span["end_time"] for span in read(world))


def test_a_wrong_call_says_what_to_do_and_a_limit_that_there_is_more(story: Story) -> None:
    world = story.world
    assert "'orch fires' lists them" in orch(world, "spans", "7", code=3)
    assert "either the number of a fire or --task" in orch(world, "spans", "1", "--task", "1", code=2)
    orch(world, "spans", "--task", "nope", code=3)
    orch(world, "spans", "--export", "xml", code=2)
    assert read(world, "-n", "2") == story.spans[2][:2]
    assert "the first 2; --limit shows more" in orch(world, "spans", "-n", "2")
    assert "--limit" not in orch(world, "spans", "-n", "100")
    assert len(check_otlp(orch(world, "spans", "-n", "2", "--export", "otlp"))) == 2


# As files


def written(folder: Path) -> dict[str, Any]:
    """The spans in a folder, by their ids; there is nothing else in it."""
    found = [json.loads(path.read_text()) for path in folder.iterdir() if path.name.endswith(".span.json")]
    assert len(found) == len(list(folder.iterdir()))
    return {span["span_id"]: span for span in found}


def test_a_fire_that_ends_writes_its_spans_below_the_queue_root(story: Story) -> None:
    folder = story.world.folder / ".orch" / "queue" / "spans"
    assert written(folder) == {span["span_id"]: span for fire in (1, 2) for span in story.spans[fire]}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_without_agents_they_lie_with_the_state_and_only_where_that_is_asked_for(world: World) -> None:
    folder = world.folder / ".orch" / "spans"
    world.queue.add("ok")
    world.orch("fire", "-q")
    assert not folder.exists()
    world.settings("[queue]\nspans = true")
    world.queue.add("ok")
    world.orch("poll", "-q")
    polled = read(world)
    assert [span["span_name"].removeprefix("orchestrator-") for span in polled] == ["poll", "worker", "attempt"]
    # What was before that was asked for is not written.
    assert written(folder) == {span["span_id"]: span for span in polled}
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert between_fires(world.queue, project_of(world)).unwritten is None
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_trouble_with_the_files_breaks_no_fire_and_the_next_one_makes_up_for_it(world: World) -> None:
    world.settings("[queue]\nspans = true")
    folder = world.folder / ".orch" / "spans"
    end_a_fire(world.queue)
    project = project_of(world)
    assert span_files.write(world.queue, project) is None
    folder.rename(world.folder / "before")
    folder.write_text("in the way")
    world.queue.add("ok")
    assert world.answer("fire")["tallies"][0]["done"] == 1
    assert "the spans could not be written below" in world.err
    assert "the next fire or sweep tries again" in world.err
    end_a_fire(world.queue)
    assert "the spans could not be written below" in orch(world, "sweep")
    folder.unlink()
    assert orch(world, "sweep") == "nothing to sweep\n"
    assert written(folder).keys() == {span["span_id"] for fire in ("2", "3") for span in read(world, fire)}


def test_the_spans_of_a_fire_that_died_are_written_by_the_sweep_that_closes_it(world: World) -> None:
    world.settings("[queue]\nspans = true")
    world.queue.add("wait_for", {"file": "go"})
    fire = world.start("fire")
    eventually(lambda: world.lines("ran"), "the task's start")
    family = psutil.Process(fire.pid).children(recursive=True)
    fire.kill()
    fire.wait()
    eventually(lambda: all(is_gone(process) for process in family), "the workers' end")
    folder = world.folder / ".orch" / "spans"
    assert not folder.exists()
    orch(world, "sweep", "-q")
    found = read(world)
    assert written(folder) == {span["span_id"]: span for span in found}
    assert (found[0]["status"], found[0]["status_message"]) == ("error", "died")
    assert found[-1]["attributes"]["outcome"] == "crashed"


def end_a_fire(queue: Queue) -> spans.Span:
    """A fire that did nothing, as a span."""
    number = queue.ledger.open_fire(processes.myself(), day="2026-11-30")
    queue.ledger.close_fire(number, ending="idle", rollup=Rollup(number, "idle").as_json())
    fire = queue.ledger.fire(number)
    assert fire is not None
    return next(spans.of_fire(queue, fire))


def bare(queue: Queue, folder: Path) -> Project:
    """A project that is nothing but its spans."""
    return Project(queue.database.path, str(folder), str(folder), {}, spans=True)  # type: ignore[attr-defined]


def test_prune_lets_old_spans_go_and_nothing_else_in_their_folder(queue: Queue, tmp_path: Path) -> None:
    project = bare(queue, tmp_path)
    end_a_fire(queue)
    assert span_files.write(queue, project) is None
    folder = Path(project.spans_folder)
    (folder / "4711.span.json").write_text("{}")
    # What is left of a process that died while it wrote.
    (folder / "fire-1-fire-0123456789abcdef.span.json.4711").write_text("{")
    assert prune(queue, project, 86400).files == 0
    for path in folder.iterdir():
        os.utime(path, (10**9, 10**9))
    assert prune(queue, project, 86400, dry_run=True).files == 2
    assert prune(queue, project, 86400).files == 2
    assert span_files.write(queue, project) is None
    assert [path.name for path in folder.iterdir()] == ["4711.span.json"]


def test_nothing_that_is_there_is_written_over_and_nothing_written_that_goes_on(queue: Queue, tmp_path: Path) -> None:
    project = bare(queue, tmp_path)
    open_poll = queue.ledger.open_fire(processes.myself(), day="2026-11-30", kind="poll")
    assert span_files.write(queue, project) is None
    folder = Path(project.spans_folder)
    assert list(folder.iterdir()) == []
    first, second = end_a_fire(queue), end_a_fire(queue)
    (folder / span_files.file_name(first)).write_text("somebody's")
    queue.ledger.close_fire(open_poll, ending="passed", rollup=Rollup(open_poll, "passed").as_json())
    assert span_files.write(queue, project) is None
    assert (folder / span_files.file_name(first)).read_text() == "somebody's"
    assert json.loads((folder / span_files.file_name(second)).read_text()) == spans.as_protocol(second)
    assert all(span_files.NAME.fullmatch(path.name) for path in folder.iterdir())


def test_the_setting_is_checked_and_says_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_CONFIG", "ORCH_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    agents = '\n[agents.engineer]\ncommand = ["true"]'
    for text, folder in (("", ".orch/spans"), (agents, ".orch/queue/spans"), ("\nroot = 'box'" + agents, "box/spans")):
        (tmp_path / "orch.toml").write_text(f"[queue]\nspans = true{text}")
        project = load(locate())
        assert (project.spans, project.spans_folder) == (True, str(tmp_path / folder))
    (tmp_path / "orch.toml").write_text("")
    assert not load(locate()).spans
    (tmp_path / "orch.toml").write_text("[queue]\nspans = 'often'")
    with pytest.raises(Exception, match=r"queue\.spans"):
        load(locate())
