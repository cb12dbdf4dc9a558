"""The outputs of a run: what its records hold, and the sinks they are written to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.errors import ConnectorError
from connectors.events import Advancing, Position, Rejected, Replacing, Sink
from streamsvm.run.errors import SetupError, refusing
from streamsvm.run.learners import Answers, with_gaps
from streamsvm.run.names import ClassNames

_PURPOSES = {
    "out": "predictions",
    "dead_letter": "rejected events",
    "label_output": "joined results",
    "query_output": "requests for labels",
}
"""What is written to each sink, by its role."""


class Outputs:
    """The sinks of a run, by their roles.

    Parameters
    ----------
    sinks
        The sinks; None for those that are not wanted.
    waiting
        Entered while a sink works.
    """

    def __init__(
        self, sinks: Mapping[str, Sink | None], waiting: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> None:
        self.sinks = {role: sink for role, sink in sinks.items() if sink is not None}
        self._waiting, self._unflushed = waiting, False

    @property
    def is_live(self) -> bool:
        """Whether any sink writes to brokers."""
        return any(isinstance(sink, Advancing) for sink in self.sinks.values())

    def __contains__(self, role: str) -> bool:
        return role in self.sinks

    def name_of(self, role: str) -> str | None:
        """The name of a sink; None where there is none."""
        return self.sinks[role].name if role in self.sinks else None

    def check_rewind(self) -> None:
        """Refuse sinks that cannot take back what was written."""
        for sink in self.sinks.values():
            if not sink.can_rewind:
                raise SetupError(
                    f"{sink.name} cannot take back what was written, so results could come twice after a crash; "
                    "write to a file, or leave out --checkpoint"
                )

    def check_replaced(self) -> None:
        """Refuse to replace files that do not look like results."""
        for role, sink in self.sinks.items():
            if isinstance(sink, Replacing):
                with refusing(), _named(role):
                    sink.check_replaced()

    def write(self, role: str, table: Mapping[str, Sequence[Any]]) -> None:
        """Write records, if anybody wants them; where nobody can take them back they are durable at once."""
        if role in self.sinks:
            sink = self.sinks[role]
            with self._waiting(), _named(role):
                sink.write(table)
                if sink.can_rewind or isinstance(sink, Advancing):
                    self._unflushed = True
                else:
                    sink.flush()  # somebody reads along

    def advance(self, *, idle: bool) -> None:
        """Between two batches: let live sinks work; while nothing arrives, make durable what was written."""
        for role, sink in self.sinks.items():
            if isinstance(sink, Advancing) or (idle and self._unflushed):
                with self._waiting(), _named(role):
                    sink.advance() if isinstance(sink, Advancing) else sink.flush()
        self._unflushed &= not idle

    def flush(self) -> None:
        """Make durable all that was written."""
        for role, sink in self.sinks.items():
            with self._waiting(), _named(role):
                sink.flush()
        self._unflushed = False

    def hurry(self) -> None:
        """The run is to end."""
        for sink in self.sinks.values():
            if isinstance(sink, Advancing):
                sink.hurry()

    def state(self) -> dict[str, Position]:
        """What is durable of each sink."""
        return {role: sink.position for role, sink in self.sinks.items()}

    def restore(self, positions: Mapping[str, Position]) -> None:
        """Drop what was written after these positions."""
        for role, sink in self.sinks.items():
            sink.rewind(positions[role])


@contextlib.contextmanager
def _named(role: str) -> Iterator[None]:
    """Errors of a sink say what was to be written there."""
    try:
        yield
    except ConnectorError as error:
        error.args = (f"{_PURPOSES[role]}: {error}",)
        raise


def prediction_table(
    answers: Answers, classes: Sequence[Any], class_names: ClassNames | None
) -> dict[str, Sequence[Any]]:
    """The records of a batch: where each event stood, its key if it has one, prediction, score, and label if known.

    Where all probabilities are wanted (there are names of classes) they stand in one field, by class: which classes
    there will be nobody knows when the columns are settled. So do sets of labels.
    """
    batch = answers.batch
    names = np.fromiter((*classes, None), object, len(classes) + 1)  # code -1 is the last: none
    keys = {} if batch.keys is None else {"key": batch.keys}
    results: dict[str, Any] = {"prediction": names[answers.codes].tolist(), "score": with_gaps(answers.scores)}
    if batch.late is None:
        results["label"] = batch.labels
    if answers.members is not None:
        results["set"] = _sets_named(answers.members, classes)
    if answers.decisions is not None:
        results["decision"] = names[answers.decisions].tolist()
    if answers.alarms is not None:
        results["alarm"] = answers.alarms.tolist()
    if answers.reasons is not None:
        results["reasons"] = answers.reasons
    if class_names is not None and answers.proba is not None:
        fields, known = class_names.of(classes), (answers.codes >= 0) & ~np.isnan(answers.proba).any(axis=1)
        results["proba"] = [
            {fields[code]: p for code, p in enumerate(row) if p} if is_known else None
            for row, is_known in zip(answers.proba.tolist(), known.tolist(), strict=True)
        ]
    return {**batch.origins.columns, **keys, **results}


def _sets_named(members: NDArray[np.bool_], classes: Sequence[Any]) -> list[list[Any] | None]:
    """Sets by their labels, None for those with none; there are few different ones."""
    bits = np.packbits(members, axis=1)
    words = np.zeros((len(bits), max(-(-bits.shape[1] // 8), 1) * 8), np.uint8)
    words[:, : bits.shape[1]] = bits
    columns = [column.tolist() for column in words.view(np.uint64).T]
    keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    found = {key: list(compress(classes, members[i])) or None for key, i in dict(zip(keys, count())).items()}
    return list(map(found.__getitem__, keys))


def request_table(answers: Answers, classes: Sequence[Any], asked: Sequence[int]) -> dict[str, Sequence[Any]]:
    """The records of events whose labels are asked for: where each stood, its key, what is predicted, and its score."""
    batch, named = answers.batch, [*classes, None]
    places = {name: [column[i] for i in asked] for name, column in batch.origins.columns.items()}
    return places | {
        "key": [(batch.keys or [])[i] for i in asked],
        "prediction": [named[answers.codes[i]] for i in asked],
        "score": with_gaps(answers.scores[asked]),
    }


def rejection_table(rejected: Sequence[Rejected]) -> dict[str, Sequence[Any]]:
    """Events set aside as a table: reason, raw text, and where they stood."""
    origins = {name: [r.origin.get(name) for r in rejected] for name in rejected[0].origin}
    return {"reason": [r.reason for r in rejected], "raw": [r.raw for r in rejected], **origins}


def rejection_table_of_two(rejected: Sequence[Rejected]) -> dict[str, Sequence[Any]]:
    """The same for events and labels, which have their places in streams of different kinds."""
    places = [list(one.origin.values()) for one in rejected]
    return {
        "reason": [one.reason for one in rejected],
        "raw": [one.raw for one in rejected],
        "stream": [str(place[0]) if place else None for place in places],
        "part": [place[1] if len(place) > 2 else None for place in places],
        "number": [place[-1] if place else None for place in places],
    }


PLACES = ("stream", "part", "number", "partition", "offset", "line", "row", "element", "event", "how")
"""The columns of results, of whatever source, that tell them apart: where an event stood, and how it came by its label:
one that waited in vain may have a label all the same, later."""
