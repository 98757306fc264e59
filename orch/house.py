"""Keeping house: what ended long ago is let go, rows and files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from orch import clock, span_files
from orch.project import Project
from orch.queue import Queue

_BATCH = 200
_PER_FOLDER = 1000
_FILE = re.compile(r"(\d+)-\d+\.(?:out|err|delegate\.yaml|handback\.yaml)")


@dataclass(slots=True)
class Pruned:
    """What was let go: tasks with all that is known of them, files (of output, of spans), and the bytes of these."""

    tasks: int = 0
    files: int = 0
    size: int = 0


def prune(queue: Queue, project: Project, seconds: float, *, dry_run: bool = False) -> Pruned:
    """Let go of tasks that ended more than so many seconds ago, of their output, of any that has no task, and of spans.

    In small steps, so that others get their turn. A task that another one still waits for stays, and one with a key
    stays without its output: its key is promised for the life of the queue.
    """
    before = clock.stamp(clock.after(clock.now(), -seconds))
    pruned = Pruned()
    last = 0
    take = queue.prunable if dry_run else queue.prune
    while ids := take(before, after=last, limit=_BATCH):
        last = ids[-1]
        pruned.tasks += len(ids)
    for path in chain(_files(queue, project.state, before), _old_spans(project.spans_folder, before)):
        try:
            size = os.stat(path).st_size
            if not dry_run:
                os.unlink(path)
        except FileNotFoundError:
            continue
        pruned.files += 1
        pruned.size += size
    return pruned


def _files(queue: Queue, state: str, before: str) -> Iterator[str]:
    """The files of output whose task is gone or ended before a moment."""
    top = os.path.join(state, "output")
    for folder in filter(str.isdecimal, _names(top)):
        # The names first: what is written from now on belongs to a task that is at work.
        names, first = _names(os.path.join(top, folder)), int(folder) * _PER_FOLDER
        there = queue.ended_between(first, first + _PER_FOLDER - 1, before)
        for name in names:
            match = _FILE.fullmatch(name)
            if match and there.get(int(match[1]), True):
                yield os.path.join(top, folder, name)


def _old_spans(folder: str, before: str) -> Iterator[str]:
    """The files of spans that were written before a moment."""
    for name in filter(span_files.NAME.fullmatch, _names(folder)):
        path = os.path.join(folder, name)
        try:
            if os.lstat(path).st_mtime * 1_000_000 < clock.microseconds(before):
                yield path
        except OSError:
            continue


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
