"""Member of boosted trees, which are replaced one by one as the stream runs.

Its second head searches the nearest neighbours among the stored events (`neighbours`).

The member stores the latest events. At intervals it fits a new tree to the gradient of the log loss of these events,
given all other trees. The new tree replaces the oldest one. The sum of the trees is therefore always fitted to the
latest events, and each step fits only one tree.

All splits on one level of a tree use the same column and threshold. A tree of depth D is then D comparisons and a
table of 2^D leaves, each with one value per class. Splits are found on a random sample of the stored events, among a
few random columns and thresholds that are values of sampled events. With more than two classes, splits follow the
gradient in one random direction, so that their cost does not depend on the number of classes.

Notes
-----
Gradient boosting: J. Friedman, "Stochastic gradient boosting", Computational Statistics and Data Analysis 38, 2002.
Symmetric trees: L. Prokhorenkova et al., "CatBoost: unbiased boosting with categorical features", NeurIPS 2018. Random
directions: L. Iosipoi and A. Vakhrushev, "SketchBoost", NeurIPS 2022. Replacing the oldest member: J. Montiel et al.,
"Adaptive XGBoost for evolving data streams", IJCNN 2020.
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, LANES, inlined, kernel, state_at, uint
from streamsvm.core.losses import FEW, fast_softmax_terms
from streamsvm.core.schema import Array, Number, Schema, Substate, f32, i32, i64, u64
from streamsvm.core.state import State
from streamsvm.ensemble.neighbours import AGEING, MEASURED, score_by_neighbours
from streamsvm.features.scaler import MOST_EVENTS, SCALER, current_row
from streamsvm.online.batch import MINIBATCH, keep_scores, load_cached_row

# Number of stored events, of trees, of levels, of sampled events, and of candidate columns and thresholds.
STORED, TREES, DEPTH, SAMPLE, TRIED, EDGES = 4096, 64, 4, 2048, 8, 15
LEAVES = 1 << DEPTH
# Number of events before the first tree, and between trees while their number grows and later.
FIRST, EVERY_EARLY, EVERY = 256, 64, 768
# Step size, and penalty on the squares of the slopes of a leaf.
RATE, PENALTY = 0.25, 5.0
# Trees see the first MOST_COLUMNS columns. With more classes than FEW there are no trees.
MOST_COLUMNS = 128
# Largest absolute value of a column, and of a leaf or a sum of leaves.
LARGEST, MOST_OUTPUT = 1e30, 1e6
_OUTPUT, _NUMBER = (-MOST_OUTPUT, MOST_OUTPUT), (-LARGEST, LARGEST)

TREES_STATE = Schema(
    "boosted_trees",
    {
        "rows": Substate(SCALER, "current row"),
        "n_classes": Number("number of known classes", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_columns": Number("number of columns that have values", i64, saved=True, bounds=(0.0, MOST_COLUMNS)),
        "n_learned": Number("number of events learned", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_built": Number("number of trees built", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "rng": Array((1,), "state of the random numbers", u64, saved=True, bounds=(0.0, 2.0**64)),
        "values": Array(("columns", "stored"), "values of the stored events", f32, saved=True, bounds=_NUMBER),
        "labels": Array(("stored",), "their classes", i32, saved=True, bounds=(0.0, FEW)),
        "outputs": Array(("stored", "few"), "sums of the trees for them", f32, saved=True, bounds=_OUTPUT),
        "columns": Array(("trees", DEPTH), "column of each split", i64, saved=True, bounds=(0.0, MOST_COLUMNS)),
        "thresholds": Array(("trees", DEPTH), "threshold of each split", f32, saved=True, bounds=_NUMBER),
        "leaves": Array((f"trees*{LEAVES}", "few"), "values of the leaves", f32, saved=True, bounds=_OUTPUT),
        "scores": Array(("heads*classes",), "scores of the current event by the trees and by its neighbours"),
        "ages": Array((MEASURED,), "minus what their ages add to squared distances from the latest events", f32),
        "closeness": Array((MEASURED,), "minus the squared distances with ages", f32),
        "tops": Array((LANES,), "the largest of them by lane", f32),
        "row": Array(("columns",), "values of the current event", f32),
        "leaf_by_event": Array(("stored",), "leaves of the stored events in a tree", i32),
        "sample": Array(("sample",), "sampled events", i64),
        "gradients": Array(("sample", "few"), "gradients of the sampled events", f32),
        "slopes": Array(("sample",), "gradients in the direction of the splits", f32),
        "leaf": Array(("sample",), "leaves of the sampled events", i64),
        "sampled": Array(("sample",), "values of the sampled events in a candidate column", f32),
        "tried": Array((TRIED,), "candidate columns, -1 for none", i64),
        "edges": Array((TRIED, EDGES), "candidate thresholds in ascending order", f32),
        "bins": Array((TRIED, "sample"), "number of thresholds below the values of the sampled events", i32),
        "sums": Array((LEAVES, 2 * (EDGES + 1)), "by leaf, for each bin: sum of the slopes, number of events", f32),
        "gains": Array((EDGES,), "gain of each threshold"),
        "curvatures": Array((LEAVES, "few"), "sums of second derivatives by leaf", f32),
        "terms": Array(("few",), "terms of a softmax"),
        "direction": Array(("few",), "direction of the splits"),
    },
)
trees_at, block_at = state_at(TREES_STATE), state_at(MINIBATCH)


def new_trees(n_columns: int, n_classes: int, room: int, rows: State) -> State:
    """Create a state with room for a number of events."""
    sizes = {"stored": -(-min(room, STORED) // LANES) * LANES, "sample": min(room, SAMPLE)}
    sizes |= {
        "trees": min(room // EVERY_EARLY, TREES),
        "columns": n_columns,
        "heads": 2,
        "classes": n_classes,
        "few": min(n_classes, FEW),
    }
    state = State(TREES_STATE, sizes, parts={"rows": rows})
    state.ages[:] = AGEING * np.arange(-MEASURED, 0)
    return state


@inlined
def draw_bits(rng):
    """Draw 64 random bits with splitmix64 (Steele, Lea, Flood 2014).

    `rng` is the state of the generator, an array of one uint64.
    """
    rng[0] += uint(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> uint(30))) * uint(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint(27))) * uint(0x94D049BB133111EB)
    return z ^ (z >> uint(31))


@kernel
def draw(rng, n):
    """Draw an integer below n, which is below 2**32.

    Multiplying the high 32 bits by n and shifting is uniform up to n / 2**32.
    """
    return i64(((draw_bits(rng) >> uint(32)) * uint(n)) >> uint(32))


@inlined
def load_row(row, rows, m):
    """Write the current row of m pairs to `row`; missing values are 0, the mean."""
    event_rows, values = current_row(rows)
    for j in range(row.size):
        row[uint(j)] = f32(0.0)
    for i in range(m):
        j = event_rows[uint(i)] - 1
        if j >= 0:
            row[uint(j)] = f32(min(max(values[uint(i)], -LARGEST), LARGEST))


@inlined
def predict(state):
    """Compute the scores of the loaded row."""
    n, scores, leaves, row = state.n_classes, state.scores, state.leaves, state.row
    columns, thresholds = state.columns, state.thresholds
    for c in range(n):
        scores[c] = 0.0
    for t in range(min(state.n_built, columns.shape[0])):
        leaf = 0
        for d in range(DEPTH):
            is_above = row[uint(columns[uint(t), uint(d)])] > thresholds[uint(t), uint(d)]
            leaf = 2 * leaf + (1 if is_above else 0)
        for c in range(n):
            scores[uint(c)] += leaves[uint(t * LEAVES + leaf), uint(c)]


@inlined
def name_first_class(state):
    """Compute scores that make the first class certain.

    With more than FEW classes, equal probabilities would name all of them.
    """
    for c in range(state.n_classes):
        state.scores[c] = 0.0
    state.scores[0] = MOST_OUTPUT


@kernel
def learn(state, label):
    """Store the loaded and scored row, and build a tree if it is due."""
    state.n_classes = max(state.n_classes, label + 1)
    if state.n_classes > FEW:
        return
    i, values, outputs = state.n_learned % state.labels.size, state.values, state.outputs
    state.labels[i] = label
    for j in range(state.row.size):
        values[uint(j), uint(i)] = state.row[uint(j)]
    for c in range(outputs.shape[1]):
        outputs[i, c] = f32(state.scores[c]) if c < state.n_classes else f32(0.0)
    state.n_learned += 1
    every = EVERY if state.n_built >= TREES else EVERY_EARLY
    if state.n_learned >= FIRST and state.n_learned % every == 0 and state.n_classes > 1 and state.n_columns > 0:
        replace_oldest_tree(state)


@inlined
def add_outputs(state, t, sign):
    """Add tree t, times `sign`, to the outputs of all stored events."""
    n, outputs, leaves, found = state.n_classes, state.outputs, state.leaves, state.leaf_by_event
    m = min(state.n_learned, found.size)
    for i in range(m):
        found[i] = 0
    for d in range(DEPTH):
        values, threshold = state.values[state.columns[t, d]], state.thresholds[t, d]
        for i in range(m):
            found[i] = 2 * found[i] + (1 if values[i] > threshold else 0)
    for i in range(m):
        leaf = t * LEAVES + found[i]
        for c in range(n):
            outputs[uint(i), uint(c)] += sign * leaves[uint(leaf), uint(c)]


@kernel
def replace_oldest_tree(state):
    """Replace the oldest tree by one that is fitted to the gradient given the others."""
    t, m = state.n_built % TREES, min(state.n_learned, SAMPLE)
    if state.n_built >= TREES:
        add_outputs(state, t, f32(-1.0))
    draw_sample(state, m)
    draw_candidates(state, m)
    for d in range(DEPTH):
        split(state, t, d, m)
    find_leaves(state, t, m)
    state.n_built += 1
    add_outputs(state, t, f32(1.0))


@kernel
def draw_sample(state, m):
    """Draw m stored events, and compute their gradients and slopes.

    The slope of an event is its gradient in one random direction in the space of classes.
    """
    n, n_stored = state.n_classes, min(state.n_learned, state.labels.size)
    terms, direction = state.terms, state.direction
    for c in range(n):
        direction[c] = 1.0 if draw(state.rng, 2) == 0 else -1.0
    c = draw(state.rng, n)  # the gradients of all classes add up to 0, so the direction must not be the same for all
    direction[(c + 1 + draw(state.rng, n - 1)) % n] = -direction[c]
    for s in range(m):
        i = draw(state.rng, n_stored)
        label, slope = state.labels[i], 0.0
        total = fast_softmax_terms(state.outputs[i], 0, n, 1.0, terms, 0)
        for c in range(n):
            gradient = (1.0 if c == label else 0.0) - terms[c] / total
            state.gradients[uint(s), uint(c)] = f32(gradient)
            slope += direction[c] * gradient
        state.sample[s], state.slopes[s], state.leaf[s] = i, f32(slope), 0


@kernel
def draw_candidates(state, m):
    """Draw columns and thresholds, and find the bins of the sampled events."""
    edges, sample, sampled, bins = state.edges, state.sample, state.sampled, state.bins
    for f in range(TRIED):
        j = f if state.n_columns <= TRIED else draw(state.rng, state.n_columns)
        state.tried[f] = j if j < state.n_columns else -1
        if state.tried[f] < 0:
            continue
        values = state.values[j]
        for e in range(EDGES):
            x, at = values[sample[draw(state.rng, m)]], e
            while at > 0 and edges[f, at - 1] > x:
                edges[f, at] = edges[f, at - 1]
                at -= 1
            edges[f, at] = x
        for s in range(m):
            sampled[uint(s)] = values[uint(sample[uint(s)])]
        for s in range(m):  # this loop vectorises, unlike a binary search
            b = i32(0)
            for e in range(EDGES):
                b += i32(sampled[uint(s)] > edges[uint(f), uint(e)])
            bins[uint(f), uint(s)] = b


@kernel
def split(state, t, d, m):
    """Choose the split of level d of tree t, and move the sampled events to leaves."""
    best_gain, best_f, best_e = -1.0, 0, 0
    for f in range(TRIED):
        if state.tried[f] >= 0:
            find_gains(state, f, 1 << d, m)
            for e in range(EDGES):
                if state.gains[e] > best_gain:
                    best_gain, best_f, best_e = state.gains[e], f, e
    state.columns[t, d], state.thresholds[t, d] = state.tried[best_f], state.edges[best_f, best_e]
    leaf, bins = state.leaf, state.bins
    for s in range(m):
        leaf[uint(s)] = 2 * leaf[uint(s)] + (1 if bins[uint(best_f), uint(s)] > best_e else 0)


@inlined
def find_gains(state, f, n_leaves, m):
    """Compute the gain of each threshold of a candidate column for a level."""
    sums, gains = state.sums, state.gains
    leaf, bins, slopes = state.leaf, state.bins, state.slopes
    for k in range(n_leaves):
        for b in range(sums.shape[1]):
            sums[uint(k), uint(b)] = f32(0.0)
    for s in range(m):
        k, b = uint(leaf[uint(s)]), uint(2 * bins[uint(f), uint(s)])
        sums[k, b] += slopes[uint(s)]
        sums[k, b + uint(1)] += f32(1.0)
    for e in range(EDGES):
        gains[e] = 0.0
    for k in range(n_leaves):
        total = count = left = n_left = 0.0
        for b in range(EDGES + 1):
            total += sums[uint(k), uint(2 * b)]
            count += sums[uint(k), uint(2 * b + 1)]
        for e in range(EDGES):
            left += sums[uint(k), uint(2 * e)]
            n_left += sums[uint(k), uint(2 * e + 1)]
            right, n_right = total - left, count - n_left
            gains[uint(e)] += left * left / (n_left + PENALTY) + right * right / (n_right + PENALTY)


@kernel
def find_leaves(state, t, m):
    """Set the leaves of tree t to a Newton step, times RATE."""
    n, leaves, curvatures = state.n_classes, state.leaves, state.curvatures
    for k in range(LEAVES):
        for c in range(n):
            leaves[t * LEAVES + k, c] = curvatures[k, c] = f32(0.0)
    for s in range(m):
        k, label = state.leaf[s], state.labels[state.sample[s]]
        for c in range(n):
            gradient = state.gradients[uint(s), uint(c)]
            p = (1.0 if c == label else 0.0) - gradient
            leaves[uint(t * LEAVES + k), uint(c)] += gradient
            curvatures[uint(k), uint(c)] += p * (1.0 - p)
    for k in range(LEAVES):
        for c in range(n):
            leaves[t * LEAVES + k, c] *= RATE * (n - 1.0) / n / (curvatures[k, c] + PENALTY / 4.0)


def run_member(address, block_address, i, cached):
    """Score the rows of a block as its i-th member, and learn the labelled rows."""
    state, block = trees_at(address), block_at(block_address)
    rows, member = state.rows, block.members[i]
    for k in range(block.n_rows):
        row = block.rows[k]
        if cached == 0:
            if state.n_classes <= FEW:
                m = load_cached_row(block, k, member.way, rows)
                load_row(state.row, rows, m)
                predict(state)
                score_by_neighbours(state, state.scores.size // 2)
                # Batches have entries of new names, which the prediction of a single event has not.
                state.n_columns = max(state.n_columns, current_row(rows)[0][m - 1])
            else:
                name_first_class(state)
                state.scores[state.scores.size // 2] = MOST_OUTPUT
            keep_scores(block, k, i, state.scores)
        if row.label >= 0:
            learn(state, row.label)


ENTRY_POINTS = {"run_member": EntryPoint(run_member, (INTEGER,) * 4)}
