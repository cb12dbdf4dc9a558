"""Detectors of feature drift: false alarms without a change, and delay after known changes.

Streams have no labels. `FeatureMonitor` takes rows in batches; the detectors of River take the numbers of each column,
one detector per column. A delay is the number of events from the change to the first alarm; an alarm before the change
is a false one. A change is missed if there is no alarm within `AFTER` events.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows
from simulations.tables import Column, Table, of
from streamsvm.monitor import FeatureMonitor

WIDTH = 10
BEFORE, AFTER = 20_000, 50_000
REFERENCE, RATE = 10_000, 0.1
DELAY_SEEDS, PEER_SEEDS = 20, 3
_JITTER = 1_000  # the change is at a random event after `BEFORE`
_BATCH = 4_096

Columns = dict[str, NDArray[Any]]


# Streams without a change ---------------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, n: int) -> Columns:
    """Return normal columns; the first two have a correlation of 0.6."""
    X = rng.normal(size=(WIDTH, n))
    X[1] = 0.6 * X[0] + 0.8 * X[1]
    return {f"x{k}": column for k, column in enumerate(X)}


def heavy(rng: np.random.Generator, n: int) -> Columns:
    """Return columns with Student's t distribution of two degrees of freedom."""
    return {f"x{k}": column for k, column in enumerate(rng.standard_t(2.0, size=(WIDTH, n)))}


def counts(rng: np.random.Generator, n: int) -> Columns:
    """Return Poisson columns of means from 0.05 to 25, with 2 % of the values missing."""
    columns = {f"x{k}": rng.poisson(0.05 * 2.0**k, size=n).astype(float) for k in range(WIDTH)}
    for column in columns.values():
        column[rng.random(n) < 0.02] = np.nan
    return columns


_WORDS = np.array([f"word {i}" for i in range(200)], object)
_SHARES = 1.0 / np.arange(1, 201)


def categories(rng: np.random.Generator, n: int) -> Columns:
    """Return columns of 200 categories with Zipf's distribution."""
    cumulative = np.cumsum(_SHARES) / _SHARES.sum()
    return {f"x{k}": _WORDS[cumulative.searchsorted(rng.random(n)).clip(0, 199)] for k in range(4)}


class Dependent:
    """Normal autoregressive columns, with coefficients from 0.1 to 0.99."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, rng: np.random.Generator, n: int) -> Columns:
        """Return the next n events."""
        from scipy.signal import lfilter

        coefficients = np.linspace(0.1, 0.99, WIDTH)
        last = rng.normal(size=WIDTH) if self._last is None else self._last
        noise = rng.normal(size=(WIDTH, n)) * np.sqrt(1.0 - coefficients**2)[:, None]
        X = np.stack(
            [lfilter([1.0], [1.0, -c], own, zi=[c * x])[0] for c, own, x in zip(coefficients, noise, last, strict=True)]
        )
        self._last = X[:, -1]
        return {f"x{k}": column for k, column in enumerate(X)}


STREAMS: dict[str, Callable[[], Callable[[np.random.Generator, int], Columns]]] = {
    "normal": lambda: normal,
    "heavy tails": lambda: heavy,
    "counts, 2 % missing": lambda: counts,
    "categories": lambda: categories,
    "autoregressive": Dependent,
}


def false_alarms(stream: str, n_events: int, seeds: range) -> dict[str, Any]:
    """Count the alarms of streams without a change."""
    found, n, seconds = 0, 0, 0.0
    for seed in seeds:
        rng, draw, monitor = np.random.default_rng([seed, 1]), STREAMS[stream](), FeatureMonitor(false_alarms=RATE)
        for start in range(0, n_events, 1 << 16):
            X = draw(rng, min(1 << 16, n_events - start))
            begin = time.process_time()
            monitor.learn_many(X)
            seconds += time.process_time() - begin
        found, n = found + monitor.n_alarms, n + monitor.n_events
    return {"streams": len(seeds), "events": n, "alarms": found, "bound": RATE * 1e-6 * n, "us": 1e6 * seconds / n}


# Changes --------------------------------------------------------------------------------------------------------------


def _shift(X: Columns, size: float) -> None:
    X["x0"] = X["x0"] + size


def _scale(X: Columns, factor: float) -> None:
    X["x0"] = X["x0"] * factor


def _two_modes(X: Columns, distance: float) -> None:
    """Move half of the values up and half of them down; mean and variance stay."""
    sign = np.where(np.arange(len(X["x0"])) % 2, distance, -distance)
    X["x0"] = (X["x0"] + sign) / np.sqrt(1.0 + distance**2)


def _correlation(X: Columns, correlation: float) -> None:
    own = (X["x1"] - 0.6 * X["x0"]) / 0.8
    X["x1"] = correlation * X["x0"] + np.sqrt(1.0 - correlation**2) * own


def _stuck(X: Columns, _: float) -> None:
    X["x0"] = np.full(len(X["x0"]), X["x0"][0])


def _missing(X: Columns, share: float) -> None:
    X["x0"] = np.where(np.random.default_rng(3).random(len(X["x0"])) < share, np.nan, X["x0"])


CHANGES: dict[str, tuple[Callable[[Columns, float], None], tuple[float, ...]]] = {
    "mean, in deviations": (_shift, (0.1, 0.25, 0.5, 1.0, 3.0)),
    "deviation, ratio": (_scale, (1.1, 1.25, 1.5, 2.0)),
    "two modes, distance": (_two_modes, (1.0, 2.0)),
    "correlation 0.6 to": (_correlation, (0.3, 0.0, -0.6)),
    "unit, factor": (_scale, (1000.0,)),
    "stuck": (_stuck, (0.0,)),
    "missing, share": (_missing, (0.02, 0.1, 1.0)),
}


class Detector(Protocol):
    """A detector of any changes of the columns, which counts the values that it takes."""

    n_values: int

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return the numbers of events at alarms, at least up to the first one after `until`."""


class Monitor:
    """`FeatureMonitor`."""

    def __init__(self, reference: int = REFERENCE) -> None:
        self.monitor, self.n_values = FeatureMonitor(reference=reference, false_alarms=RATE), 0

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return the numbers of events at alarms."""
        n = len(next(iter(X.values())))
        self.n_values += n * len(X)
        for start in range(0, n, _BATCH):
            self.monitor.learn_many({name: column[start : start + _BATCH] for name, column in X.items()})
        return [alarm.event for alarm in self.monitor.alarms]


class Univariate:
    """A detector of River for each column.

    Parameters
    ----------
    make
        Function that returns a detector.
    columns, skipped, most
        Columns that have a detector, first event of these, and number of events that they get, for slow detectors.
    """

    def __init__(
        self, make: Callable[[], Any], columns: int = WIDTH, skipped: int = 0, most: int = BEFORE + AFTER
    ) -> None:
        self.make, self.columns, self.skipped, self.most, self.n_values = make, columns, skipped, most, 0

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return the numbers of events at alarms, up to the first one after `until`."""
        detectors, found = [self.make() for _ in range(self.columns)], []
        part = slice(self.skipped, self.skipped + self.most)
        rows = np.column_stack([column[part] for column in list(X.values())[: self.columns]]).tolist()
        for i, row in enumerate(rows, self.skipped):
            self.n_values += len(row)
            for k, value in enumerate(row):
                if value == value:  # the detectors have no missing values
                    detectors[k].update(value)
                    if detectors[k].drift_detected:
                        found.append(i + 1)
                        detectors[k] = self.make()
            if found and found[-1] > until:
                break
        return found


def detectors() -> dict[str, Callable[[], Detector]]:
    """Return factories; the parameters of River's detectors give few false alarms on ten normal columns."""
    from river import drift

    return {
        "FeatureMonitor": Monitor,
        "ADWIN": lambda: Univariate(drift.ADWIN),
        "Page-Hinkley": lambda: Univariate(lambda: drift.PageHinkley(threshold=500.0, delta=0.05)),
        "KSWIN": lambda: Univariate(
            lambda: drift.KSWIN(alpha=1e-7, window_size=300, stat_size=100, seed=1), 2, BEFORE, 2_500
        ),
    }


def delays(change: str, size: float, detector: str, n_seeds: int) -> dict[str, Any]:
    """Measure delay, missed changes, false alarms and cost of a detector."""
    apply, found, n_false, seconds, n = CHANGES[change][0], [], 0, 0.0, 0
    for seed in range(n_seeds):
        rng = np.random.default_rng([seed, 2])
        begin = BEFORE + int(rng.integers(_JITTER))
        before, after = normal(rng, begin), normal(rng, AFTER)
        apply(after, size)
        X = {name: np.concatenate([before[name], after[name]]) for name in before}
        start = time.process_time()
        made = detectors()[detector]()
        alarms = made.first_alarms(X, begin)
        seconds, n = seconds + time.process_time() - start, n + made.n_values
        late = [at - begin for at in alarms if at > begin]
        n_false += len(alarms) - len(late)
        found += late[:1]
    missed = n_seeds - len(found)
    delay = {"delay": float(np.median([*found, *[float("inf")] * missed]))} if len(found) > missed else {}
    us = 1e6 * WIDTH * seconds / n
    return {"missed": missed, "false": n_false, "streams": n_seeds, "us": us, "values": n} | delay


# The benchmark --------------------------------------------------------------------------------------------------------


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """List the streams without a change, then all changes and detectors."""
    for stream in STREAMS:
        seeds, n = range(options.streams), options.events
        yield Case(key_of("none", stream), partial(false_alarms, stream, n, seeds), seconds=5e-7 * n * len(seeds))
    for change, (_, sizes) in CHANGES.items():
        for size in sizes:
            for detector in detectors():
                n = DELAY_SEEDS if detector == "FeatureMonitor" else PEER_SEEDS
                yield Case(key_of(change, f"{size:g}", detector), partial(delays, change, size, detector, n), seconds=n)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, default=40, help="streams of each kind without a change (40)")
    parser.add_argument("--events", type=int, default=1_000_000, help="their length (1,000,000)")


def _delay(detector: str) -> Callable[[Rows], str]:
    """Return the median delay of a detector as text, with the number of missed changes."""

    def value(rows: Rows) -> str:
        delay, missed = of("delay", detector)(rows), of("missed", detector)(rows)
        streams = of("streams", detector)(rows)
        if streams is None:
            return ""
        text = "–" if delay is None else f"{delay:,.0f}"
        return text if not missed else f"{text} ({missed:.0f} of {streams:.0f} missed)"

    return value


BENCHMARK = Benchmark(
    "feature-drift",
    "Detectors of feature drift: false alarms without a change, and delay after known changes, in events.",
    cases,
    {
        "feature_drift_false": Table(
            "stream",
            lambda parts: parts[1] if parts[0] == "none" else None,
            [
                Column("streams", of("streams"), "{:.0f}"),
                Column("events", of("events"), "{:,.0f}"),
                Column("false alarms", of("alarms"), "{:.0f}"),
                Column("bound", of("bound"), "{:.1f}"),
                Column("µs per event", of("us"), "{:.2f}"),
            ],
        ),
        "feature_drift_delay": Table(
            "change",
            lambda parts: None if parts[0] == "none" else f"{parts[0]} {parts[1]}",
            [Column(name, _delay(name)) for name in ("FeatureMonitor", "ADWIN", "Page-Hinkley", "KSWIN")],
        ),
        "feature_drift_cost": Table(
            "detector",
            lambda parts: None if parts[0] == "none" else parts[2],
            [
                Column("false alarms", of("false", how=sum), "{:.0f}"),
                Column("values", of("values", how=sum), "{:,.0f}"),
                Column("µs per event of ten columns", of("us"), "{:.1f}"),
            ],
        ),
    },
    subject="monitor",
    arguments=_arguments,
    packages=("river", "numpy", "scipy"),
)
