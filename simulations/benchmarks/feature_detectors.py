"""Detectors of feature drift with their settings: ours and those of others.

The others are from River, Frouros and NannyML.

Detectors of a single column take the columns one by one. Those of Frouros and NannyML compare with the first events
of a stream. Those of River are made anew after an alarm.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

from simulations.benchmarks.feature_streams import WIDTH, Columns, numbers
from simulations.benchmarks.relation_detectors import LinearTest, RandomFeatureMMD
from streamsvm.monitor import FeatureMonitor

BEFORE, AFTER = 20_000, 20_000
REFERENCE, RATE = 10_000, 0.1
LEVEL = RATE * 1e-6 / WIDTH  # of a test per value: at most RATE false alarms per million events in expectation
SOON = 1_000  # events after a change that slow detectors get
CHUNK = 500
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
        part = near(until, self.memory)
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


def near(until: float, memory: int | None) -> slice:
    """Return the events around a change that a slow detector gets."""
    return slice(0, None) if memory is None or until == math.inf else slice(int(until) - memory, int(until) + SOON)


class IncrementalKS:
    """Frouros' `IncrementalKSTest` of the first column.

    The window has 512 events, and the reference 2,000.
    """

    window, reference = 512, 2_000

    def __init__(self, level: float) -> None:
        self.level, self.n_values = level, 0

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return the numbers of events at alarms, up to the first one after `until`."""
        from frouros.detectors.data_drift import IncrementalKSTest

        values = numbers(X["x0"])
        detector = IncrementalKSTest(window_size=self.window)
        detector.fit(X=values[: self.reference])
        return self._follow(detector, values, lambda result: result.p_value <= self.level, until)

    def _follow(self, detector: Any, values: Any, is_alarm: Callable[[Any], bool], until: float) -> list[int]:
        """Update a detector; alarms less than a window apart count once."""
        found: list[int] = []
        first, last, _ = near(until, self.window).indices(len(values))
        for i in range(first or self.reference, last):
            if np.isnan(values[i]).any():
                continue
            self.n_values += np.size(values[i])
            result, _ = detector.update(value=values[i])
            if result is not None and is_alarm(result) and (not found or i >= found[-1] + self.window):
                found.append(i + 1)
                if i + 1 > until:
                    break
        return found


class KernelMMD(IncrementalKS):
    """Frouros' `MMDStreaming` of all columns.

    The window has 128 events, and the reference 1,000.
    """

    window, reference = 128, 1_000

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return the numbers of events at alarms, up to the first one after `until`."""
        from frouros.detectors.data_drift import MMDStreaming
        from frouros.utils.kernels import rbf_kernel

        values = np.column_stack([numbers(column) for column in X.values()])
        width = math.sqrt(2.0 * WIDTH)  # the median distance of two events
        detector = MMDStreaming(window_size=self.window, kernel=partial(rbf_kernel, sigma=width))
        detector.fit(X=values[: self.reference])
        return self._follow(detector, values, lambda result: result.distance > self.level, until)


class Chunks:
    """Calculator of NannyML on chunks of 500 events, with alarms at ends of chunks.

    Parameters
    ----------
    kind
        ``univariate``, ``reconstruction`` or ``classifier``.
    limit
        Number of standard deviations between chunks of the reference, or AUROC of the classifier.
    reference
        Number of first events that are the reference.
    most
        Number of chunks after `until` that are calculated.
    """

    def __init__(self, kind: str, limit: float, reference: int = REFERENCE, most: int = 20) -> None:
        self.kind, self.limit, self.reference, self.most, self.n_values = kind, limit, reference, most, 0

    def _made(self, names: list[str]) -> Any:
        os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
        import nannyml
        from nannyml.drift.multivariate.domain_classifier.calculator import DEFAULT_LGBM_HYPERPARAMS
        from nannyml.thresholds import ConstantThreshold, StandardDeviationThreshold

        if self.kind == "univariate":
            limit = StandardDeviationThreshold(std_lower_multiplier=None, std_upper_multiplier=self.limit)
            return nannyml.UnivariateDriftCalculator(names, chunk_size=CHUNK, thresholds={"jensen_shannon": limit})
        if self.kind == "reconstruction":
            limit = StandardDeviationThreshold(self.limit, self.limit)
            return nannyml.DataReconstructionDriftCalculator(names, chunk_size=CHUNK, threshold=limit)
        return nannyml.DomainClassifierCalculator(
            names,
            chunk_size=CHUNK,
            hyperparameters=DEFAULT_LGBM_HYPERPARAMS | {"num_threads": 1, "verbose": -1},
            threshold=ConstantThreshold(lower=0.0, upper=self.limit),
        )

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return event numbers at ends of chunks with alarms, one for each column."""
        import nannyml
        import pandas as pd

        frame = pd.DataFrame({name: _categorical(column) for name, column in X.items()})
        calculator, found = self._made(list(X)), []
        chunker = calculator.chunker
        if self.kind == "classifier":  # its limit is constant, so that chunks of the reference only take time
            calculator.chunker = nannyml.chunk.SizeBasedChunker(self.reference // 2)
        calculator.fit(frame[: self.reference])
        calculator.chunker = chunker
        first, last, step = self.reference // CHUNK, len(frame) // CHUNK, 20
        if until < math.inf:
            first, last, step = int(until) // CHUNK, int(until) // CHUNK + self.most, 1
        for start in range(first, last, step):
            part = frame[start * CHUNK : min(start + step, last) * CHUNK]
            self.n_values += part.size
            result = calculator.calculate(part).filter(period="analysis").to_df()
            alerts = result[[name for name in result if name[-1] == "alert"]].to_numpy(dtype=bool)
            found += ((np.nonzero(alerts)[0] + start + 1) * CHUNK).tolist()
            if found and found[-1] > until:
                break
        return found


def _categorical(column: Any) -> Any:
    import pandas as pd

    return pd.Categorical(column) if column.dtype == object else column


# Settings -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of detectors.

    Parameters
    ----------
    make
        Function of a setting that returns a detector.
    package
        Package that has it.
    default
        Function that returns a detector with default settings, if there are any.
    settings
        Settings with more false alarms than `RATE`, whose logarithms are extrapolated; empty for tests with a level.
    level
        Setting with at most `RATE` false alarms, without `settings`.
    is_logarithmic
        Whether the logarithm of the number of false alarms is linear in the logarithm of the setting.
    is_univariate
        Whether it gets the first column only, because the others do not change, and no change of a relation.
    is_relational
        Whether it gets changes of relations only.
    seeds
        Number of streams for each change.
    null
        Numbers of streams, of events and of columns without a change.
    """

    make: Callable[[float], Detector]
    package: str
    default: Callable[[], Detector] | None = None
    settings: tuple[float, ...] = ()
    is_logarithmic: bool = False
    is_univariate: bool = True
    is_relational: bool = False
    seeds: int = 10
    null: tuple[int, int, int] = (10, 100_000, WIDTH)
    level: float = LEVEL

    @property
    def is_there(self) -> bool:
        """Whether the package is installed."""
        return importlib.util.find_spec(self.package) is not None


def _auroc(level: float, reference: int) -> float:
    """Return the AUROC exceeded with probability `level` without a difference."""
    deviation = math.sqrt((CHUNK + reference + 1) / (12.0 * CHUNK * reference))
    return 0.5 + deviation * NormalDist().inv_cdf(1.0 - level)


def _river(name: str, memory: int | None = None, **parameters: Any) -> Detector:
    from river import drift

    return Univariate(partial(getattr(drift, name), **parameters), memory)


def _kswin(level: float, window: int, recent: int) -> Detector:
    return _river("KSWIN", window, alpha=level, window_size=window, stat_size=recent, seed=1)


def _classifier(limit: float) -> Detector:
    return Chunks("classifier", limit, 2_000, 4)


KINDS: dict[str, Kind] = {
    "FeatureMonitor": Kind(lambda _: Monitor(), "streamsvm", Monitor, is_univariate=False, level=RATE),
    "ADWIN": Kind(
        lambda delta: _river("ADWIN", delta=delta),
        "river",
        lambda: _river("ADWIN"),
        settings=(0.004, 0.016, 0.064),
        is_logarithmic=True,
    ),
    "Page-Hinkley": Kind(
        lambda threshold: _river("PageHinkley", threshold=threshold, delta=0.125, alpha=1.0),
        "river",
        lambda: _river("PageHinkley"),
        settings=(20.0, 25.0, 30.0, 35.0),
        null=(5, 100_000, WIDTH),
    ),
    "KSWIN": Kind(
        lambda level: _kswin(level, 300, 100),
        "river",
        lambda: _kswin(0.005, 100, 30),
        null=(4, 5_000, 1),
    ),
    "Frouros KS": Kind(IncrementalKS, "frouros", null=(4, 5_000, 1)),
    "Frouros MMD": Kind(
        KernelMMD,
        "frouros",
        settings=(0.0005, 0.001, 0.0015, 0.002, 0.0025),
        is_univariate=False,
        null=(2, 4_000, WIDTH),
    ),
    "linear classifier": Kind(
        lambda rate: LinearTest(rate, REFERENCE),
        "streamsvm",
        is_univariate=False,
        is_relational=True,
        level=RATE,
    ),
    "MMD, random features": Kind(
        lambda rate: RandomFeatureMMD(rate, REFERENCE),
        "streamsvm",
        settings=(0.1, 1.0, 10.0, 100.0),
        is_logarithmic=True,
        is_univariate=False,
        is_relational=True,
        null=(3, 100_000, WIDTH),
    ),
    "NannyML univariate": Kind(
        partial(Chunks, "univariate"),
        "nannyml",
        lambda: Chunks("univariate", 3.0),
        settings=(3.0, 4.25),
        null=(2, 100_000, WIDTH),
    ),
    "NannyML reconstruction": Kind(
        partial(Chunks, "reconstruction"),
        "nannyml",
        lambda: Chunks("reconstruction", 3.0),
        settings=(1.75, 2.75),
        is_univariate=False,
        null=(3, 100_000, WIDTH),
    ),
    "NannyML classifier": Kind(
        _classifier,
        "nannyml",
        lambda: _classifier(0.65),
        is_univariate=False,
        seeds=4,
        null=(2, 10_000, WIDTH),
        level=_auroc(RATE * 1e-6 * CHUNK, 2_000),
    ),
}


def extrapolated(kind: Kind, rates: dict[float, float]) -> float:
    """Return the setting for `RATE` false alarms, extrapolated log-linearly.

    Examples
    --------
    >>> kind = Kind(lambda _: Monitor(), "streamsvm", settings=(1.0, 2.0))
    >>> round(extrapolated(kind, {1.0: 10.0, 2.0: 1.0}), 6)
    3.0
    """
    scale, inverse = (math.log, math.exp) if kind.is_logarithmic else (float, float)
    settings = [setting for setting, rate in rates.items() if rate > 0.0]
    if len(settings) < 2:
        raise ValueError("fewer than two settings have false alarms: the rate cannot be extrapolated")
    slope, at_zero = np.polyfit([scale(setting) for setting in settings], [math.log(rates[s]) for s in settings], 1)
    return inverse((math.log(RATE) - at_zero) / slope)


def installed() -> Iterator[tuple[str, Kind]]:
    """Return the kinds whose packages are installed."""
    return ((name, kind) for name, kind in KINDS.items() if kind.is_there)
