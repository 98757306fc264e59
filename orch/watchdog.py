"""The guard over the one heartbeat: it screams when a fire that was due has not succeeded.

`watch` is one look. `judge` is the rule, from what the queue says and what was remembered to a state, and touches
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orch import clock, notify, processes, schedule, vigil
from orch.errors import OrchError
from orch.fire_records import SUCCESSFUL, Refusal
from orch.legible import when
from orch.notify import Letter
from orch.project import Project
from orch.queue import Queue
from orch.vigil import Alert, Memory

# What is wrong with an alert's command must not hold up the next look.
ALERT_LIMIT = 20.0
# So long a locked queue is waited for.
PATIENCE = 10.0

NEW, LIT, LATE, DARK, BACK = "new", "lit", "late", "dark", "back"


@dataclass(slots=True)
class Beat:
    """What the queue says of its fires; moments are stamps.

    ``failed`` is how the newest fire ended when that was no success, ``running`` the number and the opening of one that
    is under way, ``refused`` the newest refusal by a cap.
    """

    made_at: str
    last_at: str | None = None
    last_fire: int | None = None
    failed: str | None = None
    running: tuple[int, str] | None = None
    refused: Refusal | None = None


@dataclass(slots=True)
class Verdict:
    """What a look came to: the state, in words too, and until when a fire that is late is waited for."""

    state: str
    told: str
    due_at: str | None = None
    excused_until: str | None = None


@dataclass(slots=True)
class Watched:
    """A look and what became of it: ``news`` is what has to be said once, ``undelivered`` pairs of sink and error."""

    state: str
    since: str
    told: str
    due_at: str | None
    grace_minutes: float
    last_at: str | None
    last_fire: int | None
    looked_before: str | None
    news: list[str] = field(default_factory=list)
    undelivered: list[tuple[str, str]] = field(default_factory=list)
    trouble: str | None = None

    @property
    def exit_code(self) -> int:
        """7 while the fleet is dark; 1 when something that had to be told or kept could not be."""
        if self.state == DARK:
            return 7
        return 1 if self.undelivered or self.trouble else 0


def watch(project: Project, tell: Callable[[str, str], None] = lambda *_: None) -> Watched:
    """Look once: judge, remember, and tell of an outage that begins, goes on or is over.

    Whatever is wrong with the queue is an outage too. `tell` is given the state and what has to be said once, before it
    is remembered as said; the alerts follow.
    """
    with vigil.alone(project):
        memory = vigil.recall(project)
        beat = None
        try:
            beat = listen(project)
        except OrchError as error:
            unseen = str(error)
        # Not before: the queue may have kept it waiting, and a fire may have ended meanwhile.
        now = clock.stamp(clock.now())
        vigil.forget_the_future(memory, now)
        before = memory.looked_at
        if beat is not None:
            verdict = judge(beat, memory, project, now)
        else:
            verdict = Verdict(DARK, f"the queue cannot be looked at: {unseen}")
        news = advance(memory, verdict, project, now)
        watched = Watched(
            state=memory.state,
            since=memory.since or now,
            told=memory.told,
            due_at=memory.due_at,
            grace_minutes=project.guard.grace_minutes,
            last_at=beat.last_at if beat else None,
            last_fire=beat.last_fire if beat else None,
            looked_before=before,
            news=news,
        )
        # Whoever is killed in between says it twice, which is better than never.
        for text in news:
            tell(memory.state, text)
        _send(project, memory, watched)
        return watched


def listen(project: Project) -> Beat:
    """Ask the queue for its fires; an `OrchError` says what is wrong with it."""
    with Queue.open(project.database, durability=project.durability, patience=PATIENCE) as queue:
        ledger = queue.ledger
        last = ledger.last_success(SUCCESSFUL)
        closed = ledger.last_closed()
        running = next(
            (
                fire
                for fire in ledger.fires_open()
                if fire.kind == "fire" and processes.is_alive(fire.process) is not False
            ),
            None,
        )
        return Beat(
            made_at=ledger.made_at(),
            last_at=last[1] if last else None,
            last_fire=last[0] if last else None,
            failed=f"fire {closed[0]} {closed[2]}" if closed and closed[2] not in SUCCESSFUL else None,
            running=(running.id, running.opened_at) if running else None,
            refused=ledger.last_refusal(),
        )


def judge(beat: Beat, memory: Memory, project: Project, now: str) -> Verdict:
    """The state of the heartbeat.

    A fire is due at the first due time behind the last success (behind the making of the queue, before there was one).
    A fire that a cap refused is known not to be missing, unless the fires before it failed. One that is under way in
    time is waited for, as long as its own limits let it run. A look that comes after a gap in the watchdog's own looks,
    as when a laptop slept, waits for the next due time once.
    """
    base = beat.last_at or beat.made_at
    excuse = ""
    if beat.refused is not None and beat.refused.at > base and beat.failed is None:
        base = beat.refused.at
        excuse = f"; the last one was refused at {when(beat.refused.at)} by the cap {beat.refused.cap}"
    due = next_due(project, base)
    if base > now:
        # The clock was set back since, so that this moment says nothing: the next due time that was ever seen counts.
        due = min(next_due(project, now), memory.due_at or due)
    limit = _after(due, project.guard.grace_minutes * 60)
    calm = LIT if beat.last_at else NEW
    last = (
        f"the last successful fire was {beat.last_fire}, at {when(beat.last_at)}"
        if beat.last_at
        else "no fire has succeeded yet"
    )
    if now <= due:
        return Verdict(calm, f"all is well: {last}{excuse}; the next is due at {when(due)}", due)
    running = beat.running
    if running is not None and running[1] <= limit and now <= _after(running[1], longest_fire(project)):
        return Verdict(calm, f"all is well: {last}; fire {running[0]} has been running since {when(running[1])}", due)
    if now <= limit:
        return Verdict(LATE, f"a fire was due at {when(due)} and is late; it is given until {when(limit)}; {last}", due)
    patience = _after(next_due(project, now), project.guard.grace_minutes * 60)
    # No further than it could have been set by a look at this hour: the clock may have been far ahead.
    excused = None if memory.excused_until is None else min(memory.excused_until, patience)
    if memory.looked_at is not None and memory.looked_at < due and now > vigil.expected_by(project, memory.looked_at):
        excused = patience
    if excused is not None and now <= excused:
        told = f"no fire has succeeded since one was due at {when(due)}, when nobody was looking"
        return Verdict(LATE, f"{told}; it is given until {when(excused)}; {last}", due, excused)
    failed = f"; {beat.failed}" if beat.failed else ""
    if running is not None:
        failed += f"; fire {running[0]} has been running since {when(running[1])}"
    return Verdict(
        DARK, f"no fire has succeeded since one was due at {when(due)}; {last}{failed}: the fleet is dark", due
    )


def longest_fire(project: Project) -> float:
    """Seconds that a fire can take before all its limits are over: one that takes longer hangs, or was stopped."""
    minutes = [project.limits.wall_clock_minutes, *(mode.wall_clock_minutes or 0 for mode in project.modes.values())]
    deciding = project.decider.timeout if project.decider else 0.0
    return deciding + max(minutes) * 60 + 6 * project.limits.grace_sec + project.guard.grace_minutes * 60


def next_due(project: Project, after: str) -> str:
    """When the next fire is due behind a moment: by the schedule or, without one, an expected interval later."""
    if project.schedule.fire is None:
        return _after(after, project.guard.expected_interval_hours * 3600)
    return clock.stamp(schedule.next_due(project.schedule.fire, clock.zone(project.zone), clock.moment(after)))


def advance(memory: Memory, verdict: Verdict, project: Project, now: str) -> list[str]:
    """Take the memory from the last look to this one: the texts that have to be told now.

    An outage is told of when it begins, every ``remind_hours`` while it lasts, and when it is over.
    """
    was_dark = memory.state == DARK
    state = BACK if was_dark and verdict.state != DARK else verdict.state
    if state != memory.state or memory.since is None:
        memory.since = now
    memory.looked_at, memory.state, memory.told = now, state, verdict.told
    memory.due_at, memory.excused_until = verdict.due_at, verdict.excused_until
    if state == DARK:
        if memory.dark_since is None:
            memory.dark_since = now
            return [_tell(memory, project, DARK, verdict.told, now)]
        told_of = memory.alerted_at or memory.dark_since
        if clock.seconds_between(told_of, now) >= project.guard.remind_hours * 3600:
            # Who has not heard of it yet hears the newer word only.
            memory.pending = [alert for alert in memory.pending if alert.kind == BACK]
            return [_tell(memory, project, "reminder", f"still, since {when(memory.dark_since)}: {verdict.told}", now)]
    elif memory.dark_since is not None:
        # Whoever has not heard of the outage hears of it now, as a thing of the past.
        memory.pending.clear()
        text = f"back after the outage that was found at {when(memory.dark_since)}: {verdict.told}"
        memory.dark_since = memory.alerted_at = None
        return [_tell(memory, project, BACK, text, now)]
    return []


def _tell(memory: Memory, project: Project, kind: str, text: str, now: str) -> str:
    memory.alerts += 1
    if kind != BACK:
        memory.alerted_at = now
    if project.guard.alerts:
        memory.pending.append(Alert(memory.alerts, kind, text, dict.fromkeys(project.guard.alerts, 0), now))
    return text


def _send(project: Project, memory: Memory, watched: Watched) -> None:
    """Try every sink that does not have a message yet, once; what could not be delivered is tried at the next look."""
    for alert in memory.pending:
        for sink in list(alert.sinks):
            if sink not in project.guard.alerts:
                # It is a sink no more.
                del alert.sinks[sink]
                continue
            alert.sinks[sink] += 1
            # Before it is tried: whoever is killed meanwhile knows that it may have arrived, and that the others have.
            _keep(project, memory, watched)
            error = notify.send(sink, _letter(alert), project.folder, again=alert.sinks[sink] > 1, limit=ALERT_LIMIT)
            if error is None:
                del alert.sinks[sink]
            else:
                watched.undelivered.append((sink, error))
    memory.pending = [alert for alert in memory.pending if alert.sinks]
    _keep(project, memory, watched)


def _letter(alert: Alert) -> Letter:
    marks = {"ORCH_ALERT": alert.kind, "ORCH_ALERT_ID": str(alert.id)}
    # Numbers begin again with a new queue; the moment does not.
    return Letter(
        f"alert {alert.id} of {alert.at}", f"## Watchdog: {alert.kind}\n\n{notify.one_line(alert.text)}\n", marks
    )


def _keep(project: Project, memory: Memory, watched: Watched) -> None:
    try:
        vigil.remember(project, memory)
    except OSError as error:
        watched.trouble = f"the watchdog cannot keep what it saw: {error.strerror or error}"


def _after(stamp: str, seconds: float) -> str:
    return clock.stamp(clock.after(clock.moment(stamp), seconds))
