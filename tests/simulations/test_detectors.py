"""Scores of detectors of feature drift."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from connectors.synthetic import Drift
from simulations.benchmarks import feature_drift
from simulations.benchmarks.feature_detectors import KINDS, Monitor
from simulations.benchmarks.feature_streams import RELATIONS, changed
from simulations.drift import detectors
from simulations.drift.__main__ import main


def test_scores_by_hand():
    drifts = [Drift(1_000, 200, "mix"), Drift(2_000, 0, "scale")]
    assert detectors.scores([50, 950, 1_500], drifts, 3_000) == ([0], 1, 1)
    assert detectors.scores([2_100], drifts, 3_000) == ([100], 1, 0)
    assert detectors.scores([7, 8], [], 3_000) == ([], 0, 2)


def test_the_table_has_each_detector_on_each_scenario(capsys):
    main(["--detectors", "--quick", "--scenarios", "rbf-scale", "--events", "2000"])
    lines = capsys.readouterr().out.splitlines()[2:]
    cells = {line.split(" | ")[1]: line.split(" | ")[2:] for line in lines}
    assert set(cells) == {"FeatureMonitor", "ADWIN", "Page-Hinkley"}
    assert (cells["FeatureMonitor"][1], cells["FeatureMonitor"][2]) == ("0 of 3", "0 in 1")


def test_a_monitor_finds_a_shift_and_a_changed_category_share():
    monitor = replace(KINDS["FeatureMonitor"], seeds=1)
    for change, size in (("mean, in deviations", 3.0), ("category share 0.17 to", 0.4)):
        found = feature_drift.delays(change, size, monitor, Monitor)
        assert (found["missed"], found["false"]) == (0, 0)
        assert found["delay"] <= 320


@pytest.mark.parametrize(
    ("change", "size"), [(change, size) for change in RELATIONS for size in RELATIONS[change][1][-1:]]
)
def test_a_relation_changes_and_no_column(change, size):
    X = changed(change, size, np.random.default_rng(0), 1, 20_000)
    tolerance = 0.2 if "copies" in change else 0.05
    for column in X.values():
        assert np.quantile(column, [0.1, 0.5, 0.9]) == pytest.approx([-1.28, 0.0, 1.28], abs=tolerance)


@pytest.mark.usefixtures("data")
def test_a_real_stream_in_random_order_has_no_alarm():
    found = feature_drift.real("luxembourg", 1)
    assert (found["events"], found["columns"], found["shuffled"]) == (1_901, 31, 0)
