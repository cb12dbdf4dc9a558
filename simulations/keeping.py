"""Storage of results and plots: atomic writes, with the versions of packages."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "simulations" / "results"
PICTURES = ROOT / "simulations" / "pictures"
DOCS = ROOT / "docs"


def keep(name: str, result: Any, packages: Sequence[str] = ("river", "numpy", "numba"), lines: bool = False) -> None:
    """Write a result with the machine and the versions of the packages.

    With `lines`, each entry of the result takes one line.
    """
    made_with = {package: importlib.metadata.version(package) for package in packages}
    if lines:
        head = f'"versions": {json.dumps(made_with)},\n"machine": {json.dumps(machine())}'
        text = f'{{{head},\n"result": {{\n{by_line(result)}\n}}}}'
    else:
        text = json.dumps({"versions": made_with, "machine": machine(), "result": result}, indent=1)
    replace(RESULTS / f"{name}.json", text + "\n")


def kept(name: str) -> Any:
    """Read a stored result; empty if there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["result"] if path.exists() else {}


def by_line(entries: dict[str, Any]) -> str:
    """Return the inside of a JSON object with one line per entry."""
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items())


def rounded(measured: dict[str, float]) -> dict[str, float]:
    """Round measurements to five significant digits."""
    return {name: float(f"{value:.5g}") for name, value in measured.items()}


def replace(path: Path, content: str | bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def machine() -> dict[str, Any]:
    """Describe the machine that the times are measured on."""
    model = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        names = [line for line in listing.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version()}
