"""Where a project lies: the reader of ``orch.toml`` and of the environment, as little of it as an ``add`` needs.

Flags beat the environment, the environment beats the file. What is set there is checked by `orch.settings.load`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from orch import clock
from orch.errors import NotFound, UsageError
from orch.names import RUN

CONFIG_NAME = "orch.toml"
STATE_NAME = ".orch"
DATABASE_NAME = "orch.db"
DURABILITIES = ("adds", "full", "normal")
# Where a session of an agents' program has its queue.
_SESSIONS = os.path.join("~", ".agentic-engineers", "artifacts")
_SESSION_NAMES = ("ORCH_SESSION", "AGENTIC_SESSION_ID", "CLAUDE_SESSION_ID", "COPILOT_SESSION_ID")
_HARNESS_NAMES = ("ORCH_HARNESS", "AGENTIC_HARNESS")
_HARNESS_MARKS = (("CLAUDE_SESSION_ID", "claude"), ("COPILOT_SESSION_ID", "copilot"), ("OPENAI_API_KEY", "gpt"))
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class Place(NamedTuple):
    """Where things lie, as absolute paths: the settings file (None without one), the project, the database, the state.

    ``raw`` is the file's content, not checked yet; ``session`` says that the queue is that of a session.
    """

    config: str | None
    folder: str
    database: str
    state: str
    raw: Mapping[str, Any]
    session: bool = False

    @property
    def durability(self) -> str:
        found = str(self._table("queue").get("durability", DURABILITIES[0]))
        if found not in DURABILITIES:
            raise UsageError(f"{self.config}: queue.durability: {found!r} is not one of {', '.join(DURABILITIES)}")
        return found

    @property
    def zone(self) -> str:
        found = self.raw.get("zone")
        return found if isinstance(found, str) else machine_zone()

    def names_mode(self, mode: str) -> bool:
        """Whether the file has a table for the mode."""
        return mode == RUN or mode in self._table("modes") or mode in self._table("agents")

    @property
    def agents(self) -> list[str]:
        """The roles that the file has a table for."""
        return list(self._table("agents"))

    def _table(self, name: str) -> Mapping[str, Any]:
        found = self.raw.get(name, {})
        return found if isinstance(found, dict) else {}


def locate(database: str | None = None, config: str | None = None) -> Place:
    """Find the project from the working folder upward, or as the flags or the environment say.

    `NotFound` when there is neither a settings file nor a database to go by.
    """
    if database is None and config is None:
        # A named settings file means its own queue, whatever queue the caller is a task of.
        database = os.environ.get("ORCH_DB") or None
    config = config or os.environ.get("ORCH_CONFIG") or None
    if config is None:
        config = _beside(database) or _search(os.getcwd())
    elif not os.path.isfile(config):
        raise NotFound(f"no settings file {config}: 'orch init' makes one")
    if config is None and database is None:
        raise NotFound(f"no {CONFIG_NAME} here or in a folder above: run 'orch init' first, or name a queue with --db")
    raw = {} if config is None else read_toml(config)
    if database is not None and "://" in database:
        raise UsageError(f"{database}: only a path to an SQLite file is supported so far")
    return _place(None if config is None else os.path.realpath(config), database, raw)


def _place(config: str | None, database: str | None, raw: Mapping[str, Any]) -> Place:
    folder = os.path.dirname(config) if config else None
    queue = raw.get("queue", {})
    queue = queue if isinstance(queue, dict) else {}
    session = _session(queue) if database is None else None
    if session is not None:
        database = os.path.join(session, DATABASE_NAME)
    if database is None:
        assert folder is not None
        named = queue.get("database")
        database = os.path.join(folder, named if isinstance(named, str) else os.path.join(STATE_NAME, DATABASE_NAME))
    database = os.path.realpath(database)
    beside, state = os.path.dirname(database), state_of(database)
    if folder is None:
        folder = os.path.dirname(beside) if os.path.basename(beside) == STATE_NAME else beside
    return Place(config, folder, database, state, raw, session is not None)


def state_of(database: str) -> str:
    """Where what belongs to a queue lies beside it: in its own folder, if it has one, else in one that is named so."""
    return os.path.dirname(database) if os.path.basename(database) == DATABASE_NAME else f"{database}.files"


def _session(queue: Mapping[str, Any]) -> str | None:
    """The folder of the session and the harness that the environment or the file names; None when they name none."""
    names = [os.environ.get(f"ORCH_{name.upper()}") or queue.get(name) for name in ("session", "harness")]
    return session_folder(*names) if any(names) else None


def session_names() -> tuple[str, str]:
    """The session and the harness that an agents' program says that it is; the same ones with every start otherwise."""
    environ = os.environ
    session = next((found for name in _SESSION_NAMES if (found := environ.get(name))), "default")
    harness = next((found for name in _HARNESS_NAMES if (found := environ.get(name))), None)
    return session, harness or next((name for mark, name in _HARNESS_MARKS if environ.get(mark)), "local")


def session_folder(session: object, harness: object) -> str:
    """Where a session of a harness has its queue; `UsageError` when either cannot be the name of a folder."""
    names = (session, harness)
    for name, said in zip(("session", "harness"), names, strict=True):
        if not isinstance(said, str) or not _PART.fullmatch(said):
            raise UsageError(
                f"{name} {said!r} cannot be the name of a folder: give both, a session and a harness, as letters,"
                " digits, '.', '_' and '-' (ORCH_SESSION and ORCH_HARNESS, or [queue] in orch.toml)"
            )
    return os.path.join(os.path.expanduser(_SESSIONS), *map(str, names))


def read_toml(path: str) -> dict[str, Any]:
    """The content of a TOML file; `UsageError` names the file and the line."""
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _beside(database: str | None) -> str | None:
    """The settings of the project that a named queue belongs to, as its state folder lies beside them."""
    state = os.path.dirname(os.path.realpath(database)) if database else ""
    config = os.path.join(os.path.dirname(state), CONFIG_NAME)
    return config if os.path.basename(state) == STATE_NAME and os.path.isfile(config) else None


def _search(folder: str) -> str | None:
    while True:
        path = os.path.join(folder, CONFIG_NAME)
        if os.path.isfile(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def machine_zone() -> str:
    """The IANA name of this machine's time zone, as far as it can be told; else UTC."""
    target = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    for name in (os.environ.get("TZ", "").removeprefix(":"), target.removeprefix("posix/").removeprefix("right/")):
        if "/" in name and not name.startswith("Etc/"):
            try:
                clock.zone(name)
            except UsageError:
                continue
            return name
    return "UTC"
