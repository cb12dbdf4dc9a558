"""Stage of the loop for labels that arrive later than their events."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import numbers_of
from connectors.events import Batch, LateLabels
from streamsvm.delayed.budget import LabelBudget
from streamsvm.delayed.join import Join
from streamsvm.delayed.keys import MANY_LABELS, KeyExamples, key_texts
from streamsvm.delayed.protocol import Arrivals, Matches
from streamsvm.delayed.store import Store, TooSmall
from streamsvm.models import ArchiveError
from streamsvm.models.codec import SavedState, Stateful, nested, part_of
from streamsvm.online.adapters import Predictions
from streamsvm.run.decisions import RunDecisions, binary_proba
from streamsvm.run.errors import RunError, SetupError, writing
from streamsvm.run.estimate import Estimate, Estimated
from streamsvm.run.formatting import json_number, meant
from streamsvm.run.outputs import FILE, labels_of, request_table, with_gaps
from streamsvm.run.stages import Judged, ModelStage, Step

if TYPE_CHECKING:
    from streamsvm.run.loop import RunLoop

logger = logging.getLogger("streamsvm.run")

N_ORIGINS = 2  # greatest number of integers that identify the origin of an event
_OCTAVES, _STEPS = 48, 64  # number of doublings of delays from a millisecond on, and steps per doubling
_QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class Lags(Stateful):
    """Histogram of label delays, in steps of 1 %, with the exact maximum.

    Examples
    --------
    >>> lags = Lags()
    >>> lags.add(np.array([0, 1000, 1000, 60_000]))
    >>> [round(lags.quantile(q)) for q in (0.25, 0.5, 1.0)]
    [0, 1001, 60000]
    """

    saved = ("counts", "longest")

    def __init__(self) -> None:
        self.counts = np.zeros(_OCTAVES * _STEPS, np.int64)
        self.longest = 0

    def add(self, lags: NDArray[np.int64]) -> None:
        """Add delays in milliseconds; labels before their events count as 0."""
        steps = np.round(_STEPS * np.log2(np.maximum(lags, 0) + 1.0)).astype(np.int64)
        self.longest = max(self.longest, int(lags.max(initial=0)))
        self.counts += np.bincount(np.minimum(steps, len(self.counts) - 1), minlength=len(self.counts))

    def quantile(self, q: float) -> float:
        """Return a quantile of the delays in milliseconds, NaN without labels."""
        total = int(self.counts.sum())
        if not total:
            return float("nan")
        step = int(np.searchsorted(np.cumsum(self.counts), max(q * total, 1)))
        return min(float(2.0 ** (step / _STEPS) - 1.0), float(self.longest)) if q < 1.0 else float(self.longest)

    def seconds(self) -> dict[str, float]:
        """Return quantiles of the delays in seconds by name, NaN without labels."""
        return {name: self.quantile(q) / 1000.0 for name, q in _QUANTILES.items()}


class JoinStage(ModelStage):
    """Predict events, and learn them when their labels arrive.

    Parameters
    ----------
    run, decisions
        The run, and its decisions about events.
    """

    def __init__(self, run: RunLoop, decisions: RunDecisions) -> None:
        super().__init__(run)
        self.learner, config, checkpoint = run.learner, run.config, run.checkpoint
        if config.pending_dir is not None and self.learner.keeps_objects:
            raise SetupError("--set pending-dir requires a model of this package, such as --model blend: remove it")
        self._timeout_class, self._pieces = config.timeout_class, Path() if checkpoint is None else checkpoint.pieces
        wait_ms = None if config.label_timeout is None else round(config.label_timeout * 1000)
        with _room():
            self.store = Store(
                wait_ms=wait_ms,
                most=config.max_pending,
                most_bytes=config.max_pending_bytes,
                keeps_objects=self.learner.keeps_objects,
                relearns=config.relearn_corrections,
                folder=None if config.pending_dir is None else Path(config.pending_dir),
            )
        self._decisions = decisions
        self.join = Join(self.store, self.learner, learn=config.learn, decisions=decisions)
        self.join.with_keys = "label_output" in run.outputs
        self.lags, self.estimate = Lags(), Estimate(config.window)
        self.budget = LabelBudget(config.label_budget or 0.1) if config.query_output else None
        self._keys = KeyExamples(wait_ms, by_time=True)
        self._warned, self._due = False, MANY_LABELS
        self._places: list[str] = []
        self._files: dict[str, int] = {}  # numbers of the files in origins
        run.report.late = run.parts["late"] = self

    def run_model(self, step: Step) -> None:
        """Predict events, and learn those whose labels arrive."""
        batch = step.batch.without(self.learner.unusable(step.batch))
        late = batch.late or LateLabels([], [], [], np.zeros(0, np.int64))
        # Labels have types, but settings are strings.
        self.join.on_timeout = meant(self._timeout_class, self.learner.classes, late.labels)
        with _room():
            predictions, joined = self.join.step(self._events(batch), late, key_texts(late.keys))
        event_times = () if batch.times is None else batch.times
        self._keys.add(() if batch.keys is None else batch.keys, event_times, late.keys, late.times)
        if (n_labels := self.store.counts["labels"]) >= self._due:
            self._due = 2 * n_labels
            self.end()
        step.judged_times = self._watch(predictions, joined)
        step.predictions = predictions = predictions.part(*self.learner.settled(batch))
        if len(queried := self._query(predictions.scores, predictions.slots)):
            step.tables["query_output"] = request_table(predictions, self.learner.classes, queried.tolist())
        if len(joined):
            step.judged.append(self._judged(joined))
            if self.join.with_keys:
                step.tables["label_output"] = self._table(joined)

    def _judged(self, joined: Matches) -> Judged:
        """Return the labels that arrived, with the predictions of their events."""
        arrived, n_classes = joined.arrived, len(self.learner.classes)
        labels, codes, scores = joined.labels.take(arrived), joined.codes[arrived], joined.scores[arrived]
        values: dict[str, Any] = {"scores": scores}
        if joined.stored:
            values |= self._decisions.of_joined(joined, np.flatnonzero(arrived).tolist(), self.learner.classes)
        elif n_classes <= 2:
            values["proba"] = binary_proba(codes, scores)[:, :n_classes]
        return Judged(labels, codes, values, clears=not joined.stored and n_classes > 2)

    @property
    def key_notice(self) -> str:
        """Return a notice if few labels match an event, or most precede it; else empty."""
        return self._keys.notice(self.store.counts)

    def end(self) -> None:
        """Warn once if few labels match an event, or most precede it."""
        if not self._warned and (notice := self.key_notice):
            self._warned = True
            logger.warning("%s", notice)

    def _query(self, scores: NDArray[np.float64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Choose events to query labels of, except those with duplicate keys."""
        if self.budget is None:
            return np.zeros(0, np.int64)
        waits = np.flatnonzero(slots >= 0)
        return waits[self.budget.wants_many(scores[waits])]

    def _events(self, batch: Batch) -> Arrivals:
        n, columns = len(batch), batch.origins.columns
        self._places = self._places or list(columns)
        origins = np.zeros((n, N_ORIGINS), np.int64)
        for j, (name, column) in enumerate(columns.items()):
            is_text = name == FILE
            origins[:, j] = [self._files.setdefault(text, len(self._files)) for text in column] if is_text else column
        return Arrivals(
            batch.features or batch.rows(),
            key_texts([] if batch.keys is None else batch.keys),
            np.asarray(batch.times, np.int64),
            origins,
        )

    def _watch(self, predictions: Predictions, joined: Matches) -> NDArray[np.int64]:
        """Update delays and the estimate; return the times of judged events."""
        slots = predictions.slots
        waits = (slots >= 0) & (predictions.codes >= 0)
        arrived = joined.arrived
        self.lags.add(joined.lags[arrived])
        known = arrived & (joined.codes >= 0)
        numbers = {label: code for code, label in enumerate(self.learner.classes)}
        right = numbers_of(joined.labels, numbers) == joined.codes
        times: NDArray[np.int64] = joined.times[known]
        self.estimate.update(predictions.scores[waits], joined.scores[known], right[known], times)
        return times

    def _table(self, joined: Matches) -> dict[str, Sequence[Any]]:
        """Return joined results as records: origin, key, prediction, label and delay."""
        files = list(self._files)
        places: dict[str, list[Any]] = {name: joined.origins[:, j].tolist() for j, name in enumerate(self._places)}
        if FILE in places:
            places[FILE] = [files[number] for number in places[FILE]]
        return {
            **places,
            "key": joined.keys,
            "prediction": labels_of(joined.codes, self.learner.classes),
            "score": with_gaps(joined.scores),
            "label": joined.labels,
            "lag": joined.lags / 1000.0,
            "how": joined.outcomes,
        }

    def totals(self) -> dict[str, int]:
        """Return all counts and the number of waiting events."""
        return self.store.counts | ({} if self.budget is None else {"asked": self.budget.n_asked})

    def summary(self, now: Estimated) -> dict[str, Any]:
        """Return all figures for JSON: counts, delays in seconds, estimated accuracy."""
        return self.totals() | {
            "lag_s": {name: json_number(lag) for name, lag in self.lags.seconds().items()},
            "estimated_accuracy": json_number(now.accuracy),
            "estimated_accuracy_error": json_number(now.error),
            "estimated_accuracy_lowered": json_number(now.lowered),
            "estimated_over": now.events,
        }

    def state(self) -> SavedState:
        """Return the state; closed segments of the store are files in `pieces`."""
        with writing(f"checkpoint: {self._pieces}"):
            store = self.store.state(self._pieces)
        parts = {"store": store, "estimate": self.estimate.state(), "lags": self.lags.state()}
        budget = None if self.budget is None else self.budget.state()
        return nested(parts, {"places": self._places, "files": list(self._files), "budget": budget})

    def close(self) -> None:
        """Release the files of pending events without waiting for garbage collection."""
        for segment in self.store.segments.all:
            segment.data = b""

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""
        self.store.restore(*part_of(state, "store"), self._pieces)
        self.estimate.restore(part_of(state, "estimate"))
        self.lags.restore(part_of(state, "lags"))
        if self.budget is not None:
            self.budget = LabelBudget.from_state(state[0]["budget"])
        self._places = [str(name) for name in state[0]["places"]]
        self._files = {str(name): i for i, name in enumerate(state[0]["files"])}


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Name the option in errors about a bound that is too small."""
    try:
        yield
    except TooSmall as error:
        raise SetupError(f"--set max-pending-bytes: {error}") from error
    except ArchiveError as error:
        raise RunError(f"{error}: use another --checkpoint directory, or --reset to start over") from error
