"""Late labels: a vote is mixed with class frequencies and the last known label, as the formulas say."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.core.state import State
from streamsvm.ensemble import late_mixture
from streamsvm.ensemble.label_autocorrelation import AUTOCORRELATION
from streamsvm.ensemble.memory import autocorrelation_sizes
from tests.learners import interpreted

learn_late, mix_late = interpreted(late_mixture.learn_late), interpreted(late_mixture.mix_late)


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
        learn_late(state, (n, place, named, named_late), last, confidence, 40, i + 1)
    advantage = np.clip(gain * n_averaged / 10.0, -5.0, 5.0)
    np.testing.assert_allclose(state.late_weights, weights, rtol=1e-4)
    np.testing.assert_allclose([state.late_gain, state.late_advantage], [gain, advantage], rtol=1e-3)
    np.testing.assert_allclose(state.late_accuracies, accuracies, rtol=1e-4)


def test_the_mixture_applies_while_labels_are_late() -> None:
    n, state = 3, State(AUTOCORRELATION, autocorrelation_sizes(3, 1, True))
    plain = np.array([0.7, 0.2, 0.1])
    state.recent[0], mixed = 1, plain.copy()
    mix_late(state, n, mixed)
    np.testing.assert_array_equal(mixed, plain)  # labels are not known to be late
    state.late = 1.0
    mix_late(state, n, mixed)
    np.testing.assert_array_equal(mixed, plain)  # no late label was learned
    state.late_advantage = late_mixture.MOST_ADVANTAGE
    mix_late(state, n, mixed)
    last = np.full(n, late_mixture.SPREAD / n)
    last[1] += 1.0 - late_mixture.SPREAD
    pool = 0.25 * (plain + 1.0 / n + last + 1.0 / n)  # no label was learned: frequencies are equal
    share = 1.0 / (1.0 + np.exp(-late_mixture.MOST_ADVANTAGE))
    np.testing.assert_allclose(mixed, plain + share * (pool - plain), rtol=1e-4)
    assert (state.named_first, state.confidence, state.named_late) == (0, 0.7, 1)
    state.late_accuracies[:] = 0.9, 0.8
    mix_late(state, n, mixed := plain.copy())
    assert mixed.argmax() == 0  # the prediction was more accurate
