"""Label autocorrelation: class frequencies by the labels learned last, and how far to trust them.

Labels of a stream often follow one another: the same as before, or by the clock. With N_k(c | l_1 .. l_k) how often
class c came after the labels l_k .. l_1 (decayed), frequencies back off to those of shorter memory,

    M_0(c) = (N_0(c) + 1/n) / (sum N_0 + 1),    M_k(c) = (N_k(c) + M_{k-1}(c)) / (sum N_k + 1),

and the *lift* log M_LAGS(c) - log M_0(c) is what the labels before say beyond the classes' frequencies. It enters the
probabilities p of a vote as p'(c) ~ p(c)^beta exp(trust lift(c)), trust and the inverse temperature beta learned by the
log loss of p'; p' is heard only while its log loss of late is less than that of p, and while nothing speaks against it:
the *doubt*, the cumulative sum of log p(y) - log p'(y) over the labels y, which never falls below 0 (Page's test),
tells within a few events that the autocorrelation has changed. If p' were right, exp of what a label adds would be 1 in
the mean. Where labels come late, all events that were under way at the change miss it together: a label whose event was
predicted before the doubt arose adds only its share among the labels since.

An event is counted under the labels that were known when it was last *predicted*: where labels come late these are not
the ones before it. So a note of each prediction is kept until its event is learned, or one predicted after it: labels
come in the order of events. An event without a note was not predicted, and follows the labels of now, unless its note
may have been lost: pushed out by others, passed over, or made before its columns were seen.

Events are told apart by their rows alone. Where a note waits when another of an equal row is learned, either that event
was predicted again, or an equal one waits for its own label, and then notes go by in the order they were made. What
becomes of such a note tells: in the first case it is passed over, in the second an event is learned by it though its
row was not predicted since the last label.

Whoever keeps the events that wait for their labels can keep with each what was known when it was predicted: a
*memory*, the labels before and how many had been learned. Then no note is taken, and labels may come in any order.

The last label says something of the next event, and less of each one after it. Where k notes were made since the last
label, the lift weighs r^(k - reach) for a prediction, 1 at most. The reach is how many predictions without a label came
before those of events that were learned lately, MOST_REACH at most: 0 where each event gets its label before the next
is predicted. r is by how much the last label stays, beyond its frequency: (M_1(l | l) - M_0(l)) / (1 - M_0(l)), between
0 and MOST_STAY. For labels that stay with one probability and are drawn anew otherwise, r^k is how the k-step
transition fades; where they cycle r is 0. The same event predicted again is the same prediction. Rows that are only
predicted, as a batch, are in no order, and the lift weighs nothing. What is learned of a label does not depend on it.

Before the first event is learned no column is known, and rows cannot be told apart: each prediction is noted, as that
of an event whose note is lost. These count as waiting only while predictions come between the labels.

Notes
-----
Temporal dependence as something to learn and not only to beat: A. Bifet et al., "Pitfalls in benchmarking data stream
classification and how to avoid them", ECML PKDD 2013. The estimate is interpolated as in text compression.
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

# Contexts of each length share this many rows of counts.
CONTEXTS = 256
N_ROWS = 1 + LAGS * CONTEXTS
# So many numbers are a memory.
MEMORY = LAGS + 1
DECAY, LOSS_RATE = 0.999, 0.002
MOST_TRUST = 3.0
# By so much log loss autocorrelation must be better to be heard.
MARGIN = 0.003
# With so much doubt it is not heard; doubt grows no further than the second, by the third at most with each label.
DOUBT, MOST_DOUBT, MOST_ADDED = 8.0, 16.0, 3.0
# For each prediction since the last label but the first, the lift weighs at most so much of what it did, or nothing
# where that is less than the second.
MOST_STAY, LEAST_WEIGHT = 0.5, 0.01
# So far at most predictions without a label are looked past; with each label a little less far.
MOST_REACH, REACH_DECAY = 8.0, 0.998
# Where classes are many, one that came so often after the labels of late is named in the vote.
LIKELY = 1.0 / 16.0
# Counts are scaled back when what they are raised by has grown to this.
LARGE = 1e100
_LOSS = (0.0, most_loss(LEAST_BY_VOTE))
_LABEL = (-1.0, MOST_EVENTS)
AUTOCORRELATION = Schema(
    "autocorrelation",
    {
        "inverse_temperature": inverse_temperature("the exponent of the vote"),
        "trust": Number("the exponent of the lift", saved=True, bounds=(0.0, MOST_TRUST)),
        "plain_loss": Number("the decayed log loss without autocorrelation", saved=True, bounds=_LOSS),
        "autocorrelated_loss": Number("the decayed log loss with it", saved=True, bounds=_LOSS),
        "doubt": Number("what labels of late say against it", saved=True, bounds=(0.0, MOST_DOUBT)),
        "doubted": Number(
            "how many labels had been learned when it arose last", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "increment": Number("what a count is raised by", start=1.0, saved=True, bounds=(1.0, LARGE)),
        "oldest": Number("where the oldest note is", i64, saved=True, bounds=(0.0, NOTES - 1.0)),
        "n_notes": Number("how many there are", i64, saved=True, bounds=(0.0, NOTES)),
        "n_fresh": Number(
            "how many of them were made since an event was learned", i64, saved=True, bounds=(0.0, NOTES)
        ),
        "n_lost": Number(
            "events that may yet be learned though their notes are lost", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "n_learned": Number("labels learned", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "distinct": Number(
            "the decayed share of equal rows that were events of their own", saved=True, bounds=(0.0, 1.0)
        ),
        "last_key": Number("the key of the event learned last, -1 where there is none", start=-1.0, saved=True),
        "recent": Array(
            ("lags",), "the labels learned last, -1 where there are none", i64, start=-1, saved=True, bounds=_LABEL
        ),
        "counts": Array(("contexts", "classes"), "N_0, then N_1, ...", saved=True, bounds=(0.0, math.inf)),
        "keys": Array(("notes",), "the keys of the events predicted", saved=True),
        "noted": Array(("notes", "lags"), "the labels known then", i64, saved=True, bounds=_LABEL),
        "made": Array(("notes",), "how many labels had been learned then", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "left": Array(
            ("notes",), "whether each waited when an equal row was learned", i64, saved=True, bounds=(0.0, 1.0)
        ),
        "weight": Number("how much the lift weighs for the current event", start=1.0),
        "reach": Number(
            "how many predictions without a label came before one that was learned, lately",
            saved=True,
            bounds=(0.0, MOST_REACH),
        ),
        "plain": Array(("classes",), "the vote's probabilities for the current event"),
        "logs": Array(("classes",), "their logarithms"),
        "lifts": Array(("classes",), "the lift"),
        "autocorrelated": Array(("classes",), "the probabilities with it"),
        "tally": Array(("classes",), "a row of counts, of the classes voted on"),
        "n_classes": Number("how many classes there are, where some are voted on by name", i64),
        "n_named": Number("how many are; 0 where all classes are voted on, in order", i64),
        "named": Array(("classes",), "which", i64),
    },
)


@inlined
def context(labels, k):
    """The row of counts for the first k of some labels."""
    mixed = 0
    for i in range(k):
        mixed = (mixed * 1000003 + labels[i] + 1) % CONTEXTS
    return 1 + (k - 1) * CONTEXTS + mixed


@kernel
def find_lift(state, labels, n):
    """What the labels before say of the n classes voted on."""
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
    """Frequencies by one row of counts, in place of those in `lifts`."""
    tally, lifts, one = state.tally, state.lifts, state.increment
    share = 1.0 / take_counts(state, row, n)
    for c in range(n):
        lifts[c] = (tally[c] + one * lifts[c]) * share


@inlined
def take_counts(state, row, n):
    """A row of counts, of the classes voted on, goes to `tally`; returns their sum and one more."""
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
    """For how many classes the last of the n voted on stands: where some are named, for all others."""
    return state.n_classes - n + 1 if state.n_named > 0 else 1


@inlined
def likely_at(state, row, n):
    """How often a class must have come after certain labels to be likely."""
    total = sum_of(state.counts[row], 0, n)
    return LIKELY * total if total > 0.0 else math.inf


@kernel
def combine(state, n):
    """The probabilities with autocorrelation, from the vote's and the lift."""
    autocorrelated, beta, trust = state.autocorrelated, state.inverse_temperature, state.trust
    for c in range(n):
        autocorrelated[c] = beta * state.logs[c] + trust * state.lifts[c]
    if n_others(state, n) > 1:
        autocorrelated[n - 1] += math.log(n_others(state, n))
    total = fast_softmax_terms(autocorrelated, 0, n, 1.0, autocorrelated, 0)
    scale_terms(autocorrelated, 0, n, 1.0 / total)


@kernel
def add_autocorrelation(state, n, proba):
    """Let autocorrelation into the probabilities of the n classes voted on, where it is heard; `logs` are known."""
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
    """How much the lift weighs for an event that is predicted now, among n classes."""
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
    """How often a label came, as a share of one row of counts and one more."""
    return state.counts[row, label] / (sum_of(state.counts[row], 0, n) + state.increment)


@inlined
def is_used(state):
    """Whether autocorrelation makes predictions better, of late, and nothing speaks against it."""
    return state.doubt < DOUBT and state.autocorrelated_loss < state.plain_loss - MARGIN


@kernel
def learn_autocorrelation(state, key, n, label, place):
    """Learn the label of an event predicted among n classes; it has a place among them, n or more where it is new."""
    at = recall(state, key)
    is_spent = at < 0 or (state.distinct <= 0.5 and state.n_fresh == 0)
    if is_spent and key == state.last_key and label == state.recent[0]:
        return  # learned once more, as ensembles do that weigh events by repeating them: it does not follow itself
    if n >= 2 and place < n and at != UNKNOWN:
        if at >= 0 and not same_labels(state, at):
            find_lift(state, state.noted[at], n)
            combine(state, n)
        learn_trust(state, n, place)
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
    """How many notes made since the same label stand before one."""
    n, made, slot = 0, state.made[at], at
    while slot != state.oldest:
        slot = (slot + NOTES - 1) % NOTES
        if state.made[slot] != made:
            break
        n += 1
    return float(n)


@inlined
def follow(state, key, label):
    """Let a label be the last one known."""
    for k in range(LAGS - 1, 0, -1):
        state.recent[k] = state.recent[k - 1]
    state.recent[0], state.n_fresh, state.last_key = label, 0, key
    state.n_learned += 1


@kernel
def remember(state, memory):
    """Leave what is known now in the memory of an event that is predicted."""
    for k in range(LAGS):
        memory[k] = state.recent[k]
    memory[LAGS] = state.n_learned
    state.n_fresh = min(state.n_fresh + 1, NOTES)


@inlined
def is_current(state):
    """Whether a label came lately enough to say something where labels come late."""
    return state.n_fresh < NOTES


@kernel
def learn_remembered(state, memory, key, n, label, place):
    """Learn, as `learn_autocorrelation` does, the label of an event that was predicted with this memory.

    Fewer classes may have been known then. Those voted on by name are those of now: a memory tells of labels alone.
    """
    if n >= 2 and place < n:
        find_lift(state, memory, n)
        combine(state, n)
        learn_trust(state, n, place)
        learn_doubt(state, place, memory[LAGS])
    count_label(state, memory, label, LAGS)
    follow(state, key, label)


@inlined
def same_labels(state, at):
    """Whether the labels of a note are those of now."""
    same = True
    for k in range(LAGS):
        same &= state.noted[at, k] == state.recent[k]
    return same


@kernel
def learn_trust(state, n, label):
    """A step of both exponents by the gradient of the log loss, and the losses that decide who is heard."""
    plain, logs, lifts, autocorrelated = state.plain, state.logs, state.lifts, state.autocorrelated
    at_plain, at_label = max(plain[label], LEAST_BY_VOTE), max(autocorrelated[label], LEAST_BY_VOTE)
    state.plain_loss -= LOSS_RATE * (log_of(at_plain) + state.plain_loss)
    state.autocorrelated_loss -= LOSS_RATE * (log_of(at_label) + state.autocorrelated_loss)
    state.inverse_temperature = calibrated(state.inverse_temperature, logs, autocorrelated, n, label)
    trust = state.trust + TEMPERATURE_RATE * surprise(lifts, autocorrelated, n, label)
    state.trust = min(max(trust, 0.0), MOST_TRUST)


@kernel
def learn_doubt(state, label, made):
    """Take in what a label says against autocorrelation, when its event was predicted after so many labels."""
    against = log_of(max(state.plain[label], LEAST_BY_VOTE) / max(state.autocorrelated[label], LEAST_BY_VOTE))
    if state.doubt == 0.0:
        state.doubted = state.n_learned + 1
    share = 1.0 if made >= state.doubted else 1.0 / (1.0 + state.n_learned - made)
    state.doubt = min(max(state.doubt + share * min(against, MOST_ADDED), 0.0), MOST_DOUBT)


@kernel
def count_label(state, labels, label, lags):
    """Count a label, under up to `lags` of the labels before it. Raising by ever more decays the rest."""
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
