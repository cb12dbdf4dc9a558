from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import dummy, metrics
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score, precision_recall_fscore_support

from streamsvm.run.counts import Curve
from streamsvm.run.metrics import CURVE_LINES, Metrics
from tests.run.conftest import restored

LABELS = ["a", "b", 3, (1, "x"), 2.5]


def stream(seed: int, n: int, n_classes: int = 4) -> tuple[list[object], np.ndarray, list[object]]:
    """Drifting labels with gaps, and predictions that are right half of the time."""
    rng = np.random.default_rng(seed)
    classes = [*LABELS, *range(100, 100 + n_classes)][:n_classes]
    truth = (rng.integers(0, n_classes, n) * rng.integers(0, 2, n) + np.arange(n) // (n // 3 + 1)) % n_classes
    codes = np.where(rng.random(n) < 0.5, truth, rng.integers(0, n_classes, n))
    codes[:2] = -1
    labels = [None if gap else classes[t] for t, gap in zip(truth, rng.random(n) < 0.1, strict=True)]
    return labels, codes, classes


def outputs(n: int, n_classes: int = 4) -> dict[str, np.ndarray]:
    """Scores, probabilities, sets and costs; one class is unknown at first."""
    proba = np.random.default_rng(n).dirichlet(np.ones(n_classes), n)
    proba[: n // 4, 2] = 0.0
    return {"scores": proba.max(axis=1), "proba": proba, "members": proba > 0.1, "costs": proba[:, 0]}


def feed(
    measured: Metrics, labels: list[object], codes: np.ndarray, classes: list[object], cuts: list[int], **more: Any
) -> Metrics:
    edges = [0, *sorted(cuts), len(labels)]
    for a, b in pairwise(edges):
        measured.judge(labels[a:b], codes[a:b], classes, **{name: values[a:b] for name, values in more.items()})
    return measured


def same(a: Metrics, b: Metrics) -> bool:
    (head_a, arrays_a), (head_b, arrays_b) = a.state(), b.state()
    equal = all(arrays_a[name].tobytes() == arrays_b[name].tobytes() for name in arrays_a | arrays_b)
    return head_a == head_b and equal


def judged(labels: list[object], codes: np.ndarray, classes: list[object]) -> tuple[list[str], list[str]]:
    pairs = [(repr(y), repr(classes[c])) for y, c in zip(labels, codes, strict=True) if y is not None and c >= 0]
    return [y for y, _ in pairs], [p for _, p in pairs]


@pytest.mark.filterwarnings("ignore:A single label")
@pytest.mark.parametrize("n_classes", [1, 2, 5, 60])
def test_scores_are_those_of_sklearn_and_river(n_classes):
    labels, codes, classes = stream(1, 3000, n_classes)
    measured = feed(Metrics(), labels, codes, classes, [100, 1000, 1001])
    scores = measured.scores()
    y, predicted = judged(labels, codes, classes)
    assert measured.accuracy == pytest.approx(np.mean(np.array(y) == np.array(predicted)))
    assert scores.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, predicted))
    if n_classes > 1:
        assert scores.kappa == pytest.approx(cohen_kappa_score(y, predicted))
    names = [repr(row.label) for row in scores.classes]
    table = precision_recall_fscore_support(y, predicted, labels=names, zero_division=0)
    got = [(row.precision, row.recall, row.f1, row.events) for row in scores.classes]
    np.testing.assert_allclose(np.array(got).T, table)
    online = metrics.CohenKappa()
    for pair in zip(y, predicted, strict=True):
        online.update(*pair)
    assert scores.kappa == pytest.approx(online.get())


@pytest.mark.parametrize("seed", range(2))
def test_baselines_are_rivers_dummies(seed):
    labels, codes, classes = stream(seed, 2000)
    measured = feed(Metrics(), labels, codes, classes, [7, 8, 900])
    no_change = dummy.NoChangeClassifier()
    hits = {"no_change": 0, "majority": 0}
    seen: dict[object, int] = {}
    leader = None
    for y, code in zip(labels, codes, strict=True):
        if y is None:
            continue
        if code >= 0:
            hits["no_change"] += no_change.predict_one({}) == y
            hits["majority"] += leader == y
        no_change.learn_one({}, y)
        seen[y] = seen.get(y, 0) + 1
        if leader is None or seen[y] > seen[leader]:
            leader = y
    for name, count in hits.items():
        assert measured.baseline(name) == count / measured.judged


@given(st.integers(0, 1000), st.lists(st.integers(0, 1500), max_size=8), st.integers(1, 1200))
@settings(max_examples=15)
def test_cuts_and_resumption_change_nothing(seed, cuts, window):
    (labels, codes, classes), more = stream(seed, 1500), outputs(1500)
    whole = feed(Metrics(window), labels, codes, classes, [], **more)
    assert same(feed(Metrics(window), labels, codes, classes, cuts, **more), whole)
    first, rest = ({name: values[part] for name, values in more.items()} for part in (slice(999), slice(999, None)))
    half = feed(Metrics(window), labels[:999], codes[:999], classes, [c for c in cuts if c < 999], **first)
    assert same(feed(restored(Metrics(), half.state()), labels[999:], codes[999:], classes, [], **rest), whole)
    y, predicted = judged(labels, codes, classes)
    right = [a == b for a, b in zip(y, predicted, strict=True)]
    assert whole.recent_accuracy == pytest.approx(np.mean(right[-window:]))
    assert whole.measures.n_recent == min(window, whole.judged)
    assert whole.accuracy == pytest.approx(np.mean(right))


def test_recent_accuracies_are_of_the_same_events():
    measured = Metrics(window=3)
    measured.judge(["a", "a", "a", "b", "b", "b"], np.array([0, 0, 0, 0, 1, 1]), ["a", "b"])
    assert measured.measures.recent_hits == pytest.approx({"model": 2 / 3, "no_change": 2 / 3, "majority": 0.0})


def test_classes_that_arrive_late():
    measured = Metrics()
    measured.judge(["a", "b"], np.array([-1, 0]), ["a", "b"])
    measured.judge(["c", "c"], np.array([1, 2]), ["a", "b", "c"])
    scores = {each.label: (each.events, each.predicted, each.recall) for each in measured.scores().classes}
    assert scores == {"a": (0, 1, 0.0), "b": (1, 1, 0.0), "c": (2, 1, 0.5)}
    assert (measured.judged, measured.unanswered) == (3, 1)


def test_nothing_judged():
    measured = Metrics()
    measured.judge([None, None], np.array([-1, -1]), [])
    assert measured.judged == measured.unanswered == 0
    assert np.isnan(measured.accuracy)
    assert np.isnan(measured.recent_accuracy)
    assert measured.scores().classes == []
    assert same(restored(Metrics(), measured.state()), measured)


def test_curve_halves_its_resolution_instead_of_growing():
    rng = np.random.default_rng(3)
    hits = rng.random((50_000, len(CURVE_LINES))) < [0.9, 0.5, 0.1]
    curve = Curve(len(CURVE_LINES))
    for part in np.array_split(hits, 77):
        curve.add(part)
    assert curve.width == 64
    assert curve.totals().tolist() == hits.sum(axis=0).tolist()
    ends, shares = curve.windowed(1000)
    span = round(1000 / 64) * 64
    for end, share in list(zip(ends, shares, strict=True))[::50]:
        np.testing.assert_allclose(share, hits[end - span : end].mean(axis=0))


def test_classes_that_came_equally_often_are_in_the_order_of_their_names():
    """The order of arrival does not count, because it depends on batches."""
    proba = np.array([[0.6, 0.4], [0.6, 0.4]])
    for labels in (["b", "a"], ["a", "b"]):
        found = Metrics()
        found.judge(labels, np.array([0, 1]), labels, scores=np.array([0.6, 0.6]), proba=proba)
        assert [row.label for row in found.scores().classes] == ["a", "b"]
        assert found.ranked()[0][0] == "a"
