"""History of a run: relevance of features, their values, leading members, and classes.

Samples are taken between batches at events that depend on the stream alone, so resumed runs take equal samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.changes import (
    LEAST_EVENTS,
    MOST_TOLD,
    Spread,
    came,
    class_moved,
    has_moved,
    moved_relevance,
    moved_values,
    moved_votes,
)
from streamsvm.models.archive import decode_label, encode_label, whole
from streamsvm.models.codec import State
from streamsvm.run.insight import Insight, spreads_of

_MOST_SAMPLES = 256
_MOST_FEATURES = 64  # in a sample: the most relevant ones
_MOST_CLASSES = 64  # whose events are counted
_FIRST_STEP = 250  # events between two samples, doubled whenever there are too many, or nothing is to be told


class History:
    """Samples of a model over a run, in bounded memory.

    Attributes
    ----------
    at
        Number of judged events at each sample.
    weights
        Weight of label autocorrelation at each sample.
    due
        Number of events at which the next sample is due.

    Examples
    --------
    >>> from streamsvm import BSGDClassifier
    >>> model, history = BSGDClassifier(), History()
    >>> for i in range(1000):
    ...     model.learn_one({"signal": float(i % 2), "noise": float(i * 7 % 11)}, i % 2)
    ...     history.take(model, events=i + 1, judged=i)
    >>> history.at
    [249, 499, 749, 999]
    >>> names, values = history.relevance(2)
    >>> names, values.shape
    (['signal', 'noise'], (4, 2))
    >>> history.changes(since=249)
    []
    """

    def __init__(self) -> None:
        self.at: list[int] = []
        self.weights: list[float] = []
        self._step = self.due = _FIRST_STEP
        self._leaders: list[str] = []
        self._relevances: list[dict[Hashable, float]] = []
        self._seen: list[list[int]] = []
        self._spreads: list[dict[Hashable, Spread]] = []
        self._learned: list[int] = []
        self.labels: list[Any] = []

    def take(self, model: Any, events: int, judged: int, labels: Sequence[Any] = (), seen: Sequence[int] = ()) -> None:
        """Take a sample if one is due, with the numbers of events, of judged events and of labels."""
        if events < self.due:
            return
        if len(self.at) == _MOST_SAMPLES:
            self._thin(events)
        elif not self._add(model, judged, labels, seen):
            self._step *= 2
        self.due = (events // self._step + 1) * self._step

    def end(self, model: Any, judged: int, labels: Sequence[Any] = (), seen: Sequence[int] = ()) -> None:
        """Take a sample of the end of the run, which a resumed run does not have."""
        if not self.at or judged - self.at[-1] >= self._step:
            self._add(model, judged, labels, seen)

    def _add(self, model: Any, judged: int, labels: Sequence[Any], seen: Sequence[int]) -> bool:
        """Add a sample; return whether the model has anything to record."""
        found = Insight.of(model)
        relevance = dict(list(found.relevance.items())[:_MOST_FEATURES])
        spreads = spreads_of(model, list(relevance), _MOST_FEATURES)
        if not relevance and not found.leaders and not spreads:
            return False
        self.at.append(judged)
        self.weights.append((found.autocorrelation or {"weight": 0.0})["weight"])
        self._leaders.append(found.leaders[0]["member"] if found.leaders else "")
        self._relevances.append(relevance)
        self._spreads.append(spreads)
        self._learned.append(int(getattr(model, "n_events_learned", 0)))
        self.labels = list(labels[:_MOST_CLASSES])
        self._seen.append(list(map(int, seen[:_MOST_CLASSES])))
        return True

    def _thin(self, events: int) -> None:
        """Keep every second sample, and double the distance between samples."""
        lists = (self.at, self.weights, self._leaders, self._relevances, self._seen, self._spreads, self._learned)
        for samples in lists:
            del samples[::2]
        self._step = 2 * max(self._step, events // _MOST_SAMPLES)

    def changes(self, since: int) -> list[str]:
        """Describe changes since an earlier number of judged events.

        Reported are features whose share of the relevance has doubled or halved (with at least a twentieth of it),
        features with changed values (see `Changes.changes`), new classes, classes whose share of events has doubled
        or halved, a new leading member, and the use of label autocorrelation.

        Parameters
        ----------
        since
            Number of judged events. Changes are relative to the last sample not after it, or else to the first one.
        """
        if len(self.at) < 2:
            return []
        then = max((i for i, at in enumerate(self.at[:-1]) if at <= since), default=0)
        votes = [(self._leaders[i], self.weights[i]) for i in (then, -1)]
        relevance = moved_relevance(self._relevances[then], self._relevances[-1])
        spreads = [(self._spreads[i], self._learned[i]) for i in (then, -1)]
        return [*relevance, *moved_values(*spreads), *self._moved_classes(then), *moved_votes(*votes)]

    def _moved_classes(self, then: int) -> list[str]:
        now = self._seen[-1]
        before = self._seen[then] + [0] * (len(now) - len(self._seen[then]))
        told = came([label for label, old, new in zip(self.labels, before, now, strict=False) if new and not old])
        since = [new - old for old, new in zip(before, now, strict=True)]
        if not sum(before) or sum(since) < LEAST_EVENTS:
            return told
        for label, old, new in zip(self.labels, before, since, strict=False):
            shares = old / sum(before), new / sum(since)
            if old and has_moved(*shares, LEAST_EVENTS / sum(since)):
                told.append(class_moved(label, *shares))
        return told[: 1 + MOST_TOLD]

    def relevance(self, most: int) -> tuple[list[Hashable], NDArray[np.float64]]:
        """Return the most relevant features, and their relevance by sample, NaN if unknown.

        Features are chosen by the largest decayed share of the relevance in any sample, and sorted by the last one.
        """
        names = list(dict.fromkeys(name for sample in self._relevances for name in sample))
        values = np.array([[sample.get(name, np.nan) for name in names] for sample in self._relevances])
        values = values.reshape(len(self.at), len(names))
        total = np.nansum(values, axis=1, keepdims=True)
        shares = np.nan_to_num(values / np.where(total > 0.0, total, 1.0))
        smooth, peak = np.zeros(len(names)), np.zeros(len(names))
        for row in shares:
            smooth += 0.25 * (row - smooth)
            peak = np.maximum(peak, smooth)
        chosen = np.argsort(-peak, kind="stable")[:most]
        if len(shares):
            chosen = chosen[np.argsort(-shares[-1, chosen], kind="stable")]
        return [names[j] for j in chosen], values[:, chosen]

    def leaders(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the members that have led, the longest first, and the leader of each sample."""
        names, counts = np.unique(np.array([name for name in self._leaders if name], str), return_counts=True)
        ordered: list[str] = names[np.argsort(-counts, kind="stable")].tolist()
        codes = [ordered.index(name) if name else -1 for name in self._leaders] if ordered else []
        return ordered, np.array(codes, np.int64)

    def state(self) -> State:
        """Return the history as a JSON header and arrays."""
        names = list(
            dict.fromkeys(name for samples in (self._relevances, self._spreads) for s in samples for name in s)
        )
        code = {name: j for j, name in enumerate(names)}
        relevances = [(i, code[name], value) for i, one in enumerate(self._relevances) for name, value in one.items()]
        spreads = [(i, code[name], *astuple(s)) for i, one in enumerate(self._spreads) for name, s in one.items()]
        header = {
            "step": self._step,
            "due": self.due,
            "leaders": self._leaders,
            "names": [encode_label(name) for name in names],
            "labels": [encode_label(label) for label in self.labels],
            "seen": self._seen,
        }
        arrays = {
            "at": np.array(self.at, np.int64),
            "learned": np.array(self._learned, np.int64),
            "weights": np.array(self.weights, np.float64),
            "relevances": np.array(relevances, np.float64).reshape(-1, 3),
            "spreads": np.array(spreads, np.float64).reshape(-1, 6),
        }
        return header, arrays

    def restore(self, state: State) -> None:
        """Restore the result of `state`."""
        header, arrays = state
        self._step, self.due = whole(header["step"], 1), whole(header["due"], 1)
        at, learned, weights = (arrays[name] for name in ("at", "learned", "weights"))
        is_counted = at.dtype == np.int64 and at.ndim == weights.ndim == 1
        if not is_counted or (np.diff(at, prepend=0, append=min(self.due, 2**63 - 1)) < 0).any():
            raise ValueError("a history of events that are not counted")
        self.at, self._learned, self.weights = at.tolist(), learned.tolist(), weights.tolist()
        self._leaders, self._seen = list(header["leaders"]), [list(map(whole, sample)) for sample in header["seen"]]
        n = len(self.at)
        if {len(self._leaders), len(self._learned), len(self.weights), len(self._seen)} != {n}:
            raise ValueError(f"a history of {n} samples that has others")
        if not all(type(name) is str for name in self._leaders):
            raise ValueError("a history of members that are not known")
        names = [decode_label(name) for name in header["names"]]
        self.labels = [decode_label(label) for label in header["labels"]]
        if any(len(sample) > len(self.labels) for sample in self._seen):
            raise ValueError("a history of classes that are not known")
        self._relevances, self._spreads = [{} for _ in self.at], [{} for _ in self.at]
        for name in ("relevances", "spreads"):
            if not ((arrays[name][:, :2] >= 0) & (arrays[name][:, :2] < (max(n, 1), max(len(names), 1)))).all():
                raise ValueError("a history of features that are not known")
        for i, j, value in arrays["relevances"].tolist():
            self._relevances[int(i)][names[int(j)]] = value
        for i, j, events, mean, deviation, is_decayed in arrays["spreads"].tolist():
            self._spreads[int(i)][names[int(j)]] = Spread(events, mean, deviation, bool(is_decayed))
