"""Chaos, for a moment: whatever is killed, stopped, filled or set wrong, the audit finds every promise held."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[2] / "scripts" / "chaos"


@pytest.mark.parametrize(
    ("seconds", "seed"), [(5, 11), pytest.param(60, 12, marks=pytest.mark.full)], ids=["moment", "minute"]
)
@pytest.mark.timeout(600)
def test_every_promise_holds_in_chaos(tmp_path: Path, seconds: int, seed: int) -> None:
    words = [sys.executable, str(CHAOS), "--seconds", str(seconds), "--seed", str(seed)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=580)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "every promise held" in ran.stdout
