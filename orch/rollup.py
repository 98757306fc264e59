"""What a fire came to: counted in the database, put into one record, and worded as the one note upward."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orch.barrier import Gathered
from orch.budget import dollars, told_of_overrun
from orch.fire_records import FailureGroup, Fire, Overrun, Tally
from orch.hygiene import Swept
from orch.legible import count, figure, shown
from orch.limits import BUDGETS, Limits
from orch.look_records import Backlog
from orch.plan import BUILT_IN, Plan
from orch.queue import Queue
from orch.states import State

_NAMED_TASKS = 5
_NAMED_TEXTS = 20
# What tells two otherwise equal errors apart: numbers, addresses, paths and file names.
_PARTICULAR = re.compile(r"0x[0-9a-fA-F]+|(?:[\w.-]*/)+[\w.-]*|\b[\w-]+\.\w{1,5}\b|\d+")


@dataclass(slots=True)
class Rollup:
    """One fire in figures. ``cuts`` are pairs of a cap's name and what it cut; ``unknown`` counts tasks by mode.

    ``asks`` are the open questions by their numbers, the oldest first, ``inbox`` holds the texts that still wait for a
    decider, ``unwatched`` says since when no watchdog has looked, and ``budgeted`` whether prices are counted against a
    cap. ``overruns`` are the orders that have cost more than they allow.
    """

    fire: int
    ending: str
    tallies: list[Tally] = field(default_factory=list)
    failures: list[FailureGroup] = field(default_factory=list)
    spent: list[tuple[int, str, str]] = field(default_factory=list)
    expired: int = 0
    swept: Swept = field(default_factory=Swept)
    plan: Plan = field(default_factory=Plan)
    cuts: list[tuple[str, str]] = field(default_factory=list)
    waiting: list[Backlog] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    paused: dict[str, str] = field(default_factory=dict)
    stuck: list[tuple[int, str, int | None, str | None]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lost: int = 0
    seats: int = 0
    error: str | None = None
    inbox: list[str] = field(default_factory=list)
    unwatched: str | None = None
    budgeted: bool = False
    asks: list[tuple[int, str]] = field(default_factory=list)
    kind: str = "fire"
    overruns: list[Overrun] = field(default_factory=list)

    @property
    def drained(self) -> int:
        """Tasks that were done in this fire."""
        return sum(tally.done for tally in self.tallies)

    @property
    def failed(self) -> int:
        """Tasks that failed for good in this fire."""
        return sum(tally.failed for tally in self.tallies) + len(self.spent)

    @property
    def quiet(self) -> bool:
        """Whether nothing happened that anybody has to read of."""
        return not (
            self.tallies
            or self.spent
            or self.expired
            or self.swept.anything
            or self.cuts
            or self.unknown
            or self.broken
            or self.stuck
            or self.missing
            or self.left
            or self.error
            or self.plan.problem
            or self.plan.reasoning
            or (self.plan.decider != BUILT_IN and not self.plan.granted)
            or self.inbox
        )

    @property
    def tokens(self) -> int:
        """What its attempts say that they have used."""
        return sum(tally.tokens for tally in self.tallies)

    @property
    def cost_usd(self) -> float:
        """What its attempts say that they have cost, in US dollars."""
        return math.fsum(tally.cost_usd for tally in self.tallies)

    @property
    def is_priced(self) -> bool:
        """Whether prices are worth a word: one was told, or they count against a cap."""
        return self.budgeted or any(tally.priced for tally in self.tallies)

    def as_json(self) -> str:
        """The form in which it is stored."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=True)


def read_back(text: str) -> Rollup:
    """A stored rollup as a record again."""
    raw: dict[str, Any] = json.loads(text)
    raw["tallies"] = [Tally(**tally) for tally in raw["tallies"]]
    raw["failures"] = [FailureGroup(**group) for group in raw["failures"]]
    raw["waiting"] = [Backlog(**backlog) for backlog in raw["waiting"]]
    if isinstance(raw["paused"], list):
        raw["paused"] = dict.fromkeys(raw["paused"], "paused")
    raw["overruns"] = [Overrun(**overrun) for overrun in raw.get("overruns", [])]
    raw["swept"] = Swept(**raw["swept"])
    raw["plan"] = Plan.read_back(raw["plan"])
    for name in ("spent", "cuts", "stuck", "asks"):
        raw[name] = [tuple(item) for item in raw.get(name, [])]
    return Rollup(**raw)


def collect(
    queue: Queue,
    fire: Fire,
    *,
    ending: str,
    known: Sequence[str] | None,
    swept: Swept | None = None,
    plan: Plan | None = None,
    gathered: Gathered | None = None,
    error: str | None = None,
    unwatched: str | None = None,
    limits: Limits | None = None,
) -> Rollup:
    """Count a fire's attempts and look at what waits; `known` names the modes that this project has (None: any)."""
    plan = plan or Plan()
    gathered = gathered or Gathered()
    crew = queue.ledger.crew(fire.id)
    tallies = list(queue.ledger.tallies(fire).values())
    waiting = queue.backlog()
    paused = {pause.mode: pause.told for pause in queue.pauses()}
    rollup = Rollup(
        fire=fire.id,
        ending=ending,
        tallies=tallies,
        failures=_grouped(queue.ledger.failures(fire)),
        spent=queue.ledger.spent(fire),
        expired=queue.ledger.expired(fire),
        swept=swept or Swept(),
        plan=plan,
        waiting=waiting,
        broken=gathered.broken,
        paused=paused,
        stuck=queue.stuck(),
        missing=gathered.missing,
        left=[*(swept.left if swept else ()), *gathered.left],
        lost=sum(worker.lost for worker in crew),
        seats=len(crew),
        error=error,
        inbox=[told.text[:500] for told in queue.mail.unread()[:_NAMED_TEXTS]],
        unwatched=unwatched,
        kind=fire.kind,
        asks=[(ask.id, ask.question) for ask in queue.asks.open(_NAMED_TASKS)],
        budgeted=limits is not None and limits.budgeted,
        overruns=queue.spending.overruns(fire=fire.id),
    )
    if known is not None:
        rollup.unknown = {
            backlog.mode: backlog.ready for backlog in waiting if backlog.ready and backlog.mode not in known
        }
    # That there are no more tasks is part of the plan's story, not a cap that somebody has to know of.
    cuts = [cut for cut in plan.cuts if cut[0] != "backlog"]
    rollup.cuts = [*cuts, *_worker_cuts(gathered, rollup)]
    return rollup


def _worker_cuts(gathered: Gathered, rollup: Rollup) -> list[tuple[str, str]]:
    """Caps that ended workers, where that left anything undone."""
    cuts = []
    ready = sum(backlog.ready for backlog in rollup.waiting if backlog.mode in rollup.plan.granted)
    if gathered.cut.get("task_cap") and ready:
        ended = count(gathered.cut["task_cap"], "worker")
        cuts.append(("task_cap", f"ended {ended}; {_tasks(ready)} left for the next fire"))
    if gathered.cut.get("wall_clock"):
        cuts.append(("wall_clock", f"ended {count(gathered.cut['wall_clock'], 'worker')}"))
    for cap in (*BUDGETS, "unknown_cost"):
        if gathered.cut.get(cap):
            cuts.append((cap, f"ended {count(gathered.cut[cap], 'worker')}; {_tasks(ready)} left for a later fire"))
    if gathered.unstarted:
        cuts.append(("wall_clock", f"{count(gathered.unstarted, 'seat')} never began"))
    return cuts


def _grouped(failures: Sequence[tuple[int, str, str, str]]) -> list[FailureGroup]:
    """Equal failures as one line each: those for good first, then the most frequent.

    Numbers and paths that differ do not make two.
    """
    groups: dict[tuple[str, str, bool], FailureGroup] = {}
    for task, mode, state, why in failures:
        final = state == State.FAILED
        alike = (mode, _PARTICULAR.sub("#", why), final)
        group = groups.setdefault(alike, FailureGroup(mode, why, 0, final))
        group.count += 1
        if task not in group.tasks and len(group.tasks) < _NAMED_TASKS:
            group.tasks.append(task)
    return sorted(groups.values(), key=lambda group: (not group.final, -group.count))


# The note


def title(rollup: Rollup) -> str:
    """One line: how the fire went."""
    if rollup.ending not in ("passed", "idle"):
        return f"{rollup.kind.capitalize()} {rollup.fire} {rollup.ending}: {_outcome(rollup)}"
    return f"{rollup.kind.capitalize()} {rollup.fire}: {_outcome(rollup)}"


def needs_a_person(rollup: Rollup) -> str | None:
    """The one thing to look at first, if there is any."""
    if rollup.error:
        return f"the {rollup.kind} broke: {rollup.error}"
    for id, question in rollup.asks:
        return f"{question}; 'orch answer {id} …'"
    for mode, why in rollup.broken.items():
        return f"mode {mode} cannot work: {why}"
    if rollup.left:
        return f"processes that could not be ended: {', '.join(rollup.left)}"
    for task, mode, why in rollup.spent:
        return f"task {task} ({mode}) failed for good: {why}; 'orch show {task}'"
    if rollup.ending == "broken" and rollup.missing:
        return f"every worker died: {rollup.missing[0]}"
    if rollup.failed and rollup.failures:
        group = rollup.failures[0]
        return f"{_tasks(rollup.failed)} failed, most often: {group.error or 'no reason given'}"
    for mode, number in rollup.unknown.items():
        return f"mode {mode}, which orch.toml does not name, has {_tasks(number)} waiting"
    for why in rollup.swept.refused:
        return f"a dropped file was refused: {why}"
    for task, name, _, state in rollup.stuck:
        return told_of_stuck(task, name, state)
    return None


def told_of_stuck(task: int, name: str, state: str | None) -> str:
    """That a task waits in vain."""
    return f"task {task} waits for {name}, which {'failed' if state else 'does not exist'}"


def body(rollup: Rollup) -> str:
    """The whole note as Markdown."""
    lines = [f"## {title(rollup)}", ""]
    person = needs_a_person(rollup)
    if person:
        lines += [f"**Needs a person:** {_line(person)}", ""]
    sections = [
        _asked(rollup),
        _failed(rollup),
        _drained(rollup),
        _cut(rollup),
        _spent(rollup),
        _decided(rollup),
        _recovered(rollup),
        _waiting(rollup),
        _watched(rollup),
    ]
    for section in sections:
        if section:
            lines += [*section, ""]
    return "\n".join(lines).rstrip() + "\n"


def _asked(rollup: Rollup) -> list[str]:
    return ["Waits for a person:", *(f"- {id}: {_line(text)}" for id, text in rollup.asks)] if rollup.asks else []


def _failed(rollup: Rollup) -> list[str]:
    lines = []
    for group in rollup.failures:
        tasks = ", ".join(str(task) for task in group.tasks) + (", …" if group.count > len(group.tasks) else "")
        lines.append(f"- {group.mode}: {group.count} × {_line(group.error) or 'no reason given'} (task {tasks})")
    lines += [f"- {mode}: task {task} failed for good: {_line(why)}" for task, mode, why in rollup.spent]
    lines += [f"- {_line(mode)} cannot work: {_line(why)}" for mode, why in rollup.broken.items()]
    lines += [f"- worker {_line(worker)}" for worker in rollup.missing]
    lines += [f"- a dropped file was refused: {_line(why)}" for why in rollup.swept.refused]
    if rollup.lost:
        lines.append(f"- {count(rollup.lost, 'answer')} came after the claim was lost, and changed nothing")
    if rollup.left:
        lines.append(f"- still running: {_line(', '.join(rollup.left))}")
    return ["Failed:", *lines] if lines else []


def _drained(rollup: Rollup) -> list[str]:
    lines = []
    for tally in rollup.tallies:
        parts = [f"{tally.done} done"]
        parts += _worded(
            (tally.failed, "failed"),
            (tally.retried, "to be retried"),
            (tally.crashed, "crashed"),
            (tally.released, "given back"),
        )
        lines.append(f"- {tally.mode}: {', '.join(parts)} ({tally.seconds:.1f} s of work)")
    return ["Drained:", *lines] if lines else []


def _cut(rollup: Rollup) -> list[str]:
    lines = [f"- {cap}: {_line(what)}" for cap, what in rollup.cuts]
    return ["Cut by a cap:", *lines] if lines else []


def _spent(rollup: Rollup) -> list[str]:
    if not rollup.is_priced:
        return []
    lines = []
    for tally in rollup.tallies:
        silent = f"; {count(tally.silent, 'attempt')} did not say" if tally.silent else ""
        lines.append(f"- {tally.mode}: {priced(tally.cost_usd, tally.tokens)}{silent}")
    if len(lines) > 1:
        lines.append(f"- in all: {priced(rollup.cost_usd, rollup.tokens)}")
    lines += [f"- {_line(told_of_overrun(overrun))}" for overrun in rollup.overruns]
    return ["Spent:", *lines] if lines else []


def _decided(rollup: Rollup) -> list[str]:
    plan = rollup.plan
    lines = []
    if plan.problem:
        lines.append(f"- {_line(plan.problem)}; {plan.decider} decided instead")
    if plan.reasoning:
        lines.append(f"- {_line(plan.decider)}: {_line(plan.reasoning)}")
    elif plan.decider != BUILT_IN:
        lines.append(f"- by {_line(plan.decider)}")
    if plan.decider != BUILT_IN and not plan.granted:
        lines.append("- no seats: nothing was drained, whatever waits")
    if plan.caps:
        lines.append(f"- lower caps: {', '.join(f'{name} {figure(value)}' for name, value in plan.caps.items())}")
    if plan.problem or plan.decider != BUILT_IN:
        lines += [f"- {mode}: {plan.granted.get(mode, 0)} of {asked} seats" for mode, asked in plan.asked.items()]
    lines += [f"- nobody has read yet: {_line(text)}" for text in rollup.inbox]
    return ["Decided:", *lines] if lines else []


def _recovered(rollup: Rollup) -> list[str]:
    swept = rollup.swept
    told = [
        (swept.missing, "worker was missing", "workers were missing"),
        (swept.ended, "worker was past its time", "workers were past their time"),
        (swept.crashed, "task had no live owner", "tasks had no live owner"),
        (swept.retried, "task is to be retried", "tasks are to be retried"),
        (swept.failed, "task failed for good", "tasks failed for good"),
        (swept.strays, "process of a dead worker was ended", "processes of dead workers were ended"),
        (swept.promoted, "task became due", "tasks became due"),
        (swept.taken, "DELEGATE was dropped as a file", "DELEGATEs were dropped as files"),
        (rollup.expired, "task has expired", "tasks have expired"),
    ]
    lines = [f"- {number} {one if number == 1 else many}" for number, one, many in told if number]
    lines += [f"- {_line(told)}" for told in swept.silent]
    return ["Recovered first:", *lines] if lines else []


def _waiting(rollup: Rollup) -> list[str]:
    lines = []
    for backlog in rollup.waiting:
        parts = _worded(
            (backlog.ready, "ready"),
            (backlog.delayed, "delayed"),
            (backlog.retrying, "to be retried"),
            (backlog.blocked, "waiting for another task"),
            (backlog.running, "claimed"),
            (backlog.crashed, "crashed"),
        )
        notes = []
        if backlog.mode in rollup.unknown:
            notes.append("not in orch.toml")
        pause = rollup.paused.get(backlog.mode) or rollup.paused.get("*")
        if pause:
            notes.append(_line(pause))
        remark = f" ({'; '.join(notes)})" if notes else ""
        lines.append(f"- {backlog.mode}: {', '.join(parts)}{remark}")
    for task, name, id, state in rollup.stuck:
        what = f"task {id}, which {state}" if id else "which does not exist"
        lines.append(f"- task {task} waits for {_line(name)}: {what}")
    return ["Still waiting:", *lines] if lines else []


def _watched(rollup: Rollup) -> list[str]:
    return ["Watchdog:", f"- {_line(rollup.unwatched)}"] if rollup.unwatched else []


def priced(cost_usd: float, tokens: int) -> str:
    """A price in words."""
    return f"{dollars(cost_usd)}, {tokens:,} tokens"


def _worded(*counts: tuple[int, str]) -> list[str]:
    """Those counts that are not zero, each with its word."""
    return [f"{number} {word}" for number, word in counts if number]


def _outcome(rollup: Rollup) -> str:
    if not (rollup.tallies or rollup.spent):
        return "nothing was drained"
    parts = [f"{rollup.drained} done"]
    if rollup.failed:
        parts.append(f"{rollup.failed} failed")
    again = sum(tally.retried + tally.crashed for tally in rollup.tallies) - len(rollup.spent)
    if again > 0:
        parts.append(f"{again} to be retried")
    return ", ".join(parts)


def _line(text: str) -> str:
    """A text from outside as part of one line."""
    return shown(text)[:500]


def _tasks(number: int) -> str:
    return count(number, "task")
