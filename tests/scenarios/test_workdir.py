"""Agents at work in folders of their own, and orders that cost more than they allow."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import World
from tests.scenarios.test_agents import agents, delegate, gated, reason, states_by_key
from tests.scenarios.test_fire import notes

# What the agents of these tests can do beside the others.
GIT = "import subprocess; git = lambda *words: subprocess.run(['git', *words], check=True, capture_output=True); "
COMMIT = "git('add', '-A'); git('commit', '-m', ID); "
WORKTREE = 'workdir = "worktree"'


def git(world: World, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=world.folder, check=True, capture_output=True, text=True).stdout


def repository(world: World, folder: Path | None = None) -> None:
    folder = folder or world.folder
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    for name, value in (("name", "Tester"), ("email", "tester@example.org")):
        git(world, "config", f"user.{name}", value)
    (world.folder / ".gitignore").write_text(".orch/\n*.ignored\n")
    git(world, "add", "-A")
    git(world, "commit", "-q", "-m", "begin")


def branches(world: World) -> list[str]:
    return git(world, "for-each-ref", "--format=%(refname:short)", "refs/heads/orch").split()


def folders(world: World) -> list[str]:
    return sorted(path.name for path in (world.folder / ".orch/work").glob("*/*-*"))


def test_agents_work_at_the_same_time_in_worktrees_and_each_leaves_a_branch(world: World) -> None:
    repository(world)
    agents(world, extra=WORKTREE)
    before = git(world, "status", "--porcelain")
    meet = (
        "here = os.environ['ORCH_PROJECT'] + '/.orch/met-'; open(here + ID, 'w'); "
        "any(time.sleep(0.01) for _ in iter(lambda: all(os.path.exists(here + f't{n}') for n in range(1, 7)), True)); "
    )
    scope = (
        "assert f'a git worktree on the branch orch/{ID}-1, which began at ' in ORDER; "
        + GIT
        + "open('mine.txt', 'w').write(ID); "
        + meet
        + COMMIT
        + "say(answer('success', deliverables='[mine.txt]'))"
    )
    for n in range(1, 7):
        delegate(world, scope, f"t{n}")
    world.orch("fire")
    assert set(world.states().values()) == {"done"}, [reason(world, n) for n in range(1, 7)]
    assert branches(world) == [f"orch/t{n}-1" for n in range(1, 7)]
    assert [git(world, "show", f"orch/t{n}-1:mine.txt") for n in range(1, 7)] == [f"t{n}" for n in range(1, 7)]
    assert (folders(world), len(git(world, "worktree", "list").splitlines())) == ([], 1)
    assert git(world, "status", "--porcelain") == before
    assert "left of try 1: branch orch/t3-1\n" in world.orch("show", "t3")


def test_a_worktree_stays_as_long_as_anything_in_it_would_be_lost(world: World) -> None:
    repository(world)
    agents(world, extra=WORKTREE)
    clean = GIT + "os.remove('worked'); "
    fail = "say(answer('failure', error='no'))"
    for n, scope in enumerate(
        (
            GIT + "open('half', 'w'); " + fail,
            clean + fail,
            clean + "open('x.ignored', 'w'); " + fail,
            GIT + "git('checkout', '--detach'); " + COMMIT + fail,
            GIT + COMMIT + "open('half', 'w'); " + fail,
        ),
        1,
    ):
        delegate(world, scope, f"t{n}")
    world.orch("fire")
    assert folders(world) == ["1-1", "3-1", "4-1", "5-1"]
    assert branches(world) == ["orch/t1-1", "orch/t3-1", "orch/t4-1", "orch/t5-1"]
    assert f"left of try 1: branch orch/t1-1, folder {os.path.realpath(world.folder)}/.orch/work/0/1-1" in " ".join(
        world.orch("show", "t1").split()
    )
    assert "left of try" not in world.orch("show", "t2")
    kept = world.answer("prune", "--older", "0", "--dry-run")["kept"]
    assert world.answer("prune", "--older", "0")["kept"] == kept
    assert "stays for what is in no commit" in world.err
    assert [Path(path).name for path in kept] == folders(world) == ["1-1", "4-1", "5-1"]
    assert (world.folder / ".orch/work/0/1-1/half").exists()
    assert branches(world) == ["orch/t1-1", "orch/t4-1", "orch/t5-1"]


def test_after_a_killed_worker_the_next_attempt_has_a_worktree_of_its_own(world: World) -> None:
    repository(world)
    agents(world, extra=WORKTREE)
    dies = "open('half', 'w'); os.kill(os.getppid(), 9); time.sleep(2000)"
    lives = COMMIT + "say(answer('success', str(os.path.exists('half'))))"
    delegate(world, GIT + f"exec({lives!r} if os.getcwd().endswith('-2') else {dies!r})")
    world.orch("fire")
    world.orch("fire")
    assert world.states() == {1: "done"}, reason(world)
    assert json.loads(world.queue.attempts(1)[-1].result or "")["output"] in ("False", False)
    assert (world.folder / ".orch/work/0/1-1/half").exists()
    assert branches(world) == ["orch/t1-1", "orch/t1-2"]
    assert git(world, "log", "--format=%s", "main..orch/t1-2") == "t1\n"


def test_what_was_there_before_fails_no_attempt(world: World) -> None:
    repository(world)
    agents(world, extra=WORKTREE)
    git(world, "branch", "orch/t1-1")
    leftover = world.folder / ".orch/work/0/1-1"
    leftover.mkdir(parents=True)
    (leftover / "old").touch()
    delegate(world, GIT + COMMIT + "say(answer('success'))")
    world.orch("fire")
    assert world.states() == {1: "done"}, reason(world)
    assert branches(world) == ["orch/t1-1", "orch/t1-1-2"]
    assert (leftover / "old").exists()


def test_a_worktree_is_the_projects_own_place_in_its_repository_whatever_git_the_caller_works_for(world: World) -> None:
    repository(world, world.folder.parent)
    agents(world, extra=WORKTREE)
    delegate(world, GIT + "say(answer('success', 'x', deliverables='[work.py]')); " + COMMIT)
    world.orch("fire", env={"GIT_DIR": str(world.folder / "nowhere"), "GIT_INDEX_FILE": "nowhere"})
    assert world.states() == {1: "done"}, reason(world)
    assert git(world, "diff", "--name-only", "--relative", "main", "orch/t1-1") == "worked\n"


def test_a_fresh_folder_is_empty_stays_and_goes_with_its_task(world: World) -> None:
    repository(world)
    agents(world, extra='workdir = "fresh"')
    look = "found = sorted(os.listdir()); home = os.environ['ORCH_PROJECT'] + '/orch.toml'; open('made.txt', 'w'); "
    alone = "out = subprocess.run(['git', 'status'], capture_output=True).returncode; "
    says = "say(answer('success', f'{found} {os.path.exists(home)} {out}', deliverables='[made.txt]'))"
    scope = GIT + look + alone + f"exec({says!r}) if asked_again() else say('Done.')"
    delegate(world, scope)
    world.orch("fire")
    assert world.states() == {1: "done"}, reason(world)
    # Asked again it was in the same folder.
    assert "'made.txt', 'worked'] True 128" in str(json.loads(world.queue.attempts(1)[0].result or "")["output"])
    assert (world.folder / ".orch/work/0/1-1/made.txt").exists()
    assert "left of try 1: folder " in world.orch("show", "t1")
    assert world.answer("prune", "--older", "1d") == {"tasks": 0, "files": 0, "size": 0, "kept": []}
    world.orch("prune", "--older", "0")
    assert folders(world) == []
    assert "left of try" not in world.orch("show", "t1")


def worktrees_and_a_judge(world: World, verdict: str, kind: str = "worktree") -> None:
    gated(world, GIT + "git('checkout', 'worked'); " + verdict)
    text = (world.folder / "orch.toml").read_text().replace("gate = true", f'gate = true\nworkdir = "{kind}"')
    (world.folder / "orch.toml").write_text(text)
    repository(world)
    own = (
        "git('init'); git('config', 'user.name', 'T'); git('config', 'user.email', 't@t'); " if kind == "fresh" else ""
    )
    delegate(world, GIT + own + "open('made.txt', 'w'); " + COMMIT + "say(answer('success', 'made once'))")


@pytest.mark.parametrize(
    ("first", "looks"), [("os.kill(os.getppid(), 9)", 1), pytest.param("say('who knows')", 2, marks=pytest.mark.full)]
)
def test_the_judge_looks_at_the_very_worktree_also_when_it_has_to_look_again(
    world: World, first: str, looks: int
) -> None:
    verdict = "say(answer('success' if os.path.exists('made.txt') else 'failure'))"
    count = "looks = open(os.environ['ORCH_PROJECT'] + '/looks', 'a+'); looks.write('x'); looks.flush(); "
    worktrees_and_a_judge(world, f"{count}exec({first!r} if looks.tell() <= {looks} else {verdict!r})")
    world.orch("fire")
    world.orch("fire")
    assert states_by_key(world)["t1"] == "done", reason(world)
    assert (world.queue.task(1).attempts, world.lines("looks")) == (2, ["x" * (looks + 1)])
    assert (branches(world), folders(world)) == (["orch/t1-1"], [])
    assert git(world, "log", "--format=%s", "main..orch/t1-1") == "t1\n"


@pytest.mark.parametrize(
    ("kind", "state"), [("worktree", "done"), pytest.param("fresh", "failed", marks=pytest.mark.full)]
)
@pytest.mark.full
def test_an_answer_is_never_judged_by_another_folder_than_its_own(world: World, kind: str, state: str) -> None:
    dies = "__import__('shutil').rmtree(os.getcwd()); open(home + '/died', 'x'); os.kill(os.getppid(), 9)"
    verdict = "say(answer('success' if os.path.exists('made.txt') else 'failure'))"
    home = "home = os.environ['ORCH_PROJECT']; "
    worktrees_and_a_judge(world, f"{home}exec({verdict!r} if os.path.exists(home + '/died') else {dies!r})", kind)
    world.orch("fire")
    world.orch("fire")
    assert states_by_key(world)["t1"] == state, reason(world)
    told = "the folder that it was made in is gone: 'orch retry 1' has it made again"
    assert (told in reason(world)) is (state == "failed")
    assert branches(world) == (["orch/t1-1"] if kind == "worktree" else [])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        ("", "is in no git repository"),
        ("git init -q", "has no commit yet: make one"),
        (
            "git init -q && git -c user.name=T -c user.email=t@t commit -q --allow-empty -m x && git branch orch",
            "a branch 'orch' is in the way",
        ),
        ("PATH", "git is not on PATH=/nowhere"),
    ],
)
def test_what_keeps_worktrees_from_being_made_is_told_before_anything_is_claimed(
    world: World, make: str, told: str
) -> None:
    agents(world, extra=WORKTREE)
    delegate(world, "pass")
    if make != "PATH":
        subprocess.run(make, shell=True, cwd=world.folder, check=True)
    world.orch("fire", code=1, env={"PATH": "/nowhere"} if make == "PATH" else {})
    assert world.queue.task(1).attempts == 0
    assert told in world.err


# What an order allows


def test_an_order_that_cost_more_than_it_allows_is_done_and_told_of(world: World) -> None:
    agents(world)
    for n, metrics in enumerate(("{cost: 1.5, tokens: 900}", "{cost: 0.5, tokens: 1200}", "{cost: 1.0}"), 1):
        allowed = "budget: 1.00\ntoken_quota: {total: 1000}\n"
        delegate(world, f"say(answer('success', metrics={metrics!r}))", f"t{n}", extra=allowed)
    world.orch("fire")
    assert world.states() == {1: "done", 2: "done", 3: "done"}
    note, shown = notes(world)[0], world.orch("show", "t1")
    assert "- task 1 (t1) is over its order: $1.50 of a budget of $1.00\n" in note
    assert "- task 2 (t2) is over its order: 1,200 tokens of a quota of 1,000\n" in note
    assert "task 3" not in note
    assert "is over its order: $1.50 of a budget of $1.00" in shown


def test_all_attempts_of_an_order_count_together(world: World) -> None:
    agents(world, retry="retry_max_attempts = 2")
    envelope = "{'type': 'result', 'result': 'It is all done.', 'total_cost_usd': 0.4}"
    delegate(world, f"import json; say(json.dumps({envelope})); sys.exit(1)", extra="budget: 0.50\n")
    world.orch("fire")
    assert [attempt.cost_usd for attempt in world.queue.attempts(1)] == [0.4, 0.4]
    assert "task 1 (t1) is over its order: $0.80 of a budget of $0.50" in notes(world)[0]
