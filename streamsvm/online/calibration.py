"""Calibration: the inverse temperatures of probabilities, and what these are worth where labels are noisy.

An inverse temperature follows the gradient of the log loss in its logarithm, which is the log probability of the label
plus the entropy: up where labels are likelier than the probabilities have it, else down.

Where labels are noisy, or cannot be told, a share of them is as if drawn at random. A temperature alone makes all
probabilities sharper or softer. Where four labels in ten are drawn at random, though, even the surest prediction is
right no more often than noise lets it be, while unsure ones are as unsure as before: with p the probabilities of n
classes,

    q(c) = (1 - noise) p(c)^sharpness / sum p^sharpness + noise / n.

Sharpness and the odds of noise follow the natural gradient of the log loss: their steps are those of least squares with
the information that about the last MEMORY labels had of both, since the one makes up for the other over a long way on
which the plain gradient hardly moves. q is heard only while its log loss of late is less than that of p. The order of
classes is that of p.

Notes
-----
S. Amari, "Natural gradient works efficiently in learning", 1998. Labels that are drawn at random with some probability,
as a link: A. Copas, "Binary regression models for contaminated data", J. R. Stat. Soc. B 50, 1988.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import best_class, fast_softmax_terms, scale_terms
from streamsvm.core.math import log_of, most_loss, moved
from streamsvm.core.schema import Array, Number, Schema
from streamsvm.core.simd import uint
from streamsvm.core.state import State

# Single learners take one label in so many: of the first ones, and of those after them.
FIRST_SAMPLE, FIRST_EVENTS, SAMPLE = 4, 2_000, 8
# Over how many of the labels taken it goes: where these are samples, what has changed shows later.
MEMORY, SAMPLED_MEMORY = 1_000.0, 250.0
# Information on both begins as if there had been so much information.
FIRST_INFORMATION = 3.0
# The longest step of either logarithm.
MOST_STEP = 0.1
LEAST_SHARPNESS, MOST_SHARPNESS = 0.1, 10.0
FIRST_ODDS, LEAST_ODDS, MOST_ODDS = 0.25, 0.001, 50.0
# By so much log loss it must be better to be heard; it begins as if it had been worse.
MARGIN, CAUTION = 0.001, 0.005
# That goes over so many of the labels taken; of single learners fewer: what is better for them through a drift need not
# be so after it.
HEARING, SAMPLED_HEARING = 1_000.0, 75.0
# No probability is taken for less, nor a label for less likely.
LEAST_PROBABILITY, LEAST_LIKELY = 1e-12, 1e-6

_INFORMATION = 1e9
LEAST_LOG, LEAST_LIKELY_LOG = math.log(LEAST_PROBABILITY), math.log(LEAST_LIKELY)
_GAIN = most_loss(LEAST_LIKELY)

# The step of an inverse temperature, its range, and how far one label may move it, in steps.
TEMPERATURE_RATE, LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE, MOST_SURPRISE = 0.01, 0.1, 10.0, 5.0


def inverse_temperature(
    text: str, least: float = LEAST_INVERSE_TEMPERATURE, most: float = MOST_INVERSE_TEMPERATURE
) -> Number:
    """The schema entry of an inverse temperature that is learned."""
    return Number(text, start=1.0, saved=True, bounds=(least, most))


@inlined
def surprise(values, proba, n, label):
    """How far the value of a label is above the mean of n classes by their probabilities, as far as it may count.

    Of log probabilities it is the gradient of the label's in the logarithm of the inverse temperature.
    """
    found = values[label]
    for c in range(n):
        found -= proba[c] * values[c]
    return min(max(found, -MOST_SURPRISE), MOST_SURPRISE)


@inlined
def stepped(value, step, least, most):
    """A number whose logarithm goes a short step, within bounds."""
    return min(max(moved(value, step), least), most)


@inlined
def calibrated(beta, logs, proba, n, label):
    """An inverse temperature after the label of an event with such probabilities, by their logarithms at 1."""
    step = TEMPERATURE_RATE * surprise(logs, proba, n, label)
    return stepped(beta, step, LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE)


CALIBRATION = Schema(
    "calibration",
    {
        "sharpness": Number(
            "the exponent of the probabilities", start=1.0, saved=True, bounds=(LEAST_SHARPNESS, MOST_SHARPNESS)
        ),
        "odds": Number(
            "of a label that is as if drawn at random", start=FIRST_ODDS, saved=True, bounds=(LEAST_ODDS, MOST_ODDS)
        ),
        "of_sharpness": Number(
            "the information of late on its logarithm",
            start=FIRST_INFORMATION,
            saved=True,
            bounds=(FIRST_INFORMATION / 2.0, _INFORMATION),
        ),
        "of_odds": Number(
            "that on theirs",
            start=FIRST_INFORMATION,
            saved=True,
            bounds=(FIRST_INFORMATION / 2.0, _INFORMATION),
        ),
        "of_both": Number("that they share", saved=True, bounds=(-_INFORMATION, _INFORMATION)),
        "gain": Number(
            "the decayed log loss without this, less that with it", start=-CAUTION, saved=True, bounds=(-_GAIN, _GAIN)
        ),
        "memory": Number("about how many labels the information rests on"),
        "hearing": Number("about how many the gain rests on"),
        "others": Number("for how many classes the last one stands, equally likely", start=1.0),
        "logs": Array(("classes",), "the logarithms of the probabilities as they were, of one class each"),
        "sharp": Array(("classes",), "the probabilities where labels are not drawn at random"),
        "mixed": Array(("classes",), "those of all labels"),
    },
)


def new_calibration(n_classes: int, memory: float, hearing: float) -> State:
    """One for so many classes, that has not learned yet: over how many labels it learns, and is heard."""
    state = State(CALIBRATION, {"classes": n_classes})
    state.memory, state.hearing = memory, hearing
    return state


def of_sampled(n_classes: int) -> State:
    """One of which some labels are taken only."""
    return new_calibration(n_classes, SAMPLED_MEMORY, SAMPLED_HEARING)


@inlined
def is_sampled(seen):
    """Whether a single learner takes the label of the next event, after so many."""
    n = np.int64(seen)
    return n % (FIRST_SAMPLE if n < FIRST_EVENTS else SAMPLE) == 0


@inlined
def is_used(state):
    """Whether it makes probabilities better, of late."""
    return state.gain > MARGIN


def noise_of(state: State) -> float:
    """The share of labels that are as if drawn at random, 0 where that is not heard."""
    return float(state.odds / (1.0 + state.odds)) if state.gain > MARGIN else 0.0


def begin_with(state: State, noise: float, sharpness: float = 1.0) -> None:
    """Have a share of labels be noise from the beginning, if it is any, and probabilities so much sharper then."""
    if noise > 0.0:
        state.sharpness = min(max(sharpness, LEAST_SHARPNESS), MOST_SHARPNESS)
        state.odds = min(max(noise / (1.0 - noise), LEAST_ODDS), MOST_ODDS)
        state.gain = CAUTION


@inlined
def share_of(state, c, n):
    """The share of class c among all where none is likelier."""
    return (state.others if c == n - 1 else 1.0) / (n - 1 + state.others)


@kernel
def mix(state, n, proba):
    """What the probabilities of n classes are worth."""
    logs, others = state.logs, state.others
    for c in range(n):
        logs[c] = log_of(max(proba[c] if c < n - 1 else proba[c] / others, LEAST_PROBABILITY))
    mix_logs(state, n)


@inlined
def mix_logs(state, n):
    """What the probabilities with the current logarithms are worth."""
    logs, sharp, mixed, others = state.logs, state.sharp, state.mixed, state.others
    for c in range(n):
        sharp[c] = state.sharpness * logs[c]
    if others > 1.0:
        sharp[n - 1] += math.log(others)
    total = fast_softmax_terms(sharp, 0, n, 1.0, sharp, 0)
    scale_terms(sharp, 0, n, 1.0 / total)
    noise = state.odds / (1.0 + state.odds)
    for c in range(n):
        mixed[c] = (1.0 - noise) * sharp[c] + noise * share_of(state, c, n)


@inlined
def allow_for_noise(state, n, others, proba):
    """Put what they are worth in the place of the probabilities of n classes, where that is heard."""
    state.others = others
    if is_used(state):
        mix(state, n, proba)
        for c in range(n):
            proba[c] = state.mixed[c]


@inlined
def find_softmax(state, scores, n, beta, proba):
    """The same of the softmax of beta times n scores, which needs no logarithms: their exponents are known."""
    sharpness, noise = 1.0, 0.0
    if is_used(state) and n > 1:
        sharpness, noise = state.sharpness, state.odds / (1.0 + state.odds)
    total = fast_softmax_terms(scores, 0, n, beta * sharpness, proba, 0)
    share, rest = (1.0 - noise) / total, noise / n
    for c in range(n):
        proba[uint(c)] = share * proba[uint(c)] + rest


@kernel
def learn_noise(state, n, label, proba):
    """Take the label of an event, right after noise was allowed for in its probabilities."""
    if not is_used(state):
        mix(state, n, proba)
    learn_mixed(state, n, label)


@kernel
def learn_softmax(state, scores, n, beta, label):
    """Take the label of an event whose probabilities are the softmax of beta times n scores."""
    logs, top = state.logs, scores[best_class(scores, 0, n)]
    of_total = log_of(fast_softmax_terms(scores, 0, n, beta, logs, 0))
    for c in range(n):
        logs[c] = max(beta * (scores[c] - top) - of_total, LEAST_LOG)
    mix_logs(state, n)
    learn_mixed(state, n, label)


@kernel
def learn_mixed(state, n, label):
    """Take the label of an event whose calibrated probabilities are known."""
    logs, sharp, mixed, noise = state.logs, state.sharp, state.mixed, state.odds / (1.0 + state.odds)
    count = state.others if label == n - 1 else 1.0
    gain = log_of(max(mixed[label] / count, LEAST_LIKELY)) - max(logs[label], LEAST_LIKELY_LOG)
    middle, keep = 0.0, 1.0 - 1.0 / state.memory
    state.gain += (gain - state.gain) / state.hearing
    for c in range(n):
        middle += sharp[c] * logs[c]
    p = keep * state.of_sharpness + (1.0 - keep) * FIRST_INFORMATION
    q = keep * state.of_odds + (1.0 - keep) * FIRST_INFORMATION
    r = keep * state.of_both
    by_sharpness = by_odds = 0.0
    for c in range(n):
        a = (1.0 - noise) * state.sharpness * sharp[c] * (logs[c] - middle)
        b = (1.0 - noise) * noise * (share_of(state, c, n) - sharp[c])
        share = 1.0 / mixed[c]
        p += share * a * a
        q += share * b * b
        r += share * a * b
        if c == label:
            by_sharpness, by_odds = share * a, share * b
    state.of_sharpness, state.of_odds, state.of_both = p, q, r
    step_both(state, by_sharpness, by_odds)


@inlined
def step_both(state, by_sharpness, by_odds):
    """A step of both by the natural gradient."""
    p, q, r = state.of_sharpness, state.of_odds, state.of_both
    det = p * q - r * r
    first, second = (q * by_sharpness - r * by_odds) / det, (p * by_odds - r * by_sharpness) / det
    first, second = min(max(first, -MOST_STEP), MOST_STEP), min(max(second, -MOST_STEP), MOST_STEP)
    state.sharpness = stepped(state.sharpness, first, LEAST_SHARPNESS, MOST_SHARPNESS)
    state.odds = stepped(state.odds, second, LEAST_ODDS, MOST_ODDS)
