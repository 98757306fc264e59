"""What a task writes: kept head and tail up to a cap, in files beside the database, never in a row."""

from __future__ import annotations

import os
import re
import sys
import threading
from functools import cache
from typing import Any

from orch import clock

ENDINGS = ("out", "err")

_MARK = b"\n[cut: %d bytes in all]\n"
_MARKED = re.compile(rb"\n\[cut: (\d+) bytes in all\]\n")
# Seconds between two looks of a spool's readers that are worth a write.
_SPOOL_PAUSE = 0.1
_READ = 1_048_576
_PAGE = 4096
_PUNCH_HOLE, _KEEP_SIZE = 2, 1


class Capture:
    """A stream as it comes, in bounded memory: the first half of the cap, then the last half, and the true size.

    With a `spool` it can be followed there: what is kept stands in that file too, each byte at its place in the stream.
    """

    def __init__(self, cap: int, spool: Spool | None = None) -> None:
        self._head_cap = cap // 2
        self._tail_cap = cap - self._head_cap
        self._head = bytearray()
        self._tail = bytearray()
        self._spool = spool
        self._spooled = 0
        self._spooled_at = 0.0
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
            del self._tail[: -self._tail_cap - _PAGE]

    def spool(self) -> None:
        """Bring the spool up to date, a few times a second at the most."""
        if self._spool is None or self._spooled == self.size:
            return
        now = clock.monotonic()
        if now - self._spooled_at < _SPOOL_PAUSE:
            return
        self._spooled_at = now
        if self._spooled < len(self._head):
            self._spool.write(bytes(self._head[self._spooled :]), self._spooled)
            self._spooled = len(self._head)
        if self._tail:
            kept = self._tail[-self._tail_cap - _PAGE :]
            begins = self.size - len(kept)
            # After a gap at the next page, so that the gap is a hole in the file for its readers; there is a page more
            # than the cap.
            skipped = self._spooled - begins if self._spooled >= begins else -begins % _PAGE
            self._spool.write(bytes(kept[skipped:]), begins + skipped)
            self._spool.trim()
        self._spooled = self.size

    @property
    def cut(self) -> bool:
        """Whether something in the middle was let go."""
        return self.size > self._head_cap + self._tail_cap

    def content(self) -> bytes:
        """All of it or, where it was cut, both ends with a line between them that says so."""
        if not self.cut:
            return bytes(self._head + self._tail)
        return bytes(self._head) + _MARK % self.size + bytes(self._tail[-self._tail_cap :])

    def text(self) -> str:
        return self.content().decode("utf-8", "replace")


class Spool:
    """What the task of a worker writes right now, in a file that others can follow: at its place in the stream.

    Of a long stream the middle is let go, so that the file needs little more than the cap. A worker that is killed
    leaves its last words here.
    """

    def __init__(self, state: str, worker: int, ending: str, cap: int) -> None:
        path = spool_path(state, worker, ending)
        self._cap = cap
        self._freed = 0
        # A function's spool is trimmed from beside it.
        self._lock = threading.Lock()
        make_folders(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)

    def take_over(self, *streams: int) -> None:
        """Let the process's own streams, by their descriptors, end here."""
        for stream in streams:
            os.dup2(self._descriptor, stream)

    def write(self, data: bytes, place: int) -> None:
        """Put a piece of the stream at its place. What cannot be written cannot be followed, and that is all."""
        try:
            # By its size and not by its offset, as everything that is written to an appended file goes to its end.
            if os.fstat(self._descriptor).st_size != place:
                os.ftruncate(self._descriptor, place)
            os.write(self._descriptor, data)
        except OSError:
            pass

    def trim(self) -> None:
        """Give back the disk space of what lies between head and tail, where the system can do that."""
        half = self._cap // 2
        with self._lock:
            begin = max(self._freed, -(-half // _PAGE) * _PAGE)
            end = (os.fstat(self._descriptor).st_size - (self._cap - half)) // _PAGE * _PAGE
            if end - begin >= half and _free(self._descriptor, begin, end - begin):
                self._freed = end

    def take(self) -> bytes:
        """What was written since the last time, head and tail up to the cap; the spool is empty then."""
        with self._lock:
            data = _ends(self._descriptor, os.fstat(self._descriptor).st_size, self._cap)
            self._empty()
        return data

    def clear(self) -> None:
        with self._lock:
            self._empty()

    def close(self) -> None:
        os.close(self._descriptor)

    def _empty(self) -> None:
        self._freed = 0
        if os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, 0)


def clipped(data: bytes, cap: int) -> bytes:
    """Both ends of a stream, up to a cap, with a line between them that says how long it was."""
    capture = Capture(cap)
    capture.feed(data)
    return capture.content()


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
    for ending in ENDINGS:
        try:
            with open(os.path.join(state, f"{name}.{ending}"), "rb") as file:
                found[ending] = file.read()
        except FileNotFoundError:
            continue
    return found


def spool_path(state: str, worker: int, ending: str) -> str:
    return os.path.join(state, "output", f"w{worker}.{ending}")


def read_spool(state: str, worker: int, ending: str, place: int) -> tuple[bytes, int]:
    """What a worker's task has written behind a place in its stream: a piece of it, and the place where that ends.

    Where the middle was let go, the piece is a line that says so.
    """
    try:
        with open(spool_path(state, worker, ending), "rb") as file:
            return _next_piece(file.fileno(), place)
    except OSError:
        return b"", place


def _next_piece(descriptor: int, place: int) -> tuple[bytes, int]:
    begins = _seek(descriptor, place, "SEEK_DATA", place)
    if begins > place:
        return b"\n[cut: %d bytes]\n" % (begins - place), begins
    ends = _seek(descriptor, place, "SEEK_HOLE", place + _READ)
    data = os.pread(descriptor, min(_READ, ends - place), place)
    if _seek(descriptor, place, "SEEK_DATA", place) != place:
        # Let go while it was read.
        return b"", place
    last = place + len(data)
    # A hole begins at a page's border, the piece before it may end earlier.
    is_whole = last < ends or last == os.fstat(descriptor).st_size
    return (data if is_whole else data.rstrip(b"\0")), last


def _seek(descriptor: int, place: int, whence: str, otherwise: int) -> int:
    """The next data or hole behind a place; something else where there is none, or no file system that knows."""
    try:
        return os.lseek(descriptor, place, getattr(os, whence))
    except (OSError, AttributeError):
        return otherwise


def behind(content: bytes, place: int) -> bytes:
    """What a stored stream holds behind a place in the stream that it was kept of."""
    for match in _MARKED.finditer(content):
        cap = len(content) - len(match[0])
        if match.start() == cap // 2 and place >= match.start():
            begins = int(match[1]) - (cap - cap // 2)
            tail = content[match.end() :]
            return match[0] + tail if place < begins else tail[place - begins :]
    return content[place:]


def salvage(state: str, worker: int, task: int, attempt: int, cap: int) -> str | None:
    """Make the last words of a dead worker the output of the attempt that it died in: their name, if there are any.

    They stay where they were until the worker is forgotten, and the worker may have stored them itself.
    """
    streams = {}
    for ending in ENDINGS:
        try:
            descriptor = os.open(spool_path(state, worker, ending), os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            streams[ending] = _ends(descriptor, os.fstat(descriptor).st_size, cap)
        finally:
            os.close(descriptor)
    name = name_of(task, attempt)
    return store(state, name, streams) or (name if read(state, name) else None)


def forget(state: str, worker: int) -> None:
    """The worker is gone: its spools go too."""
    for ending in ENDINGS:
        try:
            os.unlink(spool_path(state, worker, ending))
        except OSError:
            continue


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
    return head + _MARK % size + tail


def _free(descriptor: int, begin: int, length: int) -> bool:
    """Make a hole in a file; False where the system or the file system knows no such thing."""
    punch = _libc_fallocate()
    return punch is not None and punch(descriptor, _PUNCH_HOLE | _KEEP_SIZE, begin, length) == 0


@cache
def _libc_fallocate() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    punch = getattr(ctypes.CDLL(None), "fallocate64", None)
    if punch is not None:
        punch.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return punch
