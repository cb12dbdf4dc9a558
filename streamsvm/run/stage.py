"""Stages of the loop, and what they pass on to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from connectors.events import Batch, Results
from streamsvm.features.rows import Ints
from streamsvm.models.codec import SavedState
from streamsvm.online.adapters import Predictions
from streamsvm.run.accuracy_drops import AccuracyDrop

if TYPE_CHECKING:
    from streamsvm.run.loop import RunLoop


@dataclass(slots=True)
class Judged:
    """Labels of events with their predictions.

    Parameters
    ----------
    labels, codes
        Labels, None if unknown, and predictions by class number, -1 for none.
    values
        Further results of the predictions, as for `Metrics.judge`.
    clears
        Whether earlier losses are discarded, because probabilities are unknown from now on.
    """

    labels: Sequence[Any]
    codes: Ints
    values: dict[str, Any]
    clears: bool = False


@dataclass(slots=True)
class Step:
    """Events on their way through the stages, each of which adds its results.

    Parameters
    ----------
    batch
        The events. Their rejected records are those of the source.
    predictions
        Predictions. Their batch has the events that were predicted, and all rejected records.
    reasons
        Reasons for the prediction of each event, if requested.
    judged
        Labels that arrived with these events or now, with the predictions.
    n_judged
        Number of judged events before.
    judged_times
        Times of the events whose late labels arrived.
    drops
        Drops of the accuracy within these events.
    tables
        Records to write beside the predictions, by role of their sink.
    """

    batch: Batch
    predictions: Predictions = field(init=False)
    reasons: Sequence[list[dict[str, Any]] | None] | None = None
    judged: list[Judged] = field(default_factory=list)
    n_judged: int = 0
    judged_times: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    drops: Sequence[AccuracyDrop] = ()
    tables: dict[str, Results] = field(default_factory=dict)


class Checkpointed(Protocol):
    """A part of a run whose state is saved in checkpoints."""

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""


class Stage:
    """A stage of the loop. Its methods do nothing; a stage overrides those it needs.

    Parameters
    ----------
    run
        The run, with what its stages share: settings, streams, learner and report.
    """

    def __init__(self, run: RunLoop) -> None:
        self.run = run

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Split batches where this stage has to act between two events.

        The code after a `yield` runs when all stages have processed the events.

        Parameters
        ----------
        batches
            The events.
        """
        return batches

    def process(self, step: Step) -> None:
        """Process events.

        Parameters
        ----------
        step
            Events, and results of the stages before.
        """

    def end_batch(self, *, whole: bool) -> None:
        """Act after all events of a batch of the source, or of a part if not `whole`."""

    def end(self) -> None:
        """Act after the last event, except if the run was stopped."""

    def close(self) -> None:
        """Release memory and files."""

    @property
    def files(self) -> Set[str]:
        """Names of files in `Checkpoint.pieces` that the state refers to."""
        return frozenset()
