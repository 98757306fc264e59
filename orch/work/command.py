"""Work that is a command: the only door to `subprocess`.

A command is a list of words, never a shell line. It leads a process group of its own, gets its standard input and then
end of file, is waited for itself and not for the end of its output, and is ended with all its descendants when its time
is over.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orch import clock, jsontext, kin, processes
from orch.errors import OrchError
from orch.fire_records import Process
from orch.program import handed_on
from orch.work.output import Capture, Spool

NOT_NOW = 75

_TICK = 0.2
# A wait that took so much longer than asked was a sleep.
_ASLEEP = 2.0
_SIGNAL_SKEW = 0.3
# A command that traps the signal ends with a code of its own; a failing one is not to be held up for long.
_TRAP_SKEW = 0.05
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
# Ended by such a signal, or a shell that says so of its own child.
_BY_SIGNAL = {-signum for signum in _ENDING} | {128 + signum for signum in _ENDING}
_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


@dataclass(slots=True)
class Ran:
    """How a command ended: its exit code (minus the signal's number), its output, and why it was cut, if it was.

    ``left`` describes processes that could not be ended.
    """

    exit_code: int
    out: Capture
    err: Capture
    cut: str | None
    left: list[str]


class CannotRun(OrchError):
    """The command could not be started at all."""


def places(word: str) -> list[str]:
    """The names of the fields that a word has a place for."""
    return [name for name in _PLACE.findall(word) if name]


def fill(words: Sequence[str], payload: Any) -> list[str]:
    """The words with every ``{field}`` replaced from the payload; each stays one word, ``{{`` and ``}}`` are braces.

    A text stands as it is, any other value as its JSON. `CannotRun` names a field that the payload lacks.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group(0)[0]
        if not isinstance(payload, dict) or name not in payload:
            raise CannotRun(f"the command needs a field {name!r} that the payload does not have")
        found = payload[name]
        return str(found) if isinstance(found, str | jsontext.Written) else jsontext.dump(found)

    return [_PLACE.sub(value, word) for word in words]


def run(
    words: Sequence[str],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    timeout: float | None = None,
    cap: int = 1_048_576,
    spools: tuple[Spool | None, Spool | None] = (None, None),
    grace: float = 5.0,
    cut: Callable[[], str | None] = lambda: None,
    began: Callable[[Process], None] = lambda _: None,
    alone: bool = False,
) -> Ran:
    """Run a command to its end, or to its `timeout` in seconds, or until `cut` gives a reason to end it.

    What it has started and left behind is ended with it. `cap` bounds what is kept of each stream, in bytes, and the
    `spools` of standard output and error can be followed meanwhile. `began` is told the process. With `alone` this
    process has no other children, orphans of the command included. `CannotRun` says in words why it could not be
    started.
    """
    environment = {**handed_on(os.environ if environment is None else environment), **kin.marks_of_run()}
    out, err = (Capture(cap, spool) for spool in spools)
    leader: Process | None = None
    child: subprocess.Popen[bytes] | None = None
    try:
        child = _start(words, environment, folder)
        leader = processes.known_by(child.pid, processes.started(child.pid) or "")
        began(leader)
        reason, left = _wait(child, leader, environment, _Pipes(child, stdin, {child.stdout: out, child.stderr: err}),
                             timeout, grace, cut, alone)  # fmt: skip
        if reason is None and child.returncode not in (0, NOT_NOW):
            reason = _asked_meanwhile(cut, _SIGNAL_SKEW if child.returncode in _BY_SIGNAL else _TRAP_SKEW)
        if not reason and _is_anything_left(child.pid, environment, alone=alone):
            left = kin.end_command(leader, environment, grace, alone=alone)
    except CannotRun:
        raise
    except BaseException:
        # By its marks where a signal came before anybody knew the process.
        kin.end_command(leader, environment, 0, alone=alone)
        if child is not None:
            _let_go(child)
        raise
    return Ran(-9 if child.returncode is None else child.returncode, out, err, reason, left)


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """Close what is left of a child's pipes, and collect it."""
    for file in (child.stdin, child.stdout, child.stderr):
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_SIGNAL_SKEW)


def _wait(
    child: subprocess.Popen[bytes],
    leader: Process,
    environment: Mapping[str, str],
    pipes: _Pipes,
    timeout: float | None,
    grace: float,
    cut: Callable[[], str | None],
    alone: bool,
) -> tuple[str | None, list[str]]:
    """Until the command has ended, by itself or by us: the reason to end it, and what could not be ended."""
    deadline = None if timeout is None else clock.monotonic() + timeout
    left: list[str] = []
    reason = None
    try:
        while child.poll() is None:
            rest = _TICK if deadline is None else deadline - clock.monotonic()
            reason = "timeout" if rest <= 0 else cut()
            if reason:
                left = kin.end_command(leader, environment, grace, alone=alone)
                break
            rest = min(_TICK, rest)
            before = clock.monotonic()
            pipes.pump(rest)
            if deadline is not None and clock.monotonic() - before > rest + _ASLEEP:
                # The command slept too: it may be done with the next breath.
                deadline = max(deadline, clock.monotonic() + _ASLEEP)
        child.wait(grace + 5.0)
    except subprocess.TimeoutExpired:
        left = left or [str(child.pid)]
    finally:
        # What it had written by then; a grandchild that keeps the pipe open delays nobody.
        pipes.pump(0)
        pipes.close()
    return reason, left


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _asked_meanwhile(cut: Callable[[], str | None], skew: float) -> str | None:
    """Whether the command ended for a signal that was meant for everybody: this process gets it a moment later."""
    deadline = clock.monotonic() + skew
    while clock.monotonic() < deadline:
        reason = cut()
        if reason:
            return reason
        clock.sleep(0.01)
    return None


def _start(words: Sequence[str], environment: Mapping[str, str], folder: str | None) -> subprocess.Popen[bytes]:
    if not words or not words[0]:
        raise CannotRun("the command has no words")
    if any("\0" in word for word in words):
        raise CannotRun("a word of the command holds a NUL character, which no command can be given")
    try:
        return subprocess.Popen(
            # As UTF-8 whatever the locale that cron gives; what came in undecodable goes out as it came.
            [word.encode("utf-8", "surrogateescape") for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError):
        if folder is not None and not os.path.isdir(folder):
            raise CannotRun(f"the working folder {folder} does not exist") from None
        path = environment.get("PATH", os.defpath)
        raise CannotRun(f"no program {words[0]!r} on PATH={path}") from None
    except PermissionError:
        raise CannotRun(f"{words[0]!r} may not be run: is it executable?") from None
    except OSError as error:
        if error.errno == errno.E2BIG:
            longest = max(len(word.encode("utf-8", "surrogateescape")) for word in words)
            raise CannotRun(
                f"the words of the command are too long for this system (the longest has {longest:,} bytes): let it"
                " read the task from its standard input instead"
            ) from None
        raise CannotRun(f"{words[0]!r} cannot be started: {error}") from None
    except ValueError as error:
        raise CannotRun(f"{words[0]!r} cannot be started: {error}") from None


def _is_anything_left(group: int, environment: Mapping[str, str], *, alone: bool) -> bool:
    """Whether a command that has ended left a process behind; asked after every one, so the cheap ways come first."""
    return _group_lives(group) or (kin.any_child_left() if alone else kin.is_anything_left(environment))


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Pipes:
    """The three pipes of a child, pumped without ever blocking; its end wakes the pump where the system can say so."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes, captures: dict[Any, Capture]) -> None:
        self._selector = selectors.DefaultSelector()
        self._stdin = child.stdin
        self._input = memoryview(stdin)
        self._files = [*captures]
        self._captures = [*captures.values()]
        for file, capture in captures.items():
            os.set_blocking(file.fileno(), False)
            self._selector.register(file, selectors.EVENT_READ, capture)
        assert self._stdin is not None
        os.set_blocking(self._stdin.fileno(), False)
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        self._write()
        self._end = os.pidfd_open(child.pid) if hasattr(os, "pidfd_open") else None
        if self._end is not None:
            self._selector.register(self._end, selectors.EVENT_READ)

    def pump(self, seconds: float) -> None:
        """Move what can be moved, waiting so long for something to do."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._stdin:
                self._write()
            elif isinstance(key.data, Capture):
                self._read(key.fileobj, key.data)
        for capture in self._captures:
            capture.spool()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Capture):
                self._read(key.fileobj, key.data, bounded=True)
        self._selector.close()
        for file in (self._stdin, *self._files):
            if file is not None:
                try:
                    file.close()
                except OSError:
                    pass
        if self._end is not None:
            os.close(self._end)

    def _write(self) -> None:
        assert self._stdin is not None
        try:
            while self._input:
                self._input = self._input[os.write(self._stdin.fileno(), self._input[:65536]) :]
        except BlockingIOError:
            return
        except OSError:
            # It does not want the rest, which is its own affair.
            self._input = self._input[:0]
        self._selector.unregister(self._stdin)
        try:
            self._stdin.close()
        except OSError:
            pass

    def _read(self, file: Any, capture: Capture, *, bounded: bool = False) -> None:
        # At the end there may be a grandchild that writes for ever: take a pipe's fill and no more.
        for _ in range(32 if bounded else 16):
            try:
                data = os.read(file.fileno(), 65536)
            except BlockingIOError:
                return
            except (OSError, ValueError):
                return
            if not data:
                self._selector.unregister(file)
                return
            capture.feed(data)
