"""Mixture of a prediction whose labels are late with two baselines: the class frequencies and the last known label.

Where labels persist for fewer events than they are late, an ensemble is almost certain of a class of the past, and its
log loss is several times that of the class frequencies. Predictions are therefore the mixture

    w_0 p + w_1 (class frequencies) + w_2 (last known label)

of the prediction p and the baselines. The weights follow the likelihoods that all three had when the event was
predicted (online expectation maximisation). Feedback arrives only after the delay, so their rate is a small part of the
inverse delay. The mixture applies while most labels are late and its recent log loss is lower than that of p by MARGIN.
It does not change the most probable class.

Notes
-----
Learning rates have to decrease with the delay: M. Zinkevich, J. Langford and A. Smola, "Slow learners are fast", NIPS
2009.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import LEAST_BY_VOTE, best_class
from streamsvm.core.math import log_of, most_loss
from streamsvm.core.schema import Array, Number, SchemaEntry, i64
from streamsvm.ensemble.notes import LAGS
from streamsvm.features.scaler import MOST_EVENTS

# Initial weights of the baselines, and the least of all weights.
FREQUENCIES_AT_FIRST, LAST_AT_FIRST, LEAST_WEIGHT = 0.04, 0.01, 1e-3
# Probability that the last label leaves to all classes together.
SPREAD = 1e-3
# Averages start as if over CAUTION delays, and are over at most WINDOW delays of at least LEAST_DELAY labels.
CAUTION, WINDOW, LEAST_DELAY = 5, 20, 10
# Least advantage in log loss.
MARGIN = 0.05
_LOSS = (0.0, most_loss(LEAST_BY_VOTE))
FIELDS: dict[str, SchemaEntry] = {
    "totals": Array(("classes",), "number of labels of each class", saved=True, bounds=(0.0, MOST_EVENTS)),
    "frequencies_weight": Number(
        "weight of the class frequencies under late labels", start=FREQUENCIES_AT_FIRST, saved=True, bounds=(0.0, 1.0)
    ),
    "last_weight": Number(
        "weight of the last known label under late labels", start=LAST_AT_FIRST, saved=True, bounds=(0.0, 1.0)
    ),
    "late_plain_loss": Number("decayed log loss of the predictions under late labels", saved=True, bounds=_LOSS),
    "named_first": Number("most probable class of the current event, as position", i64),
    "confidence": Number("its probability, without the baselines"),
    "late_loss": Number("decayed log loss of the mixture under late labels", saved=True, bounds=_LOSS),
}


@inlined
def frequency_of(state, label, n):
    """Return the frequency of a class among all labels."""
    return (state.totals[label] + 1.0) / (state.n_learned + n)


@inlined
def by_last(last, label, n):
    """Return the probability of a class according to the last known label."""
    if last < 0 or last >= n:
        return 1.0 / n
    return SPREAD / n + (1.0 - SPREAD if last == label else 0.0)


@inlined
def plain_weight(state):
    """Return the weight of the prediction in the mixture."""
    return max(1.0 - state.frequencies_weight - state.last_weight, 0.0)


@kernel
def mix_late(state, n, proba):
    """Note the most probable of n classes, and replace the probabilities by the mixture if it has been better."""
    best = best_class(proba, 0, state.n_named if state.n_named > 0 else n)
    state.named_first, state.confidence = best, proba[best]
    if state.late <= 0.5 or state.n_named > 0 or state.late_loss >= state.late_plain_loss - MARGIN:
        return
    for c in range(n):
        baselines = state.frequencies_weight * frequency_of(state, c, n)
        baselines += state.last_weight * by_last(state.recent[0], c, n)
        proba[c] = plain_weight(state) * proba[c] + baselines
    largest = best_class(proba, 0, n)
    if proba[largest] > proba[best]:
        proba[largest], proba[best] = proba[best], proba[largest]


@kernel
def learn_late(state, memory, n, label, likelihood, n_late):
    """Learn the label of an event that was predicted before the last label.

    Parameters
    ----------
    memory
        The labels known at the prediction, the last one first, and their number.
    n
        Number of classes.
    label
        Class of the event.
    likelihood
        Probability that the prediction, without the baselines, gave to the class.
    n_late
        Number of labels that arrived late, including this one.
    """
    shares, last = state.frequencies_weight, state.last_weight
    at_shares, at_last = frequency_of(state, label, n), by_last(memory[0], label, n)
    mixed = plain_weight(state) * likelihood + shares * at_shares + last * at_last
    delay = max(state.n_learned - memory[LAGS], LEAST_DELAY)
    rate = 1.0 / min(n_late + CAUTION * delay, WINDOW * delay)
    state.late_plain_loss -= rate * (log_of(max(likelihood, LEAST_BY_VOTE)) + state.late_plain_loss)
    state.late_loss -= rate * (log_of(max(mixed, LEAST_BY_VOTE)) + state.late_loss)
    shares = max(shares + rate * (shares * at_shares / mixed - shares), LEAST_WEIGHT)
    last = max(last + rate * (last * at_last / mixed - last), LEAST_WEIGHT)
    most = 1.0 - LEAST_WEIGHT  # the prediction keeps the rest
    total = max(shares + last, most)
    state.frequencies_weight, state.last_weight = shares * most / total, last * most / total
