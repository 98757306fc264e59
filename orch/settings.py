"""How a project is set up: the whole of ``orch.toml``, checked, with the environment's limits and the flags' over it.

Flags beat the environment, the environment beats the file, the file beats the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from orch import clock
from orch.errors import UsageError
from orch.limits import Limits, Pace, Patience, Retries
from orch.modes import Agent, Mode
from orch.names import RUN, check_name
from orch.place import Place, machine_zone
from orch.project import Decider, Guard, Project, Schedule

if TYPE_CHECKING:
    from orch.checked import Checked

# Agents work long: what bounds one try (seconds) and its worker (minutes) where nobody says anything else.
_AGENT_SECONDS = 3600.0
_AGENT_MINUTES = 90.0


def load(place: Place, flags: Mapping[str, Any] | None = None, *, remember: bool = False) -> Project:
    """The whole project, checked: `UsageError` names the file, the key, and what is wrong.

    `flags` are limits by name that beat the environment and the file; None stands for "not given". With `remember` the
    check is kept in the state folder, and spared by the next command.
    """
    checked = _checked(place, remember=remember)
    limits = _limits(checked)
    given = _overrides(flags or {})
    limits = replace(limits, **given)
    zone = checked.zone or machine_zone()
    clock.zone(zone)
    modes = {name: Mode(name=check_name(name), **_hashable(table)) for name, table in checked.modes.items()}
    said = "wall_clock_minutes" in {**checked.limits, **given}
    modes |= {
        name: _role(
            name,
            table,
            limits,
            checked.orchestrator.get("task_deadline_sec", _AGENT_SECONDS),
            None if said else _AGENT_MINUTES,
        )
        for name, table in checked.agents.items()
    }
    modes.setdefault(RUN, Mode(RUN))
    sinks = checked.sinks
    return Project(
        database=place.database,
        folder=place.folder,
        state=place.state,
        modes=modes,
        limits=limits,
        zone=zone,
        sinks=[f"file:{os.path.join(place.state, 'notes.md')}"] if sinks is None else sinks,
        durability=checked.durability,
        start_method=checked.start_method,
        spans=checked.spans,
        python_path=_folders(place, checked.python_path),
        decider=None if checked.decide is None else Decider(**_hashable(checked.decide)),
        schedule=Schedule(**checked.schedule),
        guard=Guard(**_hashable(checked.guard)),
        queue_root=_root(place, checked),
    )


def _folders(place: Place, named: Sequence[str]) -> tuple[str, ...]:
    """The folders that functions are imported from besides the project's own, as absolute paths."""
    found = tuple(os.path.join(place.folder, os.path.expanduser(name)) for name in named)
    for path in found:
        if not os.path.isdir(path):
            raise UsageError(f"{place.config}: python_path: there is no folder {path}")
    return found


def _root(place: Place, checked: Checked) -> str | None:
    """Where DELEGATEs lie as files: as the file says, or beside the queue of a project that has agents."""
    if checked.root is not None:
        return os.path.join(place.folder, os.path.expanduser(checked.root))
    return os.path.join(place.state, "queue") if checked.agents or place.session else None


def _checked(place: Place, *, remember: bool) -> Checked:
    from orch import checked as memory

    known = memory.recall(place.state, place.raw)
    if known is not None:
        return known
    from orch.settings_schema import check  # here, as it loads pydantic

    checked = check(place.raw, place.config or "the defaults")
    if remember:
        memory.remember(place.state, place.raw, checked)
    return checked


def _role(name: str, table: Mapping[str, Any], limits: Limits, seconds: float, minutes: float | None) -> Mode:
    """The mode that the tasks of an agent's role are; what its table does not say is as for all of them."""
    own = _hashable(table)
    agent = Agent(
        model=own.pop("model"),
        effort=own.pop("effort"),
        flags=own.pop("flags"),
        keep=own.pop("keep_env"),
        drop=own.pop("drop_env"),
        gate=own.pop("gate"),
        workdir=own.pop("workdir"),
    )
    said = {field: own.pop(field) for field in list(own) if field.startswith("retry_") or field in _names(Patience)}
    patience = replace(limits.patience, **_given(said, Patience))
    own["timeout"] = own["timeout"] or seconds
    own["wall_clock_minutes"] = own["wall_clock_minutes"] or minutes
    return Mode(
        name,
        agent=agent,
        retries=replace(limits.retries, **_given(said, Retries, "retry_")),
        patience=patience,
        stale_hours=patience.crash_threshold_sec / 3600,
        **own,
    )


def _names(record: type) -> set[str]:
    return {field.name for field in fields(record)}


def _given(said: Mapping[str, Any], record: type, prefix: str = "") -> dict[str, Any]:
    """What was said of a record's fields, by the fields' own names."""
    found = {name: said.get(f"{prefix}{name}") for name in _names(record)}
    return {name: value for name, value in found.items() if value is not None}


def _hashable(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose lists are tuples, as the records have them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


def _limits(checked: Checked) -> Limits:
    named = checked.orchestrator
    return Limits(
        **checked.limits,
        **_given(named, Limits),
        retries=Retries(**_given(named, Retries, "retry_")),
        patience=Patience(**_given(named, Patience)),
        pace=Pace(**_given(named, Pace)),
    )


def _overrides(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Limits from the environment (``ORCH_MAX_POOL=4``) and, before them, from flags; bounded as in the file."""
    said: list[tuple[str, Any, str]] = []
    for field in fields(Limits):
        text = os.environ.get(f"ORCH_{field.name.upper()}")
        if text is not None and field.name not in ("retries", "patience", "pace"):
            said.append((field.name, text, f"ORCH_{field.name.upper()}={text!r}"))
        if flags.get(field.name) is not None:
            said.append((field.name, flags[field.name], f"--{field.name.replace('_', '-')}"))
    if not said:
        return {}
    from orch.settings_schema import check_limit  # here, as it loads pydantic

    found: dict[str, Any] = {}
    for name, value, where in said:
        found |= check_limit(name, value, where)
    return found
