"""Models that no longer learn, heard beside a learner: hyperplanes, Gaussian expansions, and trees.

Each answers a question: the probabilities of all classes for raw rows, which come as for `rows.load`. They are the
softmax of the model's scores. Hyperplanes and expansions work on (x - shift) * scale, cut
to [-limit, limit], where a missing value contributes nothing; trees look at raw values, and know what to do where one
is missing. A row is answered by itself: the answer is the same to the bit whichever rows are asked about with it.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.kernels import inlined, kernel, reduction
from streamsvm.kernels.access import StateType
from streamsvm.kernels.entries import Entry
from streamsvm.kernels.exponential import exp32
from streamsvm.kernels.losses import scale_terms, softmax_terms
from streamsvm.kernels.state import Array, Declaration, Number, Part, f32, i64, records

u = np.uint64
# A vector of which less than this remains of the kernel says nothing that float32 would notice.
FARTHEST = np.float32(40.0)

QUESTION = Declaration(
    "question",
    {
        "shared": Number("whether all rows have the columns of the first, as for `rows.load`", i64),
        "values": Array(("entries",), "the entries of all rows; row i has those of indptr[i]:indptr[i + 1]", lent=True),
        "columns": Array(("entries",), "their columns", i64, lent=True),
        "indptr": Array(("ends",), "where rows begin and end", i64, lent=True),
        "asked": Array(("asked",), "whether a row is asked about", i64, lent=True),
        "proba": Array(("asked", "classes"), "the answers, by the learner's numbers of classes", lent=True),
    },
)

_ANSWER: dict[str, Number | Array | Part] = {
    "limit": Number("the largest scaled value"),
    "codes": Array(("own_classes",), "the learner's numbers of the model's classes", i64),
    "scores": Array(("own_classes",), "of the row in hand"),
    "terms": Array(("own_classes",), "their probabilities"),
    "start": Array(("own_classes",), "what scores begin with"),
}
_SCALE: dict[str, Number | Array | Part] = {
    "shift": Array(("columns",), "a scaled value is (x - shift) * scale"),
    "scale": Array(("columns",), "see shift"),
}

PLANES = Declaration(
    "planes", _ANSWER | _SCALE | {"coef": Array(("columns", "own_classes"), "of the hyperplanes", lent=True)}
)

EXPANSION = Declaration(
    "gaussian_expansion",
    _ANSWER
    | _SCALE
    | {
        "root": Array(("columns",), "the root of gamma times the relevance of a column"),
        "row": Array(("columns",), "the row in hand, scaled, and multiplied with root", f32),
        "vectors": Array(("vectors", "columns"), "support vectors, likewise", f32, lent=True),
        "coefs": Array(("vectors", "own_classes"), "their coefficients", f32, lent=True),
    },
)

TREES = Declaration(
    "trees",
    _ANSWER
    | {
        "row": Array(("columns",), "the row in hand, NaN where a value is missing", start=math.nan),
        "roots": Array(("trees",), "the first node of each tree", i64, lent=True),
        "outputs": Array(("trees",), "the class whose score a tree adds to", i64, lent=True),
        "nodes": records(
            ("nodes",),
            "of all trees",
            feature=Number("the column that is looked at", i64),
            left=Number("where values up to the threshold go on; -1 at a leaf", i64),
            right=Number("where others do", i64),
            missing=Number("where missing ones do", i64),
            threshold=Number("see left"),
            value=Number("what a leaf adds"),
        ),
    },
)


@inlined
def answer_question(state, question, i):
    """The probabilities for row i, of the scores at hand."""
    scores, terms, codes = state.scores, state.terms, state.codes
    n = codes.size
    total = softmax_terms(scores, 0, n, 1.0, terms, 0)
    scale_terms(terms, 0, n, 1.0 / total)
    for c in range(n):
        question.proba[i, codes[c]] = terms[c]


@inlined
def begin_scores(state):
    """Scores as they are before any column has been looked at."""
    for c in range(state.scores.size):
        state.scores[c] = state.start[c]


@inlined
def scaled_value(state, x, j):
    """A value of column j as the model knows it, 0 where it is missing."""
    z = (x - state.shift[u(j)]) * state.scale[u(j)]
    return min(max(z, -state.limit), state.limit) if x == x else 0.0


@kernel
def ask_planes(state, question):
    """Have hyperplanes answer."""
    values, columns, indptr = question.values, question.columns, question.indptr
    coef, scores, n_columns = state.coef, state.scores, state.shift.size
    for i in range(indptr.size - 1):
        if question.asked[i] == 0:
            continue
        begin_scores(state)
        skip = indptr[i] if question.shared > 0 else 0
        for at in range(indptr[i], indptr[i + 1]):
            j = columns[at - skip]
            if j < n_columns:
                z = scaled_value(state, values[at], j)
                for c in range(scores.size):
                    scores[c] += z * coef[u(j), c]
        answer_question(state, question, i)


@reduction
def square_distance(vectors, b, row):
    """|vectors[b] - row|^2."""
    total = f32(0.0)
    for j in range(row.size):
        less = vectors[u(b), u(j)] - row[u(j)]
        total += less * less
    return total


@kernel
def ask_expansion(state, question):
    """Have a Gaussian expansion answer."""
    values, columns, indptr = question.values, question.columns, question.indptr
    row, root, vectors, coefs, scores = state.row, state.root, state.vectors, state.coefs, state.scores
    for i in range(indptr.size - 1):
        if question.asked[i] == 0:
            continue
        begin_scores(state)
        for j in range(row.size):
            row[j] = f32(0.0)
        skip = indptr[i] if question.shared > 0 else 0
        for at in range(indptr[i], indptr[i + 1]):
            j = columns[at - skip]
            if j < row.size:
                row[u(j)] = f32(scaled_value(state, values[at], j) * root[u(j)])
        for b in range(vectors.shape[0]):
            distance = square_distance(vectors, b, row)
            if distance < FARTHEST:
                similarity = exp32(-distance)
                for c in range(scores.size):
                    scores[c] += similarity * coefs[u(b), c]
        answer_question(state, question, i)


@inlined
def leaf_of(nodes, at, row):
    """The leaf a row comes to from a node on."""
    while nodes[at].left >= 0:
        x = row[nodes[at].feature]
        if math.isnan(x):
            at = nodes[at].missing
        elif x <= nodes[at].threshold:
            at = nodes[at].left
        else:
            at = nodes[at].right
    return at


@kernel
def ask_trees(state, question):
    """Have trees answer."""
    values, columns, indptr = question.values, question.columns, question.indptr
    row, roots, outputs, nodes, scores = state.row, state.roots, state.outputs, state.nodes, state.scores
    for i in range(indptr.size - 1):
        if question.asked[i] == 0:
            continue
        begin_scores(state)
        skip = indptr[i] if question.shared > 0 else 0
        for at in range(indptr[i], indptr[i + 1]):
            j = columns[at - skip]
            if j < row.size:
                row[j] = values[at]
        for t in range(roots.size):
            scores[outputs[t]] += nodes[leaf_of(nodes, roots[t], row)].value
        answer_question(state, question, i)
        for at in range(indptr[i], indptr[i + 1]):  # of wide rows most columns were never touched
            j = columns[at - skip]
            if j < row.size:
                row[j] = math.nan


_QUESTION = StateType(QUESTION.name)

ENTRIES = {
    "ask_planes": Entry(ask_planes, (StateType(PLANES.name), _QUESTION)),
    "ask_expansion": Entry(ask_expansion, (StateType(EXPANSION.name), _QUESTION)),
    "ask_trees": Entry(ask_trees, (StateType(TREES.name), _QUESTION)),
}
