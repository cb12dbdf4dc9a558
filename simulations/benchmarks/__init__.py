"""What the learners and solvers reach, and at what cost, beside others in the same run."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def keep(name: str, result: Any, packages: Sequence[str] = ("river", "numpy", "numba")) -> None:
    """Write a result beside this file, with the versions of the packages it was made with."""
    RESULTS.mkdir(exist_ok=True)
    versions = {package: importlib.metadata.version(package) for package in packages}
    (RESULTS / f"{name}.json").write_text(json.dumps({"versions": versions, "result": result}, indent=1) + "\n")
