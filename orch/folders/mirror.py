"""From the database to the files: each DELEGATE lies in the folder of its state, its answer and its story beside it."""

from __future__ import annotations

import json
import os
from typing import Any

from orch import files
from orch.folders.root import Root, is_same, move, reason_path, split, write
from orch.handoff import words, writing
from orch.look_records import Attempt
from orch.queue import Queue
from orch.records import Task
from orch.states import ENDED, State

_BATCH = 500
# What a kept answer says of how it was read.
_OF_THE_READER = ("form", "line", "envelope", "measured", "remarks")


def mirror(queue: Queue, root: Root) -> int:
    """Bring the files to where their tasks are: how many were looked at. Only under the root's lock.

    What was not brought there because of a crash is behind the marks in the database, and comes with the next call.
    """
    seen = 0
    while True:
        event, task, last_event, last_task = queue.database.run("mirror_edge", batch=_BATCH)[0]
        if not (last_event or last_task):
            return seen
        edges = {"event": event, "task": task, "last_event": last_event, "last_task": last_task}
        for row in queue.database.run("mirror_moved", **edges):
            seen += 1
            place(queue, root, Task(*row))
        with queue.transaction(durable=False):
            for name, last in (("mirrored_event", last_event), ("mirrored_task", last_task)):
                if last:
                    queue.database.run("set_mark", name=name, value=last)


def place(queue: Queue, root: Root, task: Task) -> None:
    """One task's files, whatever was there before; what is there already is left alone."""
    key = task.key or ""
    if not words.is_safe_id(key):
        return
    _place_delegate(root, task, key)
    if task.attempts:
        _place_story(queue, root, task, key)
    if task.state in ENDED:
        for path in reversed(root.answers(key)):
            move(path, root.folder(task.state))
        _place_answer(queue, root, task, key)


def _place_delegate(root: Root, task: Task, key: str) -> None:
    wanted = root.delegate(key, task.state)
    there = root.find(key)
    folder = root.folder(task.state)
    text = task.payload["delegate"]
    if there is None and not text:
        # What came without an order has none.
        return
    if there == wanted:
        root.finish_moves(wanted)
        return
    if os.path.lexists(wanted) and not (there and is_same(there, wanted)):
        # Somebody else's, which was refused or left there: the name is the task's.
        _step_aside(wanted)
    if there is None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write(wanted, text)
    else:
        move(there, folder)


def _step_aside(path: str) -> None:
    """Another name for a file, and for what says why it was refused."""
    folder, why = os.path.dirname(path), reason_path(path)
    moved = move(path, folder)
    if os.path.lexists(why):
        move(why, folder, os.path.basename(reason_path(moved)))


def _place_story(queue: Queue, root: Root, task: Task, key: str) -> None:
    """``{task_id}.meta.json`` beside the DELEGATE: a file of ours, always as the last look found things."""
    name = f"{key}.meta.json"
    attempts = queue.attempts(task.id)
    os.makedirs(root.folder(task.state), mode=0o700, exist_ok=True)
    for state in State:
        if state != task.state and os.path.lexists(old := os.path.join(root.folder(state), name)):
            os.unlink(old)
    story = {
        "task_id": key,
        "id": task.id,
        "state": task.state,
        "claimed_at": task.claimed_at or (attempts[-1].claimed_at if attempts else None),
        "retry_count": task.retry_count,
        "attempts": task.attempts,
        "last_error": next((one.error or one.reason for one in reversed(attempts) if _failed(one)), None),
    }
    files.replace(os.path.join(root.folder(task.state), name), json.dumps(story, indent=2) + "\n")


def _failed(attempt: Attempt) -> bool:
    return attempt.outcome not in (None, State.DONE, State.INCOMING)


def _place_answer(queue: Queue, root: Root, task: Task, key: str) -> None:
    """The answer that counts, and why a task failed; those of earlier attempts get their attempt's number."""
    attempts = queue.attempts(task.id)
    last = attempts[-1] if attempts else None
    folder = root.folder(task.state)
    if last is not None and last.result is not None and _is_answer(last.result):
        earlier = [one.attempt for one in attempts[:-1] if one.result is not None]
        path = os.path.join(folder, f"{key}-HANDBACK.yaml")
        _number(path, handback_text(queue, task, last.result), earlier)
    if task.state == State.FAILED:
        error = (last.error if last else None) or task.reason or "failed"
        text = json.dumps({"task_id": key, "error": error, "failed_at": task.updated_at}, indent=2) + "\n"
        earlier = [one.attempt for one in attempts[:-1] if one.outcome == State.FAILED]
        _number(os.path.join(folder, f"{key}-ERROR.json"), text, earlier)


def _number(path: str, text: str, earlier: list[int]) -> None:
    """Write a file; another one of that name is from an earlier attempt, whose number it gets."""
    folder, name = os.path.split(path)
    if earlier and os.path.lexists(path):
        with open(path, "rb") as file:
            if file.read() == text.encode():
                return
        stem, ending = split(name)
        move(path, folder, f"{stem}-{earlier[-1]}{ending}")
    write(path, text)


def _told(value: Any) -> Any:
    """What is known of a value, such as tokens of which only the sum is."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def _is_answer(result: str) -> bool:
    found = json.loads(result)
    return isinstance(found, dict) and "status" in found


def handback_text(queue: Queue, task: Task, result: str) -> str:
    """A kept answer as the protocol writes one, with the tasks that followed from it."""
    found: Any = json.loads(result)
    fields = {"handoff_type": "HANDBACK", "task_id": task.key}
    fields |= {name: _told(value) for name, value in found.items() if name not in _OF_THE_READER}
    for key, relation in queue.database.run("followers", task=task.id):
        if relation == "escalation":
            fields["escalation_delegate_created"] = key
    return writing.as_yaml(fields)
