"""Tail bounds of counts: never below the exact probability, and hardly above it."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from streamsvm.monitor.two_sample_tests import critical_counts, design_effects, log_tail


@given(st.integers(1, 300), st.integers(1, 2000), st.data())
def test_a_bound_is_at_least_the_exact_tail(m, n, data):
    k, r = data.draw(st.integers(0, m)), data.draw(st.integers(0, n))
    bound = math.exp(float(log_tail(k, m, r, n)))
    own = hypergeom(n + m, k + r, m)
    exact = own.cdf(k) if k * n < r * m else own.sf(k - 1)
    assert bound >= exact * (1 - 1e-9)
    if exact < 1e-3:
        assert bound <= 3.0 * exact


@given(st.sampled_from([64, 256]), st.integers(0, 2000), st.floats(1e-12, 1e-3), st.sampled_from([1.0, 3.5]))
def test_critical_counts_are_the_last_accepted_ones(m, r, level, design):
    n, ones = 2000.0, np.ones(1)
    low, high = critical_counts(m, np.array([float(r)]), n * ones, math.log(level), design * ones, design * ones)

    def is_accepted(k):
        p = log_tail(k / design, np.array(m / design), r / design, np.array(n / design))
        return float(p[0]) > math.log(level)

    assert 0.0 <= low[0] <= high[0] <= m
    assert is_accepted(low)
    assert is_accepted(high)
    assert high[0] == m or not is_accepted(high + 1)
    assert low[0] == 0 or not is_accepted(low - 1)


def test_design_effects_are_those_of_an_autoregression():
    rng, n, rho = np.random.default_rng(0), 1 << 17, 0.8
    x = np.empty(n)
    x[0] = 0.0
    for i, e in enumerate(rng.normal(size=n - 1)):
        x[i + 1] = rho * x[i] + e
    found = []
    for values in (rng.permutation(x), x):
        bits = (values > 0.0).astype(float)
        windows = [bits.reshape(-1, size).sum(axis=1) for size in (64, 256, 1024)]
        sums = np.array([[own.sum()] for own in windows])
        squares = np.array([[(own**2).sum()] for own in windows])
        counts = np.array([float(len(own)) for own in windows])
        found.append(design_effects([64, 256, 1024], counts, sums, squares, np.zeros(1, np.int64))[:, 0])
    independent, dependent = found
    lags = np.arange(1, 100)
    exact = 1.0 + 2.0 * float((2.0 / math.pi * np.arcsin(rho**lags)).sum())
    assert (independent < 1.15).all()
    assert (np.abs(dependent / exact - 1.0) < 0.15).all()
