"""The working folder of an attempt: a fresh one, or a worktree of the project's repository on a branch of its own.

Nothing that an agent made is lost: what is not empty, or not in a commit, stays, and so does a branch with commits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from orch.errors import OrchError
from orch.modes import Mode
from orch.outcomes import Cut, Failed, Later
from orch.queue import Queue
from orch.records import Task
from orch.work import git as repository
from orch.work.git import Git, GitError
from orch.work.output import make_folders
from orch.workdirs import Workdir

if TYPE_CHECKING:
    from orch.work import Bench

TOP = "work"
_PER_FOLDER = 1000


class NoWorkdir(OrchError):
    """There is no folder to work in; ``outcome`` is what that leads to."""

    def __init__(self, outcome: Cut | Failed | Later) -> None:
        super().__init__(outcome.why if isinstance(outcome, Later) else outcome.error)
        self.outcome = outcome


def make(mode: Mode, bench: Bench, task: Task) -> Workdir | None:
    """Make the folder of a task's present attempt, or give the one that it has; None where it works in the project.

    `NoWorkdir` when it cannot be made.
    """
    assert mode.agent is not None
    if mode.agent.workdir == "project":
        return None
    for one in bench.queue.workdirs.of(task.id):
        if one.attempt == task.attempts and one.folder is not None:
            return one
    try:
        found = Workdir(task.id, task.attempts, _claim_folder(bench.state, task))
        if mode.agent.workdir == "worktree":
            git = Git(task.allotted, lambda: bench.cut(task))
            return _make_worktree(bench, task, found, mode.folder_in(bench.project), git)
        bench.queue.workdirs.keep(found)
        return found
    except (GitError, OSError) as error:
        raise _without(error) from None


def _without(error: Exception) -> NoWorkdir:
    """A folder that cannot be made is no fault of the task."""
    why, cut = f"its working folder cannot be made: {error}", getattr(error, "cut", None)
    return NoWorkdir(Cut(cut, why) if cut else Later(why))


def _claim_folder(state: str, task: Task) -> str:
    """Make a folder that nobody has; relative to the state folder."""
    wanted = os.path.join(TOP, str(task.id // _PER_FOLDER), f"{task.id}-{task.attempts}")
    make_folders(os.path.join(state, wanted))
    ignore = os.path.join(state, TOP, ".gitignore")
    if not os.path.exists(ignore):
        # The state folder may lie in a repository that must not take these up as its own.
        with open(ignore, "w", encoding="utf-8") as file:
            file.write("/*\n")
    folder, number = wanted, 1
    while True:
        try:
            os.mkdir(os.path.join(state, folder), 0o700)
            return folder
        except FileExistsError:
            # Of a queue that was here before.
            number += 1
            folder = f"{wanted}.{number}"


def _make_worktree(bench: Bench, task: Task, found: Workdir, project: str, git: Git) -> Workdir:
    base = repository.head(git, project)
    branch = repository.new_branch(git, project, f"{task.key or task.id}-{task.attempts}", base)
    found = replace(found, below=repository.below(git, project), branch=branch, base=base)
    path = os.path.join(bench.state, found.folder or "")
    try:
        bench.queue.workdirs.keep(found)
        repository.add_worktree(git, project, path, branch)
        # What is not in the commit may be missing.
        os.makedirs(place(bench.state, found), exist_ok=True)
    except BaseException:
        # No agent was in there yet.
        import shutil  # here, as it loads every packer of archives

        shutil.rmtree(path, ignore_errors=True)
        repository.drop_branch(Git(), project, branch, base)
        bench.queue.workdirs.keep(replace(found, folder=None, branch=None))
        raise
    return found


def place(state: str, found: Workdir) -> str:
    """Where the agent of an attempt works."""
    return os.path.join(state, found.folder or "", found.below)


def told(found: Workdir, folder: str) -> str:
    """What an agent is told of the place that it works in."""
    if found.branch is None:
        return f"The place of this work is {folder}, which was empty when it began."
    began = f", which began at {found.base[:12]}" if found.base else ""
    return (
        f"The place of this work is {folder}, a git worktree on the branch {found.branch}{began}: only what is"
        " committed there comes to those who go on with it."
    )


def left(queue: Queue, task: Task, state: str) -> list[Workdir]:
    """What is left of the folders and branches of a task's attempts, the folders by their whole paths."""
    found = []
    for one in queue.workdirs.of(task.id):
        path = os.path.join(state, one.folder or "")
        found.append(replace(one, folder=path if one.folder and os.path.isdir(path) else None))
    return [one for one in found if one.folder or one.branch]


def latest(queue: Queue, task: Task, state: str) -> Workdir | None:
    """The folder of the last attempt, where it had one of its own and that is there."""
    found = queue.workdirs.of(task.id)[-1:]
    return found[0] if found and found[0].folder and os.path.isdir(place(state, found[0])) else None


def of_answer(mode: Mode, bench: Bench, task: Task) -> Workdir | None:
    """Where the answer was made that waits for its verdict; None where that was in the project.

    A worktree that is gone is made again from its branch. `NoWorkdir` when there is none: nobody could judge by it.
    """
    known = bench.queue.workdirs.of(task.id)
    found = latest(bench.queue, task, bench.state)
    if found is not None or not known:
        return found
    if known[-1].branch is not None:
        try:
            return _restored(bench, task, known[-1], mode.folder_in(bench.project))
        except (GitError, OSError) as error:
            raise _without(error) from None
    why = f"its answer cannot be judged any more, as the folder that it was made in is gone: 'orch retry {task.id}'"
    raise NoWorkdir(Failed(f"{why} has it made again", again=False))


def _restored(bench: Bench, task: Task, gone: Workdir, project: str) -> Workdir:
    found = replace(gone, folder=_claim_folder(bench.state, task))
    bench.queue.workdirs.keep(found)
    repository.add_worktree(Git(), project, os.path.join(bench.state, found.folder or ""), found.branch or "")
    os.makedirs(place(bench.state, found), exist_ok=True)
    return found


def surroundings(state: str, found: Workdir, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment that leads no git in the folder to the repository of somebody else."""
    kept = {name: value for name, value in environment.items() if name not in repository.TIES}
    return {**kept, "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.join(state, found.folder or ""))}


def tidy(queue: Queue, task: Task, state: str) -> None:
    """After an attempt, let go of what is left of this one and earlier ones and holds nothing that an agent made."""
    for one in queue.workdirs.of(task.id):
        left = _tidied(one, state)
        if left != one:
            queue.workdirs.keep(left)


def _tidied(one: Workdir, state: str) -> Workdir:
    if one.folder is None:
        return one
    path = os.path.join(state, one.folder)
    if one.branch is None:
        with suppress(OSError):
            os.rmdir(path)
        return one if os.path.isdir(path) else replace(one, folder=None)
    with suppress(GitError, OSError):
        return _without_worktree(one, path, ignored=True)
    return one if os.path.isdir(path) else replace(one, folder=None)


def _without_worktree(one: Workdir, path: str, *, ignored: bool) -> Workdir:
    """What is left when a worktree goes whose content is safe elsewhere; all of it when it is not."""
    git = Git()
    if not repository.is_worktree(path) or not repository.is_spotless(git, path, ignored=ignored):
        return one
    home = repository.home_of(git, path)
    repository.remove_worktree(git, home, path)
    is_gone = one.branch is None or one.base is None or repository.drop_branch(git, home, one.branch, one.base)
    return replace(one, folder=None, branch=None if is_gone else one.branch)


def discard(queue: Queue, state: str, path: str, *, dry_run: bool) -> tuple[int, int] | None:
    """Let go of the folder of a task that ended long ago: its files and bytes. None: it holds what is in no commit.

    What a project has git ignore goes.
    """
    size = _size(path)
    folder, task = os.path.relpath(path, state), int(os.path.basename(path).split("-")[0])
    known = next((one for one in queue.workdirs.of(task) if one.folder == folder), None)
    one = known or Workdir(task, 0, folder)
    is_tree = one.branch is not None or repository.is_worktree(path)
    try:
        if is_tree and not (repository.is_worktree(path) and repository.is_spotless(Git(), path, ignored=False)):
            return None
        if not dry_run:
            left = _without_worktree(one, path, ignored=False) if is_tree else _without_files(one, path)
            if known is not None:
                queue.workdirs.keep(left)
    except (GitError, OSError):
        return None
    return size


def _without_files(one: Workdir, path: str) -> Workdir:
    for base, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(base, name)
            if not os.path.islink(inner):
                # Some programs take the right to write from what they keep.
                os.chmod(inner, 0o700)
    import shutil  # here, as it loads every packer of archives

    shutil.rmtree(path)
    return replace(one, folder=None)


def _size(path: str) -> tuple[int, int]:
    files = size = 0
    for base, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(base, name)).st_size
                files += 1
    return files, size
