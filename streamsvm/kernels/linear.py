"""A linear machine: logistic regression at several steps, each a head with weights of its own."""

from __future__ import annotations

from numba import types

from streamsvm.kernels import inlined, kernel
from streamsvm.kernels.access import state_at
from streamsvm.kernels.blocks import BLOCK, hand_over, keep_scores, takes_part
from streamsvm.kernels.entries import Entry
from streamsvm.kernels.losses import FEW, LEAST_SHARE, fast_softmax_terms, scale_terms
from streamsvm.kernels.polytope import MOST_WEIGHT, add_faces, dot_faces
from streamsvm.kernels.rows import MOST_EVENTS, ROWS, in_hand, u
from streamsvm.kernels.state import Array, Declaration, Number, Part, i64

LINEAR = Declaration(
    "linear",
    {
        "rows": Part(ROWS, "rows on their way"),
        "n_classes": Number("classes known", i64, saved=True, within=(0.0, MOST_EVENTS)),
        "weights": Array(
            ("weight_rows", "heads*classes"),
            "of all classes of all heads",
            saved=True,
            within=(-MOST_WEIGHT, MOST_WEIGHT),
        ),
        "rates": Array(("heads",), "the steps of the heads"),
        "scores": Array(("heads*classes",), "of the event in hand"),
        "update": Array(("heads*classes",), "what a step adds"),
    },
)

linear_at, block_at = state_at(LINEAR), state_at(BLOCK)


@inlined
def step(state, rows, values, m, label, weight):
    """One step of logistic regression for each head, on an event of m pairs whose scores are at hand."""
    state.n_classes = max(state.n_classes, label + 1)
    n, rates, scores, update = state.n_classes, state.rates, state.scores, state.update
    capacity = scores.size // rates.size
    for h in range(rates.size):
        at = h * capacity
        total = fast_softmax_terms(scores, at, n, 1.0, update, at)
        # An event that weighs much takes no longer step than one that follows it wholly.
        change = min(weight, 1.0 / rates[h]) * rates[h]
        if n > FEW:
            step_likely(state, h, rows, values, m, label, change, total)
        else:
            scale_terms(update, at, n, -change / total)
            update[at + label] += change
    if n <= FEW:
        add_faces(state.weights, 0, scores.size, rows, values, m, update)


@kernel
def step_likely(state, h, rows, values, m, label, change, total):
    """The step of a head where classes are many: the label goes up, and those down that are likely."""
    update, weights, at = state.update, state.weights, h * (state.scores.size // state.rates.size)
    least = LEAST_SHARE * total
    for c in range(state.n_classes):
        if c == label or update[u(at + c)] >= least:
            add = change * ((1.0 if c == label else 0.0) - update[u(at + c)] / total)
            for i in range(m):
                weights[u(rows[u(i)]), u(at + c)] += values[u(i)] * add


def run_member(address, block_address, i, at_hand):
    """Score the rows of a block as its i-th member, and learn those with a label."""
    state, block = linear_at(address), block_at(block_address)
    rows, scores, member = state.rows, state.scores, block.members[i]
    scored = at_hand > 0 and member.dormant == 0.0
    for k in range(block.n_rows):
        row = block.rows[k]
        if not takes_part(block, i, row.label >= 0, row.seen):
            continue
        m = hand_over(block, k, member.way, rows)
        event_rows, values = in_hand(rows)
        if not scored:
            dot_faces(state.weights, scores.size, event_rows, values, m, scores)
            keep_scores(block, k, i, scores)
        if row.label >= 0:
            rows.seen = row.seen
            step(state, event_rows, values, m, row.label, row.weight)


ENTRIES = {"run_member": Entry(run_member, (types.int64,) * 4)}
