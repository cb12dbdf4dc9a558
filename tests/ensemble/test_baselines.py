"""No stream is below the trivial baselines: the last label, the most frequent class, and their best mixture."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streamsvm import StreamSVMClassifier
from tests.choices import each_choice

N, FIRST = 8_000, 2_000


def persistent(rate, n_classes, signal, seed=1):
    """Return rows and labels that change at a rate; the rows say more about the label the larger `signal` is."""
    rng = np.random.default_rng(seed)
    switches, steps = rng.random(N) < rate, rng.integers(1, n_classes, size=N)
    y = np.cumsum(switches * steps) % n_classes
    return rng.normal(size=(n_classes, 4))[y] * signal + rng.normal(size=(N, 4)), y


def mixture_loss(y, n_classes):
    """Return the log loss of the best mixture of the last label, class frequencies and equal probabilities."""
    counts, rows = np.full(n_classes, 1.0 / n_classes), []
    for last, label in pairwise(y):
        counts *= 0.999
        counts[last] += 1.0
        rows.append((last == label, counts[label] / counts.sum(), 1.0 / n_classes))
    rows, weights = np.array(rows, float)[FIRST - 1 :], np.full(3, 1.0 / 3.0)
    for _ in range(200):
        shares = rows * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return -np.log(rows @ weights).mean()


@each_choice(("signal", [0.0, 1.0]), ("n_classes", [2, 20]), ("rate", [0.001, 0.02, 0.3]))
def test_persistent_labels_are_predicted_no_worse_than_by_the_baselines(rate, n_classes, signal):
    X, y = persistent(rate, n_classes, signal)
    model = StreamSVMClassifier(effort="low")
    predicted, proba = model.test_then_train(X, y, proba=True)
    codes = np.array([model.classes_.index(label) for label in y.tolist()])
    assert np.mean(predicted[FIRST:] == y[FIRST:]) >= np.mean(y[FIRST:] == y[FIRST - 1 : -1]) - 0.001
    of_label = proba[np.arange(N), codes]  # 0 for the first event of a class
    loss = -np.log(np.maximum(of_label[FIRST:], 1.0 / n_classes * (of_label[FIRST:] == 0.0))).mean()
    assert loss < mixture_loss(y, n_classes) + 0.002


def test_a_season_in_the_labels_is_predicted():
    season = np.random.default_rng(0).integers(3, size=168)
    y = np.where(np.random.default_rng(1).random(N) < 0.1, 1, season[np.arange(N) % 168])
    X = np.random.default_rng(2).normal(size=(N, 2))
    predicted = StreamSVMClassifier(effort="low").test_then_train(X, y)
    assert np.mean(predicted[FIRST:] == y[FIRST:]) > np.mean(y[FIRST:] == y[FIRST - 168 : -168]) - 0.001
