"""Descriptions of the changes in a model between two points in time."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from streamsvm.names import feature, shown
from streamsvm.parameters import ParameterError

MOST_REPORTED = 5
"""Maximum number of reported changes of each kind."""
LEAST_PART, LEAST_EVENTS = 0.05, 30
"""Minimum share of relevance or events, and number of events, to report a change."""
_SHIFT, _SPREAD = 0.5, 2.0  # minimum shift in standard deviations, and minimum ratio of standard deviations
_ROUNDING = 1e-6  # smaller deviations, relative to the mean, are rounding errors


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of the values of a feature.

    Parameters
    ----------
    n
        Number of values.
    mean, deviation
        Mean and standard deviation; NaN for a string, which is only counted.
    is_decayed
        Whether the statistics are of recent values instead of all values.
    """

    n: float
    mean: float
    deviation: float
    is_decayed: bool = False

    def since(self, then: Spread) -> Spread:
        """Return the statistics of the values that followed `then`."""
        n = self.n - then.n
        if self.is_decayed or n < 1.0:
            return Spread(n, self.mean, self.deviation)
        if then.n == 0.0:
            return self
        mean = (self.n * self.mean - then.n * then.mean) / n
        squares = self.n * (self.deviation**2 + self.mean**2) - then.n * (then.deviation**2 + then.mean**2)
        return Spread(n, mean, math.sqrt(max(squares / n - mean**2, 0.0)))


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """Summary of a model at a point in time.

    Parameters
    ----------
    events
        Number of events learned.
    features
        Statistics of the values of each feature, by column name.
    relevance
        Relevance of the features; empty if the model does not estimate it.
    classes
        Number of events of each class, or its share of recent events; empty if unknown.
    leader
        The leading member; empty if there is no vote.
    weight
        Weight of label autocorrelation.
    """

    events: int
    features: Mapping[Hashable, Spread]
    relevance: Mapping[Hashable, float]
    classes: Mapping[Any, float]
    leader: str = ""
    weight: float = 0.0


class Changes:
    """Base of classifiers that report what changed."""

    @abstractmethod
    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """Return the statistics of the values of features, by column name.

        Parameters
        ----------
        names
            Names of the columns; None for all.
        most
            Maximum number of columns; None for all.

        Returns
        -------
        dict of Spread
            Statistics by column name.
        """

    @abstractmethod
    def summary(self) -> ModelSummary:
        """Return a summary of the model for a later call of `changes`.

        It has a few numbers for each feature and class.
        """

    def changes(self, since: ModelSummary | Changes) -> list[str]:
        """Describe what changed since an earlier point in time.

        Reported are:

        - a share of a feature in the relevance that at least doubled or halved, if it is or was at least 5 %;
        - a mean of a feature that moved by at least half a standard deviation;
        - a standard deviation of a feature, or a frequency of a string or class, that at least doubled or halved;
        - new classes, and a new leading member;
        - label autocorrelation that became active or inactive.

        Parameters
        ----------
        since
            The result of `summary` at that time, or an earlier version of the classifier, such as a saved one.

        Returns
        -------
        list of str
            The changes, at most a few of each kind; empty if nothing changed.

        Raises
        ------
        ValueError
            If `since` is later than the current state.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> model = CPMClassifier()
        >>> for i in range(200):
        ...     model.learn_one({"size": float(i % 10), "weight": float(i % 3)}, "odd" if i % 2 else "even")
        >>> then = model.summary()
        >>> for i in range(200):
        ...     model.learn_one({"size": float(i % 10) + 5.0, "weight": float(i % 3)}, "odd" if i % 2 else "even")
        >>> model.changes(since=then)
        ['size is higher: 9.5 on average, was 4.5']
        """
        then, now = since.summary() if isinstance(since, Changes) else since, self.summary()
        if then.events > now.events:
            raise ParameterError(
                "since", f"is after {then.events:,} events, but only {now.events:,} have been learned so far"
            )
        return changes_between(then, now)


def changes_between(then: ModelSummary, now: ModelSummary) -> list[str]:
    """Describe what changed between two summaries of a model; see `Changes.changes`."""
    return [
        *_moved_relevance(then.relevance, now.relevance),
        *moved_values((then.features, then.events), (now.features, now.events)),
        *_moved_classes(then, now),
        *_moved_votes(then, now),
    ]


def _moved_relevance(then: Mapping[Hashable, float], now: Mapping[Hashable, float]) -> list[str]:
    """Describe changes in the relevance of features, the largest first."""
    before, after = _parts(then), _parts(now)
    if not before or not after:
        return []
    moved = [
        (name, before.get(name, 0.0), after.get(name, 0.0))
        for name in dict.fromkeys([*after, *before])
        if _has_moved(before.get(name, 0.0), after.get(name, 0.0), LEAST_PART)
    ]
    moved.sort(key=lambda one: -abs(one[2] - one[1]))
    return [
        f"{shown(feature(name))} matters {'more' if new > old else 'less'}: {new:.0%} of the relevance, was {old:.0%}"
        for name, old, new in moved[:MOST_REPORTED]
    ]


def _moved_votes(then: ModelSummary, now: ModelSummary) -> list[str]:
    """Describe a change of the leader, and of the use of label autocorrelation."""
    is_new = then.leader and now.leader != then.leader
    found = [f"{now.leader} is the leading member, was {then.leader}"] if is_new else []
    if (then.weight > 0.0) != (now.weight > 0.0):
        found.append(f"label autocorrelation is {'used' if now.weight > 0.0 else 'no longer used'}")
    return found


def moved_values(then: tuple[Mapping[Hashable, Spread], int], now: tuple[Mapping[Hashable, Spread], int]) -> list[str]:
    """Describe changes in the values of features, the largest first.

    `then` and `now` are pairs of the statistics by column name and the number of events.
    """
    (features, n_before), n_since, moved = then, now[1] - then[1], []
    for name, spread in now[0].items():
        before = features.get(name, Spread(0.0, spread.mean, spread.deviation))
        since = spread.since(before)
        is_text = math.isnan(spread.mean)
        found = _moved_share(name, before, since, n_before, n_since) if is_text else _moved(name, before, since)
        moved += [found] if found else []
    moved.sort(key=lambda one: -one[0])
    return [text for _, text in moved[:MOST_REPORTED]]


def _moved(name: Hashable, before: Spread, since: Spread) -> tuple[float, str] | None:
    """Return size and description of a change in the values of a number, or None."""
    if min(before.n, since.n) < LEAST_EVENTS:
        return None
    called, unit = shown(feature(name)), max(before.deviation, since.deviation, _ROUNDING * abs(before.mean))
    shift = abs(since.mean - before.mean) / unit if unit > 0.0 else 0.0
    if shift >= _SHIFT:
        way = "higher" if since.mean > before.mean else "lower"
        new, old = _apart(since.mean, before.mean)
        return shift, f"{called} is {way}: {new} on average, was {old}"
    small, large = sorted((before.deviation, since.deviation))
    if large < _SPREAD * small or large <= _ROUNDING * abs(before.mean):
        return None
    way = "more" if since.deviation > before.deviation else "less"
    return 0.0, f"{called} varies {way}: a standard deviation of {since.deviation:.4g}, was {before.deviation:.4g}"


def _apart(one: float, other: float) -> tuple[str, str]:
    """Format two different numbers with equally many digits, at least four."""
    digits = next((n for n in range(4, 17) if f"{one:.{n}g}" != f"{other:.{n}g}"), 17)
    return f"{one:.{digits}g}", f"{other:.{digits}g}"


def _moved_share(
    name: Hashable, before: Spread, since: Spread, n_before: int, n_since: int
) -> tuple[float, str] | None:
    """Return size and description of a change in the frequency of a string, or None."""
    if min(n_before, n_since) < LEAST_EVENTS:
        return None
    old, new = before.n / n_before, since.n / n_since
    if not _has_moved(old, new, LEAST_PART):
        return None
    return abs(new - old), f"{shown(feature(name))} is in {new:.0%} of events since, was in {old:.0%}"


def _moved_classes(then: ModelSummary, now: ModelSummary) -> list[str]:
    """Describe new classes, and changes in the frequencies of classes."""
    added = [shown(label) for label in now.classes if label not in then.classes] if then.classes else []
    found = [f"new classes: {', '.join(added[:MOST_REPORTED])}"] if added else []
    is_share = sum(now.classes.values()) <= 1.0 + 1e-9
    since = {label: n - (0.0 if is_share else then.classes.get(label, 0.0)) for label, n in now.classes.items()}
    total, before = sum(since.values()), sum(then.classes.values())
    # A model that only predicts learns no events, but its run counts the labels.
    n_before, n_since = (then.events, now.events - then.events) if is_share else (before, total)
    if min(n_before, n_since) < LEAST_EVENTS or not total or not before:
        return found
    for label, n in since.items():
        old, new = then.classes.get(label, 0.0) / before, n / total
        if old and _has_moved(old, new, LEAST_EVENTS / n_since):
            found.append(f"class {shown(label)} is {new:.2%} of events since, was {old:.2%}")
    return found[: 1 + MOST_REPORTED]


def _has_moved(old: float, new: float, least: float) -> bool:
    """Return whether a share of at least `least`, then or now, doubled or halved."""
    return max(old, new) >= least and not 0.5 < (new + 1e-12) / (old + 1e-12) < 2.0


def _parts(relevance: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Return the share of each feature in the total relevance."""
    total = sum(relevance.values())
    return {name: value / total for name, value in relevance.items()} if total > 0.0 else {}
