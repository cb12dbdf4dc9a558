"""The test for adoption: its value, its level however often one looks, its power, and when it gives up."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.models import ArchiveError
from streamsvm.refit.evidence import Evidence, Judged, Verdict

ALPHA = 0.05
TRIALS, EVENTS = 400, 2000


def product(differences) -> float:
    """The mean over the bets of plain products."""
    bets = [Fraction(0.5 ** (k / 2)) for k in range(2, 17)]
    return float(sum(math.prod(1 + bet * int(d) for d in differences) for bet in bets) / len(bets))


@pytest.mark.parametrize("shares", [(0.1, 0.1), (0.5, 0.2), (0.0, 0.3), (0.9, 0.0), (0.0, 0.0)])
def test_it_is_the_mean_of_plain_products(shares):
    rng = np.random.default_rng(1)
    differences = rng.choice([1, -1, 0], 200, p=[*shares, 1 - sum(shares)])
    evidence = Evidence(most=1000)
    assert evidence.value == pytest.approx(1.0, rel=1e-12)
    for end in range(1, 200, 20):
        part = differences[:end]
        evidence = Evidence()
        evidence.add(int((part > 0).sum()), int((part < 0).sum()), int((part == 0).sum()))
        assert evidence.value == pytest.approx(product(part), rel=1e-12)
        assert evidence.log_value == pytest.approx(math.log(product(part)), abs=1e-12)
        assert evidence.n_events == end


def test_much_evidence_overflows_nothing():
    evidence = Evidence()
    evidence.add(10**9, 10**3)
    assert evidence.value == math.inf
    assert evidence.log_value == pytest.approx(10**9 * math.log(1.5), rel=1e-5)
    evidence = Evidence()
    evidence.add(0, 10**9)
    assert evidence.value == 0.0
    assert -math.inf < evidence.log_value < 0.0


@given(differences=st.lists(st.sampled_from([1, 1, 1, 0, -1]), max_size=200), cuts=st.lists(st.integers(0, 200)))
def test_the_verdict_falls_at_the_same_event_however_it_is_cut(differences, cuts):
    d, rank = np.array(differences, int), 2
    evidence, at, verdict = Evidence(most=150), 0, Verdict.OPEN
    while at < len(d) and verdict is Verdict.OPEN:
        evidence.add(int(d[at] > 0), int(d[at] < 0), int(d[at] == 0))
        verdict = evidence.verdict(rank)
        at += 1
    whole = Evidence(most=150)
    assert whole.judge(d, rank) == Judged(at, verdict)
    cut, n = Evidence(most=150), 0
    for part in np.split(d, sorted(min(c, len(d)) for c in cuts)):
        n, judged = n + cut.judge(part, rank).n, cut.verdict(rank)
        if judged is not Verdict.OPEN:
            break
    assert (n, cut) == (at, whole)
    assert cut.log_value == whole.log_value == evidence.log_value


def bunched(rng: np.random.Generator) -> np.ndarray:
    """How often they differ comes and goes, and depends on what came before."""
    busy = np.repeat(rng.random(EVENTS // 50) < 0.3, 50)
    return rng.choice([1, -1], EVENTS) * (rng.random(EVENTS) < np.where(busy, 0.9, 0.03))


def staked(rng: np.random.Generator) -> np.ndarray:
    """They differ always after a win, and seldom after a loss."""
    differences, often, signs, chances = [], True, rng.choice([1, -1], EVENTS), rng.random(EVENTS)
    for sign, chance in zip(signs.tolist(), chances.tolist(), strict=True):
        differences.append(sign if often or chance < 0.1 else 0)
        often = differences[-1] > 0
    return np.array(differences)


def drifting(rng: np.random.Generator) -> np.ndarray:
    """Much worse at first, and equally good in the end."""
    wins = np.linspace(0.1, 0.5, EVENTS)
    return np.where(rng.random(EVENTS) < wins, 1, -1)


def swinging(rng: np.random.Generator) -> np.ndarray:
    """Worse and equally good in turns, while the share at which they differ drifts."""
    wins = np.where(np.sin(np.arange(EVENTS) / 60.0) > 0, 0.5, 0.4)
    differ = rng.random(EVENTS) < np.linspace(0.9, 0.05, EVENTS)
    return np.where(rng.random(EVENTS) < wins, 1, -1) * differ


def seldom(rng: np.random.Generator) -> np.ndarray:
    return rng.choice([1, -1], EVENTS) * (rng.random(EVENTS) < 0.05)


def always(rng: np.random.Generator) -> np.ndarray:
    return rng.choice([1, -1], EVENTS)


NO_BETTER = [always, seldom, bunched, staked, drifting, swinging]


@pytest.mark.parametrize("differences", NO_BETTER, ids=lambda f: f.__name__)
def test_one_that_is_no_better_is_seldom_adopted_though_one_looks_after_every_event(differences):
    rng = np.random.default_rng(7)
    level = ALPHA * math.pi**2 / 6.0  # of which the first challenger spends ALPHA
    verdicts = [Evidence(alpha=level).judge(differences(rng), rank=1).verdict for _ in range(TRIALS)]
    assert verdicts.count(Verdict.BETTER) <= ALPHA * TRIALS


def test_a_test_made_for_one_look_would_adopt_many():
    rng = np.random.default_rng(7)
    sums = np.cumsum([always(rng) for _ in range(TRIALS)], axis=1)
    scores = sums[:, 30:] / np.sqrt(np.arange(31, EVENTS + 1))
    assert (scores.max(axis=1) > 1.645).mean() > 5 * ALPHA


def test_alpha_is_spent_over_challengers():
    evidence = Evidence(alpha=ALPHA)
    needed = [math.exp(evidence._needed(rank)) for rank in range(1, 20_000)]
    assert needed[0] == pytest.approx(math.pi**2 / 6 / ALPHA)
    assert sum(1 / n for n in needed) == pytest.approx(ALPHA, rel=1e-4)
    evidence.add(16, 0)
    assert evidence.is_better(1)
    assert not evidence.is_better(5)


def test_one_that_is_better_by_three_points_of_ten_is_adopted_within_3000_events():
    rng = np.random.default_rng(9)
    judged = [Evidence().judge(rng.choice([1, -1, 0], 3000, p=[0.065, 0.035, 0.9]), rank=1) for _ in range(200)]
    assert sum(verdict is Verdict.BETTER for _, verdict in judged) >= 0.95 * len(judged)
    assert np.median([n for n, _ in judged]) < 1500


def test_one_that_is_worse_is_given_up_soon_and_one_that_is_as_good_seldom():
    rng = np.random.default_rng(10)
    worse = [Evidence().judge(rng.choice([1, -1, 0], 3000, p=[0.035, 0.065, 0.9]), rank=1) for _ in range(200)]
    assert sum(verdict is Verdict.FUTILE for _, verdict in worse) >= 0.95 * len(worse)
    alike = [Evidence().judge(always(rng), rank=1).verdict for _ in range(TRIALS)]
    assert alike.count(Verdict.FUTILE) <= ALPHA * TRIALS


def test_after_so_many_events_it_is_given_up():
    evidence = Evidence(most=500)
    assert evidence.judge(np.zeros(499), rank=1) == Judged(499, Verdict.OPEN)
    assert evidence.judge(np.zeros(499), rank=1) == Judged(1, Verdict.FUTILE)
    assert evidence.is_futile
    soonest = Evidence().judge(np.ones(30), rank=1).n
    assert Evidence(most=soonest).judge(np.ones(30), rank=1) == Judged(soonest, Verdict.BETTER)
    assert Evidence(most=soonest - 1).judge(np.ones(30), rank=1) == Judged(soonest - 1, Verdict.FUTILE)


def test_it_goes_on_from_what_was_saved():
    evidence = Evidence(alpha=0.1, most=900)
    evidence.judge(np.array([1, 0, -1, 1]), rank=1)
    resumed = Evidence(alpha=0.1, most=900)
    resumed.restore(json.loads(json.dumps(evidence.state())))
    assert resumed == evidence


@pytest.mark.parametrize(
    "content", [None, [], {}, {"n_wins": 1, "n_losses": 1}, {"n_wins": 1, "n_losses": 1, "n_ties": -1}]
)
def test_other_counts_in_an_archive_are_refused(content):
    with pytest.raises(ArchiveError, match="not the counts of a test"):
        Evidence().restore(content)


@pytest.mark.parametrize(("name", "value"), [("alpha", 0.0), ("alpha", 1.0), ("most", 0), ("n_wins", -1)])
def test_wrong_settings_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        Evidence(**{name: value})
    with pytest.raises(ValueError, match="`rank` must be an integer of at least 1"):
        Evidence().is_better(0)
