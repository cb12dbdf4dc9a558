"""Loss in accuracy due to outliers and changes of units, in percentage points.

Run it as `python -m simulations.benchmarks.outliers [--learners blend cpm] [--all]`. Each case disturbs one stream.
Accuracy is measured over 2,000 events. These start 1,000 events after the end of the disturbance, or after its start if
it does not end.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulations.benchmarks.blend import LEARNERS

Floats = NDArray[np.float64]

FACTORS = (1e3, 1e6, 1e9, 1e12)
ROWS = (1, 5, 50, 200, 5_000)
BURSTS = (1, 10, 50)
SHARES = (0.02, 0.05)
LATER, MEASURED, HOUR, CHANGE = 1_000, 2_000, 1_000, 3_000
N, D = 8_100, 8
SHOWN = ("cpm", "bsgd", "blend low", "blend")


class Case(NamedTuple):
    """A disturbed stream: kind, name, rows, and the first row of the measurement."""

    kind: str
    name: str
    X: Floats
    start: int


def normal(n: int = N) -> tuple[Floats, list[int]]:
    """Generate normal columns of various scales, and two linear classes."""
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n, D))
    y = (Z @ rng.normal(size=D) > 0.0).astype(int).tolist()
    return Z * rng.uniform(0.5, 2.0, D) + rng.uniform(-5.0, 5.0, D), y


def mixed(n: int = N) -> tuple[Floats, list[int]]:
    """Generate columns of various distributions that depend on the class."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, n)
    rise = np.linspace(1.0, 5.0, n)
    columns = [
        rng.normal(size=n) + 0.8 * y,
        rng.exponential(size=n) * (1.0 + 1.5 * y),
        np.exp(1.5 * rng.normal(size=n) + 1.5 * y),
        np.where(rng.random(n) < 0.05 + 0.25 * y, rng.exponential(size=n), 0.0),
        (rng.random(n) < 0.01 + 0.05 * y).astype(float),
        np.where(np.arange(n) < 400, 3.0, rng.normal(size=n) + 0.8 * y),
        rise * (rng.normal(size=n) + 0.8 * y),
        1e9 + rng.normal(size=n) + 0.8 * y,
    ]
    return np.column_stack(columns), y.tolist()


STREAMS = {"normal": normal, "mixed": mixed}


def spikes(X: Floats) -> Iterator[Case]:
    """Yield streams with outliers in one or all columns, in one or several rows."""
    rng = np.random.default_rng(3)
    for factor in FACTORS:
        for row in ROWS:
            for burst in BURSTS:
                for columns in (slice(0, 1), slice(None)):
                    spoilt, at = X.copy(), slice(row - 1, row - 1 + burst)
                    signs = rng.choice([-1.0, 1.0], spoilt[at, columns].shape) if burst == 10 else 1.0
                    spoilt[at, columns] = factor * signs * rng.uniform(0.5, 1.0, spoilt[at, columns].shape)
                    name = f"{factor:.0e} at row {row}, {burst} rows, {'one column' if columns.stop else 'all columns'}"
                    yield Case(f"burst of {burst}" if burst > 1 else "one row", name, spoilt, row + burst + LATER)


def sentinels(X: Floats) -> Iterator[Case]:
    """Yield streams with a constant in a share of the cells, or these missing.

    Missing cells are the lower bound of the loss.
    """
    for share in SHARES:
        cells = np.random.default_rng(4).random(X.shape) < share
        yield Case(f"{share:.0%} missing", "", np.where(cells, np.nan, X), LATER)
        for value in (-9_999.0, *FACTORS):
            yield Case(f"{share:.0%} of cells", f"{value:.0e}", np.where(cells, value, X), LATER)


def units(X: Floats) -> Iterator[Case]:
    """Yield streams with other units, permanently or for HOUR events."""
    for factor in (1e-3, 1e3, 1e6):
        for columns in (slice(0, 1), slice(None)):
            for end in (CHANGE + HOUR, len(X)):
                other = X.copy()
                other[CHANGE:end, columns] *= factor
                lasting = end == len(X)
                name = f"{factor:.0e}, {'one column' if columns.stop else 'all columns'}"
                start = (CHANGE if lasting else end) + LATER
                yield Case(f"units {'for good' if lasting else 'for an hour'}", name, other, start)


def losses(stream: str, learner: str) -> dict[tuple[str, str], float]:
    """Measure the lost percentage points in each case."""
    make, settings = LEARNERS[learner]
    X, y = STREAMS[stream]()
    labels = np.array(y)

    def right(rows: Floats) -> NDArray[np.bool_]:
        predicted: NDArray[Any] = np.asarray(make(**settings).test_then_train(rows, y))
        return np.equal(predicted, labels)

    clean, lost = right(X), {}
    for disturb in (spikes, sentinels, units):
        for case in disturb(X):
            at = slice(case.start, case.start + MEASURED)
            lost[case.kind, case.name] = 100.0 * float(clean[at].mean() - right(case.X)[at].mean())
    return lost


def main() -> None:
    """Print mean and maximum loss by kind of disturbance, and the worst cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", nargs="+", default=SHOWN, choices=list(LEARNERS))
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    parser.add_argument("--all", action="store_true", help="print cases that lose more than a percentage point")
    given = parser.parse_args()
    for stream in given.streams:
        found = {learner: losses(stream, learner) for learner in given.learners}
        print(f"{stream:24s}" + "".join(f"{learner:>22s}" for learner in found))
        print(" " * 24 + "      mean   worst >2p" * len(found))
        kinds = dict.fromkeys(kind for kind, _ in next(iter(found.values())))
        for kind in kinds:
            line = f"{kind:24s}"
            for lost in found.values():
                points = [p for (of, _), p in lost.items() if of == kind]
                line += f"{np.mean(points):10.2f}{max(points):8.2f}{sum(p > 2.0 for p in points):4d}"
            print(line, flush=True)
        if given.all:
            for learner, lost in found.items():
                for (kind, name), loss in lost.items():
                    if loss > 1.0:
                        print(f"  {learner:12s}{kind:20s}{name:45s}{loss:7.2f}")


if __name__ == "__main__":
    main()
