"""Who a process is, and whether it lives.

A process is named by host, boot, pid and start time. Nothing is judged or killed on a pid alone: the number may belong
to a stranger by now.
"""

from __future__ import annotations

import os
import signal
import socket
from functools import cache

from orch import clock
from orch.fire_records import Process


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


def known_by(pid: int, started: str) -> Process:
    """The process of this boot that has this pid and start time."""
    return Process(socket.gethostname(), _boot(), pid, started)


def started(pid: int) -> str | None:
    """When the process that has this pid now began; None when there is none, or it is defunct."""
    return _started(pid)


def parent(pid: int) -> int | None:
    """The pid of a process's parent; None where there is no such process."""
    fields = _stat(pid)
    if fields is None:
        return _parent_elsewhere(pid)
    return int(fields[1]) if fields else None


def age(process: Process) -> float | None:
    """For how many seconds a process has been running, whatever was done to the clock; None where nobody can say."""
    try:
        return clock.monotonic() - int(process.started) / os.sysconf("SC_CLK_TCK")
    except (ValueError, OSError):
        return None


def is_young(pid: int, seconds: float) -> bool:
    """Whether a process began so few seconds ago, or nobody can say."""
    began = _started(pid)
    if began is None:
        return False
    old = age(known_by(pid, began))
    return old is None or old < seconds


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


def _started(pid: int) -> str | None:
    """When a running process began, in the system's own ticks since boot; None when it is gone or defunct.

    Read where Linux keeps it, as ticks do not shift when somebody sets the clock.
    """
    fields = _stat(pid)
    if fields is None:
        return _started_elsewhere(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else fields[19].decode()


def _stat(pid: int) -> list[bytes] | None:
    """What Linux says of a process, from its state on; empty when there is none, None on any other system."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in brackets may hold anything, brackets and spaces too.
            return file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return [] if os.path.exists("/proc/self/stat") else None
    except ProcessLookupError:
        return []


def _parent_elsewhere(pid: int) -> int | None:
    import psutil

    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


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
