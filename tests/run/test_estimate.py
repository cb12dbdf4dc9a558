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
            estimate.follow(scores[now], nothing, nothing > 0)
            on_the_way.append((estimate.now.accuracy, estimate.now.error))
        if start >= DELAY:
            estimate.follow(nothing, scores[then], right[then])
    return estimate, on_the_way


@pytest.mark.parametrize("power", [1.0, 2.5])
def test_the_truth_is_within_the_error_however_much_probabilities_promise(power: float) -> None:
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.5, 1.0, N)
    right = rng.random(N) < scores**power
    _, on_the_way = run(scores, right)
    truth = np.convolve(right, np.ones(1_000) / 1_000, "valid")[STEP - 1 :: STEP]
    estimated, error = np.array(on_the_way[-len(truth) :]).T
    settled = slice(2 * DELAY // STEP, None)
    assert np.mean(np.abs(estimated - truth)[settled] <= error[settled]) >= 0.9


def test_a_fall_of_accuracy_is_told_before_its_first_label() -> None:
    rng = np.random.default_rng(2)
    scores = np.where(np.arange(N) < N / 2, rng.uniform(0.8, 1.0, N), rng.uniform(0.5, 0.7, N))
    right = rng.random(N) < scores**1.5
    _, on_the_way = run(scores, right)
    before, after = on_the_way[N // 2 // STEP - 1][0], on_the_way[(N // 2 + DELAY) // STEP - 1][0]
    assert before == pytest.approx(0.85, abs=0.04)
    assert after < before - 0.15
