"""What crosses the border between a fire and a decider of the project's own, as JSON: checked by pydantic.

The schemas are printed by ``orch plan --schema``. Loaded only where somebody else decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from orch import jsontext, plan
from orch.errors import OrchError, UsageError
from orch.limits import LARGEST

# Beyond any pool: whoever asks for more has not judged anything.
MOST_SEATS = 500


class Undecided(OrchError):
    """A decider gave no plan that can be followed."""


class Snapshot(RootModel[plan.Snapshot]):
    """The state of the queue, as a decider reads it."""


class Caps(BaseModel):
    """Caps of this fire alone, each at most what is configured."""

    model_config = ConfigDict(extra="forbid")

    max_pool: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    task_cap: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    wall_clock_minutes: Annotated[float, Field(gt=0, le=LARGEST)] | None = None
    fire_cost_usd: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    fire_tokens: Annotated[int, Field(ge=0, le=LARGEST)] | None = None


class Plan(BaseModel):
    """What a decider asks for.

    Seats are workers by mode, given out in ``order``; modes that it does not name follow as they stand in ``seats``.
    """

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    seats: dict[str, Annotated[int, Field(ge=0, le=MOST_SEATS)]]
    order: list[str] = []
    caps: Caps = Caps()
    reasoning: Annotated[str, Field(max_length=2000)] | None = None


def schemas() -> dict[str, Any]:
    """The JSON schemas of both: what a decider reads, and what it writes."""
    return {"snapshot": Snapshot.model_json_schema(mode="serialization"), "plan": Plan.model_json_schema()}


def as_json(snapshot: plan.Snapshot) -> str:
    """A snapshot as a decider reads it."""
    return Snapshot(snapshot).model_dump_json()


def read_snapshot(text: str) -> plan.Snapshot:
    """The snapshot of such a text."""
    return Snapshot.model_validate_json(text).root


def read_plan(text: str, snapshot: plan.Snapshot) -> plan.Wish:
    """What a decider asks for; `Undecided` says why it cannot be followed."""
    if not text.strip():
        raise Undecided("it printed no plan")
    try:
        found = jsontext.parse(text, "its answer")
    except UsageError as error:
        raise Undecided(str(error)) from None
    return check_plan(found, snapshot)


def check_plan(found: Any, snapshot: plan.Snapshot) -> plan.Wish:
    """The same for an answer that is read already."""
    try:
        asked = Plan.model_validate(dict(found) if isinstance(found, Mapping) else found)
    except ValidationError as error:
        raise Undecided("; ".join(_problem(problem) for problem in error.errors()[:3])) from None
    known = {demand.mode for demand in snapshot.modes if demand.known}
    for mode in (*asked.seats, *asked.order):
        if mode not in known:
            raise Undecided(f"it names the mode {mode!r}, which orch.toml does not")
    ordered = [mode for mode in dict.fromkeys([*asked.order, *asked.seats]) if mode in asked.seats]
    return plan.Wish(
        seats={mode: asked.seats[mode] for mode in ordered if asked.seats[mode]},
        caps=plan.Caps(**asked.caps.model_dump()),
        reasoning=asked.reasoning,
    )


def _problem(problem: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    said = json.dumps(problem["input"], default=str)[:80]
    return f"{key or 'the plan'}: {problem['msg'].lower()}, not {said}"
