"""Work that is an agent: a DELEGATE in, a HANDBACK out, and what the answer leads to.

The agent is a command like any other. What it prints, or leaves in the file that it was told of, is read, never
believed beyond what can be looked at, and always kept.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from orch import clock, jsontext
from orch.asks import Ancestor
from orch.errors import UsageError
from orch.folders.root import Root
from orch.handoff import (
    Delegate,
    Handback,
    HandoffError,
    measured_in,
    orders,
    read_delegates,
    read_handback,
    routing,
    writing,
)  # fmt: skip
from orch.handoff.delegate import LARGEST
from orch.limits import LARGEST_RESULT
from orch.modes import FLAGS, Agent, Mode
from orch.outcomes import NOTHING, Cut, Done, Evidence, Failed, Later, Metrics, Outcome, error_text
from orch.records import Task
from orch.work import command, output

# So much of an answer is read: an envelope has to be whole.
READ_CAP = 32 * 1024 * 1024
# With what comes to it from task to task an order may grow to this, in bytes.
LARGEST_ORDER = 16 * LARGEST
_LONGEST_FINDINGS = 50_000
_LONGEST_REASON = 4000
# What any program needs of its environment.
_NEEDED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "TZ", "TERM", "PWD")
_NEEDED_BEGINNINGS = ("LC_", "ORCH_")
# Kinds of errors that mean "there is no answer", which one more request may bring.
_ASKED_AGAIN = ("no_block", "template_echo", "delegate_echo", "empty_output", "truncated", "yaml_syntax",
                "missing_field", "unknown_status", "task_id_mismatch", "duplicate_key")  # fmt: skip

# Runs the words with a standard input, for at most so many seconds, in an environment.
Run = Callable[[list[str], str, float | None, Mapping[str, str]], command.Ran]


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where an attempt's papers lie: the paths of the DELEGATE and of the HANDBACK that the agent may leave.

    Or it drops one below ``root``; ``old`` are those that lay there before it began.
    """

    delegate: str
    handback: str
    root: Root | None
    old: frozenset[tuple[str, int]]

    def answers(self, task_id: str) -> list[bytes]:
        """The answers that were left as files, the one in the place that was named first."""
        paths = [self.handback]
        if self.root is not None:
            paths += [path for path, since in _dropped(self.root, task_id) if (path, since) not in self.old]
        return [data for data in map(_content, paths) if data]


@dataclass(slots=True)
class _Work:
    """One attempt: the order, and what has come of it so far."""

    task: Task
    delegate: Delegate
    project: str
    roles: tuple[str, ...]
    lineage: Sequence[Ancestor]
    runs: list[command.Ran]
    raw: str = ""

    @property
    def last(self) -> command.Ran:
        return self.runs[-1]

    @property
    def exit_code(self) -> int:
        """How its last run ended; an answer that came without one is taken as it is."""
        return self.last.exit_code if self.runs else 0


def do(
    task: Task,
    mode: Mode,
    *,
    project: str,
    state: str,
    roles: tuple[str, ...],
    environment: Mapping[str, str],
    run: Run,
    keep: Callable[[dict[str, bytes]], str | None],
    lineage: Sequence[Ancestor],
    root: Root | None = None,
    place: str = "",
) -> tuple[Outcome, Handback | None]:
    """Give a task to its agent: where the answer leads, and the answer itself, if there is one that can be taken.

    `roles` are those that an answer may name, `lineage` is what the task followed from, `place` a sentence on where the
    agent works. `keep` stores what was printed, by its ending, and says where.
    """
    assert mode.agent is not None
    assert mode.command is not None
    try:
        delegate = delegate_of(task, roles)
    except HandoffError as error:
        return Failed(f"not a DELEGATE: {error}; add it with 'orch delegate'", again=False), None
    try:
        desk = _lay_out(state, task, delegate, root)
    except OSError as error:
        # A full disk is no fault of the task.
        return Later(f"its order cannot be written: {error}"), None
    began = clock.monotonic()

    def left() -> float | None:
        return None if task.allotted is None else max(0.1, task.allotted - (clock.monotonic() - began))

    words = _words(mode, delegate, desk)
    surroundings = _environment(mode.agent, environment, desk)
    work = _Work(
        task, delegate, project, roles, lineage, [run(words, writing.order(delegate, place), left(), surroundings)]
    )
    found = _answer(work, desk)
    if isinstance(found, HandoffError) and found.kind in _ASKED_AGAIN and _is_sound(work.last):
        work.runs.append(run(words, writing.request(delegate, work.raw, found), left(), surroundings))
        found = _answer(work, desk)
    evidence = _evidence(work, found, keep)
    if work.last.cut:
        told = "silence" if work.last.cut == "stalled" else work.last.cut
        return Cut(work.last.cut, f"ended for its {told}", evidence), None
    if isinstance(found, HandoffError):
        return _without_answer(work, found, evidence), None
    return _route(work, found, evidence), found


def lead(
    queue: Any,
    task: Task,
    handback: Handback,
    *,
    project: str,
    roles: tuple[str, ...],
    delegate: Delegate | None = None,
) -> Outcome:
    """Where an answer leads that came without a run of the agent."""
    work = _Work(task, delegate or delegate_of(task, roles), project, roles, queue.asks.ancestors(task.id), [])
    return _route(work, handback, NOTHING)


def delegate_of(task: Task, roles: Collection[str]) -> Delegate:
    """The order that a task is; `HandoffError` when it is none."""
    payload = task.payload
    text = payload.get("delegate") if isinstance(payload, dict) else None
    if not isinstance(text, str):
        raise HandoffError("missing_field", "the payload has no 'delegate'")
    return read_delegates(text.encode("utf-8", "replace"), roles=roles, largest=LARGEST_ORDER)[0]


def _lay_out(state: str, task: Task, delegate: Delegate, root: Root | None) -> _Desk:
    path = os.path.join(state, output.name_of(task.id, task.attempts))
    output.make_folders(path)
    old = frozenset(_dropped(root, delegate.task_id)) if root is not None else frozenset()
    desk = _Desk(f"{path}.delegate.yaml", f"{path}.handback.yaml", root, old)
    with open(desk.delegate, "w", encoding="utf-8", errors="replace") as file:
        file.write(delegate.text)
    return desk


def _words(mode: Mode, delegate: Delegate, desk: _Desk) -> list[str]:
    """The words of the agent's program: the mode's, filled in."""
    agent = mode.agent
    assert agent is not None
    assert mode.command is not None
    values = {
        "task_id": delegate.task_id,
        "role": mode.name,
        "model": delegate.model or agent.model or "",
        "effort": delegate.effort or agent.effort or "",
        "delegate": desk.delegate,
        "handback": desk.handback,
    }
    for name in ("model", "effort"):
        if not values[name] and any(f"{{{name}}}" in word for word in mode.command):
            raise command.CannotRun(
                f"its command asks for a {name}: name one in the DELEGATE, or as {name} in [agents.{mode.name}]"
            )
    words: list[str] = []
    for word in mode.command:
        words += agent.flags if word == FLAGS else command.fill([word], values)
    return words if FLAGS in mode.command else [*words, *agent.flags]


def _environment(agent: Agent, inherited: Mapping[str, str], desk: _Desk) -> dict[str, str]:
    def is_kept(name: str) -> bool:
        if name in agent.drop:
            return False
        return agent.keep is None or name in (*agent.keep, *_NEEDED) or name.startswith(_NEEDED_BEGINNINGS)

    kept = {name: value for name, value in inherited.items() if is_kept(name)}
    return {**kept, "DELEGATE_PATH": desk.delegate, "HANDBACK_PATH": desk.handback}


def _answer(work: _Work, desk: _Desk) -> Handback | HandoffError:
    """What the agent answered, in a file that it left or in what it printed."""
    work.raw = work.last.out.text()
    problem: HandoffError | None = None
    left: list[bytes | str] = [*desk.answers(work.delegate.task_id)]
    for said in (*left, work.raw):
        try:
            return read_handback(said, work.delegate.task_id, roles=work.roles)
        except HandoffError as error:
            problem = problem or error
        except Exception as error:
            # A fault of the reader must not cost what was said.
            problem = problem or HandoffError("unreadable", f"it could not be read ({error_text(error)})")
    assert problem is not None
    return problem


def _dropped(root: Root, task_id: str) -> list[tuple[str, int]]:
    """The files that are answers to a task by their names, each with its time."""
    found = []
    for path in root.answers(task_id):
        with suppress(OSError):
            found.append((path, os.stat(path).st_mtime_ns))
    return found


def _content(path: str) -> bytes:
    try:
        # Whatever the agent put there: a pipe would keep its reader waiting for ever.
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            return file.read(READ_CAP)
    except OSError:
        return b""


def _is_sound(ran: command.Ran) -> bool:
    return not ran.cut and ran.exit_code == 0


def _evidence(work: _Work, found: Handback | HandoffError, keep: Callable[[dict[str, bytes]], str | None]) -> Evidence:
    out = b"\n".join(ran.out.content() for ran in work.runs)
    err = b"\n".join(ran.err.content() for ran in work.runs if ran.err.size)
    lefts = tuple(left for ran in work.runs for left in ran.left)
    return Evidence(work.last.exit_code, keep({"out": out, "err": err}), _price(work, found), lefts)


def _price(work: _Work, found: Handback | HandoffError) -> Metrics | None:
    """What the attempt cost: what the program has counted in all its runs, else what the agent says."""
    measured = [measured_in(ran.out.text()) for ran in work.runs]
    tokens = [one.tokens.total for one in measured if one.tokens.total is not None]
    costs = [one.cost_usd for one in measured if one.cost_usd is not None]
    said = found if isinstance(found, Handback) else Handback("", "")
    total = sum(tokens) if tokens else said.tokens.total
    cost = math.fsum(costs) if costs else said.cost_usd
    return None if total is None and cost is None else Metrics(total, cost)


def _without_answer(work: _Work, problem: HandoffError, evidence: Evidence) -> Outcome:
    """No answer that can be taken: a limit of its user, or a failure that is worth another try."""
    if problem.kind == "agent_error" or work.last.exit_code != 0:
        # Not where it ended well: a task may be about such limits.
        for said in (work.last.err.text(), work.raw):
            limit = routing.usage_limit(said, clock.now().timestamp())
            if limit is not None:
                return Later(limit[0], limit[1], evidence, everybody=True)
    if work.last.exit_code == command.NOT_NOW:
        return Later("the agent's program says not now", None, evidence)
    told = str(problem) if work.last.exit_code == 0 else f"{command.describe_exit(work.last.exit_code)}: {problem}"
    return Failed(told, evidence, again=True)


# What the answer leads to


def _route(work: _Work, handback: Handback, evidence: Evidence) -> Outcome:
    result = result_of(handback)
    match handback.status:
        case "success":
            against = routing.contradictions(handback, exit_code=work.exit_code, folder=work.project)
            if against:
                return Failed(f"it says success, but {'; '.join(against)}", evidence, result=result, again=False)
            return Done(result, evidence)
        case "escalate":
            return _escalate(work, handback, evidence, result)
        case "failure":
            return Failed(_why(handback), evidence, result=result, again=False)
    # A part of it is done, or a person has to decide something: nobody but a person can tell how to go on.
    question = f"{work.delegate.task_id} is {handback.status}: {_why(handback)}"
    return Failed(
        f"{handback.status}: {_why(handback)}",
        evidence,
        result=result,
        also=lambda queue: queue.asks.ask(work.task.id, handback.status, question),
        again=False,
    )


def _escalate(work: _Work, handback: Handback, evidence: Evidence, result: str | None) -> Outcome:
    """Done here, and a task for the other role in its place; at the bound failed, and a question to a person.

    Who has had it is read from what is stored, as an agent may say anything.
    """
    reason = _shortened(handback.escalation_reason or "", _LONGEST_REASON) or _why(handback)
    # What a task that is to improve a skill came of is no part of its own story.
    story = takewhile(lambda one: one.relation in ("escalation", "answer"), work.lineage)
    line = [one for one in story if one.relation == "escalation"]
    chain = [*reversed([one.mode or "?" for one in line]), work.delegate.agent]
    target = routing.target_of(handback, chain)
    if isinstance(target, routing.Bound):
        question = f"{work.delegate.task_id} needs somebody else: {reason}; {target.why}"
        return Failed(
            f"escalate: {reason}; {target.why}",
            evidence,
            result=result,
            also=lambda queue: queue.asks.ask(work.task.id, "escalation", question),
            again=False,
        )
    # By the name that the line began with, so that names do not grow with each.
    origin = (line[-1].key if line else None) or work.delegate.task_id

    def hand_on(queue: Any) -> None:
        follow_up(
            queue,
            work.task,
            work.delegate,
            agent=target,
            wanted=f"{origin}-escalated-to-{target}",
            context=[f"Escalated by {work.delegate.agent}: {reason}", *_findings(handback)],
            relation="escalation",
            chain=chain,
            roles=work.roles,
        )

    return Done(result, evidence, also=hand_on)


def follow_up(
    queue: Any,
    task: Task,
    delegate: Delegate,
    *,
    agent: str,
    wanted: str,
    context: list[str],
    relation: str,
    chain: list[str],
    roles: tuple[str, ...],
) -> int:
    """Add the task that goes on where another one ended, in one transaction with that: its id."""
    id = writing.unused_id(wanted, queue.has_key)
    fields = writing.follow_on(
        delegate, task_id=id, agent=agent, context=context, chain=chain or delegate.escalation_chain
    )
    return attach(queue, task, fields, relation=relation, roles=roles)


def attach(queue: Any, task: Task, fields: Mapping[str, Any], *, relation: str, roles: tuple[str, ...]) -> int:
    """Add a DELEGATE that follows from a task, by its fields: its id."""
    [made] = read_delegates(writing.as_yaml(fields).encode(), roles=roles, largest=LARGEST_ORDER)
    with queue.transaction():
        [added] = queue.add_many([orders.task_of(made)])
        queue.asks.follow(added.id, task.id, relation)
    return int(added.id)


def _why(handback: Handback) -> str:
    said = handback.error or handback.output
    if isinstance(said, dict):
        said = said.get("reason") or said.get("error") or "; ".join(f"{key}: {value}" for key, value in said.items())
    return _shortened(str(said or "it gives no reason"), 500)


def _shortened(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def _findings(handback: Handback) -> list[str]:
    text = handback.output if isinstance(handback.output, str) else writing.as_yaml({"output": handback.output})
    return [f"Findings so far: {text.strip()[:_LONGEST_FINDINGS]}"] if text.strip() not in ("", "{}") else []


def result_of(handback: Handback) -> str | None:
    """The answer as JSON, without what only the reader is interested in."""
    values = {
        name: value
        for name, value in dataclasses.asdict(replace(handback, remarks=[], text="")).items()
        if value not in (None, [], {}, "")
    }
    values["remarks"] = sorted({remark.code for remark in handback.remarks})
    try:
        text = jsontext.dump(values, "result")
    except UsageError:
        return None
    return text if len(text) <= LARGEST_RESULT else None
