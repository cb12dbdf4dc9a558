"""No stream is below trivial baselines: last label, majority, best mixture."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import DelayedClassifier, StreamSVMClassifier
from tests.choices import each_choice
from tests.learners import dicts


def persistent(n, rate, n_classes, signal):
    """Return rows and labels that change at a rate; `signal` is their separation."""
    rng = np.random.default_rng(1)
    switches, steps = rng.random(n) < rate, rng.integers(1, n_classes, size=n)
    y = np.cumsum(switches * steps) % n_classes
    return rng.normal(size=(n_classes, 4))[y] * signal + rng.normal(size=(n, 4)), y


def mixture_loss(y, n_classes, first, delay=0):
    """Return the log loss of the best mixture of last known label and frequencies.

    Equal probabilities are its third part.
    """
    counts, rows = np.full(n_classes, 1.0 / n_classes), []
    for last, label in zip(y, y[delay + 1 :], strict=False):
        counts *= 0.999
        counts[last] += 1.0
        rows.append((last == label, counts[label] / counts.sum(), 1.0 / n_classes))
    rows, weights = np.array(rows, float)[first - delay - 1 :], np.full(3, 1.0 / 3.0)
    for _ in range(200):
        shares = rows * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return -np.log(rows @ weights).mean()


@each_choice(("signal", [0.0, 1.0]), ("n_classes", [2, 20]), ("rate", [0.001, 0.02, 0.3]))
def test_persistent_labels_are_predicted_no_worse_than_by_the_baselines(rate, n_classes, signal):
    n, first = 8_000, 2_000
    X, y = persistent(n, rate, n_classes, signal)
    model = StreamSVMClassifier(effort="low")
    predicted, proba = model.test_then_train(X, y, proba=True)
    codes = np.array([model.classes_.index(label) for label in y.tolist()])
    assert np.mean(predicted[first:] == y[first:]) >= np.mean(y[first:] == y[first - 1 : -1]) - 0.001
    of_label = proba[np.arange(n), codes]  # 0 for the first event of a class
    loss = -np.log(np.maximum(of_label[first:], 1.0 / n_classes * (of_label[first:] == 0.0))).mean()
    assert loss < mixture_loss(y, n_classes, first) + 0.002


@pytest.mark.parametrize("rate", [0.001, 0.3])
def test_late_labels_that_persist_are_predicted_about_as_well_as_by_the_best_baselines(rate):
    n, first, delay, n_classes = 4_000, 1_500, 100, 4
    X, y = persistent(n, rate, n_classes, 0.0)  # the features say nothing
    model, rows, losses, named = DelayedClassifier(StreamSVMClassifier(effort="low")), dicts(X), [], []
    for i, row in enumerate(rows):
        proba = model.predict_proba_one(row, key=i)
        losses.append(-np.log(proba.get(int(y[i]), 1.0 / n_classes)))
        named.append(max(proba, key=proba.get, default=0))
        if i >= delay:
            model.learn_one(rows[i - delay], int(y[i - delay]), key=i - delay)
    assert np.mean(losses[first:]) < mixture_loss(y, n_classes, first, delay) + 0.1
    by_last = np.mean(y[first:] == y[first - delay - 1 : -delay - 1])
    assert np.mean(named[first:] == y[first:]) > by_last - 0.03
