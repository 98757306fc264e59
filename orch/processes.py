"""Who a process is, whether it lives, and how it is ended with all its descendants.

A process is named by host, boot, pid and start time. Nothing is judged or killed on a pid alone: the number may belong
to a stranger by now.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from orch import clock
from orch.fire_records import Process

if TYPE_CHECKING:
    import psutil

# Set in every worker and inherited by all that it starts: what is left of a dead one is found by it.
WORKER_MARK = "ORCH_WORKER"
DATABASE_MARK = "ORCH_DB"
# Set for one command.
TASK_MARK = "ORCH_TASK_ID"
# Set for a command that decides, to the number of its fire.
DECIDER_MARK = "ORCH_DECIDES"
CLAIM_MARK = "ORCH_CLAIM"
_CLAIM_MARKS = {WORKER_MARK, DATABASE_MARK, TASK_MARK, CLAIM_MARK}

_TICK = 0.02


def myself() -> Process:
    """This process."""
    started = _started(os.getpid())
    return Process(socket.gethostname(), _boot(), os.getpid(), started or "")


def is_alive(process: Process) -> bool | None:
    """Whether that very process runs; None when it cannot be seen from here (another host or pid namespace)."""
    boot, _, space = process.boot.partition("/")
    here, _, my_space = _boot().partition("/")
    if boot != here:
        # This host has been started again since, or it is another host.
        return False if process.host == socket.gethostname() else None
    if space != my_space:
        return None
    return _started(process.pid) == process.started


def ask_to_stop(process: Process) -> None:
    """Send TERM to one process, if it still is that process."""
    if is_alive(process) is True:
        try:
            os.kill(process.pid, signal.SIGTERM)
            os.kill(process.pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            pass


def hold(process: Process) -> bool:
    """Stop one process where it stands, until `let_go` or its end; False when it is not there any more."""
    if is_alive(process) is not True:
        return False
    try:
        os.kill(process.pid, signal.SIGSTOP)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def let_go(process: Process) -> None:
    """Let a process that was held go on."""
    if is_alive(process) is True:
        os.kill(process.pid, signal.SIGCONT)


def end_tree(process: Process, grace: float) -> list[str]:
    """End a process and its descendants: ask, wait `grace` seconds, kill. Whatever could not be ended, described.

    Does nothing when the process is not that one any more.
    """
    import psutil

    if is_alive(process) is not True:
        return []
    try:
        root = psutil.Process(process.pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
    return _end(family, grace)


def end_children(grace: float) -> list[str]:
    """End everything that this process has started and that is still its descendant."""
    import psutil

    return _end(psutil.Process().children(recursive=True), grace)


def end_marked(worker: int, database: str, grace: float) -> list[str]:
    """End what a dead worker has left running, found by the marks in the environment that it inherited."""
    return _end(_marked({WORKER_MARK: str(worker), DATABASE_MARK: database}), grace)


def end_decider(fire: int, database: str, grace: float) -> list[str]:
    """End the command that was deciding for a fire that is gone."""
    return _end(_marked({DECIDER_MARK: str(fire), DATABASE_MARK: database}), grace)


def end_claim(task: int, claim: int, database: str, grace: float) -> tuple[bool, list[str]]:
    """End the command that does a task under one claim: whether there was one, and what could not be ended.

    Looks again for one that is just starting.
    """
    marks = {TASK_MARK: str(task), CLAIM_MARK: str(claim), DATABASE_MARK: database}
    for _ in range(5):
        found = _marked(marks)
        if found:
            return True, _end(found, grace)
        clock.sleep(0.1)
    return False, []


def _marked(marks: dict[str, str]) -> list[psutil.Process]:
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        if all(environment.get(name) == value for name, value in marks.items()):
            found.append(process)
    return found


def end_group(pid: int, environment: Mapping[str, str] | None, grace: float) -> list[str]:
    """End a child that leads its own process group with its group, its descendants, and all that carries its marks.

    `environment` is what it was started with: a descendant that left the group and lost its parent is known by it.
    """
    import psutil

    family = {process.pid: process for process in psutil.process_iter() if _group_of(process.pid) == pid}
    try:
        child = psutil.Process(pid)
        family |= {process.pid: process for process in (child, *child.children(recursive=True))}
    except psutil.Error:
        pass
    marks = {name: value for name, value in (environment or {}).items() if name in _CLAIM_MARKS}
    if len(marks) == len(_CLAIM_MARKS):
        family |= {process.pid: process for process in _marked(marks)}
    return _end(family.values(), grace)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _end(family: Iterable[psutil.Process], grace: float) -> list[str]:
    import psutil

    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    family = [process for process in family if process.pid not in mine]
    for process in family:
        _send(process, signal.SIGTERM)
        # A stopped process gets no further signal until it goes on.
        _send(process, signal.SIGCONT)
    alive = _wait(family, grace)
    for _ in range(3):
        if not alive:
            return []
        # What was started meanwhile goes with its parent.
        for process in list(alive):
            try:
                alive += [child for child in process.children(recursive=True) if child not in alive]
            except psutil.Error:
                continue
        for process in alive:
            _send(process, signal.SIGKILL)
        alive = _wait(alive, 2.0)
    return [_described(process) for process in alive]


def _send(process: psutil.Process, signum: int) -> None:
    import psutil

    try:
        process.send_signal(signum)
    except (psutil.Error, OSError):
        pass


def _wait(family: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still run after so long at the most; a defunct one is dead, whoever has yet to collect it."""
    deadline = clock.monotonic() + seconds
    alive = [process for process in family if _runs(process)]
    while alive and clock.monotonic() < deadline:
        clock.sleep(_TICK)
        alive = [process for process in alive if _runs(process)]
    return alive


def _runs(process: psutil.Process) -> bool:
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


def _started(pid: int) -> str | None:
    """When a running process began, in the system's own ticks since boot; None when it is gone or defunct.

    Read where Linux keeps it, as ticks do not shift when somebody sets the clock.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in brackets may hold anything, brackets and spaces too.
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return None if os.path.exists("/proc/self/stat") else _started_elsewhere(pid)
    except ProcessLookupError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _started_elsewhere(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None


@cache
def _boot() -> str:
    """The present boot of this host and, where there are such, the pid namespace: ``boot/namespace``."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        import psutil

        return f"{psutil.boot_time():.0f}/"
