"""History of a run: refits, relevance of features, and notices of the model.

Samples are taken between batches at events that depend on the stream alone, so resumed runs take equal samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.changes import (
    LEAST_EVENTS,
    MOST_REPORTED,
    Changes,
    Spread,
    class_moved,
    has_moved,
    moved_relevance,
    moved_values,
    moved_votes,
    new_classes,
)
from streamsvm.models.archive import decode_label, encode_label, real, whole
from streamsvm.models.codec import State

_MOST_SAMPLES = 256
_MOST_FEATURES = 64  # in a sample: the most relevant ones
_MOST_CLASSES = 64  # whose events are counted
_FIRST_STEP = 250  # events between two samples, doubled if there are too many, or none has content


def refitting(model: Any) -> Any:
    """Return the wrapped model that refits, or the innermost one."""
    while not hasattr(model, "refit_totals"):
        if isinstance(steps := getattr(model, "steps", None), Mapping) and steps:  # a pipeline of River
            model = list(steps.values())[-1]
        elif hasattr(model, "model"):
            model = model.model
        else:
            break
    return model


@dataclass(frozen=True, slots=True)
class Refits:
    """Refits of a model so far.

    Parameters
    ----------
    last
        The latest refits, as in `RefitClassifier.refits`.
    outcomes
        Number of refits by outcome.
    seconds
        Total seconds of all refits.
    share
        Share of the vote of their models.
    """

    last: Sequence[dict[str, Any]]
    outcomes: Mapping[str, int]
    seconds: float
    share: float

    @classmethod
    def of(cls, model: object) -> Refits | None:
        """Return the refits of a model or of one that it wraps, None without refits."""
        model = refitting(model)
        totals = getattr(model, "refit_totals", lambda: None)()
        return None if totals is None else cls(getattr(model, "refits", ()), **totals)

    @property
    def count(self) -> int:
        """Number of refits."""
        return sum(self.outcomes.values())

    def figures(self) -> dict[str, Any]:
        """Return the figures for JSON, except the seconds in total."""
        return {"count": self.count, "outcomes": dict(self.outcomes), "share": self.share, "last": list(self.last)}


@dataclass(frozen=True, slots=True)
class Insight:
    """Relevance, leading members and label autocorrelation of a model at one moment.

    Parameters
    ----------
    relevance
        Relevance of the features in descending order; empty if unknown.
    leaders
        Heads of the model, the leading one first; empty without a vote.
    autocorrelation
        Effect of label autocorrelation; None if it is not used.
    """

    relevance: dict[Hashable, float]
    leaders: list[dict[str, Any]]
    autocorrelation: dict[str, float] | None

    @classmethod
    def of(cls, model: object) -> Insight:
        """Return the insight into a model now."""
        relevance = getattr(model, "relevance", {})
        if not isinstance(relevance, Mapping) or len(set(relevance.values())) < 2:  # foreign models may use this name
            relevance = {}
        relevance = dict(sorted(relevance.items(), key=lambda item: -item[1]))
        effect = getattr(model, "autocorrelation_effect", lambda: None)()
        return cls(relevance, getattr(model, "leaders", list)(), effect)


def notices_of(one: object) -> list[str]:
    """Return the notices of a model or a source."""
    return list(getattr(one, "notices", ()))


@dataclass(slots=True)
class Sample:
    """State of a model at one moment of a run.

    Parameters
    ----------
    at, learned
        Number of judged events, and of events that the model has learned.
    weight
        Weight of label autocorrelation.
    leader
        Leading member; empty without one.
    seen
        Number of events of each class.
    relevance, spreads
        Relevance of features, and statistics of their values.
    """

    at: int
    learned: int
    weight: float
    leader: str
    seen: list[int]
    relevance: dict[Hashable, float] = field(default_factory=dict)
    spreads: dict[Hashable, Spread] = field(default_factory=dict)


class History:
    """Samples of a model over a run, in bounded memory.

    Attributes
    ----------
    samples
        The samples, oldest first.
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
        self.samples: list[Sample] = []
        self._step = self.due = _FIRST_STEP
        self.labels: list[Any] = []

    @property
    def at(self) -> list[int]:
        """Number of judged events at each sample."""
        return [sample.at for sample in self.samples]

    @property
    def last_relevance(self) -> dict[Hashable, float]:
        """Relevance of features at the last sample; empty if unknown."""
        return self.samples[-1].relevance if self.samples else {}

    def take(self, model: Any, events: int, judged: int, labels: Sequence[Any] = (), seen: Sequence[int] = ()) -> None:
        """Take a sample if one is due, with numbers of events, judged events and labels."""
        if events < self.due:
            return
        if len(self.samples) == _MOST_SAMPLES:  # keep every second sample
            del self.samples[::2]
            self._step = 2 * max(self._step, events // _MOST_SAMPLES)
        elif not self._add(model, judged, labels, seen):
            self._step *= 2
        self.due = (events // self._step + 1) * self._step

    def end(self, model: Any, judged: int, labels: Sequence[Any] = (), seen: Sequence[int] = ()) -> None:
        """Take a sample of the end of the run, which a resumed run does not have."""
        if not self.samples or judged - self.samples[-1].at >= self._step:
            self._add(model, judged, labels, seen)

    def _add(self, model: Any, judged: int, labels: Sequence[Any], seen: Sequence[int]) -> bool:
        """Add a sample; return whether the model has anything to record."""
        found = Insight.of(model)
        relevance = dict(list(found.relevance.items())[:_MOST_FEATURES])
        spreads = model.spreads(list(relevance) or None, _MOST_FEATURES) if isinstance(model, Changes) else {}
        if not relevance and not found.leaders and not spreads:
            return False
        learned = int(getattr(model, "n_events_learned", 0))
        weight = (found.autocorrelation or {"weight": 0.0})["weight"]
        leader = found.leaders[0]["member"] if found.leaders else ""
        self.labels = list(labels[:_MOST_CLASSES])
        counts = list(map(int, seen[:_MOST_CLASSES]))
        self.samples.append(Sample(judged, learned, weight, leader, counts, relevance, spreads))
        return True

    def changes(self, since: int) -> list[str]:
        """Describe changes since an earlier number of judged events.

        The changes are features whose share of the relevance has doubled or halved (if it is at least a twentieth),
        and features with changed values (see `Changes.changes`). They include new classes, and classes whose share of
        events has doubled or halved. A new leading member and the use of label autocorrelation are changes, too.

        Parameters
        ----------
        since
            Number of judged events. Changes are relative to the last sample not after it, or else to the first one.
        """
        if len(self.samples) < 2:
            return []
        then = max((i for i, sample in enumerate(self.samples[:-1]) if sample.at <= since), default=0)
        old, new = self.samples[then], self.samples[-1]
        return [
            *moved_relevance(old.relevance, new.relevance),
            *moved_values((old.spreads, old.learned), (new.spreads, new.learned)),
            *self._moved_classes(old.seen, new.seen),
            *moved_votes((old.leader, old.weight), (new.leader, new.weight)),
        ]

    def _moved_classes(self, before: list[int], now: list[int]) -> list[str]:
        before = before + [0] * (len(now) - len(before))
        texts = new_classes(
            [label for label, old, new in zip(self.labels, before, now, strict=False) if new and not old]
        )
        since = [new - old for old, new in zip(before, now, strict=True)]
        if not sum(before) or sum(since) < LEAST_EVENTS:
            return texts
        for label, old, new in zip(self.labels, before, since, strict=False):
            shares = old / sum(before), new / sum(since)
            if old and has_moved(*shares, LEAST_EVENTS / sum(since)):
                texts.append(class_moved(label, *shares))
        return texts[: 1 + MOST_REPORTED]

    def relevance(self, most: int) -> tuple[list[Hashable], NDArray[np.float64]]:
        """Return the most relevant features, and their relevance by sample (or NaN).

        Features are chosen by the largest decayed share of the relevance in any sample, and sorted by the last one.
        """
        names = list(dict.fromkeys(name for sample in self.samples for name in sample.relevance))
        values = np.array([[sample.relevance.get(name, np.nan) for name in names] for sample in self.samples])
        values = values.reshape(len(self.samples), len(names))
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
        """Return the leading members, the longest first, and the leader of each sample."""
        counts = Counter(sample.leader for sample in self.samples if sample.leader)
        ordered = sorted(counts, key=lambda name: (-counts[name], name))
        codes = [ordered.index(sample.leader) if sample.leader else -1 for sample in self.samples]
        return ordered, np.array(codes, np.int64)

    def state(self) -> State:
        """Return the history as a JSON header and arrays."""
        samples = self.samples
        names = list(dict.fromkeys(name for sample in samples for name in (*sample.relevance, *sample.spreads)))
        code = {name: j for j, name in enumerate(names)}
        relevances = [(i, code[name], value) for i, one in enumerate(samples) for name, value in one.relevance.items()]
        spreads = [(i, code[name], *astuple(s)) for i, one in enumerate(samples) for name, s in one.spreads.items()]
        header = {
            "step": self._step,
            "due": self.due,
            "names": [encode_label(name) for name in names],
            "labels": [encode_label(label) for label in self.labels],
            "samples": [(one.at, one.learned, one.weight, one.leader, one.seen) for one in samples],
        }
        return header, {
            "relevances": np.array(relevances, np.float64).reshape(-1, 3),
            "spreads": np.array(spreads, np.float64).reshape(-1, 6),
        }

    def restore(self, state: State) -> None:
        """Restore the result of `state`."""
        header, arrays = state
        self._step, self.due = whole(header["step"], 1), whole(header["due"], 1)
        names = [decode_label(name) for name in header["names"]]
        self.labels = [decode_label(label) for label in header["labels"]]
        self.samples = [
            Sample(whole(at), whole(learned), real(weight), str(leader), list(map(whole, seen)))
            for at, learned, weight, leader, seen in header["samples"]
        ]
        if not all(before <= after for before, after in pairwise([0, *self.at, self.due])):
            raise ValueError("a history of events that are not counted")
        if any(len(sample.seen) > len(self.labels) for sample in self.samples):
            raise ValueError("a history of classes that are not known")
        n = max(len(self.samples), 1), max(len(names), 1)
        for name in ("relevances", "spreads"):
            if not ((arrays[name][:, :2] >= 0) & (arrays[name][:, :2] < n)).all():
                raise ValueError("a history of features that are not known")
        for i, j, value in arrays["relevances"].tolist():
            self.samples[int(i)].relevance[names[int(j)]] = value
        for i, j, events, mean, deviation, is_decayed in arrays["spreads"].tolist():
            self.samples[int(i)].spreads[names[int(j)]] = Spread(events, mean, deviation, bool(is_decayed))
