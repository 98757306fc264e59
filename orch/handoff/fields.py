"""One mapping of a YAML or JSON text: every scalar as the text that it was written as, with the line of every key.

PyYAML's parser does the parsing. On top of its events: no tags, bounded depth and size, no key that silently takes the
place of another one, and, where one field is no YAML, the others all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import yaml

from orch.handoff.remarks import HandoffError, Remark
from orch.legible import storable

# A text, or a list or a mapping of such; None where nothing was written.
Value = Any

_DEPTH = 40
_NODES = 20_000
# So many fields are read one by one; nobody writes more.
_CHUNKS = 500
_PLAIN_NONE = ("", "~", "null", "Null", "NULL")
# What a program may write for texts, lists and mappings; any other tag asks for an object to be made.
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "seq", "map")}
_KEY = re.compile(r"""^(?:"([\w .-]+)"|'([\w .-]+)'|([A-Za-z_][\w .-]*?)):(?=\s|$)""")
_MARKER = re.compile(r"^(?:---|\.\.\.)(?=\s|$)")
_ITEM = re.compile(r"^( *)-(?:\s+|$)")
_CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
_QUOTES = {"“": "”", "‘": "’", "„": "“", "«": "»"}
_FIGURE = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LONGEST_NUMBER = 40
# Never numbers, however they look.
_TEXTS = {"task_id", "status", "handoff_type", "agent", "role", "parent_task_id"}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Field:
    """A value with the place of its key; ``salvaged`` says that it is the raw text of what was no YAML."""

    value: Value
    line: int
    column: int = 1
    salvaged: bool = False


@dataclass(slots=True)
class Fields:
    """The fields of one mapping by their names, in lower case and with underscores; ``line`` is that of the first."""

    line: int
    entries: dict[str, Field] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, code: str, text: str, field: str | None = None) -> None:
        self.remarks.append(Remark(code, text, field, self.line_of(field)))

    def get(self, name: str) -> Value:
        return self.entries[name].value if name in self.entries else None

    def line_of(self, name: str | None) -> int:
        return self.entries[name].line if name in self.entries else self.line


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, with the number of its first line."""

    text: str
    line: int


def documents(text: str, first: int = 1) -> list[Piece]:
    """The YAML documents of a text that hold more than comments. A marker at a line's begin ends one wherever it is."""
    pieces: list[Piece] = []
    lines: list[str] = []
    begins = first
    for number, line in enumerate(text.split("\n"), first):
        if _MARKER.match(line):
            pieces.append(Piece("\n".join(lines), begins))
            # What follows on the marker's own line belongs to the next document.
            lines, begins = ["   " + line[3:] if line[3:].strip() else ""], number
        else:
            lines.append(line)
    pieces.append(Piece("\n".join(lines), begins))
    return [piece for piece in pieces if _holds_anything(piece.text)]


def read(piece: Piece, *, controls: Collection[str], lists: Collection[str] = (), strict: bool = False) -> Fields:
    """The mapping that a document is; `HandoffError` says where it is none.

    Where it is no YAML, each of its fields is read alone. A field of `controls` has to be sound then; of any other one
    the raw text is kept, cut at its items where it is one of `lists`. Nothing is saved that way where `strict`.
    """
    conflict = _CONFLICT.search(piece.text)
    if conflict:
        line = piece.line + piece.text.count("\n", 0, conflict.start())
        raise HandoffError(
            "merge_conflict", "there is a mark of a merge conflict", fix="resolve it and drop the file again", line=line
        )
    if piece.text.lstrip().startswith("{"):
        found = _read_json(piece)
        if found is not None:
            return _gathered(found, piece, controls)
    try:
        return _gathered(_read_yaml(piece), piece, controls)
    except HandoffError as error:
        if strict or error.kind != "yaml_syntax":
            raise
        chunks = list(_chunks(piece))
        if not 0 < len(chunks) <= _CHUNKS:
            raise
        return _salvaged(chunks, piece, controls, lists)


def plain(text: str) -> dict[str, Any]:
    """The first mapping of a text as a program takes it: numbers and truth values as such, the rest as text."""
    pieces = documents(text)
    if not pieces:
        raise HandoffError("empty", "there is nothing in it")
    fields = read(pieces[0], controls=())
    return {name: found.value if name in _TEXTS else _typed(found.value) for name, found in fields.entries.items()}


def _typed(value: Value) -> Any:
    if isinstance(value, dict):
        return {key: _typed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_typed(one) for one in value]
    if not isinstance(value, str) or len(value) > _LONGEST_NUMBER:
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        if _FIGURE.fullmatch(value):
            with suppress(ValueError):
                return kind(value)
    return value


def spelled(key: str) -> str:
    """A key as it is compared: lower case, with underscores."""
    return re.sub(r"[ -]+", "_", key.strip().lower())


# A whole document


@dataclass(slots=True)
class _Pair:
    key: str
    value: Value
    line: int
    column: int


def _gathered(pairs: list[_Pair], piece: Piece, controls: Collection[str]) -> Fields:
    fields = Fields(pairs[0].line if pairs else piece.line)
    for pair in pairs:
        _put(fields, spelled(pair.key), Field(pair.value, pair.line, pair.column), controls)
    return fields


def _put(fields: Fields, name: str, found: Field, controls: Collection[str]) -> None:
    before = fields.entries.get(name)
    if before is not None:
        if name in controls and before.value != found.value:
            raise HandoffError(
                "duplicate_key",
                f"{name!r} stands here again with another value",
                fix="leave one of them",
                field=name,
                line=found.line,
            )
        fields.remark("duplicate_key", f"{name!r} stands there twice; the last one counts", name)
    fields.entries[name] = found


def _read_json(piece: Piece) -> list[_Pair] | None:
    try:
        # Numbers as they are written, and equal keys side by side.
        found = json.loads(piece.text, object_pairs_hook=list, parse_int=str, parse_float=str, parse_constant=str)
    except ValueError:
        return None
    except RecursionError:
        raise _too_deep(piece.line) from None
    lines = _lines_of_keys(piece, {key for key, _ in found})
    return [_Pair(key, _from_json(value, piece.line, 1), lines.get(key, piece.line), 1) for key, value in found]


def _from_json(value: Any, line: int, depth: int) -> Value:
    if depth > _DEPTH:
        raise _too_deep(line)
    match value:
        case bool():
            return str(value).lower()
        case [(str(), _), *_] as pairs if all(isinstance(pair, tuple) for pair in pairs):
            return {key: _from_json(inner, line, depth + 1) for key, inner in pairs}
        case list():
            return [_from_json(inner, line, depth + 1) for inner in value]
    return value


def _lines_of_keys(piece: Piece, keys: set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(piece.text.split("\n"), piece.line):
        match = re.match(r'[\s{,]*"((?:[^"\\]|\\.)*)"\s*:', line)
        if match and match[1] in keys:
            found.setdefault(match[1], number)
    return found


@dataclass(slots=True)
class _Open:
    """A list or a mapping whose end has not come."""

    value: list[Value] | dict[str, Value]
    anchor: str | None
    before: int
    depth: int = 1
    key: str | None = None
    key_mark: Any = None
    pairs: list[_Pair] = field(default_factory=list)


def _read_yaml(piece: Piece) -> list[_Pair]:
    """The top pairs of one document, from the parser's events and without recursion."""
    stack: list[_Open] = []
    # The value, how many nodes it has, and how deep it is.
    anchors: dict[str, tuple[Value, int, int]] = {}
    top: Value = None
    pairs: list[_Pair] = []
    nodes = 0

    def place(value: Value, mark: Any, depth: int = 0) -> None:
        nonlocal top
        if len(stack) + depth > _DEPTH:
            raise _too_deep(_line(piece, mark))
        if not stack:
            top = value
            return
        holder = stack[-1]
        holder.depth = max(holder.depth, depth + 1)
        if isinstance(holder.value, list):
            holder.value.append(value)
        elif holder.key is None:
            if not isinstance(value, str | None):
                raise _syntax(piece, "a key is a list or a mapping", mark)
            holder.key, holder.key_mark = value or "", mark
        else:
            holder.value[holder.key] = value
            holder.pairs.append(_Pair(holder.key, value, piece.line + holder.key_mark.line, holder.key_mark.column + 1))
            holder.key = None

    try:
        for event in yaml.parse(piece.text, Loader=_Loader):
            nodes += 1
            if nodes > _NODES:
                raise HandoffError(
                    "unsafe_yaml", f"it holds more than {_NODES:,} values", line=_line(piece, event.start_mark)
                )
            match event:
                case yaml.AliasEvent():
                    if event.anchor not in anchors:
                        raise HandoffError(
                            "unsafe_yaml",
                            f"the alias *{event.anchor} stands for nothing that is complete by then",
                            fix="write the value out",
                            line=_line(piece, event.start_mark),
                        )
                    value, size, depth = anchors[event.anchor]
                    nodes += size
                    place(value, event.start_mark, depth)
                case yaml.ScalarEvent():
                    _check_tag(piece, event)
                    is_none = not event.style and event.value in _PLAIN_NONE
                    value = None if is_none else _unquoted(event.value)
                    # A long text counts for more, as it may be taken up again and again.
                    size = 1 + len(event.value) // 256
                    nodes += size - 1
                    if event.anchor:
                        anchors[event.anchor] = (value, size, 0)
                    place(value, event.start_mark)
                case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                    _check_tag(piece, event)
                    made: list[Value] | dict[str, Value] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
                    # Under way it must not be found: it would hold itself.
                    anchors.pop(event.anchor or "", None)
                    place(made, event.start_mark, 1)
                    stack.append(_Open(made, event.anchor, nodes))
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    ended = stack.pop()
                    if ended.anchor:
                        anchors[ended.anchor] = (ended.value, nodes - ended.before + 1, ended.depth)
                    if stack:
                        stack[-1].depth = max(stack[-1].depth, ended.depth + 1)
                    pairs = ended.pairs
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in (error.problem or ""):
            raise _too_deep(_line(piece, error.problem_mark)) from None
        raise _syntax(piece, error.problem or "it is no YAML", error.problem_mark) from None
    except yaml.reader.ReaderError as error:
        line = piece.line + piece.text.count("\n", 0, error.position)
        raise HandoffError(
            "yaml_syntax", "a character that no text holds", fix="remove it", line=line, found=repr(error.character)
        ) from None
    except UnicodeEncodeError as error:
        line = piece.line + piece.text.count("\n", 0, error.start)
        raise HandoffError("encoding", "half of a surrogate pair", fix="write UTF-8", line=line) from None
    if not isinstance(top, dict):
        raise HandoffError(
            "not_mapping",
            "it is not a mapping of fields",
            fix="write one task in a document, as 'field: value'",
            line=_first_line(piece),
        )
    return pairs


def _check_tag(piece: Piece, event: Any) -> None:
    if event.tag not in (None, "!", *_TAGS):
        raise HandoffError(
            "unsafe_yaml",
            f"the tag {event.tag} asks for an object to be made, which is never done",
            fix="write the value as plain text",
            line=_line(piece, event.start_mark),
            found=event.tag,
        )


def _unquoted(text: str) -> str:
    """Without the typographic quotes that a chat window makes of plain ones."""
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1]
    return text


def _line(piece: Piece, mark: Any) -> int:
    return piece.line + int(mark.line)


def _first_line(piece: Piece) -> int:
    for number, line in enumerate(piece.text.split("\n"), piece.line):
        if line.strip() and not line.lstrip().startswith("#"):
            return number
    return piece.line


def _syntax(piece: Piece, problem: str, mark: Any) -> HandoffError:
    line, column = (piece.line, None) if mark is None else (_line(piece, mark), mark.column + 1)
    return HandoffError("yaml_syntax", problem, fix="put the value into quotes", line=line, column=column)


def _too_deep(line: int) -> HandoffError:
    return HandoffError("unsafe_yaml", f"it is nested deeper than {_DEPTH} levels", fix="write it flatter", line=line)


def _holds_anything(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n"))


# Field by field


def _chunks(piece: Piece) -> Iterator[tuple[str, Piece]]:
    """The parts of a document from each key at its left edge to the next, with the key's name."""
    name, begins = None, piece.line
    lines: list[str] = []
    for number, line in enumerate(piece.text.split("\n"), piece.line):
        match = _KEY.match(line)
        if match:
            if name is not None:
                yield name, Piece("\n".join(lines), begins)
            name, lines, begins = spelled(match[1] or match[2] or match[3]), [], number
        lines.append(line)
    if name is not None:
        yield name, Piece("\n".join(lines), begins)


def _salvaged(
    chunks: list[tuple[str, Piece]], piece: Piece, controls: Collection[str], lists: Collection[str]
) -> Fields:
    fields = Fields(chunks[0][1].line)
    for name, chunk in chunks:
        try:
            [pair] = _read_yaml(chunk)
            found = Field(pair.value, pair.line, pair.column)
        except (HandoffError, ValueError) as error:
            if isinstance(error, HandoffError) and error.kind != "yaml_syntax":
                raise
            if name in controls:
                told = error if isinstance(error, HandoffError) else None
                raise HandoffError(
                    "yaml_syntax",
                    f"{name!r} is not sound YAML",
                    fix="write it as one plain word or put it into quotes",
                    field=name,
                    line=told.line if told else chunk.line,
                    column=told.column if told else None,
                ) from None
            found = Field(_raw(chunk.text, as_list=name in lists), chunk.line, salvaged=True)
        _put(fields, name, found, controls)
        if found.salvaged:
            fields.remark("salvaged_field", f"{name!r} is no YAML; its text is taken as it stands", name)
    return fields


def _raw(text: str, *, as_list: bool) -> Value:
    """The text of a field that is no YAML, without its key; cut at its own item marks where it is a list."""
    head, *rest = text.split("\n")
    head = _KEY.sub("", head).strip()
    if head in ("|", ">", "|-", ">-"):
        head = ""
    body = [line for line in (*([head] if head else []), *rest) if line.strip()]
    marks = [match for line in rest if (match := _ITEM.match(line))]
    if as_list and marks and not head:
        edge = min(len(match[1]) for match in marks)
        items: list[str] = []
        for line in body:
            match = _ITEM.match(line)
            if match and len(match[1]) == edge:
                items.append(line[match.end() :].strip())
            elif items:
                items[-1] = f"{items[-1]} {line.strip()}".strip()
            else:
                items.append(line.strip())
        return items
    return "\n".join(line.strip() for line in body)


# Writing


def dump(values: dict[str, Any]) -> str:
    """A mapping as YAML that any reader of it takes for the same: in its order, texts of several lines as such."""
    return str(yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


class _Dumper(yaml.SafeDumper):
    """Without anchors, which not every reader knows, and with text of several lines as people write it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> Any:
    text = storable(text)
    style = "|" if "\n" in text and not any(line != line.rstrip() for line in text.split("\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
