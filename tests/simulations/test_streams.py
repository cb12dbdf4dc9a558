"""Benchmark of all streams: measures by hand, gains over the best other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from connectors.synthetic import Event
from simulations import data, generators, prequential
from simulations.benchmarks import streams
from simulations.benchmarks.streams import TABLE
from simulations.generators import LENGTH
from simulations.prequential import Stream
from simulations.storage import ROOT, SEPARATOR
from simulations.tables import PAGES, stored


def results(**accuracies):
    """Results by stream and learner; a pair of an accuracy and a digest."""
    return {
        f"{stream} / {learner}": {"accuracy": accuracy, "digest": digest}
        for stream, own in accuracies.items()
        for learner, (accuracy, digest) in own.items()
    }


def test_peers_that_met_other_rows_do_not_count():
    rows = results(airlines={"StreamSVM": (65.0, "new"), "LR": (70.0, "old"), "HAT": (60.0, "new")})
    assert streams.gain(rows) == pytest.approx(5.0)
    assert streams.accuracy("LR")(rows) is None
    assert streams.gain(results(airlines={"StreamSVM": (65.0, "new"), "LR": (70.0, "old")})) is None


def test_a_generator_counts_once_by_the_mean_over_its_seeds():
    first = results(**{"SEA sudden #0": {"StreamSVM": (89.0, "a"), "LR": (88.0, "a"), "ARF": (86.0, "a")}})
    second = results(**{"SEA sudden #1": {"StreamSVM": (85.0, "b"), "LR": (84.0, "b"), "ARF": (88.0, "b")}})
    assert streams.gain(first | second) == pytest.approx((1.0 - 3.0) / 2)
    (line,) = streams.TABLE.markdown(first | second).splitlines()[2:]
    assert line.split("|")[1:5] == [" SEA sudden ", " **87.0** ", " -1.0 ", " 86.0 "]


def test_pages_state_the_gains_of_the_stored_results():
    grouped: dict[str, dict] = {}
    for key, row in stored("streams").rows.items():
        grouped.setdefault(TABLE.row(key.split(SEPARATOR)), {})[key] = row
    alone = "StreamSVM no autocorrelation"
    whole, without = ([streams.gain(rows, ours) for rows in grouped.values()] for ours in (streams.OURS, alone))
    told = [f"mean gain {{}}is {np.mean(whole):.1f} points", f"it is {np.mean(without):.1f} points"]
    for page, over in ((ROOT / "README.md", "over the best of them "), (PAGES / "index.md", "")):
        text = " ".join(page.read_text(encoding="utf-8").split())
        assert f"On {sum(gain > 0.0 for gain in whole)} of " in text, page
        for sentence in told:
            assert sentence.format(over) in text, page


class Said:
    """Says given probabilities in turn."""

    def __init__(self, probas):
        self.probas = iter(probas)

    def predict_proba_one(self, x):
        return next(self.probas, {})

    def learn_one(self, x, y):
        pass


def test_measures_by_hand(monkeypatch):
    probas = [{}, {"a": 1.0}, {"a": 0.8, "b": 0.2}, {"a": 3.0, "b": 1.0}, {"a": math.nan, "b": 0.0}]
    stream = Stream.of([Event({"x": 1.0}, y, y) for y in ["a", "b", "a", "a", "b"]])
    monkeypatch.setattr(prequential, "begin", lambda *_: Said(probas))
    measured = prequential.evaluated(None, stream, 0)
    assert measured["accuracy"] == pytest.approx(40.0)
    likelihoods = [prequential.LEAST, prequential.LEAST, 0.8, 0.75, prequential.LEAST]
    assert measured["log loss"] == pytest.approx(-np.log(likelihoods).mean())


def test_a_stream_is_measured(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    table, labels = {"a": X[:, 0], "b": X[:, 1]}, (X[:, 0] > 0).tolist()
    monkeypatch.setitem(streams.STREAMS, "made", lambda: (table, labels))
    found = {name: streams.measure("made", name) for name in ("CPM", "LR")}
    assert all(row["accuracy"] > 80.0 and row["us"] > 0.0 for row in found.values())
    assert {row["digest"] for row in found.values()} == {streams.digest(table, labels)}
    assert streams.digest(table, labels) != streams.digest(table, labels[::-1])
    assert streams.digest(table, labels) != streams.digest(table | {"a": X[:, 1]}, labels)
    assert len(data.rows_of(table)) == found["CPM"]["events"] == 400


# Generators -----------------------------------------------------------------------------------------------------------

# Thresholds of the concepts in the papers of the generators.
SEA_THRESHOLDS = (8.0, 9.0, 7.0, 9.5)


@pytest.mark.parametrize("name", ["RBF incremental", "Agrawal gradual", "mixed gradual"])
def test_a_seed_names_a_stream(name):
    table, labels = generators.load(name, 1, 300)
    again, same = generators.load(name, 1, 300)
    other, _ = generators.load(name, 2, 300)
    assert labels == same
    assert all(np.array_equal(table[key], again[key]) for key in table)
    assert any(not np.array_equal(table[key], other[key]) for key in table)
    assert {len(column) for column in table.values()} == {len(labels)} == {300}


def test_a_sudden_drift_is_where_the_concept_ends():
    table, labels = generators.load("SEA sudden")
    total, right = table["0"] + table["1"], np.empty(LENGTH)
    for k, threshold in enumerate(SEA_THRESHOLDS):
        stretch = slice(k * LENGTH // 4, (k + 1) * LENGTH // 4)
        right[stretch] = (total[stretch] > threshold) == np.array(labels[stretch])
        # One label in ten is noise; another threshold has more errors.
        assert 0.88 < right[stretch].mean() < 0.92
    assert right[LENGTH // 4 - 500 : LENGTH // 4].mean() > 0.86
    assert right[LENGTH // 4 : LENGTH // 4 + 500].mean() > 0.86
