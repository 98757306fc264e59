"""The kin of a process: all that it has started, found whatever it did to get away, and ended.

A descendant is found by its parent, by its group and session, by the marks in the environment that it inherited, and,
where nothing else is left of the tie, as an orphan that the system hands to the nearest ancestor that asked for it.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from orch import clock, processes
from orch.fire_records import Process

if TYPE_CHECKING:
    import psutil

# Whose queue a process works for.
DATABASE_MARK = "ORCH_DB"
# The process that answers for another one: when it is dead, whatever carries its name has to go.
KEEPER_MARK = "ORCH_KEEPER"
# Which of the keeper's commands it belongs to.
RUN_MARK = "ORCH_RUN"

_TICK = 0.02
# How long what was killed may take to disappear.
_KILL_LIMIT = 2.0
# A process that has just begun may be in the middle of becoming another program.
_YOUTH = 1.0
_LOOKS = 5
_SUBREAPER = 36
_runs = itertools.count(1)
_adopts = False

Found = Iterable["psutil.Process"]


def marks() -> dict[str, str]:
    """What this process puts into the environment of all that it starts."""
    return {KEEPER_MARK: _name(processes.myself())}


def marks_of_run() -> dict[str, str]:
    """The same for one command, which gets a number of its own."""
    return {**marks(), RUN_MARK: str(next(_runs))}


def adopt_orphans() -> bool:
    """From now on a descendant whose parent ends becomes this process's own child; False where that is not to be had.

    For a process that is the program's own: an embedding program's children are none of its business.
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    global _adopts
    _adopts = bool(ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)
    return _adopts


def adopts() -> bool:
    """Whether orphans come to this process."""
    return _adopts


def any_child_left() -> bool:
    """Whether this process has a child that lives; the dead ones are collected.

    Only for a process that waits for none of its children in any other way.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> set[int]:
    """The pids of this process's own children."""
    if not sys.platform.startswith("linux"):
        import psutil

        return {child.pid for child in psutil.Process().children()}
    return {pid for pid in _pids() if processes.parent(pid) == os.getpid()}


def end_tree(process: Process, grace: float) -> list[str]:
    """End a process and its descendants: ask, wait `grace` seconds, kill. Whatever could not be ended, described.

    Does nothing when the process is not that one any more.
    """
    return _end(lambda: _itself(process), grace)


def end_children(grace: float, *, besides: Collection[int] = ()) -> list[str]:
    """End everything that this process has started and that is still its descendant, `besides` some of its children."""

    def find() -> Iterator[psutil.Process]:
        import psutil

        for child in psutil.Process().children():
            if child.pid not in besides:
                yield child

    return _end(find, grace)


def end_command(
    leader: Process | None, environment: Mapping[str, str], grace: float, *, alone: bool = False
) -> list[str]:
    """End a command: its leader, if that is known, with its descendants, group and session, and all with its marks.

    `environment` is what it was started with. With `alone` this process has no other children, so that every child,
    orphans that came to it included, belongs to the command.
    """
    wanted = {name: environment[name] for name in (KEEPER_MARK, RUN_MARK) if name in environment}

    def find() -> Iterator[psutil.Process]:
        import psutil

        if leader is not None:
            yield from _itself(leader)
            yield from _of_session(leader)
        if alone:
            yield from psutil.Process().children()
        if len(wanted) == 2:
            yield from _processes(_carrying(wanted))

    return _end(find, grace)


def end_led_by(leader: Process, grace: float) -> list[str]:
    """End what another process leads or led: itself, its descendants, its group and its session."""

    def find() -> Iterator[psutil.Process]:
        yield from _itself(leader)
        yield from _of_session(leader)

    return _end(find, grace)


def is_anything_left(environment: Mapping[str, str]) -> bool:
    """Whether anything runs that carries the marks of one command."""
    return bool(_carrying({name: environment[name] for name in (KEEPER_MARK, RUN_MARK)}))


def end_strays(database: str, grace: float) -> tuple[int, list[str]]:
    """End what works for a queue although the process that answered for it is dead.

    How many processes were found, and what could not be ended.
    """

    def find() -> list[int]:
        return [pid for pid, found in marked() if found.get(DATABASE_MARK) == database and _is_stray(found)]

    found = find()
    return len(found), _end(lambda: _processes(find()), grace) if found else []


def _carrying(wanted: Mapping[str, str]) -> list[int]:
    """The pids of what carries these marks."""
    return [pid for pid, found in marked() if wanted.items() <= found.items()]


def _is_stray(found: Mapping[str, str]) -> bool:
    keeper = _read_name(found.get(KEEPER_MARK, ""))
    return keeper is not None and processes.is_alive(keeper) is False


def _name(process: Process) -> str:
    return f"{process.pid}:{process.started}:{process.boot}"


def _read_name(text: str) -> Process | None:
    """Who that is; None for what names nobody of this boot."""
    pid, _, rest = text.partition(":")
    began, _, boot = rest.partition(":")
    if not pid.isdecimal() or boot != processes.myself().boot:
        return None
    return processes.known_by(int(pid), began)


# Looking for them


def _itself(process: Process) -> Iterator[psutil.Process]:
    if processes.is_alive(process):
        yield from _processes([process.pid])


def _of_session(leader: Process) -> Iterator[psutil.Process]:
    """What is in the session or the group that a process leads or led."""
    if processes.started(leader.pid) in (None, leader.started):
        # Else the number is another one's by now, and so is its session.
        yield from _processes(pid for pid in _pids() if leader.pid in (_group(pid), _session(pid)))


def marked() -> Iterator[tuple[int, dict[str, str]]]:
    """The pid of every process that somebody answers for, with its environment."""
    mark = KEEPER_MARK.encode() + b"="
    for pid in _pids():
        raw = _environment(pid) or _environment_after_start(pid)
        if mark in raw:
            pairs = (entry.partition(b"=") for entry in raw.split(b"\0"))
            yield pid, {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _pids() -> list[int]:
    # Looked at by every sweep, which seldom finds anything: there is no need to load psutil for it.
    if sys.platform.startswith("linux"):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    import psutil

    return psutil.pids()


def _environment(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        pass
    if sys.platform.startswith("linux"):
        return b""
    import psutil

    try:
        return b"\0".join(os.fsencode(f"{name}={value}") for name, value in psutil.Process(pid).environ().items())
    except (psutil.Error, OSError):
        return b""


def _environment_after_start(pid: int) -> bytes:
    """The same of a process that had none to show: for a moment while it becomes another program."""
    for _ in range(_LOOKS if processes.is_young(pid, _YOUTH) else 0):
        clock.sleep(_TICK / 10)
        raw = _environment(pid)
        if raw:
            return raw
    return b""


def _processes(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """The processes of those pids, as far as they are still there."""
    import psutil

    for pid in pids:
        try:
            yield psutil.Process(pid)
        except psutil.Error:
            continue


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


# Ending them


def _end(find: Callable[[], Found], grace: float) -> list[str]:
    """End all that is found, and what is found when looking again: what could not be ended, described."""
    hunted: set[psutil.Process] = set()
    spared = _line()

    def living() -> list[psutil.Process]:
        hunted.update(process for process in find() if process.pid not in spared)
        # What a process has started is found before it ends; it would be nobody's afterwards.
        hunted.update(_descendants([process for process in hunted if _is_running(process)], spared))
        return [process for process in hunted if _is_running(process)]

    alive = living()
    for process in alive:
        _send(process, signal.SIGTERM)
        # A stopped process gets no further signal until it goes on.
        _send(process, signal.SIGCONT)
    _wait(alive, grace)
    deadline = clock.monotonic() + _KILL_LIMIT
    while alive := living():
        if clock.monotonic() > deadline:
            return sorted(_described(process) for process in alive)
        # Held first: what cannot run cannot start another one while it is counted.
        for process in alive:
            _send(process, signal.SIGSTOP)
        alive = living()
        for process in alive:
            _send(process, signal.SIGKILL)
        _wait(alive, 0.5)
    return []


def _line() -> set[int]:
    """The pids of this process and of all that it comes from, as far as those are still there."""
    pid, found = os.getpid(), set[int]()
    while pid and pid not in found:
        found.add(pid)
        pid = processes.parent(pid) or 0
    return found


def _descendants(roots: list[psutil.Process], spared: set[int]) -> Iterator[psutil.Process]:
    import psutil

    if not roots:
        return
    children: dict[int | None, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    seen = {root.pid for root in roots} | spared
    open_ = [root.pid for root in roots]
    while open_:
        for child in children.get(open_.pop(), []):
            if child.pid not in seen:
                seen.add(child.pid)
                open_.append(child.pid)
                yield child


def _send(process: psutil.Process, signum: int) -> None:
    import psutil

    try:
        process.send_signal(signum)
    except (psutil.Error, OSError):
        pass


def _wait(family: Iterable[psutil.Process], seconds: float) -> None:
    """Until none of them runs; a defunct one is dead, whoever has yet to collect it."""
    deadline = clock.monotonic() + seconds
    while any(_is_running(process) for process in family) and clock.monotonic() < deadline:
        clock.sleep(_TICK)


def _is_running(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _described(process: psutil.Process) -> str:
    import psutil

    try:
        return f"{process.pid} ({process.name()})"
    except psutil.Error:
        return str(process.pid)
