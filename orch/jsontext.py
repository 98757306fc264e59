"""JSON as it is stored: strict when read, exact when kept.

Text from outside is checked and then kept as it was written, so big integers and long decimals survive untouched.
"""

from __future__ import annotations

import json
from typing import Any

from orch.errors import UsageError

# Made once: a new encoder for every call costs more than the encoding.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} stands twice")
        found[name] = value
    return found


def parse(text: str, what: str = "payload") -> Any:
    """The value of a JSON text; `UsageError` names what is wrong (NaN, infinities and duplicate keys included)."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise UsageError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{what} is not valid JSON: {error}") from None


class Written(str):
    """A number as it is written, for a place where its text counts and not its value."""

    __slots__ = ()


def parse_as_written(text: str) -> Any:
    """The value of a checked JSON text, its decimal numbers as `Written` text."""
    return json.loads(text, parse_float=Written)


def checked(text: str, what: str = "payload") -> str:
    """The same text when it is strict JSON that the database can hold; `UsageError` otherwise."""
    value = parse(text, what)
    text = text.strip(" \t\r\n")
    return text if _storable(text) else json.dumps(value, allow_nan=False)


def dump(value: Any, what: str = "payload") -> str:
    """The JSON text of a Python value; `UsageError` when JSON cannot hold it (NaN, sets, dates, bytes, cycles)."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not JSON: {error}") from None
    return text if _storable(text) else json.dumps(value, allow_nan=False, separators=(",", ":"))


def same(one: str, other: str) -> bool:
    """Whether two stored texts hold the same value, whatever their spacing and order of keys."""
    return one == other or _canonical(one) == _canonical(other)


def _canonical(text: str) -> str:
    from decimal import Decimal  # here, as only a repeated key needs it

    # A decimal by its exact value: two that differ only beyond what a float holds are not the same.
    value = json.loads(text, parse_float=lambda number: f"\0{Decimal(number).normalize()}")
    return json.dumps(value, sort_keys=True)


def _storable(text: str) -> bool:
    # A lone surrogate is legal in JSON as an escape, but no database text can hold it bare.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
