"""What an event would score if some of its features were missing: a walk through sets of features, a step for each.

A step adds the features of one *player* to a set held at a *depth*, and holds what becomes of it at the same depth or
another. Kernel members hold the products of the set's values with the vectors, linear ones and polytopes their scores
so far: so a step costs a run over the vectors for each column that it adds, not for each that the set has. A family
that may be a member of a blend exports a function of four integers, to be compiled apart: the address of its state,
that of the walk, which member it is, and the number of the step, -1 for the empty set. Nothing of this is compiled
before somebody asks for reasons.
"""

from __future__ import annotations

import math

from numba import types

from streamsvm.kernels import call, inlined, kernel
from streamsvm.kernels.access import StateType, address_of, state_at
from streamsvm.kernels.autocorrelation import is_heard as is_autocorrelation_heard
from streamsvm.kernels.blend import BLEND, LEAST_VOTE, sharpen_votes, vote_on_all
from streamsvm.kernels.blocks import BLOCK, hand_over, keep_scores
from streamsvm.kernels.budgeted import find_proba
from streamsvm.kernels.calibration import is_heard as is_noise_heard
from streamsvm.kernels.entries import Entry
from streamsvm.kernels.expansion import BSGD, TWO, ZERO, bsgd_at, evaluate, padded, score_heads, take_event
from streamsvm.kernels.exponential import exp32
from streamsvm.kernels.lanes import LANES, lanes_at, put_lanes, times_plus
from streamsvm.kernels.linear import average_scores, linear_at
from streamsvm.kernels.losses import FEW, best_class, largest
from streamsvm.kernels.polytope import cpm_at
from streamsvm.kernels.rows import in_hand, load, single_event, u
from streamsvm.kernels.stacking import is_heard, stack
from streamsvm.kernels.state import Array, Declaration, Number, address, f32, i64

# No probability is taken for less.
LEAST_PROBABILITY = 1e-9

WALK = Declaration(
    "walk",
    {
        "depths": Number("at how many depths each member holds sets", i64),
        "noise": Number("the share of labels that are as if drawn at random"),
        "label": Number("the most probable class", i64),
        "against": Number("the next one", i64),
        "whole": Number("the log-odds of the one against the other, of the event as it is"),
        "nothing": Number("those of an event with no features"),
        "block": address("of the rows that members see, 0 where there is one learner"),
        "explains": Array(("members",), "where the functions of the members are", i64, lent=True),
        "lengths": Array(("members",), "how many pairs the event has for each", i64, lent=True),
        "players": Array(("columns",), "the player that has each column, -1 for none", i64, lent=True),
        "sources": Array(("steps",), "the depth of the set that a step adds to", i64, lent=True),
        "targets": Array(("steps",), "the depth at which what it makes is held", i64, lent=True),
        "added": Array(("steps",), "the player that is added", i64, lent=True),
        "found": Array(("steps",), "the log-odds after each", lent=True),
        "dots": Array(("members*depths", "slots"), "the products of sets with vectors", f32, lent=True),
        "norms": Array(("members*depths",), "the weighted square norms of sets", f32, lent=True),
        "sums": Array(("members*depths", "sums"), "the scores of sets, where these are sums over columns", lent=True),
    },
)

walk_at, block_at = state_at(WALK), state_at(BLOCK)


@inlined
def log_odds(walk, proba, n):
    """Those of the two classes, as they would be if no label were noise."""
    less, keep = walk.noise / n, 1.0 - walk.noise
    p = min(max((proba[walk.label] - less) / keep, LEAST_PROBABILITY), 1.0)
    q = min(max((proba[walk.against] - less) / keep, LEAST_PROBABILITY), 1.0)
    return math.log(p) - math.log(q)


@inlined
def choose_labels(walk, proba, n):
    """The most probable class, and the next."""
    walk.label = best_class(proba, 0, n)
    walk.against = 1 if walk.label == 0 else 0
    for c in range(n):
        if c != walk.label and proba[c] > proba[walk.against]:
            walk.against = c
    walk.whole = log_odds(walk, proba, n)


@inlined
def places(walk, i, step):
    """Where a step of a member begins and ends among what is held."""
    return i * walk.depths + walk.sources[step], i * walk.depths + walk.targets[step]


# Families -----------------------------------------------------------------------------------------------------------


@inlined
def add_to_distances(state, walk, i, step, m):
    """The kernel values of the set of a step, -1 for the empty one, of the event that was taken as m pairs."""
    n, dots, gamma = padded(state.n_vectors), walk.dots, f32(state.gamma_now)
    at, norm = i * walk.depths, ZERO
    if step < 0:
        for b in range(n):
            dots[u(at), u(b)] = ZERO
    else:
        source, at = places(walk, i, step)
        rows, _ = in_hand(state.rows)
        players, player, weighted, vectors = walk.players, walk.added[step], state.weighted, state.vectors
        norm = walk.norms[source]
        for k in range(1, m):
            j = u(rows[u(k)] - 1)
            if players[j] == player:
                x = weighted[u(k)]
                norm += x * state.pairs[u(k)]
                for b in range(0, n, LANES):
                    sums = times_plus(x, lanes_at(vectors, (j, u(b))), lanes_at(dots, (u(source), u(b))))
                    put_lanes(sums, dots, (u(at), u(b)))
                source = at
        if source != at:
            for b in range(n):
                dots[u(at), u(b)] = dots[u(source), u(b)]
    walk.norms[at] = norm
    row, norms = state.kernel, state.norms
    for b in range(n):
        d = (norm + norms[u(b)]) - TWO * dots[u(at), u(b)]
        row[u(b)] = exp32((d if d > ZERO else ZERO) * -gamma)


@inlined
def add_to_sums(weights, rows, values, m, walk, i, step, n):
    """The n sums over columns of the set of a step, -1 for that of the constant alone; returns where they are held."""
    sums, at = walk.sums, u(i * walk.depths)
    if step < 0:
        for f in range(n):
            sums[at, u(f)] = values[0] * weights[0, u(f)]
        return at
    source, target = places(walk, i, step)
    at = u(target)
    for f in range(n):
        sums[at, u(f)] = sums[u(source), u(f)]
    for k in range(1, m):
        j = u(rows[u(k)])
        if walk.players[j - u(1)] == walk.added[step]:
            for f in range(n):
                sums[at, u(f)] += values[u(k)] * weights[j, u(f)]
    return at


@inlined
def begin(walk, i, rows, step):
    """Make the event that of a member, before the first step; returns how many pairs it has."""
    block = block_at(walk.block)
    if step < 0:
        walk.lengths[i] = hand_over(block, 0, block.members[i].way, rows)
    return walk.lengths[i]


def explain_vectors(address, walk_address, i, step):
    """The scores of a kernel member for the set of a step."""
    state, walk = bsgd_at(address), walk_at(walk_address)
    m = begin(walk, i, state.rows, step)
    if step < 0:
        take_event(state, m)
    add_to_distances(state, walk, i, step, m)
    score_heads(state, False)
    keep_scores(block_at(walk.block), 0, i, state.scores)


def explain_linear(address, walk_address, i, step):
    """Those of a linear one."""
    state, walk = linear_at(address), walk_at(walk_address)
    m = begin(walk, i, state.rows, step)
    rows, values = in_hand(state.rows)
    scores = state.scores
    at = add_to_sums(state.weights, rows, values, m, walk, i, step, scores.size)
    for c in range(scores.size):
        scores[u(c)] = walk.sums[at, u(c)]
    if state.n_averaged > 0:
        average_scores(state)
    keep_scores(block_at(walk.block), 0, i, scores)


def explain_faces(address, walk_address, i, step):
    """Those of polytopes."""
    state, walk = cpm_at(address), walk_at(walk_address)
    m = begin(walk, i, state.rows, step)
    rows, values = in_hand(state.rows)
    k, n = state.n_faces, state.n_classes
    at = add_to_sums(state.weights, rows, values, m, walk, i, step, n * k)
    for c in range(n):
        state.f[c] = state.classes[c].scale * largest(walk.sums[at], c * k, k)
    keep_scores(block_at(walk.block), 0, i, state.f)


# Learners -----------------------------------------------------------------------------------------------------------


@kernel
def explain_machine(state, walk):
    """Walk with the single event of a kernel machine; returns -1 where it cannot be used, else 0."""
    rows, n, averaging = state.rows, state.n_classes, state.average > 0.0
    row, columns, length, shared = single_event(rows)
    m = load(rows, row, columns, 0, length, shared)
    if m < 0:
        return -1
    evaluate(state, m, averaging)
    find_proba(state)
    choose_labels(walk, state.proba, n)
    for step in range(-1, walk.added.size):
        add_to_distances(state, walk, 0, step, m)
        score_heads(state, averaging)
        find_proba(state)
        odds = log_odds(walk, state.proba, n)
        if step < 0:
            walk.nothing = odds
        else:
            walk.found[step] = odds
    return 0


@inlined
def has_say(state, i):
    """Whether any expert of a member is heard; where classes are many all are."""
    member = state.block.members[i]
    if member.dormant > 0.0 or state.n_classes > FEW or is_heard(state.stack):
        return member.dormant == 0.0
    said = False
    for h in range(member.first, member.first + member.n_heads):
        said |= state.experts[h].weight > LEAST_VOTE
    return said


@inlined
def vote_again(state, walk):
    """The log-odds by the members' scores, but for a constant.

    Both what the labels before say and what labels are worth add a constant to log-odds, or multiply them.
    """
    n, proba, labels, noise = state.n_classes, state.proba, state.autocorrelation, state.calibration
    vote_on_all(state, 0)
    sharpen_votes(state, n, 1.0, proba)
    if is_heard(state.stack):
        stack(state.stack, n, proba)
    factor = noise.sharpness if is_noise_heard(noise) else 1.0
    if state.uses_autocorrelation and is_autocorrelation_heard(labels):
        factor *= labels.inverse_temperature
    return factor * log_odds(walk, proba, n)


@kernel
def explain_blend(state, walk):
    """Walk with the single event of a blend; returns -1 where it cannot be used, else 0."""
    _, _, length, shared = single_event(state.rows)
    n, members, request = state.n_classes, state.block.members, state.whole if shared else state.listed
    request.shared, request.at_hand, request.first = int(shared), 0, 0
    request.predicting = request.answering = request.following = 0
    request.indptr[1], request.labels[0], request.weights[0] = length, -1, 0.0
    addresses, state.at_hand = (address_of(state), address_of(request)), 0
    call(state.scale, addresses)
    if request.n_block < 0:
        return -1
    state.block.n_rows = 1
    for i in range(members.size):
        call(members[i].run, (members[i].state, walk.block, i, 0))
    call(state.vote, addresses)
    choose_labels(walk, state.proba, n)
    constant = 0.0
    if n <= FEW:
        walk.noise = 0.0
        constant = walk.whole - vote_again(state, walk)
    for step in range(-1, walk.added.size):
        for i in range(members.size):
            if has_say(state, i):
                call(walk.explains[i], (members[i].state, address_of(walk), i, step))
        if n <= FEW:
            odds = vote_again(state, walk) + constant
        else:
            call(state.vote, addresses)
            odds = log_odds(walk, state.proba, n)
        if step < 0:
            walk.nothing = odds
        else:
            walk.found[step] = odds
    for i in range(members.size):  # what is near to the event is looked for next
        call(members[i].run, (members[i].state, walk.block, i, 0))
    return 0


_WALK = StateType(WALK.name)

ENTRIES = {
    "explain_vectors": Entry(explain_vectors, (types.int64,) * 4),
    "explain_linear": Entry(explain_linear, (types.int64,) * 4),
    "explain_faces": Entry(explain_faces, (types.int64,) * 4),
    "explain_machine": Entry(explain_machine, (StateType(BSGD.name), _WALK)),
    "explain_blend": Entry(explain_blend, (StateType(BLEND.name), _WALK)),
}
