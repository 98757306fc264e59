"""Finding the blocks in what an agent printed: fenced, bare between prose, or all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from orch.handoff.fields import Piece

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})(.*)$")
_LANGUAGE = re.compile(r"[\w+.-]+")
_TELLING = re.compile(r"(?im)^[ \t{,]*[\"']?(?:handoff_type|handback_id|type|task_id|status)[\"']?\s*:")
_MARKER = re.compile(r"(?i)^(?:handoff_type|handback_id)\s*:(?:\s|$)")
_FIELD = re.compile(r"^[A-Za-z_][\w-]*\s*:(?:\s|$)")
_SNAKE = re.compile(r"^[a-z_][a-z0-9_]*\s*:(?:\s|$)")
# So many places in prose where a JSON object may begin are looked at, from the end.
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the text that may be an answer: ``form`` is fenced, bare or json.

    ``ended`` says that something stands behind it, so that it cannot have been cut off: a fence, prose, or the end of
    a line where it ran to the end of the text.
    """

    form: str
    piece: Piece
    closed: bool
    ended: bool


def find(text: str) -> list[Block]:
    """All blocks, in their order. Lines inside one are not looked at again, and quoted ones (``>``) never."""
    found: list[Block] = []
    outside: list[tuple[int, str]] = []
    lines = text.split("\n")
    ends_in_line = bool(lines) and lines[-1] != ""
    inside: list[str] | None = None
    indent = begins = 0

    def close(closed: bool, at_end: bool = False) -> None:
        assert inside is not None
        body = "\n".join(line[indent:] if not line[:indent].strip() else line.lstrip() for line in inside)
        if _TELLING.search(body):
            found.append(Block("fenced", Piece(body, begins), closed, not (at_end and ends_in_line)))

    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if inside is None:
            if fence:
                found += _between(outside, at_end=False, cut=False)
                outside, inside, indent, begins = [], [], len(fence[1]), number + 1
            else:
                outside.append((number, line))
        elif fence and len(fence[1]) <= indent:
            close(True)
            # A word behind it opens the next one; words are what the agent had to say.
            if _LANGUAGE.fullmatch(fence[3].strip()):
                inside, indent, begins = [], len(fence[1]), number + 1
            else:
                inside = None
                if fence[3].strip():
                    outside.append((number, fence[3]))
        else:
            inside.append(line)
    if inside is not None:
        close(False, at_end=True)
    found += _between(outside, at_end=True, cut=ends_in_line)
    return found


def _between(lines: list[tuple[int, str]], *, at_end: bool, cut: bool) -> Iterator[Block]:
    """Bare blocks, or JSON objects, in the prose between fences."""
    position, free = 0, 0
    while position < len(lines):
        if not _MARKER.match(lines[position][1]):
            position += 1
            continue
        first = position
        while first > free and _FIELD.match(lines[first - 1][1]):
            first -= 1
        last = _end_of_bare(lines, position + 1)
        body = [line for _, line in lines[first:last]]
        is_last = at_end and last == len(lines)
        yield Block("bare", Piece("\n".join(body), lines[first][0]), not is_last, not (is_last and cut))
        position = free = last
    if free == 0:
        yield from _objects(lines)


def _end_of_bare(lines: list[tuple[int, str]], position: int) -> int:
    after_blank = False
    for at in range(position, len(lines)):
        line = lines[at][1]
        if not line.strip():
            after_blank = True
            continue
        if line.startswith((" ", "\t", "#")) or (line.startswith(("- ", "-\t")) and not after_blank):
            pass
        elif line == "-" or not (_SNAKE if after_blank else _FIELD).match(line):
            return at
        after_blank = False
    return len(lines)


def _objects(lines: list[tuple[int, str]]) -> Iterator[Block]:
    places = [at for at, (_, line) in enumerate(lines) if line.startswith("{")][-_TRIES:]
    end = -1
    for at in places:
        if at < end:
            continue
        text = "\n".join(line for _, line in lines[at:])
        try:
            _, length = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            continue
        body = text[:length]
        end = at + body.count("\n") + 1
        if _TELLING.search(body):
            yield Block("json", Piece(body, lines[at][0]), True, True)
