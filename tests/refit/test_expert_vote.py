"""The votes of a panel, against a twin that reads like their description."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streamsvm.core.math import moved
from streamsvm.core.state import State
from streamsvm.online import calibration
from streamsvm.refit import expert_vote as kernels

N, CLASSES, PLACES = 1_500, 3, 7
Floats = NDArray[np.float64]


def new_panel(present: tuple[int, ...]) -> State:
    """A panel of the learner and those who are present, who begin as newcomers do."""
    sizes = {"experts": PLACES, "classes": CLASSES, "stretches": kernels.STRETCHES}
    panel = State(kernels.PANEL, sizes)
    panel.n_classes = CLASSES
    panel.experts[0].present, panel.experts[0].share = 1, 1.0
    for k in present:
        place = panel.experts[k]
        place.present, place.lead, place.share = 1, -kernels.CAUTION, kernels.FIRST_SHARE
        place.awake_until = kernels.AWAKE_LEAST
    return panel


def vote(panel: State, answers: Floats, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    n = len(labels)
    codes, proba = np.zeros(n, np.int64), np.zeros((n, CLASSES))
    ballot = State(kernels.BALLOT)
    ballot.lend(labels=labels, answers=answers, codes=codes, scores=np.zeros(n), proba=proba, errors=np.zeros(n))
    at = 0
    while at < n:
        at = kernels.vote_on_rows(panel, ballot, at)
    return codes, proba


class Twin:
    """The two votes as the module describes them."""

    def __init__(self, present: tuple[int, ...]) -> None:
        self.present = [0, *present]
        self.lead = {k: 0.0 if k == 0 else -kernels.CAUTION for k in self.present}
        self.share = {k: 1.0 if k == 0 else kernels.FIRST_SHARE for k in self.present}
        self.beta = dict.fromkeys(self.present, 1.0)
        self.asleep = dict.fromkeys(self.present, False)
        self.until = {k: 0.0 if k == 0 else kernels.AWAKE_LEAST for k in self.present}
        self.heard = dict.fromkeys(self.present, 0)
        self.first_right = self.second_right = self.gain = self.now = self.long = 0.0
        self.is_mute = False
        self.seen = 0

    def step(self, answers: Floats, label: int) -> Floats:
        said = {}
        for k in self.present:
            raised = np.maximum(answers[k], 1e-6) ** self.beta[k]
            said[k] = answers[0] if k == 0 else raised / raised.sum()
        awake = [k for k in self.present if not self.asleep[k]]
        first = sum(math.exp(kernels.VOTE_SHARPNESS * self.lead[k]) * said[k] for k in awake)
        second = sum(self.share[k] * said[k] for k in awake)
        first, second = first / first.sum(), second / second.sum()
        heard = second if self.second_right > self.first_right + kernels.MARGIN else first
        chosen = answers[0] if self.is_mute else heard
        gain = float(heard.argmax() == label) - float(answers[0].argmax() == label)
        self.gain += kernels.GAIN_RATE * (gain - self.gain)
        self.is_mute = self.gain < (0.0 if self.is_mute else kernels.LEAST_GAIN)
        self.learn(said, first, second, chosen, label)
        return np.asarray(chosen)

    def learn(self, said: dict[int, Floats], first: Floats, second: Floats, chosen: Floats, label: int) -> None:
        self.first_right += kernels.RATE * ((first.argmax() == label) - self.first_right)
        self.second_right += kernels.RATE * ((second.argmax() == label) - self.second_right)
        right = {k: float(said[k].argmax() == label) for k in self.present}
        heard = [k for k in self.present if not self.asleep[k] or (self.seen + k) % kernels.ASLEEP_SAMPLE == 0]
        for k in heard[1:]:
            self.heard[k] += 1
            rate = max(1.0 / 500.0, 1.0 / (self.heard[k] + kernels.CAUTION_EVENTS))
            rate = min(3.0 * rate, 1.0) if self.asleep[k] else rate
            self.lead[k] += rate * (right[k] - right[0] - self.lead[k])
            logs = np.log(said[k])
            gradient = max(logs[label] - float(said[k] @ logs), -calibration.MOST_SURPRISE)
            beta = moved(self.beta[k], calibration.TEMPERATURE_RATE * gradient)
            self.beta[k] = min(max(beta, calibration.LEAST_INVERSE_TEMPERATURE), calibration.MOST_INVERSE_TEMPERATURE)
        says = {k: max((said[k] if k in heard else second)[label], kernels.LEAST_PROBABILITY) for k in self.present}
        gained = {k: self.share[k] * says[k] for k in self.present}
        for k in self.present:
            kept = (1.0 - kernels.SHARE) * gained[k] / sum(gained.values())
            self.share[k] = kept + kernels.SHARE / len(self.present)
        self.look_after(float(chosen.argmax() == label))

    def look_after(self, right: float) -> None:
        self.seen += 1
        self.now += max(kernels.NOW_RATE, 1.0 / self.seen) * (right - self.now)
        self.long += max(kernels.LONG_RATE, 1.0 / self.seen) * (right - self.long)
        if self.seen % kernels.BLOCK:
            return
        spread = self.long * (1.0 - self.long) * kernels.NOW_RATE / (2.0 - kernels.NOW_RATE)
        is_changed = self.now < self.long - kernels.CHANGE * math.sqrt(spread)
        top = max(0.0, *self.lead.values())
        say = {
            k: max(math.exp(kernels.VOTE_SHARPNESS * (self.lead[k] - top)), self.share[k] - kernels.SHARE)
            for k in self.present[1:]
        }
        best = sorted(say, key=lambda k: -say[k])[: kernels.AWAKE_MOST]
        for k in self.present[1:]:
            if is_changed and self.asleep[k]:
                self.asleep[k], self.until[k] = False, self.seen + kernels.AWAKE_AGAIN
            if say[k] >= kernels.LEAST_SAY and k in best:
                self.asleep[k] = False
            elif self.seen >= self.until[k]:
                self.asleep[k] = True


def stream(seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Who is right changes: the learner, then one of the others, then another."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, N)
    answers = rng.dirichlet(np.ones(CLASSES), (PLACES, N))
    knows = np.array([0.7, 0.5, 0.5, 0.1, 0.68, 0.69, 0.7])[:, None] * np.ones(N)
    knows[:, 600:1_000] = np.array([0.3, 0.9, 0.4, 0.1, 0.3, 0.89, 0.3])[:, None]
    knows[:, 1_000:] = np.array([0.4, 0.2, 0.9, 0.1, 0.88, 0.9, 0.89])[:, None]
    sure = np.full((N, CLASSES), 0.05)
    sure[np.arange(N), labels] = 0.9
    return np.where((rng.random((PLACES, N)) < knows)[:, :, None], sure, answers), labels


@pytest.mark.parametrize("seed", range(3))
def test_votes_are_those_of_the_twin(seed):
    answers, labels = stream(seed)
    everybody = tuple(range(1, PLACES))
    panel, twin = new_panel(everybody), Twin(everybody)
    _, proba = vote(panel, answers, labels)
    expected = np.array([twin.step(answers[:, i], int(labels[i])) for i in range(N)])
    np.testing.assert_allclose(proba, expected, atol=1e-9)
    np.testing.assert_allclose(panel.experts.lead, [twin.lead[k] for k in range(PLACES)], atol=1e-12)
    np.testing.assert_allclose(panel.experts.share, [twin.share[k] for k in range(PLACES)], atol=1e-9)
    np.testing.assert_allclose(panel.experts.inverse_temperature, [twin.beta[k] for k in range(PLACES)], rtol=1e-9)
    assert panel.experts.asleep.tolist() == [twin.asleep[k] for k in range(PLACES)]
    assert panel.experts.asleep[3]  # who knows nothing ends asleep
    assert (panel.experts.asleep[1:] == 0).sum() <= kernels.AWAKE_MOST  # and so do those who know no more than others
    assert (proba.argmax(axis=1) == labels)[1_200:].mean() > 0.85


def test_rows_may_be_cut_anywhere():
    answers, labels = stream(0)
    whole, parts = new_panel((1, 2)), new_panel((1, 2))
    _, proba = vote(whole, answers, labels)
    found = [vote(parts, answers[:, a:b].copy(), labels[a:b].copy())[1] for a, b in ((0, 1), (1, 700), (700, N))]
    np.testing.assert_array_equal(np.vstack(found), proba)


@pytest.mark.parametrize("second_heard", [False, True])
def test_a_learner_that_is_heard_alone_is_repeated_to_the_last_bit(second_heard: Any):
    answers, _ = stream(0)
    answers[1:] = np.nan
    panel = new_panel((1, 2, 3))
    panel.experts.asleep[1:] = 1
    panel.experts.share[:] = 0.1  # times 0.1 and divided by it, a number is another
    panel.second_right = 1.0 if second_heard else 0.0
    _, proba = vote(panel, answers, np.full(N, -1))
    np.testing.assert_array_equal(proba, answers[0])


def test_it_stops_before_a_row_about_which_somebody_is_to_be_asked():
    answers, labels = stream(0)
    panel, n = new_panel((1, 2)), 9
    answers[1, 5:] = np.nan
    ballot = State(kernels.BALLOT)
    ballot.lend(labels=labels[:n], answers=answers[:, :n].copy(), codes=np.zeros(n, np.int64), scores=np.zeros(n))
    ballot.lend(proba=np.zeros((n, CLASSES)), errors=np.zeros(n))
    assert kernels.vote_on_rows(panel, ballot, 0) == 5
    panel.experts[1].asleep = 1
    assert kernels.vote_on_rows(panel, ballot, 5) == 7  # the turn of who is asleep


def test_experts_that_are_alike_and_hardly_worse_do_not_outvote_the_learner():
    # Without the look at whether votes gain, they cost four times as much.
    assert np.mean([lost_to_experts_that_are_alike(seed) for seed in range(5)]) < 0.0015


def lost_to_experts_that_are_alike(seed: int) -> float:
    """The accuracy lost by votes, where experts are right less often by two points, and nearly always all at once."""
    n, rng = 20_000, np.random.default_rng(seed)
    labels, answers = rng.integers(0, CLASSES, n), np.full((PLACES, n, CLASSES), 0.05)
    learner = np.where(rng.random(n) < 0.64, labels, rng.integers(0, CLASSES, n))
    alike = np.where(rng.random(n) < 0.62, labels, rng.integers(0, CLASSES, n))
    said = np.where(rng.random((PLACES, n)) < 0.02, rng.integers(0, CLASSES, (PLACES, n)), alike)
    said[0] = learner
    np.put_along_axis(answers, said[:, :, None], 0.9, axis=2)
    _, proba = vote(new_panel((1, 2, 3)), answers, labels)
    return float((learner == labels).mean() - (proba.argmax(axis=1) == labels).mean())
