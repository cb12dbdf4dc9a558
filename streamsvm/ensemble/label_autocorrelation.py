"""Label autocorrelation: class frequencies given the labels learned last.

Labels of a stream often depend on earlier labels: they persist, or follow the time of day. Let N_k(c | l_1 .. l_k) be
the decayed count of class c after the labels l_k .. l_1, with l_1 the last one. Frequencies back off to shorter
contexts,

    M_0(c) = (N_0(c) + 1/n) / (sum N_0 + 1),    M_k(c) = (N_k(c) + M_{k-1}(c)) / (sum N_k + 1).

The *lift* log M_LAGS(c) - log M_0(c) is the information of the previous labels beyond the class frequencies. It changes
the probabilities p of a vote to p'(c) ~ p(c)^beta exp(exponent lift(c)). The exponents `exponent` and beta follow the
gradient of the log loss of p'. Predictions use p' only while its recent log loss is lower than the log loss of p, and
while the CUSUM statistic `cusum` is small. This statistic is the cumulative sum of log p(y) - log p'(y) over the labels
y, bounded below by 0 (Page's test). It detects within a few events that the autocorrelation has changed: under p', the
expectation of p(y) / p'(y) is 1.

With late labels, all events predicted before a change are wrong together. A label whose event was predicted before the
statistic rose from 0 therefore counts less. Its increment is divided by 1 plus the number of labels learned since the
prediction.

Contexts at prediction time
---------------------------
An event is counted under the labels known when it was last *predicted*, which with late labels are not the labels just
before its own. A note of each prediction is kept until its event, or an event predicted later, is learned. Labels must
arrive in the order of events. An event without a note was not predicted and is counted under the current labels. The
exception is an event whose note may be lost: overwritten, skipped, or made before its columns were known.

Events are identified by the content of their rows. If an equal row is learned while a note waits, there are two cases.
In the first case the event was predicted again, and the older note is obsolete. In the second case another event with
an equal row waits for its own label, and the oldest note applies. The decayed share `distinct` of the second case
decides.

A caller that stores events until their labels arrive can store a *memory* with each: the previous labels and the number
of labels learned. Then no notes are made, and labels may arrive in any order.

Weight of the lift
------------------
The last label is less informative for each further event predicted before the next label. After k notes since the last
label, the lift of a prediction has the weight r^(k - reach), at most 1. `reach` is the recent number of predictions
without a label before learned events, at most MOST_REACH. It is 0 if each event gets its label before the next
prediction.

The factor r measures how persistent the last label l is beyond its frequency: (M_1(l | l) - M_0(l)) / (1 - M_0(l)),
limited to the range from 0 to MOST_STAY. If labels persist with a fixed probability and are drawn anew otherwise, r^k
is the decay of the k-step transition. If labels cycle, r is 0. Repeated predictions of one event count once. Batches
that are only predicted have no order, and the weight is 0. Learning does not depend on the weight.

Before the first label no column is known, and rows cannot be distinguished. Each prediction is then noted as an event
whose note is lost. Such events count as waiting only while predictions come between the labels.

Notes
-----
Temporal dependence as a baseline and as information: A. Bifet et al., "Pitfalls in benchmarking data stream
classification and how to avoid them", ECML PKDD 2013. The interpolated estimate is common in text compression.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import LEAST_BY_VOTE, fast_softmax_terms, scale_terms, sum_of
from streamsvm.core.math import log_of, most_loss
from streamsvm.core.schema import Array, Number, Schema, i64
from streamsvm.ensemble.notes import LAGS, NOTES, NOW, UNKNOWN, drop, recall
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.online.calibration import TEMPERATURE_RATE, calibrated, inverse_temperature, surprise

# Number of rows of counts that the contexts of each length share.
CONTEXTS = 256
N_ROWS = 1 + LAGS * CONTEXTS
# Number of elements that `remember` writes to a memory.
MEMORY = LAGS + 1
DECAY, LOSS_RATE = 0.999, 0.002
MOST_EXPONENT = 3.0
# Predictions use autocorrelation if it reduces the log loss by at least this amount.
MARGIN = 0.003
# CUSUM statistic from which on autocorrelation is not used, its upper bound, and its largest increment per label.
LARGE_CUSUM, MOST_CUSUM, MOST_ADDED = 8.0, 16.0, 3.0
# Largest factor of the lift's weight per further prediction without a label; weights below LEAST_WEIGHT become 0.
MOST_STAY, LEAST_WEIGHT = 0.5, 0.01
# Upper bound of `reach`, and its decay per label.
MOST_REACH, REACH_DECAY = 8.0, 0.998
# With more than FEW classes, the vote names a class with at least this share of the counts of a context.
LIKELY = 1.0 / 16.0
# Counts are rescaled when their increment has grown to this value.
LARGE = 1e100
_LOSS = (0.0, most_loss(LEAST_BY_VOTE))
_LABEL = (-1.0, MOST_EVENTS)
AUTOCORRELATION = Schema(
    "autocorrelation",
    {
        "inverse_temperature": inverse_temperature("exponent of the vote's probabilities"),
        "exponent": Number("exponent of the lift", saved=True, bounds=(0.0, MOST_EXPONENT)),
        "plain_loss": Number("decayed log loss without autocorrelation", saved=True, bounds=_LOSS),
        "autocorrelated_loss": Number("decayed log loss with autocorrelation", saved=True, bounds=_LOSS),
        "cusum": Number(
            "CUSUM statistic of recent labels against autocorrelation", saved=True, bounds=(0.0, MOST_CUSUM)
        ),
        "cusum_start": Number(
            "value of `n_learned` when the statistic last rose from 0", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "increment": Number("increment of a count", start=1.0, saved=True, bounds=(1.0, LARGE)),
        "oldest": Number("index of the oldest note", i64, saved=True, bounds=(0.0, NOTES - 1.0)),
        "n_notes": Number("number of notes", i64, saved=True, bounds=(0.0, NOTES)),
        "n_fresh": Number("number of notes made since the last learned event", i64, saved=True, bounds=(0.0, NOTES)),
        "n_lost": Number(
            "number of events that may still be learned though their notes are lost",
            i64,
            saved=True,
            bounds=(0.0, MOST_EVENTS),
        ),
        "n_learned": Number("number of labels learned", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "distinct": Number("decayed share of equal rows that were separate events", saved=True, bounds=(0.0, 1.0)),
        "last_key": Number("key of the event learned last, -1 if there is none", start=-1.0, saved=True),
        "recent": Array(
            ("lags",),
            "labels learned last, the latest first, -1 if there are none",
            i64,
            start=-1,
            saved=True,
            bounds=_LABEL,
        ),
        "counts": Array(
            ("contexts", "classes"),
            "decayed label counts of all contexts: N_0, then N_1, ...",
            saved=True,
            bounds=(0.0, math.inf),
        ),
        "keys": Array(("notes",), "keys of the predicted events", saved=True),
        "noted": Array(("notes", "lags"), "labels known at the predictions", i64, saved=True, bounds=_LABEL),
        "made": Array(
            ("notes",), "number of labels learned before the predictions", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "left": Array(
            ("notes",), "whether an equal row was learned while the note waited", i64, saved=True, bounds=(0.0, 1.0)
        ),
        "weight": Number("weight of the lift for the current event", start=1.0),
        "reach": Number(
            "recent number of predictions without a label before a learned event",
            saved=True,
            bounds=(0.0, MOST_REACH),
        ),
        "plain": Array(("classes",), "probabilities of the vote for the current event"),
        "logs": Array(("classes",), "log probabilities of the vote"),
        "lifts": Array(("classes",), "lift of each class"),
        "autocorrelated": Array(("classes",), "probabilities with autocorrelation"),
        "tally": Array(("classes",), "one row of counts, for the classes voted on"),
        "n_classes": Number("number of classes, if some are voted on by name", i64),
        "n_named": Number("number of named classes, 0 if the vote covers all classes in order", i64),
        "named": Array(("classes",), "the named classes", i64),
    },
)


@inlined
def context(labels, k):
    """Return the row of `counts` for the first k of these labels."""
    mixed = 0
    for i in range(k):
        mixed = (mixed * 1000003 + labels[i] + 1) % CONTEXTS
    return 1 + (k - 1) * CONTEXTS + mixed


@kernel
def find_lift(state, labels, n):
    """Write the lift of the n classes voted on to `lifts`, given the previous labels."""
    lifts, base = state.lifts, state.autocorrelated
    others = n_others(state, n)
    for c in range(n):
        lifts[c] = 1.0 / (n - 1 + others)
    lifts[n - 1] *= others
    back_off(state, 0, n)
    for c in range(n):
        base[c] = max(lifts[c] if c < n - 1 else lifts[c] / others, LEAST_BY_VOTE)
    for k in range(1, LAGS + 1):
        back_off(state, context(labels, k), n)
    for c in range(n):
        lifts[c] = log_of(max(lifts[c] if c < n - 1 else lifts[c] / others, LEAST_BY_VOTE) / base[c])


@inlined
def back_off(state, row, n):
    """Interpolate the frequencies in `lifts` with one row of counts."""
    tally, lifts, one = state.tally, state.lifts, state.increment
    share = 1.0 / take_counts(state, row, n)
    for c in range(n):
        lifts[c] = (tally[c] + one * lifts[c]) * share


@inlined
def take_counts(state, row, n):
    """Write a row of counts of the n classes voted on to `tally`.

    Returns
    -------
    float
        The sum of the counts plus one count.
    """
    counts, tally, total, n_named = state.counts, state.tally, state.increment, state.n_named
    if n_named == 0:
        for c in range(n):
            tally[c] = counts[row, c]
            total += tally[c]
        return total
    others = sum_of(counts[row], 0, n - 1 + n_others(state, n))
    total += others
    for i in range(n_named):
        tally[i] = counts[row, state.named[i]]
        others -= tally[i]
    if n_named < n:
        tally[n_named] = max(others, 0.0)
    return total


@inlined
def n_others(state, n):
    """Return how many classes the last of the n classes voted on represents.

    It is 1 unless some classes are voted on by name.
    """
    return state.n_classes - n + 1 if state.n_named > 0 else 1


@inlined
def likely_at(state, row, n):
    """Return the count from which on a class is likely in a row of counts."""
    total = sum_of(state.counts[row], 0, n)
    return LIKELY * total if total > 0.0 else math.inf


@kernel
def combine(state, n):
    """Write the probabilities p' to `autocorrelated`, from `logs` and `lifts`."""
    autocorrelated, beta, exponent = state.autocorrelated, state.inverse_temperature, state.exponent
    for c in range(n):
        autocorrelated[c] = beta * state.logs[c] + exponent * state.lifts[c]
    if n_others(state, n) > 1:
        autocorrelated[n - 1] += math.log(n_others(state, n))
    total = fast_softmax_terms(autocorrelated, 0, n, 1.0, autocorrelated, 0)
    scale_terms(autocorrelated, 0, n, 1.0 / total)


@kernel
def add_autocorrelation(state, n, proba):
    """Replace the probabilities of the n classes voted on by p', if p' is in use.

    The log probabilities must be in `logs`.
    """
    for c in range(n):
        state.plain[c] = proba[c]
    find_lift(state, state.recent, n)
    if state.weight < 1.0:
        scale_terms(state.lifts, 0, n, state.weight)
    combine(state, n)
    if is_used(state) and state.weight > 0.0:
        for c in range(n):
            proba[c] = state.autocorrelated[c]


@kernel
def weigh(state, key, n):
    """Return the weight of the lift for an event predicted now, with n classes."""
    steps, last, label = state.n_fresh, (state.oldest + state.n_notes - 1) % NOTES, state.recent[0]
    if steps > 0 and state.n_notes > 0 and state.keys[last] == key:
        steps -= 1
    beyond = steps - int(state.reach + 0.5)
    if beyond <= 0 or label < 0:
        return 1.0
    stays, share = share_of(state, context(state.recent, 1), label, n), share_of(state, 0, label, n)
    stay = min(max((stays - share) / (1.0 - share), 0.0), MOST_STAY)
    weight = stay**beyond
    return weight if weight >= LEAST_WEIGHT else 0.0


@inlined
def share_of(state, row, label, n):
    """Return the frequency of a label in a row of counts, smoothed by one count."""
    return state.counts[row, label] / (sum_of(state.counts[row], 0, n) + state.increment)


@inlined
def is_used(state):
    """Return whether predictions use p'."""
    return state.cusum < LARGE_CUSUM and state.autocorrelated_loss < state.plain_loss - MARGIN


@kernel
def learn_autocorrelation(state, key, n, label, place):
    """Learn the label of an event predicted among n classes.

    Parameters
    ----------
    key
        Key of the row, see `notes.row_key`.
    n
        Number of classes voted on.
    label
        Class of the event.
    place
        Position of the class among those voted on, at least n for a new class.
    """
    at = recall(state, key)
    is_spent = at < 0 or (state.distinct <= 0.5 and state.n_fresh == 0)
    if is_spent and key == state.last_key and label == state.recent[0]:
        return  # a repetition of the last event, for example by bagging: it does not follow itself
    if n >= 2 and place < n and at != UNKNOWN:
        if at >= 0 and not same_labels(state, at):
            find_lift(state, state.noted[at], n)
            combine(state, n)
        learn_exponent(state, n, place)
        learn_doubt(state, place, state.made[at] if at >= 0 else state.n_learned)
    if at == NOW:
        count_label(state, state.recent, label, LAGS)
    else:
        count_label(state, state.noted[max(at, 0)], label, LAGS if at >= 0 else 0)
    if at >= 0:
        state.reach = min(max(REACH_DECAY * state.reach, n_before(state, at)), MOST_REACH)
        drop(state, key)
    elif at == UNKNOWN:
        state.n_lost -= 1
    follow(state, key, label)


@inlined
def n_before(state, at):
    """Return the number of earlier notes made after the same number of labels."""
    n, made, slot = 0, state.made[at], at
    while slot != state.oldest:
        slot = (slot + NOTES - 1) % NOTES
        if state.made[slot] != made:
            break
        n += 1
    return float(n)


@inlined
def follow(state, key, label):
    """Make a label the last one known."""
    for k in range(LAGS - 1, 0, -1):
        state.recent[k] = state.recent[k - 1]
    state.recent[0], state.n_fresh, state.last_key = label, 0, key
    state.n_learned += 1


@kernel
def remember(state, memory):
    """Write the previous labels and the number of learned labels to a memory."""
    for k in range(LAGS):
        memory[k] = state.recent[k]
    memory[LAGS] = state.n_learned
    state.n_fresh = min(state.n_fresh + 1, NOTES)


@inlined
def is_current(state):
    """Return whether the last label is recent enough to be informative.

    It counts the predictions made with memories since that label.
    """
    return state.n_fresh < NOTES


@kernel
def learn_remembered(state, memory, key, n, label, place):
    """Learn the label of an event that was predicted with this memory.

    The arguments are as for `learn_autocorrelation`. Named classes are the current ones, because a memory contains only
    labels.
    """
    if n >= 2 and place < n:
        find_lift(state, memory, n)
        combine(state, n)
        learn_exponent(state, n, place)
        learn_doubt(state, place, memory[LAGS])
    count_label(state, memory, label, LAGS)
    follow(state, key, label)


@inlined
def same_labels(state, at):
    """Return whether the labels of a note are the current ones."""
    same = True
    for k in range(LAGS):
        same &= state.noted[at, k] == state.recent[k]
    return same


@kernel
def learn_exponent(state, n, label):
    """Update both exponents by a gradient step, and the log losses of p and p'."""
    plain, logs, lifts, autocorrelated = state.plain, state.logs, state.lifts, state.autocorrelated
    at_plain, at_label = max(plain[label], LEAST_BY_VOTE), max(autocorrelated[label], LEAST_BY_VOTE)
    state.plain_loss -= LOSS_RATE * (log_of(at_plain) + state.plain_loss)
    state.autocorrelated_loss -= LOSS_RATE * (log_of(at_label) + state.autocorrelated_loss)
    state.inverse_temperature = calibrated(state.inverse_temperature, logs, autocorrelated, n, label)
    exponent = state.exponent + TEMPERATURE_RATE * surprise(lifts, autocorrelated, n, label)
    state.exponent = min(max(exponent, 0.0), MOST_EXPONENT)


@kernel
def learn_doubt(state, label, made):
    """Update the CUSUM statistic with a label.

    Parameters
    ----------
    label
        Position of the label among the classes voted on.
    made
        Number of labels learned before the event was predicted.
    """
    against = log_of(max(state.plain[label], LEAST_BY_VOTE) / max(state.autocorrelated[label], LEAST_BY_VOTE))
    if state.cusum == 0.0:
        state.cusum_start = state.n_learned + 1
    share = 1.0 if made >= state.cusum_start else 1.0 / (1.0 + state.n_learned - made)
    state.cusum = min(max(state.cusum + share * min(against, MOST_ADDED), 0.0), MOST_CUSUM)


@kernel
def count_label(state, labels, label, lags):
    """Count a label in up to `lags` + 1 contexts.

    The increment grows with each label, which decays the earlier counts.
    """
    counts = state.counts
    counts[0, label] += state.increment
    for k in range(1, lags + 1):
        counts[context(labels, k), label] += state.increment
    state.increment /= DECAY
    if state.increment > LARGE:
        for i in range(counts.shape[0]):
            for c in range(counts.shape[1]):
                counts[i, c] /= state.increment
        state.increment = 1.0
