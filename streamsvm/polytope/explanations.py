"""What an event would score by polytopes without some of its features, and what each adds by that."""

from __future__ import annotations

import math

from streamsvm.core.entry_points import Entry
from streamsvm.core.jit import inlined
from streamsvm.core.losses import largest
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import u
from streamsvm.features.scaler import in_hand
from streamsvm.online.calibration import is_heard as is_noise_heard
from streamsvm.online.explanations import choose_labels, keep_expert, tell, walk_at, walk_sums
from streamsvm.polytope.kernels import cpm_at


def explain_faces(address, walk_address, first):
    """Those of polytopes."""
    state, walk = cpm_at(address), walk_at(walk_address)
    rows, values = in_hand(state.rows)
    k, n, scores = state.n_faces, state.n_classes, walk.kept_scores
    for step in range(-2, walk.n_steps):
        at = walk_sums(state.weights, walk, rows, values, state.rows.n_pairs, step, n * k)
        for c in range(n):
            scores[c] = state.classes[c].scale * largest(walk.sums[at], c * k, k)
        keep_expert(walk, step + 2, first, scores, 0, n)


def explain_planes(walk_address, label, row):
    """What they add by the planes of polytopes that decide: it is exact, and nothing has to be asked about for it."""
    walk = walk_at(walk_address)
    state = cpm_at(walk.learner)
    n, m, f = state.n_classes, state.rows.n_pairs, state.f
    walk.row, walk.label = row, -1
    if n < 2:
        return
    choose_labels(walk, f, n)
    rows, values = in_hand(state.rows)
    a, b = deciding_plane(state, walk.label), deciding_plane(state, walk.against)
    beta = state.inverse_temperature
    if is_noise_heard(state.calibration):
        beta *= state.calibration.sharpness
    n_players = 0
    for k in range(m):
        if values[u(k)] == 0.0:
            continue
        j = rows[u(k)]
        adds = beta * values[u(k)] * (weight_of(state, walk.label, a, j) - weight_of(state, walk.against, b, j))
        if k == 0:
            walk.nothing = adds
        else:
            walk.columns[n_players], walk.values[n_players] = j - 1, adds
            n_players += 1
    walk.n_players, walk.whole = n_players, beta * (f[walk.label] - f[walk.against])
    tell(walk)


@inlined
def deciding_plane(state, c):
    """Which plane of a class is the largest for the event in hand."""
    k, own = state.n_faces, state.classes[c]
    best, top = c * k, -math.inf
    for face in range(c * k, (c + 1) * k):
        score = state.scores[face]
        if state.average > 0.0:
            score = own.mean_v * score + own.mean_u * state.mean_scores[face]
        if score > top:
            best, top = face, score
    return best


@inlined
def weight_of(state, c, face, j):
    """The weight of a plane of a class in row j, as the class's f has it."""
    own = state.classes[c]
    if state.average > 0.0:
        return own.mean_v * state.weights[j, face] + own.mean_u * state.averaged[j, face]
    return own.scale * state.weights[j, face]


ENTRIES = {function.__name__: Entry(function, (INTEGER,) * 3) for function in (explain_faces, explain_planes)}
