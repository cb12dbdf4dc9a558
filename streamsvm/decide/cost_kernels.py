"""Decisions of least expected cost, by probabilities and by how often each class came."""

from __future__ import annotations

import math

from numba import types

from streamsvm.core.access import state_at
from streamsvm.core.entry_points import Entry
from streamsvm.core.jit import kernel
from streamsvm.core.state import Array, Declaration, Number, i64

COSTS = Declaration(
    "costs",
    {
        "abstain": Number("what it costs to decide for none", start=math.inf),
        "balanced": Number("whether costs are multiplied by a weight inverse to how often the class came", i64),
        "matrix": Array(("classes", "decisions"), "the cost of each decision where the class is true"),
        "counts": Array(("classes",), "how often each class came", i64),
        "expected": Array(("decisions",), "the cost of each decision that is to be expected"),
    },
)

DECIDING = Declaration(
    "deciding",
    {
        "proba": Array(("asked", "classes"), "the probabilities of all classes, row by row", lent=True),
        "labels": Array(("asked",), "the class of each row, -1 where it is not known", i64, lent=True),
        "taken": Array(("asked",), "that which counts from now on, -1 for none", i64, lent=True),
        "decisions": Array(("asked",), "the class that is decided for, -1 for none", i64, lent=True),
        "weights": Array(("weighed",), "what the costs of each row's label are multiplied by, if asked for", lent=True),
    },
)


costs_at, deciding_at = state_at(COSTS), state_at(DECIDING)


@kernel
def weigh(state, y, total, n_seen):
    """What costs are multiplied by where class y is true, of so many labels of so many classes."""
    count = state.counts[y]
    return total / (n_seen * count) if state.balanced > 0 and count > 0 else 1.0


@kernel
def decide(state, proba, i, total, n_seen):
    """The decision for row i; classes that have not come and are not probable are none."""
    n, expected = proba.shape[1], state.expected
    for d in range(n):
        expected[d] = 0.0
    for y in range(n):  # one after the other, however many there are
        share = proba[i, y] * weigh(state, y, total, n_seen)
        if share > 0.0:
            for d in range(n):
                expected[d] += share * state.matrix[y, d]
    best, least = -1, state.abstain
    for d in range(n):
        is_known = proba[i, d] > 0.0 or state.counts[d] > 0
        if is_known and (expected[d] < least or (expected[d] == least and best < 0)):
            best, least = d, expected[d]
    return best


@kernel
def run_costs(address, rows_address):
    """Decide by each row, then take its label; by addresses, since states take longer to be handed over."""
    state, deciding = costs_at(address), deciding_at(rows_address)
    n = deciding.proba.shape[1]
    total = n_seen = 0
    for y in range(n):
        total += state.counts[y]
        n_seen += state.counts[y] > 0
    for i in range(deciding.labels.size):
        label, taken = deciding.labels[i], deciding.taken[i]
        deciding.decisions[i] = decide(state, deciding.proba, i, total, n_seen)
        if deciding.weights.size > 0:
            deciding.weights[i] = weigh(state, label, total, n_seen) if 0 <= label < n else 1.0
        if 0 <= taken < n:
            total += 1
            n_seen += state.counts[taken] == 0
            state.counts[taken] += 1


ENTRIES = {"run_costs": Entry(run_costs, (types.int64,) * 2)}
