"""Keeping house: what ended long ago is let go, rows and files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from orch import clock
from orch.project import Project
from orch.queue import Queue

_BATCH = 200
_PER_FOLDER = 1000
_FILE = re.compile(r"(\d+)-\d+\.(?:out|err|delegate\.yaml|handback\.yaml)")


@dataclass(slots=True)
class Pruned:
    """What was let go: tasks with all that is known of them, files of output, and how many bytes these had."""

    tasks: int = 0
    files: int = 0
    size: int = 0


def prune(queue: Queue, project: Project, seconds: float, *, dry_run: bool = False) -> Pruned:
    """Let go of tasks that ended more than so many seconds ago, of their output, and of any that has no task.

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
    for path in _files(queue, project.state, before):
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


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
