"""Texts from outside, made fit to be stored and fit to be shown."""

from __future__ import annotations

import unicodedata


def storable(text: str) -> str:
    """The same text with every half of a surrogate pair escaped, which no database and no file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def shown(text: object) -> str:
    """Any text as one line that can be shown: what would steer a terminal or break the line is escaped, not obeyed."""
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else repr(c)[1:-1] for c in str(text))


def shown_lines(text: str) -> str:
    """The same for a text of several lines, which it keeps."""
    return "\n".join(shown(line) for line in text.split("\n"))


def figure(value: float) -> str:
    """Any number in full, a whole one without a point, however large it is."""
    return f"{value:,}" if isinstance(value, int) or not value.is_integer() else f"{int(value):,}"


def when(stamp: str | None) -> str:
    """A stored moment as a person reads it, to the second; nothing for None."""
    return f"{stamp[:10]} {stamp[11:19]}Z" if stamp else ""


def count(number: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
