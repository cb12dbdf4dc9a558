"""Types exchanged by the join, its models and its callers.

They are events, predictions and matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import CategoricalColumn
from connectors.events import Batch, Features, Origins
from streamsvm.decide.decisions import Decided
from streamsvm.features.rows import Floats, Ints

_NO_BATCH = Batch([], [], Origins({}, {}), {})
OUTCOMES = ("in time", "late", "timeout")
"""How an event got its label."""


@dataclass(slots=True)
class ModelRows:
    """Rows to predict or learn, in order.

    Parameters
    ----------
    features
        The rows.
    labels
        Class to learn each row as, None for rows that are only predicted.
    predicted
        Whether each row is predicted.
    times
        Event times, in milliseconds.
    memories, memory_rows
        Arguments of `run_batch` of the learners.
    """

    features: Any
    labels: Sequence[Any]
    predicted: NDArray[np.bool_]
    times: Ints
    memories: Ints
    memory_rows: Ints


@dataclass(slots=True)
class Predictions:
    """Predictions of a model.

    Parameters
    ----------
    codes, scores
        Class numbers (-1 for none) and their probabilities.
    probas
        Probabilities of all classes if requested; NaN where unknown.
    slots
        Slots of pending events, -1 for events that are not stored; empty if unknown.
    decided
        Prediction sets, decisions and alarms, if requested.
    batch
        The events without rejected ones; empty if unknown.
    """

    codes: Ints
    scores: Floats
    probas: Floats | None = None
    slots: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    decided: Decided = field(default_factory=Decided)
    batch: Batch = field(default_factory=lambda: _NO_BATCH)

    def part(self, batch: Batch, which: list[int] | slice) -> Predictions:
        """Return the predictions for the events that are left in a batch."""
        return replace(
            self,
            codes=self.codes[which],
            scores=self.scores[which],
            probas=None if self.probas is None else self.probas[which],
            slots=self.slots[which] if len(self.slots) else self.slots,
            decided=self.decided.part(which),
            batch=batch,
        )


@dataclass(slots=True)
class Arrivals:
    """Arriving events.

    Parameters
    ----------
    features
        Rows of features.
    keys, times
        Key and time of each event; times in milliseconds since 1970.
    origins
        Numbers that identify the origin of each event, shape (n, k).
    """

    features: Features
    keys: Sequence[str]
    times: Ints
    origins: Ints

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class Matches:
    """Matched events and labels, in order of matching.

    Parameters
    ----------
    labels
        The labels.
    codes, scores
        Predictions of the events.
    keys, origins
        Keys and origins of the events; keys are empty unless requested.
    times, lags
        Times of the events, and label time minus event time, in milliseconds.
    outcomes
        Index into `OUTCOMES`: in time, late, or timeout.
    stored
        Stored probabilities and decisions, as in `Decisions.packed`; empty if no longer stored.
    weights
        Cost weight of each label.
    """

    labels: CategoricalColumn
    codes: Ints
    scores: Floats
    keys: list[str]
    origins: Ints
    times: Ints
    lags: Ints
    outcomes: CategoricalColumn
    stored: list[Floats]
    weights: Floats

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def arrived(self) -> NDArray[np.bool_]:
        """Which labels arrived at all."""
        arrived: NDArray[np.bool_] = self.outcomes.codes != OUTCOMES.index("timeout")
        return arrived
