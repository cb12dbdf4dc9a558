"""Label autocorrelation against a reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.ensemble import label_autocorrelation as autocorrelation
from streamsvm.ensemble import label_baselines as baselines
from streamsvm.ensemble import notes
from streamsvm.ensemble.memory import new_autocorrelation
from streamsvm.online.calibration import MOST_SURPRISE, TEMPERATURE_RATE
from tests.learners import interpreted

N_CLASSES = 5
add_autocorrelation, combine, learn_autocorrelation, learn_exponent, drop, note, recall = (
    interpreted(kernel, "compare")
    for kernel in (
        *(autocorrelation.add_autocorrelation, autocorrelation.combine, autocorrelation.learn_autocorrelation),
        *(autocorrelation.learn_exponent, notes.drop, notes.add_note, notes.recall),
    )
)
# Products of hashes overflow, as in compiled code.
pytestmark = pytest.mark.filterwarnings("ignore:overflow")


def fresh(n_classes=N_CLASSES):
    return new_autocorrelation(n_classes, notes.NOTES)


def learn(state, key, label, n=N_CLASSES, proba=None):
    """Predict and learn an event."""
    proba = np.full(n, 1.0 / n) if proba is None else proba.copy()
    add_autocorrelation(state, n, proba)
    note(state, key)
    learn_autocorrelation(state, key, n, label, label)
    return proba


def frequencies(labels, recent, k):
    """Return decayed frequencies after k labels, by a loop over all labels.

    Contexts that share a row are one context.
    """
    weights = np.zeros(N_CLASSES)
    padded = [-1] * notes.LAGS + list(labels)

    def row(labels):
        return baselines.context(np.array(labels, np.int64), k) if k else 0

    for i, label in enumerate(labels):
        before = padded[i : i + notes.LAGS][::-1]
        if row(before) == row(recent):
            weights[label] += baselines.DECAY ** (len(labels) - i)
    below = frequencies(labels, recent, k - 1) if k else np.full(N_CLASSES, 1.0 / N_CLASSES)
    return (weights + below) / (weights.sum() + 1.0)


@settings(max_examples=10)
@given(st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=60))
def test_contexts_are_predicted_by_decayed_frequencies(labels):
    state, shares = fresh(), np.full(baselines.PREDICTORS, 1.0 / baselines.PREDICTORS)
    for i, label in enumerate(labels):
        learn(state, float(i), label)
        shares *= state.predicted[:, label]
        shares = (1.0 - baselines.SWITCH_RATE) * shares / shares.sum() + baselines.SWITCH_RATE / len(shares)
        np.testing.assert_allclose(state.shares, shares, rtol=1e-6)
    recent = state.recent
    assert recent.tolist() == ([-1] * notes.LAGS + labels)[: -notes.LAGS - 1 : -1]
    add_autocorrelation(state, N_CLASSES, np.full(N_CLASSES, 1.0 / N_CLASSES))
    base = frequencies(labels, recent, 0)
    np.testing.assert_allclose(state.base, base, rtol=1e-9)
    for j, k in ((baselines.CONTEXTS, notes.LAGS), (baselines.LAST_CONTEXT, 1)):
        np.testing.assert_allclose(state.predicted[j], frequencies(labels, recent, k), rtol=1e-9)
    np.testing.assert_allclose(state.predicted.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(state.expected, state.shares @ state.predicted, rtol=1e-9)
    np.testing.assert_allclose(state.lifts, np.log(state.expected / base), atol=1e-6)


@settings(max_examples=5)
@given(st.lists(st.integers(0, N_CLASSES - 1), min_size=2, max_size=60))
def test_the_last_label_is_predicted_by_the_share_of_repeated_labels(labels):
    state = fresh()
    for i, label in enumerate(labels):
        learn(state, float(i), label)
    weights = baselines.REPEAT_DECAY ** np.arange(len(labels) - 2, -1, -1.0)
    same = np.equal(labels[1:], labels[:-1])
    stays = (weights[same].sum() + 1.0) / (weights.sum() + 2.0)
    add_autocorrelation(state, N_CLASSES, np.full(N_CLASSES, 1.0 / N_CLASSES))
    for j in (baselines.LAST, baselines.LAST_EVENLY):
        assert state.predicted[j, labels[-1]] == pytest.approx(stays)


def test_a_cycle_is_predicted_though_most_labels_are_missing():
    n, state, label, least = 12, fresh(12), 0, 0.0
    rng, losses, gaps = np.random.default_rng(0), [], 0.3 * 0.7 ** np.arange(500.0)
    for i in range(2_000):
        label = (label + int(rng.geometric(0.3))) % n
        losses.append(-np.log(learn(state, float(i), label, n)[label]))
    for gap in range(n):
        share = gaps[gap::n].sum()
        least -= share * np.log(share)
    assert np.mean(losses[1_000:]) < least + 0.1


@pytest.mark.parametrize("season", [5, baselines.MOST_SEASON])
def test_a_season_is_found(season):
    pattern = np.random.default_rng(season).integers(N_CLASSES, size=season)
    state = fresh()
    for i in range(season + 500):
        learn(state, float(i), int(pattern[i % season]))
    assert state.season == season
    assert learn(state, -1.0, 0)[pattern[(season + 500) % season]] > 0.9


@pytest.mark.parametrize("stay", [0.0, 0.9])
def test_no_season_is_found_without_one(stay):
    rng, state, label = np.random.default_rng(2), fresh(), 0
    for i in range(800):
        label = label if rng.random() < stay else int(rng.integers(N_CLASSES))
        learn(state, float(i), label)
        assert state.season == 0 or i < 500


def test_the_step_is_the_gradient_of_the_log_loss():
    rng = np.random.default_rng(0)
    state = fresh()
    for i in range(300):
        learn(state, float(i), i % 3, proba=rng.dirichlet(np.ones(N_CLASSES)))
    state.inverse_temperature, state.exponent = 1.3, 0.4

    def loss(beta, exponent, label):
        state.inverse_temperature, state.exponent = beta, exponent
        combine(state, N_CLASSES)
        return -np.log(state.mixtures[autocorrelation.CORRECTED, label])

    def step(gradient):
        return -TEMPERATURE_RATE * float(np.clip(gradient, -MOST_SURPRISE, MOST_SURPRISE))

    for label in range(N_CLASSES):
        by_beta = (loss(1.3 * np.exp(1e-3), 0.4, label) - loss(1.3 * np.exp(-1e-3), 0.4, label)) / 2e-3 / 1.3
        by_exponent = (loss(1.3, 0.4 + 1e-3, label) - loss(1.3, 0.4 - 1e-3, label)) / 2e-3
        loss(1.3, 0.4, label)
        learn_exponent(state, N_CLASSES, label)
        assert np.log(state.inverse_temperature / 1.3) == pytest.approx(step(by_beta), abs=3e-6)
        assert state.exponent - 0.4 == pytest.approx(step(by_exponent), abs=3e-6)


def losses(state, labels, delay=0):
    """Return the log loss per event of an uninformative vote, with late labels."""
    out = []
    for i in range(len(labels) + delay):
        if i < len(labels):
            proba = np.full(N_CLASSES, 1.0 / N_CLASSES)
            add_autocorrelation(state, N_CLASSES, proba)
            note(state, float(i + 1))
            out.append(-np.log(proba[labels[i]]))
        if i >= delay:
            add_autocorrelation(state, N_CLASSES, np.full(N_CLASSES, 1.0 / N_CLASSES))
            label = int(labels[i - delay])
            learn_autocorrelation(state, float(i + 1 - delay), N_CLASSES, label, label)
    return np.array(out)


UNINFORMED = np.log(N_CLASSES)


def test_labels_that_become_random_cost_little():
    labels = np.arange(1_400) % 24 % N_CLASSES
    labels[700:] = np.random.default_rng(0).permutation(labels[700:])
    loss = losses(fresh(), labels, delay=7)
    assert loss[500:700].mean() < 0.01
    assert loss[700:].sum() - 700 * UNINFORMED < 150.0
    assert loss[1_200:].mean() < UNINFORMED + 0.003


def test_late_labels_that_miss_one_turn_together_do_not_end_its_use():
    labels = np.arange(1_000) // 50 % N_CLASSES
    assert losses(fresh(), labels, delay=7)[500:].mean() < 0.6 * UNINFORMED


def test_the_most_accurate_answer_gets_the_largest_probability():
    """The vote is right in two of three events; the last label nearly always."""
    state = fresh()
    for i in range(1_000):
        label = i // 40 % N_CLASSES
        proba = np.full(N_CLASSES, 0.01)
        proba[label if i % 3 else (label + 1) % N_CLASSES] = 0.96
        answer = np.argmax(learn(state, float(i), label, proba=proba))
        if i > 500 and i % 40:
            assert answer == label
    np.testing.assert_allclose(state.accuracies[autocorrelation.BY_VOTE], 2.0 / 3.0, atol=0.02)


def test_counts_do_not_overflow():
    state = fresh()
    counts = state.counts
    for i in range(300):
        learn(state, float(i), i % 2)
    before = counts / state.increment
    state.increment *= 0.9999 * baselines.LARGE
    counts *= 0.9999 * baselines.LARGE
    learn(state, 0.0, 0)
    assert state.increment == 1.0
    assert counts.max() < 2.0 * before.max()


@settings(max_examples=8)
@given(st.integers(0, 40), st.integers(0, 5), st.randoms(use_true_random=False))
def test_notes_are_found_in_the_order_of_events(delay, n_lost, random):
    """Each event finds the record of its prediction; some events get no label."""
    state = fresh()
    waiting = []
    for i in range(120):
        state.recent[0] = i % N_CLASSES
        note(state, float(i))
        if random.random() >= 0.1 * n_lost:
            waiting.append(i)
        if waiting and waiting[0] <= i - delay:
            event = waiting.pop(0)
            at = recall(state, float(event))
            assert state.noted[at, 0] == event % N_CLASSES
            drop(state, float(event))


def test_too_many_notes_push_out_the_oldest():
    state = fresh()
    for i in range(notes.NOTES + 10):
        note(state, float(i))
        if i:
            note(state, float(i))  # the same event again: no second record
        state.n_fresh, state.n_learned = 0, i + 1  # an event is learned
    assert recall(state, 9.0) == notes.UNKNOWN
    assert recall(state, 10.0) >= 0
    drop(state, notes.NOTES + 9.0)
    assert recall(state, 11.0) == notes.NOW
    assert not state.keys.any()
    assert not state.noted.any()
