"""What an event would score by a kernel machine without some of its features, and what each adds by that."""

from __future__ import annotations

from streamsvm.budgeted.expansion import ONE, TWO, ZERO, bsgd_at, distances, dots, padded, score_heads
from streamsvm.core.entry_points import Entry
from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import inverse_temperature
from streamsvm.core.math import LOG2E, exp32, power32
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import LANES, lanes, lanes_at, put_lanes, times_plus, u
from streamsvm.core.state import f32
from streamsvm.features.scaler import in_hand
from streamsvm.online.calibration import is_heard as is_noise_heard
from streamsvm.online.explanations import ENDS, LEAST, MOST, begin, keep_expert, keep_same, settle, walk_at


@inlined
def walk_vectors(state, walk, first, averaging):
    """The scores of all heads of a kernel machine for all coalitions of the event in hand, which stays as it is."""
    size = state.scores.size
    for c in range(size):
        walk.kept_scores[c], walk.kept_scores[size + c] = state.scores[c], state.mean_scores[c]
    keep_heads(state, walk, 1, first, averaging)
    if walk.planned == ENDS:
        walk_ends(state, walk, first, averaging)
    else:
        walk_steps(state, walk, first, averaging)
    for c in range(size):
        state.scores[c], state.mean_scores[c] = walk.kept_scores[c], walk.kept_scores[size + c]


@inlined
def walk_ends(state, walk, first, averaging):
    """The scores for nobody, for each player alone, and for all without it.

    The logarithms, to base 2, of the kernel values of nobody and of all are held at depths 0 and 1.
    """
    n, m, gamma, logs = padded(state.n_vectors), state.rows.n_pairs, LOG2E * f32(state.gamma_now), walk.products
    rows, _ = in_hand(state.rows)
    distances(state, m, logs[1])
    for b in range(n):
        logs[0, u(b)], logs[1, u(b)], logs[2, u(b)] = -gamma * state.norms[u(b)], -LOG2E * logs[1, u(b)], ZERO
        walk.alone[u(b)] = power32(logs[0, u(b)])
    score_coalition(state, walk, walk.alone, 0, first, averaging)
    for p in range(walk.n_players):
        keep_same(walk, 0, 2 + 2 * p, first, state.n_heads)
        keep_same(walk, 1, 3 + 2 * p, first, state.n_heads)
    own_of_several = ZERO
    for k in range(1, m):
        j = u(rows[u(k)] - 1)
        p, w = walk.players[j], gamma * state.weighted[u(k)]
        own = w * state.pairs[u(k)]
        if p == MOST:
            own_of_several += own
            for b in range(n):
                logs[2, u(b)] += w * state.vectors[j, u(b)]
        elif p >= 0:
            score_ends(state, walk, state.vectors[j], w, own, p, first, averaging)
    if walk.n_players > MOST:
        score_ends(state, walk, logs[2], ONE, own_of_several, MOST, first, averaging)


@kernel
def score_ends(state, walk, column, w, own, p, first, averaging):
    """The scores for a player alone and for all without it: its own square, less twice its products with the vectors,
    is how much farther off they are with it."""
    alone, without, logs, twice = walk.alone, walk.without, walk.products, TWO * w
    for b in range(padded(state.n_vectors)):
        farther = own - twice * column[u(b)]
        alone[u(b)] = power32(logs[0, u(b)] - farther)
        without[u(b)] = power32(logs[1, u(b)] + farther)
    score_coalition(state, walk, alone, 2 + 2 * p, first, averaging)
    score_coalition(state, walk, without, 3 + 2 * p, first, averaging)


@inlined
def walk_steps(state, walk, first, averaging):
    """The scores for nobody, and for the coalitions of all steps."""
    n, m = padded(state.n_vectors), state.rows.n_pairs
    rows, _ = in_hand(state.rows)
    for b in range(0, n, LANES):
        put_lanes(lanes(ZERO), walk.products[0], u(b))
        put_lanes(dots(state.vectors, b, rows, state.weighted, 1, m, lanes(ZERO)), walk.products[1], u(b))
    walk.norms[0], walk.norms[1] = ZERO, state.weighted[0]
    for step in range(-1, walk.n_steps):
        if step >= 0:
            move(state, walk, rows, m, step, n)
        find_kernels(state, walk, walk.targets[step] if step >= 0 else 0)
        score_coalition(state, walk, walk.alone, step + 2 if step >= 0 else 0, first, averaging)


@inlined
def move(state, walk, rows, m, step, n):
    """Make the coalition of a step."""
    products, players, weighted, vectors = walk.products, walk.players, state.weighted, state.vectors
    source, target, moved = walk.sources[step], walk.targets[step], walk.moved[step]
    sign, player, norm = f32(1.0 if moved > 0 else -1.0), abs(moved) - 1, walk.norms[source]
    for k in range(1, m):
        j = u(rows[u(k)] - 1)
        if players[j] == player:
            x = sign * weighted[u(k)]
            norm += x * state.pairs[u(k)]
            for b in range(0, n, LANES):
                put_lanes(
                    times_plus(x, lanes_at(vectors, (j, u(b))), lanes_at(products, (u(source), u(b)))),
                    products,
                    (u(target), u(b)),
                )
            source = target
    if source != target:
        for b in range(n):
            products[u(target), u(b)] = products[u(source), u(b)]
    walk.norms[target] = norm


@inlined
def find_kernels(state, walk, depth):
    """The kernel values of the coalition held at a depth."""
    norms, products, gamma, norm = state.norms, walk.products, f32(state.gamma_now), walk.norms[depth]
    for b in range(padded(state.n_vectors)):
        d = (norm + norms[u(b)]) - TWO * products[u(depth), u(b)]
        walk.alone[u(b)] = exp32((d if d > ZERO else ZERO) * -gamma)


@inlined
def score_coalition(state, walk, row, at, first, averaging):
    """The scores of all heads for a coalition with such kernel values."""
    score_heads(state, row, averaging)
    keep_heads(state, walk, at, first, averaging)


@inlined
def keep_heads(state, walk, at, first, averaging):
    """Keep the scores of all heads for a coalition."""
    scores = state.mean_scores if averaging else state.scores
    for h in range(state.n_heads):
        keep_expert(walk, at, first + h, scores, h * state.classes.size, state.n_classes)


def explain_vectors(address, walk_address, first):
    """The scores of a kernel member for all coalitions."""
    walk_vectors(bsgd_at(address), walk_at(walk_address), first, False)


def explain_machine(walk_address, label, row):
    """What the features of the event in hand add by a kernel machine."""
    walk = walk_at(walk_address)
    state = bsgd_at(walk.learner)
    walk.row = row
    if not begin(walk, state.rows, state.proba, state.n_classes, state.calibration):
        return
    for h in range(state.n_heads):
        walk.shares[h], walk.betas[h] = state.heads[h].weight, inverse_temperature(state.heads[h].loss)
    walk.least, walk.exponent, walk.stacked = LEAST, 1.0, 1.0
    walk.factor = state.calibration.sharpness if is_noise_heard(state.calibration) else 1.0
    walk_vectors(state, walk, 0, state.average > 0.0)
    settle(walk)


ENTRIES = {function.__name__: Entry(function, (INTEGER,) * 3) for function in (explain_vectors, explain_machine)}
