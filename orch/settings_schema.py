"""The shape of ``orch.toml``, checked by pydantic; loaded only where the whole file is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from orch.checked import Checked
from orch.errors import UsageError
from orch.limits import LARGEST
from orch.modes import AGENT_PLACES, FLAGS, JUDGE
from orch.names import RUN
from orch.notify import check_sink
from orch.schedule import check_expression
from orch.work.command import places

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Function = Annotated[str, Field(pattern=r"^[^:]+:[^:]+$")]
Words = Annotated[tuple[str, ...], Field(min_length=1)]


def _by(check: Callable[[str], str]) -> AfterValidator:
    """The rule of another module, as one of pydantic's."""

    def checked(text: str) -> str:
        try:
            return check(text)
        except UsageError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(checked)


Sinks = tuple[Annotated[str, _by(check_sink)], ...]
Expression = Annotated[str, _by(check_expression)]


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
    daily_cost_usd: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    daily_tokens: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    fire_cost_usd: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    fire_tokens: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    unknown_cost: Literal["ignore", "stop"] | None = None


class _OrchestratorTable(_Table):
    heartbeat_interval: Positive | None = None
    retry_max_attempts: Annotated[int, Field(ge=0)] | None = None
    retry_backoff_base_sec: NotNegative | None = None
    retry_backoff_multiplier: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    retry_backoff_max_sec: NotNegative | None = None
    gate_min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    gate_min_quality: Annotated[float, Field(ge=0, le=1)] | None = None
    retry_jitter: Annotated[float, Field(ge=0, le=1)] | None = None
    task_deadline_sec: Positive | None = None
    heartbeat_timeout_sec: Positive | None = None
    stale_threshold_sec: Positive | None = None
    crash_threshold_sec: Positive | None = None
    kill_stalled: bool | None = None
    poll_interval_fast: Positive | None = None
    poll_interval_idle: Positive | None = None
    idle_threshold_polls: Annotated[int, Field(ge=0)] | None = None
    idle_sleep_sec: Positive | None = None
    skill_improvement_threshold: Count | None = None


class _ModeTable(_Table):
    function: Function | None = None
    command: Words | None = None
    folder: str | None = None
    timeout: Positive | None = None
    task_cap: Count | None = None
    wall_clock_minutes: Positive | None = None
    stale_hours: Positive | None = None
    max_seats: Annotated[int, Field(ge=0)] | None = None
    retry_failures: bool = False


class _AgentTable(_Table):
    command: Words
    model: str | None = None
    effort: Literal["low", "medium", "high", "max"] | None = None
    flags: tuple[str, ...] = ()
    keep_env: tuple[str, ...] | None = None
    drop_env: tuple[str, ...] = ()
    gate: bool = False
    workdir: Literal["project", "fresh", "worktree"] = "project"
    folder: str | None = None
    timeout: Positive | None = None
    task_cap: Count | None = None
    wall_clock_minutes: Positive | None = None
    max_seats: Annotated[int, Field(ge=0)] | None = None
    retry_max_attempts: Annotated[int, Field(ge=0)] | None = None
    retry_backoff_multiplier: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    heartbeat_timeout_sec: Positive | None = None
    stale_threshold_sec: Positive | None = None
    crash_threshold_sec: Positive | None = None
    kill_stalled: bool | None = None


class _NotifyTable(_Table):
    sinks: Sinks | None = None


class _QueueTable(_Table):
    database: str | None = None
    root: str | None = None
    session: str | None = None
    harness: str | None = None
    durability: Literal["adds", "full", "normal"] = "adds"
    start_method: Literal["forkserver", "spawn", "fork"] = "forkserver"
    spans: bool = False


class _WatchdogTable(_Table):
    expected_interval_hours: Positive | None = None
    grace_minutes: NotNegative | None = None
    remind_hours: Positive | None = None
    alerts: Sinks | None = None


class _DecideTable(_Table):
    function: Function | None = None
    command: Words | None = None
    timeout: Positive | None = None


class _ScheduleTable(_Table):
    fire: Expression | None = None
    sweep: Expression | None = None
    watchdog: Expression | None = None


class _File(_Table):
    zone: str | None = None
    python_path: tuple[str, ...] = ()
    limits: _LimitsTable = _LimitsTable()
    orchestrator: _OrchestratorTable = _OrchestratorTable()
    queue: _QueueTable = _QueueTable()
    notify: _NotifyTable = _NotifyTable()
    watchdog: _WatchdogTable = _WatchdogTable()
    decide: _DecideTable | None = None
    schedule: _ScheduleTable = _ScheduleTable()
    modes: dict[str, _ModeTable] = {}
    agents: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], _AgentTable] = {}

    @model_validator(mode="after")
    def _modes_can_work(self) -> _File:
        for name, mode in self.modes.items():
            if name == RUN and (mode.function or mode.command):
                raise ValueError(f"modes.{RUN}: it is built in and takes its words from the task; name yours otherwise")
            if name != RUN and (mode.function is None) == (mode.command is None):
                raise ValueError(f"modes.{name}: give it either 'function' or 'command'")
            if name in self.agents:
                raise ValueError(f"modes.{name}: there is an agent of that name; name the mode otherwise")
        return self

    @model_validator(mode="after")
    def _agents_can_work(self) -> _File:
        for name, agent in self.agents.items():
            if name == RUN:
                raise ValueError(f"agents.{RUN}: a mode of that name is built in; name the role otherwise")
            for place in (place for word in agent.command if word != FLAGS for place in places(word)):
                if place not in AGENT_PLACES:
                    there_are = ", ".join(f"{{{one}}}" for one in AGENT_PLACES)
                    raise ValueError(
                        f"agents.{name}.command: there is no {{{place}}} within a word: use {there_are}, or {FLAGS} as"
                        " a word of its own"
                    )
        return self

    @model_validator(mode="after")
    def _somebody_judges(self) -> _File:
        for name, agent in self.agents.items():
            if agent.gate and name == JUDGE:
                raise ValueError(f"agents.{name}: a verdict is not judged in its turn; remove 'gate'")
            if agent.gate and JUDGE not in self.agents:
                raise ValueError(f"agents.{name}: its gate needs an agent {JUDGE}: add [agents.{JUDGE}]")
            if agent.workdir == "fresh" and agent.folder is not None:
                raise ValueError(f"agents.{name}: a fresh workdir lies in no folder of the project; remove 'folder'")
        return self

    @model_validator(mode="after")
    def _somebody_decides(self) -> _File:
        if self.decide is not None and (self.decide.function is None) == (self.decide.command is None):
            raise ValueError("decide: give it either 'function' or 'command', or leave the table out")
        return self


def check(raw: Mapping[str, Any], where: str) -> Checked:
    """Check a file's content; `UsageError` lists everything that is wrong, by its key."""
    try:
        file = _File.model_validate(raw)
    except ValidationError as error:
        problems = [_problem(problem) for problem in error.errors()]
        raise UsageError(f"{where}: " + "; ".join(problems)) from None
    return Checked(
        zone=file.zone,
        python_path=list(file.python_path),
        limits=file.limits.model_dump(exclude_none=True),
        orchestrator=file.orchestrator.model_dump(exclude_none=True),
        durability=file.queue.durability,
        root=file.queue.root,
        start_method=file.queue.start_method,
        spans=file.queue.spans,
        sinks=file.notify.sinks,
        guard=file.watchdog.model_dump(exclude_none=True),
        decide=None if file.decide is None else file.decide.model_dump(exclude_none=True),
        schedule=file.schedule.model_dump(exclude_none=True),
        modes={name: table.model_dump() for name, table in file.modes.items()},
        agents={name: table.model_dump() for name, table in file.agents.items()},
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
    elif problem["type"] == "tuple_type":
        text = 'write a list, as in ["one", "two"]'
    return f"{key}: {text}" if key else text
