"""Git, as far as worktrees go: the only caller of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from orch import clock
from orch.errors import OrchError
from orch.work import command

# Whatever is below it belongs to attempts: ``orch/{task_id}-{attempt}``.
BRANCHES = "orch"
# What ties git to a repository whatever folder it is started in, as in the hooks of a repository.
TIES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_CEILING_DIRECTORIES",
)  # fmt: skip
# A hook is made for a person's checkout, and one that waits or fails would hold an attempt up; locks are waited for.
_SETTINGS = (
    "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false",
    "-c", "core.filesRefLockTimeout=1000", "-c", "core.packedRefsTimeout=1000",
)  # fmt: skip
_SETTING = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# Seconds between the tries of what others may hold a lock on.
_PAUSES = (0.1, 0.3, 1.0, 3.0)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class GitError(OrchError):
    """Git could not do it; ``cut`` says why it was ended, if it was."""

    def __init__(self, message: str, cut: str | None = None) -> None:
        super().__init__(message)
        self.cut = cut


@dataclass(frozen=True, slots=True)
class Git:
    """How git is run: for so many seconds at the most, and until ``cut`` gives a reason to end it."""

    timeout: float | None = 600.0
    cut: Callable[[], str | None] = lambda: None

    def __call__(self, folder: str, *words: str) -> str:
        """What git prints in a folder; `GitError` in its own words when it fails."""
        inherited = {name: value for name, value in os.environ.items() if name not in TIES}
        try:
            ran = command.run(
                ["git", *_SETTINGS, *words],
                environment={**inherited, **_SETTING},
                folder=folder,
                timeout=self.timeout,
                cut=self.cut,
            )
        except command.CannotRun as error:
            raise GitError(str(error)) from None
        if ran.cut or ran.exit_code:
            said = ran.err.text().strip() or command.describe_exit(ran.exit_code)
            raise GitError(f"git {words[0]}: {' '.join(said.split())[-500:]}", ran.cut)
        return ran.out.text().removesuffix("\n")

    def patiently(self, folder: str, *words: str) -> str:
        """The same of what others may be in the way of for a moment."""
        for pause in _PAUSES:
            try:
                return self(folder, *words)
            except GitError as error:
                if error.cut:
                    raise
            clock.sleep(pause)
        return self(folder, *words)

    def has(self, folder: str, ref: str) -> bool:
        try:
            self(folder, "show-ref", "--verify", "--quiet", ref)
        except GitError:
            return False
        return True


def check(folder: str, environment: Mapping[str, str]) -> None:
    """Before a task is claimed: an `OrchError` says what keeps worktrees from being made of a folder's repository."""
    path = environment.get("PATH", os.defpath)
    import shutil  # here, as it loads every packer of archives

    if shutil.which("git", path=path) is None:
        raise OrchError(f"its workdir is a worktree, and git is not on PATH={path}: install it, or set another workdir")
    git = Git()
    try:
        git(folder, "rev-parse", "--show-toplevel")
    except GitError as error:
        raise OrchError(
            f"its workdir is a worktree, and {folder} is in no git repository ({error}): run 'git init' there, or set"
            " another workdir"
        ) from None
    try:
        head(git, folder)
    except GitError:
        raise OrchError(
            f"its workdir is a worktree, and the repository of {folder} has no commit yet: make one"
        ) from None
    if git.has(folder, f"refs/heads/{BRANCHES}"):
        raise OrchError(
            f"its workdir is a worktree, and a branch {BRANCHES!r} is in the way of branches below {BRANCHES}/: rename"
            f" it with 'git branch -m {BRANCHES} NAME'"
        )


def head(git: Git, folder: str) -> str:
    """The commit that a folder is at."""
    return git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")


def below(git: Git, folder: str) -> str:
    """Where a folder lies below the root of its repository."""
    return git(folder, "rev-parse", "--show-prefix").rstrip("/")


def new_branch(git: Git, folder: str, name: str, base: str) -> str:
    """Make a branch that nobody has: as wanted, else with -2, -3 … behind it; its name."""
    wanted, number = f"{BRANCHES}/{_UNSAFE.sub('-', name)}", 1
    branch = wanted
    while True:
        # The old value makes it the one who made it, among all who try.
        if not git.has(folder, f"refs/heads/{branch}"):
            try:
                git.patiently(folder, "update-ref", "-m", "orch: an attempt begins", f"refs/heads/{branch}", base, "")
                return branch
            except GitError:
                if not git.has(folder, f"refs/heads/{branch}"):
                    raise
        number += 1
        branch = f"{wanted}-{number}"


def drop_branch(git: Git, folder: str, branch: str, base: str) -> bool:
    """Let a branch go to which nothing came; whether it is gone."""
    with suppress(GitError):
        # Only from that very commit: whoever has moved it keeps it.
        git(folder, "update-ref", "-d", f"refs/heads/{branch}", base)
    return not git.has(folder, f"refs/heads/{branch}")


def add_worktree(git: Git, folder: str, path: str, branch: str) -> None:
    # A worktree of the branch whose folder is gone is in nobody's way.
    git.patiently(folder, "worktree", "add", "--quiet", "--force", path, branch)


def is_worktree(path: str) -> bool:
    """Whether a folder still is one; an agent may do anything in it."""
    return os.path.isfile(os.path.join(path, ".git"))


def is_spotless(git: Git, path: str, *, ignored: bool) -> bool:
    """Whether all that is in a worktree is in a commit that some branch or tag has.

    With `ignored`, files that the project has git ignore count too.
    """
    what = ("--ignored",) if ignored else ()
    words = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none", *what)
    if git(path, *words):
        return False
    # It may stand at a commit that nothing else leads to.
    return not git(path, "rev-list", "--max-count=1", "HEAD", "--not", "--branches", "--tags", "--remotes")


def home_of(git: Git, path: str) -> str:
    """The folder that holds the repository of a worktree, whatever becomes of the worktree."""
    return os.path.join(path, git(path, "rev-parse", "--git-common-dir"))


def remove_worktree(git: Git, home: str, path: str) -> None:
    """Remove a worktree; git itself looks once more whether anything in it would be lost."""
    git.patiently(home, "worktree", "remove", path)
