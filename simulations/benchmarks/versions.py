"""Comparison of two versions of this package, with alternating measurements."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parents[2])
BUSY = "while True: pass"


class Load:
    """Context with busy processes."""

    def __init__(self, n: int) -> None:
        self._n, self._processes = n, list[subprocess.Popen[bytes]]()

    def __enter__(self) -> None:
        self._processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(self._n)]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def ask(checkout: str, module: str, *arguments: str) -> Any:
    """Run a module of this checkout with the package of another.

    Returns its JSON output.
    """
    path = os.pathsep.join([checkout, str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / f"{module}.py"), *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def in_turn(module: str, arguments: Sequence[str], beside: str | None, repeats: int) -> dict[str, dict[str, float]]:
    """Return the medians of a module's measurements, here and in another checkout.

    The order alternates.
    """
    checkouts = {"now": HERE} | ({"before": beside} if beside else {})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for i in range(repeats):
        for name in sorted(checkouts, reverse=bool(i % 2)):
            found[name].append(ask(checkouts[name], module, *arguments))
    return {name: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for name, runs in found.items()}
