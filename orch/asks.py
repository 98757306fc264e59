"""What waits for a person, and which task followed from which: verbs that can join the queue's transactions."""

from __future__ import annotations

from dataclasses import dataclass

from orch import clock
from orch.database import Database
from orch.errors import Conflict, NotFound
from orch.legible import storable
from orch.records import Task

_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Ask:
    """One question about a task: ``count`` says how often it was asked while it was open."""

    id: int
    task: int
    kind: str
    question: str
    count: int
    asked_at: str
    last_at: str
    closed_at: str | None
    answer: str | None
    mode: str | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A task that another one followed from, and why: ``escalation``, ``answer``, ``gate`` or ``improvement``."""

    id: int
    mode: str | None
    key: str | None
    relation: str


class Asks:
    """Questions, lineage, answers that wait for a verdict, and what is said of skills, on the queue's connection."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def ask(self, task: int, kind: str, question: str) -> int:
        """Put a question to a person. An open one of that kind about that task counts up instead: its number."""
        with self.database.transaction(durable=True):
            rows = self.database.run(
                "ask", task=task, kind=kind, question=storable(question)[:_LONGEST], now=clock.stamp(clock.now())
            )
        return int(rows[0][0])

    def review(self, task: Task, why: str) -> int:
        """Ask a person about a task that has had its last try."""
        return self.ask(task.id, "review", f"{task.key or f'task {task.id}'} has had its last try: {why}")

    def open(self, limit: int = 1000) -> list[Ask]:
        """What is open, the oldest first."""
        return [Ask(*row) for row in self.database.run("asks_open", limit=limit)]

    def one(self, id: int) -> Ask:
        """One question; `NotFound` when there is none of that number."""
        rows = self.database.run("ask_of", id=id) if abs(id) < 2**63 else []
        if not rows:
            raise NotFound(f"no question {id}: 'orch asks' lists what is open")
        return Ask(*rows[0])

    def close(self, id: int, answer: str | None) -> None:
        """Close a question; `Conflict` when it is closed already."""
        told = None if answer is None else storable(answer)
        with self.database.transaction(durable=True):
            if not self.database.run("close_ask", id=id, answer=told, now=clock.stamp(clock.now())):
                raise Conflict(f"question {self.one(id).id} is closed already")

    def follow(self, task: int, parent: int, relation: str) -> None:
        """Record that a task followed from another one."""
        with self.database.transaction():
            self.database.run("follow", task=task, parent=parent, relation=relation)

    def relation(self, task: int) -> str | None:
        """Why a task followed from another one; None when it did not."""
        rows = self.database.run("relation", task=task)
        return rows[0][0] if rows else None

    def keep_answer(self, task: int, result: str) -> None:
        """Keep an answer, as JSON text, until there is a verdict on it."""
        with self.database.transaction():
            self.database.run("keep_answer", task=task, result=result)

    def kept_answer(self, task: int) -> str | None:
        """The answer of a task that waits for its verdict."""
        rows = self.database.run("kept_answer", task=task)
        return rows[0][0] if rows else None

    def drop_answer(self, task: int) -> None:
        """There is a verdict."""
        with self.database.transaction():
            self.database.run("drop_answer", task=task)

    def add_feedback(self, task: int, skill: str, score: float | None, body: str) -> None:
        """Keep what the agent of a task says of a skill, as JSON text."""
        with self.database.transaction():
            self.database.run("add_feedback", task=task, skill=skill, score=score, body=body)

    def feedback(self, skill: str) -> list[str]:
        """What was said of a skill and not taken up yet, as JSON texts."""
        return [row[0] for row in self.database.run("feedback_unused", skill=skill)]

    def is_improving(self, skill: str) -> bool:
        """Whether a task is open that is to improve a skill."""
        return bool(self.database.run("improvement_open", skill=skill))

    def use_feedback(self, skill: str, task: int) -> None:
        """A task takes up what was said of a skill."""
        with self.database.transaction():
            self.database.run("use_feedback", skill=skill, improvement=task)

    def ancestors(self, task: int) -> list[Ancestor]:
        """What a task followed from, the nearest first."""
        return [Ancestor(*row) for row in self.database.run("ancestors", task=task)]
