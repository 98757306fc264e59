"""Every error that a caller may meet, with a message that a person can act on and the exit code that it stands for."""

from __future__ import annotations


class OrchError(Exception):
    """The base of all errors raised on purpose; ``exit_code`` is what the command line ends with."""

    exit_code = 1
    kind = "error"


class UsageError(OrchError):
    """The call or the configuration is wrong; nothing was changed."""

    exit_code = 2
    kind = "usage"


class NotFound(OrchError):
    """No such task, fire, note or queue."""

    exit_code = 3
    kind = "not_found"


class Held(OrchError):
    """Another fire is running, or the slot is taken."""

    exit_code = 4
    kind = "held"


class Refused(OrchError):
    """A cap, a pause or a budget refused to start anything; ``cap`` is its name."""

    exit_code = 5
    kind = "refused"

    def __init__(self, message: str, *, cap: str) -> None:
        super().__init__(message)
        self.cap = cap


class Alarm(OrchError):
    """The watchdog's cry: a fire that was due did not happen, or the queue cannot be looked at."""

    exit_code = 7
    kind = "alarm"


class Conflict(OrchError):
    """The claim is lost, the move is not legal, or a key stands for another payload."""

    exit_code = 9
    kind = "conflict"


class SchemaError(OrchError):
    """The file is not a queue, is newer than this program, or is damaged."""

    exit_code = 10
    kind = "schema"


class StorageError(OrchError):
    """The disk is full, the medium is read-only, or the file cannot be reached."""

    exit_code = 1
    kind = "storage"


class Busy(OrchError):
    """Others held the write lock for longer than the busy timeout."""

    exit_code = 75
    kind = "busy"


class Stopped(OrchError):
    """A signal ended the command in an orderly way; the exit code is 128 plus the signal's number."""

    kind = "stopped"

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum
