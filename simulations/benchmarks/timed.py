"""A process that times the default learner of the installed version.

Messages on standard input and output are pickles. A stream (`X`, `y`, and `rows`, the first rows as dicts) is followed
by any number of `rows` or `events`, which request a measurement. `beside` starts the process, which imports only the
measured package.
"""

from __future__ import annotations

import gc
import operator
import pickle
import sys
import time
from typing import Any

Stream = dict[str, Any]


def by_rows(stream: Stream) -> dict[str, float]:
    """Return CPU microseconds per event for all rows at once, and the accuracy."""
    from streamsvm import StreamSVMClassifier

    model, start = StreamSVMClassifier(), time.process_time()
    predicted = model.test_then_train(stream["X"], stream["y"]).tolist()
    spent, right = time.process_time() - start, map(operator.eq, predicted, stream["y"])
    return {"us": 1e6 * spent / len(predicted), "accuracy": sum(right) / len(predicted)}


def by_event(stream: Stream) -> dict[str, float]:
    """Return CPU microseconds per event for single events through River's interface."""
    from streamsvm import StreamSVMClassifier

    model, rows = StreamSVMClassifier(), stream["rows"]
    predict, learn = model.predict_one, model.learn_one
    start = time.process_time()
    for x, label in zip(rows, stream["y"][: len(rows)], strict=True):
        predict(x)
        learn(x, label)
    return {"us": 1e6 * (time.process_time() - start) / len(rows)}


WAYS = {"rows": by_rows, "events": by_event}


def main() -> None:
    """Answer requests until the end of the input."""
    stream: Stream = {}
    gc.disable()
    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if isinstance(asked, str):
            answer = WAYS[asked](stream)
            gc.collect()  # before the next measurement
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            stream = asked


if __name__ == "__main__":
    main()
