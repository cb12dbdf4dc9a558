"""Outputs of a run: their records and sinks."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.errors import ConnectorError
from connectors.events import Position, Rejected
from connectors.streams import Sink
from streamsvm.online.adapters import Predictions
from streamsvm.run.errors import SetupError, refusing
from streamsvm.run.formatting import ClassNames

_PURPOSES = {
    "out": "predictions",
    "dead_letter": "rejected events",
    "label_output": "joined results",
    "query_output": "requests for labels",
    "alerts": "alarms",
}
"""Content of each sink, by role."""


class Outputs:
    """Sinks of a run, by role.

    Parameters
    ----------
    sinks
        The sinks; None for unused roles.
    waiting
        Context that is entered while a sink works.
    source
        Name of the source.

    Attributes
    ----------
    origin
        Fields that the origins of all events share, such as the file.
    reject
        Function that receives each row that is too large for its sink.
    """

    reject: Callable[[Rejected], None]

    def __init__(
        self,
        sinks: Mapping[str, Sink | None],
        waiting: Callable[[], contextlib.AbstractContextManager[None]],
        source: str,
    ) -> None:
        self.sinks = {role: sink for role, sink in sinks.items() if sink is not None}
        for role, sink in self.sinks.items():
            if role != "dead_letter":
                sink.reject = functools.partial(self._reject_row, role)
        self.origin = dict[str, Any](stream=source)
        self._waiting, self._unflushed = waiting, False

    def _reject_row(self, role: str, reason: str, text: str) -> None:
        row = json.loads(text)
        origin = self.origin | {name: row[name] for name in EVENT_PLACES if name in row}
        self.reject(Rejected(f"{_PURPOSES[role]}: {reason}", origin, text))

    @property
    def is_live(self) -> bool:
        """Whether any sink writes to brokers."""
        return any(sink.is_live for sink in self.sinks.values())

    def __contains__(self, role: str) -> bool:
        return role in self.sinks

    def name_of(self, role: str) -> str | None:
        """Return the name of a sink; None if there is none."""
        return self.sinks[role].name if role in self.sinks else None

    def check_rewind(self) -> None:
        """Refuse sinks that cannot rewind."""
        for sink in self.sinks.values():
            if not sink.can_rewind:
                what = f"{sink.name} cannot undo writes; write to a file, or remove --checkpoint"
                raise SetupError(what, "not seekable", option="--checkpoint")

    def check_replaced(self) -> None:
        """Refuse to replace files that do not contain results."""
        for role, sink in self.sinks.items():
            with refusing(), self._working(role):
                sink.check_replaced()

    def write(
        self,
        role: str,
        table: Mapping[str, Sequence[Any]],
        times: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> None:
        """Write records, with event times if known; flush sinks that cannot rewind."""
        if role in self.sinks:
            sink = self.sinks[role]
            with self._working(role):
                if times is None:
                    sink.write(table)
                else:
                    sink.write_at(table, times)
                if sink.can_rewind or sink.is_live:
                    self._unflushed = True
                else:
                    sink.flush()  # for concurrent readers

    def advance(self, *, idle: bool) -> None:
        """Let live sinks work between batches; flush other sinks if no events arrive."""
        for role, sink in self.sinks.items():
            if sink.is_live or (idle and self._unflushed):
                with self._working(role):
                    sink.advance() if sink.is_live else sink.flush()
        self._unflushed &= not idle

    def flush(self) -> None:
        """Make all written records durable."""
        for role, sink in self.sinks.items():
            with self._working(role):
                sink.flush()
        self._unflushed = False

    def hurry(self) -> None:
        """Tell live sinks that the run is ending."""
        for sink in self.sinks.values():
            sink.hurry()

    def state(self) -> dict[str, Position]:
        """Return the durable position of each sink."""
        return {role: sink.position for role, sink in self.sinks.items()}

    def restore(self, positions: Mapping[str, Position]) -> None:
        """Drop records after the given positions."""
        for role, sink in self.sinks.items():
            sink.rewind(positions[role])

    @contextlib.contextmanager
    def _working(self, role: str) -> Iterator[None]:
        """Name the content of a sink in its errors, and tell that the run waits for it."""
        try:
            with self._waiting():
                yield
        except ConnectorError as error:
            error.args = (f"{_PURPOSES[role]}: {error}",)
            raise


def with_gaps(values: NDArray[np.float64]) -> Any:
    """Return numbers for a result field, None if unknown."""
    unknown = np.isnan(values)
    if not unknown.any():
        return values
    return [None if gap else value for value, gap in zip(values.tolist(), unknown.tolist(), strict=True)]


def labels_of(codes: NDArray[np.integer[Any]], classes: Sequence[Any]) -> list[Any]:
    """Return the labels of class numbers, None for -1."""
    labels: list[Any] = np.fromiter((*classes, None), object, len(classes) + 1)[codes].tolist()
    return labels


def prediction_table(
    predictions: Predictions,
    classes: Sequence[Any],
    class_names: ClassNames | None,
    reasons: Sequence[Any] | None = None,
) -> dict[str, Sequence[Any]]:
    """Return the records of a batch: origin, key, prediction, score and label.

    Probabilities of all classes, if requested by `class_names`, are one field by class, because classes may appear
    after the columns are fixed. Prediction sets are one field for that reason, too.
    """
    batch = predictions.batch
    keys = {} if batch.keys is None else {"key": batch.keys}
    results: dict[str, Any] = {
        "prediction": labels_of(predictions.codes, classes),
        "score": with_gaps(predictions.scores),
    }
    if batch.late is None:
        results["label"] = batch.labels
    decided = predictions.decided
    if decided.members is not None:
        results["set"] = _sets_named(decided.members, classes)
    if decided.decisions is not None:
        results["decision"] = labels_of(decided.decisions, classes)
    if decided.alarms is not None:
        results["alarm"] = (decided.alarms > 0).tolist()
    if reasons is not None:
        results["reasons"] = [one if code >= 0 else None for one, code in zip(reasons, predictions.codes, strict=False)]
    if class_names is not None and predictions.probas is not None:
        fields, known = class_names.of(classes), (predictions.codes >= 0) & ~np.isnan(predictions.probas).any(axis=1)
        results["proba"] = [
            {fields[code]: p for code, p in enumerate(row) if p} if is_known else None
            for row, is_known in zip(predictions.probas.tolist(), known.tolist(), strict=True)
        ]
    return {**batch.origins.columns, **keys, **results}


def _sets_named(members: NDArray[np.bool_], classes: Sequence[Any]) -> list[list[Any] | None]:
    """Return sets as lists of labels, None if empty; equal sets share one list."""
    keys = [row.tobytes() for row in np.packbits(members, axis=1)]
    found = {key: list(compress(classes, members[i])) or None for key, i in dict(zip(keys, count())).items()}
    return [found[key] for key in keys]


def request_table(predictions: Predictions, classes: Sequence[Any], indices: Sequence[int]) -> dict[str, Sequence[Any]]:
    """Return the records of label queries: origin, key, prediction and score."""
    batch = predictions.batch
    places = {name: [column[i] for i in indices] for name, column in batch.origins.columns.items()}
    return places | {
        "key": [(batch.keys or [])[i] for i in indices],
        "prediction": labels_of(predictions.codes[indices], classes),
        "score": with_gaps(predictions.scores[indices]),
    }


def rejection_table(rejected: Sequence[Rejected], *, joined: bool = False) -> dict[str, Sequence[Any]]:
    """Return rejected events as a table: reason, raw record and origin.

    Parameters
    ----------
    rejected
        The events.
    joined
        Whether they are of events and of labels, whose streams may have origins of different kinds.
    """
    table: dict[str, Sequence[Any]] = {"reason": [one.reason for one in rejected], "raw": [one.raw for one in rejected]}
    if not joined:
        return table | {name: [one.origin.get(name) for one in rejected] for name in rejected[0].origin}
    places = [list(one.origin.values()) for one in rejected]
    return table | {
        "stream": [str(place[0]) if place else None for place in places],
        "part": [place[1] if len(place) > 2 else None for place in places],
        "number": [place[-1] if place else None for place in places],
    }


FILE = "file"
"""Column with the file of an event, if the source reads several files."""
EVENT_PLACES = (FILE, "partition", "offset", "line", "row", "element", "event")
"""Columns of the origin of an event, of all sources."""

PLACES = ("stream", "part", "number", *EVENT_PLACES, "how", "reason")
"""Columns that identify a result: the origin of its event, and of its label.

An expired event may have a second result if its label arrives later, and a dead letter for each result that is too
large.
"""
