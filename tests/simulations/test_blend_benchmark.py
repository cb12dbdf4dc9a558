"""The benchmark combines our results with those of other packages."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from simulations.benchmarks import blend as benchmark
from simulations.benchmarks.blend import ablation, beside, robustness, streams
from simulations.benchmarks.peers import GENERATED, REAL, Stream
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


def test_the_best_peer_is_that_of_each_stream():
    electricity, _, *sea = streams.join(OURS, THEIRS)
    assert [row.best for row in (electricity, *sea)] == ["ARF", "LR", "ARF"]
    assert electricity.gain("blend") == pytest.approx(3.0)
    assert electricity.gain("blend", capymoa=True) == pytest.approx(91.0 - streams.CAPYMOA["electricity"][0])


def test_peers_that_met_other_rows_do_not_count():
    airlines = streams.join(OURS, THEIRS)[1]
    assert airlines.peers == {}
    assert airlines.best is airlines.gain("blend") is airlines.least("ECE") is None


def test_a_generator_counts_once_by_the_mean_over_its_seeds():
    gains = streams.gains(streams.join(OURS, THEIRS), "blend", capymoa=False)
    assert gains == pytest.approx({"electricity": 3.0, "SEA sudden": (1.0 - 3.0) / 2})


def test_what_is_missing_is_left_empty_in_the_table():
    table = streams.markdown(streams.join(OURS, THEIRS)).splitlines()
    assert [line.split("|")[1].strip() for line in table[2:]] == ["electricity", "airlines", "SEA sudden"]
    assert len({line.count("|") for line in table}) == 1
    cells = [cell.strip() for cell in table[2].split("|")]
    assert cells[2:5] == ["82.0 (1)", "", ""]
    assert "**91.0** (10)" in cells
    assert table[3].endswith("|  |")


def test_the_totals_print_whatever_is_there(capsys):
    streams.print_totals(streams.join(OURS, THEIRS), ["blend"])
    printed = capsys.readouterr().out
    assert "18 of 24 runs of peers are missing" in printed
    assert "1/2  +1.00  -1.00" in printed


def test_streams_are_for_choosing_or_for_confirming():
    assert benchmark.chosen(None) == REAL + GENERATED
    assert benchmark.chosen(["real"]) == REAL
    assert set(benchmark.chosen(["choosing"])).isdisjoint(benchmark.chosen(["confirming"]))
    assert set(benchmark.chosen(["choosing", "confirming"])) == set(REAL + GENERATED)
    assert benchmark.chosen(["SEA sudden #2", "ozone"]) == [Stream("ozone"), Stream("SEA sudden", 2)]
    assert all(stream.seed == 1 for stream in benchmark.chosen(["generators"], [1]))
    with pytest.raises(SystemExit, match="unknown streams: nothing"):
        benchmark.chosen(["nothing"])


def test_a_variant_lasts_as_long_as_it_is_asked_for():
    def members(name):
        with ablation.built_as(ablation.VARIANTS[name]):
            return StreamSVMClassifier(**ablation.VARIANTS[name].settings)._kinds()

    whole = StreamSVMClassifier()._kinds()
    fixed, hinge = members("no learned metric"), members("no log loss")
    assert fixed[0].learner.metric == "fixed"
    assert members("no absorbing")[0].learner.absorb == 1.0
    assert {head.split()[0] for head in hinge[0].heads} == {"hinge"}
    assert whole[0].learner.metric == StreamSVMClassifier()._kinds()[0].learner.metric == "learned"
    assert StreamSVMClassifier()._kinds()[0].heads == whole[0].heads


def test_constants_of_compiled_code_exist():
    """Compiling with other constants takes long, so only check that the names exist."""
    for variant in ablation.VARIANTS.values():
        for place in variant.compiled:
            module, _, name = place.rpartition(".")
            assert hasattr(importlib.import_module(module), name)


def test_every_variant_learns():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).tolist()
    for variant in ablation.VARIANTS.values():
        with ablation.built_as(variant):
            assert len(StreamSVMClassifier(**variant.settings).test_then_train(X, y)) == 60


class Repeats:
    """Predicts the last label."""

    def __init__(self):
        self.last, self.learned = None, []

    def predict_one(self, x):
        return self.last

    def learn_one(self, x, y):
        self.last = y
        self.learned.append((x["x0"], y))


def test_labels_come_as_late_as_said():
    X, y = np.arange(6.0)[:, None], [0, 0, 1, 1, 0, 0]
    model = Repeats()
    assert robustness.accuracy(model, robustness.Case(X, y, y, 0)) == pytest.approx(100 * 3 / 6)
    late = Repeats()
    robustness.accuracy(late, robustness.Case(X, y, y, 2))
    assert late.learned == [(0.0, 0), (1.0, 0), (2.0, 1), (3.0, 1)]


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


def test_two_versions_take_turns_and_the_least_time_counts():
    asked = []

    class Version:
        def __init__(self, name, times):
            self.name, self.times = name, {way: iter(times) for way in beside.WAYS}

        def ask(self, way):
            asked.append(self.name)
            return {"us": next(self.times[way])} | ({"accuracy": 0.9} if way == "rows" else {})

    found = beside.in_turn({"now": Version("now", [3.0, 2.0]), "before": Version("before", [8.0, 9.0])}, 2)
    assert (found["now, rows"], found["before, rows"], found["now, accuracy"]) == (2.0, 8.0, 0.9)
    assert asked == ["before", "now"] * 2 + ["now", "before"] * 2
