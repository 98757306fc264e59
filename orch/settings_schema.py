"""The shape of ``orch.toml``, checked by pydantic; loaded only where the whole file is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from orch.errors import UsageError
from orch.modes import RUN
from orch.notify import check_sink

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class _LimitsTable(_Table):
    task_cap: Count | None = None
    wall_clock_minutes: Positive | None = None
    max_pool: Count | None = None
    daily_fires: Annotated[int, Field(ge=0)] | None = None
    stale_hours: Positive | None = None
    not_now_delay: NotNegative | None = None
    grace_sec: NotNegative | None = None
    output_cap: Annotated[int, Field(ge=1024)] | None = None


class _OrchestratorTable(_Table):
    heartbeat_interval: Positive | None = None
    retry_max_attempts: Annotated[int, Field(ge=0)] | None = None
    retry_backoff_base_sec: NotNegative | None = None
    retry_backoff_multiplier: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    retry_backoff_max_sec: NotNegative | None = None
    retry_jitter: Annotated[float, Field(ge=0, le=1)] | None = None


class _ModeTable(_Table):
    function: Annotated[str, Field(pattern=r"^[^:]+:[^:]+$")] | None = None
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    folder: str | None = None
    timeout: Positive | None = None
    task_cap: Count | None = None
    wall_clock_minutes: Positive | None = None
    stale_hours: Positive | None = None
    max_seats: Annotated[int, Field(ge=0)] | None = None
    retry_failures: bool = False


class _NotifyTable(_Table):
    sinks: list[str] | None = None

    @field_validator("sinks")
    @classmethod
    def _are_sinks(cls, sinks: list[str] | None) -> list[str] | None:
        try:
            return None if sinks is None else [check_sink(sink) for sink in sinks]
        except UsageError as error:
            raise ValueError(str(error)) from None


class _QueueTable(_Table):
    database: str | None = None
    durability: Literal["adds", "full", "normal"] = "adds"
    start_method: Literal["forkserver", "spawn", "fork"] = "forkserver"


class _WatchdogTable(_Table):
    expected_interval_hours: Positive = 4.0
    grace_minutes: NotNegative = 30.0


class _File(_Table):
    zone: str | None = None
    limits: _LimitsTable = _LimitsTable()
    orchestrator: _OrchestratorTable = _OrchestratorTable()
    queue: _QueueTable = _QueueTable()
    notify: _NotifyTable = _NotifyTable()
    watchdog: _WatchdogTable = _WatchdogTable()
    modes: dict[str, _ModeTable] = {}

    @model_validator(mode="after")
    def _modes_can_work(self) -> _File:
        for name, mode in self.modes.items():
            if name == RUN and (mode.function or mode.command):
                raise ValueError(f"modes.{RUN}: it is built in and takes its words from the task; name yours otherwise")
            if name != RUN and (mode.function is None) == (mode.command is None):
                raise ValueError(f"modes.{name}: give it either 'function' or 'command'")
        return self


@dataclass(frozen=True, slots=True)
class Checked:
    """The file's content after the check, as plain values; limits that it does not name are not there."""

    zone: str | None
    limits: dict[str, Any]
    orchestrator: dict[str, Any]
    durability: str
    start_method: str
    sinks: list[str] | None
    watchdog: dict[str, float]
    modes: dict[str, dict[str, Any]]


def check(raw: Mapping[str, Any], where: str) -> Checked:
    """Check a file's content; `UsageError` lists everything that is wrong, by its key."""
    try:
        file = _File.model_validate(raw)
    except ValidationError as error:
        problems = [_problem(problem) for problem in error.errors()]
        raise UsageError(f"{where}: " + "; ".join(problems)) from None
    return Checked(
        zone=file.zone,
        limits=file.limits.model_dump(exclude_none=True),
        orchestrator=file.orchestrator.model_dump(exclude_none=True),
        durability=file.queue.durability,
        start_method=file.queue.start_method,
        sinks=file.notify.sinks,
        watchdog=file.watchdog.model_dump(),
        modes={name: table.model_dump() for name, table in file.modes.items()},
    )


def check_limit(name: str, value: Any, where: str) -> dict[str, Any]:
    """One limit that comes from somewhere else than the file, by its name; `UsageError` says where it comes from."""
    table = "limits" if name in _LimitsTable.model_fields else "orchestrator"
    checked = check({table: {name: value}}, where)
    return checked.limits if table == "limits" else checked.orchestrator


def _problem(problem: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    text = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        text = "there is no such setting"
    return f"{key}: {text}" if key else text
