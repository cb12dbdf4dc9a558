"""Member of randomised trees over a long window, which grow with the stream.

Each tree splits all stored events into leaves. A learned event joins one leaf of each tree, and the oldest one leaves
them. When the number of events of a leaf reaches a multiple of SPLIT and they have different classes, the best of TRIED
random splits divides the leaf. A leaf without events is removed, and its sibling takes the place of their parent. The
trees therefore always describe the stored events, and learning costs the same for every event. The score of a class is
the logarithm of its mean probability over the trees.

With more and more events of one concept, the trees get deeper. This is where the member leads: in complex concepts that
last for thousands of events.

Notes
-----
Random splits: P. Geurts, D. Ernst, L. Wehenkel, "Extremely randomized trees", Machine Learning 63, 2006. With more than
two classes, splits are compared by a random partition of the classes into two groups, so that their cost does not
depend on the number of classes.
"""

from __future__ import annotations

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, StateType, inlined, kernel, state_at, uint
from streamsvm.core.losses import FEW
from streamsvm.core.math import log_of
from streamsvm.core.schema import Array, Number, Schema, Substate, f32, i16, i32, i64, u64
from streamsvm.core.state import State
from streamsvm.ensemble.trees import LARGEST, MOST_COLUMNS, draw, draw_bits, load_row, name_first_class
from streamsvm.features.scaler import MOST_EVENTS, SCALER, current_row
from streamsvm.online.batch import MINIBATCH, keep_scores, load_cached_row

# Number of stored events, of trees, of events for a split, and of random splits that are compared.
STORED, FOREST, SPLIT, TRIED = 16_384, 8, 16, 32
# Number of stored events per node.
PER_NODE = 3
# Number of bits of a column number.
COLUMN_BITS = MOST_COLUMNS.bit_length() - 1
# Number of events of equally frequent classes that are added to a leaf.
PRIOR = 0.5
# Number of events of a leaf by which its split is chosen, and least gain of a split.
SAMPLE, LEAST_GAIN = 64, 1e-3
# Number of events of large leaves that may be visited per learned event. It suffices for leaves that grow. A leaf whose
# number of events stays at a multiple of SAMPLE would be visited at every event.
VISITED = FOREST * STORED // SAMPLE
_NODE = (-1.0, STORED)

FOREST_STATE = Schema(
    "forest",
    {
        "rows": Substate(SCALER, "current row"),
        "n_classes": Number("number of known classes", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_columns": Number("number of columns that have values", i64, saved=True, bounds=(0.0, MOST_COLUMNS)),
        "n_learned": Number("number of events learned", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "unvisited": Number(
            "number of events of large leaves that may be visited", i64, saved=True, bounds=(0.0, FOREST * STORED)
        ),
        "rng": Array((1,), "state of the random numbers", u64, saved=True, bounds=(0.0, 2.0**64)),
        "values": Array(
            ("stored", "columns"), "values of the stored events", f32, saved=True, bounds=(-LARGEST, LARGEST)
        ),
        "labels": Array(("stored",), "their classes", i32, saved=True, bounds=(0.0, FEW)),
        "splits": Array(
            (f"{FOREST}*nodes",),
            f"number of the first of two children, times {MOST_COLUMNS}, plus the column of the split; -1 in a leaf",
            i32,
            start=-1,
            saved=True,
            bounds=(-1.0, STORED * MOST_COLUMNS),
        ),
        "thresholds": Array(
            (f"{FOREST}*nodes",), "threshold of each split", f32, saved=True, bounds=(-LARGEST, LARGEST)
        ),
        "parents": Array(
            (f"{FOREST}*nodes",),
            "parent of a pair of nodes, or the next pair of unused nodes, at the first of the pair; -1 for none",
            i16,
            start=-1,
            saved=True,
            bounds=_NODE,
        ),
        "unused": Array((FOREST,), "first pair of unused nodes, -1 for none", i32, start=-1, saved=True, bounds=_NODE),
        "n_nodes": Array((FOREST,), "number of nodes that have been in use", i32, start=1, saved=True, bounds=_NODE),
        "oldest": Array((f"{FOREST}*nodes",), "oldest event of a leaf, -1 for none", i16, start=-1),
        "latest": Array((f"{FOREST}*nodes",), "latest event of a leaf", i16, start=-1),
        "counts": Array((f"{FOREST}*nodes", "few"), "number of events of a leaf by class", i16),
        "totals": Array((f"{FOREST}*nodes",), "number of events of a leaf", i16),
        "next": Array((f"{FOREST}*stored",), "next event of the same leaf, -1 for none", i16),
        "leaves": Array((f"{FOREST}*stored",), "leaves of the stored events", i16),
        "found": Array((FOREST,), "nodes that the current event has reached", i16),
        "scores": Array(("classes",), "scores of the current event"),
        "row": Array(("columns",), "values of the current event", f32),
        "sample": Array((SAMPLE,), "events of a leaf", i32),
        "groups": Array((SAMPLE,), "groups of their classes, -1 or 1", i32),
        "sampled": Array((SAMPLE,), "their values in a column", f32),
        "signs": Array(("few",), "group of each class, -1 or 1", i32),
    },
)
forest_at, block_at = state_at(FOREST_STATE), state_at(MINIBATCH)


def new_forest(n_columns: int, n_classes: int, room: int, rows: State) -> State:
    """Create a state with room for a number of events."""
    stored = max(min(room, STORED), 1)
    # Restored events without columns and classes that are not known yet are also read.
    sizes = {"stored": stored, "nodes": max(stored // PER_NODE, 1), "columns": max(n_columns, 1)}
    sizes |= {"classes": n_classes, "few": max(min(n_classes, FEW), 1)}
    return State(FOREST_STATE, sizes, parts={"rows": rows})


@inlined
def start_at_roots(state):
    """Make the roots the nodes that the current event has reached."""
    for t in range(FOREST):
        state.found[t] = 0


@inlined
def find_leaves(state):
    """Move the current event from the nodes that it has reached to leaves.

    All trees go down one level in turn, because the steps in one tree wait for each other.
    """
    splits, thresholds, row, found = state.splits, state.thresholds, state.row, state.found
    n_nodes, n_moved = splits.size // FOREST, 1
    while n_moved > 0:
        n_moved = 0
        for t in range(FOREST):
            node = t * n_nodes + found[t]
            split = splits[uint(node)]
            is_above = row[uint(max(split, 0) & (MOST_COLUMNS - 1))] > thresholds[uint(node)]
            child = (split >> COLUMN_BITS) + (1 if is_above else 0)
            found[t] = child if split >= 0 else found[t]
            n_moved += 1 if split >= 0 else 0


@inlined
def predict(state):
    """Compute the scores of the loaded row."""
    n, scores, counts, n_nodes = state.n_classes, state.scores, state.counts, state.splits.size // FOREST
    start_at_roots(state)
    find_leaves(state)
    for c in range(n):
        scores[c] = 0.0
    for t in range(FOREST):
        leaf = uint(t * n_nodes + state.found[t])
        share = 1.0 / (FOREST * (state.totals[leaf] + PRIOR))
        for c in range(n):
            scores[c] += share * (counts[leaf, uint(c)] + PRIOR / n)
    for c in range(n):
        scores[c] = log_of(scores[c])


@inlined
def append(state, t, node, i, label):
    """Add stored event i to a leaf of tree t, as its latest one."""
    start, following, latest, totals = t * state.labels.size, state.next, state.latest, state.totals
    leaf = uint(t * (state.splits.size // FOREST) + node)
    following[uint(start + i)], state.leaves[uint(start + i)] = -1, node
    if totals[leaf] > 0:
        following[uint(start + latest[leaf])] = i
    else:
        state.oldest[leaf] = i
    latest[leaf] = i
    state.counts[leaf, uint(label)] += 1
    totals[leaf] += 1


@inlined
def clear(state, leaf):
    """Make a node, given by its index over all trees, a leaf without events."""
    state.splits[leaf] = state.oldest[leaf] = state.latest[leaf] = -1
    state.totals[leaf] = 0
    for c in range(state.counts.shape[1]):
        state.counts[leaf, c] = 0


@kernel
def remove_oldest(state, i):
    """Remove stored event i, the oldest one, from all trees."""
    n_stored, n_nodes = state.labels.size, state.splits.size // FOREST
    for t in range(FOREST):
        node = state.leaves[t * n_stored + i]
        leaf = t * n_nodes + node
        state.oldest[leaf] = state.next[t * n_stored + i]
        state.counts[leaf, state.labels[i]] -= 1
        state.totals[leaf] -= 1
        if state.totals[leaf] == 0 and node > 0:
            replace_parent(state, t, node)


@kernel
def replace_parent(state, t, node):
    """Remove an empty leaf of tree t: its sibling takes the place of their parent."""
    start, n_stored = t * (state.splits.size // FOREST), state.labels.size
    pair = node - 1 + node % 2
    parent = state.parents[start + pair]
    to, sibling = start + parent, start + 2 * pair + 1 - node
    state.splits[to], state.thresholds[to] = state.splits[sibling], state.thresholds[sibling]
    if state.splits[to] >= 0:
        state.parents[start + (state.splits[to] >> COLUMN_BITS)] = parent
    else:
        state.oldest[to], state.latest[to] = state.oldest[sibling], state.latest[sibling]
        state.totals[to] = state.totals[sibling]
        for c in range(state.counts.shape[1]):
            state.counts[to, c] = state.counts[sibling, c]
        i = state.oldest[to]
        while i >= 0:
            state.leaves[t * n_stored + i] = parent
            i = state.next[t * n_stored + i]
    state.splits[start + pair] = state.splits[start + pair + 1] = -1
    state.parents[start + pair], state.unused[t] = state.unused[t], pair
    if state.found[t] == pair or state.found[t] == pair + 1:
        state.found[t] = parent


@kernel
def learn(state, label):
    """Store the loaded row, whose leaves are known, in place of the oldest one."""
    n_stored, n_nodes = state.labels.size, state.splits.size // FOREST
    i, values, row = state.n_learned % n_stored, state.values, state.row
    if state.n_learned >= n_stored:
        remove_oldest(state, i)
        find_leaves(state)
    state.labels[i] = label
    for j in range(row.size):
        values[uint(i), uint(j)] = row[uint(j)]
    state.n_learned += 1
    unvisited = state.unvisited = min(state.unvisited + VISITED, FOREST * STORED)
    most_nodes = min(state.n_learned // PER_NODE, n_nodes)  # the room for events must not matter
    for t in range(FOREST):
        node = state.found[t]
        append(state, t, node, i, label)
        total, n_same = state.totals[t * n_nodes + node], state.counts[t * n_nodes + node, label]
        has_nodes = state.unused[t] >= 0 or state.n_nodes[t] + 2 <= most_nodes
        n_visited = total if total > SAMPLE else 0
        if has_nodes and is_due(total, n_same) and FOREST * n_visited <= unvisited:  # for all trees or for none
            state.unvisited -= n_visited
            split(state, t, node)


@inlined
def is_due(total, n_same):
    """Tell whether a leaf with this number of events is divided.

    `n_same` of them are of the class of the latest one. Large leaves often have nearly one class. They are divided less
    often, and only after an event of another class. Two classes that are equally frequent must not prevent this.
    """
    if total <= SAMPLE:
        return total % SPLIT == 0 and n_same < total
    return total % SAMPLE == 0 and 4 * n_same < 3 * total


@kernel
def split(state, t, node):
    """Divide a leaf of tree t by the best of some random splits."""
    start, n_stored = t * (state.splits.size // FOREST), state.labels.size
    leaf = start + node
    draw_groups(state, leaf)
    column, threshold = find_split(state, draw_sample(state, t, leaf))
    if column < 0:
        return
    if state.unused[t] >= 0:
        pair = state.unused[t]
        state.unused[t] = state.parents[start + pair]
    else:
        pair = state.n_nodes[t]
        state.n_nodes[t] += 2
    for child in range(pair, pair + 2):
        clear(state, start + child)
    state.parents[start + pair] = node
    i = state.oldest[leaf]
    while i >= 0:
        following = state.next[t * n_stored + i]
        append(state, t, pair + (1 if state.values[i, column] > threshold else 0), i, state.labels[i])
        i = following
    state.splits[leaf], state.thresholds[leaf] = (pair << COLUMN_BITS) + column, threshold


@inlined
def draw_groups(state, leaf):
    """Draw the group of each class, so that both groups have events in the leaf."""
    n, counts, signs = state.n_classes, state.counts, state.signs
    most, second = 0, -1
    for c in range(n):
        signs[c] = 1 if draw(state.rng, 2) == 0 else -1
        if counts[leaf, c] > counts[leaf, most]:
            most = c
    for c in range(n):
        if c != most and (second < 0 or counts[leaf, c] > counts[leaf, second]):
            second = c
    signs[second] = -signs[most]


@inlined
def draw_sample(state, t, leaf):
    """List at most SAMPLE events of a leaf, evenly by age, and return their number."""
    start, every, n, k = t * state.labels.size, (state.totals[leaf] + SAMPLE - 1) // SAMPLE, 0, 0
    i = state.oldest[leaf]
    while i >= 0:
        if k % every == 0:
            state.sample[n], state.groups[n] = i, state.signs[state.labels[i]]
            n += 1
        k += 1
        i = state.next[start + i]
    return n


@inlined
def find_split(state, n):
    """Find the best of TRIED random splits of n listed events.

    Returns
    -------
    column, threshold
        Column -1 if no split gains.
    """
    sample, groups, sampled, values = state.sample, state.groups, state.sampled, state.values
    best, best_column, best_threshold, total, n_columns = LEAST_GAIN, -1, f32(0.0), 0, state.n_columns
    for k in range(n):
        total += groups[uint(k)]
    for _ in range(TRIED if n_columns > 0 else 0):
        bits = draw_bits(state.rng)
        j = below(bits, n_columns)
        a = values[uint(sample[below(bits >> uint(16), n)]), uint(j)]
        b = values[uint(sample[below(bits >> uint(32), n)]), uint(j)]
        low, high = min(a, b), max(a, b)
        if low == high:
            continue
        threshold = f32(low + f32(bits >> uint(48)) / f32(65536.0) * (high - low))
        threshold = threshold if threshold < high else low  # both sides have events
        for k in range(n):
            sampled[uint(k)] = values[uint(sample[uint(k)]), uint(j)]
        n_above = above = i32(0)
        for k in range(n):  # this loop vectorises
            is_above = i32(sampled[uint(k)] > threshold)
            n_above += is_above
            above += is_above * groups[uint(k)]
        rest = float(total - above)
        gain = float(above) * above / n_above + rest * rest / (n - n_above) - float(total) * total / n
        if gain > best:
            best, best_column, best_threshold = gain, j, threshold
    return best_column, best_threshold


@inlined
def below(bits, n):
    """Return an integer below n, which is at most 65,536, from the last 16 bits."""
    return i64(((bits & uint(0xFFFF)) * uint(n)) >> uint(16))


def run_member(address, block_address, i, cached):
    """Score the rows of a block as its i-th member, and learn the labelled rows."""
    state, block = forest_at(address), block_at(block_address)
    rows, member = state.rows, block.members[i]
    for k in range(block.n_rows):
        row = block.rows[k]
        if cached == 0:
            if state.n_classes <= FEW:
                m = load_cached_row(block, k, member.way, rows)
                load_row(state.row, rows, m)
                predict(state)
                # Batches have entries of new names, which the prediction of a single event has not.
                state.n_columns = max(state.n_columns, current_row(rows)[0][m - 1])
            else:
                name_first_class(state)
            keep_scores(block, k, i, state.scores)
        if row.label >= 0:
            state.n_classes = max(state.n_classes, row.label + 1)
            if state.n_classes <= FEW:
                learn(state, row.label)


@kernel
def are_trees(state):
    """Tell whether the saved nodes are trees and lists of unused pairs."""
    n_nodes, used = state.splits.size // FOREST, state.totals
    for t in range(FOREST):
        start, n = t * n_nodes, state.n_nodes[t]
        if n < 1 or n > n_nodes or n % 2 == 0:
            return False
        for node in range(n):
            used[start + node] = 0
        for node in range(n):
            split = state.splits[start + node]
            if split >= 0 and split & (MOST_COLUMNS - 1) >= state.row.size:
                return False
            if split >= 0 and not takes_pair(state, start, n, split >> COLUMN_BITS, node):
                return False
        pair = state.unused[t]
        while pair >= 0:
            following = state.parents[start + min(pair, n - 1)]
            if not takes_pair(state, start, n, pair, following):
                return False
            pair = following
    return True


@inlined
def takes_pair(state, start, n, pair, parent):
    """Tell whether an unmarked pair of nodes has this parent, and mark it."""
    if pair % 2 == 0 or pair + 1 >= n or state.totals[start + pair] > 0:
        return False
    state.totals[start + pair] = 1
    return state.parents[start + pair] == parent


@kernel
def refresh(state):
    """Add the stored events to the leaves of restored trees.

    Returns
    -------
    bool
        False if the restored trees are not trees.
    """
    if not are_trees(state):
        return False
    for node in range(state.splits.size):
        is_leaf = state.splits[node] < 0
        if is_leaf:
            clear(state, node)
    n_stored = state.labels.size
    for event in range(max(state.n_learned - n_stored, 0), state.n_learned):
        i = event % n_stored
        for j in range(state.row.size):
            state.row[j] = state.values[i, j]
        start_at_roots(state)
        find_leaves(state)
        for t in range(FOREST):
            append(state, t, state.found[t], i, state.labels[i])
    return True


_STATE = StateType(FOREST_STATE.name)
ENTRY_POINTS = {"run_member": EntryPoint(run_member, (INTEGER,) * 4), "refresh": EntryPoint(refresh, (_STATE,))}
