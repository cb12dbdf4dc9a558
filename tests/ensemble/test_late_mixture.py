"""Late labels: a vote that is certain of past classes is mixed with class frequencies and the last known label."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import DelayedClassifier, StreamSVMClassifier
from streamsvm.core.state import State
from streamsvm.ensemble import late_mixture
from streamsvm.ensemble.label_autocorrelation import AUTOCORRELATION
from streamsvm.ensemble.memory import autocorrelation_sizes

N, DELAY, FIRST, CLASSES = 4_000, 100, 1_500, 4


def persistent(switches: float, signal: float) -> tuple[list[dict[str, float]], np.ndarray]:
    """Labels that stay the same until they switch, and features that say `signal` of them."""
    rng = np.random.default_rng(1)
    steps = np.where(rng.random(N) < switches, rng.integers(1, CLASSES, N), 0)
    y = np.cumsum(steps) % CLASSES
    X = signal * rng.normal(size=(CLASSES, 4))[y] + rng.normal(size=(N, 4))
    return [dict(zip("abcd", row, strict=True)) for row in X.tolist()], y


def delayed(rows: list[dict[str, float]], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the labels, which arrive DELAY events late, and predicted classes."""
    model, found = DelayedClassifier(StreamSVMClassifier(effort="low")), np.full(N, 1.0 / CLASSES)
    named = np.zeros(N, np.int64)
    for i, row in enumerate(rows):
        proba = model.predict_proba_one(row, key=i)
        found[i], named[i] = proba.get(int(y[i]), 1.0 / CLASSES), max(proba, key=proba.get, default=0)
        if i >= DELAY:
            model.learn_one(rows[i - DELAY], int(y[i - DELAY]), key=i - DELAY)
    return found, named


def mixture_loss(y: np.ndarray) -> float:
    """Return the log loss of the best mixture of last known label, class frequencies and equal probabilities."""
    counts, rows = np.full(CLASSES, 1.0 / CLASSES), []
    for i in range(DELAY + 1, N):
        last = y[i - DELAY - 1]
        counts *= 0.999
        counts[last] += 1.0
        rows.append((last == y[i], counts[y[i]] / counts.sum(), 1.0 / CLASSES))
    likelihoods, weights = np.array(rows, float)[FIRST - DELAY - 1 :], np.full(3, 1.0 / 3.0)
    for _ in range(200):
        shares = likelihoods * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return float(-np.log(likelihoods @ weights).mean())


@pytest.mark.parametrize("switches", [0.001, 0.01, 0.3])
def test_late_labels_that_persist_are_predicted_about_as_well_as_by_the_best_baselines(switches: float) -> None:
    rows, y = persistent(switches, 0.0)  # the features say nothing
    found, named = delayed(rows, y)
    assert -np.log(found)[FIRST:].mean() < mixture_loss(y) + 0.1
    by_last = np.mean(y[FIRST:] == y[FIRST - DELAY - 1 : -DELAY - 1])
    assert np.mean(named[FIRST:] == y[FIRST:]) > by_last - 0.03


@pytest.mark.parametrize("n", [2, 5])
def test_weights_and_shares_are_those_of_the_formulas(n: int) -> None:
    """Updates and mixtures against numpy."""
    rng = np.random.default_rng(n)
    state = State(AUTOCORRELATION, autocorrelation_sizes(n, 1, True))
    weights, gain, accuracies = np.full(4, 0.25), 0.0, np.zeros(2)
    state.change_rate = 0.1
    for i in range(300):
        place, named, named_late, last = (int(rng.integers(n)) for _ in range(4))
        confidence, state.base[:n] = rng.uniform(1.0 / n, 1.0), rng.dirichlet(np.ones(n))
        share = (1.0 - confidence) * state.base[place] / (1.0 - state.base[named])
        likelihood = confidence if named == place else share
        by_last = late_mixture.SPREAD / n + (1.0 - late_mixture.SPREAD) * (last == place)
        each = np.array([likelihood, state.base[place], by_last, 1.0 / n])
        pooled, rate = weights @ each, 1.0 / min(i + 1 + late_mixture.CAUTION * 10.0, late_mixture.WINDOW * 40)
        n_averaged = min(i + 1, late_mixture.WINDOW * 40)
        gain += (np.log(pooled / likelihood) - late_mixture.LEAST_GAIN - gain) / n_averaged
        weights = np.maximum(weights + rate * weights * (each / pooled - 1.0), late_mixture.LEAST_WEIGHT)
        weights /= weights.sum()
        accuracies += rate * (np.array([named == place, named_late == place]) - accuracies)
        late_mixture.learn_late(state, (n, place, named, named_late), last, confidence, 40, i + 1)
    advantage = np.clip(gain * n_averaged / 10.0, -5.0, 5.0)
    np.testing.assert_allclose(state.late_weights, weights, rtol=1e-4)
    np.testing.assert_allclose([state.late_gain, state.late_advantage], [gain, advantage], rtol=1e-3)
    np.testing.assert_allclose(state.late_accuracies, accuracies, rtol=1e-4)


def test_the_mixture_applies_while_labels_are_late() -> None:
    n, state = 3, State(AUTOCORRELATION, autocorrelation_sizes(3, 1, True))
    plain = np.array([0.7, 0.2, 0.1])
    state.recent[0], mixed = 1, plain.copy()
    late_mixture.mix_late(state, n, mixed)
    np.testing.assert_array_equal(mixed, plain)  # labels are not known to be late
    state.late = 1.0
    late_mixture.mix_late(state, n, mixed)
    np.testing.assert_array_equal(mixed, plain)  # no late label was learned
    state.late_advantage = late_mixture.MOST_ADVANTAGE
    late_mixture.mix_late(state, n, mixed)
    last = np.full(n, late_mixture.SPREAD / n)
    last[1] += 1.0 - late_mixture.SPREAD
    pool = 0.25 * (plain + 1.0 / n + last + 1.0 / n)  # no label was learned: frequencies are equal
    share = 1.0 / (1.0 + np.exp(-late_mixture.MOST_ADVANTAGE))
    np.testing.assert_allclose(mixed, plain + share * (pool - plain), rtol=1e-4)
    assert (state.named_first, state.confidence, state.named_late) == (0, 0.7, 1)
    state.late_accuracies[:] = 0.9, 0.8
    late_mixture.mix_late(state, n, mixed := plain.copy())
    assert mixed.argmax() == 0  # the prediction was more accurate
