"""A linear machine: logistic regression at several steps, each a head with weights of its own.

Where most labels come late, what the longest steps have followed has passed when it is predicted by. The last head is
then the average of the weights V of the one before it, p V + q U, of which it holds U: a step of V by D is one of U
by -D p/q, which leaves the average as it is, and so costs no more than the pairs of the event.
"""

from __future__ import annotations

from streamsvm.core.access import state_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import FEW, LEAST_SHARE, fast_softmax_terms, scale_terms
from streamsvm.core.schema import Array, Number, Schema, Substate, i64
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import uint
from streamsvm.features.scaler import MOST_EVENTS, SCALER, current_row
from streamsvm.online.minibatch import MINIBATCH, keep_scores, load_cached_row
from streamsvm.polytope.faces import MOST_WEIGHT, add_faces, dot_faces

# Averages are over about so many events, shares of labels that come late over so many labels.
AVERAGED, LATE_RATE = 1000.0, 0.002
# U takes the whole average where less of it is left.
LEAST_SHARE_OF_U = 1e-3

LINEAR = Schema(
    "linear",
    {
        "rows": Substate(SCALER, "rows on their way"),
        "n_classes": Number("classes known", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "weights": Array(
            ("weight_rows", "heads*classes"),
            "of all classes of all heads",
            saved=True,
            bounds=(-MOST_WEIGHT, MOST_WEIGHT),
        ),
        "late": Number("the decayed share of labels that come late", saved=True, bounds=(0.0, 1.0)),
        "n_averaged": Number(
            "how many V are in the average; 0 where the last head makes its own steps",
            i64,
            saved=True,
            bounds=(0.0, MOST_EVENTS),
        ),
        "mean_v": Number("p of the average", saved=True, bounds=(0.0, 1.0)),
        "mean_u": Number("q of the average", start=1.0, saved=True, bounds=(LEAST_SHARE_OF_U / 2.0, 1.0)),
        "rates": Array(("heads",), "the steps of the heads"),
        "scores": Array(("heads*classes",), "of the current event"),
        "update": Array(("heads*classes",), "what a step adds"),
    },
)

linear_at, block_at = state_at(LINEAR), state_at(MINIBATCH)


@inlined
def step(state, rows, values, m, label, weight):
    """One step of logistic regression for each head, on an event of m pairs whose scores are known."""
    state.n_classes = max(state.n_classes, label + 1)
    n, rates, scores, update = state.n_classes, state.rates, state.scores, state.update
    capacity, n_heads = scores.size // rates.size, n_stepping(state)
    for h in range(n_heads):
        at = h * capacity
        total = fast_softmax_terms(scores, at, n, 1.0, update, at)
        # An event that weighs much takes no longer step than one that follows it wholly.
        change = min(weight, 1.0 / rates[h]) * rates[h]
        if n > FEW:
            step_likely(state, h, h, rows, values, m, label, change, total)
            if h + 1 == n_heads and n_heads < rates.size:
                step_likely(state, h, n_heads, rows, values, m, label, -change * state.mean_v / state.mean_u, total)
        else:
            scale_terms(update, at, n, -change / total)
            update[at + label] += change
    if n <= FEW:
        if n_heads < rates.size:
            at = n_heads * capacity
            for c in range(at, at + n):
                update[c] = -update[c - capacity] * state.mean_v / state.mean_u
        add_faces(state.weights, 0, scores.size, rows, values, m, update)


@kernel
def step_likely(state, h, to, rows, values, m, label, change, total):
    """The step of head h, made by another, where classes are many: the label goes up, likely ones go down."""
    update, weights, capacity = state.update, state.weights, state.scores.size // state.rates.size
    least, at, at_to = LEAST_SHARE * total, h * capacity, to * capacity
    for c in range(state.n_classes):
        if c == label or update[uint(at + c)] >= least:
            add = change * ((1.0 if c == label else 0.0) - update[uint(at + c)] / total)
            for i in range(m):
                weights[uint(rows[uint(i)]), uint(at_to + c)] += values[uint(i)] * add


# The average --------------------------------------------------------------------------------------------------------


@inlined
def n_stepping(state):
    """How many heads make steps of their own."""
    return state.rates.size - (1 if state.n_averaged > 0 else 0)


@inlined
def average_scores(state):
    """The scores of the average, from those of V and U."""
    scores, at = state.scores, state.scores.size // state.rates.size
    for c in range(scores.size - at, scores.size):
        scores[c] = state.mean_v * scores[c - at] + state.mean_u * scores[c]


@kernel
def follow_lateness(state, late):
    """Take in whether a label came late, and V into the average, where there is one."""
    state.late += max(LATE_RATE, 1.0 / (state.rows.seen + 1.0)) * (late - state.late)
    if state.late > 0.5:
        # It begins from the weights that the last head has.
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
    """Write the average into U alone."""
    weights, at = state.weights, state.scores.size // state.rates.size
    for j in range(weights.shape[0]):
        for c in range(state.scores.size - at, state.scores.size):
            weights[j, c] = state.mean_v * weights[j, c - at] + state.mean_u * weights[j, c]
    state.mean_v, state.mean_u = 0.0, 1.0


def run_member(address, block_address, i, cached):
    """Score the rows of a block as its i-th member, and learn those with a label."""
    state, block = linear_at(address), block_at(block_address)
    rows, scores, member = state.rows, state.scores, block.members[i]
    for k in range(block.n_rows):
        row = block.rows[k]
        m = load_cached_row(block, k, member.way, rows)
        event_rows, values = current_row(rows)
        if cached == 0:
            dot_faces(state.weights, scores.size, event_rows, values, m, scores)
            if state.n_averaged > 0:
                average_scores(state)
            keep_scores(block, k, i, scores)
        if row.label >= 0:
            rows.seen = row.seen
            step(state, event_rows, values, m, row.label, row.weight)
            if row.late > 0 or state.late > 0.0:
                follow_lateness(state, row.late)


ENTRY_POINTS = {"run_member": EntryPoint(run_member, (INTEGER,) * 4)}
