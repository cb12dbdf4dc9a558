"""Arriving events, and matches of events with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import CategoricalColumn
from connectors.events import Features
from streamsvm.features.rows import Floats, Ints

OUTCOMES = ("in time", "late", "timeout")
"""How an event got its label."""


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
