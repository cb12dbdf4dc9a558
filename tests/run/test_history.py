"""History of relevance and leaders, in the report and in the picture."""

from __future__ import annotations

import copy
import json
import re
import time
import timeit
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from river.naive_bayes import GaussianNB

from connectors import open_source
from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.decide.changes import ModelSummary, Spread
from streamsvm.run.history import History, Insight, Sample
from streamsvm.run.loop import Report
from streamsvm.run.measures import COLUMNS
from streamsvm.run.metrics import Metrics
from streamsvm.run.plot import is_picture, plot
from streamsvm.run.report_text import summary, text
from tests.run.conftest import restored, run


class Told:
    """A model with given relevance, leader and weight of label autocorrelation."""

    def __init__(self, relevance: dict[Any, float], leader: str = "", weight: float = 0.0) -> None:
        self.relevance, self._leader, self._weight = relevance, leader, weight

    def leaders(self) -> list[dict[str, Any]]:
        return [{"member": self._leader, "head": "h", "accuracy": 0.5, "weight": 1.0}] if self._leader else []

    def autocorrelation_effect(self) -> dict[str, float]:
        return {"weight": self._weight}


def turning(n: int, every: int) -> History:
    """History of n events, sampled after each `every`, with a change halfway.

    The relevant feature and the leader change.
    """
    history = History()
    for event in range(every, n + 1, every):
        offer(history, event, n)
    return history


def offer(history: History, event: int, n: int) -> None:
    early = event <= n / 2
    told = {"a": 4.0 if early else 0.5, "b": 0.5 if early else 4.0, **{f"noise{i}": 0.1 for i in range(100)}}
    history.sample(Told(told, "first" if early else "second"), event, event - 1)


@pytest.mark.parametrize(("every", "n"), [(50, 70_000), (1024, 700_000)])
def test_samples_are_few_and_span_the_stream(every, n):
    history = turning(n, every)
    assert 100 <= len(history.at) <= 256
    gaps = [b - a for a, b in pairwise(history.at)]
    assert max(gaps) <= 2 * min(gaps)
    assert history.at[0] <= 2 * max(gaps)
    assert history.at[-1] >= n - 2 * max(gaps)


def test_formerly_relevant_features_are_chosen_and_shown():
    history = turning(20_000, 100)
    names, values = history.relevance(2)
    assert names == ["b", "a"]  # as in the last sample
    half = len(values) // 2
    assert (values[: half - 1, 1] == 4.0).all()
    assert (values[half + 1 :, 1] == 0.5).all()
    members, led = history.leaders()
    assert set(members) == {"first", "second"}
    assert [members[code] for code in (led[0], led[-1])] == ["first", "second"]


def test_a_sample_keeps_only_what_matters():
    history = History()
    history.sample(Told({f"f{i}": float(i) for i in range(40_000)}), 1000, 1000)
    assert history.state()[1]["relevances"][:, 2].tolist() == [float(i) for i in range(39_999, 39_935, -1)]


def test_the_state_of_many_samples_takes_little_time():
    """A checkpoint makes it while events wait."""
    values = {f"feature {j}": float(j) for j in range(64)}
    spreads = {name: Spread(1.0, value, value) for name, value in values.items()}
    history = History()
    history.samples = [Sample(i, ModelSummary(i, spreads, values, {}, "", 0.0)) for i in range(256)]

    def seconds(call: Callable[[], Any]) -> float:
        return min(timeit.repeat(call, timer=time.process_time, number=1, repeat=3))

    copies = seconds(lambda: [copy.copy(one) for sample in history.samples for one in sample.model.features.values()])
    assert seconds(history.state) < 0.5 * copies
    assert history.state()[1]["spreads"][-1].tolist() == [255, 63, 1.0, 63.0, 63.0, 0.0]


def test_models_that_tell_nothing():
    for model in (GaussianNB(), CPMClassifier(scaling="none"), BSGDClassifier(metric="fixed", scaling="none")):
        model.learn_one({"a": 1.0, "b": 2.0}, True)
        assert Insight.of(model) == Insight({}, [], None)
        history = History()
        history.sample(model, 1000, 1000)
        assert history.at == []
        assert history.relevance(8)[0] == history.leaders()[0] == []
        assert restored(History(), history.state()).at == []


def demo(model: Any, n: int, **options: Any) -> Report:
    return run(model, open_source("synthetic:demo"), max_events=n, **options)


def test_samples_of_an_explained_live_stream_do_not_depend_on_its_batches():
    def sampled(size):
        source = open_source(f"synthetic:demo?batch_size={size}")
        source.is_live = True
        return run(BSGDClassifier(budget=5), source, max_events=260, explain=1).history.at

    assert sampled(100) == sampled(130) != []


@pytest.fixture(scope="module")
def blend() -> Report:
    return demo(StreamSVMClassifier(effort="low", budget=20), 1500)


def test_the_report_names_leaders_and_relevant_features(blend):
    report, model = blend, StreamSVMClassifier(effort="low", budget=20)
    for batch in islice(open_source("synthetic:demo?batch_size=500"), 3):
        model.run_batch(batch.rows(), batch.labels)
    assert report.insight.leaders == model.leaders()
    assert report.insight.relevance == model.relevance
    figures = json.loads(json.dumps(summary(report)))
    assert figures["leaders"] == model.leaders()
    assert [row["feature"] for row in figures["relevance"]] == list(model.relevance)
    lines, first = text(report).splitlines(), next(iter(model.relevance))
    assert any(line.startswith(f"leading members: {model.leaders()[0]['member']} (") for line in lines)
    assert any(line.startswith(f"most relevant features: {first}") for line in lines)
    plain = text(demo(CPMClassifier(), 500))
    assert "leading" not in plain
    assert "matter" not in plain


def test_a_picture_of_any_name_says_over_how_many_events_accuracy_is(tmp_path):
    report = demo(CPMClassifier(), 200)
    report.source = f"no\udcffutf, two\nlines, 日本, {'x' * 300}.csv"
    hits = np.ones((200_000, len(COLUMNS)), bool)
    report.metrics.measures.curve.add(hits)
    plot(report, tmp_path / "p.pdf")
    assert is_picture(str(tmp_path / "p.pdf"))
    plot(report, tmp_path / "p.svg")
    assert report.metrics.measures.curve.width == 256
    drawn = (tmp_path / "p.svg").read_text()
    assert "<!-- accuracy over the last 1,024 -->" in drawn
    assert "<!-- Prequential accuracy" in drawn
    assert "<!-- Feature relevance" not in drawn  # this model has none


def test_a_baseline_that_would_leave_half_of_the_axis_empty_is_below_it(tmp_path):
    rng = np.random.default_rng(0)
    drawn = {}
    for name, noise in (("noisy", 0.6), ("clear", 0.0)):
        path = tmp_path / f"{name}.csv"
        y = rng.integers(0, 2, 2_000)
        x = np.where(rng.random(2_000) < noise, 1 - y, y)
        path.write_text("a,label\n" + "".join(f"{a},{label}\n" for a, label in zip(x, y, strict=True)))
        plot(run(CPMClassifier(), open_source(str(path), label="label")), tmp_path / f"{name}.svg")
        drawn[name] = (tmp_path / f"{name}.svg").read_text().count("(below) -->")
    assert drawn == {"noisy": 0, "clear": 2}


# Special streams -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clockwork(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A run with autocorrelated labels, uninformative features and odd names."""
    rng = np.random.default_rng(3)
    lines = (f"{x:.4f},{'app' if x > 0 else 'web'},{i % 6}" for i, x in enumerate(rng.normal(size=2000)))
    path = tmp_path_factory.mktemp("clockwork") / "$a$_{.csv"
    path.write_text("\n".join(["_x$y$,device,label", *lines]) + "\n")
    decided = {"coverage": 0.8, "abstain": 0.5, "alarms": "1=0.1"}
    return run(StreamSVMClassifier(effort="low", budget=20), open_source(str(path), label="label"), **decided)


def test_the_effect_of_label_autocorrelation_is_beside_the_leader(clockwork):
    report, model = clockwork, clockwork.learner.model
    assert report.metrics.accuracy > 0.9 > 2 * model.leaders()[0]["accuracy"]
    figures = json.loads(json.dumps(summary(report)))
    assert figures["autocorrelation_weight"] == model.autocorrelation_weight > 0.5
    assert figures["autocorrelation_log_loss"]["with"] < 0.1 < 1.0 < figures["autocorrelation_log_loss"]["without"]
    lines = text(report).splitlines()
    (leading,) = (line for line in lines if line.startswith("leading members"))
    assert leading.count(" by itself") == leading.count(" accuracy ")
    (used,) = (line for line in lines if line.startswith("label autocorrelation"))
    assert f"weight {model.autocorrelation_weight:.2f}" in used


def test_an_uninformative_autocorrelation_is_reported_as_not_used(blend):
    assert "label autocorrelation: not used" in text(blend)
    without = demo(StreamSVMClassifier(effort="low", budget=20, label_autocorrelation=False), 500)
    assert "autocorrelation" not in text(without)
    assert summary(without)["autocorrelation_weight"] is None


def test_names_are_shown_as_they_are_and_all_panels_are_drawn(tmp_path, clockwork):
    assert "device = web " in text(clockwork)
    assert {row["feature"] for row in summary(clockwork)["relevance"]} == {"_x$y$", "device = web", "device = app"}
    plot(clockwork, tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    names = ("_x$y$", "device = web", "device = app", "Prequential accuracy on $a$_{.csv", "Feature relevance")
    for name in (*names, "Log loss and Brier score", "Prediction sets", "Cost", "Alarms"):
        assert f"<!-- {name} -->" in drawn


def test_drift_is_a_line_and_a_mark(tmp_path):
    report = run(CPMClassifier(), open_source("synthetic:stagger?n=3600&drift=3000"))
    (drop,) = report.metrics.drops.last
    assert 3000 < drop.judged < 3500
    assert summary(report)["accuracy_drops"] == [{"judged": drop.judged, "before": drop.before, "after": drop.after}]
    assert f"drift: significant drop of accuracy, detected after {drop.judged:,} (" in text(report)
    plot(report, tmp_path / "p.svg")
    assert "<!-- accuracy fell -->" in (tmp_path / "p.svg").read_text()


def numbers_on(axis: str, drawn: str) -> list[str]:
    """Return the numbers on the axes of a picture."""
    return re.findall(rf'id="text_\d+">\s*<!-- ([\d.,]+{axis}) -->', drawn)


def test_narrow_ranges_have_numbers_that_differ(tmp_path):
    report = run(GaussianNB(), open_source("synthetic:sea?n=300"), max_events=300)
    report.metrics = Metrics()
    rng = np.random.default_rng(1)
    labels = (rng.random(20_000) < 0.003).tolist()
    report.metrics.judge(labels, np.zeros(20_000, np.int64), [False])
    history = report.history
    for event in range(1000, 20_001, 1000):
        history.sample(Told({"a": 1.02 + event / 1e6, "b": 1.01}), event, event)
    plot(report, tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    percents = numbers_on("%", drawn)
    relevances = [number for number in numbers_on("", drawn) if number.startswith("1.0")]
    assert len(set(percents)) == len(percents) >= 4
    assert len(set(relevances)) == len(relevances) >= 3


def test_changes_are_described_also_after_resuming():
    model, history = Told({"a": 1.0, "b": 0.1}, "linear"), History()
    history.sample(model, 250, 250, ["up", "down"], [200, 50])
    assert history.changes(0) == []
    history.sample(model, 500, 500, ["up", "down"], [400, 100])
    model = Told({"a": 0.1, "b": 1.0, "c": 0.01}, "ranks", 0.7)
    history.sample(model, 750, 750, ["up", "down", "odd"], [420, 290, 40])
    history = restored(History(), history.state())
    assert history.changes(500) == [
        "a matters less: 9% of the relevance, was 91%",
        "b matters more: 90% of the relevance, was 9%",
        "new classes: odd",
        "class up is 8.00% of events since, was 80.00%",
        "class down is 76.00% of events since, was 20.00%",
        "ranks is the leading member, was linear",
        "label autocorrelation is used",
    ]
    assert history.changes(0) == history.changes(250) != []


def test_changed_values_are_reported_also_after_resuming():
    rng, history, model = np.random.default_rng(0), History(), CPMClassifier()
    for i in range(4):
        X = rng.normal(size=(250, 2)) + (np.array([0.0, 3.0]) if i >= 2 else 0.0)
        model.learn_many([{"steady": a, "level": b, "site": "north" if i >= 2 else "south"} for a, b in X], X[:, 0] > 0)
        history.sample(model, 250 * (i + 1), 250 * (i + 1))
        history = restored(History(), history.state())
    told = history.changes(500)
    assert "site = north is in 100% of events since, was in 0%" in told
    assert any(change.startswith("level is higher: ") for change in told)
    assert not any(change.startswith("steady") for change in told)
