"""Models that no longer learn, heard beside a learner: hyperplanes, Gaussian expansions, and trees.

Each answers a question: the probabilities of all classes for raw rows, which come as for `rows.load`. They are the
softmax of the model's scores. Hyperplanes and expansions work on (x - shift) * scale, cut to [-limit, limit], where a
missing value contributes nothing, and an outlier next to nothing; trees look at raw values, and know what to do where
one is missing. A row is answered by itself: the answer is the same to the bit whichever rows are asked about with it.

Trees of many columns or leaves are walked through, node by node. Of others the leaves are bits, from left to right:
where a row is beyond the threshold of a node, it goes right, and the leaves to the left are struck out; its leaf is the
first that is left standing. What all nodes of a column strike out, in all trees at once, is known for each stretch
between thresholds. So a row is a search and a conjunction of masks for each column, however deep trees are.

Notes
-----
C. Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive ensembles of regression trees",
SIGIR, 2015.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.budgeted.expansion import lowest_bit
from streamsvm.core.access import StateType, address_of, state_at
from streamsvm.core.entry_points import Entry
from streamsvm.core.jit import call, fused, inlined, kernel
from streamsvm.core.losses import scale_terms, softmax_terms
from streamsvm.core.math import exp32
from streamsvm.core.signatures import FLAGS, INTEGER, INTEGERS, SHORT_WORD_TABLE
from streamsvm.core.state import Array, Declaration, Number, Part, f32, i32, i64, records
from streamsvm.features.scaler import FARTHER

u, u32 = np.uint64, np.uint32
# So many support vectors are looked at side by side.
LANES = 64
# The leaves of a word of a mask, and the mask that strikes none of them out.
WORD, ALL = 32, u32(0xFFFFFFFF)

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
        "vectors": Array(
            ("blocks", "columns", "lanes"), "support vectors, likewise, a block side by side", f32, lent=True
        ),
        "coefs": Array(("blocks", "own_classes", "lanes"), "their coefficients", f32, lent=True),
        "near": Array(("lanes",), "how near those of a block are, by the kernel", f32),
        "sums": Array(("own_classes", "lanes"), "what each lane adds to the scores", f32),
    },
)

TREES = Declaration(
    "trees",
    _ANSWER
    | {
        "row": Array(
            ("twice_columns",),
            "of the row in hand for each column its value, -inf where it is missing, and its value, NaN where missing",
            start=math.nan,
        ),
        "roots": Array(("trees",), "the first node of each tree, the deepest tree first", i64),
        "growing": Array(("levels",), "how many of them are deeper than so many levels", i64),
        "places": Array(("all_trees",), "where in `roots` a tree is, in the order in which they are added up", i64),
        "outputs": Array(("all_trees",), "the class whose score it adds to", i64),
        "at": Array(("trees",), "the nodes that the row in hand has come to", i64),
        "nodes": records(
            ("nodes",),
            "of all trees, level by level; the next of a leaf is itself",
            threshold=Number("the largest value that goes to the first of the next; of a leaf what it adds"),
            value=Number("which value of the row is looked at", i32),
            next=Number("the first of the two nodes that follow", i32),
        ),
    },
)

MASKED_TREES = Declaration(
    "masked_trees",
    _ANSWER
    | {
        "row": Array(("columns",), "the row in hand, NaN where a value is missing", start=math.nan),
        "looked_at": records(
            ("looked_at",),
            "the columns that some node looks at",
            column=Number("which", i64),
            first=Number("where its masks begin, one for each threshold in ascending order", i64),
            end=Number("and where they end", i64),
            missing=Number("the mask where the value is missing, -1 for none", i64),
        ),
        "thresholds": Array(("masks",), "a value that is larger has this mask, or one that follows"),
        "masks": Array(("masks", "words"), "the leaves that stay, a bit each, as many words for each tree", u32),
        "standing": Array(("words",), "those that the row in hand may yet come to", u32),
        "value": Array(("bits",), "what each leaf adds"),
        "outputs": Array(("trees",), "the class whose score a tree adds to", i64),
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
    share = FARTHER / abs(z) if abs(z) > FARTHER > state.limit else 1.0
    return min(max(z, -state.limit), state.limit) * (share * share) if x == x else 0.0


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


@fused
def find_near(state, block):
    """The kernel of the row in hand with each vector of a block."""
    row, vectors, near, whole = state.row, state.vectors, state.near, state.row.size // 4 * 4
    for b in range(near.size):
        near[u(b)] = f32(0.0)
    for j in range(0, whole, 4):  # sums are read and written for four columns at a time
        x, y, z, t = row[u(j)], row[u(j + 1)], row[u(j + 2)], row[u(j + 3)]
        for b in range(near.size):
            p, q = vectors[u(block), u(j), u(b)] - x, vectors[u(block), u(j + 1), u(b)] - y
            r, s = vectors[u(block), u(j + 2), u(b)] - z, vectors[u(block), u(j + 3), u(b)] - t
            near[u(b)] += (p * p + q * q) + (r * r + s * s)
    for j in range(whole, row.size):
        x = row[u(j)]
        for b in range(near.size):
            less = vectors[u(block), u(j), u(b)] - x
            near[u(b)] += less * less
    for b in range(near.size):
        near[u(b)] = exp32(-near[u(b)])


@fused
def add_up(state):
    """What all vectors add to the scores."""
    near, coefs, sums, scores = state.near, state.coefs, state.sums, state.scores
    for c in range(scores.size):
        for b in range(near.size):
            sums[u(c), u(b)] = f32(0.0)
    for block in range(coefs.shape[0]):
        find_near(state, block)
        for c in range(scores.size):
            for b in range(near.size):
                sums[u(c), u(b)] += near[u(b)] * coefs[u(block), u(c), u(b)]
    for c in range(scores.size):
        for b in range(near.size):
            scores[u(c)] += sums[u(c), u(b)]


@kernel
def ask_expansion(state, question):
    """Have a Gaussian expansion answer."""
    values, columns, indptr = question.values, question.columns, question.indptr
    row, root = state.row, state.root
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
        add_up(state)
        answer_question(state, question, i)


@kernel
def order_levels(roots, left, right, nodes, trees, depths):
    """List the nodes of all trees level by level, those that follow a node side by side, and count each tree's levels.

    Returns how many `nodes` there are; `trees` says of which each is, and `depths` how deep they go below the roots.
    """
    n = roots.size
    for t in range(n):
        nodes[t], trees[t], depths[t] = roots[t], t, 0
    at, level = 0, 0
    while at < n:
        end, level = n, level + 1
        for k in range(at, end):
            if left[nodes[k]] >= 0:
                nodes[n], nodes[n + 1] = left[nodes[k]], right[nodes[k]]
                trees[n] = trees[n + 1] = trees[k]
                depths[trees[k]] = level
                n += 2
        at = end
    return n


@inlined
def note_value(state, j, x):
    """Take the value of a column, which is missing where it is NaN."""
    if 2 * j + 2 < state.row.size:
        state.row[2 * j] = x if x == x else -math.inf
        state.row[2 * j + 1] = x


@inlined
def descend(state):
    """Bring the row in hand to a leaf of every tree.

    All trees go down a level together: each step of one waits for memory, but not for the others. A leaf looks at a
    value that is always -inf, and stays where it is.
    """
    row, nodes, roots, growing, at = state.row, state.nodes, state.roots, state.growing, state.at
    for t in range(roots.size):
        at[t] = roots[t]
    for level in range(growing.size):
        for t in range(growing[u(level)]):
            node = nodes[u(at[u(t)])]
            at[u(t)] = node.next + (0 if row[u(node.value)] <= node.threshold else 1)


@kernel
def ask_trees(state, question):
    """Have trees answer."""
    values, columns, indptr = question.values, question.columns, question.indptr
    nodes, at, places, outputs, scores = state.nodes, state.at, state.places, state.outputs, state.scores
    for i in range(indptr.size - 1):
        if question.asked[i] == 0:
            continue
        begin_scores(state)
        skip = indptr[i] if question.shared > 0 else 0
        for k in range(indptr[i], indptr[i + 1]):
            note_value(state, columns[k - skip], values[k])
        descend(state)
        for t in range(places.size):
            scores[u(outputs[u(t)])] += nodes[u(at[u(places[u(t)])])].threshold
        answer_question(state, question, i)
        for k in range(indptr[i], indptr[i + 1]):  # of wide rows most columns were never touched
            note_value(state, columns[k - skip], math.nan)


@kernel
def number_leaves(left, right, roots, leaves, first):
    """Count the `leaves` below each node, and give each leaf a bit: the `first` below each node, -1 where no tree is.

    The bits of a tree go from left to right, and begin with a word. Returns how many words each has.
    """
    most = 1
    for node in range(left.size - 1, -1, -1):  # nodes follow those that lead to them
        leaves[node] = 1 if left[node] < 0 else leaves[left[node]] + leaves[right[node]]
        first[node] = -1
    for t in range(roots.size):
        most = max(most, leaves[roots[t]])
    n_words = (most + WORD - 1) // WORD
    for t in range(roots.size):
        first[roots[t]] = t * n_words * WORD
    for node in range(left.size):
        if left[node] >= 0 and first[node] >= 0:
            first[left[node]] = first[node]
            first[right[node]] = first[node] + leaves[left[node]]
    return n_words


@kernel
def strike_out(masks, at, is_first, begins, ends):
    """For each node, strike the bits between where it `begins` and `ends` out of the mask `at` which it is.

    Nodes come mask by mask; one begins as the mask before it, unless it `is_first` of its column.
    """
    done = -1
    for k in range(at.size):
        mask = masks[at[k]]
        if at[k] != done:
            done = at[k]
            for w in range(mask.size):
                mask[w] = ALL if is_first[k] else masks[done - 1, w]
        for bit in range(begins[k], ends[k]):
            mask[bit // WORD] &= ~(u32(1) << u32(bit % WORD))


@inlined
def n_below(thresholds, first, end, x):
    """Where the thresholds below a value end, of those in ascending order."""
    n = end - first
    while n > 0:
        half = (n + 1) >> 1
        first += half if thresholds[u(first + half - 1)] < x else 0
        n -= half
    return first


@inlined
def strike_for(state):
    """Strike out the leaves that the row in hand does not come to."""
    row, thresholds, masks, standing = state.row, state.thresholds, state.masks, state.standing
    for w in range(standing.size):
        standing[u(w)] = ALL
    for k in range(state.looked_at.size):
        own = state.looked_at[k]
        x = row[u(own.column)]
        at = own.missing
        if x == x:
            at = n_below(thresholds, own.first, own.end, x) - 1
            at = at if at >= own.first else -1
        if at >= 0:
            for w in range(standing.size):
                standing[u(w)] &= masks[u(at), u(w)]


@kernel
def ask_masked_trees(state, question):
    """Have trees answer by masks."""
    values, columns, indptr = question.values, question.columns, question.indptr
    row, standing, outputs, scores = state.row, state.standing, state.outputs, state.scores
    n_words = standing.size // max(outputs.size, 1)
    for i in range(indptr.size - 1):
        if question.asked[i] == 0:
            continue
        begin_scores(state)
        skip = indptr[i] if question.shared > 0 else 0
        for k in range(indptr[i], indptr[i + 1]):
            if columns[k - skip] < row.size:
                row[u(columns[k - skip])] = values[k]
        strike_for(state)
        for t in range(outputs.size):
            w = t * n_words
            while standing[u(w)] == 0:
                w += 1
            scores[u(outputs[u(t)])] += state.value[u(WORD * w) + lowest_bit(u(standing[u(w)]))]
        answer_question(state, question, i)
        for k in range(indptr[i], indptr[i + 1]):  # of wide rows most columns were never touched
            if columns[k - skip] < row.size:
                row[u(columns[k - skip])] = math.nan


@kernel
def ask(question, run, model):
    """Have the model at an address answer, by the function at an address."""
    call(run, (model, address_of(question)))


# What is called by its address: `run` of `ask`. Each is compiled apart.
question_at, planes_at, expansion_at = state_at(QUESTION), state_at(PLANES), state_at(EXPANSION)
trees_at, masked_trees_at = state_at(TREES), state_at(MASKED_TREES)


def run_planes(model, question):
    """`ask_planes` at addresses."""
    ask_planes(planes_at(model), question_at(question))


def run_expansion(model, question):
    """`ask_expansion` at addresses."""
    ask_expansion(expansion_at(model), question_at(question))


def run_trees(model, question):
    """`ask_trees` at addresses."""
    ask_trees(trees_at(model), question_at(question))


def run_masked_trees(model, question):
    """`ask_masked_trees` at addresses."""
    ask_masked_trees(masked_trees_at(model), question_at(question))


_RUN = (run_planes, run_expansion, run_trees, run_masked_trees)

ENTRIES = {
    "order_levels": Entry(order_levels, (INTEGERS,) * 6),
    "number_leaves": Entry(number_leaves, (INTEGERS,) * 5),
    "strike_out": Entry(strike_out, (SHORT_WORD_TABLE, INTEGERS, FLAGS, INTEGERS, INTEGERS)),
    "ask": Entry(ask, (StateType(QUESTION.name), INTEGER, INTEGER)),
    **{run.__name__: Entry(run, (INTEGER,) * 2) for run in _RUN},
}
