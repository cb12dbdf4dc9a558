"""Feature drift detectors: false alarms without change, and delays of alarms.

Streams have no labels. A delay is the number of events from the change to the first alarm; an alarm before the change
is a false one. A change is missed if there is no alarm within `AFTER` events, or within `SOON` for slow detectors. The
setting of a detector is chosen for `RATE` false alarms per million events of ten normal columns. Results of Frouros,
NannyML and two tests of random features were measured by programs of earlier commits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simulations.benchmarks.feature_detectors import AFTER, BEFORE, KINDS, OURS, RATE, Detector, Kind, extrapolated
from simulations.benchmarks.feature_streams import CHANGES, RELATIONS, STREAMS, WIDTH, changed, normal
from simulations.data import STREAMS as REAL
from simulations.data import load_rows, load_stream
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Results, Rows
from simulations.tables import Column, Table, of
from streamsvm.monitor import FeatureMonitor

_STREAMS = 20  # without a change, in a result
_JITTER = 1_000  # the change is at a random event after `BEFORE`
# Detectors and tests with stored results of earlier commits.
EARLIER = ("Frouros KS", "Frouros MMD", "NannyML univariate", "NannyML reconstruction", "NannyML classifier")
TESTS = ("linear classifier", "MMD, random features")


# False alarms ---------------------------------------------------------------------------------------------------------


def false_alarms(stream: str, n_events: int, seeds: range) -> dict[str, Any]:
    """Count the alarms of `FeatureMonitor` in streams without a change."""
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


def rate(make: Callable[[], Detector], null: tuple[int, int, int]) -> dict[str, Any]:
    """Count the alarms of a detector in normal columns without a change.

    Events are counted as those of ten columns.
    """
    n_streams, n_events, width = null
    found, n, seconds = 0, 0, 0.0
    for seed in range(n_streams):
        X = normal(np.random.default_rng([seed, 4]), n_events)
        detector = make()
        start = time.process_time()
        found += len(detector.first_alarms({name: X[name] for name in list(X)[:width]}, np.inf))
        seconds, n = seconds + time.process_time() - start, n + detector.n_values
    return {"alarms": found, "events": n / WIDTH, "per million": 1e7 * found / n, "us": 1e6 * WIDTH * seconds / n}


def setting(kind: Kind) -> dict[str, Any]:
    """Choose a detector's setting for `RATE` false alarms per million events.

    Its false alarms are then counted on other streams.
    """
    rates = {value: rate(partial(kind.make, value), kind.null)["per million"] for value in kind.settings}
    chosen = extrapolated(kind, rates) if rates else kind.level
    rows = {f"{value:g}": found for value, found in rates.items()}
    return {"setting": float(f"{chosen:.4g}"), "rates": rows, **rate(partial(kind.make, chosen), kind.null)}


def real(stream: str, n_shuffled: int) -> dict[str, Any]:
    """Count the alarms of `FeatureMonitor` in a real stream, in order and shuffled."""
    X, labels = load_rows("covtype.csv.gz", 1_000_000, label="label") if stream == "covtype" else load_stream(stream)
    n, orders = len(labels), [np.random.default_rng(seed).permutation(len(labels)) for seed in range(n_shuffled)]
    monitors = []
    for order in (slice(None), *orders):
        monitors.append(FeatureMonitor(false_alarms=RATE, reference=10_000 if n > 20_000 else 1_024))
        monitors[-1].learn_many(
            {name: column[order] for name, column in X.items()} if isinstance(X, dict) else X[order]
        )
    first, *shuffled = monitors
    width = len(X) if isinstance(X, dict) else X.shape[1]
    alarms = sum(monitor.n_alarms for monitor in shuffled)
    bound = RATE * 1e-6 * n * n_shuffled
    return {
        **{"events": n, "columns": width, "alarms": first.n_alarms},
        **{"orders": n_shuffled, "shuffled": alarms, "bound": bound},
    }


# Delays ---------------------------------------------------------------------------------------------------------------


def delays(change: str, size: float, name: str, out: Path) -> dict[str, Any]:
    """Measure delay, missed changes and false alarms with the stored setting.

    Detectors of single columns get the first one.
    """
    row, kind = Results(out).rows.get(key_of("rate", name, "equal")), KINDS[name]
    if row is None:
        raise ValueError("the setting is not measured yet: measure `rate` first")
    found, n_false = [], 0
    for seed in range(kind.seeds):
        rng = np.random.default_rng([seed, 2])
        begin = BEFORE + int(rng.integers(_JITTER))
        X = changed(change, size, rng, begin, AFTER)
        alarms = kind.make(row["setting"]).first_alarms(X if name == OURS else {"x0": X["x0"]}, begin)
        late = [at - begin for at in alarms if at > begin]
        n_false += len(alarms) - len(late)
        found += late[:1]
    missed = kind.seeds - len(found)
    delay = {"delay": float(np.median([*found, *[float("inf")] * missed]))} if len(found) > missed else {}
    return {"missed": missed, "false": n_false, "streams": kind.seeds} | delay


# The benchmark --------------------------------------------------------------------------------------------------------


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """List streams without a change and real ones, rates, then all changes."""
    yield from streams(options)
    for name, kind in KINDS.items():
        yield Case(key_of("rate", name, "default"), partial(rate, kind.default, kind.null), seconds=30)
        yield Case(key_of("rate", name, "equal"), partial(setting, kind), seconds=100)
    for change, (_, sizes) in (CHANGES | RELATIONS).items():
        for size in sizes:
            for name in [OURS] if change in RELATIONS else KINDS:
                case = partial(delays, change, size, name, options.out)
                yield Case(key_of(change, f"{size:g}", name, "equal"), case, seconds=KINDS[name].seeds)


def streams(options: argparse.Namespace) -> Iterator[Case]:
    """List the streams without a change, and real ones."""
    for first in range(0, options.streams, _STREAMS):
        seeds, n = range(first, min(first + _STREAMS, options.streams)), options.events
        for stream in STREAMS:
            case = partial(false_alarms, stream, n, seeds)
            yield Case(key_of("none", stream, first), case, seconds=5e-7 * n * len(seeds))
    for stream in (*REAL, "covtype"):
        if stream != "spam":  # has 39,917 columns, and the monitor takes 1,000
            yield Case(key_of("real", stream), partial(real, stream, 1 if stream == "covtype" else 10))


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, default=200, help="streams of each kind without a change (200)")
    parser.add_argument("--events", type=int, default=1_000_000, help="their length (1,000,000)")


def _delay(name: str, rows: Rows) -> str:
    """Format the median delay of a detector, and missed changes."""
    delay, missed, streams = (of(measure, name, "equal")(rows) for measure in ("delay", "missed", "streams"))
    if streams is None:
        alarms, events = of("alarms", name, "equal")(rows), of("events", name, "equal")(rows)
        return "" if alarms is None else f"{alarms:.0f} in {events:,.0f}"
    text = "–" if delay is None else f"{delay:,.0f}"
    return text if not missed else f"{text} ({missed:.0f} of {streams:.0f} missed)"


def _delays(row: Callable[[Sequence[str]], str | None], *names: str) -> Table:
    """Declare a table of delays with settings for equal false alarm rates."""
    return Table("change", row, [Column(name, partial(_delay, name)) for name in names])


def _relation(parts: Sequence[str]) -> str | None:
    if parts[0] == "rate" and parts[2] == "equal":
        return "no change: false alarms in events"
    return f"{parts[0]} {parts[1]}" if parts[0] in RELATIONS else None


def _of_first(parts: str) -> Callable[[Any], str | None]:
    return lambda names: names[1] if names[0] == parts else None


BENCHMARK = Benchmark(
    "feature-drift",
    "Detectors of feature drift: false alarms without a change, and delay after known changes, in events.",
    cases,
    {
        "feature_drift_false": Table(
            "stream",
            _of_first("none"),
            [
                Column("streams", of("streams", how=sum), "{:.0f}"),
                Column("events", of("events", how=sum), "{:,.0f}"),
                Column("false alarms", of("alarms", how=sum), "{:.0f}"),
                Column("bound", of("bound", how=sum), "{:.1f}"),
                Column("µs per event", of("us"), "{:.2f}"),
            ],
        ),
        "feature_drift_real": Table(
            "stream",
            _of_first("real"),
            [
                Column("events", of("events"), "{:,.0f}"),
                Column("columns", of("columns"), "{:.0f}"),
                Column("alarms", of("alarms"), "{:.0f}"),
                Column("random orders", of("orders"), "{:.0f}"),
                Column("alarms in these", of("shuffled"), "{:.0f}"),
                Column("bound", of("bound"), "{:.2f}"),
            ],
        ),
        "feature_drift_rates": Table(
            "detector",
            _of_first("rate"),
            [
                Column("default: false alarms", of("alarms", "default"), "{:,.0f}"),
                Column("events", of("events", "default"), "{:,.0f}"),
                Column("per million", of("per million", "default"), "{:,.1f}"),
                Column("equal: setting", of("setting", "equal"), "{:.3g}"),
                Column("false alarms", of("alarms", "equal"), "{:,.0f}"),
                Column("events", of("events", "equal"), "{:,.0f}"),
                Column("µs per event of ten columns", of("us"), "{:,.1f}"),
            ],
        ),
        "feature_drift_delay": _delays(
            lambda parts: f"{parts[0]} {parts[1]}" if parts[0] in CHANGES else None, *KINDS, *EARLIER
        ),
        "feature_drift_relations": _delays(_relation, OURS, "Frouros MMD", *TESTS, *EARLIER[3:]),
    },
    subject="monitor",
    others=[name for name in (*KINDS, *EARLIER, *TESTS) if name != OURS],
    arguments=_arguments,
    packages=("river", "numpy", "scipy"),
)
