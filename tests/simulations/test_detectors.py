"""Scores of detectors of feature drift."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulations.benchmarks import feature_drift
from simulations.benchmarks.feature_detectors import KINDS, OURS, RATE
from simulations.benchmarks.feature_streams import RELATIONS, changed
from simulations.harness import key_of
from simulations.storage import Results
from tests.errors import raises


def test_a_monitor_finds_a_shift_and_a_changed_category_share(monkeypatch, tmp_path):
    monkeypatch.setitem(KINDS, OURS, replace(KINDS[OURS], seeds=1))
    out = tmp_path / "results.json"
    with raises(ValueError, named="rate"):
        feature_drift.delays("stuck", 0.0, OURS, out)
    Results(out).add({key_of("rate", OURS, "equal"): {"setting": RATE}}, {"date": ""})
    for change, size in (("mean, in deviations", 3.0), ("category share 0.17 to", 0.4)):
        found = feature_drift.delays(change, size, OURS, out)
        assert (found["missed"], found["false"]) == (0, 0)
        assert found["delay"] <= 320


def test_a_detector_of_river_finds_a_shift_of_its_column():
    X = changed("mean, in deviations", 3.0, np.random.default_rng(0), 2_000, 1_000)
    alarms = KINDS["ADWIN"].make(1e-4).first_alarms({"x0": X["x0"]}, 2_000)
    assert 2_000 < alarms[0] <= 2_200


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
