"""The orchestrator's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from orch.limits import Limits


class PollingConfig(BaseModel):
    """How often to look, how long to wait, how often to try: seconds, but for counts; the defaults are the protocol's.

    The attributes may be set at any time. ``deep_sleep_sec`` can be named ``idle_sleep_sec`` too. `ValueError` says
    which value is none.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)

    poll_interval_fast: int | float = Field(30, ge=0)
    poll_interval_idle: int | float = Field(180, ge=0)
    heartbeat_interval: int | float = Field(30, ge=0)
    heartbeat_timeout_sec: int | float = Field(120, ge=0)
    task_deadline_sec: int | float = Field(600, ge=0)
    stale_threshold_sec: int | float = Field(300, ge=0)
    crash_threshold_sec: int | float = Field(600, ge=0)
    idle_threshold_polls: int = Field(3, ge=0)
    deep_sleep_sec: int | float = Field(600, ge=0, validation_alias=AliasChoices("deep_sleep_sec", "idle_sleep_sec"))
    retry_max_attempts: int = Field(3, ge=0)
    retry_backoff_multiplier: int | float = Field(1.5, ge=1)
    skill_improvement_threshold: int = Field(3, ge=1)

    @property
    def idle_sleep_sec(self) -> float:
        """The other name of ``deep_sleep_sec``."""
        return self.deep_sleep_sec

    @classmethod
    def of(cls, limits: Limits) -> PollingConfig:
        """What a project's settings say."""
        pace, patience = limits.pace, limits.patience
        return cls(
            poll_interval_fast=pace.poll_interval_fast,
            poll_interval_idle=pace.poll_interval_idle,
            idle_threshold_polls=pace.idle_threshold_polls,
            deep_sleep_sec=pace.idle_sleep_sec,
            heartbeat_interval=limits.heartbeat_interval,
            heartbeat_timeout_sec=patience.heartbeat_timeout_sec,
            stale_threshold_sec=patience.stale_threshold_sec,
            crash_threshold_sec=patience.crash_threshold_sec,
            retry_max_attempts=limits.retries.max_attempts,
            retry_backoff_multiplier=limits.retries.backoff_multiplier,
            skill_improvement_threshold=limits.skill_improvement_threshold,
        )

    def to_dict(self) -> dict[str, Any]:
        """The parameters by their names."""
        return self.model_dump()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PollingConfig:
        """The parameters from their names; those that are not named have their defaults."""
        return cls.model_validate(dict(values))
