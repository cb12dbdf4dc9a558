"""The benchmark combines our results with those of other packages."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from simulations.benchmarks import blend as benchmark
from simulations.benchmarks.blend import ablation, robustness, streams
from streamsvm import StreamSVMClassifier


def measured(accuracy, us=1.0):
    return {"accuracy": accuracy, "log loss": 0.5, "ECE": 3.0, "us": us, "us by event": 10.0 * us}


def runs(accuracy):
    return {name: measured(accuracy) for name in benchmark.LEARNERS}


OURS = {
    "electricity": {"digest": "e", "runs": runs(91.0)},
    "airlines": {"digest": "new", "runs": runs(65.0)},
    "SEA sudden #0": {"digest": "s0", "runs": runs(89.0)},
    "SEA sudden #1": {"digest": "s1", "runs": runs(85.0)},
}
THEIRS = {
    "electricity": {"digest": "e", "peers": {"LR": measured(82.0), "ARF": measured(88.0, 500.0)}},
    "airlines": {"digest": "old", "peers": {"LR": measured(60.0)}},
    "SEA sudden #0": {"digest": "s0", "peers": {"LR": measured(88.0), "ARF": measured(86.0)}},
    "SEA sudden #1": {"digest": "s1", "peers": {"LR": measured(84.0), "ARF": measured(88.0)}},
}


def test_peers_that_met_other_rows_do_not_count():
    airlines = streams.join(OURS, THEIRS)[1]
    assert airlines.peers == {}
    assert airlines.best is airlines.gain("blend") is airlines.least("ECE") is None


def test_a_generator_counts_once_by_the_mean_over_its_seeds():
    gains = streams.gains(streams.join(OURS, THEIRS), "blend", capymoa=False)
    assert gains == pytest.approx({"electricity": 3.0, "SEA sudden": (1.0 - 3.0) / 2})


def test_every_variant_learns():
    """Compiling with other constants takes long, so only check that their names exist."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).tolist()
    for variant in ablation.VARIANTS.values():
        for place in variant.compiled:
            module, _, name = place.rpartition(".")
            assert hasattr(importlib.import_module(module), name)
        with ablation.built_as(variant):
            assert len(StreamSVMClassifier(**variant.settings).test_then_train(X, y)) == 60


def test_disturbances_are_as_said():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(2_000, 3)), rng.integers(4, size=2_000).tolist()
    noisy = robustness.disturb(X, y, "label noise", 0.3)
    assert np.mean(np.array(noisy.y) != y) == pytest.approx(0.3, abs=0.03)
    assert noisy.truth == y
    assert robustness.disturb(X, y, "irrelevant features", 10).X.shape == (2_000, 13)
    for how in robustness.LEVELS["features bent"]:
        bent = robustness.disturb(X, y, "features bent", how).X
        assert np.array_equal(bent.argsort(axis=0), X.argsort(axis=0)), how
    broken = robustness.disturb(X, y, "values broken", 0.05).X
    assert np.mean(broken != X) == pytest.approx(0.05, abs=0.01)
    for kind, levels in robustness.LEVELS.items():
        same = robustness.disturb(X, y, kind, levels[0])
        assert np.array_equal(same.X, X)
        assert (same.y, same.delay) == (y, 0)
