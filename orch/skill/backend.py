"""Who does the work for an orchestrator: the agents of a project, run as its workers run them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from orch import work
from orch.errors import OrchError
from orch.handoff import words
from orch.modes import Mode
from orch.outcomes import Done, Evidence, Outcome
from orch.project import Project
from orch.queue import Queue
from orch.records import Task
from orch.skill.errors import SubAgentError
from orch.work import gate, workdir

if TYPE_CHECKING:
    from orch.skill.orchestrator import OrchestratorSkill


class NoAnswer(SubAgentError):
    """An agent ended without an answer; ``outcome`` is what that leads to."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


class Backend:
    """The agents of a project, one at a time, on a connection of their own, as they take long."""

    def __init__(self, project: Project, database: str, state: str, skill: OrchestratorSkill) -> None:
        self._project, self._database, self._state, self._root = project, database, state, str(skill.queue_root)
        self._beat = skill.update_heartbeat
        self._alone = threading.Lock()

    def ask(self, task: Task, mode: Mode) -> tuple[str, Evidence]:
        """Have an agent work on a task: its answer, and what it took. `SubAgentError` when it gave none."""
        with self._alone, Queue.open(self._database) as queue:
            try:
                outcome, handback = work.ask_agent(mode, self._bench(queue, task), task)
            except OrchError as error:
                raise SubAgentError(str(error)) from error
        if handback is None:
            raise NoAnswer(str(getattr(outcome, "error", None) or getattr(outcome, "why", "no answer")), outcome)
        return f"```yaml\n{handback.text}```\n", outcome.evidence

    def judge(self, task: Task, answered: Done, judge: Mode, least: tuple[float, float]) -> Outcome:
        """Have an answer judged: what it comes to."""
        with self._alone, Queue.open(self._database) as queue:
            bench = self._bench(queue, task)

            def do(one: Task, mode: Mode) -> Outcome:
                return work.ask_agent(mode, bench, one, judged=task)[0]

            return gate.judged(queue, task, answered, judge, do, least=least, until=None)

    def folder_of(self, queue: Queue, task: Task | None) -> str:
        """Where the last attempt at a task was made."""
        own = None if task is None else workdir.latest(queue, task, self._state)
        return self._project.folder if own is None else workdir.place(self._state, own)

    def tidy(self, queue: Queue, task: Task) -> None:
        """The task is over: where it was worked on, what is empty or in commits goes."""
        workdir.tidy(queue, task, self._state)

    def _bench(self, queue: Queue, task: Task) -> work.Bench:
        def cut(claim: Task) -> str | None:
            self._beat(str(task.key))
            queue.heartbeat(task)
            return None if queue.holds(task) else "lost"

        return work.Bench(
            database=self._database,
            project=self._project.folder,
            state=self._state,
            worker=task.owner or 0,
            fire=None,
            limits=self._project.limits,
            roles=tuple(words.all_roles(self._project.roles)),
            cut=cut,
            queue=queue,
            edge=lambda: None,
            root=self._root,
        )
