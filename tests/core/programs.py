"""Programs that print lines of JSON, with and without the compiler."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def printed(program: str) -> list[Any]:
    """Return the output of a program, run in this process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(program, {})
    return [json.loads(line) for line in said.getvalue().splitlines()]


def printed_uncompiled(program: str) -> list[Any]:
    """Return the output of a program, run without the compiler."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
