"""River classifier with delayed labels, joined to events by key."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from river import base

from connectors.events import LateLabels
from connectors.notices import Notices
from streamsvm.decide.conformal import AllSets, ConformalSets, Key, labels_in
from streamsvm.decide.deciding import check_model, decider_of
from streamsvm.decide.decisions import Decisions
from streamsvm.decide.prediction_sets import PredictsSets
from streamsvm.delayed.join import Join
from streamsvm.delayed.keys import LATEST, MANY_LABELS, KeyExamples, key_text, milliseconds
from streamsvm.delayed.protocol import Arrivals
from streamsvm.delayed.single import SingleRow
from streamsvm.delayed.single_join import NOW
from streamsvm.delayed.store import Store
from streamsvm.features.rows import Ints
from streamsvm.features.values import names_of_times, notice_of_times, refuse_rows, unusable_rows, with_times
from streamsvm.labels import as_label, check_label
from streamsvm.locks import Lock, locked
from streamsvm.mutation import MutableWrapper
from streamsvm.online.adapters import BatchAdapter, EventAdapter, is_own
from streamsvm.parameters import ParameterError, check_number

logger = logging.getLogger(__name__)
_NO_TIMES, _AT_ONCE = np.zeros(0, np.int64), np.zeros(1, np.int64)
_NO_ORIGINS = np.zeros((1, 2), np.int64)


class _Found(NamedTuple):
    """Prediction of an event in a batch of one."""

    label: Any
    shares_by_label: dict[Any, float]


class DelayedClassifier(MutableWrapper, PredictsSets, base.Classifier):
    """Wrapper for late labels: predict now, learn when the label arrives.

    Events and labels are joined by key. Training uses the features stored at prediction time, so `learn_one` needs only
    the key. Labels may arrive in any order, even before their events. Calls without a key are passed to the classifier.

    Pending events are stored in arrays for classifiers of this package (about 300 bytes for 20 numbers), and as dicts
    for others.

    Thread-safe around a classifier of this package: several threads may predict and learn with one model, and
    each call is atomic.

    Parameters
    ----------
    model
        The wrapped classifier.
    label_timeout
        How long an event waits for its label, as a timedelta or in seconds of event time. None: until
        `max_pending` or `max_pending_bytes` is reached. Labels that arrive later are counted but not learned.
    timeout_label
        Class to learn if the label does not arrive in time; it needs `label_timeout`. None learns nothing.
    max_pending
        Maximum number of pending events; beyond it, the oldest one is dropped.
    max_pending_bytes
        Maximum memory of all stored events, including labelled and expired ones, in bytes.
    relearn_corrections
        Whether a second, different label of an event is also learned; the first is not unlearned.
    pending_dir
        Directory in which pending events are stored. It requires a learner of this package, with or without costs.
        About 125 bytes per event stay in memory. None: events stay in memory.

    Examples
    --------
    >>> from streamsvm import CPMClassifier, DelayedClassifier
    >>> model = DelayedClassifier(CPMClassifier())
    >>> for i in range(100):
    ...     _ = model.predict_one({"size": i % 10}, key=f"order-{i}")
    ...     if i >= 20:
    ...         model.learn_one(f"order-{i - 20}", "large" if i % 10 > 4 else "small")
    >>> model.predict_one({"size": 9}), model.n_pending
    ('large', 20)

    Prediction sets (`predict_set_one`) are calibrated on the predictions of labelled events. All calls share one
    coverage:

    >>> for i in range(100, 500):
    ...     _ = model.predict_set_one({"size": i % 10}, coverage=0.9, key=f"order-{i}")
    ...     model.learn_one(f"order-{i - 20}", "large" if (i - 20) % 10 > 4 else "small")
    >>> model.predict_set_one({"size": 0}, coverage=0.9, key="another")
    {'small'}

    River's evaluation with a delay passes the key of each event:

    >>> from river import datasets, evaluate, metrics
    >>> events = ((x, y, {"key": i}) for i, (x, y) in enumerate(datasets.Phishing()))
    >>> evaluate.progressive_val_score(events, DelayedClassifier(CPMClassifier()), metrics.Accuracy(), delay=100)
    Accuracy: 86.61%
    """

    def __init__(
        self,
        model: base.Classifier,
        label_timeout: timedelta | float | None = None,
        timeout_label: Any = None,
        max_pending: int = 1_000_000,
        max_pending_bytes: int = 1 << 30,
        relearn_corrections: bool = False,
        pending_dir: str | None = None,
    ) -> None:
        self.model, self.label_timeout, self.timeout_label = model, label_timeout, timeout_label
        self.max_pending, self.max_pending_bytes, self.pending_dir = max_pending, max_pending_bytes, pending_dir
        self.relearn_corrections = relearn_corrections
        check_model(model)
        seconds = label_timeout.total_seconds() if isinstance(label_timeout, timedelta) else label_timeout
        if seconds is not None:
            check_number("label_timeout", seconds, 0, LATEST / 1000)
        check_number("max_pending", max_pending, 1, LATEST, whole=True)
        check_number("max_pending_bytes", max_pending_bytes, 1, LATEST, whole=True)
        if timeout_label is not None:
            check_label(timeout_label, "`timeout_label`")
            if seconds is None:
                raise ParameterError(
                    "timeout_label", "needs `label_timeout`: set how long an event waits for its label"
                )
        self._join: Join | None = None
        self._sets, self._lock, self._notices = AllSets(), Lock(), Notices(logger)
        self._sets_of: Key | None = None  # that were requested
        self._keys = KeyExamples(None if seconds is None else round(seconds * 1000))
        self._n_labels = 0
        # Around a classifier of this package, decisions by costs do not affect learning: join its learner directly.
        decider = decider_of(model)
        self._deciding = decider if decider is not None and is_own(decider.model) else None
        own = model if self._deciding is None else self._deciding.model
        self._adapter = BatchAdapter(own, proba=True) if is_own(own) else EventAdapter(model)
        if pending_dir is not None and isinstance(self._adapter, EventAdapter):
            only = f"is for learners of this package, not {type(model).__name__}: remove it"
            raise ParameterError("pending_dir", only)
        if pending_dir is not None and not (os.path.isdir(pending_dir) and os.access(pending_dir, os.W_OK)):
            raise ParameterError("pending_dir", f"must be a writable directory, got {pending_dir!r}")

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, naive_bayes

        yield {"model": linear_model.LogisticRegression()}
        yield {"model": naive_bayes.GaussianNB(), "label_timeout": 5.0}  # type: ignore[no-untyped-call]

    @property
    def classes_(self) -> list[Any]:
        """Known classes, in order of first arrival."""
        return list(self._adapter.classes)

    # Events and labels ------------------------------------------------------------------------------------------------

    def predict_one(self, x: dict[Any, Any], key: Any = None, time: Any = None, **kwargs: Any) -> Any:
        """Predict the most probable label.

        With a key, the event is stored until its label arrives.

        Parameters
        ----------
        x
            Features by name.
        key
            Key that the event and its label share: a string, an integer, or a tuple of these. 17 and "17" are equal.
        time
            Event time, in seconds or as a datetime (UTC without a zone); by default the newest time so far.
        kwargs
            Passed to the classifier; only without a key.
        """
        if key is None:
            return self.model.predict_one(x, **kwargs)
        _refuse(kwargs)
        with self._lock:
            found = self._predict(x, key, time, proba=False)
            chosen = None if self._deciding is None else self._started_join().decided.decisions
            return found.label if chosen is None else self._label(int(chosen[0]))

    def predict_proba_one(
        self, x: dict[Any, Any], key: Any = None, time: Any = None, **kwargs: Any
    ) -> dict[Any, float]:
        """Predict the probability of each label.

        Parameters
        ----------
        x
            Features by name.
        key, time
            As for `predict_one`, which stores the event until its label arrives.
        kwargs
            Passed to the classifier; only without a key.
        """
        if key is None:
            return self.model.predict_proba_one(x, **kwargs)
        _refuse(kwargs)
        with self._lock:
            return dict(self._predict(x, key, time, proba=True).shares_by_label)

    @locked
    def label_sets(self, coverage: float = 0.9, by_class: bool = False) -> ConformalSets:
        """Return the conformal sets shared by all calls of `predict_set_one`.

        Parameters
        ----------
        coverage
            Share of events whose set contains the true label, between 0 and 1.
        by_class
            Whether the coverage applies to each class separately.

        Raises
        ------
        ValueError
            If sets with a different coverage were requested before.
        """
        join = self._started_join()
        sets = join.decisions.sets or self._sets.of(coverage, by_class, self.classes_)
        if (sets.coverage, sets.by_class) != (coverage, by_class):
            raise ValueError(
                f"sets of coverage {sets.coverage:g}{' by class' if sets.by_class else ''} were requested before, and "
                "waiting events use them: use a second DelayedClassifier for other sets"
            )
        join.use_sets(sets)
        self._sets_of = sets.key
        return sets

    def predict_set_one(
        self,
        x: dict[Any, Any],
        coverage: float = 0.9,
        by_class: bool = False,
        key: Any = None,
        time: Any = None,
        **kwargs: Any,
    ) -> set[Any]:
        """Predict a set that contains the true label in a given share of events.

        Parameters
        ----------
        x
            Features by name.
        coverage, by_class
            As for `label_sets`; must be equal in all calls.
        key, time
            As for `predict_one`, which stores the event until its label arrives.
        kwargs
            Passed to the classifier; only without a key.

        Returns
        -------
        set
            The most probable label and all others that are probable enough; empty before anything is learned.

        Raises
        ------
        ValueError
            If sets with a different coverage were requested before.
        NotImplementedError
            If the classifier predicts no probabilities.
        """
        if key is None:
            return super().predict_set_one(x, coverage, by_class, **kwargs)
        _refuse(kwargs)
        with self._lock:
            if self._sets_of != (coverage, by_class):
                self.label_sets(coverage, by_class)
            self._predict(x, key, time, proba=True)
            members = join.decided.members if (join := self._join) else None
            return set() if members is None else set(labels_in(members[0], self._adapter.classes))

    def learn_one(self, x: Any, y: Any, key: Any = None, time: Any = None, **kwargs: Any) -> None:
        """Learn the label of an event that is pending or arrives later.

        Parameters
        ----------
        x
            The key, or the features. Without `key`, features are learned at once. With `key`, they are ignored, because
            the stored features are learned.
        y
            The label.
        key, time
            The key, unless it is the first argument, and the time of the label, as for `predict_one`.
        kwargs
            Passed to the classifier; only without a key.

        Raises
        ------
        ValueError
            If the label is None or NaN.
        """
        y = as_label(y)
        if key is None and x is None:
            raise TypeError("pass the key or the features of an event: both are None")
        if key is None and isinstance(x, dict):
            if self._deciding is not None:
                with self._lock:
                    self._deciding.add_labels(self._adapter.classes)
            self.model.learn_one(x, y, **kwargs)
            return
        _refuse(kwargs)
        with self._lock:
            join, text = self._join or self._started_join(), key_text(x if key is None else key)
            if not join.label_one(y, text, NOW if time is None else milliseconds(time)):
                moment = self._moment(time, join)
                label = LateLabels([y], [text], moment, _AT_ONCE)
                join.step(Arrivals([], [], _NO_TIMES, _NO_ORIGINS[:0]), label, [text])
            if self._adapter.refused:
                raise ValueError(self._adapter.take_refused()[0])
            if self._keys.wants_labels:
                self._keys.add([], [], [text], self._moment(time, join))
            self._n_labels += 1
            if self._n_labels == MANY_LABELS and (notice := self._keys.notice(join.store.counts)):
                self._notices.warn(notice)

    def _predict(self, x: dict[Any, Any], key: Any, time: Any, *, proba: bool) -> SingleRow | EventAdapter | _Found:
        """Predict an event, without a batch if possible, and store it as pending."""
        adapter, join, text = self._adapter, self._join or self._started_join(), key_text(key)
        if isinstance(adapter, EventAdapter):
            adapter.with_proba = proba or bool(self._sets)
        moment = NOW if time is None else milliseconds(time)
        if not (is_single := join.predict_one(x, text, moment)):
            timed = with_times(x) if isinstance(adapter, BatchAdapter) else None
            if timed is not None:
                self._notices.warn(*map(notice_of_times, names_of_times(x)))
                x, is_single = timed, join.predict_one(timed, text, moment)
            if not is_single and isinstance(adapter, BatchAdapter):
                refuse_rows(unusable_rows([x]))  # before the event is stored
            if not is_single and isinstance(adapter, EventAdapter):
                join.expire(moment)  # learned before the prediction
                adapter.predict_ahead(x)  # raises its error before the event is stored
        if self._keys.wants_events:
            self._keys.add([text], self._moment(time, join), [], [])
        if is_single and join.single is not None:
            return join.single
        n_before, events = len(adapter.classes), Arrivals([x], [text], self._moment(time, join), _NO_ORIGINS)
        predicted, _ = join.step(events, LateLabels([], [], _NO_TIMES, _NO_TIMES), [])
        for reason in adapter.take_refused():
            logger.warning("%s", reason)
        join.decided = predicted.decided
        if isinstance(adapter, EventAdapter):
            shares = adapter.shares_by_label
        else:  # a label that precedes its event may add a class after the prediction; a timeout may add one before
            row = [] if predicted.probas is None else predicted.probas[0].tolist()
            named = enumerate(zip(adapter.classes, row, strict=False))
            shares = {name: share for i, (name, share) in named if i < n_before or share > 0.0}
        return _Found(self._label(int(predicted.codes[0])), shares)

    def _label(self, code: int) -> Any:
        return self._adapter.classes[code] if code >= 0 else None

    def _started_join(self) -> Join:
        if self._join is None:
            store = Store(
                wait_ms=self._keys.wait_ms,
                most=self.max_pending,
                most_bytes=self.max_pending_bytes,
                keeps_objects=self._adapter.keeps_objects,
                relearns=self.relearn_corrections,
                folder=None if self.pending_dir is None else Path(self.pending_dir),
            )
            decisions = None if self._deciding is None else Decisions(costs=self._deciding.costs)
            self._join = Join(store, self._adapter, on_timeout=self.timeout_label, decisions=decisions)
        return self._join

    def _moment(self, time: Any, join: Join) -> Ints:
        return np.array([join.store.clock if time is None else milliseconds(time)])

    @property
    def notices(self) -> list[str]:
        """Notices of the classifier about features and labels, and about keys."""
        return list(dict.fromkeys([*getattr(self.model, "notices", []), *self._notices.texts]))

    # Statistics -------------------------------------------------------------------------------------------------------

    @property
    def n_pending(self) -> int:
        """Number of events that wait for their label."""
        return 0 if self._join is None else self._join.store.n_waiting

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of events and labels by status.

        Keys: labels, answered, late, repeated, corrected, duplicates, expired, waiting, early, unmatched, dropped.
        """
        return {} if self._join is None else self._join.store.counts


def _refuse(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise TypeError(f"{', '.join(kwargs)}: calls with a key take no other arguments than `time`: remove them")
