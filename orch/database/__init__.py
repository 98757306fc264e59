"""The seam to an engine: `run`, `script`, `transaction`, `close`, and nothing else.

The statements are the files of ``orch/sql``, named by their verb.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Protocol

Row = tuple[Any, ...]

# Seconds for which a lock of others is waited for.
BUSY_TIMEOUT = 30.0

# The name of a database that is in no file and ends with its connection.
MEMORY = ":memory:"

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "sql")


class Database(Protocol):
    """What the verbs need of an engine."""

    def run(self, name: str, rows: Iterable[Mapping[str, Any]] | None = None, /, **params: Any) -> list[Row]:
        """The rows of the statement of that name. With `rows` it runs once for each of them and returns nothing."""

    def script(self, name: str) -> None:
        """Run every statement of a file."""

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]:
        """A write transaction, taken at its beginning; inside another one a step of it that can be undone alone.

        A `durable` one is on the disk when it ends, whatever the engine does with the others.
        """

    def close(self) -> None:
        """End the connection."""


@cache
def statement(name: str) -> str:
    """The SQL of one file, without its first line, which says what it is for."""
    with open(os.path.join(_FOLDER, f"{name}.sql"), encoding="utf-8") as file:
        return file.read().partition("\n")[2]


@cache
def migrations() -> tuple[str, ...]:
    """The names of the schema's migrations, in order; their number is the schema's version."""
    names = sorted(os.listdir(os.path.join(_FOLDER, "migrations")))
    return tuple("migrations/" + name.removesuffix(".sql") for name in names if name.endswith(".sql"))
