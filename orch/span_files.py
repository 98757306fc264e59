"""Spans as files: one each, in the protocol's shape, for whoever reads a folder and no database."""

from __future__ import annotations

import json
import os
import re

from orch import files
from orch.errors import OrchError
from orch.fire_records import Fire
from orch.project import Project
from orch.queue import Queue
from orch.spans import Span, as_protocol, of_fire

# The names that are given here, and what a process leaves that dies while it writes one.
NAME = re.compile(r"(?:fire|task)-\d+-[a-z_]+-[0-9a-f]{16}\.span\.json(?:\.\d+)?")


def write(queue: Queue, project: Project) -> str | None:
    """Write the spans of what has ended as files, where the project wants that: what went wrong, or None.

    One file a span of each fire and poll, written whole or not at all; one that is there stays as it is. A call begins
    where everything had ended and was written, so that it makes up for those before it. The first one begins with the
    newest fire: what was before the project wanted files is not written.
    """
    if not project.spans:
        return None
    folder = project.spans_folder
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _write_all(queue, folder)
    except OSError as error:
        return f"the spans could not be written below {folder}: {error.strerror or error}"
    except OrchError as error:
        return f"the spans could not be written: {error}"
    return None


def _write_all(queue: Queue, folder: str) -> None:
    [[first]] = queue.database.run("spans_from")
    number, behind, whole = first, first, True
    while fires := queue.log.fires_from(number):
        for fire in fires:
            # What still goes on holds the mark back, and nobody up.
            whole &= fire.closed_at is not None and _write_fire(queue, fire, folder)
            number = fire.id + 1
            behind = number if whole else behind
    if behind > first:
        with queue.transaction(durable=False):
            queue.database.run("set_mark", name="spans", value=behind - 1)


def _write_fire(queue: Queue, fire: Fire, folder: str) -> bool:
    """Write the spans of one fire that have ended: whether all have."""
    whole = True
    for span in of_fire(queue, fire):
        if span.end is None:
            whole = False
            continue
        path = os.path.join(folder, file_name(span))
        if not os.path.lexists(path):
            files.replace(path, json.dumps(as_protocol(span)) + "\n")
    return whole


def file_name(span: Span) -> str:
    """The name of a span's file: what it is about, which step it is, and its id."""
    about = "task" if "task" in span.attributes else "fire"
    return f"{about}-{span.attributes[about]}-{span.name}-{span.span_id}.span.json"
