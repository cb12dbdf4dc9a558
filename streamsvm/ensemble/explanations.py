"""What an event would score by an ensemble without some of its features, and what each adds by that."""

from __future__ import annotations

from streamsvm.core.access import StateType, nothing_packed
from streamsvm.core.entry_points import Entry
from streamsvm.core.jit import call, inlined, kernel
from streamsvm.core.losses import LEAST_BY_VOTE
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import u
from streamsvm.ensemble.label_autocorrelation import is_heard as is_autocorrelation_heard
from streamsvm.ensemble.linear import average_scores, linear_at
from streamsvm.ensemble.stacked_vote import is_heard
from streamsvm.ensemble.vote import BLEND, LEAST_VOTE, blend_at
from streamsvm.features.scaler import FOLLOW, in_hand, is_whole
from streamsvm.online.calibration import is_heard as is_noise_heard
from streamsvm.online.driver import event
from streamsvm.online.explanations import WALK, begin, keep_expert, settle, walk_at, walk_sums
from streamsvm.online.requests import REQUEST, answer, is_learned


def explain_linear(address, walk_address, first):
    """Those of a linear one."""
    state, walk = linear_at(address), walk_at(walk_address)
    rows, values = in_hand(state.rows)
    scores, n_heads = state.scores, state.rates.size
    for c in range(scores.size):
        walk.kept_scores[c] = scores[c]
    for step in range(-2, walk.n_steps):
        at = walk_sums(state.weights, walk, rows, values, state.rows.n_pairs, step, scores.size)
        for c in range(scores.size):
            scores[u(c)] = walk.sums[at, u(c)]
        if state.n_averaged > 0:
            average_scores(state)
        for h in range(n_heads):
            keep_expert(walk, step + 2, first + h, scores, h * (scores.size // n_heads), state.n_classes)
    for c in range(scores.size):
        scores[c] = walk.kept_scores[c]


def explain_blend(walk_address, label, row):
    """What they add by a blend, whose members have scored the event as the only row of a block."""
    walk = walk_at(walk_address)
    state = blend_at(walk.learner)
    if label >= 0 or not begin(walk, state.rows, state.proba, state.n_classes, state.calibration):
        return
    hear(state, walk)
    members = state.block.members
    for i in range(members.size):
        if is_asked(walk, members[i].first, members[i].n_heads):
            call(walk.explains[i], (members[i].state, walk_address, members[i].first))
    settle(walk)


@inlined
def hear(state, walk):
    """What each expert has to say in the votes.

    What the labels before say adds a constant to log-odds and multiplies them, as does what labels are worth.
    """
    experts, noise, labels, stack = state.experts, state.calibration, state.autocorrelation, state.stack
    walk.least, walk.exponent = LEAST_BY_VOTE, state.inverse_temperature
    walk.stacked = walk.factor = 1.0
    members = state.block.members
    for i in range(members.size):
        for h in range(members[i].first, members[i].first + members[i].n_heads):
            walk.betas[h] = experts[h].inverse_temperature
            walk.shares[h] = experts[h].weight if experts[h].weight > LEAST_VOTE else 0.0
            walk.powers[h] = stack.weights[h] if is_heard(stack) else 0.0
    if is_heard(stack):
        walk.stacked = stack.weights[experts.size]
    if is_noise_heard(noise):
        walk.factor *= noise.sharpness
    if state.uses_autocorrelation and is_autocorrelation_heard(labels) and labels.weight > 0.0:
        walk.factor *= labels.inverse_temperature


@inlined
def is_asked(walk, first, n_heads):
    """Whether anything of a member is heard in the votes."""
    said = False
    for h in range(first, first + n_heads):
        said |= walk.shares[h] > 0.0 or walk.powers[h] != 0.0
    return said


@kernel
def explain_rows(state, request, walk):
    """Predict the rows of a request one by one, follow each, then learn it."""
    rows, shared = state.rows, request.shared > 0
    for i in range(request.indptr.size - 1):
        walk.row = i
        hold(rows, request, i, shared)
        best = event(rows, nothing_packed(), FOLLOW, 1.0)
        if best < -1:
            return
        request.codes[i] = best
        if best >= 0:
            answer(request, i, best, state.proba, state.n_classes)
        if is_learned(request, i):
            hold(rows, request, i, shared)
            event(rows, nothing_packed(), request.labels[i], request.weights[i])


@inlined
def hold(rows, request, i, shared):
    """Make a row of a request the single event."""
    start, end, columns = request.indptr[i], request.indptr[i + 1], request.columns
    n, skip = end - start, 0 if shared else start
    for k in range(n):
        rows.row[k] = request.values[start + k]
    rows.listed = 0
    if n != rows.row_length or not is_whole(columns, start, end, shared):
        rows.listed = n + 1
        for k in range(n):
            rows.row_columns[k] = columns[skip + k]


ENTRIES = {function.__name__: Entry(function, (INTEGER,) * 3) for function in (explain_linear, explain_blend)}
ENTRIES["explain_rows"] = Entry(explain_rows, tuple(StateType(state.name) for state in (BLEND, REQUEST, WALK)))
