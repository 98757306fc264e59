"""The command line: a table of commands, each imported when it is run, and the one place where errors are shown."""

from __future__ import annotations

import importlib
import io
import itertools
import os
import sys
from collections.abc import Sequence

import click

from orch import program
from orch.cli.talk import Talk
from orch.errors import OrchError

# Name, one line of help, and where the command is defined.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("Make a project here: settings, queue, crontab lines.", "orch.cli.init:init"),
    "add": ("Add tasks to the queue.", "orch.cli.add:add"),
    "delegate": ("Add the DELEGATEs of files: orders for agents.", "orch.cli.handoff:delegate"),
    "asks": ("List what waits for a person.", "orch.cli.asks:asks"),
    "answer": ("Answer what was asked; the task goes on.", "orch.cli.asks:answer"),
    "handback": ("Hand in an agent's answer, or take it out of what was printed.", "orch.cli.handoff:handback"),
    "heartbeat": ("Give a sign of life for one's own task.", "orch.cli.heartbeat:heartbeat"),
    "fire": ("Run one fire: clean up, decide, fan out, wait, write one note.", "orch.cli.fire:fire"),
    "poll": ("Drain the queue until it is idle, or for ever.", "orch.cli.poll:poll"),
    "wake": ("Wake the poll that sleeps.", "orch.cli.poll:wake"),
    "sweep": ("Recover what the dead left behind, between fires.", "orch.cli.sweep:sweep"),
    "watchdog": ("Alarm (exit 7) when a fire that was due did not happen.", "orch.cli.watchdog:watchdog"),
    "plan": ("Show what a fire would decide, and why.", "orch.cli.plan:plan"),
    "tell": ("Leave a text for the decider.", "orch.cli.tell:tell"),
    "budget": ("Show what was spent, beside the caps on it.", "orch.cli.budget:budget"),
    "tail": ("Watch the queue live.", "orch.cli.tail:tail"),
    "status": ("Show modes, caps, budget, watchdog and fires.", "orch.cli.status:status"),
    "list": ("List tasks, the newest first.", "orch.cli.tasks:list_tasks"),
    "show": ("Show one task with its attempts and events.", "orch.cli.tasks:show"),
    "log": ("Print what a task wrote.", "orch.cli.tasks:log"),
    "retry": ("Queue failed, crashed or done tasks again.", "orch.cli.moves:retry"),
    "cancel": ("Cancel tasks; a running one is killed.", "orch.cli.moves:cancel"),
    "pause": ("Let nobody claim from a mode.", "orch.cli.moves:pause"),
    "resume": ("End a pause.", "orch.cli.moves:resume"),
    "prune": ("Let go of tasks that ended long ago.", "orch.cli.prune:prune"),
    "spans": ("Show a fire or a task as spans, or export them.", "orch.cli.spans:spans"),
    "fires": ("List the last fires.", "orch.cli.history:fires"),
    "notes": ("Print the last notes.", "orch.cli.history:notes"),
}


class Table(click.Group):
    """A group that knows its commands' names and help lines without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][1].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        if isinstance(ctx.obj, Talk) and ctx.obj.alone:
            program.hear_interrupts()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in COMMANDS.items()])


def _tell_version(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        from orch import versions

        click.echo(versions.told())
        ctx.exit()


@click.group(
    cls=Table, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, no_args_is_help=True
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_tell_version,
    help="Tell the versions of orch, Python and SQLite, and the build.",
)  # fmt: skip
def cli() -> None:
    """One decider, many disposable workers, one queue in one file.

    'orch COMMAND --help' tells more of each command.
    """


def run(arguments: Sequence[str], *, alone: bool = False) -> int:
    """Run one command line; the exit code. Every error that a person can act on is one line on standard error.

    With `alone` this process does nothing else, so that all its children are the command's.
    """
    _tolerate_any_text()
    # Before the call is understood, so that an error in it is answered in the right form.
    asked = itertools.takewhile(lambda word: word != "--", arguments)
    talk = Talk(as_json="--json" in asked, alone=alone)
    try:
        code = _invoke(arguments, talk)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has enough; as for any program that is ended by its pipe.
        _close_quietly()
        return 141
    except OSError as error:
        about = "the output cannot be written" if error.filename is None else str(error.filename)
        if error.filename is None:
            _close_quietly()
        talk.error("storage", f"{about}: {error.strerror or error}", 1)
        return 1
    return 0 if code in talk.accepted else code


def _invoke(arguments: Sequence[str], talk: Talk) -> int:
    try:
        result = cli.main(list(arguments), prog_name="orch", standalone_mode=False, obj=talk)
    except OrchError as error:
        talk.error(error.kind, str(error), error.exit_code)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        hint = f" (see '{error.ctx.command_path} --help')" if isinstance(error, click.UsageError) and error.ctx else ""
        talk.error("usage", error.format_message() + hint, error.exit_code)
        return error.exit_code
    except SystemExit as error:
        if error.code != 1:
            raise
        # How click ends when the reader of its output is gone.
        raise BrokenPipeError from None
    except (click.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0


def _tolerate_any_text() -> None:
    """Text that the terminal's encoding cannot show is escaped, not an error; a closed stream takes anything."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        else:
            if isinstance(stream.buffer, io.RawIOBase):
                # PYTHONUNBUFFERED: without a buffer Python takes a partial write for a whole one.
                stream = io.TextIOWrapper(io.BufferedWriter(stream.buffer), encoding=stream.encoding)
                setattr(sys, name, stream)
            stream.reconfigure(errors="backslashreplace")


def _close_quietly() -> None:
    """Keep Python from trying the broken stream once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
