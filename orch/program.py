"""The program as the system sees it: how it is started again, and what its environment must not hand on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

# Whether this is the binary: one file with a Python of its own inside.
BINARY: bool = getattr(sys, "frozen", False)


def open_streams() -> None:
    """Put something in the place of a closed standard stream: a pipe of ours that got its number would pass for it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def hold_interrupts() -> None:
    """From here on a Ctrl-C ends the process without a word: nothing has begun that would have to end in order.

    Python's own handler raises an exception, which the middle of an import shows as a traceback, or loses.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def hear_interrupts() -> None:
    """From here on a Ctrl-C is an exception, unless whoever started this process has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop_signals() -> list[signal.Signals]:
    """The signals that ask this process to stop; a hang-up is none where it is ignored, as nohup has it."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if nohup else [signal.SIGHUP])]


def words() -> list[str]:
    """The words by which this very program can be started again from anywhere."""
    import shutil  # here, as every worker loads this module and none needs that

    script = shutil.which(sys.argv[0]) if sys.argv and sys.argv[0] else None
    if script and (BINARY or os.path.basename(script) == "orch"):
        return [os.path.abspath(script)]
    return [sys.executable] if BINARY else [sys.executable, "-m", "orch"]


def handed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what leads into the binary's own folder, which would mislead any other program."""
    if not BINARY:
        return dict(environment)
    own = os.path.join(sys.prefix, "")
    return {name: value for name, value in environment.items() if not value.startswith(own)}
