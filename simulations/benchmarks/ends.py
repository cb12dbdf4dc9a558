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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from connectors import open_sink, open_source
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows
from simulations.tables import Column, Table, of, part, pick
from streamsvm import CPMClassifier
from streamsvm.run import RunConfig
from streamsvm.run.loop import RunLoop

EVENTS, BATCH, REPEATS = 60_000, 1024, 5
FORMATS, TABLES, ALONE = ("csv", "jsonl", "parquet"), ("numbers", "mixed", "gaps"), "learner alone"


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


def run(kind: str, suffix: str) -> dict[str, float]:
    """Time runs in this process, after a short run that compiles and imports."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.{suffix}"
        write(table(kind, EVENTS), path)
        once(path, 20_000)
        return medians(partial(once, path))


def once(path: Path, most: int | None = None) -> dict[str, float]:
    """Time a run."""
    source, sink = open_source(str(path), label="label"), open_sink(str(path.with_name("out.csv")))
    start, began = time.process_time(), time.perf_counter()
    report = RunLoop(CPMClassifier(), source, RunConfig(max_events=most), {"out": sink}).run()
    seconds, clock = time.process_time() - start, time.perf_counter() - began
    source.close()
    sink.close()
    each = 1e6 / report.events
    return {"us": each * seconds, "clock us": each * clock, "accuracy": report.metrics.accuracy}


def learner(kind: str) -> dict[str, float]:
    """Time the learner alone, on batches of a run's size."""
    columns = table(kind, EVENTS)
    labels = columns.pop("label")
    arrays = {k: np.array(v, object if isinstance(v[0], str) else float) for k, v in columns.items()}

    def once() -> dict[str, float]:
        model, seconds = CPMClassifier(), 0.0
        for first in range(0, EVENTS, BATCH):
            span = slice(first, first + BATCH)
            rows, _, _, _ = model.encode_labelled({k: v[span] for k, v in arrays.items()}, labels[span])
            start = time.process_time()
            model.run_batch(rows, labels[span])
            seconds += time.process_time() - start
        return {"us": 1e6 * seconds / EVENTS}

    once()
    return medians(once)


def medians(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return the medians of repeated measurements."""
    runs = [measure() for _ in range(REPEATS)]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List the tables, without and with a file of each format."""
    for kind in TABLES:
        yield Case(key_of(kind, ALONE), partial(learner, kind))
        yield from (Case(key_of(kind, suffix), partial(run, kind, suffix)) for suffix in FORMATS)


def cell(suffix: str, rows: Rows) -> str | None:
    """Format CPU and wall time of a format."""
    return next((f"{row['us']:.2f} ({row['clock us']:.2f})" for row in pick(rows, suffix).values()), None)


BENCHMARK = Benchmark(
    "ends",
    "CPU and wall time per event of complete runs from a file to predictions.",
    cases,
    {
        "ends": Table(
            "µs per event",
            part(0),
            [Column(ALONE, of("us", ALONE), "{:.2f}"), *(Column(s, partial(cell, s)) for s in FORMATS)],
        )
    },
)
