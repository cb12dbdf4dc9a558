"""A process that times the default learner of whichever version it finds: it gets a stream, then is asked about it.

Messages are pickles on standard input and output: a stream (`X`, `y`, and `rows`, the first as dicts), then `rows`,
`events`, until the next stream. It is started by `beside`, and imports nothing but the package it is to
measure.
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
    """Microseconds of the processor for an event, where all come at once, and the share that is predicted right."""
    from streamsvm import StreamSVMClassifier

    model, start = StreamSVMClassifier(), time.process_time()
    predicted = model.test_then_train(stream["X"], stream["y"]).tolist()
    spent, right = time.process_time() - start, map(operator.eq, predicted, stream["y"])
    return {"us": 1e6 * spent / len(predicted), "accuracy": sum(right) / len(predicted)}


def by_event(stream: Stream) -> dict[str, float]:
    """Microseconds of the processor for each of the first events by River's protocol, predicted, then learned."""
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
    """Answer until there is nothing more to answer."""
    stream: Stream = {}
    gc.disable()
    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if isinstance(asked, str):
            answer = WAYS[asked](stream)
            gc.collect()  # before another is timed
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            stream = asked


if __name__ == "__main__":
    main()
