"""Cleaning up after the dead: the first phase of every fire, and all of a sweep between fires.

`look` finds what is wrong and changes nothing; `sweep` mends it. Running it again changes nothing more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from orch import clock, kin, processes
from orch.fire_records import Worker
from orch.folders import Exchange
from orch.outcomes import Evidence
from orch.project import Project
from orch.queue import Queue
from orch.records import Task
from orch.silence import silent
from orch.states import State
from orch.work import output, slate

# The parent enforces a deadline first; a sweep only when nobody did.
OVERDUE_SLACK = 30.0
# Tenths of a second that a parent gets for that when it has just woken up together with the sweep.
_CHANCE = 40


@dataclass(slots=True)
class Findings:
    """What a look found: workers that are gone or past their time, claims nobody stands behind, and what is due."""

    missing: list[Worker] = field(default_factory=list)
    overdue: list[Worker] = field(default_factory=list)
    stale: list[Task] = field(default_factory=list)
    crashed: list[Task] = field(default_factory=list)


@dataclass(slots=True)
class Swept:
    """What a sweep did, as counts of workers, tasks and ``strays``, which are processes that the dead left behind.

    ``left`` describes processes that could not be ended. ``taken`` counts the dropped DELEGATEs that were added,
    ``refused`` says why others could not be. ``silent`` tells of agents that say nothing.
    """

    missing: int = 0
    ended: int = 0
    crashed: int = 0
    retried: int = 0
    failed: int = 0
    promoted: int = 0
    expired: int = 0
    strays: int = 0
    left: list[str] = field(default_factory=list)
    taken: int = 0
    refused: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    @property
    def anything(self) -> bool:
        return any(dataclasses.astuple(self))


def sweep(queue: Queue, project: Project, exchange: Exchange | None = None) -> Swept:
    """Release what the dead hold and recover what crashed: the steps in the order in which they build on each other."""
    swept = Swept()
    take_dropped(queue, exchange or Exchange.of(project), swept)
    swept.strays, swept.left = kin.end_strays(project.database, project.limits.grace_sec)
    findings = look(queue, project)
    _spare(queue, findings)
    reap_stranded_runs(queue, project, findings, swept)
    release_stale_claims(queue, findings, swept)
    if findings.crashed or swept.crashed:
        recover(queue, project, swept)
    promote(queue, swept)
    swept.silent = [one.told for one in silent(queue, project)]
    queue.store_totals()
    return swept


def take_dropped(queue: Queue, exchange: Exchange | None, swept: Swept) -> None:
    """Take in what was dropped as files."""
    if exchange is not None:
        taken = exchange.run(queue)
        swept.taken += taken.added
        swept.refused += taken.refused


def look(queue: Queue, project: Project) -> Findings:
    """Judge every worker and every claim; changes nothing."""
    findings = Findings()
    now = clock.stamp(clock.now())
    present = {worker.id: worker for worker in queue.ledger.present()}
    for worker in present.values():
        alive = processes.is_alive(worker.process)
        if alive is False:
            findings.missing.append(worker)
        elif alive and _is_overdue(worker, now, _slack(project)) and not queue.ledger.is_embedded(worker):
            findings.overdue.append(worker)
    handled = {worker.id for worker in (*findings.missing, *findings.overdue)}
    for task in queue.owned():
        if task.state == State.CRASHED:
            findings.crashed.append(task)
        elif task.owner not in handled and _is_stale(queue, project, task, now, present):
            findings.stale.append(task)
    return findings


def _spare(queue: Queue, findings: Findings) -> None:
    """Let go of overdue workers that end within moments: after a sleep of the machine everybody is past every deadline.

    Counted and not timed, as the clock may be a frozen one.
    """
    for _ in range(_CHANCE):
        if not findings.overdue:
            return
        clock.sleep(0.1)
        latest = [queue.ledger.worker(worker.id) for worker in findings.overdue]
        findings.overdue = [worker for worker in latest if worker is not None and worker.ended_at is None]


def reap_stranded_runs(queue: Queue, project: Project, findings: Findings, swept: Swept) -> None:
    """End what dead workers left running and workers past every deadline; their tasks crash."""
    for worker in findings.missing:
        swept.missing += 1
        swept.crashed += bury(queue, project, worker, "missing", "the worker died", swept.left)
    for worker in findings.overdue:
        swept.ended += 1
        swept.left += kin.end_tree(worker.process, project.limits.grace_sec)
        swept.crashed += bury(queue, project, worker, "wall_clock", "wall_clock", swept.left)


def bury(
    queue: Queue,
    project: Project,
    worker: Worker,
    ending: str,
    reason: str,
    left: list[str],
    *,
    grace: float | None = None,
) -> int:
    """A worker is gone: end what it left running, keep its last words, and let its tasks crash. How many did."""
    grace = project.limits.grace_sec if grace is None else grace
    running = slate.read(project.state, worker.id)
    if running is not None:
        left += kin.end_led_by(running.leader, grace)
    if worker.fire is not None and not queue.ledger.is_embedded(worker):
        # It led a session of its own.
        left += kin.end_led_by(worker.process, grace)
    left += kin.end_strays(project.database, grace)[1]
    crashed = 0
    for task in queue.owned(worker.id):
        if queue.crash(task, reason, evidence=last_words(project, worker, task)):
            crashed += 1
    queue.ledger.retire(worker.id, ending)
    slate.forget(project.state, worker.id)
    output.forget(project.state, worker.id)
    return crashed


def last_words(project: Project, worker: Worker, task: Task) -> Evidence:
    """What a dead worker's task had written, kept as the output of the attempt that it died in."""
    try:
        name = output.salvage(project.state, worker.id, task.id, task.attempts, project.limits.output_cap)
    except OSError:
        name = None
    return Evidence(output=name)


def release_stale_claims(queue: Queue, findings: Findings, swept: Swept) -> None:
    """Claims without a sign of life for too long, whose owner cannot be judged otherwise, crash."""
    for task in findings.stale:
        swept.crashed += queue.crash(task, "stale: no sign of life from its owner")


def recover(queue: Queue, project: Project, swept: Swept) -> None:
    """Crashed tasks go up the retry ladder, or fail when their starts are spent."""
    for task in queue.owned():
        if task.state != State.CRASHED:
            continue
        mode = project.modes.get(task.mode)
        retries = mode.retries if mode is not None else None
        state = queue.recover(task, retries or project.limits.retries)
        swept.retried += state is State.RETRY_PENDING
        swept.failed += state is State.FAILED
        if state is State.FAILED and mode is not None and mode.agent is not None:
            queue.asks.review(task, task.reason or "it crashed")


def promote(queue: Queue, swept: Swept) -> None:
    """What is due becomes claimable, what has expired fails; in bounded steps, so that others get their turn."""
    while True:
        moved, ended = queue.promote(limit=1000)
        swept.promoted += moved
        swept.expired += ended
        if moved < 1000 and ended < 1000:
            return


def _slack(project: Project) -> float:
    return OVERDUE_SLACK + project.limits.grace_sec


def _is_overdue(worker: Worker, now: str, slack: float) -> bool:
    """Whether a live worker is past its wall clock, and nobody has ended it.

    The clock may have been set meanwhile, but a process that has been running for less is not late.
    """
    if worker.deadline_at is None:
        return False
    is_late = clock.seconds_between(worker.deadline_at, now) > slack
    age = processes.age(worker.process)
    if age is None:
        return is_late
    return (is_late or now < worker.enrolled_at) and age > slack + clock.seconds_between(
        worker.enrolled_at, worker.deadline_at
    )


def _is_stale(queue: Queue, project: Project, task: Task, now: str, present: dict[int, Worker]) -> bool:
    """Whether nobody can be standing behind a claim any more."""
    owner = None if task.owner is None else present.get(task.owner)
    if task.owner is not None and owner is None and _has_ended(queue, task.owner):
        return True
    # A healthy long task is never released by age: its own deadline comes first.
    if task.deadline_at is not None and task.deadline_at > now:
        return False
    mode = project.modes.get(task.mode)
    hours = project.limits.stale_hours if mode is None or mode.stale_hours is None else mode.stale_hours
    if owner is not None and processes.is_alive(owner.process):
        # A seat's worker is judged by its wall clock, any other process by its age too: the clock may have been set.
        age = processes.age(owner.process)
        if owner.deadline_at is not None or (age is not None and age <= hours * 3600):
            return False
    return clock.seconds_between(task.last_sign, now) > hours * 3600


def _has_ended(queue: Queue, owner: int) -> bool:
    """Whether an owner's record is gone or closed: nobody can stand behind its claims any more."""
    worker = queue.ledger.worker(owner)
    return worker is None or worker.ended_at is not None
