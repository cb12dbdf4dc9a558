"""Kernels and state schema of the convex polytope machine.

Each class has a polytope of K hyperplanes ("faces"). The score of class c is f_c(x) = max_k W_ck . x. W is stored as
a_c V with one scalar a_c per class, so that shrinking costs nothing. V has one row of all faces of all classes for each
weight row: the bias, then the columns. An event with n pairs therefore reads n contiguous rows.

Kantchelian et al., "Large-Margin Convex Polytope Machine", NIPS 2014, Algorithms 1 and 2.
"""

from __future__ import annotations

import math

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, StateType, inlined, kernel, state_at, uint
from streamsvm.core.losses import FEW, fast_softmax_terms, scale_terms, slice_max
from streamsvm.core.schema import Array, Number, Schema, Substate, i64, records
from streamsvm.features.scaler import MOST_EVENTS, SCALER, call_back, current_row
from streamsvm.online import driver
from streamsvm.online.batch import MINIBATCH, keep_scores, load_cached_row
from streamsvm.online.calibration import (
    CALIBRATION,
    MOST_SURPRISE,
    find_softmax,
    is_sampled,
    learn_softmax,
    stepped,
    surprise,
    temperature_field,
)
from streamsvm.polytope.face_counts import assign, step_count
from streamsvm.polytope.faces import GAP, MOST_WEIGHT, add_faces, dot_faces

# Smaller scalars are multiplied into their arrays.
SMALLEST = 1e-9
# Step size and range of the inverse temperature.
CALIBRATION_RATE = 0.06
LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE = 0.05, 20.0
CPM = Schema(
    "cpm",
    {
        "rows": Substate(SCALER, "current row, and scaling"),
        "calibration": Substate(CALIBRATION, "calibration for noisy labels"),
        "n_classes": Number("number of known classes", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_faces": Number("number of faces per class", i64),
        "l2": Number("strength of the penalty"),
        "horizon": Number("upper bound of the step count"),
        "entropy": Number("minimum entropy of the counts of a class's faces"),
        "count_growth": Number("growth factor of `next_count`"),
        "balanced": Number("whether class weights are inverse to class frequencies"),
        "inverse_temperature": temperature_field(
            "inverse temperature of the probabilities", LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE
        ),
        "weights": Array(
            ("weight_rows", "classes*faces"),
            "V: weights of all faces, not scaled",
            saved=True,
            bounds=(-MOST_WEIGHT, MOST_WEIGHT),
        ),
        "counts": Array(("classes*faces",), "decayed count of events of each face", saved=True, bounds=(0.0, 1e300)),
        "n_log_n": Array(("classes*faces",), "n ln n of each count", saved=True, bounds=(-1e305, 1e305)),
        "classes": records(
            ("classes",),
            "state of each class",
            scale=Number("scalar a", saved=True, bounds=(0.0, 1.0)),
            steps=Number("number of steps", saved=True, bounds=(0.0, MOST_EVENTS)),
            next_count=Number("increment of the next count", saved=True, bounds=(0.0, 1e300)),
            count=Number("sum of the counts", saved=True, bounds=(0.0, 1e300)),
            log_count=Number("logarithm of the sum of the counts", saved=True, bounds=(-1e305, 1e305)),
            n_log_n=Number("sum of n ln n over the faces", saved=True, bounds=(-1e305, 1e305)),
            weight=Number("class weight", start=1.0, saved=True, bounds=(0.0, 1e300)),
            learned=Number("number of learned events", saved=True, bounds=(0.0, MOST_EVENTS)),
        ),
        "scores": Array(("classes*faces",), "scores of the current event, not scaled"),
        "coefs": Array(("classes*faces",), "coefficients of the current event in the weights of each face"),
        "tops": Array(("classes",), "largest score of each class, not scaled"),
        "f": Array(("classes",), "score f of each class"),
        "proba": Array(("classes",), "probability of each class"),
    },
)
cpm_at, block_at = state_at(CPM), state_at(MINIBATCH)


@inlined
def predict(state, rows, values, m):
    """Compute f of all classes and return the best class, or -1 if there is none."""
    n, k, classes, scores, tops, fs = state.n_classes, state.n_faces, state.classes, state.scores, state.tops, state.f
    dot_faces(state.weights, n * k, rows, values, m, scores)
    best, top = -1, -math.inf
    for c in range(n):
        tops[uint(c)] = slice_max(scores, c * k, k)
        f = fs[uint(c)] = classes[uint(c)].scale * tops[uint(c)]
        if f > top:
            best, top = c, f
    return best


@inlined
def find_proba(state):
    """Compute the probabilities of all classes from f of the current event."""
    find_softmax(state.calibration, state.f, state.n_classes, state.inverse_temperature, state.proba)


@inlined
def calibrates(state, label):
    """Return whether the next learned event updates the calibration."""
    return is_sampled(state.rows.seen) and label < state.n_classes


@kernel
def calibrate(state, label):
    """Update the inverse temperature with the label of the current event.

    The step follows the gradient of the log loss with respect to its logarithm. Below 1 the step uses the gradient with
    respect to the inverse temperature instead, which is larger. The gradient in the logarithm vanishes with the inverse
    temperature. Early weights of many classes could drive it to 0, and it would stay there.
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
    """Multiply the weights of the k faces from `first` on by a factor."""
    for row in range(weights.shape[0]):
        for f in range(first, first + k):
            weights[row, f] *= factor


@inlined
def step(state, rows, values, m, label, weight):
    """Make one step of every polytope on an event with known scores.

    Two classes take the steps of Algorithm 1. With more classes, the event moves its class up, and down all classes
    whose score is not smaller by at least 1.

    Parameters
    ----------
    rows, values, m
        The m pairs of the event.
    label
        Class of the event.
    weight
        Weight of the event.
    """
    k, classes, coefs, tops, scores = state.n_faces, state.classes, state.coefs, state.tops, state.scores
    open_classes(state, label + 1)
    n, own = state.n_classes, classes[label]
    own.learned += 1.0
    weight *= own.weight
    if state.balanced > 0.0:
        weight *= (state.rows.seen + 1.0) / (n * own.learned)
    f = own.scale * tops[uint(label)]
    n_rivals = count_rivals(state, label, f - 1.0) if n > 2 else 0
    low, high, is_parted = n * k, 0, n > FEW
    for c in range(n):
        first, a, top = c * k, classes[uint(c)].scale, tops[uint(c)]
        if n > 2:
            violated = n_rivals > 0 if c == label else a * top > f - 1.0
        else:
            violated = a * top < 1.0 if c == label else a * top > -1.0
        if violated:
            change = weight / (state.l2 * step_count(state, c) * a)
            if c == label:
                write_coef(state, c, change)
            else:
                # A class has up to n - 1 events against it for each of its own, so rivals share a step.
                threshold, change = (top, change / n_rivals) if n > 2 else (-1.0 / a, change)
                for i in range(first, first + k):
                    above = scores[uint(i)] >= threshold if n > 2 else scores[uint(i)] > threshold
                    coefs[uint(i)] = -change if above else 0.0
            if is_parted and high > 0 and first - high > GAP:
                add_faces(state.weights, low, high, rows, values, m, coefs)
                low = first
            low, high = min(low, first), first + k
        elif high > 0:  # `add_faces` may cover this class, too
            for i in range(first, first + k):
                coefs[uint(i)] = 0.0
    if low < high:
        add_faces(state.weights, low, high, rows, values, m, coefs)
    shrink(state)


@inlined
def count_rivals(state, label, least):
    """Return the number of other classes with a score above `least`."""
    n_rivals = 0
    for c in range(state.n_classes):
        if c != label and state.classes[uint(c)].scale * state.tops[uint(c)] > least:
            n_rivals += 1
    return n_rivals


@inlined
def shrink(state):
    """Shrink the weights of all classes, and count a step."""
    k, classes = state.n_faces, state.classes
    for c in range(state.n_classes):
        t = step_count(state, c)
        a = classes[uint(c)].scale * (1.0 - 1.0 / t)
        classes[uint(c)].steps += 1.0
        classes[uint(c)].scale = a
        if a < SMALLEST:
            fold(state.weights, c * k, k, a)
            classes[uint(c)].scale = 1.0


@kernel
def write_coef(state, c, change):
    """Write the coefficients of an event of class c, 0 but for one face."""
    first, best, top = c * state.n_faces, 0, state.tops[c]
    for f in range(first, first + state.n_faces):
        state.coefs[uint(f)] = 0.0
    while state.scores[first + best] < top:
        best += 1
    chosen = assign(state, c, best) if state.entropy > 0.0 else best
    state.coefs[first + chosen] = change


@kernel
def open_classes(state, n):
    """Add polytopes with zero weights until there are n classes.

    From the third class on, events compare classes, so their step sizes are equal.
    """
    k = state.n_faces
    for c in range(state.n_classes, n):
        own = state.classes[c]
        own.scale = own.next_count = 1.0
        own.steps = state.classes[0].steps if c >= 2 else 0.0
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
    rows.best, rows.n_shares = predict(state, event_rows, values, m), state.n_classes
    if rows.best >= 0 and rows.needs_proba:
        find_proba(state)
    if rows.calls_back:
        call_back(rows, label, rows.at)
    if label >= 0:
        if calibrates(state, label):
            calibrate(state, label)
        step(state, event_rows, values, m, label, rows.weight)


def run_member(address, block_address, i, cached):
    """Score the rows of a block as its i-th member, and learn the labelled rows."""
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
            step(state, event_rows, values, m, row.label, row.weight)


ENTRY_POINTS = {
    "run_event": EntryPoint(run_event, (INTEGER,)),
    "run_member": EntryPoint(run_member, (INTEGER,) * 4),
    "open_classes": EntryPoint(open_classes, (StateType(CPM.name), INTEGER)),
}
CODE = {"drive": driver.ENTRY_POINTS["drive"], "step": ENTRY_POINTS["run_event"]}
