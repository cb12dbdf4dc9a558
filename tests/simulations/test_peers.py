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


def test_an_interrupted_write_leaves_the_results_as_they_were(tmp_path):
    path = tmp_path / "peers.json"
    Results(path).add(Cell(SEA, "LR"), FACTS, {"accuracy": 88.0})
    path.with_name("peers.json.draft").write_text('{"half')
    assert Cell(SEA, "LR") in Results(path)


def test_results_of_another_river_are_not_mixed_in(tmp_path):
    path = tmp_path / "peers.json"
    Results(path).add(Cell(SEA, "LR"), FACTS, {"accuracy": 88.0})
    path.write_text(path.read_text().replace(f'"river": "{Results(path).head["versions"]["river"]}"', '"river": "0.1"'))
    with pytest.raises(SystemExit, match=r"river 0\.1"):
        Results(path)


def test_every_cell_is_met_once_and_the_informative_come_first():
    cells = peers.cells()
    assert len(cells) == len(set(cells)) == len(peers.PEERS) * len(peers.REAL + peers.GENERATED)
    place = {cell: i for i, cell in enumerate(cells)}
    assert place[Cell(Stream("posture"), "ARF")] < place[Cell(SEA, "LR")]
    assert place[Cell(Stream("SEA sudden", 0), "SRP")] < place[Cell(Stream("SEA sudden", 1), "LR")]
    assert cells[-1].stream == Stream("spam")


@pytest.mark.slow
def test_a_process_measures_cells_and_each_is_kept(tmp_path, capsys):
    results = Results(tmp_path / "peers.json")
    peers.run([Cell(Stream("STAGGER recurring", 0), "LR")], results, 1)
    measured = Results(tmp_path / "peers.json").streams["STAGGER recurring #0"]
    assert measured["rows"] == 20_000
    assert 50.0 < measured["peers"]["LR"]["accuracy"] < 100.0
    assert "1/1" in capsys.readouterr().out


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


def test_rows_are_told_apart():
    table, labels = {"a": np.array([1.0, 2.0]), "s": np.array(["x", None], object)}, [0, 1]
    same = {"a": np.array([1.0, 2.0]), "s": np.array(["x", None], object)}
    other = {"a": np.array([1.0, 3.0]), "s": np.array(["x", None], object)}
    assert peers.digest(table, labels) == peers.digest(same, labels)
    assert len({peers.digest(table, labels), peers.digest(other, labels), peers.digest(table, [1, 0])}) == 3
