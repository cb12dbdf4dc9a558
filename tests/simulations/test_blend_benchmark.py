"""The benchmark combines our results with those of other packages."""

from __future__ import annotations

import pytest

from simulations.benchmarks import blend as benchmark
from simulations.benchmarks.blend import streams


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
