"""Detectors of feature drift with their settings.

They are `FeatureMonitor`, and those of River for each column, which are made anew after an alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from simulations.benchmarks.feature_streams import WIDTH, Columns, numbers
from streamsvm.monitor import FeatureMonitor

BEFORE, AFTER = 20_000, 20_000
REFERENCE, RATE = 10_000, 0.1
LEVEL = RATE * 1e-6 / WIDTH  # of a test per value: at most RATE false alarms per million events in expectation
SOON = 1_000  # events after a change that slow detectors get
_BATCH = 4_096


class Detector(Protocol):
    """Detector of changes of columns that counts the values it processes."""

    n_values: int

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return event numbers of alarms, at least up to the first one after `until`."""


class Monitor:
    """`FeatureMonitor`."""

    def __init__(self, reference: int = REFERENCE) -> None:
        self.monitor, self.n_values = FeatureMonitor(reference=reference, false_alarms=RATE), 0

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return the numbers of events at alarms."""
        n = len(next(iter(X.values())))
        self.n_values += n * len(X)
        for start in range(0, n, _BATCH):
            self.monitor.learn_many({name: column[start : start + _BATCH] for name, column in X.items()})
        return [alarm.event for alarm in self.monitor.alarms]


class Univariate:
    """A detector of River for each column.

    Parameters
    ----------
    make
        Function that returns a detector.
    memory
        Number of events before `until` that a slow detector gets; it gets `SOON` after it. None for all events.
    """

    def __init__(self, make: Callable[[], Any], memory: int | None = None) -> None:
        self.make, self.memory, self.n_values = make, memory, 0

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return the numbers of events at alarms, up to the first one after `until`."""
        detectors, found = [self.make() for _ in X], []
        is_near = self.memory is not None and until < math.inf
        part = slice(int(until) - (self.memory or 0), int(until) + SOON) if is_near else slice(0, None)
        rows = np.column_stack([numbers(column)[part] for column in X.values()]).tolist()
        for i, row in enumerate(rows, part.start):
            self.n_values += len(row)
            for k, value in enumerate(row):
                if value == value:  # the detectors have no missing values
                    detectors[k].update(value)
                    if detectors[k].drift_detected:
                        found.append(i + 1)
                        detectors[k] = self.make()
            if found and found[-1] > until:
                break
        return found


# Settings -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of detectors.

    Parameters
    ----------
    make
        Function of a setting that returns a detector.
    default
        Function that returns a detector with default settings.
    settings
        Settings with more false alarms than `RATE`, whose logarithms are extrapolated; empty for tests with a level.
    is_logarithmic
        Whether the logarithm of the number of false alarms is linear in the logarithm of the setting.
    null
        Numbers of streams, of events and of columns without a change.
    level
        Setting with at most `RATE` false alarms, without `settings`.
    seeds
        Number of streams for each change.
    """

    make: Callable[[float], Detector]
    default: Callable[[], Detector]
    settings: tuple[float, ...] = ()
    is_logarithmic: bool = False
    null: tuple[int, int, int] = (10, 100_000, WIDTH)
    level: float = LEVEL
    seeds: int = 10


def _river(name: str, memory: int | None = None, **parameters: Any) -> Detector:
    from river import drift

    return Univariate(partial(getattr(drift, name), **parameters), memory)


def _kswin(level: float, window: int, recent: int) -> Detector:
    return _river("KSWIN", window, alpha=level, window_size=window, stat_size=recent, seed=1)


OURS = "FeatureMonitor"
KINDS: dict[str, Kind] = {
    OURS: Kind(lambda _: Monitor(), Monitor, level=RATE),
    "ADWIN": Kind(
        lambda delta: _river("ADWIN", delta=delta),
        lambda: _river("ADWIN"),
        settings=(0.004, 0.016, 0.064),
        is_logarithmic=True,
    ),
    "Page-Hinkley": Kind(
        lambda threshold: _river("PageHinkley", threshold=threshold, delta=0.125, alpha=1.0),
        lambda: _river("PageHinkley"),
        settings=(20.0, 25.0, 30.0, 35.0),
        null=(5, 100_000, WIDTH),
    ),
    "KSWIN": Kind(lambda level: _kswin(level, 300, 100), lambda: _kswin(0.005, 100, 30), null=(4, 5_000, 1)),
}


def extrapolated(kind: Kind, rates: dict[float, float]) -> float:
    """Return the setting for `RATE` false alarms, extrapolated log-linearly.

    Examples
    --------
    >>> kind = Kind(lambda _: Monitor(), Monitor, settings=(1.0, 2.0))
    >>> round(extrapolated(kind, {1.0: 10.0, 2.0: 1.0}), 6)
    3.0
    """
    scale, inverse = (math.log, math.exp) if kind.is_logarithmic else (float, float)
    settings = [setting for setting, rate in rates.items() if rate > 0.0]
    if len(settings) < 2:
        raise ValueError("fewer than two settings have false alarms: the rate cannot be extrapolated")
    slope, at_zero = np.polyfit([scale(setting) for setting in settings], [math.log(rates[s]) for s in settings], 1)
    return inverse((math.log(RATE) - at_zero) / slope)
