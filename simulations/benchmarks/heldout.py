"""Held-out evidence: learners on streams that nothing was tuned on.

    python -m simulations heldout mine.csv machines=events.parquet?label=state    files of your own
    python -m simulations heldout 'synthetic:mine.toml?seed=7' --learners StreamSVM ARF --events 10000
    python -m simulations arena weather=weather.csv                               streams of StreamArena

A file is a path or URL of `connectors.open_source`, with options of the source after ``?``, such as ``?label=NAME``.
Without it, the label is the column `label`, `class` or `target`, otherwise the last one. Every event is predicted, then
learned, and all events count. Probabilities below 1e-7 count as 1e-7, as in StreamArena. (This
bound follows from its published log loss and accuracy of the last label.) StreamArena's figures are those of
CapyMOA's learners with default settings on another machine, read from `streamarena.json` in the data folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import connectors
from connectors.addresses import split_url
from connectors.events import SparseRows
from connectors.synthetic import Event
from simulations import data, learners
from simulations.harness import Benchmark, Case, key_of
from simulations.learners import Learner
from simulations.prequential import Stream, evaluated
from simulations.storage import SEPARATOR, Rows, rounded
from simulations.tables import Column, Table, of, part, pick

OURS, FIGURES, LEAST = "StreamSVM", "streamarena.json", 1e-7
PREVIOUS, FREQUENCIES = "previous label", "most frequent"
BASELINES = {
    PREVIOUS: Learner(PREVIOUS, "river.dummy.NoChangeClassifier", of="River", us=2),
    FREQUENCIES: Learner(FREQUENCIES, "river.dummy.PriorClassifier", of="River", us=2),
}
LEARNERS = (OURS, *BASELINES, "LR", "HAT", "ARF", "SRP")
# Files of the data folder that are streams of StreamArena, with the columns that are no features.
AT_HAND = {
    "electricity": ("elec2.csv.gz", "date"),
    "forest_cover": ("covtype.csv.gz", ""),
    "real_powersupply": ("powersupply.csv.gz", ""),
}
LABELS = ("label", "class", "target")
# Greatest number of features of sparse rows that are filled with zeros.
DENSE = 1_000


# Files ----------------------------------------------------------------------------------------------------------------


def named(text: str) -> tuple[str, str]:
    """Return the name of a stream, from ``NAME=FILE`` or the file, and the file."""
    source, mark, options = text.partition("?")
    name, _, file = source.rpartition("=")
    if not file.startswith("synthetic:") and not Path(file).exists():
        raise SystemExit(f"{file} does not exist")
    return name or Path(file.removeprefix("synthetic:")).name.partition(".")[0], f"{file}{mark}{options}"


def label_of(file: str) -> str:
    """Return the name of the label of a file, empty if its source or options name it."""
    if "label" in split_url(file)[1]:
        return ""
    with contextlib.closing(connectors.open_source(file)) as source:
        batch = next(iter(source), None)
    if batch is None or any(label is not None for label in batch.labels):
        return ""
    columns = list(batch.features) if isinstance(batch.features, Mapping) else []
    names = columns or list(next(iter(batch.rows()), ()))
    known = next((name for name in names if str(name).lower() in LABELS), "")
    return known or (columns[-1] if columns else "")  # the keys of JSON objects have no order


@lru_cache(maxsize=1)
def load(file: str, most: int, label: str = "", ignore: str = "") -> Stream:
    """Load the first events of a file."""
    options = {name: value for name, value in (("label", label), ("ignore", ignore)) if value}
    events: list[Event] = []
    source = connectors.open_source(file, **options)
    for batch in source:
        events += [Event(x, y, y) for x, y in zip(batch.rows(), batch.labels, strict=True) if y is not None]
        if len(events) >= most:
            break
    source.close()
    if not events:
        raise ValueError(f"{file} has no event with a label: name the column of the labels by the option label=")
    stream = Stream.of(events[:most])
    return dense(stream) if isinstance(batch.features, SparseRows) else stream


def dense(stream: Stream) -> Stream:
    """Add the zeros of sparse rows for learners that treat absent ones as missing."""
    if len(stream.features) > DENSE:
        return stream
    zeros = dict.fromkeys(stream.features, 0.0)
    return replace(stream, events=[event._replace(x=zeros | event.x) for event in stream.events])


def learner_of(name: str) -> Learner:
    """Return a learner or a baseline."""
    return learners.named(name, learners.table() | BASELINES)


def measure(file: str, most: int, learner: str, label: str = "", ignore: str = "") -> dict[str, float]:
    """Measure a learner on a file."""
    stream = load(file, most, label, ignore)
    found = evaluated(learner_of(learner), stream, seed=0, least=LEAST)
    return rounded(found) | {"events": len(stream.events), "classes": len(stream.classes)}


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """List all combinations of files and learners."""
    if not options.files:
        raise SystemExit("files are missing: give paths or URLs of streams with labels, such as mine.csv")
    streams = dict(map(named, options.files))
    if len(streams) < len(options.files):
        raise SystemExit(f"names must differ, and are {', '.join(streams)} here: write NAME=FILE")
    for name, file in streams.items():
        label = label_of(file)
        if label:
            print(f"{name}: the label is {label!r}; label= after ? names another one", file=sys.stderr)
        shown = Path(file).name if Path(file).is_absolute() else file  # results name no folders of this machine
        what = f"{shown}, label {label!r}, {options.events} events"
        for learner in options.learners:
            case = partial(measure, file, options.events, learner, label)
            yield Case(key_of(name, learner), case, seconds=learner_of(learner).us, what=what)


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add files."""
    parser.add_argument("files", nargs="*", metavar="[NAME=]FILE", help="files or URLs of streams with labels")


def at_least_1(text: str) -> int:
    """Read a positive integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add files and learners."""
    add_files(parser)
    parser.add_argument("--learners", nargs="+", default=LEARNERS, metavar="NAME", help="names or dotted paths")
    parser.add_argument("--events", type=at_least_1, default=1 << 62, help="maximum number of events of a stream")


def gain(rows: Rows) -> float | None:
    """Return the gain of the default classifier in points over the best other one."""
    ours = [row["accuracy"] for row in pick(rows, OURS).values()]
    others = [row["accuracy"] for key, row in rows.items() if OURS not in key]
    return ours[0] - max(others) if ours and others else None


class _ByLearner(Table):
    """A table with a column per measured learner."""

    def markdown(self, rows: Rows, older: Container[str] = ()) -> str:
        """Format the results."""
        measured = dict.fromkeys((*LEARNERS, *(key.split(SEPARATOR)[1] for key in rows)))
        shown = sorted((name for name in measured if pick(rows, name)), key=lambda name: not name.startswith(OURS))
        form = self.columns[0]
        columns = [replace(form, title=name, value=of(form.title, name)) for name in shown]
        if form.title == "accuracy" and len(shown) > 1 and OURS in shown:
            columns.insert(1, Column("gain", gain, "{:+.1f}"))
        return Table(self.title, self.row, columns).markdown(rows, older)


BENCHMARK = Benchmark(
    "heldout",
    "Our default classifier, baselines and River's learners on files that you provide.",
    cases,
    {
        "heldout": _ByLearner("stream", part(0), [Column("accuracy", of("accuracy"), "{:.1f}", max)]),
        "heldout_loss": _ByLearner("stream", part(0), [Column("log loss", of("log loss"), "{:.3f}", min)]),
    },
    others=LEARNERS[1:],
    arguments=arguments,
    is_of_the_user=True,
)


# StreamArena ----------------------------------------------------------------------------------------------------------


def published() -> dict[str, dict[str, list[float]]]:
    """Return log loss, accuracy (%) and seconds of published learners by stream."""
    path = data.folder() / FIGURES
    if not path.exists():
        raise SystemExit(f"{path} is missing: set STREAMSVM_DATA to the folder with the published figures")
    found = json.loads(path.read_text(encoding="utf-8"))
    return {name.rpartition("/")[2]: learners for name, learners in found.items()}


def beside_published(file: str, ignore: str, figures: dict[str, list[float]]) -> Rows:
    """Measure the default classifier; returns its results with the published ones."""
    ours = measure(file, 1 << 62, OURS, label_of(file), ignore)
    names = ("log loss", "accuracy", "seconds")
    return {
        OURS: ours | {"seconds": 1e-6 * ours["us"] * ours["events"]},
        **{name: dict(zip(names, each, strict=True)) | {"published": True} for name, each in figures.items()},
    }


def arena_cases(options: argparse.Namespace) -> Iterator[Case]:
    """List the given streams, by default those in the data folder."""
    figures = published()
    at_hand = {name: (str(data.folder() / file), ignore) for name, (file, ignore) in AT_HAND.items()}
    found = {name: (file, "") for name, file in map(named, options.files)} or {
        name: entry for name, entry in at_hand.items() if Path(entry[0]).exists()
    }
    for name, (file, ignore) in found.items():
        if name not in figures:
            raise SystemExit(f"StreamArena has no stream {name!r}: write STREAM=FILE, one of {', '.join(figures)}")
        yield Case(name, partial(beside_published, file, ignore, figures[name]), several=True)


def shown(row: dict[str, Any]) -> str:
    """Format log loss, accuracy and seconds."""
    seconds = row["seconds"]
    return f"{row['log loss']:.3f} / {row['accuracy']:.1f} / {seconds:,.{int(seconds < 10)}f}"


def best_published(rows: Rows, measure: str) -> str | None:
    """Return the figures of the best published learner by log loss or accuracy."""
    others = {key: row for key, row in rows.items() if row.get("published")}
    sign = 1.0 if measure == "log loss" else -1.0
    best = min(others, key=lambda key: sign * others[key][measure], default="")
    return f"{best.split(SEPARATOR)[1]}: {shown(others[best])}" if best else None


ARENA = Benchmark(
    "arena",
    "Log loss, accuracy and seconds of the default classifier beside the published figures of StreamArena.",
    arena_cases,
    {
        "arena": Table(
            "stream",
            part(0),
            [
                Column(OURS, lambda rows: next(map(shown, pick(rows, OURS).values()), None)),
                Column("best published log loss", lambda rows: best_published(rows, "log loss")),
                Column("best published accuracy", lambda rows: best_published(rows, "accuracy")),
            ],
        )
    },
    arguments=add_files,
)
