"""Stages of the loop for labels that arrive with their events, or later."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import numbers_of
from connectors.events import Batch, LateLabels
from streamsvm.delayed.budget import LabelBudget
from streamsvm.delayed.join import Join
from streamsvm.delayed.keys import MANY_LABELS, KeyExamples, key_texts
from streamsvm.delayed.protocol import Answer, Events, Matches
from streamsvm.delayed.store import Store, TooSmall
from streamsvm.models import ArchiveError
from streamsvm.models.codec import State, Stateful, nested, part_of
from streamsvm.run.config import RunConfig
from streamsvm.run.deciding import RunDecisions, of_two
from streamsvm.run.errors import RunError, SetupError, writing
from streamsvm.run.estimate import Estimate, Estimated
from streamsvm.run.learners import Learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.names import known, meant
from streamsvm.run.outputs import FILE, Outputs, request_table, with_gaps

logger = logging.getLogger("streamsvm.run")

N_ORIGINS = 2  # greatest number of integers that identify the origin of an event
_OCTAVES, _STEPS = 48, 8  # number of doublings of delays from a millisecond on, and steps per doubling
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class PredictStage:
    """Predict and learn events whose labels arrive with them.

    Parameters
    ----------
    learner
        Learner.
    decisions
        Decisions about events.
    config
        Settings of the run.
    """

    def __init__(self, learner: Learner, decisions: RunDecisions, config: RunConfig) -> None:
        self._learner, self._decisions, self._learn = learner, decisions, config.learn

    def take(self, batch: Batch) -> Answer:
        """Test, then train, and decide."""
        answers = self._learner.step(batch, self._learn)
        self._answers, self._more = self._decisions.of(answers, self._learner.classes, learn=self._learn)
        return self._answers

    def measure(self, metrics: Metrics) -> None:
        """Measure the events of the last `take`."""
        answers = self._answers
        more = {"scores": answers.scores, "proba": answers.probas} | self._more
        metrics.update(answers.batch.labels, answers.codes, self._learner.classes, **more)

    def write(self, outputs: Outputs) -> None:
        """Write nothing: predictions are the only output."""


def with_labels(batch: Batch) -> Batch:
    """Reject events with a label that is not a single value, such as a JSON list."""
    try:
        set(batch.labels)
    except TypeError:
        labels = enumerate(batch.labels)
        kinds = {i: type(label).__name__ for i, label in labels if not isinstance(label, Hashable)}
        return batch.without({i: f"the label is a {kind}, not one value" for i, kind in kinds.items()})
    return batch


class Lags(Stateful):
    """Histogram of label delays, in steps of 9 %.

    Examples
    --------
    >>> lags = Lags()
    >>> lags.add(np.array([0, 1000, 1000, 60_000]))
    >>> [round(lags.quantile(q)) for q in (0.25, 0.5, 1.0)]
    [0, 1023, 60096]
    """

    saved = ("counts",)

    def __init__(self) -> None:
        self.counts = np.zeros(_OCTAVES * _STEPS, np.int64)

    def add(self, lags: NDArray[np.int64]) -> None:
        """Add delays in milliseconds; labels before their events count as 0."""
        steps = np.round(_STEPS * np.log2(np.maximum(lags, 0) + 1.0)).astype(np.int64)
        self.counts += np.bincount(np.minimum(steps, len(self.counts) - 1), minlength=len(self.counts))

    def quantile(self, q: float) -> float:
        """Return a quantile of the delays in milliseconds, NaN without labels."""
        total = int(self.counts.sum())
        if not total:
            return float("nan")
        step = int(np.searchsorted(np.cumsum(self.counts), max(q * total, 1)))
        return float(2.0 ** (step / _STEPS) - 1.0)


class JoinStage:
    """Predict events, and learn them when their labels arrive.

    Parameters
    ----------
    learner
        Learner.
    decisions
        Decisions about events.
    config
        Settings of the run.
    pieces
        Directory of closed segments of the store.
    """

    def __init__(self, learner: Learner, decisions: RunDecisions, config: RunConfig, pieces: Path | None) -> None:
        if config.pending_dir is not None and learner.keeps_objects:
            raise SetupError("--set pending-dir requires a model of this package, such as --model blend: remove it")
        self.learner, self._timeout_class, self._pieces = learner, config.timeout_class, pieces or Path()
        wait_ms = None if config.label_timeout is None else round(config.label_timeout * 1000)
        with _room():
            self.store = Store(
                wait_ms=wait_ms,
                most=config.max_pending,
                most_bytes=config.max_pending_bytes,
                keeps_objects=learner.keeps_objects,
                relearns=config.relearn_corrections,
                folder=None if config.pending_dir is None else Path(config.pending_dir),
            )
        self._decisions = decisions
        self.join = Join(self.store, learner, learn=config.learn, decisions=decisions)
        self.lags, self.estimate = Lags(), Estimate(config.window)
        self.budget = LabelBudget(config.label_budget or 0.1) if config.query_output else None
        self._keys = KeyExamples(wait_ms, by_time=True)
        self._warned, self._due = False, MANY_LABELS
        self.judged_times: NDArray[np.int64] = np.zeros(0, np.int64)  # of the events that were judged last
        self._queried: NDArray[np.int64] = np.zeros(0, np.int64)  # current events to query
        self._places: list[str] = []
        self._files: dict[str, int] = {}  # numbers of the files in origins

    def take(self, batch: Batch) -> Answer:
        """Predict events, and learn those whose labels arrive."""
        batch = batch.without(self.learner.unusable(batch))
        late = batch.late or LateLabels([], [], [], np.zeros(0, np.int64))
        # Labels have types, but settings are strings.
        self.join.on_timeout = meant(self._timeout_class, self.learner.classes, late.labels)
        with _room():
            answer, self._joined = self.join.step(self._events(batch), late, key_texts(late.keys))
        event_times = () if batch.times is None else batch.times
        self._keys.add(() if batch.keys is None else batch.keys, event_times, late.keys, late.times)
        if (n_labels := self.store.counts["labels"]) >= self._due:
            self._due = 2 * n_labels
            self.warn_of_keys()
        self._watch(answer, self._joined)
        batch, keep = self.learner.settled(batch)
        self._answers = answer = answer.part(batch, keep)
        self._queried = self._query(answer.scores, answer.slots)
        return answer

    def measure(self, metrics: Metrics) -> None:
        """Measure the events of the last `take` and those that were joined with labels."""
        metrics.events += len(self._answers.batch)
        joined, classes = self._joined, self.learner.classes
        if not len(joined):
            return
        arrived = joined.arrived
        labels, codes, scores = joined.labels.take(arrived), joined.codes[arrived], joined.scores[arrived]
        more: dict[str, Any] = {}
        if joined.stored:
            more = self._decisions.of_joined(joined, np.flatnonzero(arrived).tolist(), classes)
        elif len(classes) <= 2:
            more["proba"] = of_two(codes, scores)[:, : len(classes)]
        else:
            metrics.measures.clear_probabilities()
        metrics.judge(labels, codes, classes, scores=scores, **more)

    def write(self, outputs: Outputs) -> None:
        """Write label queries and joined results."""
        self.join.with_keys = "label_output" in outputs
        if len(self._queried):
            outputs.write("query_output", request_table(self._answers, self.learner.classes, self._queried.tolist()))
        if len(self._joined) and "label_output" in outputs:
            outputs.write("label_output", self._table(self._joined))

    @property
    def key_notice(self) -> str:
        """Return a notice if few labels match an event, or most precede it; else empty."""
        return self._keys.notice(self.store.counts)

    def warn_of_keys(self) -> None:
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

    def _events(self, batch: Batch) -> Events:
        n, columns = len(batch), batch.origins.columns
        self._places = self._places or list(columns)
        origins = np.zeros((n, N_ORIGINS), np.int64)
        for j, (name, column) in enumerate(columns.items()):
            is_text = name == FILE
            origins[:, j] = [self._files.setdefault(text, len(self._files)) for text in column] if is_text else column
        return Events(
            batch.features or batch.rows(),
            key_texts([] if batch.keys is None else batch.keys),
            np.asarray(batch.times, np.int64),
            origins,
        )

    def _watch(self, answer: Answer, joined: Matches) -> None:
        slots = answer.slots
        waits = (slots >= 0) & (answer.codes >= 0)
        arrived = joined.arrived
        self.lags.add(joined.lags[arrived])
        known = arrived & (joined.codes >= 0)
        numbers = {label: code for code, label in enumerate(self.learner.classes)}
        right = numbers_of(joined.labels, numbers) == joined.codes
        self.judged_times = joined.times[known]
        self.estimate.follow(answer.scores[waits], joined.scores[known], right[known], self.judged_times)

    def _table(self, joined: Matches) -> dict[str, Sequence[Any]]:
        """Return joined results as records: origin, key, prediction, label and delay."""
        classes, files = [*self.learner.classes, None], list(self._files)
        places: dict[str, list[Any]] = {name: joined.origins[:, j].tolist() for j, name in enumerate(self._places)}
        if FILE in places:
            places[FILE] = [files[number] for number in places[FILE]]
        return {
            **places,
            "key": joined.keys,
            "prediction": [classes[code] for code in joined.codes.tolist()],
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
            "lag_s": {name: known(self.lags.quantile(q) / 1000.0) for name, q in QUANTILES.items()},
            "estimated_accuracy": known(now.accuracy),
            "estimated_accuracy_error": known(now.error),
            "estimated_accuracy_lowered": known(now.lowered),
            "estimated_over": now.events,
        }

    def state(self) -> State:
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

    def restore(self, state: State) -> None:
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
