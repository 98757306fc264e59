"""What a reader has to say of a text: errors, which refuse it, and remarks, which do not."""

from __future__ import annotations

from dataclasses import dataclass

from orch.errors import OrchError


class HandoffError(OrchError):
    """A DELEGATE or HANDBACK that cannot be taken.

    ``kind`` is one word for programs, ``line`` and ``column`` count from 1 in the text as it was read, ``field`` is the
    key that it is about and ``found`` what stood there. ``fix`` says what to do. ``retry`` says that the file may still
    be in the middle of being written.
    """

    exit_code = 8

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        fix: str = "",
        field: str | None = None,
        line: int | None = None,
        column: int | None = None,
        found: str | None = None,
    ) -> None:
        place = "" if line is None else f"line {line}: " if column is None else f"line {line}, column {column}: "
        super().__init__(f"{place}{message}{f'; {fix}' if fix else ''}")
        self.kind = kind
        self.fix = fix
        self.field = field
        self.line = line
        self.column = column
        self.found = found
        self.retry = False


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that was put right or left out: a word for programs, a sentence, and where."""

    code: str
    text: str
    field: str | None = None
    line: int | None = None
