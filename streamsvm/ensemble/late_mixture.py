"""Mixture of a prediction with four baselines under late labels.

Where labels persist about as long as they are late, an ensemble is almost certain of a class of the past. Class
frequencies then have a several times smaller log loss, and the last known label is more accurate. Predictions p are
therefore combined with a pool of p, the class frequencies, the last known label, the label one season ago and equal
probabilities. The weights of the pool follow the likelihoods of its parts (online expectation maximisation). The
mixture is (1 - s) p + s pool with the share s = 1 / (1 + exp(-a)). Here a is the recent advantage of the pool over p:
the gain in log loss beyond LEAST_GAIN per label, summed over independent labels.

Labels of one run are not independent, and feedback arrives only after the delay. The unit of evidence is therefore the
smaller of the delay and the mean run of equal labels. The averages cover a number of delays.

Parts are judged by what was known at the prediction, except that the length of the season is the current one. Of p,
that is its class and the probability of this class. Other classes share the rest in proportion to their frequencies, in
the pool as well. Frequencies at the prediction are not stored: those known now would include the label itself and its
run. Copies of the frequencies are therefore made once per delay, and the copy before the last judges. The frequencies
average over FREQUENCY_WINDOW delays.

The predicted class is the class of p, or of the mixture if the pool has an advantage. Another answer replaces it if it
was right more often: p, the mixture, the vote without label autocorrelation, or a baseline. The *lead* of an answer is
its number of right labels in units of evidence, relative to the best answer and at least -MOST_LEAD.

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
from streamsvm.ensemble.label_baselines import (
    BY_FREQUENCY,
    BY_LAST,
    BY_SEASON,
    BY_VOTE,
    LARGE,
    interpolate,
    most_accurate,
    n_answers,
    n_others,
    put_ahead,
    spread_evenly,
)
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.online.calibration import uniform_share

# Parts of the pool, and their initial and least weights.
PREDICTED, FREQUENCIES, LAST, AGO, EVENLY = range(5)
PARTS = 5
WEIGHT_AT_FIRST, LEAST_WEIGHT = 1.0 / PARTS, 1e-3
# Probability that the last label leaves to all classes together.
SPREAD = 1e-3
# The weights start as if over CAUTION units and have RATE times the rate of a mean over at most WEIGHT_WINDOW delays.
CAUTION, RATE, WEIGHT_WINDOW = 5, 2.0, 400
# The gain averages over at most WINDOW delays, the frequencies over FREQUENCY_WINDOW delays or more labels. With fewer
# delays, calm periods of labels that persist would say that the pool is worse.
WINDOW, FREQUENCY_WINDOW, LEAST_FREQUENCY_WINDOW = 100, 20, 1000
LEAST_DELAY = 10
# Least number of labels in a unit of evidence, and rate of the share of labels that differ from the one before.
LEAST_UNIT, RUN_RATE = 2.0, 1e-3
# Least gain in log loss per label for the pool to count as better, bound of its advantage, and its first value.
LEAST_GAIN, MOST_ADVANTAGE, FIRST_ADVANTAGE = 0.03, 5.0, -3.0
# Answers that are compared, and largest distance of their leads. An answer that is ahead of the usual one by LEAST_LEAD
# replaces it.
BY_P, BY_POOL, BY_LATE_VOTE, BY_LATE_LAST, BY_LATE_SEASON, BY_LATE_FREQUENCY = range(6)
LATE_ANSWERS, MOST_LEAD, LEAST_LEAD = 6, 40.0, 2.0
# Rows of counts: those known now, and two copies.
KNOWN, COPIED, JUDGING = range(3)
COUNTED = 3
_SHARE = (0.0, 1.0)
_MOST_GAIN = most_loss(LEAST_BY_VOTE) + LEAST_GAIN
_COUNTS = (0.0, MOST_EVENTS * LARGE)
FIELDS: dict[str, SchemaEntry] = {
    "late_weights": Array(
        (PARTS,),
        "weights of prediction, class frequencies, last label, season and equal probabilities in the pool",
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
    "late_leads": Array(
        (LATE_ANSWERS,),
        "leads of prediction, mixture, vote, last label, season and most frequent class over the best of them",
        saved=True,
        bounds=(-MOST_LEAD, 0.0),
    ),
    "late_increment": Number("increment of a late count", start=1.0, saved=True, bounds=(1.0, LARGE)),
    "late_counts": Array(
        (COUNTED, "classes"), "decayed counts of labels, now and once per delay", saved=True, bounds=_COUNTS
    ),
    "late_copied": Number("number of labels at the last copy", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
    "late_base": Array(("classes",), "class frequencies of the late counts"),
    "change_rate": Number(
        "decayed share of labels that differ from the one before", start=1.0, saved=True, bounds=_SHARE
    ),
    "confidence": Number("probability of the most probable class of the current event, without the pool"),
    "late_named": Array((LATE_ANSWERS,), "positions of the answers for the current event, or -1", i64, start=-1),
}


@inlined
def find_late_frequencies(state, row, n):
    """Write the class frequencies by a row of `late_counts` to `late_base`."""
    spread_evenly(state, n, state.late_base)
    interpolate(state, state.late_counts[row], state.late_increment if row == KNOWN else 1.0, n, state.late_base)


@inlined
def predicted_share(state, best, confidence, c):
    """Return an estimate of the stored probability of the class at position c.

    Only `best`, the most probable class, and its probability `confidence` were stored.
    """
    if c == best:
        return confidence
    return (1.0 - confidence) * state.late_base[c] / max(1.0 - state.late_base[best], LEAST_BY_VOTE)


@inlined
def find_part(state, part, c, n):
    """Return the probability of the class at position c by a part of the pool."""
    named = state.late_named
    if part == PREDICTED:
        return predicted_share(state, named[BY_P], state.confidence, c)
    if part == FREQUENCIES:
        return state.late_base[c]
    place = named[BY_LATE_LAST] if part == LAST else named[BY_LATE_SEASON]
    others = n_others(state, n)
    evenly = uniform_share(c, n, others)
    if part == EVENLY or place < 0:
        return evenly
    return SPREAD * evenly + (1.0 - SPREAD if place == c else 0.0)


@inlined
def find_pooled(state, c, n):
    """Return the probability of the pool for a class."""
    total = 0.0
    for part in range(PARTS):
        total += state.late_weights[part] * find_part(state, part, c, n)
    return max(total, LEAST_BY_VOTE)


@kernel
def mix_late(state, n, proba):
    """Replace the probabilities of n classes by the mixture if most labels are late.

    Also write the positions of the answers to `late_named`. Without evidence for the pool, as before the first late
    label, the probabilities stay.
    """
    n_named, named, answers = n_answers(state, n), state.late_named, state.answers
    best = best_class(proba, 0, n_named)
    named[BY_P], named[BY_POOL], state.confidence = best, best, proba[best]
    named[BY_LATE_LAST], named[BY_LATE_SEASON] = answers[BY_LAST], answers[BY_SEASON]
    named[BY_LATE_VOTE], named[BY_LATE_FREQUENCY] = answers[BY_VOTE], answers[BY_FREQUENCY]
    if state.late <= 0.5:
        return
    if state.late_advantage > -MOST_ADVANTAGE:
        find_late_frequencies(state, KNOWN, n)
        # exp(-a) by a function of negative numbers.
        share = 1.0 / (1.0 + exp_below(-MOST_ADVANTAGE - state.late_advantage) / exp_below(-MOST_ADVANTAGE))
        for c in range(n):
            proba[c] += share * (find_pooled(state, c, n) - proba[c])
        named[BY_POOL] = best_class(proba, 0, n_named)
    # The answer is p, or the mixture if the pool has an advantage, unless another one is ahead by LEAST_LEAD.
    usual = BY_POOL if state.late_advantage > 0.0 else BY_P
    best = most_accurate(state.late_leads, named, LATE_ANSWERS, usual, LEAST_LEAD)
    put_ahead(proba, named[best], named[BY_POOL])


@kernel
def learn_late(state, place, n, delay, n_late):
    """Learn the label of an event that was predicted before the last label.

    `late_named` and `confidence` must be restored from the prediction.

    Parameters
    ----------
    place
        Position of the label.
    n
        Number of classes.
    delay
        Number of labels learned since the prediction.
    n_late
        Number of labels that arrived late, including this one.
    """
    delay, weights, total = max(delay, LEAST_DELAY), state.late_weights, 0.0
    unit = max(min(delay, 1.0 / max(state.change_rate, RUN_RATE)), LEAST_UNIT)
    update_leads(state, place, unit)
    find_late_frequencies(state, JUDGING, n)
    pooled = find_pooled(state, place, n)
    likelihood = max(find_part(state, PREDICTED, place, n), LEAST_BY_VOTE)
    n_averaged = min(float(n_late), float(WINDOW * delay))
    state.late_gain += (log_of(pooled) - log_of(likelihood) - LEAST_GAIN - state.late_gain) / n_averaged
    advantage = FIRST_ADVANTAGE + state.late_gain * n_averaged / unit
    state.late_advantage = min(max(advantage, -MOST_ADVANTAGE), MOST_ADVANTAGE)
    rate = min(RATE / min(n_late + CAUTION * unit, WEIGHT_WINDOW * delay), 1.0 / (CAUTION * unit))
    for part in range(PARTS):
        p = find_part(state, part, place, n)
        weights[part] = max(weights[part] + rate * weights[part] * (p / pooled - 1.0), LEAST_WEIGHT)
        total += weights[part]
    for part in range(PARTS):
        weights[part] /= total


@inlined
def update_leads(state, place, unit):
    """Update the leads with the position of the right class.

    Where an answer is missing, the prediction counts instead.
    """
    leads, named, most = state.late_leads, state.late_named, -2.0 * MOST_LEAD
    for i in range(LATE_ANSWERS):
        answer = named[i] if named[i] >= 0 else named[BY_P]
        leads[i] += (1.0 if answer == place else 0.0) / unit
        most = max(most, leads[i])
    for i in range(LATE_ANSWERS):
        leads[i] = max(leads[i] - most, -MOST_LEAD)


@kernel
def count_late(state, label, delay):
    """Count a late label, and copy the counts once per delay.

    `delay` is the number of labels learned since the prediction.
    """
    counts = state.late_counts
    if state.n_learned - state.late_copied >= max(delay, LEAST_DELAY):
        for c in range(counts.shape[1]):
            counts[JUDGING, c] = counts[COPIED, c]
            counts[COPIED, c] = counts[KNOWN, c] / state.late_increment
        state.late_copied = state.n_learned
    counts[KNOWN, label] += state.late_increment
    state.late_increment *= 1.0 + 1.0 / max(FREQUENCY_WINDOW * delay, LEAST_FREQUENCY_WINDOW)
    if state.late_increment > LARGE:
        for c in range(counts.shape[1]):
            counts[KNOWN, c] /= state.late_increment
        state.late_increment = 1.0
