"""Accuracy and cost of our learners and of River's on all streams.

All settings are defaults.

Heads, steps and gamma of `StreamSVMClassifier` were selected on electricity, insects abrupt, luxembourg, usenet1,
posture, airlines, and on seed 0 of RBF incremental, SEA sudden, Agrawal gradual, STAGGER recurring and mixed gradual.
Its members were selected on all real streams except spam. The constants of the stacked vote and of label
autocorrelation were selected on seed 0 of all generators and on the real streams (the stacked vote without power supply
and spam). Only the other seeds of the generators validate them.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from connectors.synthetic import Event
from simulations import data, generators, learners
from simulations.harness import Benchmark, Case, key_of
from simulations.plots import WIDTH, plain, pyplot, save
from simulations.prequential import Stream, evaluated
from simulations.storage import SEPARATOR, Rows, rounded
from simulations.tables import Column, Table, mean, of, pick

OURS = "StreamSVM"
VARIANTS = ("StreamSVM low", "StreamSVM high", "StreamSVM no autocorrelation", "BSGD", "CPM")
PEERS = ("LR", "HAT", "KNN", "ARF", "LB", "SRP")
CAPYMOA = "CapyMOA"

STREAMS: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    **{name: partial(data.load_stream, name) for name in data.STREAMS},
    **{
        f"{name} #{seed}": partial(generators.load, name, seed)
        for seed in generators.SEEDS
        for name in generators.GENERATORS
    },
}
"""Real streams, and generated ones with their seeds."""


# Measuring --------------------------------------------------------------------------------------------------------


def digest(table: Any, labels: list[Any]) -> str:
    """Return a hash of rows and labels."""
    seen = hashlib.sha256(repr(labels).encode())
    columns = (
        table.items() if isinstance(table, dict) else [(n, getattr(table, n)) for n in ("data", "indices", "indptr")]
    )
    for name, column in columns:
        seen.update(str(name).encode())
        seen.update(repr(column.tolist()).encode() if column.dtype == object else column.astype("<f8").tobytes())
    return seen.hexdigest()[:12]


@lru_cache(maxsize=1)
def _loaded(name: str) -> tuple[Stream, str]:
    table, labels = STREAMS[name]()
    events = [Event(x, y, y) for x, y in zip(data.rows_of(table), labels, strict=True)]
    return Stream.of(events), digest(table, labels)


def measure(name: str, learner: str) -> dict[str, Any]:
    """Measure a learner on a stream."""
    stream, same = _loaded(name)
    found = evaluated(learners.table()[learner], stream, seed_of(name))
    return rounded(found) | {"events": len(stream.events), "digest": same}


def seed_of(name: str) -> int:
    """Return the seed in the name of a stream, 0 for a real one."""
    return int(name.partition("#")[2] or 0)


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all combinations of streams and learners, the fastest learners first."""
    known = learners.table()
    for learner in sorted((OURS, *VARIANTS, *PEERS), key=lambda name: known[name].us):
        for name in STREAMS:
            seconds = 1e-6 * known[learner].us * generators.LENGTH
            yield Case(key_of(name, learner), partial(measure, name, learner), seconds=seconds)


# Tables -----------------------------------------------------------------------------------------------------------


def comparable(rows: Rows) -> Rows:
    """Return results on the same rows as those of our default classifier.

    Other versions of River, for example, have other rows.
    """
    ours = {stream: row.get("digest") for stream, learner, row in parts_of(rows) if learner == OURS}
    return {
        key_of(stream, learner): row
        for stream, learner, row in parts_of(rows)
        if row.get("digest", ours.get(stream)) == ours.get(stream)
    }


def parts_of(rows: Rows) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield stream, learner and measures of each result."""
    for key, row in rows.items():
        stream, learner = key.split(SEPARATOR)
        yield stream, learner, row


def gain(rows: Rows, ours: str = OURS) -> float | None:
    """Return our gain in points over the best other learner of each stream.

    Gains are averaged over seeds.
    """
    found = []
    for key, row in pick(rows, ours).items():
        stream = key.split(SEPARATOR)[0]
        others = [
            each["accuracy"] for peer in (*PEERS, CAPYMOA) for each in pick(comparable(rows), stream, peer).values()
        ]
        found += [row["accuracy"] - max(others)] if others else []
    return mean(found)


def accuracy(learner: str) -> Callable[[Rows], float | None]:
    """Return a function for the mean accuracy of a learner over the seeds."""
    return lambda rows: of("accuracy", learner)(comparable(rows))


def mean_over_streams(learner: str, measure: str, how: Callable[[list[float]], float]) -> Callable[[Rows], Any]:
    """Return a function for a statistic over streams of means over seeds."""

    def value(rows: Rows) -> float:
        named: dict[str, list[float]] = {}
        for key, row in pick(rows, learner).items():
            named.setdefault(key.partition(" #")[0].partition(SEPARATOR)[0], []).append(row[measure])
        return how([statistics.fmean(each) for each in named.values()])

    return value


TABLE = Table(
    "stream",
    lambda parts: parts[0].partition(" #")[0],
    [
        Column(OURS, accuracy(OURS), best=max),
        Column("gain", gain, "{:+.1f}"),
        *(Column(peer, accuracy(peer), best=max) for peer in (*PEERS, CAPYMOA)),
    ],
)

LEARNERS = Table(
    "learner",
    lambda parts: parts[1] if parts[1] != CAPYMOA else None,
    [
        Column("accuracy", lambda rows: _over_streams(rows, "accuracy", statistics.fmean)),
        Column("log loss", lambda rows: _over_streams(rows, "log loss", statistics.fmean), "{:.3f}"),
        Column("calibration error", lambda rows: _over_streams(rows, "ECE", statistics.fmean)),
        Column("µs per event", lambda rows: _over_streams(rows, "us", statistics.geometric_mean), "{:,.1f}"),
    ],
)


def _over_streams(rows: Rows, measure: str, how: Callable[[list[float]], float]) -> float:
    return mean_over_streams(next(iter(rows)).split(SEPARATOR)[1], measure, how)(rows)


# Plot -------------------------------------------------------------------------------------------------------------

# Label of a learner in the plot, its side of the point, and its vertical offset.
TITLES: dict[str, tuple[str, str, float]] = {
    "CPM": ("CPM", "right", 0.0),
    "BSGD": ("BSGD", "right", 0.0),
    "StreamSVM low": ('effort="low"', "left", -9.0),
    "StreamSVM": ("StreamSVM", "right", 5.0),
    "StreamSVM high": ('effort="high"', "left", 5.0),
    "StreamSVM no autocorrelation": ("label_autocorrelation=False", "left", 0.0),
}


def draw(rows: Rows) -> None:
    """Plot mean accuracy against microseconds per event of every learner."""
    ours, everyone = (OURS, *VARIANTS), (OURS, *VARIANTS, *PEERS)
    found = {
        name: (
            mean_over_streams(name, "us", statistics.geometric_mean)(rows),
            mean_over_streams(name, "accuracy", statistics.fmean)(rows),
        )
        for name in everyone
    }
    figure, axis = pyplot().subplots(figsize=(WIDTH, 4.6))
    for names, color, marker, label in ((ours, "tab:blue", "o", "streamsvm"), (PEERS, "tab:gray", "s", "River")):
        axis.scatter(*zip(*(found[name] for name in names), strict=True), color=color, marker=marker, s=45, label=label)
        for name in names:
            title, side, dy = TITLES.get(name, (name, "left", 0.0))
            shift = (-8 if side == "right" else 8, dy)
            axis.annotate(title, found[name], xytext=shift, textcoords="offset points", ha=side, va="center")
    efforts = sorted(found[name] for name in (OURS, "StreamSVM low", "StreamSVM high"))
    axis.plot(*zip(*efforts, strict=True), color="tab:blue", linewidth=1.0, alpha=0.5)
    n = len({stream.partition(" #")[0] for stream, _, _ in parts_of(rows)})
    axis.set(xscale="log", xlabel="time per event, µs (geometric mean)", ylabel=f"accuracy, mean over {n} streams (%)")
    plain(axis.xaxis)
    axis.margins(x=0.15, y=0.12)
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right", frameon=False)
    save(figure, "streams-accuracy-cost")


BENCHMARK = Benchmark(
    "streams",
    "Accuracy, log loss, calibration and time of our learners and River's on 12 real and 30 generated streams.",
    cases,
    {"streams": TABLE, "learners": LEARNERS},
    draw,
    others=PEERS,
)
