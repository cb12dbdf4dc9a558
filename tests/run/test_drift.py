"""Accuracy drops are detected at concept changes only, for any batch sizes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.run.accuracy_drops import AccuracyDrops, is_sure, log_ratio


def stepped(rng: np.random.Generator, n: int, *rates: float) -> np.ndarray:
    """Hits with one rate after another, n events each."""
    return np.concatenate([rng.random(n) < rate for rate in rates])


@pytest.mark.parametrize(("before", "after"), [(0.95, 0.7), (0.999, 0.9), (0.7, 0.5), (1.0, 0.9)])
def test_a_fall_is_noticed_soon_and_once(before, after):
    drops = AccuracyDrops()
    drops.add(stepped(np.random.default_rng(1), 10_000, before, after))
    assert drops.count == 1
    (drop,) = drops.last
    assert 10_000 < drop.judged <= 11_000
    assert drop.before == pytest.approx(before, abs=0.02)
    assert drop.after == pytest.approx(after, abs=0.1)


def test_learning_is_no_fall():
    drops = AccuracyDrops()
    drops.add(stepped(np.random.default_rng(3), 5000, 0.5, 0.6, 0.7, 0.9, 0.95))
    assert drops.count == 0


@given(n=st.integers(1, 9000), m=st.integers(1, 2100), p=st.floats(0.0, 1.0), q=st.floats(0.0, 1.0))
def test_the_look_that_spares_logarithms_misses_nothing(n, m, p, q):
    hits, recent = round(p * n), round(q * m)
    assert is_sure(hits, n, recent, m, 15.0) == (log_ratio(hits, n, recent, m) > 15.0)


def test_only_the_last_are_kept():
    drops = run_of(stepped(np.random.default_rng(9), 2048, *[0.95, 0.6] * 300))
    assert drops.count >= 290
    assert len(drops.last) == 256


def test_stationary_streams_have_no_drops():
    """The bound is 1 % of streams, so 2 of 60 would contradict it."""
    rng = np.random.default_rng(5)
    assert sum(run_of(rng.random(20_000) < rng.uniform(0.5, 1.0)).count > 0 for _ in range(60)) < 2


def test_bursts_of_errors_are_not_drops():
    rng = np.random.default_rng(6)
    assert sum(run_of(in_bursts(rng, 20_000, 0.9, 10)).count > 0 for _ in range(40)) < 3


def test_slow_gradual_drops_are_detected():
    n = 2_000_000
    rate = np.interp(np.arange(n), [0, 500_000, 1_000_000, n], [0.98, 0.98, 0.86, 0.86])
    drops = run_of(np.random.default_rng(7).random(n) < rate)
    assert 1 <= drops.count <= 2
    assert 500_000 < drops.last[0].judged < 600_000
    assert drops.last[-1].after == pytest.approx(0.86, abs=0.02)
    assert len(json.dumps(drops.state())) < 1000  # memory is logarithmic


def run_of(hits: np.ndarray) -> AccuracyDrops:
    drops = AccuracyDrops()
    drops.add(hits)
    return drops


def in_bursts(rng: np.random.Generator, n: int, rate: float, length: int) -> np.ndarray:
    """Hits whose errors occur in runs of about a given length."""
    wrong, right = rng.geometric(1.0 / length, n), rng.geometric((1.0 - rate) / (rate * length), n)
    return np.repeat(np.tile([True, False], n // length), np.column_stack([right, wrong])[: n // length].ravel())[:n]
