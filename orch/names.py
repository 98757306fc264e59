"""The names that modes may have, and the one that is taken."""

from __future__ import annotations

from orch.errors import UsageError

# Present in every project: the payload's own words are the command.
RUN = "run"


def check_name(name: str) -> str:
    """The name itself when it can stand for a mode; `UsageError` otherwise."""
    if not name or len(name) > 200 or not name.isprintable() or name != name.strip() or name.startswith("-"):
        raise UsageError(
            f"{name!r} cannot be the name of a mode: use 1 to 200 printable characters, not beginning with '-'"
        )
    if name == "*":
        raise UsageError("'*' means every mode and cannot be the name of one")
    return name
