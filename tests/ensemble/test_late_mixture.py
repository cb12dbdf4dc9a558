"""Late labels: the vote is mixed with class frequencies and known labels."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.ensemble import late_mixture
from streamsvm.ensemble.label_baselines import BY_LAST
from streamsvm.ensemble.memory import new_autocorrelation
from tests.learners import interpreted

learn_late, mix_late, count_late = map(
    interpreted, (late_mixture.learn_late, late_mixture.mix_late, late_mixture.count_late)
)


def named_places(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return answers for an event: the prediction is known, baselines may lack one."""
    return np.concatenate([rng.integers(n, size=2), rng.integers(-1, n, size=late_mixture.LATE_ANSWERS - 2)])


@pytest.mark.parametrize("n", [2, 5])
def test_weights_and_leads_are_those_of_the_formulas(n: int) -> None:
    """Updates against numpy."""
    rng = np.random.default_rng(n)
    state = new_autocorrelation(n, 1)
    weights, gain = np.full(late_mixture.PARTS, 1.0 / late_mixture.PARTS), 0.0
    leads = np.zeros(late_mixture.LATE_ANSWERS)
    state.change_rate, counts = 0.1, rng.integers(20, size=n)
    state.late_counts[late_mixture.JUDGING] = counts
    base = (counts + 1.0 / n) / (counts.sum() + 1.0)
    for i in range(300):
        place, named, confidence = int(rng.integers(n)), named_places(rng, n), rng.uniform(1.0 / n, 1.0)
        state.late_named[:], state.confidence = named, confidence
        best, last, ago = named[late_mixture.BY_P], named[late_mixture.BY_LATE_LAST], named[late_mixture.BY_LATE_SEASON]
        likelihood = confidence if best == place else (1.0 - confidence) * base[place] / (1.0 - base[best])
        repeats = [
            1.0 / n if at < 0 else late_mixture.SPREAD / n + (1.0 - late_mixture.SPREAD) * (at == place)
            for at in (last, ago)
        ]
        each = np.array([likelihood, base[place], *repeats, 1.0 / n])
        pooled, n_averaged = weights @ each, min(i + 1, late_mixture.WINDOW * 40)
        rate = min(late_mixture.RATE / (i + 1 + late_mixture.CAUTION * 10.0), 1.0 / (late_mixture.CAUTION * 10.0))
        gain += (np.log(pooled / likelihood) - late_mixture.LEAST_GAIN - gain) / n_averaged
        weights = np.maximum(weights + rate * weights * (each / pooled - 1.0), late_mixture.LEAST_WEIGHT)
        weights /= weights.sum()
        leads += (np.where(named < 0, best, named) == place) / 10.0
        leads = np.maximum(leads - leads.max(), -late_mixture.MOST_LEAD)
        learn_late(state, place, n, 40, i + 1)
    advantage = np.clip(late_mixture.FIRST_ADVANTAGE + gain * n_averaged / 10.0, -5.0, 5.0)
    np.testing.assert_allclose(state.late_weights, weights, rtol=1e-4)
    np.testing.assert_allclose([state.late_gain, state.late_advantage], [gain, advantage], rtol=1e-3)
    np.testing.assert_allclose(state.late_leads, leads, rtol=1e-4, atol=1e-9)


def test_frequencies_that_judge_do_not_include_the_label_or_labels_after_the_prediction() -> None:
    n, delay, state = 3, 50, new_autocorrelation(3, 1)
    y = np.random.default_rng(0).integers(n, size=400)
    for i, label in enumerate(y.tolist()):
        state.n_learned = i
        assert state.late_counts[late_mixture.JUDGING].sum() <= max(i - delay, 0)
        count_late(state, label, delay)
    window = max(late_mixture.FREQUENCY_WINDOW * delay, late_mixture.LEAST_FREQUENCY_WINDOW)
    decayed = np.bincount(y, (1.0 + 1.0 / window) ** np.arange(len(y)), n)
    np.testing.assert_allclose(state.late_counts[late_mixture.KNOWN], decayed, rtol=1e-9)


def test_the_mixture_applies_while_labels_are_late() -> None:
    n, state = 3, new_autocorrelation(3, 1)
    plain = np.array([0.7, 0.2, 0.1])
    state.answers[BY_LAST], mixed = 1, plain.copy()
    mix_late(state, n, mixed)
    np.testing.assert_array_equal(mixed, plain)  # labels are not known to be late
    state.late = 1.0
    mix_late(state, n, mixed)
    np.testing.assert_array_equal(mixed, plain)  # no late label was learned
    state.late_advantage = late_mixture.MOST_ADVANTAGE
    mix_late(state, n, mixed)
    last = np.full(n, late_mixture.SPREAD / n)
    last[1] += 1.0 - late_mixture.SPREAD
    predicted = [0.7, 0.15, 0.15]  # frequencies and the label one season ago are unknown: equal probabilities
    pool = (predicted + last + 3.0 / n) / late_mixture.PARTS
    share = 1.0 / (1.0 + np.exp(-late_mixture.MOST_ADVANTAGE))
    np.testing.assert_allclose(mixed, plain + share * (pool - plain), rtol=1e-4)
    assert state.late_named.tolist() == [0, 1, -1, 1, -1, -1]
    assert state.confidence == 0.7
    mixed, behind = plain.copy(), -2.0 * late_mixture.LEAST_LEAD
    state.late_leads[late_mixture.BY_POOL] = behind
    mix_late(state, n, mixed)
    assert mixed.argmax() == 0  # the prediction was right more often
    state.late_leads[late_mixture.BY_P] = behind
    mix_late(state, n, mixed := plain.copy())
    assert mixed.argmax() == 1  # the last label was right more often
