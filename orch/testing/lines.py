"""Command lines that are run in this very process, on the queue of a test."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orch import cli


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command line went: its exit code, what it answered, and what it said beside that."""

    exit_code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The data of an answer in JSON (``--json``)."""
        return json.loads(self.out)["data"]


class CommandLine:
    """Runs ``orch`` with the words of a command line, in a folder and on a queue (None: that of its project)."""

    def __init__(self, folder: str, database: str | None = None) -> None:
        self.folder = folder
        self._database = database

    def __call__(
        self, *words: str, code: int | None = 0, stdin: str | bytes = "", env: Mapping[str, str] | None = None
    ) -> Ran:
        """Run one command line to its end, with ``orch.toml`` looked for in the folder of the test.

        `code` is the exit code that it has to have; None takes any. `env` is added to the environment, in which no
        variable of orch's stands otherwise.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        queue = {} if self._database is None else {"ORCH_DB": self._database}
        with _streams(data) as (out, err), _surroundings({**queue, **(env or {})}):
            with contextlib.chdir(self.folder):
                exit_code = cli.run([str(word) for word in words])
            sys.stdout.flush()
            sys.stderr.flush()
        ran = Ran(exit_code, out.getvalue().decode(), err.getvalue().decode())
        if code is not None and ran.exit_code != code:
            __tracebackhide__ = True
            line = " ".join(map(str, words))
            raise AssertionError(f"'orch {line}' ended with {ran.exit_code} and not {code}:\n{ran.out}{ran.err}")
        return ran


@contextlib.contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout, sys.stderr = (io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in (out, err))
    try:
        yield out, err
    finally:
        streams = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in streams:
            # Closing it would close what was written too.
            with contextlib.suppress(ValueError, OSError):
                stream.detach()


@contextlib.contextmanager
def _surroundings(named: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("ORCH_")]:
        del os.environ[name]
    os.environ.update(named)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
