"""The console that all tables go to; apart, as it loads rich."""

from __future__ import annotations

from rich.console import Console


class PipeConsole(Console):
    """A console that leaves a closed pipe to the program's own end, where its exit code is chosen."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
