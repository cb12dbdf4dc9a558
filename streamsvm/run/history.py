"""History of a run: refits, relevance of features, and notices of the model.

Samples are taken between batches at events that depend on the stream alone, so resumed runs take equal samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.changes import Changes, ModelSummary, Spread, changes_between
from streamsvm.models.archive import decode_label, encode_label, real, whole
from streamsvm.models.codec import SavedState

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
class RefitSummary:
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
    def of(cls, model: object) -> RefitSummary | None:
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

    relevance: dict[Hashable, float] = field(default_factory=dict)
    leaders: list[dict[str, Any]] = field(default_factory=list)
    autocorrelation: dict[str, float] | None = None

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


class Sample(NamedTuple):
    """State of a model after a number of judged events, with the labels of the run."""

    at: int
    model: ModelSummary


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
    ...     history.sample(model, events=i + 1, judged=i)
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

    @property
    def at(self) -> list[int]:
        """Number of judged events at each sample."""
        return [sample.at for sample in self.samples]

    @property
    def last_relevance(self) -> Mapping[Hashable, float]:
        """Relevance of features at the last sample; empty if unknown."""
        return self.samples[-1].model.relevance if self.samples else {}

    def sample(
        self, model: Any, events: int, judged: int, labels: Sequence[Any] = (), seen: Sequence[int] = ()
    ) -> None:
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
        classes = {label: int(n) for label, n in zip(labels[:_MOST_CLASSES], seen, strict=False) if n}
        leader = found.leaders[0]["member"] if found.leaders else ""
        weight = (found.autocorrelation or {"weight": 0.0})["weight"]
        self.samples.append(Sample(judged, ModelSummary(learned, spreads, relevance, classes, leader, weight)))
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
        return changes_between(self.samples[then].model, self.samples[-1].model)

    def relevance(self, most: int) -> tuple[list[Hashable], NDArray[np.float64]]:
        """Return the most relevant features, and their relevance by sample (or NaN).

        Features are chosen by the largest decayed share of the relevance in any sample, and sorted by the last one.
        """
        relevances = [sample.model.relevance for sample in self.samples]
        names = list(dict.fromkeys(name for relevance in relevances for name in relevance))
        values = np.array([[relevance.get(name, np.nan) for name in names] for relevance in relevances])
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
        leaders = [sample.model.leader for sample in self.samples]
        counts = Counter(filter(None, leaders))
        ordered = sorted(counts, key=lambda name: (-counts[name], name))
        codes = [ordered.index(leader) if leader else -1 for leader in leaders]
        return ordered, np.array(codes, np.int64)

    def state(self) -> SavedState:
        """Return the history as a JSON header and arrays."""
        models = [sample.model for sample in self.samples]
        names = list(dict.fromkeys(name for one in models for name in (*one.relevance, *one.features)))
        labels = list(dict.fromkeys(label for one in models for label in one.classes))
        code = {name: j for j, name in enumerate(names)}
        # Flat lists of plain values: tuples and `astuple` would take longer than the rest of a checkpoint.
        relevances = [
            x for i, m in enumerate(models) for name, value in m.relevance.items() for x in (i, code[name], value)
        ]
        spreads = [
            x
            for i, m in enumerate(models)
            for name, s in m.features.items()
            for x in (i, code[name], s.n, s.mean, s.deviation, s.is_decayed)
        ]
        header = {
            "step": self._step,
            "due": self.due,
            "names": [encode_label(name) for name in names],
            "labels": [encode_label(label) for label in labels],
            "samples": [
                (at, one.events, one.weight, one.leader, [one.classes.get(label, 0) for label in labels])
                for at, one in self.samples
            ],
        }
        return header, {
            "relevances": np.array(relevances, np.float64).reshape(-1, 3),
            "spreads": np.array(spreads, np.float64).reshape(-1, 6),
        }

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""
        header, arrays = state
        self._step, self.due = whole(header["step"], 1), whole(header["due"], 1)
        names, labels = ([decode_label(text) for text in header[kind]] for kind in ("names", "labels"))
        n = max(len(header["samples"]), 1), max(len(names), 1)
        for name in ("relevances", "spreads"):
            if not ((arrays[name][:, :2] >= 0) & (arrays[name][:, :2] < n)).all():
                raise ValueError("a history of features that are not known")
        relevances = [dict[Hashable, float]() for _ in header["samples"]]
        spreads = [dict[Hashable, Spread]() for _ in header["samples"]]
        for i, j, value in arrays["relevances"].tolist():
            relevances[int(i)][names[int(j)]] = value
        for i, j, events, mean, deviation, is_decayed in arrays["spreads"].tolist():
            spreads[int(i)][names[int(j)]] = Spread(events, mean, deviation, bool(is_decayed))
        self.samples = []
        for i, (at, learned, weight, leader, counts) in enumerate(header["samples"]):
            classes = {label: count for label, count in zip(labels, map(whole, counts), strict=True) if count}
            summary = (whole(learned), spreads[i], relevances[i], classes, str(leader), real(weight))
            self.samples.append(Sample(whole(at), ModelSummary(*summary)))
        if not all(before <= after for before, after in pairwise([0, *self.at, self.due])):
            raise ValueError("a history of events that are not counted")
