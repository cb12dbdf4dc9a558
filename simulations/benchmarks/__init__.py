"""What the learners and solvers reach, and at what cost, beside others in the same run."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def keep(name: str, result: Any, packages: Sequence[str] = ("river", "numpy", "numba")) -> None:
    """Write a result beside this file, with the versions of the packages it was made with."""
    versions = {package: importlib.metadata.version(package) for package in packages}
    replace(RESULTS / f"{name}.json", json.dumps({"versions": versions, "result": result}, indent=1) + "\n")


def replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
