"""Small files that are replaced whole or not at all, and whether there is room for any."""

from __future__ import annotations

import contextlib
import os

from orch.errors import StorageError

# With less than this a file system is full: nothing can grow by as much as a page and its own bookkeeping.
_ROOM = 64 * 1024


def replace(path: str, content: str | bytes, *, durable: bool = False) -> None:
    """Put a text or bytes in the place of a file, for its owner alone; with `durable` it is on the disk then.

    `OSError` when that is not possible: the file is as it was.
    """
    new = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def make_private_folder(path: str) -> None:
    """Make a folder for its owner alone, unless it is there; `StorageError` when that is not possible."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder {path} cannot be made: {error.strerror}") from None


def touch(path: str) -> None:
    """Make a file as new as this moment, if it is there."""
    with contextlib.suppress(OSError):
        os.utime(path)


def is_full(folder: str) -> bool:
    """Whether nothing more can be written below a folder."""
    try:
        room = os.statvfs(folder)
    except (OSError, AttributeError):
        return False
    return room.f_bavail * room.f_frsize < _ROOM
