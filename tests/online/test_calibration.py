"""Calibration with noisy labels, against the formula."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.online import calibration
from tests.learners import interpreted

allow_for_noise, find_softmax, learn_noise, learn_softmax, is_used = map(
    interpreted,
    (
        *(calibration.allow_for_noise, calibration.find_softmax, calibration.learn_noise),
        *(calibration.learn_softmax, calibration.is_used),
    ),
)
N = 3


def fresh(exponent=1.0, odds=calibration.FIRST_ODDS, others=1.0):
    state = calibration.new_calibration(N + 1, calibration.MEMORY, calibration.GAIN_WINDOW)
    state.inverse_temperature, state.odds, state.others = exponent, odds, others
    return state


def worth(p, exponent, odds, others=1.0):
    """The formula; the last class represents several."""
    count = np.array([1.0] * (N - 1) + [others])
    sharp = count * (p / count) ** exponent
    noise = odds / (1.0 + odds)
    return (1.0 - noise) * sharp / sharp.sum() + noise * count / count.sum()


def ask(state, p, others=1.0):
    proba = np.append(p, np.nan)
    allow_for_noise(state, N, others, proba)
    return proba[:N]


@pytest.mark.parametrize("others", [1.0, 5.0])
def test_it_is_the_formula_where_it_is_used(others):
    p, state = np.array([0.7, 0.2, 0.1]), fresh(2.0, 0.5)
    np.testing.assert_array_equal(ask(state, p, others), p)
    state.gain = 2.0 * calibration.MARGIN
    np.testing.assert_allclose(ask(state, p, others), worth(p, 2.0, 0.5, others))


def test_a_step_is_the_gradient_of_the_log_loss_by_the_information_on_both():
    rng = np.random.default_rng(0)
    for label in range(N):
        p, state = rng.dirichlet(np.ones(N)), fresh(*np.exp(0.3 * rng.normal(size=2)))
        logs = np.log([float(state.inverse_temperature), float(state.odds)])

        def said(at, p=p):
            return np.log(worth(p, *np.exp(at)))

        slopes = np.array([(said(logs + off) - said(logs - off)) / 2e-6 for off in 1e-6 * np.eye(2)])
        information = (slopes * worth(p, *np.exp(logs))) @ slopes.T + calibration.FIRST_INFORMATION * np.eye(2)
        information[0, 1] = information[1, 0] = (slopes * worth(p, *np.exp(logs)))[0] @ slopes[1]
        ask(state, p)
        learn_noise(state, N, label, p)
        step = np.linalg.solve(information, slopes[:, label]).clip(-calibration.MOST_STEP, calibration.MOST_STEP)
        found = np.log([float(state.inverse_temperature), float(state.odds)]) - logs
        np.testing.assert_allclose(found, step, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, N])
def test_learning_from_a_softmax_equals_learning_from_its_probabilities(n_classes):
    rng, one, other = np.random.default_rng(2), fresh(2.0, 0.5), fresh(2.0, 0.5)
    used = []
    for i in range(100):
        scores, beta = 2.0 * rng.normal(size=n_classes), 1.5
        p = np.exp(beta * scores) / np.exp(beta * scores).sum()
        label = int(rng.integers(n_classes)) if i % 2 else int(p.argmax())
        found, expected = np.empty(n_classes), p.copy()
        find_softmax(one, scores, n_classes, beta, found)
        allow_for_noise(other, n_classes, 1.0, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        learn_softmax(one, scores, n_classes, beta, label)
        learn_noise(other, n_classes, label, p)
        for number in ("inverse_temperature", "odds", "of_temperature", "of_odds", "of_both", "gain"):
            assert getattr(one, number) == pytest.approx(getattr(other, number), rel=1e-3, abs=1e-5)
        used.append(bool(is_used(one)))
    assert set(used) == {False, True}


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_noise_is_found_and_clean_labels_are_left_alone(noise):
    """Three balanced classes. The probabilities do not include the noise."""
    rng, state = np.random.default_rng(1), fresh()
    p = rng.dirichlet(np.full(N, 0.3), 4_000)
    labels = (p.cumsum(axis=1) < rng.random((4_000, 1))).sum(axis=1)
    labels = np.where(rng.random(4_000) < noise, rng.integers(N, size=4_000), labels).clip(0, N - 1)
    found = np.empty_like(p)
    for i, label in enumerate(labels):
        found[i] = ask(state, p[i])
        learn_noise(state, N, label, p[i])
    np.testing.assert_array_equal(found.argmax(axis=1), p.argmax(axis=1))
    assert state.odds / (1.0 + state.odds) == pytest.approx(noise, abs=0.06)
    if noise:
        late = slice(2_000, None)
        right = (found.argmax(axis=1) == labels)[late].mean()
        assert found[late].max(axis=1).mean() == pytest.approx(right, abs=0.03)
        assert p[late].max(axis=1).mean() > right + 0.1
    else:
        assert np.abs(found - p).max() < 0.05
