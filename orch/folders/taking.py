"""From the files to the database: dropped DELEGATEs are added, each once, and none while it is still written."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass, field

from orch import clock
from orch.errors import Conflict, OrchError
from orch.folders.root import ENDINGS, Root, is_same, move, reason_path, split, write
from orch.handoff import Delegate, HandoffError, orders, read_delegates, words
from orch.handoff.delegate import LARGEST
from orch.legible import shown
from orch.queue import Queue
from orch.records import Added, Task
from orch.states import OWNED, State

# Files that are added in one transaction.
_BATCH = 200
# Seconds that a file must have been left alone where nobody can say whether it is still open, and where it cannot be
# read: it may be written in several goes.
SETTLED = 2.0

# What tells one version of a file from another.
_Sign = tuple[int, int, int]


@dataclass(slots=True)
class Taken:
    """What a look at the dropped files came to: how many tasks were added and how many files were refused.

    ``unsettled`` counts files that may still be in the middle of being written.
    """

    added: int = 0
    refused: list[str] = field(default_factory=list)
    unsettled: int = 0

    @property
    def anything(self) -> bool:
        return bool(self.added or self.refused)


@dataclass(slots=True)
class _Found:
    """A file that can be taken, and what it holds."""

    path: str
    sign: _Sign
    delegates: list[Delegate]


class Dropped:
    """The dropped files of one root, as one process sees them from look to look."""

    def __init__(self, root: Root, roles: list[str], settled: float = SETTLED) -> None:
        self.root = root
        self._settled = settled
        self._roles = words.all_roles(roles)
        self._known: dict[str, _Sign] = {}
        self._seen: dict[str, tuple[_Sign, float]] = {}
        self._displaced = False

    def is_waiting(self) -> bool:
        """Whether a file is there that the last look has not seen, without opening any."""
        return any(self._sign(name) != self._known.get(name) for name in self._names())

    def take(self, queue: Queue, taken: Taken) -> None:
        """Add what was dropped; what cannot be taken goes to ``failed`` with the reason. Only under the root's lock."""
        self._take(queue, taken)
        if self._displaced:
            self._take(queue, taken)

    def _take(self, queue: Queue, taken: Taken) -> None:
        self._displaced, taken.unsettled = False, 0
        found: list[_Found] = []
        names = self._names()
        for name in names:
            one = self._look(queue, name, taken)
            if one is not None:
                found.append(one)
            if len(found) == _BATCH:
                self._add(queue, found, taken)
                found = []
        self._add(queue, found, taken)
        there = set(names)
        self._known = {name: sign for name, sign in self._known.items() if name in there}
        self._seen = {name: seen for name, seen in self._seen.items() if name in there}

    def _names(self) -> list[str]:
        try:
            names = os.listdir(self.root.folder(State.INCOMING))
        except FileNotFoundError:
            return []
        # What lies beside a DELEGATE is ours.
        return sorted(
            name
            for name in names
            if name.lower().endswith(ENDINGS) and not name.startswith(".") and not name.endswith(".meta.json")
        )

    def _sign(self, name: str) -> _Sign | None:
        try:
            return _sign_of(os.lstat(os.path.join(self.root.folder(State.INCOMING), name)))
        except OSError:
            return None

    def _look(self, queue: Queue, name: str, taken: Taken) -> _Found | None:
        """One file: what it holds, if it is new, whole and sound."""
        path = os.path.join(self.root.folder(State.INCOMING), name)
        try:
            status = os.lstat(path)
        except OSError:
            return None
        sign = _sign_of(status)
        if self._known.get(name) == sign:
            return None
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no plain file"
            self._refuse(path, f"{shown(name)} is {kind}: drop a file", taken)
            return None
        try:
            data, is_settled = self._read(path, name, sign)
        except OSError as error:
            if status.st_uid == os.geteuid() and status.st_mode & stat.S_IRUSR:
                taken.unsettled += 1
            else:
                self._refuse(path, f"{shown(name)} cannot be read: {error.strerror}", taken)
            return None
        if not is_settled:
            taken.unsettled += 1
            return None
        try:
            return _Found(path, sign, read_delegates(data, roles=self._roles))
        except HandoffError as error:
            if not self._is_old(name, sign):
                taken.unsettled += 1
            elif not self._hand_on(queue, path, name, error):
                self._refuse(path, f"{shown(name)}: {error}", taken)
            return None

    def _read(self, path: str, name: str, sign: _Sign) -> tuple[bytes, bool]:
        """What a file holds, and whether nobody is writing it any more."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "rb") as file:
                data = file.read(LARGEST + 1)
            # Asked for behind the reading: nobody has it open now, and nobody has changed it since it was looked at.
            is_free = _is_free(descriptor)
            is_same = _sign_of(os.fstat(descriptor)) == sign
        finally:
            os.close(descriptor)
        return data, is_same and (self._is_old(name, sign) if is_free is None else is_free)

    def _is_old(self, name: str, sign: _Sign) -> bool:
        """Whether a file is as it was a while ago, by its own time or, as clocks may differ, by what was seen."""
        now = clock.monotonic()
        last = self._seen.get(name)
        if last is None or last[0] != sign:
            self._seen[name] = last = (sign, now)
        return now - last[1] >= self._settled or clock.now().timestamp() - sign[1] / 1e9 >= self._settled

    def _add(self, queue: Queue, found: list[_Found], taken: Taken) -> None:
        """Add what files hold, all in one transaction, or one after the other where one of them is refused."""
        if not found:
            return
        try:
            added = iter(queue.add_many([orders.task_of(one) for each in found for one in each.delegates]))
        except (OrchError, ValueError) as error:
            if len(found) > 1:
                for each in found:
                    self._add(queue, [each], taken)
            elif self._sign(os.path.basename(found[0].path)) != found[0].sign:
                self._displaced = True
            elif isinstance(error, Conflict) or not isinstance(error, OrchError) or error.exit_code in (2, 8):
                self._refuse(found[0].path, str(error), taken)
            else:
                # Nothing is wrong with the file.
                raise
            return
        for each in found:
            mine = [next(added) for _ in each.delegates]
            taken.added += sum(one.new for one in mine)
            # Whoever took it away meanwhile keeps it; the task is there.
            with suppress(FileNotFoundError):
                self._settle(queue, each, mine, taken)

    def _settle(self, queue: Queue, found: _Found, added: list[Added], taken: Taken) -> None:
        """A file whose tasks are there: it becomes the one of its task, or is set aside as there was one."""
        name = os.path.basename(found.path)
        if self._sign(name) != found.sign:
            # Another one has this name by now, and this one another name, under which it is looked at again.
            self._displaced = True
            return
        if len(added) > 1:
            # Each gets a file of its own; this one has been taken, and is not looked at again.
            move(found.path, self.root.folder(State.INCOMING), f"{name}.taken")
            return
        id = found.delegates[0].task_id
        there = self.root.find(id)
        if there == found.path:
            self._known[name] = found.sign
        elif there is not None and is_same(there, found.path):
            # A move that was broken off between its two steps.
            os.unlink(found.path)
        elif there is None or added[0].new:
            state = queue.task(added[0].id).state
            if there is not None:
                # Of a task that is gone, or nobody's.
                move(there, os.path.dirname(there))
            moved = move(found.path, self.root.folder(state), f"{id}.yaml")
            if state == State.INCOMING:
                self._known[os.path.basename(moved)] = found.sign
        else:
            self._refuse(found.path, f"it is the same as task {added[0].id} ({id}), and was not added again", taken)

    def _hand_on(self, queue: Queue, path: str, name: str, error: HandoffError) -> bool:
        """Bring an answer that was dropped here to where the agent's worker looks for it."""
        task = _answered(queue, name) if error.kind == "wrong_kind" else None
        if task is None or task.state not in OWNED:
            return False
        move(path, self.root.folder(State.PROCESSING))
        return True

    def _refuse(self, path: str, why: str, taken: Taken) -> None:
        """Set a file aside, with the reason beside it."""
        moved = move(path, self.root.folder(State.FAILED))
        # No task's, and so that of no file that will bear this name.
        told = {"task_id": None, "error": why, "failed_at": clock.stamp(clock.now())}
        write(reason_path(moved), json.dumps(told, indent=2) + "\n")
        taken.refused.append(why)


def _sign_of(status: os.stat_result) -> _Sign:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _answered(queue: Queue, name: str) -> Task | None:
    """The task that a file is an answer to, by its name."""
    stem, _ = split(name)
    for id in (stem.partition("-HANDBACK")[0], stem.removeprefix("HANDBACK-")):
        if id != stem and words.is_safe_id(id) and queue.has_key(id):
            return queue.find(id)
    return None


def _is_free(descriptor: int) -> bool | None:
    """Whether nobody has the file open for writing; None where the system cannot say."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        # Whoever opens it in this very moment is made to wait, and the system says so by a signal: a harmless one.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return False
    except OSError:
        return None
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True
