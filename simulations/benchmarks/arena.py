"""Log loss, accuracy and seconds beside the published figures of StreamArena.

    python -m simulations.benchmarks.arena                               its streams that are in the data folder
    python -m simulations.benchmarks.arena weather=weather.csv adult.csv    files of your own, named like its streams

StreamArena ranks stream classifiers by log loss: every event is predicted, then learned, and all events count.
Probabilities below 1e-7 count as 1e-7. (This bound follows from the published log loss and accuracy of the last label.)
The published figures are those of CapyMOA's learners with default settings, read from `streamarena.json` in the data
folder. Files may have options of a source, as in `'adult.csv?delimiter=;&label=income'`. By default the label is the
column `label`, `class` or `target`, otherwise the last one. Seconds are of one core here, and of another machine there.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from simulations import data
from simulations.keeping import keep, kept
from streamsvm import StreamSVMClassifier

RESULT, OURS, FIGURES = "arena", "StreamSVM", "streamarena.json"
# Files of the data folder, with the columns that are no features.
AT_HAND = {
    "electricity": ("elec2.csv.gz", "date"),
    "forest_cover": ("covtype.csv.gz", ""),
    "real_powersupply": ("powersupply.csv.gz", ""),
}
LEAST, ROWS = 1e-7, 1_000
LABELS = ("label", "class", "target")


def published() -> dict[str, dict[str, list[float]]]:
    """Return log loss, accuracy in percent and seconds of the published learners, by stream."""
    path = data.folder() / FIGURES
    if not path.exists():
        raise SystemExit(f"{path} is missing: set STREAMSVM_DATA to the folder with the published figures")
    found = json.loads(path.read_text(encoding="utf-8"))
    return {name.rpartition("/")[2]: learners for name, learners in found.items()}


def label_of(file: str) -> str:
    """Return the name of the label column of a CSV file, empty if the options of the source give it."""
    import pandas as pd

    file, _, query = file.partition("?")
    if "label=" in query:
        return ""
    columns = [str(name) for name in pd.read_csv(file, nrows=0).columns]
    return next((name for name in columns if name.lower() in LABELS), columns[-1])


def measure(file: str, ignore: str = "") -> list[float]:
    """Return log loss, accuracy in percent and seconds of the default classifier."""
    options = {name: value for name, value in (("label", label_of(file)), ("ignore", ignore)) if value}
    table, labels = data.load_rows(file, 1 << 62, **options)
    model, right, loss = StreamSVMClassifier(), 0, 0.0
    began = time.perf_counter()
    for start in range(0, len(labels), ROWS):
        rows, wanted = part(table, slice(start, start + ROWS)), labels[start : start + ROWS]
        predicted, proba = model.test_then_train(rows, wanted, proba=True)
        code = {label: i for i, label in enumerate(model.classes_)}
        places = np.array([code[label] for label in wanted])
        known = places < proba.shape[1]
        likely = np.where(known, proba[np.arange(len(wanted)), np.where(known, places, 0)], 0.0)
        loss -= float(np.log(np.maximum(np.nan_to_num(likely), LEAST)).sum())
        right += sum(a == b for a, b in zip(predicted.tolist(), wanted, strict=True))
    seconds = time.perf_counter() - began
    return [round(loss / len(labels), 4), round(100.0 * right / len(labels), 2), round(seconds, 1)]


def part(table: Any, rows: slice) -> Any:
    """Return some rows of a table or CSR matrix."""
    return {name: column[rows] for name, column in table.items()} if isinstance(table, dict) else table[rows]


def markdown(result: dict[str, dict[str, list[float]]]) -> str:
    """Format a table of log loss, accuracy and seconds: a row per stream, ours beside the best of the others."""
    lines = [f"| stream | {OURS} | best published log loss | best published accuracy |", "|---|---|---|---|"]
    for stream, found in result.items():
        others = {name: figures for name, figures in found.items() if name != OURS}
        by_loss, by_accuracy = min(others, key=lambda k: others[k][0]), max(others, key=lambda k: others[k][1])
        cells = [shown(found[OURS]), *(f"{name}: {shown(others[name])}" for name in (by_loss, by_accuracy))]
        lines.append(f"| {stream} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(figures: list[float]) -> str:
    """Format log loss, accuracy and seconds."""
    loss, accuracy, seconds = figures
    return f"{loss:.3f} / {accuracy:.1f} / {seconds:,.{int(seconds < 10)}f}"


def table() -> str:
    """Return the table of the stored results."""
    return markdown(kept(RESULT))


def chosen(files: list[str], streams: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the file and the ignored column of each stream."""
    found = {}
    for text in files:
        source, mark, options = text.partition("?")
        name, _, file = source.rpartition("=")
        name = name or Path(file).name.partition(".")[0]
        if name not in streams:
            raise SystemExit(
                f"{text}: StreamArena has no stream {name!r}: write STREAM=FILE, one of {', '.join(streams)}"
            )
        if not Path(file).exists():
            raise SystemExit(f"{file} does not exist")
        found[name] = f"{Path(file).resolve()}{mark}{options}", ""
    at_hand = {name: (str(data.folder() / file), ignore) for name, (file, ignore) in AT_HAND.items()}
    return found or {name: entry for name, entry in at_hand.items() if Path(entry[0]).exists()}


def main() -> None:
    """Measure, and store each stream at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files", nargs="*", metavar="[STREAM=]FILE", help="CSV files; by default those of the data folder"
    )
    figures = published()
    for name, (file, ignore) in chosen(parser.parse_args().files, figures).items():
        found = {OURS: measure(file, ignore)} | figures[name]
        keep(RESULT, kept(RESULT) | {name: found}, lines=True)
        print(markdown({name: found}), flush=True)


if __name__ == "__main__":
    main()
