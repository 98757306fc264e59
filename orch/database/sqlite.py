"""SQLite through apsw: one connection, used by the process and the thread that opened it.

The only import of apsw. Nothing else in the program may open the database file, its ``-wal`` or ``-shm``: POSIX drops a
process's locks on a file when any descriptor on it closes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import apsw

from orch import clock, files
from orch.database import BUSY_TIMEOUT, MEMORY, Row, migrations, statement
from orch.errors import Busy, Conflict, NotFound, OrchError, SchemaError, StorageError

# "orch" in ASCII, so that the file can be told from any other SQLite file.
APPLICATION_ID = 0x6F726368

# The log is written back from so many pages on, and made to begin again from so many.
_WAL_PAGES = 4000
_RESTART_PAGES = 5000
# Where that did not go, it is tried again so many pages later.
_RESTART_STEP = 500
# Seconds for which a checkpoint that holds others up waits for them.
_RESTART_PATIENCE = 0.1
# How many forks lie between the first process and this one: looked at by every statement, unlike the pid at no cost.
_generation = 0
_WAL_BYTES = 16 * 1024 * 1024

DURABILITIES = ("adds", "full", "normal")


def _count_fork() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_count_fork)


def linked() -> str:
    """The versions of the binding and of the SQLite that is really linked."""
    return f"apsw {apsw.apsw_version()}, SQLite {apsw.sqlite_lib_version()}"


class SQLite:
    """One WAL-mode database file, or a database in memory. See `orch.database.Database` for the four methods.

    `durability` says which commits are on the disk when they return: ``adds`` those that promise something to somebody
    (a task added, a note stored), ``full`` all, ``normal`` none but what a checkpoint carries. The file is whole after
    a power loss in every case. `create` allows the file to be made; without it a missing one is `NotFound`.
    """

    def __init__(
        self, path: str, *, create: bool = False, durability: str = "adds", busy_timeout: float = BUSY_TIMEOUT
    ) -> None:
        self.path = path if path == MEMORY else os.path.abspath(path)
        self._durability = durability
        self._busy_timeout = busy_timeout
        self._busy_since = 0.0
        self._restart_at = _RESTART_PAGES
        self._depth = 0
        self._generation = _generation
        if path != MEMORY and not _is_there(self.path):
            if not create:
                raise NotFound(f"no queue at {self.path}: 'orch init' makes one, and so does the first 'orch add'")
            _touch_privately(self.path)
        try:
            self._connection = self._connect()
        except apsw.Error as error:
            raise self._translated(error) from error
        # Kept: a new one for every statement would cost as much as the look-up of the statement.
        self._cursor = self._connection.cursor()

    def run(self, name: str, rows: Iterable[Mapping[str, Any]] | None = None, /, **params: Any) -> list[Row]:
        self._check_owner()
        try:
            if rows is None:
                return self._cursor.execute(statement(name), params).fetchall()
            self._connection.executemany(statement(name), rows).fetchall()
            return []
        except (apsw.Error, OverflowError, UnicodeEncodeError) as error:
            raise self._translated(error) from error

    def script(self, name: str) -> None:
        self._check_owner()
        try:
            # Read to the end: apsw stops in front of the first row that nobody takes.
            self._connection.execute(statement(name)).fetchall()
        except apsw.Error as error:
            raise self._translated(error) from error

    def transaction(self, *, durable: bool = False) -> _Transaction:
        self._check_owner()
        return _Transaction(self, durable and self._durability == "adds")

    def close(self) -> None:
        # In a process that merely inherited it, closing would drop the owner's locks.
        if self._generation == _generation:
            self._connection.close()

    def write_back(self) -> None:
        """Write the log back as far as nobody reads it, so that it begins again where the disk has no room for more."""
        try:
            self._connection.execute("pragma wal_checkpoint(passive)").fetchall()
        except apsw.Error:
            # Not now, then.
            pass

    def truncate_wal(self) -> bool:
        """Write the log back and cut it to nothing; False when a reader or writer is in the way."""
        try:
            busy = self._connection.execute("pragma wal_checkpoint(truncate)").fetchall()[0][0]
        except apsw.BusyError:
            return False
        except apsw.Error as error:
            raise self._translated(error) from error
        return not busy

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        connection.set_busy_handler(self._wait)
        # One plan for a statement, whatever is bound to it.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # A file that turns out to be somebody else's must be left as it was, its log included.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.execute(f"pragma synchronous = {'full' if self._durability == 'full' else 'normal'}").fetchall()
        connection.set_wal_hook(self._keep_log_short)
        connection.execute(f"pragma journal_size_limit = {_WAL_BYTES}").fetchall()
        return connection

    def _migrate(self, connection: apsw.Connection) -> None:
        wanted = len(migrations())
        if self._version(connection) == wanted:
            return
        # Turning WAL on needs the file to itself for a moment and does not consult the busy handler.
        deadline = clock.monotonic() + self._busy_timeout
        while True:
            try:
                connection.execute("pragma journal_mode = wal").fetchall()
                break
            except apsw.BusyError:
                if clock.monotonic() > deadline:
                    raise
                _step_aside()
        connection.execute("begin immediate")
        try:
            for name in migrations()[self._version(connection) :]:
                connection.execute(statement(name)).fetchall()
            connection.execute(statement("found"), {"now": clock.stamp(clock.now())}).fetchall()
            connection.execute(f"pragma application_id = {APPLICATION_ID}").fetchall()
            connection.execute(f"pragma user_version = {wanted}").fetchall()
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def _version(self, connection: apsw.Connection) -> int:
        """The schema version of the file, 0 for an empty one; `SchemaError` when it is not ours to touch."""
        version, application, tables = self._identity(connection)
        if application != APPLICATION_ID and (application or version or tables):
            if version > len(migrations()) and not application:
                raise SchemaError(
                    f"{self.path} is not a queue of orch (its version cell says {version}, this orch writes"
                    f" {len(migrations())}); it was left untouched"
                )
            raise SchemaError(f"{self.path} is an SQLite file, but not a queue of orch; it was left untouched")
        if version > len(migrations()):
            raise SchemaError(
                f"{self.path} was made by a newer orch (its schema is version {version}, this orch knows"
                f" {len(migrations())}): use the newer orch; the file was left untouched"
            )
        return int(version)

    @staticmethod
    def _identity(connection: apsw.Connection) -> tuple[int, int, int]:
        """The version and application cells of a file, and how many things are in it."""
        row: Any = connection.execute(
            "select (select user_version from pragma_user_version),"
            " (select application_id from pragma_application_id), (select count(*) from sqlite_schema)"
        ).fetchall()[0]
        return row[0], row[1], row[2]

    def _wait(self, calls: int) -> bool:
        # Short random sleeps instead of SQLite's growing ones: nobody waits long while others come and go.
        now = clock.monotonic()
        if calls == 0:
            self._busy_since = now
        elif now - self._busy_since > self._busy_timeout:
            return False
        _step_aside()
        return True

    def _keep_log_short(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """After a commit: write the log back and, where others are always at it, hold them up until it begins again.

        SQLite's own way never holds anybody up, and under a dozen busy workers the log would never begin again.
        """
        if pages < _WAL_PAGES:
            self._restart_at = _RESTART_PAGES
            return apsw.SQLITE_OK
        is_long = pages >= self._restart_at
        before, self._busy_timeout = self._busy_timeout, _RESTART_PATIENCE if is_long else 0.0
        try:
            connection.wal_checkpoint(
                name, apsw.SQLITE_CHECKPOINT_RESTART if is_long else apsw.SQLITE_CHECKPOINT_PASSIVE
            )
        except apsw.Error:
            # The next commit tries again, or says what is wrong.
            pass
        finally:
            self._busy_timeout = before
        if is_long:
            self._restart_at = pages + _RESTART_STEP
        return apsw.SQLITE_OK

    def _check_owner(self) -> None:
        if self._generation != _generation:
            raise OrchError("this queue was opened by another process: open it again after a fork")

    def _translated(self, error: Exception) -> OrchError:
        match error:
            case OverflowError():
                return OrchError("a number is too large for the database (64 bits)")
            case UnicodeEncodeError():
                return OrchError("a text holds half of a surrogate pair and cannot be stored")
            case apsw.BusyError() | apsw.LockedError():
                return Busy(f"{self.path} was locked by others for more than {self._busy_timeout:g} s; try again")
            case apsw.NotADBError():
                return SchemaError(f"{self.path} is not a database; it was left untouched")
            case apsw.CorruptError():
                return SchemaError(f"{self.path} is damaged ({error}): restore it from a backup")
            case apsw.FullError():
                return self._full()
            case apsw.IOError() | apsw.CantOpenError() if files.is_full(os.path.dirname(self.path)):
                return self._full()
            case apsw.ReadOnlyError():
                return StorageError(f"{self.path} is read-only for this user")
            case apsw.CantOpenError():
                return StorageError(f"{self.path} cannot be opened: check that its folder exists and may be written")
            case apsw.IOError():
                return StorageError(f"{self.path} cannot be read or written ({error})")
            case apsw.ConstraintError() if "illegal move" in str(error):
                return Conflict(str(error))
            case apsw.TooBigError():
                return OrchError("a text is larger than the database can hold (1 GB)")
            case apsw.ThreadingViolationError():
                return OrchError("one connection was used by two threads at once: open the queue in each thread")
        return OrchError(f"{self.path}: {error}")

    def _full(self) -> StorageError:
        return StorageError(f"the disk is full: {self.path} cannot grow; free space and run again")


def _step_aside() -> None:
    """Sleep for a moment of a random length, so that those who wait for one lock do not meet again."""
    import random  # here, as few ever wait

    clock.sleep(random.uniform(0.0002, 0.002))


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StorageError(f"{path} cannot be reached: {error.strerror}") from None
    return True


def _touch_privately(path: str) -> None:
    """Make an empty file that only its owner may read; the log beside it takes its permissions over.

    Exclusively: a file that anybody could have open already is never opened here.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError:
        # It is there by now, or SQLite will say what is wrong with the place.
        pass


class _Transaction:
    """``begin immediate`` … ``commit``; inside another one a savepoint, which is undone alone when it fails."""

    __slots__ = ("_database", "_durable")

    def __init__(self, database: SQLite, durable: bool) -> None:
        self._database = database
        self._durable = durable

    def __enter__(self) -> None:
        database = self._database
        if database._depth:
            self._execute("savepoint step")
        else:
            self._begin()
        database._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        database = self._database
        database._depth -= 1
        if database._depth:
            self._end_step(undo=kind is not None)
            return
        failed = kind is not None and issubclass(kind, StorageError)
        try:
            if kind is None:
                self._execute("commit")
        except StorageError:
            failed = True
            raise
        finally:
            # Some errors (a full disk) have rolled back already.
            if database._connection.in_transaction:
                self._execute("rollback")
            self._relax()
            if failed:
                database.write_back()

    def _begin(self) -> None:
        if self._durable:
            self._execute("pragma synchronous = full")
        try:
            self._execute("begin immediate")
        except BaseException:
            self._relax()
            raise

    def _end_step(self, *, undo: bool) -> None:
        if not self._database._connection.in_transaction:
            return
        if undo:
            self._execute("rollback to step")
        self._execute("release step")

    def _relax(self) -> None:
        if self._durable:
            self._execute("pragma synchronous = normal")

    def _execute(self, sql: str) -> None:
        try:
            self._database._cursor.execute(sql)
        except apsw.Error as error:
            raise self._database._translated(error) from error


def connections() -> set[str]:
    """The files of the connections that are open in this process."""
    return {connection.filename for connection in apsw.connections() if connection.filename}
