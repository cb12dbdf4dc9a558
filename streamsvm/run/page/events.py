"""Latest events of a stream, and the reasons of a prediction."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from connectors.events import Batch
from streamsvm.core.clock import working_time
from streamsvm.decide.reasons import EVALUATIONS, MOST, by_relevance
from streamsvm.names import feature, shown
from streamsvm.online.adapters import Predictions
from streamsvm.run.formatting import json_number, plain
from streamsvm.run.learners import Learner, reasons_for

_MOST_AT_ONCE = 20
_MOST_HELD, _MOST_VALUES_HELD = 1_000, 100_000
_MOST_SHOWN = 64
_NEAREST = 5
_LONGEST = 120
_MOST_S = 0.25  # seconds for asking a model that takes one event at a time


class ShownEvent(NamedTuple):
    """An event with its prediction: its line in the table, and its features."""

    line: Mapping[str, Any]
    row: Mapping[Any, Any]
    prediction: Any


class LastEvents:
    """The latest 20 events at each update; shown events are stored for a while."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float, Predictions]] = deque()  # with the number of earlier events
        self._held: OrderedDict[int, ShownEvent] = OrderedDict()
        self._n = self._n_values = 0

    def add(self, predictions: Predictions) -> None:
        """Store a batch, which is processed at the next update."""
        self._batches.append((self._n, time.time(), predictions))
        self._n += len(predictions.batch)
        while len(self._batches) > 1 and self._n - self._batches[1][0] >= _MOST_AT_ONCE:
            self._batches.popleft()

    def lines(self, classes: Sequence[Any]) -> list[Mapping[str, Any]]:
        """Return the latest events, newest first."""
        first = max(self._n - _MOST_AT_ONCE, next(reversed(self._held), 0))
        for before, at, predictions in self._batches:
            for i in range(max(first - before, 0), len(predictions.batch)):
                event = self._held[before + i + 1] = _event(before + i + 1, at, predictions, classes, i)
                self._n_values += len(event.row)
        while len(self._held) > _MOST_AT_ONCE and (len(self._held) > _MOST_HELD or self._n_values > _MOST_VALUES_HELD):
            self._n_values -= len(self._held.popitem(last=False)[1].row)
        return [event.line for event in islice(reversed(self._held.values()), min(self._n, _MOST_AT_ONCE))]

    def __getitem__(self, number: int) -> ShownEvent:
        return self._held[number]


def _event(number: int, at: float, predictions: Predictions, classes: Sequence[Any], i: int) -> ShownEvent:
    batch, code, score = predictions.batch, int(predictions.codes[i]), float(predictions.scores[i])
    prediction, label = classes[code] if code >= 0 else None, batch.labels[i]
    line = {
        "id": number,
        "at": at,
        "place": _place(batch, i),
        "prediction": None if prediction is None else shown(prediction),
        "score": json_number(score),
        "label": None if label is None else shown(label),
        "right": None if label is None or prediction is None else prediction == label,
    }
    return ShownEvent(line, batch.part(i, i + 1).rows()[0], prediction)


def reasons(event: ShownEvent, learner: Learner, relevance: Mapping[Any, float]) -> dict[str, Any]:
    """Explain a prediction with the current model.

    The explanation consists of the nearest examples of the model and the contributions of features. A contribution is
    to the log-odds of the predicted label against the next one, see `streamsvm.decide.reasons`. It uses at most the 64
    most relevant features, and as many variants of the event as time allows.
    """
    ordered = by_relevance(event.row, relevance)
    found = {
        "event": event.line,
        "features": [[feature(name), event.row[name]] for name in ordered[:_MOST_SHOWN]],
        "left_out": max(0, len(ordered) - _MOST_SHOWN),
        "now": None,
        "nearest": [],
    }
    try:
        found |= _contributions(event, learner, ordered)
    except Exception as error:  # foreign models may raise anything
        found["why_not"] = f"the model cannot be queried: {type(error).__name__}: {error}"
    return dict(plain(found, _LONGEST))


def _contributions(event: ShownEvent, learner: Learner, ordered: list[Any]) -> dict[str, Any]:
    row, began = dict(event.row), working_time()
    first = learner.peek([row])
    seconds = max(working_time() - began, 1e-6)
    if first is None or first.shape[1] < 2:
        return {"why_not": "the model does not predict probabilities" if first is None else "only one class is known"}
    evaluations = max(int(min(_MOST_S / seconds, EVALUATIONS)), 1)
    most = min(MOST, max(evaluations // 2 - 1, 0))
    found = reasons_for(learner, row, event.prediction, evaluations, _NEAREST, ordered=ordered, most=most)
    assert found is not None  # there are two classes
    top = int(first[0].argmax())
    return {
        "now": {
            "prediction": shown(list(learner.classes)[top]),
            "score": float(first[0, top]),
            "of": shown(found.label),
            "against": shown(found.against),
        },
        "contributions": [[feature(one.feature), one.value, one.adds] for one in found.contributions],
        "base": found.base,
        "odds": found.score,
        "asked": sum(one.value is not None for one in found.contributions),
        "nearest": list(map(_example, found.nearest)),
    }


def _example(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a support vector with names and label as text."""
    values = {shown(feature(name), _LONGEST): value for name, value in list(one["features"].items())[:_MOST_SHOWN]}
    return {"similarity": one["similarity"], "label": shown(one["label"]), "features": values}


def _place(batch: Batch, i: int) -> str:
    """Return the key of an event, or else its line, or partition and offset."""
    if batch.keys is not None and batch.keys[i] is not None:
        return shown(batch.keys[i], _LONGEST)
    return " ".join(f"{name} {shown(column[i], 40)}" for name, column in batch.origins.columns.items())
