"""Vote of a learner and refitted models, against its plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streamsvm.core.state import State
from streamsvm.refit import vote_kernels as kernels
from streamsvm.refit.frozen_models import QUERY
from streamsvm.refit.refitted_model import best_inverse_temperature, tempered

N, CLASSES, PLACES = 1_500, 3, 7
Floats = NDArray[np.float64]


def new_vote(n_models: int) -> State:
    """The vote of a learner and some new models."""
    state = State(kernels.MODEL_VOTE, {"members": PLACES, "classes": CLASSES})
    learner = state.members[0]
    learner.present, learner.active, learner.weight = 1, 1, 1.0
    state.n_classes = CLASSES
    for _ in range(n_models):
        kernels.add_member(state, CLASSES)
    return state


def vote(state: State, answers: Floats, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    n = len(labels)
    codes, proba = np.zeros(n, np.int64), np.zeros((n, CLASSES))
    votes = State(kernels.VOTES, parts={"query": State(QUERY)})
    votes.parts["query"].bind(asked=np.zeros((PLACES, n), np.int64), proba=answers)
    votes.bind(labels=labels, codes=codes, proba=proba)
    votes.bind(models=np.zeros(PLACES, kernels.MODEL))
    first = 0
    while first < n:
        end = kernels.evaluate_models(state, votes, first)
        kernels.vote_on_rows(state, votes, first, end)
        first = end
    return codes, proba


class Twin:
    """The vote as defined in the module; models are added one by one."""

    def __init__(self, n_models: int) -> None:
        self.weight = np.array([1.0])
        for _ in range(n_models):
            self.weight = np.append(
                self.weight / self.weight.sum() * (1.0 - kernels.FIRST_WEIGHT), kernels.FIRST_WEIGHT
            )
        self.active = np.ones(1 + n_models, bool)
        self.advantage, self.seen = 0.0, 0

    def step(self, answers: Floats, label: int) -> Floats:
        n = len(self.weight)
        proba = answers[:n]
        vote = self.weight[self.active] @ proba[self.active] / self.weight[self.active].sum()
        chosen = vote if self.advantage > kernels.MARGIN else proba[0]
        gain = float(vote.argmax() == label) - float(proba[0].argmax() == label)
        self.advantage += kernels.RATE * (gain - self.advantage)
        sampled = (self.seen + np.arange(n)) % kernels.SAMPLE == 0
        likelihood = np.where(self.active | sampled, proba[:, label], vote[label])
        self.weight *= np.maximum(likelihood, kernels.LEAST_PROBABILITY) ** kernels.LEARNING_RATE
        self.weight = (1.0 - kernels.SHARE) * self.weight / self.weight.sum() + kernels.SHARE / n
        self.seen += 1
        if self.seen % kernels.BLOCK == 0:
            heaviest = 1 + np.argsort(-self.weight[1:], kind="stable")[: kernels.MOST_ACTIVE]
            for k in range(1, n):
                if k in heaviest and self.weight[k] > kernels.SHARE + kernels.LEAST_WEIGHT:
                    self.active[k] = True
                elif self.seen >= kernels.FIRST_EVENTS:
                    self.active[k] = False
        return np.array(chosen)


def stream(seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """The most accurate voter changes: the learner, then one model, then others."""
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
    state, twin = new_vote(PLACES - 1), Twin(PLACES - 1)
    _, proba = vote(state, answers, labels)
    expected = np.array([twin.step(answers[:, i], int(labels[i])) for i in range(N)])
    np.testing.assert_allclose(proba, expected, atol=1e-9)
    np.testing.assert_allclose(state.members.weight, twin.weight, atol=1e-9)
    assert state.members.active.tolist() == twin.active.tolist()
    assert not state.members.active[3]  # an uninformative model
    assert state.members.active[1:].sum() <= kernels.MOST_ACTIVE
    assert (proba.argmax(axis=1) == labels)[1_200:].mean() > 0.85


@pytest.mark.parametrize("advantage", [0.0, 1.0])
def test_without_active_models_the_probabilities_are_the_learners_bit_for_bit(advantage: float):
    answers, _ = stream(0)
    state = new_vote(3)
    state.members.active[1:] = 0
    state.members.weight[:] = 0.1  # multiplying and dividing by 0.1 changes a number
    state.advantage = advantage
    _, proba = vote(state, answers, np.full(N, -1))
    np.testing.assert_array_equal(proba, answers[0])


def test_a_new_model_replaces_the_one_of_least_recent_weight():
    answers, labels = stream(0)
    state = new_vote(PLACES - 1)
    vote(state, answers, labels)
    least = 1 + int(np.argmin(state.members.use[1:]))
    assert kernels.add_member(state, CLASSES) == least
    assert state.members.weight.sum() == pytest.approx(1.0)
    assert state.members.weight[least] == pytest.approx(kernels.FIRST_WEIGHT)


def test_similar_models_that_are_slightly_worse_do_not_outvote_the_learner():
    assert np.mean([lost_to_models_that_are_alike(seed) for seed in range(3)]) < 0.0015


def lost_to_models_that_are_alike(seed: int) -> float:
    """Return the accuracy lost to votes of worse models that nearly always agree."""
    n, rng = 20_000, np.random.default_rng(seed)
    labels, answers = rng.integers(0, CLASSES, n), np.full((PLACES, n, CLASSES), 0.05)
    learner = np.where(rng.random(n) < 0.64, labels, rng.integers(0, CLASSES, n))
    alike = np.where(rng.random(n) < 0.62, labels, rng.integers(0, CLASSES, n))
    said = np.where(rng.random((PLACES, n)) < 0.02, rng.integers(0, CLASSES, (PLACES, n)), alike)
    said[0] = learner
    np.put_along_axis(answers, said[:, :, None], 0.9, axis=2)
    _, proba = vote(new_vote(3), answers, labels)
    return float((learner == labels).mean() - (proba.argmax(axis=1) == labels).mean())


@pytest.mark.parametrize("beta", [0.5, 1.0, 40.0])
def test_the_inverse_temperature_of_probabilities_is_found(beta):
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(CLASSES), 4_000)
    labels = (true.cumsum(axis=1) > rng.random((len(true), 1))).argmax(axis=1)
    assert best_inverse_temperature(tempered(true, 1.0 / beta), labels) == pytest.approx(beta, rel=0.1)


def test_models_without_errors_on_few_events_are_not_certain():
    labels = np.arange(64) % CLASSES
    proba = np.where(np.arange(CLASSES) == labels[:, None], 0.4, 0.3)
    found = tempered(proba, best_inverse_temperature(proba, labels))
    assert 0.98 < found.max() < 0.995
