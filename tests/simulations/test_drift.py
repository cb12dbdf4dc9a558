"""Simulations of drift: measurements, resuming after a kill, and the report."""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wilcoxon

from connectors.synthetic import Drift, Event, Scenario, find
from simulations import learners, prequential
from simulations.drift import cells, summary
from simulations.drift.__main__ import main
from simulations.drift.cells import Cell
from simulations.drift.store import Store
from simulations.learners import Learner, named
from simulations.prequential import Stream
from simulations.storage import RESULTS_LAST_CHANGED_AT

BAYES, NONE = "river.naive_bayes.GaussianNB", "river.dummy.NoChangeClassifier"


# Learners -------------------------------------------------------------------------------------------------------------


def test_a_learner_is_named_or_a_path_with_parameters():
    table = learners.table()
    assert named("ARF", table) is table["ARF"]
    forest = named("river.forest.ARFClassifier?n_models=3&grace_period=20", {})
    model = forest.begin(7, [], [])
    assert (model.n_models, model.grace_period, model.seed) == (3, 20, 7)
    for wrong in ("nobody", "river.forest.Nobody", "nowhere.Forest"):
        with pytest.raises(SystemExit):
            named(wrong, table)


@pytest.mark.parametrize("name", [name for name, each in learners.table().items() if each.of != "CapyMOA"])
def test_every_learner_of_the_table_learns(name):
    record = cells.measure(Cell(find("stagger-sudden").stretched(60), learners.table()[name], 1))
    assert 0.3 < record["accuracy"] <= 1.0


def test_a_misspelt_scenario_is_named_before_any_run(tmp_path):
    with pytest.raises(SystemExit, match="sea-suden"):
        main(["--scenarios", "sea-sudden", "sea-suden", "--learners", NONE, "--out", str(tmp_path)])


# Cells ----------------------------------------------------------------------------------------------------------------


class Notes:
    """Predicts the last label, and records the order of training."""

    def __init__(self) -> None:
        self.asked, self.learned, self.last = 0, [], None

    def predict_proba_one(self, x):
        self.asked += 1
        return {} if self.last is None else {self.last: 2.0}

    def learn_one(self, x, y):
        self.learned.append((self.asked - 1, x["i"], y))
        self.last = y


def stream(*events: tuple[str | None, str, int]) -> Stream:
    return Stream([Event({"i": i}, y, truth, late) for i, (y, truth, late) in enumerate(events)], ["i"], ["a", "b"])


def test_labels_are_learned_on_arrival():
    notes = Notes()
    given = stream(("a", "a", 2), ("b", "b", 0), (None, "a", 0), ("b", "a", 0), ("a", "a", 9))
    probas, _ = prequential.prequential(notes, given)
    assert notes.learned == [(1, 1, "b"), (2, 0, "a"), (3, 3, "b")]
    assert probas.tolist() == [[0, 0], [0, 0], [0, 1], [1, 0], [0, 1]]


def test_measures_by_hand():
    probas = np.array([[0, 0], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1]])
    found = cells.measures(probas, stream(*[("a", t, 0) for t in "aabba"]), [])
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["balanced"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    by_chance = (3 * 3 + 1 * 2) / 25
    assert found["kappa"] == pytest.approx((3 / 5 - by_chance) / (1 - by_chance))
    assert found["log_loss"] == pytest.approx(-np.log([prequential.LEAST, 0.8, 0.7, 0.4, 0.9]).mean())
    assert found["rarest"] == pytest.approx(2 / 5)
    assert found["average_precision"] == pytest.approx(1.0)
    assert found["curve"] == [0, 1, 1, 0, 1]


def test_recovery_by_hand():
    right = np.ones(2_000, bool)
    right[1_000:1_300] = False
    assert cells.recovered(right, [Drift(1_000, 0, "concept")]) == [398]
    assert cells.recovered(right, [Drift(100, 0, "concept")]) == [None]
    assert cells.recovered(np.arange(2_000) < 1_000, [Drift(1_000, 0, "concept")]) == [100]
    right[1_000:1_500] = False
    assert cells.recovered(right, [Drift(1_000, 0, "concept")]) == [598]


class Slow(Notes):
    def predict_proba_one(self, x):
        time.sleep(0.002)
        return {}

    def learn_one(self, x, y):
        pass


def test_a_cell_that_takes_too_long_is_stopped():
    slow = Learner("slow", f"{__name__}.Slow")
    sys.modules[__name__].Slow = Slow
    record = cells.measure(Cell(find("sea-sudden").stretched(2_000), slow, 0, limit=0.2))
    assert 16 <= record["events"] < record["planned"] == 2_000


def test_a_stream_of_the_user_that_ends_was_not_stopped(tmp_path):
    (tmp_path / "mine.csv").write_text("a,y\n" + "1,up\n2,down\n" * 30)
    file = Scenario("mine", "mine", "streams", 1_000_000, source=f"{tmp_path}/mine.csv?label=y")
    record = cells.measure(Cell(file, Learner("none", NONE), 0))
    assert record["events"] == record["planned"] == 60


# Running --------------------------------------------------------------------------------------------------------------


def asked(out: Path, *more: str) -> list[str]:
    what = ("--scenarios", "sea-sudden", "sine-late", "--learners", BAYES, NONE, "--events", "600", "--seeds", "2")
    return [*what, "--out", str(out), *more]


@pytest.mark.slow
def test_results_survive_a_kill_and_are_not_measured_again(tmp_path, capsys, monkeypatch):
    journal = tmp_path / "drift.jsonl"
    arguments = asked(tmp_path, "--backend", "threading")
    process = multiprocessing.get_context("fork").Process(target=main, args=(arguments,))
    process.start()
    while process.is_alive() and (not journal.exists() or journal.read_bytes().count(b"\n") < 2):
        time.sleep(0.02)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    before = {record["key"]: record["seconds"] for record in map(json.loads, journal.read_text().splitlines())}
    assert 2 <= len(before) < 8
    with journal.open("a") as file:
        file.write('{"key": "torn')
    monkeypatch.setitem(RESULTS_LAST_CHANGED_AT, "learners", ("cccc", "2999-01-01T00:00:00+00:00"))
    main(asked(tmp_path, "--jobs", "1"))
    after = Store(tmp_path).records
    assert len(after) == 8
    assert {key: after[key]["seconds"] for key in before} == before
    assert not journal.exists()
    how = json.loads(after.popitem()[1]["run"])
    assert {"river", "numpy", "streamsvm"} <= set(how["versions"])
    assert how["commit"]
    capsys.readouterr()
    main(asked(tmp_path, "--list"))
    assert capsys.readouterr().out.count("4 of     4 cells done") == 2
    page, text = (tmp_path / "drift.html").read_text(), (tmp_path / "drift.md").read_text()
    assert "sine-late" in page
    assert "sine-late" in text
    assert "cccc" not in text  # results of other people's learners do not change with ours
    assert "src=" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    for picture in re.findall(r"\]\((.*?\.png)\)", text):
        assert (tmp_path / picture).stat().st_size > 1_000


# Reports --------------------------------------------------------------------------------------------------------------


def records(accuracies: dict[str, list[float]]) -> list[dict[str, object]]:
    return [
        {
            **{"key": f"{name} {k}", "scenario": f"s{k}", "learner": name, "seed": 0, "planned": 100},
            **{"accuracy": a, "us": 10.0},
        }
        for name, row in accuracies.items()
        for k, a in enumerate(row)
    ]


def test_ranks_wins_and_losses_by_hand():
    found = summary.frame(
        records({"StreamSVM": [0.9, 0.8, 0.7, 0.9], "A": [0.8, 0.802, 0.8, 0.8], "B": [0.5, 0.5, 0.5, 0.5]})
    )
    standing = summary.standing(found, ["StreamSVM", "A", "B"])
    assert standing.ranks.to_dict() == {"StreamSVM": 1.5, "A": 1.5, "B": 3.0}
    pairs = [("StreamSVM", "A"), ("StreamSVM", "B"), ("A", "B")]
    of = standing.accuracy
    raw = {pair: wilcoxon(of[pair[0]], of[pair[1]], zero_method="zsplit").pvalue for pair in pairs}
    holm = np.maximum.accumulate([p * (3 - k) for k, p in enumerate(sorted(raw.values()))])
    for pair, p in zip(sorted(raw, key=raw.__getitem__), holm, strict=True):
        assert standing.wilcoxon.loc[pair] == pytest.approx(min(p, 1.0))
    assert standing.nemenyi.loc["StreamSVM", "A"] > 0.9 > standing.nemenyi.loc["A", "B"]
    duels = summary.duels(standing, found)
    assert duels.loc["A", ["wins", "ties", "losses"]].tolist() == [2, 1, 1]
    assert duels.loc["B", "mean gain"] == pytest.approx(100 * (0.4 + 0.3 + 0.2 + 0.4) / 4)
    assert summary.behind(found, ["A", "B"]).to_dict("records") == [
        {"scenario": "s2", "behind": "A", "points": pytest.approx(-10.0)}
    ]
