"""Keeping house: what ended long ago is let go, rows, files and working folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from orch import clock, span_files
from orch.project import Project
from orch.queue import Queue
from orch.work import workdir

_BATCH = 200
_PER_FOLDER = 1000
_FILE = re.compile(r"(\d+)-\d+\.(?:out|err|delegate\.yaml|handback\.yaml)")
_WORKDIR = re.compile(r"(\d+)-\d+(?:\.\d+)?")


@dataclass(slots=True)
class Pruned:
    """What was let go: tasks with all that is known of them, files (output, spans, working folders), and their bytes.

    ``kept`` are the worktrees of tasks that ended as long ago, for what is in no commit.
    """

    tasks: int = 0
    files: int = 0
    size: int = 0
    kept: list[str] = field(default_factory=list)


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
    outputs = _of_ended(queue, os.path.join(project.state, "output"), _FILE, before)
    for path in chain(outputs, _old_spans(project.spans_folder, before)):
        try:
            size = os.stat(path).st_size
            if not dry_run:
                os.unlink(path)
        except FileNotFoundError:
            continue
        pruned.files += 1
        pruned.size += size
    for path in _of_ended(queue, os.path.join(project.state, workdir.TOP), _WORKDIR, before):
        gone = workdir.discard(queue, project.state, path, dry_run=dry_run)
        if gone is None:
            pruned.kept.append(path)
        else:
            pruned.files += gone[0]
            pruned.size += gone[1]
    return pruned


def _of_ended(queue: Queue, top: str, pattern: re.Pattern[str], before: str) -> Iterator[str]:
    """What lies there by the number of a task that is gone or ended before a moment."""
    for folder in filter(str.isdecimal, _names(top)):
        # The names first: what is written from now on belongs to a task that is at work.
        names, first = _names(os.path.join(top, folder)), int(folder) * _PER_FOLDER
        there = queue.ended_between(first, first + _PER_FOLDER - 1, before)
        for name in names:
            match = pattern.fullmatch(name)
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
