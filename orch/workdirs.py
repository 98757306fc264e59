"""The verbs on the working folders that attempts had of their own."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from orch.database import Database


@dataclass(frozen=True, slots=True)
class Workdir:
    """Where one attempt worked, as far as it is left: ``folder`` is relative to the state folder, None when it is gone.

    The agent works ``below`` it. A worktree has a ``branch`` (None when nothing came to it) that began at the commit
    ``base``; both are None of a fresh folder.
    """

    task: int
    attempt: int
    folder: str | None
    below: str = ""
    branch: str | None = None
    base: str | None = None


class Workdirs:
    """Where attempts worked: it shares the queue's connection, so that its verbs can join the queue's transactions."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def of(self, task: int) -> list[Workdir]:
        """What is left of the working folders of a task, the oldest attempt first."""
        return [Workdir(*row) for row in self.database.run("workdirs", task=task)]

    def keep(self, found: Workdir) -> None:
        """Note down where an attempt works, or what is left of that; nothing at all is forgotten."""
        task, attempt, folder, below, branch, base = astuple(found)
        with self.database.transaction(durable=True):
            if folder is None and branch is None:
                self.database.run("drop_workdir", task=task, attempt=attempt)
            else:
                self.database.run(
                    "keep_workdir",
                    task=task,
                    attempt=attempt,
                    folder=folder,
                    below=below,
                    branch=branch,
                    base=base,
                )
