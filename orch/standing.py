"""How a project stands: the record behind ``orch status``."""

from __future__ import annotations

from dataclasses import dataclass, field

from orch import clock, processes
from orch.project import Project
from orch.queue import Queue
from orch.records import Backlog, Fire, Pause
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

    ``gone`` says that the running fire's process has died and nobody has closed it yet.
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


def stand(queue: Queue, project: Project) -> Standing:
    """Look at the queue; changes nothing."""
    now, zone = clock.now(), clock.zone(project.zone)
    fires = queue.ledger.fires(2)
    running = next((fire for fire in fires if fire.closed_at is None), None)
    workers = [worker for worker in queue.ledger.present() if processes.is_alive(worker.process) is not False]
    return Standing(
        database=project.database,
        modes=_modes(queue, project),
        running=running,
        last=next((fire for fire in fires if fire.closed_at is not None), None),
        fires_today=queue.ledger.fires_on(clock.day(now, zone)),
        daily_fires=project.limits.daily_fires,
        resets_at=clock.next_midnight(now, zone).isoformat(timespec="minutes"),
        workers=len(workers),
        max_pool=project.limits.max_pool,
        task_cap=project.limits.task_cap,
        wall_clock_minutes=project.limits.wall_clock_minutes,
        undelivered=len(queue.ledger.outbox()),
        stuck=queue.stuck(),
        paused=any(pause.mode == "*" for pause in queue.pauses()),
        gone=running is not None and processes.is_alive(running.process) is False,
    )


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
