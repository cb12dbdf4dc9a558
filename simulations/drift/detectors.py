"""Detectors of feature drift on scenarios: delay, missed drifts and false alarms.

A drift counts as detected if any column has an alarm between it and the next drift; gradual ones begin half of their
width earlier. Alarms before the first drift are false. Labels are not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.synthetic import Drift, Scenario, find
from simulations.benchmarks.feature_detectors import KINDS, Detector, Monitor
from simulations.harness import key_of
from simulations.tables import markdown, stored

SCENARIOS = (
    *("agrawal-features", "hyperplane-features", "tree-features", "hyperplane-scale", "rbf-scale"),
    *("agrawal-none", "hyperplane-none", "rbf-none", "tree-none"),
)
"""Scenarios whose features drift, and others without any drift."""
FEATURE_DRIFTS = ("mix", "scale", "swap", "missing")
"""Kinds of disturbances that change features."""
EVENTS = 50_000
QUICK = ("agrawal-features", "rbf-scale", "rbf-none")
_SLOW = ("KSWIN",)
_FIRST = 500  # events whose mean and deviation scale a column


def makers(scenario: Scenario) -> dict[str, Callable[[], Detector]]:
    """Return detector factories; a monitor's reference ends well before any drift.

    Detectors of River have the settings that the benchmark `feature-drift` chose for equal rates of false alarms.
    """
    first = min((drift.at for drift in scenario.drifts), default=scenario.events)
    found: dict[str, Callable[[], Detector]] = {
        "FeatureMonitor": lambda: Monitor(reference=max(256, min(10_000, first // 2)))
    }
    rates = stored("feature-drift").rows
    for name, kind in KINDS.items():
        if kind.package == "river" and name not in _SLOW:
            found[name] = partial(kind.make, rates[key_of("rate", name, "equal")]["setting"])
    return found


def columns(scenario: Scenario, seed: int) -> dict[str, NDArray[np.float64]]:
    """Return numeric features by name, standardized by the first events."""
    rows = [event.x for event in scenario.draw(seed)]
    names = [name for name, value in rows[0].items() if not isinstance(value, str)]
    found = {name: np.array([row.get(name, np.nan) for row in rows], float) for name in names}
    first = {name: values[:_FIRST] for name, values in found.items()}
    return {name: (x - np.nanmean(first[name])) / (np.nanstd(first[name]) or 1.0) for name, x in found.items()}


def scores(alarms: Sequence[int], drifts: Sequence[Drift], n_events: int) -> tuple[list[int], int, int]:
    """Return delays of detected drifts, and numbers of missed ones and false alarms.

    Examples
    --------
    >>> scores([50, 1_100, 1_200], [Drift(1_000, 0, "scale"), Drift(2_000, 0, "scale")], 3_000)
    ([100], 1, 1)
    """
    begins = [drift.at - drift.width // 2 for drift in drifts]
    ends = [*begins, n_events][1:] if drifts else []
    delays = []
    for drift, begin, end in zip(drifts, begins, ends, strict=True):
        own = [at for at in alarms if begin < at <= end]
        delays += [max(own[0] - drift.at, 0)] if own else []
    first = min(begins, default=n_events)
    return delays, len(drifts) - len(delays), sum(at <= first for at in alarms)


def table(scenarios: Sequence[Scenario], n_seeds: int) -> str:
    """Measure all detectors on scenarios; return a table in Markdown."""
    lines: list[list[str]] = [["scenario", "detector", "delay", "missed", "false alarms", "µs per event"]]
    for scenario in scenarios:
        drifts = [drift for drift in scenario.drifts if drift.what in FEATURE_DRIFTS]
        streams = [columns(scenario, seed) for seed in range(n_seeds)]
        for name, make in makers(scenario).items():
            lines.append([scenario.name, name, *_cells(make, streams, drifts, scenario.events)])
    return markdown(lines)


def _cells(make: Callable[[], Detector], streams: Sequence[Any], drifts: Sequence[Drift], n_events: int) -> list[str]:
    delays, missed, false, seconds = [], 0, 0, 0.0
    for X in streams:
        start = time.process_time()
        alarms = make().first_alarms(X, np.inf)
        seconds += time.process_time() - start
        found = scores(alarms, drifts, n_events)
        delays, missed, false = delays + found[0], missed + found[1], false + found[2]
    n = len(streams)
    delay = f"{np.median(delays):,.0f}" if delays else "–"
    return [delay, f"{missed} of {n * len(drifts)}", f"{false} in {n}", f"{1e6 * seconds / (n * n_events):.2f}"]


def chosen(names: Sequence[str], n_events: int | None) -> list[Scenario]:
    """Return scenarios by name, with a number of events."""
    return [find(name).stretched(n_events or EVENTS) for name in names]
