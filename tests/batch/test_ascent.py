"""Dual ascent on the whole problem, against plain numpy and properties of the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.batch.sampled_cuts import ascent
from tests.choices import each_choice

SINGLE = np.float32


def problem(n, n_classes, seed):
    """Kernel values of overlapping classes, codes, costs (n_classes, n), and weights, some of them zero."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n_classes, 3))[codes] + rng.normal(size=(n, 3))
    gram = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2)).astype(SINGLE)
    cost = (1.0 + rng.integers(3, size=(n_classes, n_classes))) * (1.0 - np.eye(n_classes))
    most = rng.choice([0.0, 1.0, 5.0, 20.0], n).astype(SINGLE)
    return gram, codes, np.ascontiguousarray(cost[codes].T, SINGLE), most


def start(codes, most, n_classes):
    weights = np.zeros((n_classes, len(codes)), SINGLE)
    weights[codes, np.arange(len(codes))] = most
    return weights, np.zeros_like(weights)


def scores_of(weights, gram, share, codes, costs):
    """Return scores in double precision."""
    rows = np.arange(len(codes))
    coefs = -weights.astype(float)
    coefs[codes, rows] = 0.0
    coefs[codes, rows] = -coefs.sum(axis=0)
    return coefs, share * coefs @ gram.astype(float)


def losses_of(scores, codes, costs):
    behind = scores - scores[codes, np.arange(len(codes))]
    return costs + behind


def dual_of(weights, gram, share, codes, costs):
    coefs, scores = scores_of(weights, gram, share, codes, costs)
    return float((weights * costs).sum() - 0.5 * (coefs * scores).sum())


def gap_of(weights, gram, share, codes, costs, most):
    losses = losses_of(scores_of(weights, gram, share, codes, costs)[1], codes, costs)
    return float(most @ losses.max(axis=0) - (weights * losses).sum())


def best_row(weights, gram, share, codes, costs):
    """Return the row whose best step gains most in the dual, by brute force."""
    losses = losses_of(scores_of(weights, gram, share, codes, costs)[1], codes, costs)
    lowest = np.where(weights > 0.0, losses, losses.max(axis=0))
    slopes, rooms = losses.max(axis=0) - lowest.min(axis=0), weights[lowest.argmin(axis=0), np.arange(len(codes))]
    squares = 2.0 * share * np.diag(gram)
    steps = np.minimum(slopes / squares, rooms)
    return int((steps * (slopes - 0.5 * steps * squares)).argmax())


@each_choice(("n_classes", [2, 4]), ("seed", range(3)))
def test_a_step_changes_the_best_row_and_raises_the_dual(n_classes, seed):
    gram, codes, costs, most = problem(40, n_classes, seed)
    share = SINGLE(0.5 if n_classes == 2 else 1.0)
    weights, scores = start(codes, most, n_classes)
    for _ in range(3):
        before, found = weights.copy(), dual_of(weights, gram, share, codes, costs)
        best = best_row(weights, gram, share, codes, costs)
        _, scores = scores_of(weights, gram, share, codes, costs)
        ascent.ascend(ascent.Dual(gram, share, most, weights, costs + scores.astype(SINGLE)), 1, 0.0)
        assert (weights != before)[:, best].any()
        assert dual_of(weights, gram, share, codes, costs) > found


@pytest.mark.parametrize("n_classes", [2, 5])
def test_it_ends_where_the_gap_is_closed_with_weights_that_sum_up(n_classes):
    gram, codes, costs, most = problem(150, n_classes, 7)
    share = SINGLE(0.5 if n_classes == 2 else 1.0)
    weights, scores = start(codes, most, n_classes)
    tol = 1e-3 * float(most.sum())
    n_steps = ascent.ascend(ascent.Dual(gram, share, most, weights, costs + scores), 100_000, tol)
    assert 0 < n_steps < 100_000
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=0), most, rtol=1e-4)
    assert -1e-4 * most.sum() <= gap_of(weights, gram, share, codes, costs, most) <= 1.05 * tol


@pytest.mark.parametrize("n", [1, 127, 128, 300])
def test_the_largest_is_found_where_it_is(n):
    values = np.zeros(n + -n % ascent.LANES, SINGLE)
    values[:n] = np.random.default_rng(n).random(n)
    assert ascent.largest(values, np.empty(ascent.LANES, SINGLE)) == values.argmax()
