"""Falls of accuracy: noticed where a concept changes, not elsewhere, and the same however a stream is cut."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.run import drift
from streamsvm.run.drift import Falls


def stepped(rng: np.random.Generator, n: int, *rates: float) -> np.ndarray:
    """Hits at one rate after another, n events each."""
    return np.concatenate([rng.random(n) < rate for rate in rates])


@pytest.mark.parametrize(("before", "after"), [(0.95, 0.7), (0.999, 0.9), (0.7, 0.5), (1.0, 0.9)])
def test_a_fall_is_noticed_soon_and_once(before: float, after: float) -> None:
    falls = Falls()
    falls.add(stepped(np.random.default_rng(1), 10_000, before, after))
    assert falls.count == 1
    (fall,) = falls.last
    assert 10_000 < fall.judged <= 11_000
    assert fall.before == pytest.approx(before, abs=0.02)
    assert fall.after == pytest.approx(after, abs=0.1)


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, 0.999, 1.0])
def test_chance_is_no_fall(rate: float) -> None:
    falls = Falls()
    falls.add(np.random.default_rng(2).random(500_000) < rate)
    assert falls.count == 0


def test_learning_is_no_fall() -> None:
    falls = Falls()
    falls.add(stepped(np.random.default_rng(3), 5000, 0.5, 0.6, 0.7, 0.9, 0.95))
    assert falls.count == 0


def test_cuts_and_resumption_change_nothing() -> None:
    rng = np.random.default_rng(4)
    hits = stepped(rng, 3000, 0.95, 0.7, 0.95, 0.6)
    whole, broken = Falls(), Falls()
    whole.add(hits)
    for part in np.split(hits, np.sort(rng.integers(0, len(hits), 60))):
        broken.add(part)
        broken = Falls.from_state(json.loads(json.dumps(broken.state())))
    assert whole.count == 2
    assert broken.state() == whole.state()


@given(n=st.integers(1, 9000), m=st.integers(1, 2100), p=st.floats(0.0, 1.0), q=st.floats(0.0, 1.0))
def test_the_look_that_spares_logarithms_misses_nothing(n: int, m: int, p: float, q: float) -> None:
    hits, recent = round(p * n), round(q * m)
    statistic = drift._surprise(hits, n, recent, m)
    assert drift._is_sure(hits, n, recent, m) == (statistic > drift._SURE)


def test_only_the_last_are_kept() -> None:
    falls = Falls()
    for _ in range(300):
        falls.add(np.repeat([True, False], [2048, 128]))
    assert falls.count == 300
    assert len(falls.last) == 256
