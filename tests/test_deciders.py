"""Deciders: what they are given, what is made of their answer, and what their failures cost."""

from __future__ import annotations

import json
import shutil
import signal
import stat
from typing import Any

import pytest

from orch import decision, notify, processes
from orch.deciders import decide
from orch.place import locate
from orch.plan import Demand, Plan, Snapshot, Wish
from orch.settings import load
from tests.conftest import World, eventually

DECIDERS = """
import json, os, sys, time

def choose(snapshot):
    print("what is printed is no plan")
    ready = {demand.mode: demand.ready for demand in snapshot.modes if demand.ready}
    return {"seats": {mode: 1 for mode in ready}, "reasoning": f"one each of {sorted(ready)}"}

def hang(snapshot):
    import subprocess
    child = subprocess.Popen(["sleep", "1003"])
    open("child", "w").write(str(child.pid))
    time.sleep(1000)

def leave(snapshot):
    os._exit(3)

def fail(snapshot):
    raise ValueError("no [idea] at all")

def junk(snapshot):
    return {1, 2}

not_a_function = 5
"""


def decide_by(world: World, table: str, limits: str = "") -> None:
    (world.folder / "deciders.py").write_text(DECIDERS)
    world.settings(f"[decide]\n{table}", limits=limits)


def plan_of(world: World) -> Plan:
    return decide(snapshot(world), load(locate(config=str(world.folder / "orch.toml"))))


def snapshot(world: World) -> Snapshot:
    from orch.seating import snapshot as take

    return take(world.queue, load(locate(config=str(world.folder / "orch.toml"))))


def shell(script: str) -> str:
    """A decider that is a shell script."""
    return f"command = ['sh', '-c', {json.dumps(script)}]"


def test_a_command_decides_by_the_snapshot_and_the_note_says_why(world: World) -> None:
    program = world.folder / "choose.sh"
    program.write_text(
        "#!/bin/sh\n"
        "cat > seen.json\n"
        """printf '%s' '{"seats": {"ok": 2, "fail": 20}, "order": ["fail"], "caps": {"max_pool": 3},"""
        """ "reasoning": "first what [fails]"}'\n"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    decide_by(world, "command = ['./choose.sh']")
    for _ in range(4):
        world.orch("add", "ok")
        world.orch("add", "fail")
    rollup = world.answer("fire")
    plan = rollup["plan"]
    assert plan["asked"] == {"fail": 20, "ok": 2}
    assert plan["granted"] == {"fail": 3}
    assert plan["caps"] == {"max_pool": 3}
    assert ["max_pool", "3 of 6 seats; no seat for ok"] in rollup["cuts"]
    assert ["backlog", "fail: 4 of 20 seats"] in plan["cuts"]
    [note] = world.answer("notes")
    assert "- command ./choose.sh: first what [fails]" in note["body"]
    assert "- fail: 3 of 20 seats" in note["body"]
    assert "max_pool: 3 of 6 seats" in note["body"]
    seen = json.loads((world.folder / "seen.json").read_text())
    assert seen["schema_version"] == 1
    assert {mode["mode"]: mode["ready"] for mode in seen["modes"] if mode["ready"]} == {"ok": 4, "fail": 4}
    stored = world.answer("plan", "--fire", "1")
    assert stored == plan
    # The next one sees what this one has measured and asked of people.
    after = snapshot(world)
    measured = {demand.mode: demand.measured for demand in after.modes}
    assert measured["fail"] is not None
    assert (measured["fail"].attempts, measured["fail"].failure_rate) == (4, 1.0)
    assert [question.fire for question in after.questions] == [1]
    assert after.notes[0].text == note["body"]


def test_a_function_decides_in_a_process_of_its_own(world: World) -> None:
    decide_by(world, "function = 'deciders:choose'")
    world.orch("add", "ok")
    world.orch("add", "ran")
    rollup = world.answer("fire")
    assert rollup["plan"]["decider"] == "function deciders:choose"
    assert rollup["plan"]["reasoning"] == "one each of ['ok', 'ran']"
    assert "what is printed is no plan" in world.err
    assert sorted(world.states().values()) == ["done", "done"]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (shell("""echo '{"seats": {"ok": 999}}'"""), "seats.ok: input should be less than or equal to 500, not 999"),
        (shell("echo I would rather not"), "not valid JSON"),
        (shell("true"), "it printed no plan"),
        (shell("""echo '{"seats": {"ok": -1}}'"""), "greater than or equal to 0"),
        (shell("""echo '{"seats": {"ok": NaN}}'"""), "NaN is not JSON"),
        (shell("""echo '{"seats": {}, "extra": 1}'"""), "extra"),
        (shell("""echo '{"seats": {"elsewhere": 1}}'"""), "it names the mode 'elsewhere', which orch.toml does not"),
        (shell("""echo '{"seats": {}, "schema_version": 2}'"""), "schema_version"),
        (shell("echo '[1]'"), "the plan"),
        (shell("yes"), "within 0.3 s"),
        (shell("exit 1"), "exit 1"),
        (shell("echo no money left >&2; exit 3"), "exit 3: no money left"),
        (shell("kill -9 $$"), "killed by SIGKILL"),
        (shell("sleep 1003"), "it gave no plan within 0.3 s"),
        ("command = ['./not-there']", "no program './not-there'"),
        ("function = 'deciders:leave'", "its process exited with 3"),
        ("function = 'deciders:fail'", "ValueError: no [idea] at all"),
        ("function = 'deciders:junk'", "its plan is not JSON"),
        ("function = 'deciders:missing'", "cannot load 'deciders:missing'"),
        ("function = 'deciders:not_a_function'", "is a int, not a function"),
    ],
)
def test_a_decider_that_fails_costs_a_line_and_the_backlog_decides(world: World, table: str, told: str) -> None:
    limit = "timeout = 0.3" if "0.3" in told else "timeout = 60"
    decide_by(world, f"{table}\n{limit}")
    world.queue.add("ok")
    world.queue.mail.tell("only billing today")
    plan = plan_of(world)
    assert told in (plan.problem or "")
    assert (plan.decider, plan.granted, plan.read) == ("the backlog", {"ok": 1}, [])


@pytest.mark.full
def test_what_a_hanging_function_has_started_is_ended_with_it(world: World) -> None:
    decide_by(world, "function = 'deciders:hang'\ntimeout = 1.5")
    world.orch("add", "ok")
    rollup = world.answer("fire")
    assert rollup["plan"]["problem"] == "function deciders:hang: it gave no plan within 1.5 s"
    assert world.states() == {1: "done"}
    child = int((world.folder / "child").read_text())
    eventually(lambda: processes.started(child) is None, "the end of its child")
    [note] = world.answer("notes")
    assert "it gave no plan within 1.5 s; the backlog decided instead" in note["body"]


def test_a_decider_that_fails_loses_nothing_and_the_note_says_so(world: World) -> None:
    decide_by(world, shell("""echo '{"seats": {"ok": 999}}'"""))
    for _ in range(3):
        world.orch("add", "ok")
    world.orch("tell", "only", "billing", "today")
    world.orch("fire")
    assert "the backlog decided instead" in world.answer("notes")[0]["body"]
    assert set(world.states().values()) == {"done"}
    assert [told.text for told in world.queue.mail.unread()] == ["only billing today"]


@pytest.mark.parametrize("cap", ["fire_tokens", "max_pool", "task_cap", "wall_clock_minutes", "fire_cost_usd"])
def test_no_number_of_a_plan_can_break_a_fire(world: World, cap: str) -> None:
    plan = '{"seats": {"ok": 1}, "caps": {"' + cap + '": ' + "9" * 400 + "}}"
    decide_by(world, shell(f"echo '{plan}'"))
    world.queue.add("ok")
    assert f"caps.{cap}" in (plan_of(world).problem or "")
    if cap == "fire_tokens":
        world.orch("fire")
        world.orch("sweep")
        assert world.states() == {1: "done"}
        assert world.answer("fires")[0]["ending"] == "passed"


def test_a_plan_without_seats_is_told_of_though_it_says_nothing(world: World) -> None:
    decide_by(world, shell("""echo '{"seats": {}}'"""))
    world.queue.add("ok")
    world.orch("fire")
    text = (world.folder / ".orch" / "notes.md").read_text()
    assert "- by command sh" in text
    assert "no seats: nothing was drained" in text


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_plan_that_is_only_looked_at_ends_its_decider_when_it_is_ended(world: World, signum: int) -> None:
    decide_by(world, shell("echo $$ > asked; exec sleep 1008"))
    world.queue.add("ok")
    plan = world.start("plan")
    asked = world.folder / "asked"
    eventually(lambda: asked.exists() and asked.read_text().strip(), "the question")
    plan.send_signal(signum)
    assert plan.wait(30) == 128 + signum
    eventually(lambda: processes.started(int(asked.read_text())) is None, "the decider's end")


def test_a_mean_price_counts_every_attempt_that_told_one(world: World) -> None:
    for code in (0, 1, 75):
        words = ["sh", "-c", f"""echo '{{"metrics": {{"cost_usd": 1, "tokens": 10}}}}'; exit {code}"""]
        world.queue.add("run", {"words": words})
    world.orch("fire")
    [measured] = [demand.measured for demand in snapshot(world).modes if demand.measured]
    assert (measured.attempts, measured.cost_usd, measured.tokens) == (2, 1.0, 10.0)


def test_a_stopped_fire_does_not_wait_for_its_decider(world: World) -> None:
    decide_by(world, shell("touch asked; sleep 1003"))
    world.orch("add", "ok")
    fire = world.start("fire")
    eventually(lambda: (world.folder / "asked").exists(), "the question")
    fire.terminate()
    assert fire.wait(30) == 143
    assert world.states() == {1: "incoming"}
    assert world.answer("fires")[0]["ending"] == "stopped"


def test_a_decider_that_outlives_its_fire_is_ended_by_the_next_sweep(world: World) -> None:
    decide_by(world, shell("echo $$ > asked; exec sleep 1006"))
    world.orch("add", "ok")
    world.orch("tell", "hello")
    fire = world.start("fire")
    eventually(
        lambda: (world.folder / "asked").exists() and (world.folder / "asked").read_text().strip(), "the question"
    )
    fire.kill()
    fire.wait(30)
    world.settings("")
    world.orch("sweep")
    decider = int((world.folder / "asked").read_text())
    eventually(lambda: processes.started(decider) is None, "the decider's end")
    assert world.answer("fires")[0]["ending"] == "died"
    assert len(world.queue.mail.unread()) == 1, "nobody has read it"


# The inbox


@pytest.mark.full
def test_only_a_decider_that_was_given_a_text_marks_it_read(world: World) -> None:
    awkward = "only [billing] today :smile: \x1b[31m"
    world.orch("add", "ok")
    assert world.orch("tell", awkward) == "text 1 waits for the next decider\n"
    world.orch("fire")
    body = world.answer("notes")[0]["body"]
    assert "nobody has read yet: only [billing] today :smile: \\x1b[31m" in body
    decide_by(world, shell("""cat > seen.json; echo '{"seats": {}}'"""))
    assert world.answer("fire")["plan"]["read"] == [1]
    assert [told["text"] for told in json.loads((world.folder / "seen.json").read_text())["inbox"]] == [awkward]
    assert world.queue.mail.unread() == []
    [told] = world.answer("tell", "--all")
    assert told["fire"] == 2
    world.orch("tell", "never mind")
    world.orch("tell", "--take-back", "2")
    world.orch("tell", "--take-back", "2", code=3)
    assert "no unread text 2" in world.err
    assert "nothing is waiting" in world.orch("tell")


@pytest.mark.full
def test_a_plan_that_is_only_looked_at_leaves_everything_as_it_was(world: World) -> None:
    decide_by(world, shell("""cat >/dev/null; echo '{"seats": {"ok": 7}, "reasoning": "why not"}'"""))
    world.orch("add", "ok")
    world.orch("add", "ran")
    world.orch("pause", "ran")
    world.orch("tell", "hello")
    told = world.orch("plan", "--explain")
    assert "decided by command sh: why not" in told
    assert [line.split() for line in told.splitlines() if line.split()[:1] == ["ok"]] == [
        ["ok", "1", "7", "1", "backlog"]
    ]
    assert [line.split()[-1] for line in told.splitlines() if line.split()[:1] == ["ran"]] == ["paused"]
    assert len(world.queue.mail.unread()) == 1
    assert world.answer("fires") == []
    assert world.states() == {1: "incoming", 2: "incoming"}
    seen = json.loads(world.orch("plan", "--snapshot"))
    assert [told["text"] for told in seen["inbox"]] == ["hello"]
    assert [mode["pause_reason"] for mode in seen["modes"] if mode["paused"]] == [None]


def test_a_decider_that_wants_nothing_done_says_why_in_a_note_that_is_sent(world: World) -> None:
    decide_by(world, shell("""echo '{"seats": {}, "reasoning": "not on a Sunday"}'"""))
    world.orch("add", "ok")
    assert world.answer("fire")["ending"] == "idle"
    assert world.states() == {1: "incoming"}
    assert "command sh: not on a Sunday" in (world.folder / ".orch" / "notes.md").read_text()


def test_lower_caps_of_a_plan_hold_for_its_fire(world: World) -> None:
    plan = '{"seats": {"ok": 5, "run": 1}, "caps": {"task_cap": 2, "fire_cost_usd": 0.5}}'
    decide_by(world, shell(f"echo '{plan}'"))
    words = ["sh", "-c", """echo '{"metrics": {"cost_usd": 0.5}}'"""]
    for _ in range(20):
        world.queue.add("ok")
        world.queue.add("run", {"words": words})
    rollup = world.answer("fire")
    done = {tally["mode"]: tally["done"] for tally in rollup["tallies"]}
    assert done["run"] == 1, "one attempt spends it all"
    assert done.get("ok", 0) <= 10
    assert rollup["plan"]["caps"] == {"task_cap": 2, "fire_cost_usd": 0.5}
    assert "fire_cost_usd" in dict(rollup["cuts"])


def test_nobody_is_asked_when_there_is_nothing_to_decide(world: World) -> None:
    decide_by(world, shell("touch asked; exit 1"))
    assert plan_of(world) == Plan()
    assert not (world.folder / "asked").exists()


# The border


def test_the_schemas_are_printed_and_fit_what_is_read_and_written(world: World) -> None:
    printed = json.loads(world.orch("plan", "--schema"))
    assert set(printed) == {"snapshot", "plan"}
    assert set(printed["plan"]["properties"]) == {"schema_version", "seats", "order", "caps", "reasoning"}
    assert printed["plan"]["required"] == ["seats"]
    named: dict[str, Any] = json.loads(decision.as_json(Snapshot()))
    properties = printed["snapshot"]["$defs"]["Snapshot"]["properties"] if "$defs" in printed["snapshot"] else {}
    assert set(named) == set(properties or printed["snapshot"]["properties"])


def test_a_snapshot_survives_the_border_unchanged(world: World) -> None:
    world.queue.add("ok", {"x": 1})
    world.queue.mail.tell("text")
    seen = snapshot(world)
    assert decision.as_json(decision.read_snapshot(decision.as_json(seen))) == decision.as_json(seen)


def test_a_program_may_decide_for_itself(world: World) -> None:
    seen = Snapshot(modes=[Demand("ok", ready=9)], caps=decision.plan.Caps(max_pool=4))
    project = load(locate(config=str(world.folder / "orch.toml")))
    assert decide(seen, project, callback=lambda _: Wish({"ok": 3})).granted == {"ok": 3}
    assert decide(seen, project, callback=lambda _: {"seats": {"ok": 9}}).granted == {"ok": 4}
    assert "ZeroDivisionError" in (decide(seen, project, callback=lambda _: 1 / 0).problem or "")  # type: ignore[arg-type,return-value]


def test_a_reasoning_cannot_forge_a_note(world: World) -> None:
    decide_by(world, shell("""printf '{"seats": {}, "reasoning": "x\\\\n\\\\n**Needs a person:** pay me"}'"""))
    world.orch("add", "ok")
    world.orch("fire")
    body = world.answer("notes")[0]["body"]
    assert "\n**Needs" not in body
    assert "**Needs a person:** pay me" in body
    assert notify.one_line("a\nb") == "a\\nb"


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_ten_lines_of_shell_with_jq_decide(world: World) -> None:
    program = world.folder / "decide.sh"
    program.write_text(
        "#!/bin/sh\n"
        "jq '{seats: [.modes[] | select(.known and .ready > 0) | {(.mode): 1}] | add,"
        ' reasoning: "one each, \\(.inbox | length) read"}\'\n'
    )
    program.chmod(0o755)
    decide_by(world, "command = ['./decide.sh']")
    world.queue.add("ok")
    world.queue.add("ran")
    plan = plan_of(world)
    assert (plan.problem, plan.granted, plan.reasoning) == (None, {"ok": 1, "ran": 1}, "one each, 0 read")
