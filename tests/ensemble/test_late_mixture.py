"""Late labels: a vote that is certain of past classes is mixed with class frequencies and the last known label."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import DelayedClassifier, StreamSVMClassifier
from streamsvm.core.state import State
from streamsvm.ensemble import late_mixture
from streamsvm.ensemble.label_autocorrelation import AUTOCORRELATION
from streamsvm.ensemble.memory import _autocorrelation_sizes
from streamsvm.ensemble.notes import LAGS

N, DELAY, FIRST, CLASSES = 4_000, 100, 1_500, 4


def persistent(switches: float, signal: float) -> tuple[list[dict[str, float]], np.ndarray]:
    """Labels that stay the same until they switch, and features that say `signal` of them."""
    rng = np.random.default_rng(1)
    steps = np.where(rng.random(N) < switches, rng.integers(1, CLASSES, N), 0)
    y = np.cumsum(steps) % CLASSES
    X = signal * rng.normal(size=(CLASSES, 4))[y] + rng.normal(size=(N, 4))
    return [dict(zip("abcd", row, strict=True)) for row in X.tolist()], y


def delayed(rows: list[dict[str, float]], y: np.ndarray) -> np.ndarray:
    """Probabilities of the labels, which arrive DELAY events late."""
    model, found = DelayedClassifier(StreamSVMClassifier(effort="low")), np.full(N, 1.0 / CLASSES)
    for i, row in enumerate(rows):
        found[i] = model.predict_proba_one(row, key=i).get(int(y[i]), 1.0 / CLASSES)
        if i >= DELAY:
            model.learn_one(rows[i - DELAY], int(y[i - DELAY]), key=i - DELAY)
    return found


def test_labels_that_persist_for_less_than_they_are_late_cost_about_what_frequencies_cost():
    rows, y = persistent(0.01, 0.5)
    known = np.cumsum(np.eye(CLASSES)[y], axis=0)
    shares = np.full((N, CLASSES), 1.0 / CLASSES)
    shares[DELAY + 1 :] = (known[: -DELAY - 1] + 1.0) / (np.arange(1, N - DELAY)[:, None] + CLASSES)
    trivial = -np.log(shares[np.arange(N), y])[FIRST:].mean()
    assert -np.log(delayed(rows, y))[FIRST:].mean() < trivial + 0.1


@pytest.mark.parametrize("n", [2, 5])
def test_weights_and_losses_are_those_of_the_formulas(n):
    """One update and one mixture against numpy."""
    rng = np.random.default_rng(n)
    state = State(AUTOCORRELATION, _autocorrelation_sizes(n, 1, True))
    memory, weights, losses = np.zeros(LAGS + 1, np.int64), np.array([0.95, 0.04, 0.01]), np.zeros(2)
    for i in range(300):
        label, likelihood, memory[0] = int(rng.integers(n)), rng.uniform(0.01, 0.2), rng.integers(n)
        state.totals[label] += 1.0
        state.n_learned, memory[LAGS] = i + 1, max(i - 40, 0)
        last = late_mixture.SPREAD / n + (1.0 - late_mixture.SPREAD) * (memory[0] == label)
        each = np.array([likelihood, (state.totals[label] + 1.0) / (i + 1 + n), last])
        delay = max(i + 1 - memory[LAGS], late_mixture.LEAST_DELAY)
        rate = 1.0 / min(i + 1 + late_mixture.CAUTION * delay, late_mixture.WINDOW * delay)
        losses += rate * (-np.log([likelihood, weights @ each]) - losses)
        weights[1:] = np.maximum(weights[1:] + rate * (weights * each / (weights @ each) - weights)[1:], 1e-3)
        weights[0] = 1.0 - weights[1:].sum()
        late_mixture.learn_late(state, memory, n, label, likelihood, i + 1)
    found = [state.frequencies_weight, state.last_weight, state.late_plain_loss, state.late_loss]
    np.testing.assert_allclose(found, [*weights[1:], *losses], rtol=1e-4)
    plain = rng.dirichlet(np.ones(n))
    state.recent[0], mixed = 1, plain.copy()
    late_mixture.mix_late(state, n, mixed)
    np.testing.assert_array_equal(mixed, plain)  # labels are not known to be late
    state.late = 1.0
    late_mixture.mix_late(state, n, mixed)
    last = np.full(n, late_mixture.SPREAD / n)
    last[1] += 1.0 - late_mixture.SPREAD
    expected = weights @ [plain, (state.totals + 1.0) / (300 + n), last]
    both = [int(np.argmax(expected)), int(np.argmax(plain))]
    expected[both] = expected[both[::-1]]
    np.testing.assert_allclose(mixed, expected, rtol=1e-4)
    assert (state.named_first, state.confidence) == (plain.argmax(), plain.max())
    state.late_loss = state.late_plain_loss
    late_mixture.mix_late(state, n, mixed := plain.copy())
    np.testing.assert_array_equal(mixed, plain)
