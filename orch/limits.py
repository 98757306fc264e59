"""The caps that are built before any fan-out, with the defaults of the pattern that they come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how soon a task that crashed, stalled or timed out is started again.

    ``max_attempts`` counts starts, whichever way they ended: 0 and 1 both mean one start. Times are in seconds.
    """

    max_attempts: int = 3
    backoff_base_sec: float = 30.0
    backoff_multiplier: float = 1.5
    backoff_max_sec: float = 3600.0
    jitter: float = 0.2


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an agent may be silent, in seconds; the names are the protocol's.

    After ``heartbeat_timeout_sec`` without a word it is told of as stalled, and ended if ``kill_stalled`` says so;
    after ``stale_threshold_sec`` it is told of as stale. An owner that cannot be seen alive has lost its claim after
    ``crash_threshold_sec``, but never before the deadline of its task.
    """

    heartbeat_timeout_sec: float = 120.0
    stale_threshold_sec: float = 300.0
    crash_threshold_sec: float = 600.0
    kill_stalled: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a poll looks when nothing tells it to, in seconds; the names are the protocol's.

    ``poll_interval_fast`` holds while anything is at work, ``poll_interval_idle`` between the first
    ``idle_threshold_polls`` looks that found nothing, ``idle_sleep_sec`` after that.
    """

    poll_interval_fast: float = 30.0
    poll_interval_idle: float = 180.0
    idle_threshold_polls: int = 3
    idle_sleep_sec: float = 600.0


# No cap is larger, and nothing that is counted against one: sums of such numbers stay within 64 bits.
LARGEST = 10**12

# Characters of JSON that a task's result may have; more belongs into a file.
LARGEST_RESULT = 16 * 1024 * 1024

# The caps on what attempts say that they spent.
BUDGETS = ("daily_cost_usd", "daily_tokens", "fire_cost_usd", "fire_tokens")

# The caps that may end a worker while there is work left.
WORKER_CAPS = ("task_cap", "wall_clock", *BUDGETS, "unknown_cost")


@dataclass(frozen=True, slots=True)
class Limits:
    """The caps of a fire. None depends on a task's good will; a cap that is hit is recorded by its name.

    ``task_cap`` and ``wall_clock_minutes`` bound one worker, ``max_pool`` the workers alive in one fire,
    ``daily_fires`` the fires of a calendar day, ``stale_hours`` how long a claim without a sign of life is left to an
    owner that cannot be judged otherwise. ``not_now_delay`` is the wait in seconds after a task said "not now",
    ``grace_sec`` the time between asking a process to end and killing it.

    The budgets (None: none) end new claims once what attempts have reported reaches them: ``daily_cost_usd`` and
    ``daily_tokens`` in a calendar day, ``fire_cost_usd`` and ``fire_tokens`` in one fire. With ``unknown_cost =
    "stop"`` an attempt that does not say what it cost counts as a budget that is spent, with ``"ignore"`` as nothing.

    What an agent says of itself has to exceed ``gate_min_confidence`` and ``gate_min_quality`` (0 to 1) where it says
    that and its role has a gate; so many remarks on one skill as ``skill_improvement_threshold`` make one improvement.
    """

    task_cap: int = 25
    wall_clock_minutes: float = 15.0
    max_pool: int = 12
    daily_fires: int = 6
    stale_hours: float = 6.0
    not_now_delay: float = 60.0
    grace_sec: float = 5.0
    heartbeat_interval: float = 30.0
    output_cap: int = 1_048_576
    daily_cost_usd: float | None = None
    daily_tokens: int | None = None
    fire_cost_usd: float | None = None
    fire_tokens: int | None = None
    unknown_cost: str = "ignore"
    gate_min_confidence: float = 0.7
    gate_min_quality: float = 0.75
    skill_improvement_threshold: int = 3
    retries: Retries = Retries()
    patience: Patience = Patience()
    pace: Pace = Pace()

    @property
    def budgeted(self) -> bool:
        """Whether any budget is set."""
        return any(getattr(self, name) is not None for name in BUDGETS)
