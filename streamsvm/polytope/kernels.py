"""The convex polytope machine: one step of stochastic gradient descent, and what it rests on.

Every class has a polytope of K hyperplanes ("faces"), trained against all other classes; f_c(x) = max_k W_ck . x is the
score of class c. W is held as a_c V with a scalar a_c a class, so that shrinking it costs nothing, in rows of all faces
of all classes for each weight row (the bias, then the columns): a row of n pairs costs n runs over contiguous memory.

Kantchelian et al., "Large-Margin Convex Polytope Machine", NIPS 2014, Algorithms 1 and 2.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.access import state_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import FEW, fast_softmax_terms, largest, scale_terms
from streamsvm.core.schema import Array, Number, Schema, Substate, i64, records
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import uint
from streamsvm.features.scaler import MOST_EVENTS, SCALER, current_row, follow
from streamsvm.online import driver
from streamsvm.online.calibration import (
    CALIBRATION,
    MOST_SURPRISE,
    find_softmax,
    inverse_temperature,
    is_sampled,
    learn_softmax,
    stepped,
    surprise,
)
from streamsvm.online.minibatch import MINIBATCH, keep_scores, load_cached_row
from streamsvm.polytope.face_counts import assign, step_count
from streamsvm.polytope.faces import GAP, MOST_WEIGHT, add_faces, dot_faces, square_norm

# Scalars are folded back into their arrays below this.
SMALLEST = 1e-9
# Where an average is longer than the memory of the weights, mean_v V and mean_u U grow and cancel each other: they are
# brought together when mean_v is so many times the scale.
MOST_CANCELLED = 1e6
# The step of the inverse temperature, and how far it goes.
CALIBRATION_RATE = 0.06
LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE = 0.05, 20.0
CPM = Schema(
    "cpm",
    {
        "rows": Substate(SCALER, "rows on their way, and scaling"),
        "calibration": Substate(CALIBRATION, "what probabilities are worth where labels are noisy"),
        "n_classes": Number("classes known", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_faces": Number("hyperplanes of a class", i64),
        "l2": Number("strength of the penalty"),
        "horizon": Number("steps count no further"),
        "entropy": Number("the least entropy of the faces' shares"),
        "count_growth": Number("what the weight of a count grows by"),
        "average": Number("over so many events weights are averaged, 0 for the latest"),
        "balanced": Number("whether classes weigh by how rare they are"),
        "reach": Number("what a step may add to a score at most, 0 for no bound", saved=True, bounds=(0.0, 1.0)),
        "inverse_temperature": inverse_temperature(
            "how many f the probabilities are the softmax of", LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE
        ),
        "weights": Array(("weight_rows", "classes*faces"), "V", saved=True, bounds=(-MOST_WEIGHT, MOST_WEIGHT)),
        "averaged": Array(
            ("averaged_rows", "classes*faces"), "U of the average", saved=True, bounds=(-MOST_WEIGHT, MOST_WEIGHT)
        ),
        "counts": Array(("classes*faces",), "decayed positives of each face", saved=True, bounds=(0.0, 1e300)),
        "n_log_n": Array(("classes*faces",), "n ln n of each count", saved=True, bounds=(-1e305, 1e305)),
        "classes": records(
            ("classes",),
            "the classes",
            scale=Number("the scalar a", saved=True, bounds=(0.0, 1.0)),
            steps=Number("steps made", saved=True, bounds=(0.0, MOST_EVENTS)),
            mean_v=Number("averaged weights are mean_v V + mean_u U", saved=True, bounds=(0.0, MOST_CANCELLED * 1.001)),
            mean_u=Number("see mean_v", saved=True, bounds=(0.0, 1.0)),
            next_count=Number("the weight of the next count", saved=True, bounds=(0.0, 1e300)),
            count=Number("the sum of the counts", saved=True, bounds=(0.0, 1e300)),
            log_count=Number("its logarithm", saved=True, bounds=(-1e305, 1e305)),
            n_log_n=Number("the sum of n ln n over the faces", saved=True, bounds=(-1e305, 1e305)),
            weight=Number("the class weight", start=1.0, saved=True, bounds=(0.0, 1e300)),
            learned=Number("events learned", saved=True, bounds=(0.0, MOST_EVENTS)),
        ),
        "scores": Array(("classes*faces",), "of the current event, by the latest weights, not yet scaled"),
        "mean_scores": Array(("classes*faces",), "the same by U"),
        "coefs": Array(("classes*faces",), "what a step adds to each face"),
        "tops": Array(("classes",), "the largest score of each class"),
        "f": Array(("classes",), "f of each class"),
        "proba": Array(("classes",), "the probability of each class"),
    },
)
cpm_at, block_at = state_at(CPM), state_at(MINIBATCH)


@inlined
def score(state, rows, values, m):
    """The scores of all faces for an event of m pairs, and the largest of each class."""
    n, k, scores, tops = state.n_classes, state.n_faces, state.scores, state.tops
    dot_faces(state.weights, n * k, rows, values, m, scores)
    for c in range(n):
        tops[uint(c)] = largest(scores, c * k, k)


@inlined
def predict(state, rows, values, m):
    """f of all classes for an event of m pairs; returns the best class, -1 where there is none."""
    n, classes, tops, fs = state.n_classes, state.classes, state.tops, state.f
    score(state, rows, values, m)
    if state.average > 0.0:
        score_averaged(state, rows, values, m)
    else:
        for c in range(n):
            fs[uint(c)] = classes[uint(c)].scale * tops[uint(c)]
    best, top = -1, -math.inf
    for c in range(n):
        f = fs[uint(c)]
        if f > top:
            best, top = c, f
    return best


@kernel
def score_averaged(state, rows, values, m):
    """f of all classes by the averaged weights, with the scores of the latest weights known."""
    n, k, scores, averaged = state.n_classes, state.n_faces, state.scores, state.mean_scores
    dot_faces(state.averaged, n * k, rows, values, m, averaged)
    for c in range(n):
        own, f = state.classes[c], -math.inf
        for i in range(c * k, (c + 1) * k):
            f = max(f, own.mean_v * scores[i] + own.mean_u * averaged[i])
        state.f[c] = f


@inlined
def find_proba(state):
    """The probabilities of all classes, from the f of the current event."""
    find_softmax(state.calibration, state.f, state.n_classes, state.inverse_temperature, state.proba)


@inlined
def score_to_learn(state, rows, values, m, label):
    """The scores of an event that is learned next; of one in a few the probabilities are made better by its label."""
    if calibrates(state, label):
        predict(state, rows, values, m)
        calibrate(state, label)
    else:
        score(state, rows, values, m)


@inlined
def calibrates(state, label):
    """Whether the next event that is learned is one of these."""
    return is_sampled(state.rows.seen) and label < state.n_classes


@kernel
def calibrate(state, label):
    """A step of the inverse temperature, by the gradient of the log loss in its logarithm, for the current f.

    Below 1 by that in itself, which is larger: the other vanishes with it, and where the first weights of many classes
    drove it down it would stay there.
    """
    n, f, beta, terms = state.n_classes, state.f, state.inverse_temperature, state.calibration.logs
    scale_terms(terms, 0, n, 1.0 / fast_softmax_terms(f, 0, n, beta, terms, 0))
    gradient = max(beta, 1.0) * surprise(f, terms, n, label)
    if n > 1:
        learn_softmax(state.calibration, f, n, beta, label)
    step = CALIBRATION_RATE * min(max(gradient, -MOST_SURPRISE), MOST_SURPRISE)
    state.inverse_temperature = stepped(beta, step, LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE)


@kernel
def fold(weights, first, k, factor):
    """Multiply the weights of one class."""
    for row in range(weights.shape[0]):
        for f in range(first, first + k):
            weights[row, f] *= factor


@inlined
def step(state, rows, values, m, label, weight, previous):
    """One step of every polytope on an event of m pairs, whose scores are known (Algorithm 1).

    Returns the face the event was counted under if its class asked for an assignment, else `previous`.
    """
    k, classes, coefs, tops, scores = state.n_faces, state.classes, state.coefs, state.tops, state.scores
    open_classes(state, label + 1)
    n = state.n_classes
    if label >= 0:
        own = classes[label]
        own.learned += 1.0
        weight *= own.weight
        if state.balanced > 0.0:
            weight *= (state.rows.seen + 1.0) / (n * own.learned)
    most = state.reach / square_norm(values, m) if state.reach > 0.0 else math.inf
    low, high, is_parted = n * k, 0, n > FEW and state.average == 0.0
    for c in range(n):
        first, a, top = c * k, classes[uint(c)].scale, tops[uint(c)]
        violated = a * top < 1.0 if c == label else a * top > -1.0
        if violated:
            change = min(weight / (state.l2 * step_count(state, c) * a), most / a)
            if c == label:
                for f in range(first, first + k):
                    coefs[uint(f)] = 0.0
                previous = place(state, c, change, previous)
            else:
                threshold = -1.0 / a
                for f in range(first, first + k):
                    coefs[uint(f)] = -change if scores[uint(f)] > threshold else 0.0
            if is_parted and high > 0 and first - high > GAP:
                add_faces(state.weights, low, high, rows, values, m, coefs)
                low = first
            low, high = min(low, first), first + k
        elif high > 0:  # between two that change
            for f in range(first, first + k):
                coefs[uint(f)] = 0.0
    if low < high:
        add_faces(state.weights, low, high, rows, values, m, coefs)
    if state.average > 0.0:
        average(state, rows, values, m, low, high)
    for c in range(n):
        t = step_count(state, c)
        a = classes[uint(c)].scale * (1.0 - 1.0 / t)
        classes[uint(c)].steps += 1.0
        classes[uint(c)].scale = a
        if state.average > 0.0:
            classes[uint(c)].mean_v += max(1.0 / t, 1.0 / state.average) * a
            if classes[uint(c)].mean_v > MOST_CANCELLED * a:
                settle_average(state, c)
        if a < SMALLEST:
            fold(state.weights, c * k, k, a)
            classes[uint(c)].scale = 1.0
            classes[uint(c)].mean_v /= a
    return previous


@kernel
def place(state, c, change, previous):
    """Write the coefficient of a violating event of class c to the face it is assigned to.

    Returns the face it is counted under, `previous` where nothing is counted.
    """
    first, best, top = c * state.n_faces, 0, state.tops[c]
    while state.scores[first + best] < top:
        best += 1
    chosen = best
    if state.entropy > 0.0:
        chosen = assign(state, c, best, previous)
        previous = best
    state.coefs[first + chosen] = change
    return previous


@kernel
def average(state, rows, values, m, low, high):
    """Keep mean_v V + mean_u U what it was before V changed, and let it forget; the new V joins it in `step`."""
    n, k, coefs = state.n_classes, state.n_faces, state.coefs
    if low < high:
        for f in range(low, high):
            own = state.classes[f // k]
            coefs[f] *= -own.mean_v / own.mean_u
        add_faces(state.averaged, low, high, rows, values, m, coefs)
    for c in range(n):
        own = state.classes[c]
        keep = 1.0 - max(1.0 / step_count(state, c), 1.0 / state.average)
        own.mean_v *= keep
        own.mean_u *= keep
        if own.mean_u < SMALLEST:
            fold(state.averaged, c * k, k, own.mean_u)
            own.mean_u = 1.0


@kernel
def settle_average(state, c):
    """Write the average of class c into U alone."""
    k, own, weights, averaged = state.n_faces, state.classes[c], state.weights, state.averaged
    for row in range(weights.shape[0]):
        for f in range(c * k, (c + 1) * k):
            averaged[row, f] = own.mean_v * weights[row, f] + own.mean_u * averaged[row, f]
    own.mean_v, own.mean_u = 0.0, 1.0


@kernel
def open_classes(state, n):
    """Start polytopes, all weights zero, until there are n."""
    k = state.n_faces
    for c in range(state.n_classes, n):
        own = state.classes[c]
        own.scale = own.mean_u = own.next_count = 1.0
        state.tops[c] = 0.0
        for f in range(c * k, (c + 1) * k):
            state.scores[f] = 0.0
        state.n_classes = c + 1


def run_event(address):
    """Predict and learn the current event; compiled separately, see `driver`."""
    state = cpm_at(address)
    rows = state.rows
    event_rows, values = current_row(rows)
    m, label = rows.n_pairs, rows.label
    if rows.answering:
        best = predict(state, event_rows, values, m)
        rows.best, rows.n_shares = best, state.n_classes
        if best >= 0 and rows.telling:
            find_proba(state)
        if rows.following:
            follow(rows, label, rows.at)
        if label >= 0 and calibrates(state, label):
            calibrate(state, label)
    elif label >= 0:
        rows.best = -1
        score_to_learn(state, event_rows, values, m, label)
    if label >= 0:
        step(state, event_rows, values, m, label, rows.weight, -1)


def run_member(address, block_address, i, cached):
    """Score the rows of a block as its i-th member, and learn those with a label."""
    state, block = cpm_at(address), block_at(block_address)
    rows, member = state.rows, block.members[i]
    for k in range(block.n_rows):
        row = block.rows[k]
        m = load_cached_row(block, k, member.way, rows)
        event_rows, values = current_row(rows)
        if cached == 0:
            predict(state, event_rows, values, m)
            keep_scores(block, k, i, state.f)
        if row.label >= 0:
            rows.seen = row.seen
            step(state, event_rows, values, m, row.label, row.weight, -1)


@kernel
def fit_rows(state, rows, values, starts, labels, weights, unadjusted, rng, n_steps):
    """Steps on events drawn at random (Algorithm 1), each positive counted under its last own choice in `unadjusted`.

    Event i has the pairs starts[i]:starts[i + 1] of `rows` and `values`, scaled and headed by the bias.
    """
    n = starts.size - 1
    growth = state.count_growth
    state.count_growth = 1.0
    for _ in range(n_steps):
        i = draw(rng, n)
        start, m = starts[i], starts[i + 1] - starts[i]
        event_rows, event_values = rows[start : start + m], values[start : start + m]
        score(state, event_rows, event_values, m)
        unadjusted[i] = step(state, event_rows, event_values, m, labels[i], weights[i], unadjusted[i])
    state.count_growth = growth


@kernel
def draw(rng, n):
    """A number below n by the splitmix64 generator whose state is rng[0] (Steele, Lea, Flood 2014)."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    # The high 32 bits times n, shifted back: uniform to n / 2**32.
    return np.int64(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


ENTRY_POINTS = {
    "run_event": EntryPoint(run_event, (INTEGER,)),
    "run_member": EntryPoint(run_member, (INTEGER,) * 4),
}
CODE = {"drive": driver.ENTRY_POINTS["drive"], "step": ENTRY_POINTS["run_event"]}
