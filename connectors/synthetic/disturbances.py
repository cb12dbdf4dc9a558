"""Disturbances of a stream other than changes of concept.

A disturbance wraps the function that draws the events of a stream. Several disturbances apply in the order of the
scenario. A disturbance affects a share of the events: `before` up to event `at`, `after` from there on, and `before`
again from event `until` if it is given. With a `width` the share changes along a sigmoid.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import cycle, islice
from typing import Any, ClassVar, NamedTuple, TypeAlias

from connectors.errors import ConnectorError


class Event(NamedTuple):
    """An event of a scenario.

    Parameters
    ----------
    x
        The features by name, without missing ones.
    y
        The label that a learner receives; None if it never arrives.
    truth
        The label to predict; it differs from `y` if `y` is noise.
    delay
        Number of events after which the label arrives.
    """

    x: dict[str, Any]
    y: Any
    truth: Any
    delay: int = 0


Draw: TypeAlias = "Callable[[int], Event]"
"""A function that draws the event of a given number."""

_MOST_DRAWS = 100_000


class UndrawableError(Exception):
    """Raised if a stream has no events of the requested kind."""


def share(i: float, at: float, width: float) -> float:
    """Return the progress at event i of a change at event `at`, 0 to 1.

    The change is abrupt if `width` is 0, else a sigmoid that is about `width` events wide.

    Examples
    --------
    >>> share(4_999, 5_000, 0), share(5_000, 5_000, 0), share(5_000, 5_000, 1)
    (0.0, 1.0, 0.5)
    """
    if not width:
        return float(i >= at)
    # The exponent is bounded to avoid an overflow far from the change.
    return 1.0 / (1.0 + math.exp(min(4.0 * (at - i) / width, 700.0)))


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Base of the disturbances.

    Parameters
    ----------
    at, until
        Events at which the disturbance starts and ends; 0 for the start and the end of the stream.
    width
        Width of both changes, in events.
    before, after
        Shares of affected events without and with the disturbance, 0 to 1.
    """

    positions: ClassVar[tuple[str, ...]] = ("at", "until", "width")
    at: int = 0
    until: int = 0
    width: int = 0
    before: float = 0.0
    after: float = 1.0

    @classmethod
    def kind(cls) -> str:
        """Return the name of the kind of disturbance."""
        return cls.__name__.lower()

    def check(self) -> str:
        """Return a description of invalid settings, or an empty string."""
        if self.at < 0 or self.width < 0 or (self.until and self.until <= self.at):
            return "`at`, `until` and `width` must be event numbers, `until` beyond `at`"
        if not (0.0 <= self.before <= 1.0 and 0.0 <= self.after <= 1.0):
            return "`before` and `after` must be shares of the events, 0 to 1"
        return ""

    def in_force(self, i: int) -> float:
        """Return the strength of the disturbance at event i, 0 to 1."""
        begun = share(i, self.at, self.width) if self.at else 1.0
        return begun * (1.0 - share(i, self.until, self.width)) if self.until else begun

    def level(self, i: int) -> float:
        """Return the share of affected events around event i."""
        return self.before + (self.after - self.before) * self.in_force(i)

    def stretched(self, factor: float) -> Disturbance:
        """Scale all positions for a stream `factor` times as long."""
        return replace(self, **{name: round(getattr(self, name) * factor) for name in self.positions})

    def over(self, draw: Draw, rng: random.Random) -> Draw:
        """Wrap a function that draws events with this disturbance."""

        def disturbed(i: int) -> Event:
            event = draw(i)
            return self.affect(event, rng) if rng.random() < self.level(i) else event

        return disturbed

    def affect(self, event: Event, rng: random.Random) -> Event:
        """Return an affected event."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class _OfFeatures(Disturbance):
    """Base of disturbances of some features.

    They are given by name, or as the number of the first features.
    """

    features: Any = 1

    def check(self) -> str:
        wrong = isinstance(self.features, bool) or not (
            (isinstance(self.features, int) and self.features > 0)
            or (isinstance(self.features, list) and all(isinstance(name, str) for name in self.features))
        )
        return "`features` must be a number or a list of names" if wrong else super().check()

    def among(self, x: Mapping[str, Any]) -> list[str]:
        """Return the names of the affected features of an event."""
        if isinstance(self.features, int):
            return list(islice(x, self.features))
        return [name for name in self.features if name in x]


class Missing(_OfFeatures):
    """Features are missing; with `before = 1` and `after = 0` they appear instead."""

    def affect(self, event: Event, rng: random.Random) -> Event:
        removed = set(self.among(event.x))
        return event._replace(x={name: value for name, value in event.x.items() if name not in removed})


@dataclass(frozen=True, kw_only=True)
class Scale(_OfFeatures):
    """Features are measured in another unit."""

    factor: float = 1.0
    offset: float = 0.0

    def affect(self, event: Event, rng: random.Random) -> Event:
        affected = self.among(event.x)
        return event._replace(x=event.x | {name: self.factor * event.x[name] + self.offset for name in affected})


class Noise(Disturbance):
    """Labels are replaced by another known label; the truth remains."""

    def over(self, draw: Draw, rng: random.Random) -> Draw:
        known: list[Any] = []

        def disturbed(i: int) -> Event:
            event = draw(i)
            if event.truth not in known:
                known.append(event.truth)
            others = [label for label in known if label != event.y]
            wrong = rng.random() < self.level(i) and others
            return event._replace(y=rng.choice(others)) if wrong else event

        return disturbed


@dataclass(frozen=True, kw_only=True)
class Swap(Disturbance):
    """Classes exchange their labels: each label is replaced by the next of `labels`."""

    labels: list[Any]

    def check(self) -> str:
        if not isinstance(self.labels, list) or len(self.labels) < 2:
            return "`labels` must be a list of two or more"
        return super().check()

    def affect(self, event: Event, rng: random.Random) -> Event:
        following = dict(zip(self.labels, islice(cycle(self.labels), 1, None), strict=False))
        return event._replace(y=following.get(event.y, event.y), truth=following.get(event.truth, event.truth))


@dataclass(frozen=True, kw_only=True)
class Late(Disturbance):
    """Labels arrive `by` events later."""

    positions = ("at", "until", "width", "by")
    by: int

    def affect(self, event: Event, rng: random.Random) -> Event:
        return event._replace(delay=self.by)


class Unlabelled(Disturbance):
    """Labels never arrive."""

    def affect(self, event: Event, rng: random.Random) -> Event:
        return event._replace(y=None)


@dataclass(frozen=True, kw_only=True)
class Mix(Disturbance):
    """The share of events with a label, or with a feature above a bound, changes.

    Without `before`, the stream is unchanged up to event `at`.
    """

    before: float = math.nan
    label: Any = None
    feature: str = ""
    above: float = math.nan

    def check(self) -> str:
        if (self.label is None) == (not self.feature) or (self.feature and math.isnan(self.above)):
            return "needs a `label`, or a `feature` and what it is `above`"
        return replace(self, before=0.0).check() if math.isnan(self.before) else super().check()

    def wanted(self, event: Event) -> bool:
        """Return whether an event has the label, or the feature above the bound."""
        return bool(event.x[self.feature] > self.above if self.feature else event.truth == self.label)

    def over(self, draw: Draw, rng: random.Random) -> Draw:
        def disturbed(i: int) -> Event:
            level = self.after if rng.random() < self.in_force(i) else self.before
            if math.isnan(level):
                return draw(i)
            wanted = rng.random() < level
            for _ in range(_MOST_DRAWS):
                event = draw(i)
                if self.wanted(event) == wanted:
                    return event
            which = f"{self.feature} above {self.above:g}" if self.feature else f"label {self.label!r}"
            raise UndrawableError(f"of {_MOST_DRAWS:,} events {'none has' if wanted else 'all have'} {which}")

        return disturbed


KINDS = {each.kind(): each for each in (Late, Missing, Mix, Noise, Scale, Swap, Unlabelled)}


def read(name: str, given: Mapping[str, Any]) -> Disturbance:
    """Create a disturbance from its description; `name` is used in messages."""
    settings = dict(given)
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        raise ConnectorError(f"{name}: a disturbance has a `kind`, one of {', '.join(KINDS)}, not {kind!r}")
    allowed = [field.name for field in fields(KINDS[kind])]
    unknown = sorted(settings.keys() - set(allowed))
    if unknown:
        raise ConnectorError(f"{name}: {kind} has no `{unknown[0]}`; allowed are {', '.join(allowed)}")
    try:
        disturbance = KINDS[kind](**settings)
        wrong = disturbance.check()
    except TypeError as error:
        wrong = str(error).partition("() ")[2] or str(error)
    if wrong:
        raise ConnectorError(f"{name}: {kind}: {wrong}")
    return disturbance
