"""Naive Bayes member: normal densities of recent values by class and column.

The score of class c for scaled values x is

    log(n_c + 1/2) + sum_j max(log N(x_j; m_cj, v_cj), LEAST_TERM),

with n_c the decayed sum of the weights of events of the class, and m_cj and v_cj the mean and variance of column j over
them. Means and variances start at those of all scaled values, 0 and 1, with the weight of one event. The member has few
parameters and forgets fast, so it leads the other members after few labels, and if columns are independent given the
class also soon after a change. Missing values count as 0, the mean.

A row in which at most one of SPARSE learned columns has a value is a set of words, such as a text or a row of
categories, unless most of its columns are in more than half of the events, such as numbers beside a category. With
w_cj the decayed count of column j in class c, its score is

    log(n_c + 1/2) + sum_j log((w_cj + PSEUDO) / (sum_k w_ck + PSEUDO n_words)),

over the learned columns of the row. These counts cover about the last 1 / (1 - WORD_DECAY) events, and all columns.
"""

from __future__ import annotations

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import (
    DOUBLES,
    INTEGER,
    inlined,
    kernel,
    lanes,
    lanes_at,
    larger,
    state_at,
    sum_of,
    times_plus,
    uint,
)
from streamsvm.core.losses import FEW
from streamsvm.core.math import log_of
from streamsvm.core.schema import Array, Number, Schema, Substate, i64
from streamsvm.core.state import State
from streamsvm.ensemble.trees import MOST_COLUMNS, load_row, name_first_class
from streamsvm.features.scaler import CLIP, MOST_EVENTS, SCALER, current_row
from streamsvm.online.batch import MINIBATCH, keep_scores, load_cached_row

# Decay of the counts per label and per late label, and the least logarithm of a density, which limits the effect of
# outliers. Late labels describe past events, so forgetting fast does not follow changes.
DECAY, LATE_DECAY, LEAST_TERM = 0.98, 0.999, -4.0
# Smaller counts are 0, which changes no score: processors are slow with numbers below 1e-308.
LEAST_COUNT = 1e-30
# Bounds of a variance, and of the logarithm of the largest density.
LEAST_VARIANCE, MOST_VARIANCE, MOST_HEIGHT = 0.02, 4.0 * CLIP * CLIP, 4.0
# A row with at most one of SPARSE learned columns is a set of words. Decay of their counts per label, and pseudo-count.
SPARSE, WORD_DECAY, PSEUDO = 4, 0.999, 1.0
# The counts are multiplied by `scale`, which grows instead of their decaying, up to this number.
MOST_SCALE = 1e100
MOST_WORDS = 1.01 * MOST_SCALE / (1.0 - WORD_DECAY)
MOST_SUM = 1e9 * MOST_WORDS

NAIVE_BAYES = Schema(
    "naive_bayes",
    {
        "rows": Substate(SCALER, "current row"),
        "n_classes": Number("number of known classes", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_columns": Number(
            "number of columns up to the last that had a value other than 0",
            i64,
            saved=True,
            bounds=(0.0, MOST_COLUMNS),
        ),
        "counts": Array(
            ("few",),
            "decayed sum of the weights of events by class",
            saved=True,
            bounds=(0.0, 1.01 / (1.0 - LATE_DECAY)),
        ),
        "means": Array(("few", "columns"), "means by class and column", saved=True, bounds=(-CLIP, CLIP)),
        "variances": Array(
            ("few", "columns"),
            "variances by class and column",
            start=1.0,
            saved=True,
            bounds=(LEAST_VARIANCE, MOST_VARIANCE),
        ),
        "heights": Array(
            ("few", "columns"),
            "logarithms of the largest densities, up to a constant",
            saved=True,
            bounds=(-MOST_HEIGHT, MOST_HEIGHT),
        ),
        "n_words": Number("number of columns learned", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "scale": Number("factor of the counts of words", start=1.0, saved=True, bounds=(1.0, MOST_SCALE)),
        "words": Array(
            ("weight_rows", "few"), "count of each column that is present", saved=True, bounds=(0.0, MOST_WORDS)
        ),
        "word_sums": Array(("weight_rows",), "their sums by column", saved=True, bounds=(0.0, MOST_SUM)),
        "word_totals": Array(("few",), "sums of the counts by class", saved=True, bounds=(0.0, MOST_SUM)),
        "word_classes": Array(("few",), "count of each class", saved=True, bounds=(0.0, MOST_WORDS)),
        "scores": Array(("classes",), "scores of the current event"),
        "row": Array(("columns",), "values of the current event"),
    },
)
naive_bayes_at, block_at = state_at(NAIVE_BAYES), state_at(MINIBATCH)


def new_naive_bayes(n_columns: int, n_classes: int, rows: State) -> State:
    """Create a state."""
    sizes = {"weight_rows": n_columns + 1}
    n_columns = min(n_columns, MOST_COLUMNS)
    sizes |= {"columns": -(-n_columns // DOUBLES) * DOUBLES, "classes": n_classes, "few": min(n_classes, FEW)}
    return State(NAIVE_BAYES, sizes, parts={"rows": rows})


@inlined
def predict(state):
    """Compute the scores of the loaded row."""
    row, means, variances, heights = state.row, state.means, state.variances, state.heights
    for c in range(state.n_classes):
        sums = lanes(0.0)
        for b in range(0, state.n_columns, DOUBLES):  # columns without values add 0
            at = uint(c), uint(b)
            t = lanes_at(row, uint(b)) - lanes_at(means, at)
            term = times_plus(t * t, -0.5 / lanes_at(variances, at), lanes_at(heights, at))
            sums = sums + larger(term, lanes(LEAST_TERM))
        state.scores[c] = log_of(state.counts[c] + 0.5) + sum_of(sums)


@inlined
def n_present(state, event_rows, m):
    """Return the number of pairs of the current row in the columns of `row`."""
    while m > 0 and event_rows[uint(m - 1)] > state.row.size:
        m -= 1
    return m


@inlined
def n_words_in(state, event_rows, values, m):
    """Return how many of m pairs are learned words, 0 if they are no set of words.

    Batches have pairs of new names, which the prediction of a single event has not. Missing values are 0.
    """
    n, n_frequent, half, sums = 0, 0, 0.0, state.word_sums
    for c in range(state.word_classes.size):
        half += 0.5 * state.word_classes[uint(c)]
    for i in range(m):
        total = sums[uint(event_rows[uint(i)])] if values[uint(i)] != 0.0 else 0.0
        n += 1 if total > 0.0 else 0
        n_frequent += 1 if total > half else 0
    return n if n * SPARSE <= state.n_words and 2 * n_frequent <= n else 0


@inlined
def predict_words(state, event_rows, values, m, n_known):
    """Compute the scores of a set of words: m pairs, `n_known` of them learned."""
    n, scores, words, by_scale = state.n_classes, state.scores, state.words, 1.0 / state.scale
    for c in range(n):
        scores[c] = log_of(by_scale * state.word_classes[c] + 0.5)
    for i in range(m):
        j = uint(event_rows[uint(i)])
        if values[uint(i)] != 0.0 and state.word_sums[j] > 0.0:  # neither missing nor new
            for c in range(n):
                scores[c] += log_of(by_scale * words[j, uint(c)] + PSEUDO)
    for c in range(n):
        scores[c] -= n_known * log_of(by_scale * state.word_totals[c] + PSEUDO * state.n_words)


@kernel
def shrink_words(state):
    """Set the scale of the counts to 1."""
    words, by_scale, state.scale, state.n_words = state.words, 1.0 / state.scale, 1.0, 0
    for j in range(words.shape[0]):
        total = 0.0
        for c in range(words.shape[1]):
            count = by_scale * words[j, c]
            words[j, c] = count if count > LEAST_COUNT else 0.0
            total += words[j, c]
        state.word_sums[j] = total
        state.n_words += 1 if total > 0.0 else 0
    for c in range(words.shape[1]):
        state.word_totals[c] *= by_scale
        state.word_classes[c] *= by_scale


@inlined
def learn_words(state, event_rows, values, m, label, weight):
    """Count the columns of the current row of m pairs for its class."""
    if state.n_classes > FEW:
        return
    kept = WORD_DECAY / (WORD_DECAY + (1.0 - WORD_DECAY) * weight)
    state.scale /= kept
    if state.scale > MOST_SCALE:
        shrink_words(state)
    added, label = state.scale * (1.0 - kept) / (1.0 - WORD_DECAY), uint(label)
    if added == 0.0:  # the weight is too small to count
        return
    for i in range(m):
        j = uint(event_rows[uint(i)])
        if j > uint(0) and values[uint(i)] != 0.0:
            state.n_words += 1 if state.word_sums[j] == 0.0 else 0
            state.word_sums[j] += added
            state.words[j, label] += added
            state.word_totals[label] += added
    state.word_classes[label] += added


@inlined
def learn(state, label, weight, decay):
    """Add the loaded row to the counts, means and variances of its class.

    A weight of w has about the effect of w rows. However large it is, the counts stay within their bounds.
    """
    state.n_classes = max(state.n_classes, label + 1)
    if state.n_classes > FEW:
        return
    counts, row, means, variances = state.counts, state.row, state.means, state.variances
    for j in range(state.n_columns, row.size):  # the room for columns must not matter
        if row[j] != 0.0:
            state.n_columns = j + 1
    kept = decay / (decay + (1.0 - decay) * weight)  # the decay if the weight is 1
    added = (1.0 - kept) / (1.0 - decay)
    for c in range(state.n_classes):
        counts[c] = kept * counts[c] if counts[c] > LEAST_COUNT else 0.0
    counts[label] += added
    rate, c = added / (counts[label] + 1.0), uint(label)
    for j in range(state.n_columns):
        t = row[uint(j)] - means[c, uint(j)]
        means[c, uint(j)] += rate * t
        variance = max((1.0 - rate) * (variances[c, uint(j)] + rate * t * t), LEAST_VARIANCE)
        variances[c, uint(j)], state.heights[c, uint(j)] = variance, -0.5 * log_of(variance)


def run_member(address, block_address, i, cached):
    """Score the rows of a block as its i-th member, and learn the labelled rows."""
    state, block = naive_bayes_at(address), block_at(block_address)
    rows, member = state.rows, block.members[i]
    for k in range(block.n_rows):
        row = block.rows[k]
        m = load_cached_row(block, k, member.way, rows)
        event_rows, values = current_row(rows)
        if cached == 0:
            if state.n_classes <= FEW:
                load_row(state.row, rows, n_present(state, event_rows, m))
                n_known = n_words_in(state, event_rows, values, m)
                if n_known > 0:
                    predict_words(state, event_rows, values, m, n_known)
                else:
                    predict(state)
            else:
                name_first_class(state)
            keep_scores(block, k, i, state.scores)
        if row.label >= 0:
            learn(state, row.label, row.weight, LATE_DECAY if row.late > 0 else DECAY)
            learn_words(state, event_rows, values, m, row.label, row.weight)


ENTRY_POINTS = {"run_member": EntryPoint(run_member, (INTEGER,) * 4)}
