"""Repeated rows: correction of a vote by the labels of earlier equal rows.

Rows of codes and categories often repeat. The labels of equal rows then say more than the members, which generalize
from all rows. The last LABELS labels of a row are stored. If m labels of equal rows are known, k(c) of them of class c,
the probabilities p of the vote become

    p'(c) = sum_i w_i (k(c) + s_i p(c)) / (m + s_i) + w p(c)

These are means of the posterior distributions for Dirichlet priors around p with the strengths s_i, mixed with p. The
weights are posterior probabilities under a small probability of a switch (fixed share), given the labels of repeated
rows. They start in favour of p. If the class named by p has been right more often on repeated rows than the class named
by p', it stays the most probable class.

A row equal to the row learned last is not corrected and does not change the weights, because bagging repeats rows. Its
label replaces the last one. A run of equal rows is thus stored with its last label, and the weights learn its first.

A hash identifies a row. The table has buckets of WAYS rows. The row whose label is the oldest leaves a full bucket. The
number of buckets in use grows with the number of repeated rows, and the first FIRST_EVENTS events are not stored, so
that models of streams without repeated rows stay small.

With late labels, the labels known at the prediction are kept in the memory of the event, and they decide the weights.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel, uint
from streamsvm.core.losses import best_class
from streamsvm.core.schema import Array, Number, Schema, i64
from streamsvm.core.state import State
from streamsvm.ensemble.delayed_votes import BITS, MOST_CLASSES, PER_NUMBER
from streamsvm.ensemble.label_baselines import learn_accuracies, put_ahead

FIRST_BUCKETS, BUCKETS, WAYS = 128, 1024, 4
FIRST_EVENTS = 320
# Number of repeated rows after which the number of buckets doubles.
DOUBLING = 4
# Number of labels per row, stored as the answers of an event are.
LABELS = PER_NUMBER
# Strengths of the priors, weights of these and of p at the start and after a switch, and probability of a switch.
STRENGTHS = (0.25, 1.0, 4.0, 16.0, 64.0)
FIRST_WEIGHTS, SWITCH = (0.1, 0.1, 0.1, 0.1, 0.1, 0.5), 0.001
# Rate of the accuracies of the classes named by p and p'.
ACCURACY_RATE = 0.005
_HASH = (0.0, 2.0**52)

REPEATS = Schema(
    "repeats",
    {
        "keys": Array(("buckets", "ways"), "hashes of rows, last learned first; 0: none", saved=True, bounds=_HASH),
        "labels": Array(
            ("buckets", "ways"),
            "last labels of the rows, the newest first, as `delayed_votes` stores answers",
            i64,
            saved=True,
        ),
        "weights": Array(
            (len(FIRST_WEIGHTS),), "weights of the strengths, and last that of p", saved=True, bounds=(0.0, 1.0)
        ),
        "last": Number("hash of the row learned last", saved=True, bounds=_HASH),
        "n_buckets": Number(
            "number of buckets in use", i64, start=FIRST_BUCKETS, saved=True, bounds=(FIRST_BUCKETS, BUCKETS)
        ),
        "n_repeated": Number("repeated rows since it changed", i64, saved=True, bounds=(0.0, DOUBLING)),
        "found": Number("labels of the rows equal to the current one, 0 if there are none", i64),
        "places": Array((LABELS,), "positions of these labels among the classes voted on", i64),
        "n_found": Number("number of these labels", i64),
        "before": Array(("classes",), "probabilities p of the vote before the correction"),
        "after": Array(("classes",), "memory for the corrected probabilities of a late label"),
        "named": Array((2,), "classes named by p and p'", i64),
        "accuracies": Array((2,), "their decayed accuracies on repeated rows", saved=True, bounds=(0.0, 1.0)),
    },
)


def new_repeats(n_classes: int, room: int) -> State:
    """Return a state, without a table if there is room for few events."""
    sizes = {"buckets": BUCKETS if room >= FIRST_EVENTS else 0, "ways": WAYS, "classes": n_classes}
    state = State(REPEATS, sizes)
    state.weights[:] = FIRST_WEIGHTS
    return state


@inlined
def bucket_of(key, n_buckets):
    """Return the bucket of a row."""
    return ((uint(int(key)) * uint(0x9E3779B97F4A7C15)) >> uint(54)) & uint(n_buckets - 1)


@kernel
def find_labels(state, key):
    """Return the labels of the rows equal to the current one, 0 if there are none.

    There are none for a row equal to the row learned last, because such rows do not change the weights.
    """
    if state.keys.shape[0] > 0 and key != state.last:
        bucket = bucket_of(key, state.n_buckets)
        for i in range(WAYS):
            if state.keys[bucket, i] == key:
                return state.labels[bucket, i]
    return 0


@kernel
def add_repeats(state, n, n_named, proba):
    """Write `before`, corrected by the labels at `places`, to `proba`.

    There are n classes voted on, and the first `n_named` are single classes.
    """
    m, of_vote, per_label = float(state.n_found), state.weights[len(STRENGTHS)], 0.0
    for i in range(len(STRENGTHS)):
        share = state.weights[i] / (m + STRENGTHS[i])
        of_vote += share * STRENGTHS[i]
        per_label += share
    for c in range(n):
        proba[c] = of_vote * state.before[c]
    for k in range(state.n_found):
        proba[state.places[k]] += per_label
    named, accuracies = state.named, state.accuracies
    named[0], named[1] = best_class(state.before, 0, n_named), best_class(proba, 0, n_named)
    if accuracies[0] > accuracies[1]:
        put_ahead(proba, named[0], named[1])


@kernel
def learn_weights(state, place):
    """Update weights and accuracies with the position of a label in the vote."""
    learn_accuracies(state.accuracies, state.named, place, ACCURACY_RATE)
    m, k, weights, p, total = float(state.n_found), 0.0, state.weights, state.before[place], 0.0
    for i in range(state.n_found):
        k += 1.0 if state.places[i] == place else 0.0
    for i in range(len(STRENGTHS)):
        weights[i] *= (k + STRENGTHS[i] * p) / (m + STRENGTHS[i])
        total += weights[i]
    weights[len(STRENGTHS)] *= p
    total += weights[len(STRENGTHS)]
    for i in range(weights.size):
        weights[i] = (1.0 - SWITCH) * weights[i] / total + SWITCH * FIRST_WEIGHTS[i]


@kernel
def store_label(state, key, label, seen):
    """Store the label of a row, learned after `seen` others.

    It replaces the label of an equal row learned just before.
    """
    again = key == state.last
    state.last = key
    if seen < FIRST_EVENTS or label >= MOST_CLASSES:
        return
    bucket, at = bucket_of(key, state.n_buckets), 0
    keys, labels, known = state.keys[bucket], state.labels[bucket], 0
    while at < WAYS - 1 and keys[at] != key:
        at += 1
    if keys[at] == key:
        known = labels[at] >> BITS if again else labels[at]
        state.n_repeated = min(state.n_repeated + (0 if again else 1), DOUBLING)
    for i in range(at, 0, -1):
        keys[i], labels[i] = keys[i - 1], labels[i - 1]
    keys[0], labels[0] = key, (known << BITS) | (label + 1)
    if state.n_repeated == DOUBLING and state.n_buckets < BUCKETS:
        state.n_buckets, state.n_repeated = 2 * state.n_buckets, 0
