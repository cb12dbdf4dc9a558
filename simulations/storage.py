"""Storage of results and plots: atomic writes, and how each result was measured."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "simulations" / "results"
PICTURES = ROOT / "simulations" / "pictures"
DOCS = ROOT / "docs"
# Between the parts of the name of a result, such as stream, delay and learner.
SEPARATOR = " / "

RESULTS_LAST_CHANGED_AT = {
    "learners": ("96c168b7", "2026-11-29T20:12:39+00:00"),
    "late labels": ("96c168b7", "2026-11-29T20:12:39+00:00"),
    "monitor": ("ada85d00", "2026-11-28T02:01:41+00:00"),
    "solvers": ("857f33d1", "2026-11-27T12:29:38+00:00"),
}
"""Last commits that changed results: of learners, late labels, solvers.

Set it with each such change: tables mark our results of older commits.
"""

Rows = dict[str, dict[str, Any]]
"""Measures of each result, by the name of the result."""


class Results:
    """The results of a benchmark in a JSON file, one per line.

    `runs` lists how results were measured; each result has the index of its run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read()

    def _read(self) -> None:
        kept = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        self.runs: list[dict[str, Any]] = kept.get("runs", [])
        self.rows: Rows = kept.get("rows", {})

    def __contains__(self, key: str) -> bool:
        return key in self.rows or any(name.startswith(key + SEPARATOR) for name in self.rows)

    def add(self, rows: Rows, run: dict[str, Any]) -> None:
        """Store results at once; another process may have stored others meanwhile."""
        self._read()
        if run not in self.runs:
            self.runs.append(run)
        index = self.runs.index(run)
        self.rows |= {key: {"run": index} | measured for key, measured in rows.items()}
        self._drop_unused_runs()
        runs = ",\n".join(map(json.dumps, self.runs))
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in self.rows.items())
        replace(self.path, f'{{"runs": [\n{runs}\n],\n"rows": {{\n{lines}\n}}}}\n')

    def _drop_unused_runs(self) -> None:
        used = sorted({row["run"] for row in self.rows.values()})
        for row in self.rows.values():
            row["run"] = used.index(row["run"])
        self.runs = [self.runs[index] for index in used]

    def older(self, subject: str, others: Iterable[str] = ()) -> set[str]:
        """Return our results that are older than their last change."""
        return {
            key
            for key, row in self.rows.items()
            if "source" not in (run := self.runs[row["run"]])
            and set(others).isdisjoint(key.split(SEPARATOR))
            and is_older(run["date"], subject)
        }


def is_older(date: str, subject: str) -> bool:
    """Return whether a commit date precedes the last change of a subject's results.

    Also true for an empty date, which is unknown.
    """
    return not date or datetime.fromisoformat(date) < datetime.fromisoformat(RESULTS_LAST_CHANGED_AT[subject][1])


def provenance(packages: Sequence[str]) -> dict[str, Any]:
    """Describe a measurement: commit, command, machine and package versions."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name.removesuffix(".__main__") if spec else "simulations"
    command = shlex.join(["python", "-m", module, *sys.argv[1:]])
    for folder, name in ((os.environ.get("STREAMSVM_DATA"), "$STREAMSVM_DATA"), (str(ROOT), ".")):
        command = command.replace(folder, name) if folder else command
    return {
        **commit(),
        "command": command,
        "machine": machine(),
        "versions": versions(packages),
    }


def commit() -> dict[str, str]:
    """Return commit and date of the checkout; a + marks uncommitted code changes."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        head, date = git("show", "-s", "--abbrev=8", "--format=%h %cI", "HEAD").split()
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "*.py")
    except (OSError, subprocess.CalledProcessError):
        return {"commit": "unknown", "date": ""}
    return {"commit": head + "+" * bool(changed), "date": date}


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of the installed packages among these."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Describe the machine that the times are measured on."""
    model = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        names = [line for line in listing.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version()}


def rounded(measured: Mapping[str, float], digits: int = 5) -> dict[str, float]:
    """Round measurements to significant digits."""
    return {name: float(f"{value:.{digits}g}") for name, value in measured.items()}


def replace(path: Path, content: str | bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
