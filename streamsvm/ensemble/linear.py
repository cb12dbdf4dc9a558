"""Linear member: logistic regression, with heads of two kinds.

The first head is a *filter*, an extended Kalman filter whose weights are a random walk. It has the covariance matrix P
of the weights, shared by the classes. An event with scaled values x, probabilities p and label y changes

    P <- P - h g g' / d + r I,    w_c <- w_c + g (1[c = y] - p_c) / d,    g = Px,    d = 1 + h x'g,

with h the curvature of the log loss, the mean of p_c (1 - p_c) over p, and r the variance of a step of the walk. The
steps follow from the data, so few events suffice. The time is quadratic in the columns. With more than MOST_FILTERED
columns, the head is one of the other kind.

The other heads make stochastic gradient steps, each with its own step size.

The largest step size follows recent labels, which is of little use if most labels are late. The last head then becomes
the average of the weights V of the previous head, p V + q U, and stores U. A step D of V changes U by -D p / q, which
leaves the average unchanged. It therefore costs only the pairs of the event.

Notes
-----
Extended Kalman filters are online natural gradient steps: Y. Ollivier, "Online natural gradient as a Kalman filter",
Electronic Journal of Statistics 12, 2018. Random walk of the weights: W. Penny and S. Roberts, "Dynamic logistic
regression", IJCNN 1999.
"""

from __future__ import annotations

import math

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, inlined, kernel, state_at, uint
from streamsvm.core.losses import FEW, LEAST_SHARE, fast_softmax_terms, scale_terms
from streamsvm.core.schema import Array, Number, Schema, Substate, i64
from streamsvm.features.scaler import MOST_EVENTS, SCALER, current_row
from streamsvm.online.batch import MINIBATCH, keep_scores, load_cached_row
from streamsvm.polytope.faces import MOST_WEIGHT, add_faces, dot_faces

# The filter: maximum number of columns, initial variance of a weight, variance of a step, and least curvature.
MOST_FILTERED, PRIOR, WALK, LEAST_CURVATURE = 64, 1.0, 1e-6, 0.05
# Limits of sample weights in the filter. Smaller ones underflow, larger ones multiply the rounding errors of P.
LEAST_SAMPLE_WEIGHT, MOST_SAMPLE_WEIGHT = 1e-300, 1e9
# Number of events in an average, and rate of the decayed share of labels that are late.
AVERAGED, LATE_RATE = 1000.0, 0.002
# If q falls below this value, U takes over the whole average.
LEAST_SHARE_OF_U = 1e-3

LINEAR = Schema(
    "linear",
    {
        "rows": Substate(SCALER, "current row"),
        "n_classes": Number("number of known classes", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "weights": Array(
            ("weight_rows", "heads*classes"),
            "weights of all classes of all heads; U in the last head if it averages",
            saved=True,
            bounds=(-MOST_WEIGHT, MOST_WEIGHT),
        ),
        "code_weights": Array(
            ("slots", "heads*classes"),
            "weights of codes, of the same heads",
            saved=True,
            bounds=(-MOST_WEIGHT, MOST_WEIGHT),
        ),
        "late": Number("decayed share of late labels", saved=True, bounds=(0.0, 1.0)),
        "n_averaged": Number(
            "number of steps of V in the average, 0 if the last head makes its own steps",
            i64,
            saved=True,
            bounds=(0.0, MOST_EVENTS),
        ),
        "mean_v": Number("p of the average", saved=True, bounds=(0.0, 1.0)),
        "mean_u": Number("q of the average", start=1.0, saved=True, bounds=(LEAST_SHARE_OF_U / 2.0, 1.0)),
        "n_filtered": Number("number of weight rows with values so far", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "covariance": Array(
            ("filtered", "filtered"),
            "covariance of the weights of the filter",
            saved=True,
            bounds=(-2.0 * PRIOR, 2.0 * PRIOR),
        ),
        "gains": Array(("filtered",), "covariance times the values of the event"),
        "rates": Array(("heads",), "step sizes of the heads"),
        "scores": Array(("heads*classes",), "scores of the current event"),
        "update": Array(("heads*classes",), "what a step adds to the weights per unit of a value"),
    },
)

linear_at, block_at = state_at(LINEAR), state_at(MINIBATCH)


@inlined
def step(state, pairs, slots, label, weight):
    """Make one step of logistic regression per head.

    Parameters are the pairs (rows, values, number) and the slots of the codes of the event, its label and its weight.
    The scores of the event must be known.
    """
    rows, values, m = pairs
    state.n_classes = max(state.n_classes, label + 1)
    n, rates, scores, update = state.n_classes, state.rates, state.scores, state.update
    capacity, n_heads, n_filters = scores.size // rates.size, n_stepping(state), n_filtering(state, pairs)
    for h in range(n_heads):
        at = h * capacity
        total = fast_softmax_terms(scores, at, n, 1.0, update, at)
        if h < n_filters:
            filter_step(state, pairs, label, weight, total)
        # Limits the step size to 1 for events with large weights.
        change = min(weight, 1.0 / rates[h]) * rates[h]
        if n > FEW and h >= n_filters:
            step_likely(state, h, h, (rows, values, m), label, change, total)
            if h + 1 == n_heads and n_heads < rates.size:
                share = -change * state.mean_v / state.mean_u
                step_likely(state, h, n_heads, (rows, values, m), label, share, total)
        elif n <= FEW:
            scale_terms(update, at, n, -change / total)
            update[at + label] += change
    if n <= FEW:
        if n_heads < rates.size:
            at = n_heads * capacity
            for c in range(at, at + n):
                update[c] = -update[c - capacity] * state.mean_v / state.mean_u
        add_faces(state.weights, n_filters * capacity, scores.size, rows, values, m, update)
        for slot in slots:
            for f in range(scores.size):
                state.code_weights[uint(slot), uint(f)] += update[uint(f)]


@kernel
def step_likely(state, h, to, pairs, label, change, total):
    """Make the step of head h in the weights of head `to`.

    With many classes, only the label and classes with at least LEAST_SHARE of the probability change.
    """
    update, weights, capacity = state.update, state.weights, state.scores.size // state.rates.size
    rows, values, m = pairs
    least, at, at_to = (LEAST_SHARE * total if state.n_classes > FEW else 0.0), h * capacity, to * capacity
    for c in range(state.n_classes):
        if c == label or update[uint(at + c)] >= least:
            add = change * ((1.0 if c == label else 0.0) - update[uint(at + c)] / total)
            for i in range(m):
                weights[uint(rows[uint(i)]), uint(at_to + c)] += values[uint(i)] * add


# The filter ---------------------------------------------------------------------------------------------------------


@inlined
def n_filtering(state, pairs):
    """Add the columns of an event; return 1 while the filter has room, else 0.

    Values of 0 do not count, so dense and sparse rows give equal bits.
    """
    rows, values, m = pairs
    while m > 1 and values[uint(m - 1)] == 0.0:
        m -= 1
    state.n_filtered = max(state.n_filtered, rows[uint(m - 1)] + 1)
    return 1 if state.n_filtered <= state.gains.size else 0


@inlined
def filter_step(state, pairs, label, weight, total):
    """Make the step of the filter.

    The softmax terms are in `update` and add up to `total`.
    """
    n, covariance, gains, terms = state.n_classes, state.covariance, state.gains, state.update
    rows, values, m = pairs
    n_rows, curvature, spread = state.n_filtered, LEAST_CURVATURE, 0.0
    for c in range(n):
        share = terms[uint(c)] / total
        curvature += share * share * (1.0 - share)
    for j in range(n_rows):
        gains[uint(j)] = 0.0
    while rows[uint(m - 1)] >= n_rows:  # values of 0
        m -= 1
    for i in range(m):
        row, value = uint(rows[uint(i)]), values[uint(i)]
        for j in range(n_rows):
            gains[uint(j)] += value * covariance[row, uint(j)]
    for i in range(m):
        spread += values[uint(i)] * gains[uint(rows[uint(i)])]
    weight = min(max(weight, LEAST_SAMPLE_WEIGHT), MOST_SAMPLE_WEIGHT)
    # Rounding errors can make the variance of a score negative.
    change = weight / (1.0 + weight * curvature * max(spread, 0.0))
    root = math.sqrt(change * curvature)
    for j in range(n_rows):
        gains[uint(j)] *= root
    for i in range(n_rows):
        for j in range(n_rows):
            covariance[uint(i), uint(j)] -= gains[uint(i)] * gains[uint(j)]
        if covariance[uint(i), uint(i)] < PRIOR:
            covariance[uint(i), uint(i)] += WALK
    step_likely(state, 0, 0, (state.rows.all_rows, gains, n_rows), label, change / root, total)


# The average --------------------------------------------------------------------------------------------------------


@inlined
def n_stepping(state):
    """Return the number of heads that make steps of their own."""
    return state.rates.size - (1 if state.n_averaged > 0 else 0)


@inlined
def average_scores(state):
    """Replace the scores of U by the scores of the average."""
    scores, at = state.scores, state.scores.size // state.rates.size
    for c in range(scores.size - at, scores.size):
        scores[c] = state.mean_v * scores[c - at] + state.mean_u * scores[c]


@kernel
def update_lateness(state, late):
    """Update the share of late labels, and the average if it is used."""
    state.late += max(LATE_RATE, 1.0 / (state.rows.seen + 1.0)) * (late - state.late)
    if state.late > 0.5:
        # The average starts from the weights of the last head.
        state.n_averaged += 1
        share = max(1.0 / (state.n_averaged + 1.0), 1.0 / AVERAGED)
        state.mean_v += share * (1.0 - state.mean_v)
        state.mean_u *= 1.0 - share
        if state.mean_u < LEAST_SHARE_OF_U:
            settle_average(state)
    elif state.n_averaged > 0:
        settle_average(state)
        state.n_averaged = 0
    elif state.late < LATE_RATE:
        state.late = 0.0


@kernel
def settle_average(state):
    """Store the average in U alone, so that p is 0 and q is 1."""
    at = state.scores.size // state.rates.size
    for weights in (state.weights, state.code_weights):
        for j in range(weights.shape[0]):
            for c in range(state.scores.size - at, state.scores.size):
                weights[j, c] = state.mean_v * weights[j, c - at] + state.mean_u * weights[j, c]
    state.mean_v, state.mean_u = 0.0, 1.0


def run_member(address, block_address, i, cached):
    """Score the rows of a block as its i-th member, and learn the labelled rows."""
    state, block = linear_at(address), block_at(block_address)
    rows, scores, member = state.rows, state.scores, block.members[i]
    for k in range(block.n_rows):
        row = block.rows[k]
        m = load_cached_row(block, k, member.way, rows)
        event_rows, values = current_row(rows)
        slots = block.slots[row.start : row.start + (row.n_codes if state.code_weights.shape[0] > 0 else 0)]
        if cached == 0:
            dot_faces(state.weights, scores.size, event_rows, values, m, scores)
            for slot in slots:
                for f in range(scores.size):
                    scores[uint(f)] += state.code_weights[uint(slot), uint(f)]
            if state.n_averaged > 0:
                average_scores(state)
            keep_scores(block, k, i, scores)
        if row.label >= 0:
            rows.seen = row.seen
            step(state, (event_rows, values, m), slots, row.label, row.weight)
            if row.late > 0 or state.late > 0.0:
                update_lateness(state, row.late)


ENTRY_POINTS = {"run_member": EntryPoint(run_member, (INTEGER,) * 4)}
