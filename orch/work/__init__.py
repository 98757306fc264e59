"""What a mode does with a task: a function or a command, made into one callable that returns an outcome."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orch import clock, jsontext
from orch.errors import OrchError, UsageError
from orch.limits import LARGEST_RESULT, Limits
from orch.modes import Mode
from orch.names import RUN
from orch.outcomes import Cut, Done, Evidence, Failed, Later, Outcome, metrics_in
from orch.queue import Queue
from orch.records import Task
from orch.work import command, function, git, output, workdir
from orch.work.slate import Slate

if TYPE_CHECKING:
    from orch.handoff import Handback
    from orch.workdirs import Workdir

Labour = Callable[[Task], Outcome]

# Seconds between looks at how much a function has written.
_TRIM_PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a worker works: the database's path, the project's folder, the state folder, and who it is.

    ``roles`` are those that an agent's answer may name, ``judge`` the mode that judges answers here (None: nobody).
    ``cut`` gives a reason to end the command that runs for a task, or None; ``edge`` is the stamp of the worker's wall
    clock. The queue is the worker's own connection. Below ``root`` an agent may leave its answer as a file. Commands
    find the ``marks`` in their environment. Where the process is ``alone`` it has no children but theirs. What is
    opened for the work is closed by ``exits``, which matters where the worker is not a process of its own.
    """

    database: str
    project: str
    state: str
    worker: int
    fire: int | None
    limits: Limits
    roles: tuple[str, ...]
    cut: Callable[[Task], str | None]
    queue: Queue
    edge: Callable[[], str | None]
    judge: Mode | None = None
    root: str | None = None
    python_path: tuple[str, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    alone: bool = True
    exits: ExitStack = field(default_factory=ExitStack)


def labour(mode: Mode, bench: Bench) -> Labour:
    """How tasks of a mode are done here; an `OrchError` when the mode's function cannot be loaded."""
    if mode.function is not None:
        return _function_labour(mode, bench)
    desk = _Desk(bench)
    # Read once: a copy of the environment for every command would cost as much as the claim.
    inherited = {**os.environ, **bench.marks}
    if mode.agent is not None:
        _check_agent(mode, bench, inherited)
        return lambda task: _run_agent(mode, bench, inherited, desk, task)
    return lambda task: _run_command(mode, bench, inherited, desk, task)


class _Desk:
    """What a worker that runs commands keeps beside it: its slate, and the spools of both streams."""

    def __init__(self, bench: Bench) -> None:
        self.slate = Slate(bench.state, bench.worker)
        out, err = (
            output.Spool(bench.state, bench.worker, ending, bench.limits.output_cap) for ending in output.ENDINGS
        )
        self.spools = (out, err)
        for opened in (self.slate, out, err):
            bench.exits.callback(opened.close)

    def clear(self) -> None:
        """A command is over, and its output is stored."""
        self.slate.wipe()
        for spool in self.spools:
            spool.clear()


def _function_labour(mode: Mode, bench: Bench) -> Labour:
    assert mode.function is not None
    spool = output.Spool(bench.state, bench.worker, "out", bench.limits.output_cap)
    spool.take_over(1, 2)
    loaded = function.load(mode.function, bench.project, bench.python_path)
    ground = _Ground(spool, bench.project)

    def do(task: Task) -> Outcome:
        ground.restore()
        outcome = function.call(loaded, task)
        said = _flushed(spool)
        if not said:
            return outcome
        kept = _kept(bench, task, {"out": said})
        return replace(outcome, evidence=replace(outcome.evidence, output=kept))

    return do


class _Ground:
    """What every function finds at its start, whatever the one before it did to the process that they share."""

    def __init__(self, spool: output.Spool, project: str) -> None:
        self._spool = spool
        self._streams = (sys.stdout, sys.stderr)
        try:
            self._folder = os.getcwd()
        except OSError:
            self._folder = project
        threading.Thread(target=self._trim, name="spool", daemon=True).start()

    def restore(self) -> None:
        self._spool.take_over(1, 2)
        sys.stdout, sys.stderr = (
            open(number, "w", closefd=False, encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
            if stream is None or stream.closed
            else stream
            for number, stream in enumerate(self._streams, 1)
        )
        self._streams = (sys.stdout, sys.stderr)
        try:
            os.chdir(self._folder)
        except OSError:
            # It is gone; where they are now is as good as any other place.
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _trim(self) -> None:
        while True:
            clock.sleep(_TRIM_PAUSE)
            self._spool.trim()


def _kept(bench: Bench, task: Task, streams: dict[str, bytes]) -> str | None:
    """Where the output lies. What cannot be stored is let go: it does not decide what the task came to."""
    try:
        return output.store(bench.state, output.name_of(task.id, task.attempts), streams)
    except OSError:
        return None


def _flushed(spool: output.Spool) -> bytes:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            # The function may have put anything in its place.
            continue
    return spool.take()


def _check_agent(mode: Mode, bench: Bench, environment: Mapping[str, str]) -> None:
    """Before a task is claimed: a program, a folder or a repository that is not there fails none of them."""
    assert mode.command is not None
    assert mode.agent is not None
    folder = mode.folder_in(bench.project)
    if not os.path.isdir(folder):
        raise OrchError(f"its working folder {folder} is not there: make it, or name another one")
    if mode.agent.workdir == "worktree":
        git.check(folder, environment)
    program, path = mode.command[0], environment.get("PATH", os.defpath)
    import shutil  # here, as it loads every packer of archives

    if "{" not in program and shutil.which(program, path=path) is None:
        raise OrchError(f"its program {program!r} is not on PATH={path}: install it, or name it by its whole path")


def _run_agent(mode: Mode, bench: Bench, inherited: dict[str, str], desk: _Desk, task: Task) -> Outcome:
    from orch.work import gate, improvement

    if bench.queue.asks.relation(task.id) == gate.RELATION:
        return Failed("its judging was broken off; it is judged anew with the task that it is about", again=False)

    said: list[dict[str, Any]] = []
    kept = gate.kept(bench.queue, task)
    try:
        own = workdir.make(mode, bench, task) if kept is None else workdir.of_answer(mode, bench, task)
    except workdir.NoWorkdir as error:
        return error.outcome

    def work(one: Task, its: Mode) -> Outcome:
        outcome, handback = _as_agent(its, bench, inherited, desk, one, claim=task, own=own)
        said.extend(handback.skill_feedback if handback else ())
        return outcome

    outcome = kept or work(task, mode)
    if bench.judge is not None and isinstance(outcome, Done) and outcome.also is None:
        limits = bench.limits
        least = limits.gate_min_confidence, limits.gate_min_quality
        outcome = gate.judged(bench.queue, task, outcome, bench.judge, work, least=least, until=bench.edge())
    if not gate.waits(bench.queue, task, outcome):
        workdir.tidy(bench.queue, task, bench.state)
    if not said or not isinstance(outcome, Done | Failed):
        return outcome
    before = outcome.also

    def also(queue: Queue) -> None:
        if before is not None:
            before(queue)
        improvement.record(queue, task.id, said, bench.limits.skill_improvement_threshold)

    return replace(outcome, also=also)


def ask_agent(mode: Mode, bench: Bench, task: Task, *, judged: Task | None = None) -> tuple[Outcome, Handback | None]:
    """Do a task as an agent outside of a worker: where its answer leads, and it. `OrchError` without a program.

    A judge works where the task that is `judged` was worked on.
    """
    inherited = dict(os.environ)
    _check_agent(mode, bench, inherited)
    try:
        own = workdir.make(mode, bench, task) if judged is None else workdir.of_answer(mode, bench, judged)
    except workdir.NoWorkdir as error:
        return error.outcome, None
    return _as_agent(mode, bench, inherited, _Desk(bench), task, claim=task, own=own)


def _as_agent(
    mode: Mode,
    bench: Bench,
    inherited: dict[str, str],
    desk: _Desk,
    task: Task,
    *,
    claim: Task,
    own: Workdir | None,
) -> tuple[Outcome, Handback | None]:
    """Do a task as an agent, as long as a claim stands: its own, or that on the task that it is about.

    It works in the project or, where there is one, in a folder of its `own`.
    """
    from orch.folders.root import Root
    from orch.handoff import words
    from orch.work import agent

    folder = mode.folder_in(bench.project) if own is None else workdir.place(bench.state, own)
    if own is not None:
        inherited = {**workdir.surroundings(bench.state, own, inherited), "PWD": folder}

    def run(line: list[str], stdin: str, timeout: float | None, environment: Mapping[str, str]) -> command.Ran:
        ran = command.run(
            line,
            stdin=stdin.encode("utf-8", "replace"),
            environment={
                **environment,
                "ORCH_PROJECT": bench.project,
                "ORCH_TASK_ID": str(task.id),
                "ORCH_CLAIM": str(task.attempts),
            },
            folder=folder,
            timeout=timeout,
            cap=agent.READ_CAP,
            spools=desk.spools,
            grace=bench.limits.grace_sec,
            cut=lambda: bench.cut(claim),
            began=lambda leader: desk.slate.write(claim, leader),
            alone=bench.alone,
        )
        desk.clear()
        return ran

    try:
        return agent.do(
            task,
            mode,
            project=folder,
            state=bench.state,
            lineage=bench.queue.asks.ancestors(task.id),
            roles=tuple(words.all_roles(bench.roles)),
            root=None if bench.root is None else Root(bench.root),
            place="" if own is None else workdir.told(own, folder),
            environment=inherited,
            run=run,
            keep=lambda streams: _kept(bench, task, {
                ending: output.clipped(data, bench.limits.output_cap) for ending, data in streams.items()
            }),
        )  # fmt: skip
    except (command.CannotRun, UsageError) as error:
        return Failed(str(error)), None


def _run_command(mode: Mode, bench: Bench, inherited: dict[str, str], desk: _Desk, task: Task) -> Outcome:
    try:
        words, folder = _words(mode, bench, task)
        ran = command.run(
            words,
            stdin=_as_json(task).encode(),
            environment={**inherited, "ORCH_TASK_ID": str(task.id), "ORCH_CLAIM": str(task.attempts)},
            folder=folder,
            timeout=task.allotted,
            cap=bench.limits.output_cap,
            spools=desk.spools,
            grace=bench.limits.grace_sec,
            cut=lambda: bench.cut(task),
            began=lambda leader: desk.slate.write(task, leader),
            alone=bench.alone,
        )
    except (command.CannotRun, UsageError) as error:
        return Failed(str(error))
    result = _result(ran.out)
    kept = _kept(bench, task, {"out": ran.out.content(), "err": ran.err.content()})
    desk.clear()
    # Whatever it came to: what was spent on a failure is spent.
    evidence = Evidence(ran.exit_code, kept, metrics_in(result), tuple(ran.left))
    if ran.cut:
        return Cut(ran.cut, f"ended for its {ran.cut}", evidence)
    match ran.exit_code:
        case 0:
            return Done(result, evidence)
        case command.NOT_NOW:
            return Later(_last_line(ran) or "not now", evidence=evidence)
    return Failed(f"{command.describe_exit(ran.exit_code)}: {_last_line(ran)}".removesuffix(": "), evidence)


def _words(mode: Mode, bench: Bench, task: Task) -> tuple[list[str], str]:
    """The words of the command and the folder that it runs in."""
    payload = jsontext.parse_as_written(task.payload_text)
    if mode.command is not None:
        return command.fill(mode.command, payload), mode.folder_in(bench.project)
    words = payload.get("words") if isinstance(payload, dict) else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise command.CannotRun(
            f"a task of the mode {RUN!r} needs a list of words: add it with 'orch add --cmd -- WORDS'"
        )
    return words, os.path.join(bench.project, str(payload.get("folder") or ""))


def _as_json(task: Task) -> str:
    """The task as a command reads it; the payload's own text, so that its numbers stay exact."""
    head = jsontext.dump({"id": task.id, "mode": task.mode, "key": task.key, "attempt": task.attempts})
    return f'{head[:-1]},"payload":{task.payload_text}}}\n'


def _result(out: output.Capture) -> str | None:
    """A command's standard output as its result: JSON when it is JSON, else the text; None when it said nothing."""
    text = out.text().strip()
    if not text:
        return None
    if not out.cut and text[0] in '{["-0123456789tfn':
        try:
            return jsontext.checked(text, "result") if len(text) <= LARGEST_RESULT else None
        except UsageError:
            pass
    # A larger one is in the output's file.
    return jsontext.dump(text, "result") if len(text) <= LARGEST_RESULT // 6 else None


def _last_line(ran: command.Ran) -> str:
    for stream in (ran.err, ran.out):
        lines = stream.text().strip().splitlines()
        if lines:
            return lines[-1].strip()[:500]
    return ""
