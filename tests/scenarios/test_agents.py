"""Agents as commands: what they are told, how their answers are taken, and where each leads."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from orch import followup
from orch.handoff import ROLES, Handback, orders, read_delegates
from orch.outcomes import Done
from orch.queue import Queue
from orch.work import improvement
from orch.work.agent import delegate_of, lead
from tests.conftest import World, eventually
from tests.scenarios.test_fire import notes, running

SCRIPTED = Path(__file__).parent.parent / "agents" / "scripted.py"


def agents(world: World, *roles: str, extra: str = "", retry: str = "retry_max_attempts = 2", limits: str = "") -> None:
    command = json.dumps([sys.executable, str(SCRIPTED)])
    tables = "\n".join(f"[agents.{role}]\ncommand = {command}\n{extra}" for role in roles or ("engineer",))
    world.settings(tables, retry=retry, limits=limits)


def delegate(world: World, scope: str, id: str = "t1", role: str = "engineer", extra: str = "") -> int:
    text = (
        f"handoff_type: DELEGATE\ntask_id: {id}\nagent: {role}\nscope: {json.dumps(scope)}\n"
        f"plan: [do it]\nsuccess_criteria: [it is done]\n{extra}"
    )
    [read] = read_delegates(text.encode())
    [added] = world.queue.add_many([orders.task_of(read)])
    return added.id


def reason(world: World, id: int = 1) -> str:
    return world.queue.attempts(id)[-1].error or world.queue.task(id).reason or ""


def test_an_answer_that_holds_makes_its_task_done_and_is_kept(world: World) -> None:
    agents(world)
    delegate(world, "say('Thinking.'); say(answer('success', metrics='{tokens: 1200, cost: 0.5}', confidence='0.9'))")
    rollup = world.answer("fire")
    assert world.states() == {1: "done"}, reason(world)
    result = json.loads(world.queue.attempts(1)[0].result or "")
    assert (result["status"], result["output"], result["confidence"]) == ("success", "as asked", 0.9)
    assert (rollup["tallies"][0]["tokens"], rollup["tallies"][0]["cost_usd"]) == (1200, 0.5)
    assert world.orch("log", "1").startswith("Thinking.\n```yaml\n")
    assert (world.folder / ".orch/output/0/1-1.delegate.yaml").read_text().startswith("handoff_type: DELEGATE")


def test_an_answer_may_be_left_in_a_file(world: World) -> None:
    agents(world)
    delegate(world, "drop(answer('success', deliverables='[worked]')); say('I left it in the file.')")
    world.orch("fire")
    assert world.states() == {1: "done"}, reason(world)
    assert (world.folder / ".orch/output/0/1-1.handback.yaml").exists()


def test_what_is_no_file_where_an_answer_may_be_left_is_passed_over(world: World) -> None:
    agents(world)
    delegate(world, "os.mkfifo(os.environ['HANDBACK_PATH']); say(answer('success'))")
    world.orch("fire")
    assert (world.states(), world.queue.task(1).attempts) == ({1: "done"}, 1), reason(world)


def test_an_agent_without_a_block_is_asked_once_more_and_told_what_was_wrong(world: World) -> None:
    agents(world)
    delegate(world, "say(answer('success') if asked_again() else 'It is all done.')")
    world.orch("fire")
    assert world.states() == {1: "done"}, reason(world)
    assert len(world.lines("worked")) == 2
    assert world.queue.task(1).attempts == 1
    assert world.orch("log", "1").startswith("It is all done.\n")


FULL = pytest.mark.full


@pytest.mark.parametrize(
    "scope",
    [
        "say('nothing to see')",
        "sys.stdout.write(answer('success')[:-5])",
        "sys.exit(3)",
        pytest.param("pass", marks=FULL),
        pytest.param("say(answer('mostly'))", marks=FULL),
        pytest.param("say(answer('success').replace(ID, 't2'))", marks=FULL),
        pytest.param("say(ORDER)", marks=FULL),
        pytest.param("os.kill(os.getpid(), 9)", marks=FULL),
    ],
)
def test_no_answer_is_no_success_and_after_the_last_try_a_person_is_asked(world: World, scope: str) -> None:
    agents(world)
    delegate(world, scope)
    world.orch("fire")
    assert world.states() == {1: "failed"}, reason(world)
    assert world.queue.task(1).attempts == 2
    [ask] = world.queue.asks.open()
    assert (ask.task, ask.kind) == (1, "review")
    assert "has had its last try" in notes(world)[0]
    world.orch("fire")
    assert world.queue.task(1).attempts == 2


AGAINST = {
    "say(answer('success')); sys.exit(1)": "its program ended with exit code 1",
    "say(answer('success', tests='{passed: 3, failed: 1}'))": "tests failed",
    "say(answer('success', deliverables='[made/up.py]'))": "made/up.py is not there",
    "say(answer('success', '', deliverables='[]'))": "neither an output nor a deliverable",
    "say(answer('failure', error='no compiler'))": "no compiler",
}


def test_what_speaks_against_a_success_fails_the_task_with_the_reason(world: World) -> None:
    agents(world)
    for n, scope in enumerate(AGAINST, 1):
        delegate(world, scope, f"t{n}")
    world.orch("fire")
    assert world.states() == dict.fromkeys(range(1, len(AGAINST) + 1), "failed")
    for n, told in enumerate(AGAINST.values(), 1):
        assert told in reason(world, n)


def test_a_success_of_an_agent_that_ran_out_of_time_is_none(world: World) -> None:
    agents(world, extra="timeout = 1")
    delegate(world, "say(answer('success')); time.sleep(2000)")
    world.orch("fire")
    assert world.queue.attempts(1)[0].reason == "timeout"
    assert world.states() != {1: "done"}


@pytest.mark.parametrize("status", ["blocked", pytest.param("partial", marks=FULL)])
def test_what_only_a_person_can_decide_is_asked_and_the_answer_goes_on(world: World, status: str) -> None:
    agents(world)
    delegate(
        world,
        f"say(answer('success' if 'person ' 'answered: the red one' in DELEGATE else {status!r}, 'red or blue?'))",
    )
    world.orch("fire")
    assert world.states() == {1: "failed"}
    assert "**Needs a person:** t1 is " + status + ": red or blue?" in notes(world)[0]
    assert "red or blue?" in world.orch("asks")
    assert "goes on as task 2 (t1-2)" in world.orch("answer", "1", "the red one")
    world.orch("answer", "1", "the blue one", code=9)
    assert world.orch("asks") == "nothing waits for a person\n"
    world.orch("fire")
    assert world.states() == {1: "failed", 2: "done"}, reason(world, 2)
    assert [one.id for one in world.queue.asks.ancestors(2)] == [1]


def test_an_answer_goes_on_with_the_whole_order_however_much_was_said(world: World) -> None:
    delegate(world, "dig", extra="skill: deep-dive\nout_of_scope: [the database]\n")
    for said in ("x" * 300_000, "half \udce9"):
        last = world.queue.tasks()[0]
        asked = world.queue.asks.ask(last.id, "blocked", "how?")
        followed = followup.answer(world.queue, asked, said, agents=[])
    order = delegate_of(followed, ROLES)
    assert (order.task_id, order.skill, order.extra) == ("t1-2-2", "deep-dive", {"out_of_scope": ["the database"]})
    assert [text[-5:] for text in order.context if text.startswith("A person")] == ["udce9", "xxxxx"]


@pytest.mark.full
def test_a_question_is_closed_by_its_number_or_when_its_task_is_queued_again(world: World) -> None:
    agents(world)
    for id in ("t1", "t2"):
        delegate(world, "say(answer('blocked', 'how?'))", id)
    world.orch("fire")
    assert "question 1 is closed" in world.orch("answer", "1", "--close")
    world.orch("retry", str(world.queue.asks.open()[0].task))
    assert world.answer("asks") == []
    world.orch("answer", "7", "no", code=3)
    world.orch("answer", "1", code=2)


def test_escalation_hands_the_task_to_the_other_role_with_its_story(world: World) -> None:
    agents(world, "engineer", "security-engineer")
    hand_on = "answer('escalate', 'a hole', escalate_to='Security Engineer')"
    delegate(world, f"say(answer('success') if ROLE == 'security-engineer' else {hand_on})")
    world.orch("fire")
    world.orch("fire")
    assert world.states() == {1: "done", 2: "done"}, reason(world, 2)
    follower = world.queue.task(2)
    assert (follower.mode, follower.key) == ("security-engineer", "t1-escalated-to-security-engineer")
    assert "Escalated by engineer" in follower.payload["delegate"]
    assert json.loads(world.queue.attempts(1)[0].result or "")["status"] == "escalate"


@pytest.mark.parametrize("other", ["lead-engineer", pytest.param("engineer", marks=FULL)])
def test_escalation_ends_whatever_the_agents_say(world: World, other: str) -> None:
    agents(world, "engineer", "lead-engineer", "security-engineer")
    to = f"'lead-engineer' if ROLE == 'engineer' else {other!r}"
    delegate(world, f"say(answer('escalate', 'not mine', escalate_to={to}, escalation_chain='[]'))")
    for _ in range(6):
        world.orch("fire")
    assert len(world.lines("worked")) == 2, "from one to the other, and to a person"
    [ask] = world.queue.asks.open()
    assert ask.kind == "escalation"
    assert "has had it already" in ask.question
    assert set(world.states().values()) <= {"done", "failed"}


def test_a_usage_limit_pauses_the_role_until_its_reset_and_costs_no_try(world: World) -> None:
    agents(world)
    limit = {"type": "result", "is_error": True, "result": "Usage limit reached, try again in 2 hours"}
    delegate(world, f"import json; say(json.dumps({limit})); sys.exit(1)")
    delegate(world, "say(answer('success'))", "t2")
    world.orch("fire", "--max-pool", "1")
    assert [(task.state, task.retry_count) for task in world.queue.tasks()] == [("incoming", 0)] * 2
    [pause] = world.queue.pauses()
    assert "Usage limit reached" in (pause.reason or "")
    assert len(world.lines("worked")) == 1


def test_a_missing_program_or_folder_is_told_before_anything_is_claimed(world: World) -> None:
    world.settings('[agents.engineer]\ncommand = ["no-such-agent"]')
    delegate(world, "pass")
    world.orch("fire", code=1)
    assert world.queue.task(1).attempts == 0
    assert "its program 'no-such-agent' is not on PATH=" in world.err
    world.settings('[agents.engineer]\ncommand = ["true"]\nfolder = "nowhere"')
    world.orch("fire", code=1)
    assert world.queue.task(1).attempts == 0
    assert "nowhere is not there" in world.err


def test_the_words_the_flags_and_the_environment_are_as_the_settings_say(world: World) -> None:
    show = "import os, sys; print(sys.argv[1:], sorted(n for n in os.environ if n in ('SECRET', 'TOKEN', 'OTHER')))"
    command = json.dumps(
        [sys.executable, "-c", show, "{task_id}:{role}", "--model={model}", "{flags}", "-e", "{effort}"]
    )
    world.settings(
        f'[agents.engineer]\ncommand = {command}\nmodel = "sonnet"\neffort = "low"\n'
        'flags = ["--allow", "a b"]\nkeep_env = ["TOKEN"]\n'
        f'[agents.lead-engineer]\ncommand = {command}\ndrop_env = ["SECRET"]\nmodel = "opus"\neffort = "high"'
    )
    delegate(world, "pass")
    delegate(world, "pass", "t2", "lead-engineer")
    world.orch("fire", env={"SECRET": "1", "TOKEN": "2", "OTHER": "3"})
    first = world.orch("log", "1").splitlines()[0]
    assert first == "['t1:engineer', '--model=sonnet', '--allow', 'a b', '-e', 'low'] ['TOKEN']"
    assert "['t2:lead-engineer', '--model=opus', '-e', 'high'] ['OTHER', 'TOKEN']" in world.orch("log", "2")


def test_an_answer_of_five_megabytes_is_read_whole_and_kept_at_both_ends(world: World) -> None:
    agents(world)
    delegate(world, "[say('x' * 99_999) for _ in range(50)]; say(answer('success'))")
    world.orch("fire")
    assert world.states() == {1: "done"}, reason(world)
    assert (world.folder / ".orch/output/0/1-1.out").stat().st_size < 1_100_000


@pytest.mark.full
def test_a_role_whose_task_is_no_delegate_says_so(world: World) -> None:
    agents(world)
    world.orch("add", "engineer", "text=do it")
    world.orch("fire")
    assert "add it with 'orch delegate'" in reason(world)


@FULL
def test_an_agent_that_kills_its_worker_is_started_as_often_as_the_limit_says(world: World) -> None:
    agents(world, retry="retry_max_attempts = 3")
    delegate(world, "os.kill(os.getppid(), 9); time.sleep(2000)")
    for n in range(2, 6):
        delegate(world, "say(answer('success'))", f"t{n}")
    for _ in range(6):
        world.orch("fire")
        world.orch("sweep")
    assert world.states() == {1: "failed", 2: "done", 3: "done", 4: "done", 5: "done"}
    assert world.lines("worked").count("t1 engineer") == 3
    assert [ask.task for ask in world.queue.asks.open()] == [1]
    assert not running(shlex.quote(str(SCRIPTED)))


def test_an_improvement_may_go_to_a_role_that_had_the_task_it_came_of(world: World) -> None:
    for id, role in (("t1", "engineer"), ("t2", "lead-engineer"), ("t3", "lead-engineer")):
        delegate(world, "work", id, role)
    world.queue.asks.follow(2, 1, "escalation")
    world.queue.asks.follow(3, 2, "improvement")
    said = Handback("t3", "escalate", escalate_to="engineer")
    outcome = lead(world.queue, world.queue.task(3), said, project="", roles=ROLES)
    assert isinstance(outcome, Done)


# The gate


def gated(world: World, verdict: str, *, roles: tuple[str, ...] = ("engineer",), retry: str = "") -> None:
    """An engineer with a gate, and a judge that gives this verdict."""
    command = json.dumps([sys.executable, str(SCRIPTED)])
    judge = json.dumps([sys.executable, str(SCRIPTED), verdict])
    tables = "\n".join(f"[agents.{role}]\ncommand = {command}\ngate = true" for role in roles)
    world.settings(f"{tables}\n[agents.quality-engineer]\ncommand = {judge}", retry=retry or "retry_max_attempts = 2")


def states_by_key(world: World) -> dict[str | None, str]:
    return {task.key: task.state for task in world.queue.tasks()}


def test_a_success_counts_when_the_judge_approves_and_the_verdict_is_not_judged(world: World) -> None:
    gated(world, "say(answer('success'))")
    delegate(world, "say(answer('success', 'made it', metrics='{tokens: 10}'))")
    rollup = world.answer("fire")
    assert states_by_key(world) == {"t1": "done", "t1-qe-gate": "done"}, reason(world)
    assert world.lines("worked") == ["t1 engineer", "t1-qe-gate quality-engineer"]
    order = world.queue.find("t1-qe-gate").payload["delegate"]
    assert "made it" in order
    assert "it is done" in order
    assert {tally["mode"]: tally["done"] for tally in rollup["tallies"]} == {"engineer": 1, "quality-engineer": 1}
    assert world.queue.asks.kept_answer(1) is None


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("say(answer('failure', error='two tests are red'))", "rejected by the quality gate: two tests are red"),
        ("say(answer('escalate', 'not mine'))", "rejected by the quality gate: the judge wants somebody else"),
        pytest.param("say(answer('blocked', 'who knows'))", "quality gate: blocked: who knows", marks=FULL),
        pytest.param("say(answer('success')); sys.exit(1)", "quality gate: it says success, but", marks=FULL),
    ],
)
def test_what_the_judge_does_not_approve_fails_with_its_reasons(world: World, verdict: str, told: str) -> None:
    gated(world, verdict)
    delegate(world, "say(answer('success'))")
    world.orch("fire")
    assert world.queue.task(1).state == "failed"
    assert told in reason(world)
    assert len(world.lines("worked")) == 2
    assert world.queue.asks.open() == []


@pytest.mark.parametrize(
    "verdict",
    [
        "say('fine by me')",
        pytest.param("sys.exit(3)", marks=FULL),
        pytest.param("say(answer('success').replace(ID, 't1'))", marks=FULL),
    ],
)
def test_a_judge_without_a_verdict_is_no_approval_and_the_work_is_not_done_again(world: World, verdict: str) -> None:
    gated(world, verdict)
    delegate(world, "say(answer('success'))")
    world.orch("fire")
    assert world.queue.task(1).state == "failed"
    assert "no verdict" in reason(world)
    assert world.lines("worked").count("t1 engineer") == 1
    assert [ask.kind for ask in world.queue.asks.open()] == ["review"]


def test_a_crash_at_the_gate_has_the_kept_answer_judged_and_not_the_work_done_again(world: World) -> None:
    gated(
        world,
        "open('died', 'x') and os.kill(os.getppid(), 9) if not os.path.exists('died') else say(answer('success'))",
    )
    delegate(world, "say(answer('success', 'made once'))")
    world.orch("fire")
    world.orch("fire")
    assert states_by_key(world)["t1"] == "done", reason(world)
    assert world.lines("worked").count("t1 engineer") == 1
    assert json.loads(world.queue.attempts(1)[-1].result or "")["output"] == "made once"
    assert set(states_by_key(world).values()) == {"done", "failed"}


@pytest.mark.full
def test_the_clock_of_a_task_stands_still_while_it_is_judged(world: World) -> None:
    gated(world, "time.sleep(4); say(answer('success'))")
    text = (world.folder / "orch.toml").read_text().replace("[agents.engineer]\n", "[agents.engineer]\ntimeout = 1.5\n")
    (world.folder / "orch.toml").write_text(text)
    delegate(world, "say(answer('success'))")
    world.orch("fire")
    assert states_by_key(world)["t1"] == "done", reason(world)


def test_what_an_agent_thinks_too_little_of_is_not_even_judged(world: World) -> None:
    gated(world, "say(answer('success'))")
    delegate(world, "say(answer('success', confidence='0.7'))")
    delegate(world, "say(answer('success', metrics='{quality: 75%}'))", "t2")
    delegate(world, "say(answer('success', confidence='0.71', metrics='{quality: 0.76}'))", "t3")
    world.orch("fire")
    assert states_by_key(world) == {"t1": "failed", "t2": "failed", "t3": "done", "t3-qe-gate": "done"}
    assert "its own confidence is 0.7, and more than 0.7 is asked for" in reason(world, 1)


def test_a_gate_needs_a_judge_who_has_none(world: World) -> None:
    world.settings('[agents.engineer]\ncommand = ["true"]\ngate = true')
    world.orch("status", code=2)
    assert "add [agents.quality-engineer]" in world.err
    world.settings('[agents.quality-engineer]\ncommand = ["true"]\ngate = true')
    world.orch("status", code=2)


def test_cancelling_a_task_at_the_gate_ends_the_judge(world: World) -> None:
    gated(world, "open('judging', 'w'); time.sleep(2000)")
    delegate(world, "say(answer('success'))")
    fire = world.start("fire")
    eventually(lambda: (world.folder / "judging").exists(), "the judge's start")
    world.orch("cancel", "t1")
    assert fire.wait(60) == 0
    assert states_by_key(world) == {"t1": "failed", "t1-qe-gate": "failed"}
    assert not running("scripted.py open")


# What an agent may do itself


def test_an_agent_hands_in_and_gives_signs_of_life_by_its_claim_alone(world: World) -> None:
    agents(world)
    orch = "__import__('subprocess').run([sys.executable, '-m', 'orch', *{}], input={}, text=True).returncode"
    beat, other = (orch.format(f"['heartbeat', {id!r}]", "''") for id in ("t1", "t2"))
    hand_in = orch.format("['handback', 't1']", "answer('success', 'handed in')")
    delegate(world, f"codes = [{beat}, {other}, {hand_in}]; open('codes', 'w').write(str(codes)); say('Bye.')")
    world.orch("add", "ok", "--key", "t2")
    world.orch("fire")
    assert world.lines("codes") == ["[0, 9, 0]"]
    assert world.states()[1] == "done", reason(world)
    assert json.loads(world.queue.attempts(1)[0].result or "")["output"] == "handed in"
    world.orch("heartbeat", "t1", code=2)
    world.orch("handback", "t1", stdin="```yaml\ntask_id: t1\nhandoff_type: HANDBACK\nstatus: success\n```\n", code=2)
    assert "ORCH_CLAIM are not set here" in world.err
    world.orch("heartbeat", "t1", env={"ORCH_TASK_ID": "1", "ORCH_CLAIM": "1"}, code=9)


# What is said of skills


def test_three_remarks_on_a_skill_make_one_improvement_and_not_a_second_while_it_is_open(world: World) -> None:
    agents(world)
    remark = "[{skill_name: Deep Dive, effectiveness_score: 0.4}, {skill_name: ../x}]"
    for n in range(1, 8):
        status = "failure" if n % 2 else "success"
        delegate(world, f"say(answer({status!r}, 'x', skill_feedback={remark!r}))", f"t{n}")
    world.orch("fire")
    improvements = [task for task in world.queue.tasks() if task.key and task.key.startswith("improve-")]
    assert [(task.key, task.mode, task.state) for task in improvements] == [
        ("improve-skill-deep-dive", "lead-engineer", "incoming")
    ]
    assert improvements[0].payload["delegate"].count("effectiveness_score") == 3
    assert len(world.queue.asks.feedback("deep-dive")) == 4
    world.orch("cancel", "improve-skill-deep-dive")
    delegate(world, f"say(answer('success', 'x', skill_feedback={remark!r}))", "t8")
    world.orch("fire")
    assert world.queue.find("improve-skill-deep-dive-2").state == "incoming"


def test_what_a_program_has_counted_goes_before_what_its_agent_says_and_is_spent_even_without_an_answer(
    world: World,
) -> None:
    agents(world, retry="retry_max_attempts = 1")
    cut = {"type": "result", "subtype": "error_max_turns", "is_error": True, "total_cost_usd": 0.5,
           "usage": {"input_tokens": 10, "output_tokens": 5}}  # fmt: skip
    delegate(world, f"import json; say(json.dumps({cut!r}))")
    envelope = (
        "{'type': 'result', 'subtype': 'success', 'result': answer('success', 'x', cost='9'), 'total_cost_usd': 0.25}"
    )
    delegate(world, f"import json; say(json.dumps({envelope}))", "t2")
    world.orch("fire")
    prices = [(attempt.tokens, attempt.cost_usd) for id in (1, 2) for attempt in world.queue.attempts(id)]
    assert prices == [(15, 0.5), (None, 0.25)]


def test_an_answer_about_rate_limits_is_no_limit_of_its_agent(world: World) -> None:
    agents(world, retry="retry_max_attempts = 1")
    delegate(world, "say('I have added a rate limit.')")
    world.orch("fire")
    assert world.states() == {1: "failed"}
    assert world.queue.pauses() == []


def test_remarks_that_pile_up_behind_an_open_improvement_still_make_one_order(queue: Queue) -> None:
    said = [{"skill_name": "deep", "note": "x" * 5000}] * 3
    improvement.record(queue, 1, said, 3)
    improvement.record(queue, 2, said * 100, 3)
    assert len(queue.asks.feedback("deep")) == 300
    queue.cancel(queue.find("improve-skill-deep").id)
    improvement.record(queue, 3, said[:1], 3)
    assert queue.find("improve-skill-deep-2").state == "incoming"
    assert queue.asks.feedback("deep") == []


def test_a_command_that_asks_for_a_model_is_not_run_without_one(world: World) -> None:
    world.settings('[agents.engineer]\ncommand = ["true", "{model}"]\n')
    delegate(world, "say('never')")
    world.orch("fire")
    assert "name one in the DELEGATE, or as model in [agents.engineer]" in reason(world)
