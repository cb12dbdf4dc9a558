"""Prediction sets in a run: output and metrics, with late labels, any model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import naive_bayes, preprocessing

from connectors import open_sink, open_source
from connectors.joined import JoinedSource
from streamsvm import CPMClassifier, DelayedClassifier, StreamSVMClassifier
from streamsvm.decide.conformal import ConformalSets
from streamsvm.run.report_text import summary, text
from tests.choices import each_choice
from tests.run.conftest import json_lines, runner_of, write_joined, write_stream

N = 450


def write(folder: Path, delay: Any) -> None:
    """Write events of three classes, one of which appears late."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, 3)).round(4)
    score = np.where(np.arange(N) < N // 2, X[:, 0], X[:, 1]) + 0.7 * rng.normal(size=N)
    y = np.where((np.arange(N) > N // 4) & (X[:, 2] > 1.0), "odd", np.where(score > 0, "up", "down"))
    write_joined(folder, X, y, delay)


def late(folder: Path) -> JoinedSource:
    options: dict[str, Any] = {"key": "id", "time": "t", "batch_size": 256}
    labels = open_source(str(folder / "labels.csv"), label="y", bare=True, **options)
    return JoinedSource(open_source(str(folder / "events.csv"), **options), labels)


def run(model: Any, source: Any, out: Path, *, by_class: bool = False, **options: Any) -> Any:
    sink = open_sink(str(out))
    report = runner_of(model, source, out=sink, coverage=0.8, coverage_by_class=by_class, **options).run()
    sink.close()
    return report


class Around:
    """Prediction sets of any classifier, by `ConformalSets`."""

    def __init__(self, model: Any) -> None:
        self.model, self.sets, self.classes = model, None, []

    def predict_set_one(self, x: dict[Any, Any], coverage: float, by_class: bool) -> set[Any]:
        self.sets = self.sets or ConformalSets(coverage, by_class)
        proba = self.model.predict_proba_one(x)
        self.proba = [proba.get(label, 0.0) for label in self.classes]
        return {label for label, is_in in zip(self.classes, self.sets.run_one(self.proba), strict=True) if is_in}

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        self.model.learn_one(x, y)
        if y not in self.classes:
            self.classes.append(y)
            self.proba.append(0.0)
        self.sets.run_one(self.proba, self.classes.index(y))


@each_choice(
    (
        "model",
        [
            CPMClassifier(),
            StreamSVMClassifier(effort="low", budget=10),
            preprocessing.StandardScaler() | naive_bayes.GaussianNB(),
        ],
    ),
    ("by_class", [False, True]),
)
def test_sets_are_those_of_a_loop_and_are_measured(tmp_path, model, by_class):
    write(tmp_path, 1)
    source = open_source(str(tmp_path / "both.csv"), label="y", key="id", ignore="t", batch_size=100)
    report = run(model.clone(), source, tmp_path / "o.jsonl", by_class=by_class)
    found = json_lines(tmp_path / "o.jsonl")
    own = hasattr(model, "predict_set_one")
    twin = model.clone() if own else Around(model.clone())
    source = open_source(str(tmp_path / "both.csv"), label="y", key="id", ignore="t")
    hits = []
    for batch in source:
        for x, y, row in zip(batch.rows(), batch.labels, found[len(hits) :], strict=False):
            assert set(row["set"] or ()) == twin.predict_set_one(x, 0.8, by_class)
            hits.append(y in (row["set"] or ()))
            twin.learn_one(x, y)
    figures = summary(report)["probabilities"]
    assert figures["coverage"] == pytest.approx(np.mean(hits[1:]), abs=1e-9)
    assert figures["size"] == pytest.approx(np.mean([len(row["set"]) for row in found[1:]]), abs=1e-9)
    assert abs(figures["coverage"] - 0.8) < 0.1
    assert "mean set size" in text(report)


@pytest.mark.slow
def test_late_labels_by_key_in_python(tmp_path):
    """Metrics use the sets issued for the events; thresholds adapt when joined."""
    write(tmp_path, 450)
    figures = summary(run(CPMClassifier(), late(tmp_path), tmp_path / "o.jsonl"))["probabilities"]
    found = json_lines(tmp_path / "o.jsonl")
    truth = [line.split(",")[-1] for line in (tmp_path / "both.csv").read_text().splitlines()[1:]]
    judged = [(row["set"], y) for row, y in zip(found, truth, strict=True) if row["set"]]
    assert figures["coverage"] == pytest.approx(np.mean([y in labels for labels, y in judged]), abs=1e-9)
    twin, batch = DelayedClassifier(CPMClassifier()), next(iter(late(tmp_path)))
    before = list(batch.late.before)
    for j, (x, key, time) in enumerate(zip(batch.rows(), batch.keys, batch.times, strict=True)):
        while before and before[0] <= j:
            _learn(twin, batch.late, len(batch.late) - len(before))
            before.pop(0)
        assert twin.predict_set_one(x, 0.8, key=key, time=time / 1000.0) == set(found[j]["set"] or ())
    assert len(batch) == 256


def _learn(model: DelayedClassifier, late: Any, i: int) -> None:
    model.learn_one(late.keys[i], late.labels[i], time=late.times[i] / 1000.0)


def test_sets_from_the_command_line(streamsvm, refused, tmp_path):
    write_stream(tmp_path / "in.csv", 300)
    asked = ("run", "in.csv", "--label", "y", "--model", "cpm", "--out", "o.csv")
    streamsvm(*asked, "--set", "coverage=0.9", "--set", "coverage-by-class=true", "--summary", "s.json")
    assert '"[""UP"",""DOWN""]"' in (tmp_path / "o.csv").read_text() or '"[""UP""]"' in (tmp_path / "o.csv").read_text()
    assert 0.5 < json.loads((tmp_path / "s.json").read_text())["probabilities"]["coverage"] <= 1.0
    assert "between 0 and 1" in refused(*asked, "--set", "coverage=90")
    assert "--set coverage-by-class needs --set coverage" in refused(*asked, "--set", "coverage-by-class=true")
