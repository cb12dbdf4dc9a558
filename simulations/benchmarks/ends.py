"""`streamsvm run` end to end: CPU and wall time per event, for each file format.

The learner is CPM, the fastest; its own time is shown too. Predictions are written as CSV. `numbers` has ten numeric
columns. `mixed` has five numeric and five text columns. `gaps` has ten numeric columns with 1 % missing values.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from simulations.keeping import keep, kept

EVENTS, BATCH = 60_000, 1024
FORMATS, TABLES = ("csv", "jsonl", "parquet"), ("numbers", "mixed", "gaps")


def table(kind: str, n: int) -> dict[str, Any]:
    """Generate columns, with the label last and None for missing values."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(n, 10)), 4)
    columns: dict[str, Any] = {f"f{j}": X[:, j].tolist() for j in range(10)}
    if kind == "mixed":
        words = np.array([f"word{i}" for i in range(50)])
        columns |= {f"f{j}": words[rng.integers(0, 50, n)].tolist() for j in range(5, 10)}
    if kind == "gaps":
        X[rng.random(X.shape) < 0.01] = np.nan
        columns = {f"f{j}": [None if x != x else x for x in X[:, j].tolist()] for j in range(10)}
        X = np.nan_to_num(X)
    return columns | {"label": (X @ rng.normal(size=10) > 0.0).astype(int).tolist()}


def write(columns: dict[str, Any], path: Path) -> None:
    """Write a table to a file, in the format of the suffix."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return
    rows = zip(*columns.values(), strict=True)
    with path.open("w") as file:
        if path.suffix == ".csv":
            file.write(",".join(columns) + "\n")
            file.writelines(",".join("" if x is None else str(x) for x in row) + "\n" for row in rows)
        else:
            file.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


def once(path: str) -> dict[str, float]:
    """Time a run in this process, after a short run that compiles and imports."""
    from connectors import open_sink, open_source
    from streamsvm import CPMClassifier
    from streamsvm.run.runner import runner_of

    for most in (20_000, None):
        with tempfile.TemporaryDirectory() as folder:
            source, sink = open_source(path, label="label"), open_sink(f"{folder}/out.csv")
            start, began = time.process_time(), time.perf_counter()
            report = runner_of(CPMClassifier(), source, out=sink, max_events=most).run()
            seconds, clock = time.process_time() - start, time.perf_counter() - began
            source.close()
            sink.close()
    each = 1e6 / report.events
    return {"us": each * seconds, "clock us": each * clock, "accuracy": report.metrics.accuracy}


def learner(kind: str) -> dict[str, float]:
    """Time the learner alone, on batches of the runner's size."""
    from streamsvm import CPMClassifier

    columns = table(kind, EVENTS)
    labels = columns.pop("label")
    arrays = {k: np.array(v, object if isinstance(v[0], str) else float) for k, v in columns.items()}
    for _ in range(2):
        model, seconds = CPMClassifier(), 0.0
        for first in range(0, EVENTS, BATCH):
            part = slice(first, first + BATCH)
            rows = model._space.encode({k: v[part] for k, v in arrays.items()}, np.ones(len(labels[part]), bool))
            start = time.process_time()
            model.run_batch(rows, labels[part])
            seconds += time.process_time() - start
    return {"us": 1e6 * seconds / EVENTS}


def markdown() -> str:
    """Format CPU and wall time per event in microseconds."""
    found = kept("ends")
    lines = [f"| | learner alone | {' | '.join(FORMATS)} |", "|---" * (2 + len(FORMATS)) + "|"]
    for kind in TABLES:
        cells = [f"{found[f'{kind}, learner alone']['us']:.2f}"]
        cells += [f"{cell['us']:.2f} ({cell['clock us']:.2f})" for cell in (found[f"{kind}, {s}"] for s in FORMATS)]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def medians(measure: Callable[[str], dict[str, float]], what: str, repeats: int) -> dict[str, float]:
    """Return the medians of repeated measurements."""
    runs = [measure(what) for _ in range(repeats)]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in TABLES:
            columns = table(kind, EVENTS)
            result[f"{kind}, learner alone"] = medians(learner, kind, repeats)
            for suffix in FORMATS:
                path = Path(folder) / f"{kind}.{suffix}"
                write(columns, path)
                result[f"{kind}, {suffix}"] = medians(once, str(path), repeats)
            print({name: found for name, found in result.items() if name.startswith(kind)}, flush=True)
    keep("ends", result, lines=True)


if __name__ == "__main__":
    main()
