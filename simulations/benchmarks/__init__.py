"""What the learners and solvers reach, and at what cost, beside others in the same run."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "pictures"


def keep(name: str, result: Any, packages: Sequence[str] = ("river", "numpy", "numba"), lines: bool = False) -> None:
    """Write a result beside this file, with the versions of the packages it was made with.

    With `lines`, each entry of the result takes one line.
    """
    versions = {package: importlib.metadata.version(package) for package in packages}
    if lines:
        text = f'{{"versions": {json.dumps(versions)},\n"result": {{\n{by_line(result)}\n}}}}'
    else:
        text = json.dumps({"versions": versions, "result": result}, indent=1)
    replace(RESULTS / f"{name}.json", text + "\n")


def kept(name: str) -> Any:
    """A result as it was kept; empty where there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["result"] if path.exists() else {}


def by_line(entries: dict[str, Any]) -> str:
    """The inside of a JSON object, one line an entry."""
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items())


def rounded(measured: dict[str, float]) -> dict[str, float]:
    """What is worth keeping of measures."""
    return {name: float(f"{value:.5g}") for name, value in measured.items()}


def replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
