"""Mixture of a prediction whose labels are late with three baselines.

Where labels persist about as long as they are late, an ensemble is almost certain of a class of the past. Its log loss
is then several times that of the class frequencies, and its accuracy below that of the last known label. Predictions p
are therefore combined with a pool,

    (1 - s) p + s (w_0 p + w_1 (class frequencies) + w_2 (last known label) + w_3 (equal probabilities)).

The weights w of the pool follow the likelihoods that its parts had when the event was predicted (online expectation
maximisation). The share s is 1 / (1 + exp(-a)), where a is the recent advantage of the pool over p in log loss, with
a least gain LEAST_GAIN per label, summed over independent labels. Labels of one run are not independent, and feedback
arrives only after the delay. The unit of evidence is therefore the smaller of the delay and the mean run of equal
labels, and the averages cover WINDOW delays.

The class named by the mixture replaces that of p unless p has been more accurate by CLASS_MARGIN.

Notes
-----
Learning rates have to decrease with the delay: M. Zinkevich, J. Langford and A. Smola, "Slow learners are fast", NIPS
2009.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import LEAST_BY_VOTE, best_class
from streamsvm.core.math import exp_below, log_of, most_loss
from streamsvm.core.schema import Array, Number, SchemaEntry, i64
from streamsvm.ensemble.label_baselines import find_frequencies, n_others, place_in

# Parts of the pool, and their initial and least weights.
PREDICTED, FREQUENCIES, LAST, EVENLY = range(4)
PARTS = 4
WEIGHT_AT_FIRST, LEAST_WEIGHT = 1.0 / PARTS, 1e-3
# Probability that the last label leaves to all classes together.
SPREAD = 1e-3
# Averages start as if over CAUTION units, and are over at most WINDOW delays of at least LEAST_DELAY labels.
CAUTION, WINDOW, LEAST_DELAY = 5, 20, 10
# Least number of labels in a unit of evidence, and rate of the share of labels that differ from the one before.
LEAST_UNIT, RUN_RATE = 2.0, 1e-3
# Least gain in log loss per label for the pool to count as better, and bound of its advantage.
LEAST_GAIN, MOST_ADVANTAGE = 0.03, 5.0
CLASS_MARGIN = 0.005
_SHARE = (0.0, 1.0)
_MOST_GAIN = most_loss(LEAST_BY_VOTE) + LEAST_GAIN
FIELDS: dict[str, SchemaEntry] = {
    "late_weights": Array(
        ("parts",),
        "weights of prediction, class frequencies, last label and equal probabilities in the pool",
        start=WEIGHT_AT_FIRST,
        saved=True,
        bounds=_SHARE,
    ),
    "late_gain": Number("mean gain of the pool in log loss", saved=True, bounds=(-_MOST_GAIN, _MOST_GAIN)),
    "late_advantage": Number(
        "advantage of the pool",
        start=-MOST_ADVANTAGE,
        saved=True,
        bounds=(-MOST_ADVANTAGE, MOST_ADVANTAGE),
    ),
    "late_accuracies": Array(
        ("late_answers",), "decayed accuracies of the prediction and of the mixture", saved=True, bounds=_SHARE
    ),
    "change_rate": Number(
        "decayed share of labels that differ from the one before", start=1.0, saved=True, bounds=_SHARE
    ),
    "named_first": Number("most probable class of the current event, as position", i64),
    "confidence": Number("its probability, without the pool"),
    "named_late": Number("most probable class of the mixture, as position", i64),
}


@inlined
def find_part(state, part, c, last, n):
    """Return the probability that a baseline gives to the class at position c, one of n.

    `last` is the position of the last known label, or -1.
    """
    if part == FREQUENCIES:
        return state.base[c]
    others = n_others(state, n)
    evenly = (float(others) if c == n - 1 else 1.0) / (n - 1 + others)
    if part == EVENLY or last < 0:
        return evenly
    return SPREAD * evenly + (1.0 - SPREAD if last == c else 0.0)


@inlined
def find_pooled(state, likelihood, c, last, n):
    """Return the probability of the pool for a class, given that of the prediction."""
    total = state.late_weights[PREDICTED] * likelihood
    for part in range(FREQUENCIES, PARTS):
        total += state.late_weights[part] * find_part(state, part, c, last, n)
    return total


@kernel
def mix_late(state, n, proba):
    """Replace the probabilities of n classes by the mixture if most labels are late, and note the most probable class.

    Without evidence for the pool, as before the first late label, the probabilities stay.
    """
    n_named = state.n_named if state.n_named > 0 else n
    best = best_class(proba, 0, n_named)
    state.named_first, state.confidence, state.named_late = best, proba[best], best
    if state.late <= 0.5 or state.late_advantage <= -MOST_ADVANTAGE:
        return
    find_frequencies(state, n)
    last = place_in(state, state.recent[0], n)
    # exp(-a) by a function of negative numbers.
    share = 1.0 / (1.0 + exp_below(-MOST_ADVANTAGE - state.late_advantage) / exp_below(-MOST_ADVANTAGE))
    for c in range(n):
        proba[c] += share * (find_pooled(state, proba[c], c, last, n) - proba[c])
    state.named_late = largest = best_class(proba, 0, n_named)
    if state.late_accuracies[0] > state.late_accuracies[1] + CLASS_MARGIN:
        proba[largest], proba[best] = proba[best], proba[largest]


@kernel
def learn_late(state, places, last, confidence, delay, n_late):
    """Learn the label of an event that was predicted before the last label.

    Parameters
    ----------
    places
        Number of classes, and positions of the label, of the class of the prediction and of the class of the mixture.
    last
        Position of the last label known at the prediction, or -1.
    confidence
        Probability that the prediction, without the pool, gave to the class it named.
    delay
        Number of labels learned since the prediction.
    n_late
        Number of labels that arrived late, including this one.
    """
    n, place, named, named_late = places
    delay, weights, total = max(delay, LEAST_DELAY), state.late_weights, 0.0
    unit = max(min(delay, 1.0 / max(state.change_rate, RUN_RATE)), LEAST_UNIT)
    rate = 1.0 / min(n_late + CAUTION * unit, WINDOW * delay)
    state.late_accuracies[0] += rate * ((1.0 if named == place else 0.0) - state.late_accuracies[0])
    state.late_accuracies[1] += rate * ((1.0 if named_late == place else 0.0) - state.late_accuracies[1])
    likelihood = confidence
    if named != place:
        likelihood = (1.0 - confidence) * state.base[place] / max(1.0 - state.base[named], LEAST_BY_VOTE)
    likelihood = max(likelihood, LEAST_BY_VOTE)
    pooled = find_pooled(state, likelihood, place, last, n)
    n_averaged = min(float(n_late), float(WINDOW * delay))
    state.late_gain += (log_of(pooled) - log_of(likelihood) - LEAST_GAIN - state.late_gain) / n_averaged
    advantage = state.late_gain * n_averaged / unit
    state.late_advantage = min(max(advantage, -MOST_ADVANTAGE), MOST_ADVANTAGE)
    for part in range(PARTS):
        p = likelihood if part == PREDICTED else find_part(state, part, place, last, n)
        weights[part] = max(weights[part] + rate * weights[part] * (p / pooled - 1.0), LEAST_WEIGHT)
        total += weights[part]
    for part in range(PARTS):
        weights[part] /= total
