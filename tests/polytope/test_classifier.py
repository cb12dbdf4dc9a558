"""CPMClassifier as a River classifier."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn  # noqa: F401  (without it and pandas, River leaves checks out silently)
from river import compose, datasets, drift, evaluate, metrics, multiclass, preprocessing

import streamsvm
from streamsvm import CPMClassifier
from tests.learners import arrays_of, check_with_river

# River's checks ---------------------------------------------------------------------------------------------------


def test_river():
    check_with_river(CPMClassifier(), all_data=True)


# Labels, weights, bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_classes", "d", "apart", "noise", "least"),
    [(100, 20, 3.0, 1.0, 0.85), (10, 3, 2.0, 0.3, 0.8)],  # in the second, 0.68 with each class against all others
    ids=["many", "surrounded by others"],
)
def test_classes_do_not_erase_each_other(n_classes, d, apart, noise, least):
    rng = np.random.default_rng(0)
    centres, y = apart * rng.normal(size=(n_classes, d)), rng.permutation(np.arange(4_000) % n_classes)
    predicted = CPMClassifier().test_then_train(centres[y] + noise * rng.normal(size=(4_000, d)), y)
    assert np.mean(predicted[2_000:] == y[2_000:]) > least


def test_predicting_before_learning():
    model = CPMClassifier()
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_many(np.eye(2)).tolist() == [None, None]
    assert model.predict_proba_many(np.eye(2)).shape == (2, 0)


def test_labels_of_any_hashable_type_keep_their_type_on_disk(tmp_path):
    labels = [True, 2, 3.5, "4", ("a", 5, None), ("a", 5.5)]
    model = CPMClassifier()
    for i, label in enumerate(labels * 3):
        model.learn_one({"x": float(i % 7)}, label)
    model.save(tmp_path / "m")
    loaded = streamsvm.load(tmp_path / "m")
    assert [(type(label), label) for label in loaded.classes_] == [(type(label), label) for label in labels]


def test_probabilities_are_calibrated_as_they_run_and_predictions_stay():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8_000, 3))
    y = X[:, 0] + 0.8 * rng.normal(size=len(X)) > 3.0  # 1 in 100
    model = CPMClassifier()
    _, proba = model.test_then_train(X, y, proba=True)
    p = np.clip(proba[4_000:, model.classes_.index(True)], 1e-6, 1.0 - 1e-6)
    own = np.where(y[4_000:], p, 1.0 - p)
    beta = arrays_of(model)["inverse_temperature"]
    odds = np.log(p / (1.0 - p)) / beta  # at a temperature of 1
    plain = 1.0 / (1.0 + np.exp(np.where(y[4_000:], -odds, odds)))
    assert -np.log(own).mean() < 0.9 * -np.log(plain).mean()
    assert beta > 1.2


def test_first_weights_of_many_classes_do_not_spoil_probabilities_for_good():
    """Initial weights are uninformative; the inverse temperature then decreases."""
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(12_000, 8)), rng.normal(size=(8, 100))
    y = (X @ W + 0.3 * rng.gumbel(size=(len(X), 100))).argmax(axis=1)
    model = CPMClassifier()
    model.learn_many(X[:8_000], y[:8_000])
    _, proba = model.test_then_train(X[8_000:], y[8_000:], proba=True)
    codes = [model.classes_.index(label) for label in y[8_000:].tolist()]

    def log_loss(sharpness):
        sharp = np.maximum(proba, 1e-12) ** sharpness
        return -np.log((sharp / sharp.sum(axis=1, keepdims=True))[np.arange(4_000), codes]).mean()

    assert log_loss(1.0) < min(map(log_loss, (0.5, 2.0, 4.0))) + 0.02


# Saving -----------------------------------------------------------------------------------------------------------


# Accuracy ---------------------------------------------------------------------------------------------------------


def test_several_faces_learn_more_than_one():
    rng = np.random.default_rng(11)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    y = np.hypot(X[:, 0], X[:, 1]) < 0.7
    right = {k: CPMClassifier(n_faces=k, l2=1e-4, horizon=10**6).test_then_train(X, y.tolist()) == y for k in (1, 8)}
    assert right[1][10_000:].mean() < 0.65
    assert right[8][10_000:].mean() > 0.85


# River pipelines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "metric", "least"),
    [
        (preprocessing.StandardScaler() | CPMClassifier(scaling="none"), metrics.Accuracy(), 0.85),
        (compose.Select("age_of_domain", "https") | CPMClassifier(), metrics.Accuracy(), 0.5),
        (CPMClassifier(), metrics.ROCAUC(), 0.9),
        (drift.DriftRetrainingClassifier(CPMClassifier(), drift.binary.DDM()), metrics.Accuracy(), 0.85),
        (multiclass.OneVsOneClassifier(CPMClassifier()), metrics.Accuracy(), 0.85),
    ],
    ids=["scaled", "selected", "probabilities", "drift detector", "one against one"],
)
def test_in_models_of_river(model, metric, least):
    assert evaluate.progressive_val_score(datasets.Phishing(), model, metric).get() > least
