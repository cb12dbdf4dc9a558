"""What changed of a model between two moments, in words."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsvm.names import feature, shown

MOST_TOLD = 5
"""So many changes of a kind are told."""
LEAST_PART, LEAST_EVENTS = 0.05, 30
"""Of the relevance, or of events, and of values or events of a class, for a change to be told."""
_SHIFT, _SPREAD = 0.5, 2.0  # in standard deviations, and by which factor
_ROUNDING = 1e-6  # a deviation of no more than this part of the mean is that of rounding


@dataclass(frozen=True, slots=True)
class Spread:
    """What is known of a feature's values.

    Parameters
    ----------
    n
        How many there were.
    mean, deviation
        Of these; NaN for a string, of which it is counted how often it came.
    is_decayed
        Whether these are those of late, rather than of all.
    """

    n: float
    mean: float
    deviation: float
    is_decayed: bool = False

    def since(self, then: Spread) -> Spread:
        """What is known of the values that came after `then`."""
        n = self.n - then.n
        if self.is_decayed or n < 1.0:
            return Spread(n, self.mean, self.deviation)
        if then.n == 0.0:
            return self
        mean = (self.n * self.mean - then.n * then.mean) / n
        squares = self.n * (self.deviation**2 + self.mean**2) - then.n * (then.deviation**2 + then.mean**2)
        return Spread(n, mean, math.sqrt(max(squares / n - mean**2, 0.0)))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a model knew at a moment.

    Parameters
    ----------
    events
        How many events had been learned.
    features
        What was known of the values of each, by the name of its column.
    relevance
        That of the features; empty where none are told apart.
    classes
        How often each class had come, or in which share of events of late; empty where that is not known.
    leader
        The expert that led; empty where none vote.
    trust
        How far label autocorrelation was heard.
    """

    events: int
    features: Mapping[Hashable, Spread]
    relevance: Mapping[Hashable, float]
    classes: Mapping[Any, float]
    leader: str = ""
    trust: float = 0.0


class Changes:
    """A classifier that says what changed."""

    @abstractmethod
    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """What is known of the values of features, by the names of their columns.

        Parameters
        ----------
        names
            Of which; None for all.
        most
            Of so many of them; None for all.
        """

    @abstractmethod
    def moment(self) -> Moment:
        """What it knows now, to be compared with later: a few numbers for each feature and class."""

    def changes(self, since: Moment | Changes) -> list[str]:
        """What is different from how it was, in words.

        Features whose part of the relevance is at least twice, or at most half, what it was (and a twentieth of it
        then or now); those whose values since have a mean half a standard deviation or more from that until then, or
        deviate twice or half as much, and strings that come twice or half as often; classes that came, and those that
        come twice or half as often; another expert that leads; label autocorrelation that is heard, or no longer.

        Parameters
        ----------
        since
            What `moment` gave then, or the classifier as it was, such as a saved one.

        Raises
        ------
        ValueError
            Where that is later than now.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> model = CPMClassifier()
        >>> for i in range(200):
        ...     model.learn_one({"size": float(i % 10), "weight": float(i % 3)}, "odd" if i % 2 else "even")
        >>> then = model.moment()
        >>> for i in range(200):
        ...     model.learn_one({"size": float(i % 10) + 5.0, "weight": float(i % 3)}, "odd" if i % 2 else "even")
        >>> model.changes(since=then)
        ['size is higher: 9.5 in the mean, was 4.5']
        """
        then, now = since.moment() if isinstance(since, Changes) else since, self.moment()
        if then.events > now.events:
            raise ValueError(
                f"`since` is after {then.events:,} events, of which {now.events:,} have been learned so far"
            )
        return [
            *moved_relevance(then.relevance, now.relevance),
            *moved_values((then.features, then.events), (now.features, now.events)),
            *_moved_classes(then, now),
            *moved_votes((then.leader, then.trust), (now.leader, now.trust)),
        ]


def moved_relevance(then: Mapping[Hashable, float], now: Mapping[Hashable, float]) -> list[str]:
    """Features that matter more, or less, the most so first."""
    before, after = _parts(then), _parts(now)
    if not before or not after:
        return []
    moved = [
        (name, before.get(name, 0.0), after.get(name, 0.0))
        for name in dict.fromkeys([*after, *before])
        if has_moved(before.get(name, 0.0), after.get(name, 0.0), LEAST_PART)
    ]
    moved.sort(key=lambda one: -abs(one[2] - one[1]))
    return [
        f"{shown(feature(name))} matters {'more' if new > old else 'less'}: {new:.0%} of the relevance, was {old:.0%}"
        for name, old, new in moved[:MOST_TOLD]
    ]


def moved_votes(then: tuple[str, float], now: tuple[str, float]) -> list[str]:
    """Another leader, and label autocorrelation that is heard or not, each with how far that is trusted."""
    told = [f"{now[0]} leads, was {then[0]}"] if then[0] and now[0] != then[0] else []
    if (then[1] > 0.0) != (now[1] > 0.0):
        told.append(f"label autocorrelation is {'heard' if now[1] > 0.0 else 'no longer heard'}")
    return told


def came(classes: Sequence[Any]) -> list[str]:
    """Classes that came."""
    return [f"classes that came: {', '.join(map(shown, classes[:MOST_TOLD]))}"] if classes else []


def moved_values(then: tuple[Mapping[Hashable, Spread], int], now: tuple[Mapping[Hashable, Spread], int]) -> list[str]:
    """Features whose values are others since, the most so first: what was known of them, and how many events."""
    (features, n_before), n_since, moved = then, now[1] - then[1], []
    for name, spread in now[0].items():
        before = features.get(name, Spread(0.0, spread.mean, spread.deviation))
        since = spread.since(before)
        is_text = math.isnan(spread.mean)
        found = _moved_share(name, before, since, n_before, n_since) if is_text else _moved(name, before, since)
        moved += [found] if found else []
    moved.sort(key=lambda one: -one[0])
    return [text for _, text in moved[:MOST_TOLD]]


def _moved(name: Hashable, before: Spread, since: Spread) -> tuple[float, str] | None:
    """How far a number has moved, and the words for it."""
    if min(before.n, since.n) < LEAST_EVENTS:
        return None
    called, unit = shown(feature(name)), max(before.deviation, since.deviation, _ROUNDING * abs(before.mean))
    shift = abs(since.mean - before.mean) / unit if unit > 0.0 else 0.0
    if shift >= _SHIFT:
        way = "higher" if since.mean > before.mean else "lower"
        new, old = _apart(since.mean, before.mean)
        return shift, f"{called} is {way}: {new} in the mean, was {old}"
    small, large = sorted((before.deviation, since.deviation))
    if large < _SPREAD * small or large <= _ROUNDING * abs(before.mean):
        return None
    way = "more" if since.deviation > before.deviation else "less"
    return 0.0, f"{called} varies {way}: a standard deviation of {since.deviation:.4g}, was {before.deviation:.4g}"


def _apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as few digits, four or more, as tell them apart."""
    digits = next((n for n in range(4, 17) if f"{one:.{n}g}" != f"{other:.{n}g}"), 17)
    return f"{one:.{digits}g}", f"{other:.{digits}g}"


def _moved_share(
    name: Hashable, before: Spread, since: Spread, n_before: int, n_since: int
) -> tuple[float, str] | None:
    """The same of how often a string comes."""
    if min(n_before, n_since) < LEAST_EVENTS:
        return None
    old, new = before.n / n_before, since.n / n_since
    if not has_moved(old, new, LEAST_PART):
        return None
    return abs(new - old), f"{shown(feature(name))} is in {new:.0%} of events since, was in {old:.0%}"


def _moved_classes(then: Moment, now: Moment) -> list[str]:
    told = came([label for label in now.classes if label not in then.classes]) if then.classes else []
    is_share = sum(now.classes.values()) <= 1.0 + 1e-9
    since = {label: n - (0.0 if is_share else then.classes.get(label, 0.0)) for label, n in now.classes.items()}
    total, before = sum(since.values()), sum(then.classes.values())
    n_since = now.events - then.events
    if min(n_since, then.events) < LEAST_EVENTS or not total or not before:
        return told
    for label, n in since.items():
        old, new = then.classes.get(label, 0.0) / before, n / total
        if old and has_moved(old, new, LEAST_EVENTS / n_since):
            told.append(class_moved(label, old, new))
    return told[: 1 + MOST_TOLD]


def class_moved(label: Any, old: float, new: float) -> str:
    """That a class comes more or less often."""
    return f"class {shown(label)} is {new:.2%} of events since, was {old:.2%}"


def has_moved(old: float, new: float, least: float) -> bool:
    """Whether a share is twice or half what it was, and at least so much then or now."""
    return max(old, new) >= least and not 0.5 < (new + 1e-12) / (old + 1e-12) < 2.0


def _parts(relevance: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Each feature's part of the whole."""
    total = sum(relevance.values())
    return {name: value / total for name, value in relevance.items()} if total > 0.0 else {}
