"""Runs of other learners: cells are computed once, and interrupted or outdated ones again."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from simulations.benchmarks import peers
from simulations.benchmarks.peers import Cell, Results, Stream

SEA = Stream("SEA sudden", 1)
FACTS = {"rows": 4, "classes": 2, "digest": "aa"}


def test_a_cell_once_done_is_kept(tmp_path):
    results = Results(tmp_path / "peers.json")
    results.add(Cell(SEA, "LR"), FACTS, {"accuracy": 88.0, "us": 9.0})
    results.add(Cell(SEA, "ARF"), FACTS, {"accuracy": 90.0, "us": 500.0})
    results.add(Cell(Stream("ozone"), "LR"), FACTS, {"accuracy": 91.0, "us": 80.0})
    again = Results(tmp_path / "peers.json")
    assert again.streams == results.streams
    assert again.streams["SEA sudden #1"]["peers"]["ARF"] == {"accuracy": 90.0, "us": 500.0}
    assert Cell(SEA, "LR") in again
    assert Cell(SEA, "HAT") not in again
    assert Cell(Stream("SEA sudden", 2), "LR") not in again
    kept = json.loads((tmp_path / "peers.json").read_text())
    assert set(kept) == {"versions", "machine", "streams"}


def test_other_rows_make_what_was_reached_before_void(tmp_path):
    results = Results(tmp_path / "peers.json")
    results.add(Cell(SEA, "LR"), FACTS, {"accuracy": 88.0})
    results.add(Cell(SEA, "HAT"), FACTS | {"digest": "bb"}, {"accuracy": 87.0})
    assert results.streams[SEA.key]["peers"] == {"HAT": {"accuracy": 87.0}}


def test_measures_by_hand():
    probas = [{}, {"a": 1.0}, {"a": 0.8, "b": 0.2}, {"a": 3.0, "b": 1.0}, {"a": math.nan, "b": 0.0}]
    measured = peers.judged(probas, ["a", "b", "a", "a", "b"])
    assert measured["accuracy"] == pytest.approx(40.0)
    likelihoods = [peers.LEAST, peers.LEAST, 0.8, 0.75, peers.LEAST]
    assert measured["log loss"] == pytest.approx(-np.log(likelihoods).mean())


def test_calibration_error_by_hand():
    confidence, right = np.array([0.9, 0.9, 0.9, 0.9, 0.5, 0.5]), np.array([1, 1, 1, 0, 1, 0], bool)
    assert peers.calibration_error(confidence, right) == pytest.approx((4 * 0.15 + 2 * 0.0) / 6)
    assert peers.calibration_error(np.ones(5), np.ones(5, bool)) == pytest.approx(0.0)
