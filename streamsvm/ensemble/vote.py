"""Vote of an ensemble: members of several kinds that receive the same events.

An event is scaled once by standardisation and once by ranks, and passed to the members, each with its own state. A
member has one or more *heads* with separate scores. Each head is an *expert* of the vote. Experts vote with their
probabilities, weighted by

    exp(VOTE_INVERSE_TEMPERATURE * accuracy - RARE_WEIGHT * rarity * log loss),

with accuracy and log loss decayed by `expert_decay`. Accuracy is uninformative if most events belong to one class. With
H the entropy of recent classes, the rarity is 1 / H - 1 / log(n_classes), which is 0 for balanced classes. The vote's
probabilities are raised to the power `inverse_temperature`, which follows the gradient of their log loss. The
corrections follow in this order: calibration for noisy labels (`calibration`), the combination with three other votes
(`combined_vote`), and label autocorrelation (`label_autocorrelation`).

If a label is late, experts have learned other events since the prediction, and their current answers say little about
the earlier ones. The answers at prediction time are therefore kept in the memory of the event (`delayed_votes`) and
decide the weights. Accuracies then cover LATE_WINDOW times as many events. The exponents of the stacked vote, which
depend on all probabilities, are not learned.

The input of the members depends only on earlier events, and members learn independently of each other and of the votes.
Rows are therefore processed in blocks: all rows are scaled, then each member runs over the block, then the votes are
computed. A member of any kind is called by the address of its `run_member`.
"""

from __future__ import annotations

import math

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, StateType, address_of, call_pointer, inlined, kernel
from streamsvm.core.math import exp_below
from streamsvm.ensemble.blend import BLEND, batch_at, blend_at, block_at
from streamsvm.ensemble.codes import FIRST_EVENTS, find_codes, observe_codes
from streamsvm.ensemble.combined_vote import VOTES
from streamsvm.ensemble.delayed_votes import REPEATED, SEEN, keep_answer, keep_confidence
from streamsvm.ensemble.judging import count
from streamsvm.ensemble.label_autocorrelation import weigh
from streamsvm.ensemble.label_baselines import ANSWERS
from streamsvm.ensemble.label_memories import is_current, n_waiting, remember
from streamsvm.ensemble.late_mixture import BY_P, BY_POOL
from streamsvm.ensemble.many_classes import best_named, class_at, place_of
from streamsvm.ensemble.notes import add_note, has_room, row_key
from streamsvm.ensemble.probabilities import find_proba
from streamsvm.features.ranks import observe_ranks
from streamsvm.features.scaler import (
    call_back,
    row_at,
    rows_at,
)
from streamsvm.features.statistics import observe
from streamsvm.features.transform import load_pairs, load_row
from streamsvm.online.batch import BATCH, keep_pairs, late_at, write_proba

# Rows -------------------------------------------------------------------------------------------------------------


@kernel
def load_event(state, block, values, columns, k, at):
    """Scale a row as the k-th of the block, with its pairs from index `at` on.

    Returns
    -------
    int
        0, or -1 - i if entry i cannot be used.
    """
    rows = state.rows
    m = load_row(rows, values, columns)
    if m < 0:
        return m
    row = block.rows[k]
    row.start, row.n_pairs, row.in_order = at, m, rows.in_order
    keep_pairs(block, 0, at, rows, m)
    if state.is_ranking:
        ranks = state.ranks
        m = load_pairs(ranks, rows, values, columns)
        row.n_ranked = m
        keep_pairs(block, 1, at, ranks, m)
    row.n_codes = 0
    if state.rows.seen >= FIRST_EVENTS:  # until then, the memory for codes depends on the sizes of batches
        find_codes(state.codes, block, k, values, columns)
    row.key = row_key(values, columns, rows.present)
    return 0


@kernel
def is_cached(state, row, columns, n, shared):
    """Return whether a row of n values is the one predicted last, with valid scores."""
    if state.cached != (n + 1 if shared else -n - 1):
        return False
    last, last_columns, same = state.last, state.last_columns, True
    for j in range(n):
        same &= row[j] == last[j] or (math.isnan(row[j]) and math.isnan(last[j]))
    if not shared:
        for j in range(n):
            same &= columns[j] == last_columns[j]
    return same


@kernel
def keep_cached(state, row, columns, n, shared):
    """Cache a scored row.

    The predicted event is usually learned next, and its scores are then known.
    """
    last, last_columns = state.last, state.last_columns
    for j in range(n):
        last[j] = row[j]
    if not shared:
        for j in range(n):
            last_columns[j] = columns[j]
    state.cached = n + 1 if shared else -n - 1


@kernel
def observe_event(state, values, columns):
    """Add a learned row to the statistics."""
    if state.is_ranking:
        observe_ranks(state.ranks, state.rows, values, columns)
    if state.rows.seen >= FIRST_EVENTS:
        observe_codes(state.codes, values, columns)
    observe(state.rows, values, columns)


# Blocks -----------------------------------------------------------------------------------------------------------


@inlined
def add_row(state, block, batch, i, k, at):
    """Add row i of a batch as the k-th of a block, and observe it if it is learned.

    Returns
    -------
    int
        0, or -1 - j if entry j of the row cannot be used.
    """
    values, columns = row_at(batch.values, batch.columns, batch.indptr, batch.shared > 0, i)
    if batch.cached == 0:
        bad = load_event(state, block, values, columns, k, at)
        if bad < 0:
            return bad
    row, late = block.rows[k], late_at(batch, i)
    row.seen, row.weight = state.rows.seen, batch.weights[i]
    row.label = batch.labels[i] if row.weight > 0.0 else -1
    if row.label >= 0:
        state.rows.label = row.label
        observe_event(state, values, columns)
    row.late = track_lateness(row, batch.memories[late]) if late >= 0 else 0
    return 0


@inlined
def track_lateness(row, memory):
    """Return whether other events have been learned since a row was predicted.

    For an unlabelled row, store the number of learned events in its memory and return 0.
    """
    if row.label < 0:
        memory[SEEN] = int(row.seen)
    return int(row.label >= 0 and row.seen > memory[SEEN])


def scale_rows(address, block_address, request_address):
    """Scale rows from `block.first` on, as many as fit into the block.

    The statistics of each row cover the rows learned before it. Their number goes to `block.n_rows`; it is -1 - i if
    entry i of the first row cannot be used. This function is compiled separately.
    """
    state, block, batch = blend_at(address), block_at(block_address), batch_at(request_address)
    first, indptr = block.first, batch.indptr
    capacity, at, block.n_rows = block.scaled.shape[1], 0, 0
    for i in range(first, min(first + block.rows.size, indptr.size - 1)):
        n_pairs = indptr[i + 1] - indptr[i] + 1
        if at + n_pairs > capacity:
            break
        bad = add_row(state, block, batch, i, block.n_rows, at)
        if bad < 0:
            block.n_rows = bad if block.n_rows == 0 else block.n_rows
            break
        block.n_rows += 1
        at += n_pairs
        if state.rows.opening > 0:
            break


@inlined
def call_member(block, i, cached):
    """Let a member score the rows of a block and learn the labelled ones.

    If `cached` is true, the scores are already known.
    """
    member = block.members[i]
    call_pointer(member.run, (member.state, address_of(block), i, int(cached)))


@kernel
def remember_votes(state, memory):
    """Write the known labels and the experts' answers to the memory of an event."""
    if state.uses_autocorrelation:
        remember(state.autocorrelation, memory)
    n_experts, combination = state.experts.size, state.combination
    memory[REPEATED] = state.repeats.found
    for h in range(n_experts if state.n_classes > 0 else 0):
        best = state.experts[h].best
        keep_answer(memory, h, best)
        keep_confidence(memory, n_experts, h, exp_below(combination.logs[h, place_of(state, best)]))
    if state.n_classes < 2:
        return
    if state.uses_autocorrelation:
        for i in range(ANSWERS):
            keep_answer(memory, n_experts + i, class_at(state, state.autocorrelation.answers[i]))
        first, labels = n_experts + ANSWERS + VOTES + 1, state.autocorrelation
        keep_answer(memory, first, class_at(state, labels.late_named[BY_P]))
        keep_answer(memory, first + 1, class_at(state, labels.late_named[BY_POOL]))
        keep_confidence(memory, n_experts, n_experts + VOTES, state.autocorrelation.confidence)
    for j in range(VOTES + 1):
        best = combination.answers[j]
        keep_answer(memory, n_experts + ANSWERS + j, class_at(state, best))
        if j < VOTES:
            keep_confidence(memory, n_experts, n_experts + j, combination.probas[j, best])


@inlined
def lift_weight(state, batch, row, late):
    """Return the weight of label autocorrelation for a row."""
    if not state.uses_autocorrelation or (row.label >= 0 and batch.notes == 0):
        return 1.0
    if batch.unordered > 0:
        return 0.0
    if late >= 0:
        return 1.0 if row.label >= 0 or is_current(state.autocorrelation) else 0.0
    return weigh(state.autocorrelation, row.key, state.n_classes)


@inlined
def vote_on(state, block, batch, k, cached):
    """Predict row k of a block from the scores of all members and return the class."""
    row, i = block.rows[k], block.first + k
    late = late_at(batch, i)
    if not cached:
        labels = state.autocorrelation
        labels.weight = lift_weight(state, batch, row, late)
        labels.waiting = n_waiting(labels) if late >= 0 and row.label < 0 else 0
        find_proba(state, block, batch, k)
    if late >= 0 and row.label < 0:
        remember_votes(state, batch.memories[late])
    elif late < 0 and state.uses_autocorrelation and batch.notes > 0:
        add_note(state.autocorrelation, row.key)
    return best_named(state)


def vote_on_rows(address, block_address, request_address):
    """Predict the rows of a block, write the requested answers and learn the labels.

    This function is compiled separately.
    """
    state, block, batch = blend_at(address), block_at(block_address), batch_at(request_address)
    cached = batch.cached > 0
    state.n_softened = 0
    for k in range(block.n_rows):
        label, i = block.rows[k].label, block.first + k
        best = vote_on(state, block, batch, k, cached)
        if batch.predicts > 0:
            batch.codes[i] = best
            if best >= 0:
                write_proba(batch, i, best, state.proba, state.n_classes)
        if state.rows.calls_back > 0:
            call_back(state.rows, label, i)
        if label >= 0:
            if state.autocorrelation.weight < 1.0:  # learning must not depend on the number of earlier predictions
                state.autocorrelation.weight = 1.0
                find_proba(state, block, batch, k)
            count(state, block, batch, label, k)


# Entry points -----------------------------------------------------------------------------------------------------


def drive(address, values_address, columns_address, n, shared):
    """Predict or learn a single event as a batch of one row.

    This function is compiled separately, see `driver`.
    """
    rows = rows_at(address)
    state = blend_at(rows.learner)
    notes = rows.request < 0
    if notes and state.uses_autocorrelation and not has_room(state.autocorrelation):
        rows.best = -2  # the caller must grow the memory before another prediction is noted
        return
    batch, block, row = state.whole if shared else state.listed, state.block, rows.row
    columns = rows.all_rows if shared else rows.row_columns
    cached = is_cached(state, row, columns, n, shared)
    state.cached = 0
    batch.shared, batch.cached = shared, int(cached)
    batch.notes, batch.predicts = int(notes), int(rows.label < 0)
    batch.indptr[1], batch.labels[0], batch.weights[0] = n, rows.label, rows.weight
    addresses = address_of(state), address_of(block), address_of(batch)
    block.first = 0
    call_pointer(state.scale, addresses)
    rows.best = block.n_rows - 1
    if block.n_rows < 0:
        return
    for i in range(block.members.size):
        call_member(block, i, cached)
    call_pointer(state.vote, addresses)
    rows.best, rows.n_shares = batch.codes[0], state.n_classes
    if rows.label < 0:
        keep_cached(state, row, columns, n, shared)


@kernel
def run_rows(state, batch):
    """Predict and learn the rows of a batch, block by block.

    Returns
    -------
    int
        The number of processed rows, less than all if the next row cannot be used, or needs a column of missing values.
    """
    block, n_rows = state.block, batch.indptr.size - 1
    addresses = address_of(state), address_of(block), address_of(batch)
    state.cached = state.rows.calls_back = 0
    block.first = batch.first
    while block.first < n_rows:
        call_pointer(state.scale, addresses)
        if block.n_rows < 0:
            return block.first
        for i in range(block.members.size):
            call_member(block, i, False)
        call_pointer(state.vote, addresses)
        block.first += block.n_rows
        if state.rows.opening > 0:
            return block.first
    return n_rows


_STATE = StateType(BLEND.name)
ENTRY_POINTS = {
    "drive": EntryPoint(drive, (INTEGER,) * 5),
    "run_rows": EntryPoint(run_rows, (_STATE, StateType(BATCH.name))),
    "scale_rows": EntryPoint(scale_rows, (INTEGER,) * 3),
    "vote_on_rows": EntryPoint(vote_on_rows, (INTEGER,) * 3),
}
CODE = {"drive": ENTRY_POINTS["drive"]}
