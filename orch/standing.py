"""How a project stands: the record behind ``orch status``."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from orch import budget, clock, processes, schedule, vigil
from orch.fire_records import Fire
from orch.look_records import Backlog, Pause
from orch.project import Project
from orch.queue import Queue
from orch.states import State


@dataclass(slots=True)
class ModeStanding:
    """One mode: what waits and runs, what has ended, whether the settings name it, and why it is paused."""

    mode: str
    backlog: Backlog
    done: int
    failed: int
    known: bool
    pause: Pause | None


@dataclass(slots=True)
class Standing:
    """The whole project: its modes, the last and the running fire, and what is left of the day's fires.

    ``gone`` says that the running fire's process has died and nobody has closed it yet. ``watchdog`` is the state that
    its last look found, ``unwatched`` the complaint that it does not look; ``inbox`` counts texts that no decider has
    read.
    """

    database: str
    modes: list[ModeStanding]
    running: Fire | None
    last: Fire | None
    fires_today: int
    daily_fires: int
    resets_at: str
    workers: int
    max_pool: int
    task_cap: int
    wall_clock_minutes: float
    undelivered: int
    stuck: list[tuple[int, str, int | None, str | None]] = field(default_factory=list)
    paused: bool = False
    gone: bool = False
    next_fire_at: str | None = None
    watchdog: str = "new"
    watchdog_told: str = ""
    watchdog_looked_at: str | None = None
    unwatched: str | None = None
    tokens_today: int = 0
    cost_usd_today: float = 0.0
    daily_tokens: int | None = None
    daily_cost_usd: float | None = None
    inbox: int = 0


def stand(queue: Queue, project: Project) -> Standing:
    """Look at the queue; changes nothing."""
    now, zone, limits = clock.now(), clock.zone(project.zone), project.limits
    memory = vigil.recall(project)
    bill = budget.today(queue, limits, zone, now)
    fires = queue.ledger.fires(3)
    running = next(iter(queue.ledger.fires_open()), None)
    workers = [worker for worker in queue.ledger.present() if processes.is_alive(worker.process) is not False]
    return Standing(
        database=project.database,
        modes=_modes(queue, project),
        running=running,
        last=next((fire for fire in fires if fire.closed_at is not None), None),
        fires_today=queue.ledger.fires_on(clock.day(now, zone)),
        daily_fires=limits.daily_fires,
        resets_at=clock.next_midnight(now, zone).isoformat(timespec="minutes"),
        workers=len(workers),
        max_pool=limits.max_pool,
        task_cap=limits.task_cap,
        wall_clock_minutes=limits.wall_clock_minutes,
        undelivered=len(queue.mail.outbox()),
        stuck=queue.stuck(),
        paused=any(pause.mode == "*" for pause in queue.pauses()),
        gone=running is not None and processes.is_alive(running.process) is False,
        next_fire_at=_next_fire(project, zone, now),
        watchdog=memory.state,
        watchdog_told=memory.told,
        watchdog_looked_at=memory.looked_at,
        unwatched=vigil.unwatched(queue, project),
        tokens_today=bill.tokens,
        cost_usd_today=bill.cost_usd,
        daily_tokens=limits.daily_tokens,
        daily_cost_usd=limits.daily_cost_usd,
        inbox=len(queue.mail.unread()),
    )


def _next_fire(project: Project, zone: datetime.tzinfo, now: datetime.datetime) -> str | None:
    """When the next fire is due by the schedule, with the zone's offset."""
    if project.schedule.fire is None:
        return None
    return schedule.next_due(project.schedule.fire, zone, now).astimezone(zone).isoformat(timespec="minutes")


def _modes(queue: Queue, project: Project) -> list[ModeStanding]:
    backlogs = {backlog.mode: backlog for backlog in queue.backlog()}
    totals = queue.totals()
    pauses = {pause.mode: pause for pause in queue.pauses()}
    return [
        ModeStanding(
            mode=mode,
            backlog=backlogs.get(mode, Backlog(mode)),
            done=totals.get(mode, {}).get(State.DONE, 0),
            failed=totals.get(mode, {}).get(State.FAILED, 0),
            known=mode in project.modes,
            pause=pauses.get(mode) or pauses.get("*"),
        )
        for mode in sorted({*backlogs, *totals, *pauses} - {"*"} | _used(project))
    ]


def _used(project: Project) -> set[str]:
    """The modes of the settings; the built-in one only counts once it has tasks."""
    return {name for name, mode in project.modes.items() if mode.function or mode.command}
