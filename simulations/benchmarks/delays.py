"""Accuracy with delayed labels, compared with River's learners.

    python -m simulations.benchmarks.delays                    all streams
    python -m simulations.benchmarks.delays electricity        some streams
    python -m simulations.benchmarks.delays --peers            measure the peers again instead of using stored results

The label of an event arrives after a fixed number of other events. The default classifier is compared with River's
logistic regression (on standardised features) and adaptive random forest of ten trees. Streams have 20,000 events, or
50,000 for a delay of 10,000. A prediction counts when its label arrives.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from connectors.events import LateLabels, SparseRows
from simulations.data import STREAMS, load_stream, rows_of
from simulations.keeping import keep, kept
from streamsvm import StreamSVMClassifier
from streamsvm.delayed.join import Join
from streamsvm.delayed.models import OwnModel
from streamsvm.delayed.protocol import Events, Matches
from streamsvm.delayed.rows import taken
from streamsvm.delayed.store import Store

RESULT, OURS = "delays", "StreamSVM"
DELAYS = {10: 20_000, 100: 20_000, 1_000: 20_000, 10_000: 50_000}
"""Delays, and the number of events of the stream."""
CHUNK = 1024


def joins(own: OwnModel, table: Any, labels: Sequence[Any], delay: int) -> Iterator[Matches]:
    """Yield the events whose labels arrive, joined by `Join`.

    A label arrives before the event `delay` after its own.
    """
    n = len(labels)
    features = (
        table
        if isinstance(table, dict)
        else SparseRows(*(part.astype(np.int64) for part in (table.indptr, table.indices)), table.data)
    )
    join, keys = Join(Store(most=n + 1), own), list(map(str, range(n)))
    for start in range(0, n + delay, CHUNK):
        end, m = min(start + CHUNK, n), max(min(start + CHUNK, n) - start, 0)
        events = Events(
            taken(features, np.arange(start, start + m)),
            keys[start:end],
            2 * np.arange(start, start + m),
            np.zeros((m, 2), np.int64),
        )
        known = np.arange(max(start - delay, 0), min(max(start + CHUNK - delay, 0), n))
        here = [labels[i] for i in known.tolist()]
        late = LateLabels(here, [], 2 * (known + delay) - 1, np.minimum(known + delay - start, m))
        yield join.step(events, late, [keys[i] for i in known.tolist()])[1]


def joined(model: Any, table: Any, labels: Sequence[Any], delay: int) -> float:
    """Measure the accuracy of a classifier of this package."""
    own, right, judged = OwnModel(model), 0, 0
    for found in joins(own, table, labels, delay):
        for code, label in zip(found.codes, found.labels, strict=True):
            judged += code >= 0
            right += code >= 0 and own.classes[code] == label
    return right / max(judged, 1)


def looped(model: Any, rows: Iterable[dict[Any, Any]], labels: Iterable[Any], delay: int) -> float:
    """Measure the accuracy of a River classifier."""
    waiting: deque[tuple[Any, Any, Any]] = deque()
    right = judged = 0

    def learn() -> None:
        nonlocal right, judged
        x, y, predicted = waiting.popleft()
        judged += predicted is not None
        right += predicted is not None and predicted == y
        model.learn_one(x, y)

    for x, y in zip(rows, labels, strict=False):
        if len(waiting) == delay:
            learn()
        waiting.append((x, y, model.predict_one(x)))
    while waiting:
        learn()
    return right / max(judged, 1)


def peers() -> dict[str, Callable[[], Any]]:
    """Return River's classifiers by name."""
    from river import forest, linear_model, multiclass, preprocessing

    def regression() -> Any:
        return preprocessing.StandardScaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())

    return {"LR": regression, "ARF": lambda: forest.ARFClassifier(n_models=10, seed=1)}


def cell(stream: str, delay: int, names: Iterable[str]) -> dict[str, float]:
    """Measure the accuracies of learners by name, in percent."""
    table, labels = load_stream(stream, DELAYS[delay])
    found = {}
    for name in names:
        if name == OURS:
            share = joined(StreamSVMClassifier(), table, labels, delay)
        else:
            share = looped(peers()[name](), rows_of(table), labels, delay)
        found[name] = round(100.0 * share, 2)
    return found


def markdown(result: dict[str, dict[str, float]]) -> str:
    """Format a table of StreamSVM / LR / ARF: a row per stream, a column per delay."""
    streams = list(dict.fromkeys(name.rpartition(", ")[0] for name in result))
    lines = [f"| | {' | '.join(f'delay {delay:,}' for delay in DELAYS)} |", "|---" * (1 + len(DELAYS)) + "|"]
    for stream in streams:
        cells = []
        for delay in DELAYS:
            found = result.get(f"{stream}, {delay}", {})
            best = max(found.values(), default=0.0)
            cells.append(" / ".join(f"**{v:.1f}**" if v == best else f"{v:.1f}" for v in found.values()))
        lines.append(f"| {stream} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table() -> str:
    """Return the table of the stored results."""
    return markdown(kept(RESULT))


def main() -> None:
    """Measure, and store each cell at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    streams = [stream for stream in STREAMS if stream != "airlines"]  # without airlines, which has no order
    parser.add_argument("streams", nargs="*", default=streams, help=", ".join(streams))
    parser.add_argument("--peers", action="store_true", help="measure the peers again")
    args = parser.parse_args()
    for stream in args.streams:
        for delay in (delay for delay, most in DELAYS.items() if delay <= len(load_stream(stream, most)[1]) // 2):
            name = f"{stream}, {delay}"
            before = {} if args.peers else kept(RESULT).get(name, {})
            found = {OURS: 0.0} | before | cell(stream, delay, {OURS, *peers()} - (before.keys() - {OURS}))
            keep(RESULT, kept(RESULT) | {name: found}, lines=True)
            print(name, found, flush=True)


if __name__ == "__main__":
    main()
