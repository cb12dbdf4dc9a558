"""Cost per event for wide sparse rows and many classes.

    python -m simulations.benchmarks.shapes                         this checkout alone
    python -m simulations.benchmarks.shapes --before ../other       compared with another checkout, as ratios
    python -m simulations.benchmarks.shapes --only spam letters     some of the streams

It measures the CPU time to predict and learn an event, for batches of rows and, for sparse rows, for single dicts. It
also measures the memory of the model and its accuracy. Versions alternate by chunks of events. Electricity and insects
are references that should not change. Results are stored in `simulations/results` unless `--only` is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

CHUNK = 250
LEARNERS = ("StreamSVMClassifier", "CPMClassifier", "BSGDClassifier")
# Numbers of events before the timing, and of timed events.
STREAMS: dict[str, tuple[int, int]] = {
    "electricity": (1_000, 4_000),
    "insects 2013": (1_000, 2_000),
    "spam": (1_000, 1_500),
    "40,000 columns": (1_000, 1_500),
    "MNIST": (500, 1_000),
    "26 classes": (2_000, 2_000),
    "200 classes": (2_000, 1_500),
    "1,000 classes": (1_500, 500),
    "3,000 classes": (3_000, 250),
}


# Streams ----------------------------------------------------------------------------------------------------------


def load(name: str) -> tuple[Any, list[Any]]:
    """Load rows and labels of a stream."""
    from simulations import data

    n = sum(STREAMS[name])
    if name == "MNIST":
        X, y = data.load_digits("mnist.train")
        return X[:n], y[:n].tolist()
    if name.endswith("classes"):
        return clusters(n, int(name.split()[0].replace(",", "")))
    if name.endswith("columns"):
        return sparse(n, 40_000, 50)
    table, labels = data.load_stream(name, n)
    return (table if not isinstance(table, dict) else np.column_stack(list(table.values())))[:n], labels[:n]


def clusters(n: int, n_classes: int) -> tuple[Any, list[int]]:
    """Generate one cluster per class, with power-law frequencies.

    Every class occurs once first.
    """
    rng = np.random.default_rng(0)
    shares = 1.0 / np.arange(1, n_classes + 1) ** 0.8
    drawn = rng.choice(n_classes, max(n - n_classes, 0), p=shares / shares.sum())
    which = np.concatenate([rng.permutation(n_classes), drawn])
    return 1.5 * rng.normal(size=(n_classes, 20))[which] + rng.normal(size=(n, 20)), which.tolist()


def sparse(n: int, n_columns: int, n_present: int) -> tuple[Any, list[int]]:
    """Generate sparse rows of ones, with a noisy linear rule.

    Column frequencies follow a power law.
    """
    rng = np.random.default_rng(1)
    shares = 1.0 / np.arange(1, n_columns + 1) ** 0.7
    shares /= shares.sum()
    columns = np.stack([np.sort(rng.choice(n_columns, n_present, replace=False, p=shares)) for _ in range(n)])
    scores = rng.normal(size=n_columns)[columns].sum(axis=1) + rng.normal(size=n)
    rows = (np.ones(columns.size), columns.ravel(), np.arange(n + 1) * n_present)
    return scipy.sparse.csr_matrix(rows, shape=(n, n_columns)), (scores > 0.0).astype(int).tolist()


# One version ------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Learn the stream named on the first line of stdin.

    Each further line requests the time of a chunk.
    """
    import streamsvm
    from simulations import data

    name, learner, way = json.loads(sys.stdin.readline())
    make = getattr(streamsvm, learner)
    (X, y), before = load(name), STREAMS[name][0]
    events = data.rows_of(X) if way == "dicts" else []
    for model in (make(), make()):  # the first one compiles

        def step(start: int, end: int, model: Any = model) -> list[Any]:
            if way == "rows":
                return list(model.test_then_train(X[start:end], y[start:end]))
            found = []
            for x, label in zip(events[start:end], y[start:end], strict=True):
                found.append(model.predict_one(x))
                model.learn_one(x, label)
            return found

        step(0, 3)
    step(3, before)
    for line in sys.stdin:
        start = int(line)
        begin = time.process_time()
        found = step(start, start + CHUNK)
        seconds = time.process_time() - begin
        right = sum(a == b for a, b in zip(found, y[start : start + CHUNK], strict=True))
        print(json.dumps([seconds, right, model._state.n_bytes]), flush=True)


# Side by side -----------------------------------------------------------------------------------------------------


def side_by_side(checkouts: dict[str, Path], cell: tuple[str, str, str]) -> dict[str, dict[str, float]]:
    """Return microseconds per event, accuracy and MB of each version.

    Versions alternate by chunks.
    """
    processes = {
        version: subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=os.environ | {"PYTHONPATH": str(path), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for version, path in checkouts.items()
    }
    before, timed = STREAMS[cell[0]]
    told: dict[str, list[list[float]]] = {version: [] for version in processes}
    for process in processes.values():
        _tell(process, json.dumps(cell))
    for start in range(before, before + timed, CHUNK):
        for version, process in processes.items():
            _tell(process, str(start))
            assert process.stdout is not None
            told[version].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    return {
        version: {
            "us": round(1e6 * sum(seconds for seconds, _, _ in chunks) / timed, 2),
            "accuracy": sum(right for _, right, _ in chunks) / timed,
            "MB": round(chunks[-1][2] / 1e6, 2),
        }
        for version, chunks in told.items()
    }


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def run(before: Path | None, only: list[str] | None) -> None:
    """Run all cells, or those of some streams."""
    from simulations.keeping import keep, kept

    here = Path(__file__).resolve().parents[2]
    checkouts = ({"before": before.resolve()} if before else {}) | {"now": here}
    result = {} if only else kept("shapes")
    for learner in LEARNERS:
        for name in only or STREAMS:
            for way in ("rows", "dicts") if name in ("spam", "40,000 columns") else ("rows",):
                found = side_by_side(checkouts, (name, learner, way))
                result[f"{name}, {learner}, {way}"] = found
                ratio = f"{found['now']['us'] / found['before']['us']:6.2f}" if before else ""
                shown = "   ".join(
                    f"{version} {cell['us']:9.1f} us {100 * cell['accuracy']:6.2f} % {cell['MB']:7.2f} MB"
                    for version, cell in found.items()
                )
                print(f"{name:15s} {learner:20s} {way:6s} {shown} {ratio}", flush=True)
                if not only:
                    keep("shapes", result, lines=True)


def main() -> None:
    """Run the selected measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    parser.add_argument("--only", nargs="+", choices=STREAMS, help="names of streams")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        warnings.simplefilter("ignore")
        serve()
    else:
        run(options.before, options.only)


if __name__ == "__main__":
    main()
