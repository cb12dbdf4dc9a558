"""Accuracy where labels come late: ``python -m simulations.benchmarks.delays [--events N] [STREAM...]``.

The label of an event comes after so many others. The default classifier beside River's logistic regression (on
standardised features) and, over the first `--forest` events, its adaptive random forest of ten trees. Each prediction
is counted when its label comes.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from connectors.events import LateLabels
from simulations.data import STREAMS, load_stream, rows_of
from streamsvm import StreamSVMClassifier
from streamsvm.pending.join import Events, Join
from streamsvm.pending.models import OwnModel
from streamsvm.pending.store import Store

DELAYS = (10, 100, 1_000, 10_000)
CHUNK = 1024


def joined(model: Any, table: Any, labels: Sequence[Any], delay: int) -> float:
    """Accuracy of a classifier of this package, by the join itself; a label comes before the event `delay` after
    its.
    """
    n, own = len(labels), OwnModel(model)
    join, keys, right, judged = Join(Store(most=n + 1), own), list(map(str, range(n))), 0, 0
    for start in range(0, n + delay, CHUNK):
        end, m = min(start + CHUNK, n), max(min(start + CHUNK, n) - start, 0)
        part = {name: column[start:end] for name, column in table.items()} if m else {}
        events = Events(part, keys[start:end], 2 * np.arange(start, start + m), np.zeros((m, 0), np.int64))
        known = np.arange(max(start - delay, 0), min(max(start + CHUNK - delay, 0), n))
        here = [labels[i] for i in known.tolist()]
        late = LateLabels(here, [], 2 * (known + delay) - 1, np.minimum(known + delay - start, m))
        _, found = join.step(events, late, [keys[i] for i in known.tolist()])
        for code, label in zip(found.codes, found.labels, strict=True):
            judged += code >= 0
            right += code >= 0 and own.classes[code] == label
    return right / max(judged, 1)


def looped(model: Any, rows: Iterable[dict[Any, Any]], labels: Iterable[Any], delay: int) -> float:
    """The same of any River classifier."""
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
    """River's classifiers beside."""
    from river import forest, linear_model, multiclass, preprocessing

    def regression() -> Any:
        return preprocessing.StandardScaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())

    return {"LR": regression, "ARF": lambda: forest.ARFClassifier(n_models=10, seed=1)}


def main() -> None:
    """Print a line for each stream and delay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("streams", nargs="*", default=["electricity"], help=", ".join(STREAMS))
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--forest", type=int, default=10_000, help="events for ARF, and for StreamSVM beside it")
    parser.add_argument("--delays", type=int, nargs="*", default=DELAYS)
    args = parser.parse_args()
    print("stream | delay | StreamSVM | LR | the first events: StreamSVM | ARF | seconds")
    for stream in args.streams:
        table, labels = load_stream(stream, args.events)
        rows = rows_of(table)
        first, n = {name: column[: args.forest] for name, column in table.items()}, args.forest
        for delay in (delay for delay in args.delays if delay < len(labels) // 2):
            began, make = time.process_time(), peers()
            shares = [joined(StreamSVMClassifier(), table, labels, delay), looped(make["LR"](), rows, labels, delay)]
            if delay < n // 2:
                shares.append(joined(StreamSVMClassifier(), first, labels[:n], delay))
                shares.append(looped(make["ARF"](), islice(rows, n), labels, delay))
            shown = " | ".join(f"{100 * share:.2f}" for share in shares)
            print(f"{stream} | {delay:,} | {shown} | {time.process_time() - began:.0f}", flush=True)


if __name__ == "__main__":
    main()
