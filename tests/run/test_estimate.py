"""The accuracy estimate before labels arrive, against the true accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.run.estimate import Estimate

N, DELAY, STEP = 20_000, 1_500, 100


def run(scores: np.ndarray, right: np.ndarray) -> tuple[Estimate, list[tuple[float, float]]]:
    """Run with labels a number of events late. Return the estimates and their errors."""
    estimate, on_the_way = Estimate(window=1_000), []
    for start in range(0, N + DELAY, STEP):
        now, then = (np.arange(start - late, start - late + STEP) for late in (0, DELAY))
        nothing = np.zeros(0)
        if start < N:
            estimate.update(scores[now], nothing, nothing > 0)
            on_the_way.append((estimate.now().accuracy, estimate.now().error))
        if start >= DELAY:
            estimate.update(nothing, scores[then], right[then])
    return estimate, on_the_way


@pytest.mark.parametrize("power", [1.0, 2.5])
def test_the_truth_is_within_the_error_however_much_probabilities_promise(power):
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.5, 1.0, N)
    right = rng.random(N) < scores**power
    _, on_the_way = run(scores, right)
    truth = np.convolve(right, np.ones(1_000) / 1_000, "valid")[STEP - 1 :: STEP]
    estimated, error = np.array(on_the_way[-len(truth) :]).T
    settled = slice(2 * DELAY // STEP, None)
    assert np.mean(np.abs(estimated - truth)[settled] <= error[settled]) >= 0.9


def test_a_drop_of_accuracy_is_reported_before_its_first_label():
    rng = np.random.default_rng(2)
    scores = np.where(np.arange(N) < N / 2, rng.uniform(0.8, 1.0, N), rng.uniform(0.5, 0.7, N))
    right = rng.random(N) < scores**1.5
    _, on_the_way = run(scores, right)
    before, after = on_the_way[N // 2 // STEP - 1][0], on_the_way[(N // 2 + DELAY) // STEP - 1][0]
    assert before == pytest.approx(0.85, abs=0.04)
    assert after < before - 0.15


def test_changed_features_lower_the_estimate_until_later_labels():
    rng, nothing = np.random.default_rng(3), np.zeros(0)
    estimate, scores, before = Estimate(window=1_000), rng.uniform(0.8, 1.0, 1_000), np.zeros(1_000, np.int64)
    estimate.update(scores, scores, rng.random(1_000) < scores, before)
    usual = estimate.now(changed=0.0, chance=0.5)
    lowered = []
    for times in (before[:0], before, before[:500] + 7, before[:500] + 7):
        estimate.change(at=5) if not lowered else None
        own = scores[: len(times)]
        estimate.update(nothing, own, rng.random(len(own)) < own, times)
        now = estimate.now(changed=0.5, chance=0.5)
        lowered.append(now.lowered)
        assert now.error >= now.lowered  # the interval contains the estimate without the change
    assert lowered[0] == pytest.approx((usual.accuracy - 0.5) / 2)
    assert lowered[1] == pytest.approx(lowered[0], rel=0.3)  # labels of earlier events say nothing about it
    assert lowered[2] == pytest.approx(lowered[1] / 2, rel=0.1)
    assert lowered[3] == 0.0


def test_labels_after_a_change_of_features_count_more_than_all_before():
    rng, found = np.random.default_rng(3), []
    scores, times = rng.uniform(0.8, 1.0, 12_000), np.arange(12_000)
    right = rng.random(12_000) < np.where(times < 10_000, scores, 0.5)
    for step in (100, 700):  # the result does not depend on the batch size
        estimate = Estimate(window=1_000)
        estimate.change(at=10_000)
        for start in range(0, 12_000, step):
            part = slice(start, start + step)
            estimate.update(scores[part], scores[part], right[part], times[part])
        found.append(estimate.now())
    assert found[0] == found[1]
    assert abs(found[0].accuracy - 0.5) < 0.1
