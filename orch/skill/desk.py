"""What an orchestrator has before it: its tasks in the queue, and as files in its folders, whoever put them there."""

from __future__ import annotations

import datetime
import json
import os
import threading
from pathlib import Path
from typing import Any

from orch import clock, jsontext, processes
from orch.folders import Exchange
from orch.folders.root import Root, move
from orch.folders.taking import Taken
from orch.handoff import Delegate, HandoffError, fields, orders, read_delegates, words
from orch.handoff.delegate import LARGEST
from orch.queue import Queue
from orch.records import NewTask, Task
from orch.skill.errors import QueueValidationError, TaskClaimError
from orch.states import State
from orch.work.agent import LARGEST_ORDER

_META = ".meta.json"
# Whose task it is where the order cannot be read: nobody is started for this role.
_NOBODY = "orchestrator"
KEPT = ".keep.me"


class Desk:
    """The queue of one orchestrator and its folders, held together. One thread at a time is in it, by `lock`."""

    def __init__(self, root: Path, database: str, roles: tuple[str, ...]) -> None:
        self.root = Root(str(root))
        self.root.prepare()
        self.roles = tuple(words.all_roles(roles))
        self.database = database
        self.queue = Queue.open(database, create=True, by=_NOBODY)
        # What is dropped here is whole: nobody else looks, so nobody is waited for but who has a file open.
        self.exchange = Exchange(str(root), roles, settled=0.0)
        self.lock = threading.RLock()
        self._worker: int | None = None

    @property
    def worker(self) -> int:
        """The owner of what is claimed here."""
        if self._worker is None:
            self._worker = self.queue.ledger.enrol(processes.myself())
            assert self._worker is not None
        return self._worker

    def take(self) -> Taken:
        """Take in what was dropped, and bring the files to where their tasks are."""
        return self.exchange.run(self.queue)

    def fetch(self, path: str | os.PathLike[str]) -> None:
        """Bring a file to the dropped ones, if it is not there."""
        incoming = self.root.folder(State.INCOMING)
        if os.path.realpath(os.path.dirname(os.path.abspath(path))) != os.path.realpath(incoming):
            move(os.fspath(path), incoming)

    def mirror(self) -> None:
        """Bring the files to where their tasks are."""
        self.exchange.show(self.queue)

    def adopt(self) -> None:
        """Take over what somebody put straight into ``processing``, and what its ``.meta.json`` says of it."""
        folder = self.root.folder(State.PROCESSING)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        ids = {name.removesuffix(_META).removesuffix(".yaml") for name in names if name.endswith((_META, ".yaml"))}
        for id in sorted(ids):
            if not words.is_safe_id(id):
                continue
            task = self.find(id) or self.put(id)
            if task.state == State.INCOMING and task.attempts == 0:
                task = self.claim(task) or task
            if task.state == State.PROCESSING and self.is_ours(task):
                self._backdate(task, os.path.join(folder, f"{id}{_META}"))

    def find(self, id: str) -> Task | None:
        """The task of an id."""
        return self.queue.find(id) if self.queue.has_key(id) else None

    def put(self, id: str) -> Task:
        """Add a task for the file of that name, whatever is in it, or for an answer that comes without one."""
        path = self.root.find(id)
        text = ""
        if path is not None:
            with open(path, "rb") as file:
                text = file.read(LARGEST).decode("utf-8", "replace")
        try:
            [order] = read_delegates(text.encode(), roles=self.roles)
            new = orders.task_of(order) if order.task_id == id else None
        except (HandoffError, ValueError):
            new = None
        payload = {"task_id": id, "agent": _NOBODY, "delegate": text}
        [added] = self.queue.add_many([new or NewTask(_NOBODY, jsontext.dump(payload), key=id)])
        return self.queue.task(added.id)

    def claim(self, task: Task, timeout: float | None = None) -> Task | None:
        """Claim a task; None when somebody else was faster."""
        return self.queue.claim_this(task.id, worker=self.worker, timeout=timeout)

    def held(self, id: str) -> Task:
        """The task of an id as one that is at work here, claimed if it was not; `TaskClaimError` when it cannot be."""
        task = self.find(id) or self.put(id)
        if task.state == State.INCOMING:
            task = self.claim(task) or self.queue.task(task.id)
        if task.state != State.PROCESSING:
            raise TaskClaimError(f"task {id} is {task.state} already")
        if not self.is_ours(task):
            raise TaskClaimError(f"a worker is at work on task {id}")
        return task

    def is_ours(self, task: Task) -> bool:
        """Whether an orchestrator has a task, this one or one before it, and not a fire's worker."""
        owner = None if task.owner is None else self.queue.ledger.worker(task.owner)
        return owner is None or (owner.fire is None and owner.mode is None)

    def at_work(self) -> list[Task]:
        """The tasks that orchestrators have claimed."""
        return [
            task for task in self.queue.owned() if task.state == State.PROCESSING and task.key and self.is_ours(task)
        ]

    def delegate_of(self, task: Task) -> Delegate:
        """The order of a task; `QueueValidationError` when there is none that can be read."""
        text = str(task.payload.get("delegate") or "")
        try:
            [order] = read_delegates(text.encode("utf-8", "replace"), roles=self.roles, largest=LARGEST_ORDER)
        except (HandoffError, ValueError) as error:
            raise QueueValidationError(f"{task.key} is no DELEGATE: {error}") from error
        return order

    def dict_of(self, task: Task) -> dict[str, Any]:
        """The order of a task by its fields, as they are written; what was put right has its right name."""
        order = self.delegate_of(task)
        core = {
            "handoff_type": "DELEGATE",
            "scope": order.scope,
            "plan": order.plan,
            "success_criteria": order.success_criteria,
        }
        return {**core, **fields.plain(order.text), "task_id": order.task_id, "agent": order.agent}

    def _backdate(self, task: Task, path: str) -> None:
        """What a ``.meta.json`` that somebody else wrote says of a claim."""
        claimed_at, retry_count = task.claimed_at, task.retry_count
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            moment = datetime.datetime.fromisoformat(str(said["claimed_at"]))
            claimed_at = clock.stamp(moment if moment.tzinfo else moment.replace(tzinfo=clock.UTC))
            retry_count = max(0, int(said.get("retry_count") or 0))
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
            # It is in the middle of being written, or is no such file.
            return
        if (claimed_at, retry_count) != (task.claimed_at, task.retry_count):
            with self.queue.transaction(durable=False):
                self.backdate(task, claimed_at, retry_count)

    def backdate(self, task: Task, claimed_at: str | None, retry_count: int) -> None:
        """Set since when a task has been at work, and how often it was tried."""
        self.queue.database.run(
            "backdate", id=task.id, attempts=task.attempts, claimed_at=claimed_at, retry_count=retry_count
        )
