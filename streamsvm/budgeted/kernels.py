"""Budgeted stochastic gradient descent on a kernel expansion (BSGD).

An event that violates its margin becomes a support vector of the `expansion` or is absorbed by the nearest one.
`maintenance` enforces the budget and `metric` learns the relevances of columns.

Wang, Crammer, Vucetic, "Breaking the curse of kernelization", JMLR 13, 2012.
"""

from __future__ import annotations

from streamsvm.budgeted.expansion import (
    BSGD,
    SMALLEST,
    best_of_head,
    bsgd_at,
    evaluate,
    first_class,
    first_slot,
    slot_max,
)
from streamsvm.budgeted.metric import count_due, relearn_metric
from streamsvm.budgeted.vectors import open_classes, update_all_squares, update_squares, write_vector
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, address_of, call_pointer, inlined, kernel, state_at, uint
from streamsvm.core.losses import best_class, find_update, inverse_temperature
from streamsvm.core.math import ONE, ZERO, exp_below
from streamsvm.core.schema import f32
from streamsvm.features.scaler import call_back, current_row
from streamsvm.online import driver
from streamsvm.online.batch import MINIBATCH, keep_scores, load_cached_row
from streamsvm.online.calibration import find_softmax, is_sampled, learn_softmax

__all__ = ["BSGD", "open_classes", "run_event", "run_member"]

# Changes of coefficients are clipped here, so that their squares do not overflow in float32 for any weight.
LARGEST_CHANGE = 1e15
# Weights of heads are exp(VOTE_INVERSE_TEMPERATURE * accuracy), with the accuracy decayed by VOTE_DECAY.
VOTE_INVERSE_TEMPERATURE, VOTE_DECAY = 60.0, 0.998
# The heads of a member of an ensemble share the support vectors. A head with less than this multiple of the equal
# weight 1 / n_heads does not add vectors. It learns only from events that violate the margins of other heads.
LEAST_WEIGHT = 0.9

block_at = state_at(MINIBATCH)


@kernel
def predict(state, m):
    """Predict the class of the current event, -1 without classes."""
    evaluate(state, m)
    return best_class(state.scores, 0, state.n_classes) if state.n_classes > 0 else -1


@inlined
def calibrates(state, label):
    """Return whether the next learned event is in the sample for calibration."""
    return is_sampled(state.rows.seen) and label < state.n_classes > 1


@kernel
def calibrate(state, label):
    """Update the calibration with the label of the predicted event."""
    beta = inverse_temperature(state.heads[0].loss)
    learn_softmax(state.calibration, state.scores, state.n_classes, beta, label)


# Learning ---------------------------------------------------------------------------------------------------------


@inlined
def step(state, m, label, weight):
    """Take a training step of every head on the evaluated current event.

    The step may exceed the budget by one vector.
    """
    if label >= state.n_classes:
        open_classes(state, label + 1)
    n, capacity, own = state.n_classes, state.classes.size, state.classes[label]
    own.learned += 1.0
    weight *= own.weight
    if state.balanced > 0.0:
        weight *= (state.rows.seen + 1.0) / (n * own.learned)
    if state.gamma == 0.0:
        update_gamma(state, state.pairs[0])
    rows, _ = current_row(state.rows)
    last = m - 1
    while last > 0 and state.pairs[uint(last)] == ZERO:
        last -= 1
    state.n_known = max(state.n_known, rows[uint(last)] if last > 0 else 0)
    if n < 2 or weight == 0.0:
        return
    if state.n_heads > 1:
        vote(state, label)
    acting = False
    for h in range(state.n_heads):
        acts = find_update(state.scores, state.update, h * capacity, n, label, state.heads[h].loss)
        acting |= acts and state.heads[h].weight * state.n_heads >= LEAST_WEIGHT
    if acting and state.metric_rate > 0.0 and count_due(state):
        relearn_metric(state, m)
    for h in range(state.n_heads):
        shrink(state, h)
    if acting:
        add_update(state, find_slot(state, m), weight)


@inlined
def learn(state, m, label, weight):
    """Learn the evaluated current event and enforce the budget."""
    step(state, m, label, weight)
    if state.n_vectors > state.budget:
        call_pointer(state.maintain, (address_of(state),))


@inlined
def update_gamma(state, square):
    """Set gamma to `gamma_factor` divided by the mean squared norm of learned events.

    The mean includes the current event, with the squared norm `square`.
    """
    state.sum_of_squares += square
    if state.sum_of_squares > 0.0:
        state.gamma_now = state.gamma_factor * (state.rows.seen + 1.0) / state.sum_of_squares


@kernel
def vote(state, label):
    """Update accuracies and weights of heads with the label of the current event."""
    heads, scores, n_heads = state.heads, state.scores, state.n_heads
    top = 0.0
    for h in range(n_heads):
        right = 1.0 if best_of_head(state, scores, h) == label else 0.0
        heads[h].accuracy += (1.0 - VOTE_DECAY) * (right - heads[h].accuracy)
        top = max(top, heads[h].accuracy)
    total = 0.0
    for h in range(n_heads):
        heads[h].weight = exp_below(VOTE_INVERSE_TEMPERATURE * (heads[h].accuracy - top))
        total += heads[h].weight
    for h in range(n_heads):
        heads[h].weight /= total


@inlined
def shrink(state, h):
    """Set the step size of a head and shrink its coefficients.

    The step count t starts at 2, because t = 1 would shrink the coefficients to zero.
    """
    head = state.heads[h]
    head.eta = head.rate
    if head.rate == 0.0:
        head.eta = 1.0 / (state.l2 * min(head.steps + 2.0, state.horizon))
    head.steps += 1.0
    head.scale *= 1.0 - head.eta * state.l2
    if head.scale < SMALLEST:
        rows, coefs, scale = state.classes.size, state.coefs, f32(head.scale)
        for c in range(h * rows, (h + 1) * rows):
            for b in range(coefs.shape[1]):
                coefs[uint(c), uint(b)] *= scale
        head.scale = 1.0
        update_all_squares(state)


@inlined
def find_slot(state, m):
    """Return the slot for the event: a new one, unless the nearest vector absorbs it."""
    n, row = state.n_vectors, state.kernel
    if state.absorb < 1.0 and n > 0:
        nearest = slot_max(row, n, ONE)
        if nearest > state.absorb:
            return first_slot(row, n, nearest)
    write_vector(state, n, m)
    state.n_vectors = n + 1
    return n


@inlined
def add_update(state, slot, weight):
    """Add the steps of all heads to the coefficients of a slot."""
    capacity, n, update = state.classes.size, state.n_classes, state.update
    coefs = state.coefs
    for h in range(state.n_heads):
        head, at = state.heads[h], h * capacity
        change = weight * head.eta
        for c in range(at + first_class(state), at + n):
            if update[c] != 0.0:
                delta = change * update[c] / head.scale
                delta = min(max(delta, -LARGEST_CHANGE), LARGEST_CHANGE)
                coefs[c, slot] += f32(delta)
    update_squares(state, slot)


# Entry points -----------------------------------------------------------------------------------------------------


def run_event(address):
    """Predict and learn the current event; an entry point called by `driver`."""
    state = bsgd_at(address)
    rows = state.rows
    m, label = rows.n_pairs, rows.label
    rows.best, rows.n_shares = predict(state, m), state.n_classes
    if rows.best >= 0 and rows.needs_proba:
        beta = inverse_temperature(state.heads[0].loss)
        find_softmax(state.calibration, state.scores, state.n_classes, beta, state.proba)
    if rows.calls_back:
        call_back(rows, label, rows.at)
    if label >= 0:
        if calibrates(state, label):
            calibrate(state, label)
        learn(state, m, label, rows.weight)


def run_member(address, block_address, i, cached):
    """Score rows of a minibatch as member i of an ensemble; learn labelled ones."""
    state, block = bsgd_at(address), block_at(block_address)
    rows, member = state.rows, block.members[i]
    for k in range(block.n_rows):
        row = block.rows[k]
        m = load_cached_row(block, k, member.way, rows)
        if cached == 0:
            evaluate(state, m)
            keep_scores(block, k, i, state.scores)
        if row.label >= 0:
            rows.seen = row.seen
            learn(state, m, row.label, row.weight)


ENTRY_POINTS = {"run_event": EntryPoint(run_event, (INTEGER,)), "run_member": EntryPoint(run_member, (INTEGER,) * 4)}
CODE = {"drive": driver.ENTRY_POINTS["drive"], "step": ENTRY_POINTS["run_event"]}
