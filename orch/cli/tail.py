"""``orch tail``: the live view."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from orch import clock
from orch.changes import Changes
from orch.cli.talk import SCHEMA_VERSION, Talk, common
from orch.errors import UsageError
from orch.legible import shown
from orch.look_records import Moved
from orch.sight import BATCH, Follower, Phase, find

# A change is told of by the first write of a commit: what it wrote can be read some milliseconds later.
_SETTLE = (0.002, 0.02)
# A screen is not drawn more often than a person can see.
_FRAME = 0.08
_KEPT = 500


@click.command()
@click.option("--since", metavar="TIME", help="Begin so long ago (15m, 2h) or at this ISO 8601 time.")
@click.option("--mode", metavar="MODE", help="Only this mode.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Begin so many moves back: 10, or all with --since.")
@click.option("--no-follow", is_flag=True, help="End after what is there.")
@common
@click.pass_obj
def tail(talk: Talk, since: str | None, mode: str | None, lines: int | None, no_follow: bool) -> int:
    """Watch the queue live: the running fire, its seats, the backlog, and every move; 'q' ends it.

    In a pipe, or with --no-follow, one line a move; with --json one JSON object a line.
    """
    place = talk.place()
    follower = find(place.database, mode=mode)
    try:
        if since is None:
            follower.go_back(last=10 if lines is None else lines)
        else:
            follower.go_back(since=_moment(since, place.zone))
            if lines is not None:
                follower.skip_to_last(lines)
        if no_follow:
            _print_all(talk, follower)
            return 0
        if talk.as_json or not sys.stdout.isatty() or talk.console().is_dumb_terminal:
            return _follow(talk, follower)
        return _watch(talk, follower, f"orch  {place.folder}{f'  {mode}' if mode else ''}")
    finally:
        follower.close()


def _follow(talk: Talk, follower: Follower) -> int:
    """Line after line, until the reader or somebody else has enough."""
    there = True
    with Changes(follower.path, reader=sys.stdout.fileno()) as changes:
        while changes.caught is None:
            if follower.was_replaced():
                talk.say("orch: the queue was replaced by another file, which is followed from here on")
            elif there != follower.is_there():
                there = not there
                talk.say(f"orch: {follower.path} is {'there again' if there else 'gone; waiting for it'}")
            if follower.has_changed():
                _print_all(talk, follower)
            if "gone" in _pause(changes, follower):
                raise BrokenPipeError
        return 128 + changes.caught


def _pause(changes: Changes, follower: Follower) -> set[str]:
    """Wait for a change to be readable, for a signal, a key, the end of the reader, or until it is time to look."""
    seen = changes.wait()
    if "changed" in seen:
        for seconds in _SETTLE:
            clock.sleep(seconds)
            if follower.has_changed(peek=True):
                break
    return seen


def _print_all(talk: Talk, follower: Follower) -> None:
    while True:
        news = follower.news()
        for each in news:
            click.echo(_as_json(each) if talk.as_json else shown(talk.views().line(each).plain))
        sys.stdout.flush()
        if len(news) < BATCH:
            return


def _as_json(news: Moved | Phase) -> str:
    data = dataclasses.asdict(news)
    if isinstance(news, Moved):
        data |= data.pop("event")
    kind = "move" if isinstance(news, Moved) else "fire"
    return json.dumps({"schema_version": SCHEMA_VERSION, "type": kind, "data": data})


def _watch(talk: Talk, follower: Follower, head: str) -> int:
    """The screen, drawn when something has changed, and each second while something runs."""
    from rich.live import Live

    from orch.views.live import Screenful

    news: list[Moved | Phase] = []
    with (
        _keys() as keys,
        Changes(follower.path, keys=keys) as changes,
        Live(console=talk.console(), screen=True, auto_refresh=False) as live,
    ):
        drawn = 0.0
        seen: set[str] = {"signal"}
        while changes.caught is None and not {"q", "Q"} & seen:
            follower.was_replaced()
            changed = follower.has_changed()
            if changed or "signal" in seen or clock.monotonic() - drawn >= 1.0:
                rest = _FRAME - (clock.monotonic() - drawn)
                if rest > 0:
                    clock.sleep(rest)
                follower.skip_to_last(_KEPT)
                news = [*news, *follower.news()][-_KEPT:]
                sight = follower.look()
                if changed or "signal" in seen or sight.fire or sight.seats:
                    live.update(Screenful(sight, news, head), refresh=True)
                drawn = clock.monotonic()
            seen = _pause(changes, follower)
    return 0 if changes.caught is None else 128 + changes.caught


@contextmanager
def _keys() -> Iterator[int | None]:
    """Single keys from the terminal, unseen; the terminal is as before afterwards."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        single = termios.tcgetattr(descriptor)
        # A view that is stopped or torn down would leave its screen to the shell.
        single[6][termios.VSUSP] = single[6][termios.VQUIT] = b"\0"
        termios.tcsetattr(descriptor, termios.TCSADRAIN, single)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _moment(text: str, zone: str) -> str:
    """The stamp of a time in the past, or of so long ago."""
    try:
        return clock.stamp(clock.after(clock.now(), -clock.duration(text)))
    except UsageError:
        pass
    try:
        return clock.stamp(clock.instant(text, clock.zone(zone)))
    except UsageError:
        raise UsageError(f"{text!r} is neither a span such as 15m or 2h nor a time such as 2026-11-30T19:10") from None
