"""What a mode does with a task: a function or a command, made into one callable that returns an outcome."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from orch import clock, jsontext, kin
from orch.errors import UsageError
from orch.limits import Limits
from orch.modes import RUN, Mode
from orch.outcomes import Cut, Done, Evidence, Failed, Later, Outcome, metrics_in
from orch.records import Task
from orch.work import command, function, output
from orch.work.slate import Slate

Labour = Callable[[Task], Outcome]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a worker works: the database's path, the project's folder, the state folder, and who it is.

    ``cut`` gives a reason to end the command that runs for a task, or None.
    """

    database: str
    project: str
    state: str
    worker: int
    fire: int | None
    limits: Limits
    cut: Callable[[Task], str | None]


def labour(mode: Mode, bench: Bench) -> Labour:
    """How tasks of a mode are done here; an `OrchError` when the mode's function cannot be loaded."""
    if mode.function is not None:
        return _function_labour(mode, bench)
    slate = Slate(bench.state, bench.worker)
    # Read once: a copy of the environment for every command would cost as much as the claim.
    inherited = {**os.environ, kin.DATABASE_MARK: bench.database, "ORCH_WORKER": str(bench.worker)}
    if bench.fire is not None:
        inherited["ORCH_FIRE"] = str(bench.fire)
    return lambda task: _run_command(mode, bench, inherited, slate, task)


def _function_labour(mode: Mode, bench: Bench) -> Labour:
    assert mode.function is not None
    spool = output.Spool(bench.state, bench.worker, bench.limits.output_cap)
    loaded = function.load(mode.function, bench.project)

    def do(task: Task) -> Outcome:
        outcome = function.call(loaded, task)
        said = _flushed(spool)
        if not said:
            return outcome
        kept = _kept(bench, task, {"out": said})
        return replace(outcome, evidence=replace(outcome.evidence, output=kept))

    return do


def _kept(bench: Bench, task: Task, streams: dict[str, bytes]) -> str | None:
    """Where the output lies. What cannot be stored is let go: it does not decide what the task came to."""
    try:
        return output.store(bench.state, output.name_of(task.id, task.attempts), streams)
    except OSError:
        return None


def _flushed(spool: output.Spool) -> bytes:
    import sys

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    return spool.take()


def _run_command(mode: Mode, bench: Bench, inherited: dict[str, str], slate: Slate, task: Task) -> Outcome:
    try:
        words, folder = _words(mode, bench, task)
        rest = None if task.deadline_at is None else (clock.moment(task.deadline_at) - clock.now()).total_seconds()
        ran = command.run(
            words,
            stdin=_as_json(task).encode(),
            environment={**inherited, "ORCH_TASK_ID": str(task.id), "ORCH_CLAIM": str(task.attempts)},
            folder=folder,
            timeout=rest,
            cap=bench.limits.output_cap,
            grace=bench.limits.grace_sec,
            cut=lambda: bench.cut(task),
            began=lambda leader: slate.write(task, leader),
            alone=True,
        )
        slate.wipe()
    except (command.CannotRun, UsageError) as error:
        return Failed(str(error))
    result = _result(ran.out)
    kept = _kept(bench, task, {"out": ran.out.content(), "err": ran.err.content()})
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
        folder = mode.folder or ""
        return command.fill(mode.command, payload), os.path.join(bench.project, folder)
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
            return jsontext.checked(text, "result")
        except UsageError:
            pass
    return jsontext.dump(text, "result")


def _last_line(ran: command.Ran) -> str:
    for stream in (ran.err, ran.out):
        lines = stream.text().strip().splitlines()
        if lines:
            return lines[-1].strip()[:500]
    return ""
