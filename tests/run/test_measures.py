"""Probability metrics equal scikit-learn's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sklearn

from streamsvm.run.counts import RECENT, Ranking
from streamsvm.run.measures import UNIT, Measures, Reliability
from streamsvm.run.metrics import Metrics


def predictions(n: int, n_classes: int, sharpness: float = 1.0, rare: float = 0.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(n_classes)
    logits = rng.normal(size=(n, n_classes)) * 2.0
    logits[:, 0] += rare
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = (proba.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    said = np.exp(sharpness * logits)
    return truth, said / said.sum(axis=1, keepdims=True)


def measured(truth: Any, proba: Any, cuts: tuple[int, ...] = ()) -> Measures:
    measures = Measures(window=200)
    guess = proba.argmax(axis=1)
    for part in np.split(np.arange(len(truth)), cuts):
        scores = proba[part, guess[part]]
        measures.add(
            truth[part], guess[part], scores, proba=proba[part], members=proba[part] > 0.1, costs=proba[part, 0]
        )
    return measures


@pytest.mark.parametrize("n_classes", [2, 4])
def test_all_are_those_of_scikit_learn(n_classes):
    truth, proba = predictions(5_000, n_classes, sharpness=2.0)
    measures = measured(truth, proba)
    one_hot = np.eye(n_classes)[truth]
    assert measures.overall["log_loss"] == pytest.approx(sklearn.log_loss(truth, proba), abs=1e-6)
    assert measures.overall["brier"] == pytest.approx(((proba - one_hot) ** 2).sum(axis=1).mean(), abs=1e-6)
    assert measures.recent["log_loss"] == pytest.approx(sklearn.log_loss(truth[-200:], proba[-200:]), abs=1e-6)
    for c in range(n_classes):
        area = sklearn.roc_auc_score(truth == c, proba[:, c])
        assert measures.ranking.roc_auc(c) == pytest.approx(area, abs=0.002)
        precision = sklearn.average_precision_score(truth == c, proba[:, c])
        assert measures.ranking.average_precision(c) == pytest.approx(precision, abs=0.005)


def test_recall_at_a_share_of_alarms_for_a_rare_class():
    truth, proba = predictions(50_000, 2, rare=7.0)
    assert 0.001 < truth.mean() < 0.02
    top = np.argsort(-proba[:, 1], kind="stable")
    for share in (0.01, 0.05):
        expected = truth[top[: round(share * len(top))]].sum() / truth.sum()
        assert measured(truth, proba).ranking.recall_at(1, share) == pytest.approx(expected, abs=0.01)


def test_the_calibration_error_is_that_of_twenty_bins():
    truth, proba = predictions(5_000, 3, sharpness=2.0)
    scores, right = proba.max(axis=1), proba.argmax(axis=1) == truth
    bins = np.minimum((scores * 20).astype(int), 19)
    expected = sum(abs(right[bins == b].sum() - scores[bins == b].sum()) for b in range(20)) / 5_000
    measures = measured(truth, proba)
    assert measures.reliability.error == pytest.approx(expected, abs=1e-6)
    assert expected > 0.05
    assert sum(n for _, _, n in measures.reliability.points()) == 5_000
    assert math.isnan(Reliability().error)


def test_ranking_over_time_notices_when_a_class_is_no_longer_found():
    truth, proba = predictions(20_000, 2)
    proba[10_000:] = proba[10_000:, ::-1]
    ranking = measured(truth, proba).ranking
    assert measured(truth[:10_000], proba[:10_000]).ranking.roc_auc(1, RECENT) > 0.8
    assert 0.4 < ranking.roc_auc(1) < 0.6
    assert ranking.figures([1], RECENT)["roc_auc"] < 0.2


def test_more_classes_than_are_ranked_are_not():
    truth, proba = predictions(500, 9)
    ranking = measured(truth, proba, (100, 130)).ranking
    assert math.isnan(ranking.figures([0])["roc_auc"])
    again = Ranking()
    again.restore(ranking.state())
    assert again.n_classes == 9


def test_events_without_probabilities_count_only_for_known_measures():
    measures = Measures()
    measures.add(np.array([0, 1]), np.array([0, 0]), np.array([np.nan, 0.8]))
    assert math.isnan(measures.overall["log_loss"])
    assert measures.reliability.error == pytest.approx(0.8)
    proba = np.array([[np.nan, np.nan], [0.5, 0.5]])
    measures.add(np.array([0, 1]), np.array([0, 1]), np.full(2, np.nan), proba=proba)
    assert measures.overall["log_loss"] == pytest.approx(math.log(2.0), abs=1 / UNIT)


def test_probabilities_go_by_the_labels_whatever_numbers_a_model_gives_them():
    metrics = Metrics()
    metrics.judge(["c"], np.array([-1]), [])
    more = {"scores": np.full(3, 0.7), "proba": np.array([[0.7, 0.2, 0.1]] * 3)}
    metrics.judge(["a", "b", None], np.array([0, 0, 1]), ["a", "b", "c"], **more)
    assert metrics.measures.overall["log_loss"] == pytest.approx(-math.log(0.7 * 0.2) / 2.0, abs=1e-6)
    assert [label for label, _ in metrics.ranked()] == ["a", "b", "c"]
