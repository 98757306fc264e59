"""What runs here, in one line."""

from __future__ import annotations

import importlib
import os
import sys

from orch import __version__
from orch.database.sqlite import linked
from orch.program import BINARY


def told() -> str:
    """The versions of orch, of Python, of apsw and of the SQLite that is really linked, and the build."""
    return f"orch {__version__}, Python {'.'.join(map(str, sys.version_info[:3]))}, {linked()}, {_build()}"


def _build() -> str:
    if BINARY:
        return f"binary of {importlib.import_module('BUILD_CONSTANTS').ORCH_BUILD}"
    return f"package in {os.path.dirname(os.path.dirname(__file__))}"
