"""Dual ascent on the whole problem, against numpy and properties of the optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from streamsvm.batch.sampled_cuts import ascent
from tests.choices import each_choice

SINGLE = np.float32


def problem(n, n_classes, seed):
    """Kernel values of overlapping classes, codes, costs, and weights (some zero).

    Costs have the shape (n_classes, n).
    """
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


def best_pair(weights, gram, share, codes, costs):
    """Return the rows of a step with their labels (up, down), by brute force.

    They are the best row and its best partner.
    """
    n_classes, n = weights.shape
    losses = losses_of(scores_of(weights, gram, share, codes, costs)[1], codes, costs)
    ways, gains = [], []
    for i in range(n):
        up = int(losses[:, i].argmax())
        down = int(np.where(weights[:, i] > 0.0, losses[:, i], np.inf).argmin())
        down = up if losses[down, i] >= losses[up, i] or not weights[:, i].any() else down
        change = np.zeros(n_classes)
        np.add.at(change, [up, down], [-1.0, 1.0])
        slope, square = losses[up, i] - losses[down, i], max(share * gram[i, i] * change @ change, 1e-30)
        step = min(slope / square, weights[down, i])
        ways.append((up, down, change, slope, square, step))
        gains.append(step * (slope - 0.5 * step * square) if up != down else 0.0)
    i = int(np.argmax(gains))
    up, down, change, slope, square, step = ways[i]
    beside = np.zeros(n)
    for j, (up_j, down_j, change_j, slope_j, square_j, _) in enumerate(ways):
        if j != i and up_j != down_j:
            shared = share * gram[i, j] * (change @ change_j)
            rest = slope_j - step * shared
            left = square_j - (shared**2 / square if step < weights[down, i] else 0.0)
            move = np.clip(rest / left, -weights[up_j, j], weights[down_j, j])
            beside[j] = move * (rest - 0.5 * move * left)
    return i, int(beside.argmax()), ways


@each_choice(("n_classes", [2, 4]), ("seed", range(3)))
def test_a_step_is_the_best_of_two_rows_by_brute_force(n_classes, seed):
    gram, codes, costs, most = problem(40, n_classes, seed)
    share = SINGLE(0.5 if n_classes == 2 else 1.0)
    shares = np.random.default_rng(seed).dirichlet(np.ones(n_classes), 40).T
    shares[shares < 0.3] = 0.0
    shares[codes, np.arange(40)] += 1.0 - shares.sum(axis=0)
    weights = np.ascontiguousarray(shares * most, SINGLE)
    _, scores = scores_of(weights, gram, share, codes, costs)
    i, j, ways = best_pair(weights, gram, share, codes, costs)
    before = weights.copy()
    found = dual_of(weights, gram, share, codes, costs)
    # The gain of both rows, on a grid of both steps.
    best = found
    for a, b in itertools.product(np.linspace(0.0, 1.0, 11), repeat=2):
        trial = before.astype(float)
        for row, part in ((i, a), (j, b)):
            up, down = ways[row][:2]
            step = -before[up, row] + part * (before[up, row] + before[down, row])
            trial[up, row] += step
            trial[down, row] -= step
        best = max(best, dual_of(trial, gram, share, codes, costs))
    ascent.ascend(ascent.Dual(gram, share, most, weights, costs + scores.astype(SINGLE)), 1, 0.0)
    assert best > found
    assert (weights != before)[:, [i, j]].any(axis=0).all()
    assert dual_of(weights, gram, share, codes, costs) >= best - 1e-3 * (best - found)


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


@pytest.mark.parametrize("seed", range(8))
def test_two_steps_are_the_best_in_their_box(seed):
    rng = np.random.default_rng(seed)
    slopes, squares = rng.normal(size=2), rng.uniform(0.1, 2.0, 2)
    shared = rng.choice([-1.0, 0.3, 0.999, 1.0]) * np.sqrt(squares.prod())
    low, high = -rng.random(2), rng.random(2)
    a, b = ascent.best_steps(*map(ascent.Line, slopes, squares, low, high), shared)
    assert low[0] <= a <= high[0]
    assert low[1] <= b <= high[1]

    def gain(a, b):
        return a * slopes[0] + b * slopes[1] - 0.5 * (a * a * squares[0] + b * b * squares[1]) - a * b * shared

    grid = np.meshgrid(np.linspace(low[0], high[0], 101), np.linspace(low[1], high[1], 101))
    assert gain(a, b) >= gain(*grid).max() - 1e-6
