"""Evaluation of hyperplanes, Gaussian expansions and boosted trees on raw rows.

A query consists of rows. A model writes the probabilities of all classes, the softmax of its scores, for the rows
marked in the query. Hyperplanes and expansions use (x - shift) * scale, clipped to [-limit, limit]; a missing value
contributes nothing. Trees use raw values and have a direction for missing ones. The result for a row does not depend on
other rows.

Trees are evaluated in one of two ways. Trees of many columns or leaves are walked level by level. Otherwise the leaves
of a tree are the bits of a mask, from left to right. A value beyond the threshold of a node removes the leaves to the
left of it, and the exit leaf is the first that remains. Each column has one mask per interval between its thresholds,
over all trees. A row therefore costs one search and one conjunction per column, whatever the depth. Neither way is fast
enough for all models. For 100 iterations with trees of 31 leaves, a row takes

    columns                                  5      8     20     54
    2 classes, level by level (µs)         1.2    1.2    1.2    1.2
    2 classes, masks (µs)                  0.6    0.8    1.5    3.3
    3 classes, level by level (µs)         3.7    3.3    3.3    3.3
    3 classes, masks (µs)                  1.0    1.5    3.1    6.8

Notes
-----
C. Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive ensembles of regression trees",
SIGIR, 2015.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import (
    FLAGS,
    INTEGER,
    INTEGERS,
    SHORT_WORD_TABLE,
    StateType,
    address_of,
    call_pointer,
    inlined,
    jit_fma,
    kernel,
    lowest_bit,
    state_at,
)
from streamsvm.core.losses import scale_terms, softmax_terms
from streamsvm.core.math import exp32
from streamsvm.core.schema import Array, Number, Schema, Substate, f32, i32, i64, records
from streamsvm.features.scaler import FARTHER, row_at

uint, uint32 = np.uint64, np.uint32
# Support vectors per block.
LANES = 64
# Marks of rows for a member.
ASKED, ANSWERED = 1, 2
# Leaves per word of a mask, and the word that keeps all of them.
WORD, ALL = 32, uint32(0xFFFFFFFF)

QUERY = Schema(
    "query",
    {
        "shared": Number("whether all rows have the columns of the first one", i64),
        "values": Array(("entries",), "values of all rows; row i has those of indptr[i]:indptr[i + 1]", external=True),
        "columns": Array(("entries",), "column of each value", i64, external=True),
        "indptr": Array(("ends",), "start of each row in `values`, and the end of the last", i64, external=True),
        "first": Number("the first row to evaluate", i64),
        "end": Number("the row after the last one", i64),
        "asked": Array(("members", "asked"), "ASKED for a row to evaluate, ANSWERED afterwards", i64, external=True),
        "member": Number("the member that is evaluated", i64),
        "proba": Array(("members", "asked", "classes"), "probabilities, by the learner's class numbers", external=True),
    },
)

_ANSWER: dict[str, Number | Array | Substate] = {
    "limit": Number("the largest scaled value"),
    "codes": Array(("own_classes",), "the learner's numbers of the model's classes", i64),
    "scores": Array(("own_classes",), "scores of the current row"),
    "terms": Array(("own_classes",), "probabilities of the current row"),
    "start": Array(("own_classes",), "initial scores"),
}
_SCALE: dict[str, Number | Array | Substate] = {
    "shift": Array(("columns",), "a scaled value is (x - shift) * scale"),
    "scale": Array(("columns",), "see shift"),
}

PLANES = Schema(
    "planes",
    _ANSWER | _SCALE | {"coef": Array(("columns", "own_classes"), "coefficients of the hyperplanes", external=True)},
)

EXPANSION = Schema(
    "gaussian_expansion",
    _ANSWER
    | _SCALE
    | {
        "root": Array(("columns",), "square root of gamma times the relevance of a column"),
        "row": Array(("columns",), "the current row, scaled and multiplied by root", f32),
        "vectors": Array(
            ("blocks", "columns", "lanes"),
            "support vectors, scaled and multiplied by root, in blocks",
            f32,
            external=True,
        ),
        "coefs": Array(("blocks", "own_classes", "lanes"), "their coefficients", f32, external=True),
        "near": Array(("lanes",), "kernel values of a block", f32),
        "sums": Array(("own_classes", "lanes"), "sums of each lane for the scores", f32),
    },
)

TREES = Schema(
    "trees",
    _ANSWER
    | {
        "row": Array(
            ("twice_columns",),
            "values of the current row, each twice: -inf where missing, then NaN where missing",
            start=math.nan,
        ),
        "outputs": Array(("trees",), "class whose score each tree adds to", i64),
        # Level by level.
        "roots": Array(("walked",), "the first node of each tree, the deepest tree first", i64),
        "growing": Array(("levels",), "number of trees deeper than each level", i64),
        "places": Array(("walked",), "position of each tree in `roots`, in the order of summation", i64),
        "at": Array(("walked",), "the current node in each tree", i64),
        "nodes": records(
            ("nodes",),
            "nodes of all trees by level; a leaf leads to itself. Trees without nodes have masks",
            threshold=Number("largest value that goes to the first child; of a leaf its value"),
            value=Number("position in `row` of the value to compare", i32),
            next=Number("the first child", i32),
        ),
        # By masks.
        "used": records(
            ("used",),
            "columns that nodes use",
            column=Number("number of the column", i64),
            first=Number("its first mask; one for each threshold in ascending order", i64),
            end=Number("the mask after its last", i64),
            missing=Number("mask for a missing value, -1 for none", i64),
        ),
        "thresholds": Array(("thresholds",), "threshold of each mask: larger values have this mask or a later one"),
        "masks": Array(
            ("masks", "words"), "bits of the leaves that remain, the same number of words for each tree", uint32
        ),
        "remaining": Array(("words",), "bits of the leaves that remain for the current row", uint32),
        "leaves": Array(("bits",), "value of each leaf"),
    },
)


@inlined
def begins(state, query, i):
    """Initialise the scores, and return whether row i is to be evaluated."""
    for c in range(state.scores.size):
        state.scores[c] = state.start[c]
    return query.asked[query.member, i] == ASKED


@inlined
def row_of(query, i):
    """Return values and columns of row i."""
    return row_at(query.values, query.columns, query.indptr, query.shared > 0, i)


@inlined
def write_proba(state, query, i):
    """Write the probabilities of row i, the softmax of the scores."""
    query.asked[query.member, i] = ANSWERED
    scores, terms, codes, proba = state.scores, state.terms, state.codes, query.proba[query.member, i]
    n = codes.size
    total = softmax_terms(scores, 0, n, terms, 0)
    scale_terms(terms, 0, n, 1.0 / total)
    for c in range(proba.size):
        proba[c] = 0.0
    for c in range(n):
        proba[codes[c]] = terms[c]


@inlined
def scaled_value(state, x, j):
    """Return the scaled value of column j, 0 if missing."""
    z = (x - state.shift[uint(j)]) * state.scale[uint(j)]
    share = FARTHER / abs(z) if abs(z) > FARTHER > state.limit else 1.0
    return min(max(z, -state.limit), state.limit) * (share * share) if x == x else 0.0


@inlined
def score_planes(state, values, columns):
    """Compute the scores of a row by hyperplanes."""
    coef, scores, n_columns = state.coef, state.scores, state.shift.size
    for k in range(values.size):
        j = columns[uint(k)]
        if j < n_columns:
            z = scaled_value(state, values[uint(k)], j)
            for c in range(scores.size):
                scores[c] += z * coef[uint(j), c]


@jit_fma
def find_near(state, block):
    """Compute the kernel of the current row with each vector of a block."""
    row, vectors, near, whole = state.row, state.vectors, state.near, state.row.size // 4 * 4
    for b in range(near.size):
        near[uint(b)] = f32(0.0)
    for j in range(0, whole, 4):  # sums are read and written for four columns at a time
        x, y, z, t = row[uint(j)], row[uint(j + 1)], row[uint(j + 2)], row[uint(j + 3)]
        for b in range(near.size):
            p, q = vectors[uint(block), uint(j), uint(b)] - x, vectors[uint(block), uint(j + 1), uint(b)] - y
            r, s = vectors[uint(block), uint(j + 2), uint(b)] - z, vectors[uint(block), uint(j + 3), uint(b)] - t
            near[uint(b)] += (p * p + q * q) + (r * r + s * s)
    for j in range(whole, row.size):
        x = row[uint(j)]
        for b in range(near.size):
            less = vectors[uint(block), uint(j), uint(b)] - x
            near[uint(b)] += less * less
    for b in range(near.size):
        near[uint(b)] = exp32(-near[uint(b)])


@jit_fma
def add_up(state):
    """Add the contributions of all vectors to the scores."""
    near, coefs, sums, scores = state.near, state.coefs, state.sums, state.scores
    for c in range(scores.size):
        for b in range(near.size):
            sums[uint(c), uint(b)] = f32(0.0)
    for block in range(coefs.shape[0]):
        find_near(state, block)
        for c in range(scores.size):
            for b in range(near.size):
                sums[uint(c), uint(b)] += near[uint(b)] * coefs[uint(block), uint(c), uint(b)]
    for c in range(scores.size):
        for b in range(near.size):
            scores[uint(c)] += sums[uint(c), uint(b)]


@inlined
def score_expansion(state, values, columns):
    """Compute the scores of a row by a Gaussian expansion."""
    row, root = state.row, state.root
    for j in range(row.size):
        row[j] = f32(0.0)
    for k in range(values.size):
        j = columns[uint(k)]
        if j < row.size:
            row[uint(j)] = f32(scaled_value(state, values[uint(k)], j) * root[uint(j)])
    add_up(state)


@inlined
def note_value(state, j, x):
    """Set the value of a column, NaN if missing."""
    if 2 * j + 2 < state.row.size:
        state.row[2 * j] = x if x == x else -math.inf
        state.row[2 * j + 1] = x


@inlined
def descend(state):
    """Find the leaf of the current row in every tree.

    All trees descend one level at a time, because the memory accesses of different trees overlap. A leaf compares a
    value that is always -inf and leads to itself.
    """
    row, nodes, roots, growing, at = state.row, state.nodes, state.roots, state.growing, state.at
    for t in range(roots.size):
        at[t] = roots[t]
    for level in range(growing.size):
        for t in range(growing[uint(level)]):
            node = nodes[uint(at[uint(t)])]
            at[uint(t)] = node.next + (0 if row[uint(node.value)] <= node.threshold else 1)


@inlined
def add_walked(state):
    """Add the values of the leaves, found level by level, to the scores."""
    nodes, at, places, outputs, scores = state.nodes, state.at, state.places, state.outputs, state.scores
    descend(state)
    for t in range(places.size):
        scores[uint(outputs[uint(t)])] += nodes[uint(at[uint(places[uint(t)])])].threshold


@kernel
def build_masks(masks, at, is_first, begins, ends):
    """Remove the bits from `begins` to `ends` of each node from its mask `at`.

    Nodes are in order of their masks. A mask starts as a copy of the previous one, unless it `is_first` of its column.
    """
    done = -1
    for k in range(at.size):
        mask = masks[at[k]]
        if at[k] != done:
            done = at[k]
            for w in range(mask.size):
                mask[w] = ALL if is_first[k] else masks[done - 1, w]
        for bit in range(begins[k], ends[k]):
            mask[bit // WORD] &= ~(uint32(1) << uint32(bit % WORD))


@inlined
def n_below(thresholds, first, end, x):
    """Return the position after the last of the ascending thresholds below a value."""
    n = end - first
    while n > 0:
        half = (n + 1) >> 1
        first += half if thresholds[uint(first + half - 1)] < x else 0
        n -= half
    return first


@inlined
def remove_leaves(state):
    """Remove the leaves that the current row does not reach."""
    row, thresholds, masks, remaining = state.row, state.thresholds, state.masks, state.remaining
    for w in range(remaining.size):
        remaining[uint(w)] = ALL
    for k in range(state.used.size):
        own = state.used[k]
        x = row[uint(2 * own.column + 1)]
        at = own.missing
        if x == x:
            at = n_below(thresholds, own.first, own.end, x) - 1
            at = at if at >= own.first else -1
        if at >= 0:
            for w in range(remaining.size):
                remaining[uint(w)] &= masks[uint(at), uint(w)]


@inlined
def add_masked(state):
    """Add the values of the leaves, found by masks, to the scores."""
    remaining, outputs, scores = state.remaining, state.outputs, state.scores
    n_words = remaining.size // max(outputs.size, 1)
    remove_leaves(state)
    for t in range(outputs.size):
        w = t * n_words
        while remaining[uint(w)] == 0:
            w += 1
        scores[uint(outputs[uint(t)])] += state.leaves[uint(WORD * w) + lowest_bit(uint(remaining[uint(w)]))]


@inlined
def score_trees(state, values, columns):
    """Compute the scores of a row by trees."""
    for k in range(values.size):
        note_value(state, columns[uint(k)], values[uint(k)])
    if state.nodes.size > 0:
        add_walked(state)
    else:
        add_masked(state)
    for k in range(values.size):  # cheaper than clearing all columns of a wide row
        note_value(state, columns[uint(k)], math.nan)


@kernel
def evaluate(query, run, model):
    """Evaluate the model at address `model` by the function at address `run`."""
    call_pointer(run, (model, address_of(query)))


# Called by address, each compiled separately.
query_at, planes_at, expansion_at, trees_at = map(state_at, (QUERY, PLANES, EXPANSION, TREES))


def run_planes(model, rows):
    """Evaluate hyperplanes on the rows of a query, both given by address."""
    state, query = planes_at(model), query_at(rows)
    for i in range(query.first, query.end):
        if begins(state, query, i):
            score_planes(state, *row_of(query, i))
            write_proba(state, query, i)


def run_expansion(model, rows):
    """Evaluate a Gaussian expansion on the rows of a query, both given by address."""
    state, query = expansion_at(model), query_at(rows)
    for i in range(query.first, query.end):
        if begins(state, query, i):
            score_expansion(state, *row_of(query, i))
            write_proba(state, query, i)


def run_trees(model, rows):
    """Evaluate trees on the rows of a query, both given by address."""
    state, query = trees_at(model), query_at(rows)
    for i in range(query.first, query.end):
        if begins(state, query, i):
            score_trees(state, *row_of(query, i))
            write_proba(state, query, i)


ENTRY_POINTS = {
    "build_masks": EntryPoint(build_masks, (SHORT_WORD_TABLE, INTEGERS, FLAGS, INTEGERS, INTEGERS)),
    "evaluate": EntryPoint(evaluate, (StateType(QUERY.name), INTEGER, INTEGER)),
    **{run.__name__: EntryPoint(run, (INTEGER,) * 2) for run in (run_planes, run_expansion, run_trees)},
}
