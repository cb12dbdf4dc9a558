"""Naive Bayes as a member, compared with numpy, and where it gains."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import DelayedClassifier, StreamSVMClassifier
from streamsvm.ensemble.naive_bayes import DECAY, LATE_DECAY, LEAST_TERM, LEAST_VARIANCE, WORD_DECAY
from tests.learners import arrays_of

OTHERS = ("standard", "linear")


def prototypes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy binary copies of class prototypes that change every 250 events."""
    rng = np.random.default_rng(0)
    y, bits = rng.integers(10, size=n), rng.integers(2, size=(n // 250 + 1, 10, 16))
    X = bits[np.arange(n) // 250, y] ^ (rng.random((n, 16)) < 0.1)
    return np.hstack([X, rng.integers(2, size=(n, 8))]).astype(float), y


@pytest.mark.parametrize("n_classes", [2, 5])
def test_statistics_and_scores_equal_those_of_plain_numpy(n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=300)
    X = rng.normal(size=(300, 4)) + 2.0 * rng.normal(size=(n_classes, 4))[y]
    model = StreamSVMClassifier(members=("naive-bayes",), label_autocorrelation=False)
    counts, means, variances = np.zeros(n_classes), np.zeros((n_classes, 4)), np.ones((n_classes, 4))
    n_columns = 0  # the first rows have scaled values of 0
    for x, label in zip(X, y, strict=True):
        model.learn_one(dict(enumerate(x)), label)
        c, row = model.classes_.index(label), model._state.parts["1"].row[:4].astype(float)
        terms = -0.5 * np.log(variances) - 0.5 * (row - means) ** 2 / variances
        scores = np.log(counts + 0.5) + np.maximum(terms, LEAST_TERM)[:, :n_columns].sum(axis=1)
        n = len(np.flatnonzero(counts))
        np.testing.assert_allclose(model._state.parts["1"].scores[:n], scores[:n], rtol=1e-5, atol=1e-6)
        counts *= DECAY
        counts[c] += 1.0
        n_columns = 4 if row.any() else n_columns
        if n_columns:
            rate, step = 1.0 / (counts[c] + 1.0), row - means[c]
            means[c] += rate * step
            variances[c] = np.maximum((1.0 - rate) * (variances[c] + rate * step * step), LEAST_VARIANCE)
    state = arrays_of(model)
    np.testing.assert_allclose(state["1.counts"][:n_classes], counts)
    np.testing.assert_allclose(state["1.means"][:n_classes, :4], means)
    np.testing.assert_allclose(state["1.variances"][:n_classes, :4], variances)


@pytest.mark.parametrize(("late", "decay"), [(0, DECAY), (5, LATE_DECAY)])
def test_late_labels_are_forgotten_slowly(late, decay):
    rng = np.random.default_rng(0)
    model = DelayedClassifier(StreamSVMClassifier(members=("naive-bayes",), label_autocorrelation=False))
    for i in range(300):
        model.predict_one({"a": rng.normal()}, key=i)
        if i >= late:
            model.learn_one({}, i % 2, key=i - late)
    n = 300 - late
    assert arrays_of(model.model)["1.counts"].sum() == pytest.approx((1 - decay**n) / (1 - decay))


def test_accuracy_rises_if_independent_columns_change():
    X, y = prototypes(2_000)
    models = [StreamSVMClassifier(members=members) for members in (OTHERS, (*OTHERS, "naive-bayes"))]
    without, with_it = (np.mean(np.array(model.test_then_train(X, y)) == y) for model in models)
    assert with_it > without + 0.02


def test_weights_scale_what_is_learned():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(2, size=400)
    states = []
    for w in (np.ones(400), np.where(np.arange(400) < 300, 1.0, 1e-12), np.where(np.arange(400) < 300, 1.0, 1e100)):
        model = StreamSVMClassifier(members=("naive-bayes",), label_autocorrelation=False)
        model.learn_many(X[:300], y[:300], w=w[:300])
        model.learn_many(X[300:], y[300:], w=w[300:])
        states.append({name: arrays_of(model)[f"1.{name}"] for name in ("counts", "means", "variances")})
        if w[-1] < 1.0:
            short = StreamSVMClassifier(members=("naive-bayes",), label_autocorrelation=False)
            short.learn_many(X[:300], y[:300])
            for name, values in states[-1].items():
                np.testing.assert_allclose(values, arrays_of(short)[f"1.{name}"], atol=1e-9)
    assert states[2]["counts"][y[-1]] == pytest.approx(1.0 / (1.0 - DECAY))
    assert all(np.isfinite(values).all() for values in states[2].values())


def test_counts_of_classes_that_ended_are_0_which_processors_add_fast():
    model = StreamSVMClassifier(members=("naive-bayes",), label_autocorrelation=False)
    model.learn_many(np.random.default_rng(0).normal(size=(4_000, 2)), [2, *np.arange(3_999) % 2])
    assert arrays_of(model)["1.counts"].tolist()[0] == 0.0


def topics(n: int) -> tuple[list[dict[str, int]], np.ndarray]:
    """Return short texts of 600 words, of four topics."""
    rng = np.random.default_rng(0)
    y, weights = rng.integers(4, size=n), rng.gamma(0.6, 1.0, (4, 600))
    draws = [rng.choice(600, 12, p=weights[label] / weights[label].sum()) for label in y]
    return [{f"w{j}": 1 for j in words} for words in draws], y


def test_rows_with_few_of_many_columns_are_sets_of_words():
    X, y = topics(1_500)
    models = [StreamSVMClassifier(members=members) for members in (OTHERS, (*OTHERS, "naive-bayes"))]
    without, with_it = (np.mean(np.array(model.test_then_train(X, y)) == y) for model in models)
    assert with_it > without + 0.02


def test_new_words_in_a_batch_do_not_change_predictions():
    X, y = topics(300)
    batch, single = (StreamSVMClassifier(members=("naive-bayes",)) for _ in range(2))
    _, found = batch.test_then_train(X, y, proba=True)
    for x, label, proba in zip(X, y.tolist(), found, strict=True):
        expected = single.predict_proba_one(x)
        assert {c: p for c, p in zip(batch.classes_, proba, strict=True) if c in expected} == expected
        single.learn_one(x, label)


def test_counts_of_words_decay():
    X, y = topics(100)
    X, y = X * 160, np.tile(y, 160)
    model = StreamSVMClassifier(members=("naive-bayes",))
    model.learn_many(X, y)
    state = arrays_of(model)
    expected = (1.0 - WORD_DECAY ** len(y)) / (1.0 - WORD_DECAY)
    assert state["1.word_classes"].sum() / model._state.parts["1"].scale == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(state["1.word_sums"].sum(), state["1.word_totals"].sum())


def test_numbers_beside_a_category_of_many_values_keep_their_densities():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1_000)
    X = rng.normal(size=(3, 6))[y] + rng.normal(size=(1_000, 6))
    rows = [
        {**dict(enumerate(x)), "shop": f"s{shop}"} for x, shop in zip(X, rng.integers(200, size=1_000), strict=True)
    ]
    model = StreamSVMClassifier(members=("naive-bayes",))
    assert np.mean(np.array(model.test_then_train(rows, y)) == y) > 0.6  # as words: 0.33


def test_weights_that_are_too_small_to_count_add_no_words():
    X, y = topics(50)
    model = StreamSVMClassifier(members=("naive-bayes",))
    model.learn_many(X, y, w=np.full(50, 1e-20))
    assert model._state.parts["1"].n_words == 0
    model.learn_many(X, y, w=np.where(np.arange(50) % 2, 1e12, 1.0))
    state = arrays_of(model)
    assert model._state.parts["1"].n_words == np.count_nonzero(state["1.word_sums"])
