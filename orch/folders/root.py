"""Where the files lie, and moves between folders that never overwrite and never delete."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from orch import clock, files
from orch.handoff import words
from orch.states import State

ENDINGS = (".yaml", ".yml", ".json")
# There from the beginning; the others are made when they are first used.
FIRST = (State.INCOMING, State.PROCESSING, State.DONE, State.FAILED)
_LOCK = ".lock"
# Bytes of a name that we make: some systems take 255, and a file is written under a longer one first.
_LONGEST = 240
# Hundredths of a second that one look waits for another one.
_LOCK_TRIES = 200


class Root:
    """The folders below one path, one for each state by its name."""

    def __init__(self, path: str) -> None:
        self.path = path

    def folder(self, state: str) -> str:
        """The path of a state's folder."""
        return os.path.join(self.path, state)

    def prepare(self) -> None:
        """Make what has to be there."""
        for state in FIRST:
            os.makedirs(self.folder(state), mode=0o700, exist_ok=True)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """One look at a time, of all processes; False where another one goes on for too long to wait for it."""
        self.prepare()
        descriptor = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _locked(descriptor)
        finally:
            os.close(descriptor)

    def delegate(self, task_id: str, state: str) -> str:
        """The path of a DELEGATE in a state; `ValueError` for an id that is no file's name."""
        if not words.is_safe_id(task_id):
            raise ValueError(f"{task_id!r} cannot be the name of a file")
        return os.path.join(self.folder(state), f"{task_id}.yaml")

    def find(self, task_id: str) -> str | None:
        """Where a DELEGATE lies; that in ``incoming`` last, as it may be another one of the same name.

        One that was refused is no task's, whatever its name.
        """
        states = [state for state in State if state is not State.INCOMING]
        for state in (State.PROCESSING, *states, State.INCOMING):
            if os.path.lexists(path := self.delegate(task_id, state)) and not _is_refused(path):
                return path
        return None

    def finish_moves(self, path: str) -> None:
        """Do the second step of moves that were broken off between their two: a file has one place."""
        name = os.path.basename(path)
        for state in State:
            if is_same(other := os.path.join(self.folder(state), name), path) and other != path:
                os.unlink(other)

    def answers(self, task_id: str, state: str = State.PROCESSING) -> list[str]:
        """The files in a state's folder that are by their name answers to a task, the newest first."""
        id = re.escape(task_id)
        name = re.compile(rf"(?:{id}-HANDBACK(?:-.*)?|HANDBACK-{id}(?:-\d.*)?)\.(?:yaml|yml|json)", re.IGNORECASE)
        folder = self.folder(state)
        try:
            found = [os.path.join(folder, one) for one in os.listdir(folder) if name.fullmatch(one)]
        except OSError:
            return []
        return sorted((one for one in found if os.path.isfile(one)), key=_age, reverse=True)


def move(source: str, folder: str, name: str | None = None) -> str:
    """Move a file to a folder, under another name (-2, -3 …) where its own is taken: the new path."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    stem, ending = split(name or os.path.basename(source))
    number, target = 1, os.path.join(folder, named(stem, ending) if name else os.path.basename(source))
    while not _moved(source, target):
        number += 1
        target = os.path.join(folder, named(stem, f"-{number}{ending}"))
    return target


def write(path: str, content: str) -> None:
    """Write a file of ours; what stood there and differs goes out of the way to a free name."""
    if os.path.lexists(path) and not _holds(path, content):
        move(path, os.path.dirname(path))
    files.replace(path, content)


def named(beginning: str, end: str) -> str:
    """A file's name of two parts; where it would be too long, the first one is cut."""
    room, written = _LONGEST - len(os.fsencode(end)), os.fsencode(beginning)
    return (beginning if len(written) <= room else written[:room].decode("utf-8", "ignore")) + end


def reason_path(path: str) -> str:
    """Where it says why a DELEGATE failed or was refused: beside it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, named(split(name)[0], "-ERROR.json"))


def is_same(one: str, other: str) -> bool:
    """Whether two names are of one file: a move that was broken off between its two steps."""
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def split(name: str) -> tuple[str, str]:
    """The name of a file and its ending."""
    for ending in ENDINGS:
        if name.lower().endswith(ending):
            return name[: -len(ending)], name[-len(ending) :]
    return name, ""


def _locked(descriptor: int) -> bool:
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            clock.sleep(0.01)
    return False


def _moved(source: str, target: str) -> bool:
    """Whether a file has another place now; False when that is taken."""
    try:
        # A link and not a rename, which would take the place of what is there.
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        if not is_same(source, target) or _is_one_name(source, target):
            return False
    except OSError as error:
        # A folder, or a file system without links.
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
            raise
        if os.path.lexists(target):
            return False
        os.rename(source, target)
        return True
    with suppress(FileNotFoundError):
        os.unlink(source)
    return True


def _is_refused(path: str) -> bool:
    """Whether a file was set aside: the reason beside it names no task."""
    try:
        with open(reason_path(path), "rb") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and told.get("task_id", "") is None


def _is_one_name(one: str, other: str) -> bool:
    (folder, name), (other_folder, other_name) = os.path.split(one), os.path.split(other)
    return name == other_name and os.path.samefile(folder, other_folder)


def _holds(path: str, content: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == content.encode()
    except OSError:
        return False


def _age(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
