"""What a task writes: kept head and tail up to a cap, in files beside the database, never in a row."""

from __future__ import annotations

import os


class Capture:
    """A stream as it comes, in bounded memory: the first half of the cap, then the last half, and the true size."""

    def __init__(self, cap: int) -> None:
        self._head_cap = cap // 2
        self._tail_cap = cap - self._head_cap
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        room = self._head_cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut seldom, so that a flood is not copied again for every piece of it.
        if len(self._tail) > 2 * self._tail_cap + 65536:
            del self._tail[: -self._tail_cap]

    @property
    def cut(self) -> bool:
        """Whether something in the middle was let go."""
        return self.size > self._head_cap + self._tail_cap

    def content(self) -> bytes:
        """All of it or, where it was cut, both ends with a line between them that says so."""
        if not self.cut:
            return bytes(self._head + self._tail)
        tail = self._tail[-self._tail_cap :]
        return bytes(self._head) + b"\n[cut: %d bytes in all]\n" % self.size + bytes(tail)

    def text(self) -> str:
        return self.content().decode("utf-8", "replace")


def name_of(task: int, attempt: int) -> str:
    """Where an attempt's output lies below the state folder, without its ending; a thousand tasks share a folder."""
    return f"output/{task // 1000}/{task}-{attempt}"


def store(state: str, name: str, streams: dict[str, bytes]) -> str | None:
    """Write the streams that hold anything (by their ending, ``out`` or ``err``): the name, or None when none does."""
    kept = {ending: data for ending, data in streams.items() if data}
    if not kept:
        return None
    path = os.path.join(state, name)
    make_folders(path)
    for ending, data in kept.items():
        descriptor = os.open(f"{path}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    return name


def read(state: str, name: str) -> dict[str, bytes]:
    """The stored streams of an attempt by their ending."""
    found = {}
    for ending in ("out", "err"):
        try:
            with open(os.path.join(state, f"{name}.{ending}"), "rb") as file:
                found[ending] = file.read()
        except FileNotFoundError:
            continue
    return found


class Spool:
    """A worker's own standard output and error while its functions run, taken task by task.

    It lies in a file named after the worker, so that a worker that is killed leaves its last words behind.
    """

    def __init__(self, state: str, worker: int, cap: int) -> None:
        self._path = spool_path(state, worker)
        self._cap = cap
        make_folders(self._path)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._descriptor = os.open(self._path, flags, 0o600)
        for stream in (1, 2):
            os.dup2(self._descriptor, stream)

    def take(self) -> bytes:
        """What was written since the last look, head and tail up to the cap."""
        size = os.fstat(self._descriptor).st_size
        if not size:
            return b""
        data = _ends(self._descriptor, size, self._cap)
        os.ftruncate(self._descriptor, 0)
        return data

    def close(self) -> None:
        os.unlink(self._path)


def spool_path(state: str, worker: int) -> str:
    return os.path.join(state, "output", f"w{worker}.log")


def salvage(state: str, worker: int, task: int, attempt: int, cap: int) -> str | None:
    """Make the last words of a dead worker the output of the attempt that it died in: their name, if there are any."""
    path = spool_path(state, worker)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = _ends(descriptor, os.fstat(descriptor).st_size, cap)
    finally:
        os.close(descriptor)
    name = store(state, name_of(task, attempt), {"out": data})
    os.unlink(path)
    return name


def make_folders(path: str) -> None:
    """The folders of a file, each for its owner alone."""
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        make_folders(folder)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass


def _ends(descriptor: int, size: int, cap: int) -> bytes:
    if size <= cap:
        return os.pread(descriptor, size, 0)
    half = cap // 2
    head = os.pread(descriptor, half, 0)
    tail = os.pread(descriptor, cap - half, size - (cap - half))
    return head + b"\n[cut: %d bytes in all]\n" % size + tail
