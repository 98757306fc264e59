"""What every command shares: its common options, and the way its answer and its errors are put out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orch.errors import Stopped
from orch.legible import shown, shown_lines

if TYPE_CHECKING:
    from rich.console import Console

    from orch.place import Place
    from orch.queue import Queue

SCHEMA_VERSION = 1

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(slots=True)
class Talk:
    """The answers' form, as the common options set it; standard output is data, standard error is talk.

    ``alone`` says that the process is the command's own.
    """

    as_json: bool = False
    alone: bool = False
    quiet: bool = False
    accepted: frozenset[int] = frozenset({0})
    database: str | None = None
    config: str | None = None

    def place(self) -> Place:
        from orch.place import locate

        return locate(self.database, self.config)

    def queue(self, *, create: bool = False) -> Queue:
        from orch.queue import Queue

        place = self.place()
        if create:
            from orch import files

            files.make_private_folder(os.path.dirname(place.database))
        return Queue.open(place.database, create=create, durability=place.durability, by="person")

    def data(self, data: Any) -> None:
        """The answer as one JSON envelope."""
        envelope = {"schema_version": SCHEMA_VERSION, "data": data}
        click.echo(json.dumps(envelope, default=_plain, ensure_ascii=not _is_unicode(), indent=None))

    def show(self, data: Any, view: Callable[[], Any]) -> None:
        """The answer: as JSON where that is asked for, else as the renderable that `view` makes; nothing if quiet."""
        if self.as_json:
            self.data(data)
        elif not self.quiet:
            self.console().print(view())

    def views(self) -> ModuleType:
        """The module of renderables, loaded when something is shown."""
        from orch import views

        return views

    def line(self, data: Any, text: str) -> None:
        """The answer as one line of text, or as JSON."""
        if self.as_json:
            self.data(data)
        elif not self.quiet:
            click.echo(shown_lines(text))

    def say(self, text: str) -> None:
        """Talk beside the answer."""
        if not self.quiet:
            click.echo(shown(text), err=True)

    def news(self, text: str) -> None:
        """What has to be heard even where nothing is to be said when all is well."""
        message = (
            json.dumps({"schema_version": SCHEMA_VERSION, "news": text}) if self.as_json else f"orch: {shown(text)}"
        )
        try:
            click.echo(message, err=True)
        except OSError:
            pass

    def beside(self) -> AbstractContextManager[Any]:
        """Where the answer is JSON, what else is written to standard output (a note) goes to standard error."""
        return contextlib.redirect_stdout(sys.stderr) if self.as_json else contextlib.nullcontext()

    def error(self, kind: str, message: str, exit_code: int) -> None:
        if exit_code in self.accepted and self.quiet:
            return
        if self.as_json:
            error = {"kind": kind, "message": message, "exit_code": exit_code}
            message = json.dumps({"schema_version": SCHEMA_VERSION, "error": error})
        else:
            message = f"orch: {shown(message)}"
        try:
            click.echo(message, err=True)
        except OSError:
            pass

    def console(self) -> Console:
        from orch.cli.console import PipeConsole

        # Without a terminal nothing is cut: what is piped is read by programs.
        width = None if sys.stdout.isatty() else 1_000_000
        return PipeConsole(highlight=False, markup=False, emoji=False, width=width)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """TERM and HUP unwind what runs, as Ctrl-C does, so that nothing that it has started is left behind."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Stopped(f"stopped by {signal.Signals(signum).name}", signum)

    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def common(command: F) -> F:
    """The options that every command takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _set(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Talk), name, value)

    return callback


def _set_accepted(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value:
        try:
            codes = frozenset(int(code) for code in value.split(","))
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a list of exit codes such as 4,5") from None
        ctx.ensure_object(Talk).accepted = codes | {0}


_OPTIONS = (
    click.option("--db", "database", metavar="PATH", expose_value=False, is_eager=True, callback=_set("database"),
                 help="The queue's file, instead of the project's."),
    click.option("--config", metavar="FILE", expose_value=False, is_eager=True, callback=_set("config"),
                 help="The settings file, instead of the nearest orch.toml."),
    click.option("--json", is_flag=True, expose_value=False, is_eager=True, callback=_set("as_json"),
                 help="Answer as JSON."),
    click.option("-q", "--quiet", is_flag=True, expose_value=False, is_eager=True, callback=_set("quiet"),
                 help="Say nothing when all is well."),
    click.option("--ok", metavar="CODES", expose_value=False, is_eager=True, callback=_set_accepted,
                 help="Exit codes to turn into 0, such as 4,5."),
)  # fmt: skip


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
