"""Calibration of probabilities: inverse temperatures and label noise.

An inverse temperature follows the gradient of the log loss with respect to its logarithm. That gradient is the log
probability of the label plus the entropy: it is positive if labels are more probable than predicted.

A temperature alone cannot correct label noise, because it makes all probabilities sharper or softer. If 40 % of the
labels are random, the largest probability is correct at most as often as the noise allows. Smaller probabilities need
no such limit. The corrected probabilities of n classes with probabilities p are

    q(c) = (1 - noise) p(c)^beta / sum p^beta + noise / n.

The inverse temperature beta and the odds of noise follow the natural gradient of the log loss. The gradient uses the
Fisher information of the last MEMORY labels. The two parameters compensate for each other, so the plain gradient
converges slowly. The correction is active only while its recent log loss is lower than that of p. The order of the
classes does not change.

Notes
-----
S. Amari, "Natural gradient works efficiently in learning", 1998. The noise model is that of A. Copas, "Binary
regression models for contaminated data", J. R. Stat. Soc. B 50, 1988.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.jit import inlined, kernel, uint
from streamsvm.core.losses import best_class, fast_softmax_terms, scale_terms
from streamsvm.core.math import log_of, logs_of, most_loss, times_exp
from streamsvm.core.schema import Array, Number, Schema
from streamsvm.core.state import State

# Single learners calibrate on one event in FIRST_SAMPLE up to event FIRST_EVENTS, then on one in SAMPLE.
FIRST_SAMPLE, FIRST_EVENTS, SAMPLE = 4, 2_000, 8
# Labels over which the information decays; fewer of a sample, because each represents several events.
MEMORY, SAMPLED_MEMORY = 1_000.0, 250.0
# Initial information on each parameter, which also regularises the later estimates.
FIRST_INFORMATION = 3.0
# Maximum step of the logarithm of a parameter.
MOST_STEP = 0.1
FIRST_ODDS, LEAST_ODDS, MOST_ODDS = 0.25, 0.001, 50.0
# Gain in log loss from which the correction is active; the gain starts at -CAUTION.
MARGIN, CAUTION = 0.001, 0.005
# Labels over which the gain is averaged; fewer for single learners, where drift can end the gain.
GAIN_WINDOW, SAMPLED_GAIN_WINDOW = 1_000.0, 75.0
# Lower bounds of probabilities, and of the probability of the label in the gain.
LEAST_PROBABILITY, LEAST_LIKELY = 1e-12, 1e-6

_INFORMATION = 1e9
LEAST_LOG, LEAST_LIKELY_LOG = math.log(LEAST_PROBABILITY), math.log(LEAST_LIKELY)
_GAIN = most_loss(LEAST_LIKELY)

# Learning rate of an inverse temperature, its range, and the maximum gradient of one label.
TEMPERATURE_RATE, LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE, MOST_SURPRISE = 0.01, 0.1, 10.0, 5.0


def temperature_field(
    text: str, least: float = LEAST_INVERSE_TEMPERATURE, most: float = MOST_INVERSE_TEMPERATURE
) -> Number:
    """Create the schema field of a learned inverse temperature."""
    return Number(text, start=1.0, saved=True, bounds=(least, most))


@inlined
def surprise(values, proba, n, label):
    """Return values[label] minus the mean of n values, clipped to +-MOST_SURPRISE.

    The mean is weighted by `proba`. For log probabilities the result is the gradient of the label's log probability
    with respect to the logarithm of the inverse temperature.
    """
    found = values[label]
    for c in range(n):
        found -= proba[c] * values[c]
    return min(max(found, -MOST_SURPRISE), MOST_SURPRISE)


@inlined
def stepped(value, step, least, most):
    """Return value * exp(step), clipped to the bounds."""
    return min(max(times_exp(value, step), least), most)


@inlined
def calibrated(beta, logs, proba, n, label):
    """Return the inverse temperature after a label.

    `proba` are the probabilities at `beta`, and `logs` the log probabilities at an inverse temperature of 1.
    """
    step = TEMPERATURE_RATE * surprise(logs, proba, n, label)
    return stepped(beta, step, LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE)


CALIBRATION = Schema(
    "calibration",
    {
        "inverse_temperature": temperature_field("exponent of the probabilities"),
        "odds": Number("odds that a label is random", start=FIRST_ODDS, saved=True, bounds=(LEAST_ODDS, MOST_ODDS)),
        "of_temperature": Number(
            "recent Fisher information on log(inverse_temperature)",
            start=FIRST_INFORMATION,
            saved=True,
            bounds=(FIRST_INFORMATION / 2.0, _INFORMATION),
        ),
        "of_odds": Number(
            "recent Fisher information on log(odds)",
            start=FIRST_INFORMATION,
            saved=True,
            bounds=(FIRST_INFORMATION / 2.0, _INFORMATION),
        ),
        "of_both": Number("recent Fisher information shared by both", saved=True, bounds=(-_INFORMATION, _INFORMATION)),
        "gain": Number(
            "decayed reduction of the log loss by the correction", start=-CAUTION, saved=True, bounds=(-_GAIN, _GAIN)
        ),
        "memory": Number("number of labels over which the information decays"),
        "gain_window": Number("number of labels over which the gain decays"),
        "others": Number("number of equally likely classes that the last entry represents", start=1.0),
        "logs": Array(("classes",), "log probabilities before the correction, of a single class each"),
        "noiseless": Array(("classes",), "corrected probabilities of labels without noise"),
        "mixed": Array(("classes",), "corrected probabilities of noisy labels"),
    },
)


def new_calibration(n_classes: int, memory: float, gain_window: float) -> State:
    """Create an untrained calibration for `n_classes` classes.

    `memory` and `gain_window` are the numbers of labels over which the information and the gain decay.
    """
    state = State(CALIBRATION, {"classes": n_classes})
    state.memory, state.gain_window = memory, gain_window
    return state


def of_sampled(n_classes: int) -> State:
    """Create the calibration of a single learner, trained on a sample of events."""
    return new_calibration(n_classes, SAMPLED_MEMORY, SAMPLED_GAIN_WINDOW)


@inlined
def is_sampled(seen):
    """Return whether a single learner calibrates on the event after `seen` events."""
    n = np.int64(seen)
    return n % (FIRST_SAMPLE if n < FIRST_EVENTS else SAMPLE) == 0


@inlined
def is_used(state):
    """Return whether the correction has recently reduced the log loss."""
    return state.gain > MARGIN


def noise_of(state: State) -> float:
    """Return the estimated share of random labels, 0 if the correction is inactive."""
    return float(noise_share.py_func(state)) if is_used.py_func(state) else 0.0


def activate(state: State, noise: float, beta: float = 1.0) -> None:
    """Activate the correction, if the share of random labels is positive."""
    if noise > 0.0:
        state.inverse_temperature = min(max(beta, LEAST_INVERSE_TEMPERATURE), MOST_INVERSE_TEMPERATURE)
        state.odds = min(max(noise / (1.0 - noise), LEAST_ODDS), MOST_ODDS)
        state.gain = CAUTION


@inlined
def noise_share(state):
    """Return the share of random labels."""
    return state.odds / (1.0 + state.odds)


@inlined
def uniform_share(c, n, others):
    """Return the probability of entry c if all classes are equally likely.

    The last of n entries represents `others` classes.
    """
    return (float(others) if c == n - 1 else 1.0) / (n - 1 + others)


@kernel
def mix(state, n, proba):
    """Compute the corrected probabilities of n classes in `state.mixed`."""
    logs_of(proba, n, state.others, LEAST_PROBABILITY, state.logs)
    mix_logs(state, n)


@inlined
def mix_logs(state, n):
    """Compute the corrected probabilities from the log probabilities in `state.logs`."""
    logs, noiseless, mixed, others = state.logs, state.noiseless, state.mixed, state.others
    for c in range(n):
        noiseless[c] = state.inverse_temperature * logs[c]
    if others > 1.0:
        noiseless[n - 1] += math.log(others)
    total = fast_softmax_terms(noiseless, 0, n, 1.0, noiseless, 0)
    scale_terms(noiseless, 0, n, 1.0 / total)
    noise = noise_share(state)
    for c in range(n):
        mixed[c] = (1.0 - noise) * noiseless[c] + noise * uniform_share(c, n, others)


@inlined
def allow_for_noise(state, n, others, proba):
    """Replace the probabilities of n classes by the corrected ones, if active.

    The last entry represents `others` classes.
    """
    state.others = others
    if is_used(state):
        mix(state, n, proba)
        for c in range(n):
            proba[c] = state.mixed[c]


@inlined
def find_softmax(state, scores, n, beta, proba):
    """Compute the calibrated softmax of `beta * scores`, without logarithms."""
    exponent, noise = beta, 0.0
    if is_used(state) and n > 1:
        exponent, noise = beta * state.inverse_temperature, noise_share(state)
    total = fast_softmax_terms(scores, 0, n, exponent, proba, 0)
    share, rest = (1.0 - noise) / total, noise / n
    for c in range(n):
        proba[uint(c)] = share * proba[uint(c)] + rest


@kernel
def learn_noise(state, n, label, proba):
    """Update the correction with a label, directly after `allow_for_noise`."""
    if not is_used(state):
        mix(state, n, proba)
    learn_mixed(state, n, label)


@kernel
def learn_softmax(state, scores, n, beta, label):
    """Update the correction with a label, for probabilities softmax(beta * scores)."""
    logs, top = state.logs, scores[best_class(scores, 0, n)]
    of_total = log_of(fast_softmax_terms(scores, 0, n, beta, logs, 0))
    for c in range(n):
        logs[c] = max(beta * (scores[c] - top) - of_total, LEAST_LOG)
    mix_logs(state, n)
    learn_mixed(state, n, label)


@kernel
def learn_mixed(state, n, label):
    """Update the correction with a label, after `mix` or `mix_logs`."""
    logs, noiseless, mixed, noise = state.logs, state.noiseless, state.mixed, noise_share(state)
    count = state.others if label == n - 1 else 1.0
    gain = log_of(max(mixed[label] / count, LEAST_LIKELY)) - max(logs[label], LEAST_LIKELY_LOG)
    middle, keep = 0.0, 1.0 - 1.0 / state.memory
    state.gain += (gain - state.gain) / state.gain_window
    for c in range(n):
        middle += noiseless[c] * logs[c]
    of_temperature = keep * state.of_temperature + (1.0 - keep) * FIRST_INFORMATION
    of_odds = keep * state.of_odds + (1.0 - keep) * FIRST_INFORMATION
    of_both = keep * state.of_both
    by_temperature = by_odds = 0.0
    for c in range(n):
        d_temperature = (1.0 - noise) * state.inverse_temperature * noiseless[c] * (logs[c] - middle)
        d_odds = (1.0 - noise) * noise * (uniform_share(c, n, state.others) - noiseless[c])
        share = 1.0 / mixed[c]
        of_temperature += share * d_temperature * d_temperature
        of_odds += share * d_odds * d_odds
        of_both += share * d_temperature * d_odds
        if c == label:
            by_temperature, by_odds = share * d_temperature, share * d_odds
    state.of_temperature, state.of_odds, state.of_both = of_temperature, of_odds, of_both
    step_both(state, by_temperature, by_odds)


@inlined
def step_both(state, by_temperature, by_odds):
    """Take a natural gradient step of both parameters, given their gradients."""
    p, q, r = state.of_temperature, state.of_odds, state.of_both
    det = p * q - r * r
    first, second = (q * by_temperature - r * by_odds) / det, (p * by_odds - r * by_temperature) / det
    first, second = min(max(first, -MOST_STEP), MOST_STEP), min(max(second, -MOST_STEP), MOST_STEP)
    state.inverse_temperature = stepped(
        state.inverse_temperature, first, LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE
    )
    state.odds = stepped(state.odds, second, LEAST_ODDS, MOST_ODDS)
