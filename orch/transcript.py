"""What one attempt of a task writes, followed while it is written.

Until the attempt has ended it is read from its worker's spool, after that from what is kept of it; each byte is given
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orch import clock
from orch.errors import NotFound
from orch.look_records import Attempt
from orch.queue import Queue
from orch.records import Task
from orch.states import OWNED, State
from orch.work import output

_TICK = 0.1
_WAITING = (State.INCOMING, State.RETRY_PENDING)


def follow(
    queue: Queue,
    state: str,
    id: int,
    ending: str = "out",
    *,
    attempt: int | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> Iterator[bytes]:
    """Pieces of a task's standard output (``out``) or error (``err``) as they come, until its attempt has ended.

    Without an `attempt` it is the one that runs or, where the task waits, its next one, and `waiting` is called; else
    the last one. `state` is the project's state folder. `NotFound` when there is no such attempt, and will not be one.
    """
    task = queue.task(id)
    if attempt is None:
        attempt = task.attempts + (task.state in _WAITING)
    if attempt > task.attempts:
        if task.state not in _WAITING and task.state not in OWNED:
            raise NotFound(f"task {id} has no attempt {attempt}: it is {task.state} after {task.attempts}")
        waiting()
    place = 0
    while not _is_over(task, attempt):
        piece, behind = output.read_spool(state, task.owner or 0, ending, place)
        task = queue.task(id)
        # Looked at again, as the spool may have been another task's by the time that it was read.
        if _runs(task, attempt) and piece:
            place = behind
            yield piece
        else:
            clock.sleep(_TICK)
            task = queue.task(id)
    rest = output.behind(_kept(queue, state, id, attempt, ending), place)
    if rest:
        yield rest


def _runs(task: Task, attempt: int) -> bool:
    return task.attempts == attempt and task.state in OWNED


def _is_over(task: Task, attempt: int) -> bool:
    """Whether that attempt has ended, or will never be."""
    if task.attempts < attempt:
        return task.state not in _WAITING and task.state not in OWNED
    return not _runs(task, attempt)


def _kept(queue: Queue, state: str, id: int, attempt: int, ending: str) -> bytes:
    attempts: list[Attempt] = queue.attempts(id)
    for one in attempts:
        if one.attempt == attempt and one.output:
            return output.read(state, one.output).get(ending, b"")
    return b""
