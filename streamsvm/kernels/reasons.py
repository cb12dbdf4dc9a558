"""What an event would score without some of its features, and what each of these adds by that.

The features of an event are the *players*: where there are very many, the least relevant ones are one player together.
Coalitions of players are made step by step, each from one that is held at some *depth*, by adding a player or taking
one away; at depth 0 the coalition of nobody is held, at depth 1 that of all. Kernel members hold the products of a
coalition's values with the vectors, linear ones and polytopes their scores so far: so a step costs a run over the
vectors for each column that it moves, not for each that the coalition has.

Which coalitions there are is lent, for Shapley values by all coalitions or by permutations; or they are the *ends*:
each player alone, and all without it. With V what coalitions are worth, the mean of V(p) - V(nobody) and V(all) -
V(all but p) is the trapezoid rule for the integral by which Owen's multilinear extension gives Shapley values. It is
exact where no more than two players count together. What the values of all players lack of V(all) - V(nobody) is shared
out in proportion to their size; among up to three players equally, which is exact.

What follows an event, once its probabilities are known, are functions of the address of the walk, of its label, and of
its number, to be compiled apart. A family that may be a member of a blend exports a function of the address of its
state, that of the walk, and the number of its first expert. Nothing of this is compiled before somebody asks.

Notes
-----
G. Owen, "Multilinear extensions of games", Management Science 18, 1972.
"""

from __future__ import annotations

import math

from numba import types

from streamsvm.kernels import call, fused, inlined, kernel
from streamsvm.kernels.access import StateType, nothing_packed, state_at
from streamsvm.kernels.autocorrelation import is_heard as is_autocorrelation_heard
from streamsvm.kernels.blend import BLEND, LEAST_LOG, LEAST_PROBABILITY, LEAST_VOTE, blend_at, event
from streamsvm.kernels.calibration import is_heard as is_noise_heard
from streamsvm.kernels.entries import Entry
from streamsvm.kernels.expansion import ONE, TWO, ZERO, bsgd_at, distances, dots, padded, score_heads
from streamsvm.kernels.exponential import LOG2E, exp32, log32, power32
from streamsvm.kernels.lanes import LANES, lanes, lanes_at, put_lanes, times_plus
from streamsvm.kernels.linear import average_scores, linear_at
from streamsvm.kernels.losses import best_class, inverse_temperature, largest
from streamsvm.kernels.polytope import cpm_at
from streamsvm.kernels.requests import REQUEST, answer, is_learned
from streamsvm.kernels.rows import FOLLOW, in_hand, is_whole, u
from streamsvm.kernels.stacking import is_heard
from streamsvm.kernels.state import Array, Declaration, Number, address, f32, i64

# So many features are told apart, the most relevant ones; the others are one player together.
MOST = 64
# No probability is taken for less, nor log-odds for more than it makes them; of a blend's first vote.
LEAST, FARTHEST, FARTHEST_VOTED = 1e-9, -math.log(1e-9), -math.log(LEAST_PROBABILITY)
# Which coalitions there are: the ends, or what is lent for so many players.
ENDS = -1

WALK = Declaration(
    "walk",
    {
        "learner": address("the state of the learner"),
        "row": Number("which event it is", i64),
        "planned": Number("for how many players coalitions are lent; ENDS for none", i64, start=ENDS),
        "n_players": Number("how many there are; of no use where these are others than planned", i64),
        "n_steps": Number("how many coalitions there are beside nobody and all", i64),
        "label": Number("the most probable class, -1 where there are no two", i64),
        "against": Number("the next one", i64),
        "whole": Number("the log-odds of the one against the other, of the event as it is"),
        "nothing": Number("those of an event with no features"),
        "least": Number("no probability of the experts' vote is taken for less"),
        "exponent": Number("of that vote"),
        "stacked": Number("how far that has a say in the second vote, 1 where this is not heard"),
        "factor": Number("of the log-odds by all that follows the votes"),
        "shares": Array(("experts",), "the weights of the experts in the vote"),
        "powers": Array(("experts",), "those in the second vote, 0 where it is not heard"),
        "betas": Array(("experts",), "how many scores their probabilities are the softmax of"),
        "explains": Array(("members",), "where the functions of the members are", i64, lent=True),
        "relevance": Array(("metric",), "of columns, where they are learned", lent=True),
        "players": Array(("columns",), "the player that has each column of the event, -1 for none", i64),
        "columns": Array(("columns",), "the column of each player, -1 for that of several", i64),
        "values": Array(("columns",), "what each player adds"),
        "sources": Array(("steps",), "the depth of the coalition that a step begins with", i64, lent=True),
        "targets": Array(("steps",), "the depth at which what it makes is held", i64, lent=True),
        "moved": Array(("steps",), "1 + the player that is added; negative for one that is taken away", i64, lent=True),
        "found": Array(("coalitions",), "the log-odds of nobody, of all, and after each step", lent=True),
        "of_label": Array(
            ("experts", "coalitions"),
            "beta times how far each expert's score of the label is below its best",
            f32,
            lent=True,
        ),
        "of_against": Array(("experts", "coalitions"), "the same of the next class", f32, lent=True),
        "of_others": Array(
            ("experts", "coalitions"), "the sum of the terms of its softmax for all others", f32, lent=True
        ),
        "terms": Array(("coalitions",), "an expert's term of the label", f32, lent=True),
        "rivals": Array(("coalitions",), "that of the next class", f32, lent=True),
        "totals": Array(("coalitions",), "the sum of all", f32, lent=True),
        "chances": Array(("coalitions",), "the probability of the label by the first vote", f32, lent=True),
        "rival_chances": Array(("coalitions",), "that of the next class", f32, lent=True),
        "said": Array(("coalitions",), "what the experts add to the log-odds of the second", f32, lent=True),
        "products": Array(
            ("depths", "slots"), "of coalitions with vectors; by the ends logarithms of kernel values", f32, lent=True
        ),
        "norms": Array(("depths",), "their weighted square norms", f32, lent=True),
        "sums": Array(("depths", "sums"), "their scores, where these are sums over columns", lent=True),
        "alone": Array(("slots",), "the kernel values of a coalition, by the ends of a player alone", f32, lent=True),
        "without": Array(("slots",), "those of all without it", f32, lent=True),
        "kept_scores": Array(("scores",), "its scores, and those by averages", lent=True),
        "against_of": Array(
            ("rows",), "of each event the class that its label is told against, -1 for none", i64, lent=True
        ),
        "told": Array(
            ("rows", "reasons"), "the columns of the players that add most, -1 for several, -2 for none", i64, lent=True
        ),
        "adds": Array(("rows", "reasons"), "what they add", lent=True),
    },
)

walk_at = state_at(WALK)


# Players and coalitions ---------------------------------------------------------------------------------------------


@inlined
def begin(walk, rows, proba, n, calibration):
    """Settle the classes, the players and the coalitions for an event in hand; returns whether there is any use."""
    if n < 2:
        walk.label = -1
        return False
    odds = calibration.odds if is_noise_heard(calibration) else 0.0
    choose_labels(walk, proba, n)
    walk.whole = log_odds(walk, proba, n, odds / (1.0 + odds))
    choose_players(walk, rows)
    if walk.planned == ENDS:
        plan_ends(walk)
    return walk.planned in (ENDS, walk.n_players)


@inlined
def choose_labels(walk, proba, n):
    """The most probable class, and the next."""
    walk.label = best_class(proba, 0, n)
    walk.against = 1 if walk.label == 0 else 0
    for c in range(n):
        if c != walk.label and proba[c] > proba[walk.against]:
            walk.against = c


@inlined
def log_odds(walk, proba, n, noise):
    """Those of the two classes, as they would be if no label were noise, which is such a share of them."""
    less, keep = noise / n, 1.0 - noise
    p = min(max((proba[walk.label] - less) / keep, LEAST), 1.0)
    q = min(max((proba[walk.against] - less) / keep, LEAST), 1.0)
    return math.log(p) - math.log(q)


@inlined
def choose_players(walk, rows):
    """Give each column that has a value to a player of its own, or to that of those that matter least."""
    event_rows, values = in_hand(rows)
    n = 0
    for k in range(1, rows.n_pairs):
        j = event_rows[u(k)] - 1
        walk.players[j] = -1
        if values[u(k)] != 0.0:
            walk.players[j], walk.columns[n] = n, j
            n += 1
    walk.n_players = n if n <= MOST else take_together(walk, n)


@kernel
def take_together(walk, n):
    """Let the most relevant of n players be those with columns of their own; returns how many players there are."""
    players, columns, relevance = walk.players, walk.columns, walk.relevance
    for p in range(MOST):
        best = p
        for k in range(p + 1, n):
            if relevance_of(relevance, columns[k]) > relevance_of(relevance, columns[best]):
                best = k
        columns[p], columns[best] = columns[best], columns[p]
        players[columns[p]] = p
    for k in range(MOST, n):
        players[columns[k]] = MOST
    columns[MOST] = -1
    return MOST + 1


@inlined
def relevance_of(relevance, j):
    """That of a column, 0 where none is known."""
    return relevance[j] if j < relevance.size else 0.0


@inlined
def plan_ends(walk):
    """Each player alone, and all without it."""
    walk.n_steps = 2 * walk.n_players
    for p in range(walk.n_players):
        walk.sources[2 * p], walk.targets[2 * p], walk.moved[2 * p] = 0, 2, p + 1
        walk.sources[2 * p + 1], walk.targets[2 * p + 1], walk.moved[2 * p + 1] = 1, 2, -p - 1


@inlined
def share_ends(walk):
    """What each player adds by the ends."""
    n, found, values = walk.n_players, walk.found, walk.values
    added = size = 0.0
    for p in range(n):
        values[p] = 0.5 * ((found[2 + 2 * p] - found[0]) + (found[1] - found[3 + 2 * p]))
        added += values[p]
        size += abs(values[p])
    lacking = (found[1] - found[0]) - added
    for p in range(n):
        values[p] += lacking * (1.0 / n if n <= 3 or size == 0.0 else abs(values[p]) / size)


@inlined
def tell(walk):
    """Leave the players that add most where answers go, the largest first."""
    told, adds, values, row, n = walk.told, walk.adds, walk.values, walk.row, walk.n_players
    walk.against_of[row] = walk.against
    for r in range(told.shape[1]):
        best = -1
        for p in range(n):
            if values[p] == values[p] and (best < 0 or abs(values[p]) > abs(values[best])):
                best = p
        if best < 0:
            break
        told[row, r], adds[row, r] = walk.columns[best], values[best]
        values[best] = math.nan


# Votes --------------------------------------------------------------------------------------------------------------


@inlined
def keep_expert(walk, at, h, scores, first, n):
    """Keep what the vote needs of the scores of an expert for a coalition."""
    beta, a, b = walk.betas[h], walk.label, walk.against
    h, at, others = u(h), u(at), 0.0
    top = max(scores[first + a], scores[first + b])
    if n > 2:
        top = scores[first + best_class(scores, first, n)]
        for c in range(n):
            if c not in (a, b):
                others += float(exp32(f32(beta * (scores[first + c] - top))))
    walk.of_label[h, at] = f32(beta * (scores[first + a] - top))
    walk.of_against[h, at] = f32(beta * (scores[first + b] - top))
    walk.of_others[h, at] = f32(others)


@inlined
def keep_same(walk, source, at, first, n):
    """Keep of n experts for a coalition what was kept for another."""
    source, at = u(source), u(at)
    for h in range(first, first + n):
        walk.of_label[u(h), at], walk.of_against[u(h), at] = walk.of_label[u(h), source], walk.of_against[u(h), source]
        walk.of_others[u(h), at] = walk.of_others[u(h), source]


@inlined
def find_odds(walk):
    """The log-odds of all coalitions, by the experts' votes on them; those of all are the event's."""
    n, found, chances, rivals = range(walk.n_steps + 2), walk.found, walk.chances, walk.rival_chances
    least = f32(walk.least)
    for at in n:
        chances[u(at)] = rivals[u(at)] = walk.said[u(at)] = ZERO
    for h in range(walk.betas.size):
        if walk.shares[h] > 0.0 or walk.powers[h] != 0.0:
            add_expert(walk, h)
    for at in n:
        chances[u(at)] = over(larger_of(chances[u(at)], least), larger_of(rivals[u(at)], least))
    for at in n:
        chances[u(at)] = log32(chances[u(at)])
    for at in n:
        odds = bounded(walk.exponent * chances[u(at)], FARTHEST)
        if walk.stacked != 1.0:
            odds = walk.stacked * bounded(odds, FARTHEST_VOTED) + walk.said[u(at)]
        found[u(at)] = odds
    constant = walk.whole - walk.factor * found[1]
    for at in n:
        found[u(at)] = walk.factor * found[u(at)] + constant
    walk.nothing = found[0]


@fused
def over(a, b):
    """a / b of float32, so that loops over it vectorise."""
    return a / b


@inlined
def larger_of(a, b):
    """The larger of two numbers, so that loops over it vectorise."""
    return a if a > b else b


@inlined
def bounded(odds, farthest):
    """Log-odds where no probability is taken for less than a bound makes it."""
    return min(max(odds, -farthest), farthest)


@kernel
def add_expert(walk, h):
    """Add what an expert says of all coalitions to both votes; loops of few arrays each vectorise."""
    n, label, against, others = range(walk.n_steps + 2), walk.of_label[h], walk.of_against[h], walk.of_others[h]
    terms, rivals, totals, said = walk.terms, walk.rivals, walk.totals, walk.said
    share, power, least = f32(walk.shares[h]), f32(walk.powers[h]), f32(LEAST_LOG)
    for at in n:
        terms[u(at)] = exp32(label[u(at)])
    for at in n:
        rivals[u(at)] = exp32(against[u(at)])
    for at in n:
        totals[u(at)] = (terms[u(at)] + rivals[u(at)]) + others[u(at)]
    for at in n:
        walk.chances[u(at)] += share * over(terms[u(at)], totals[u(at)])
    for at in n:
        walk.rival_chances[u(at)] += share * over(rivals[u(at)], totals[u(at)])
    if power == ZERO:
        return
    for at in n:
        totals[u(at)] = log32(totals[u(at)])
    for at in n:
        says = larger_of(label[u(at)] - totals[u(at)], least) - larger_of(against[u(at)] - totals[u(at)], least)
        said[u(at)] += power * says


# Families -----------------------------------------------------------------------------------------------------------


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


@inlined
def walk_sums(weights, walk, rows, values, m, step, n):
    """The n sums over columns of the coalition of a step, -2 for nobody, -1 for all; returns the depth they are at."""
    sums = walk.sums
    if step < 0:
        for f in range(n):
            sums[u(step + 2), u(f)] = values[0] * weights[0, u(f)]
        for k in range(1, m if step == -1 else 1):
            for f in range(n):
                sums[u(1), u(f)] += values[u(k)] * weights[u(rows[u(k)]), u(f)]
        return u(step + 2)
    target, moved = u(walk.targets[step]), walk.moved[step]
    sign, player = (1.0 if moved > 0 else -1.0), abs(moved) - 1
    for f in range(n):
        sums[target, u(f)] = sums[u(walk.sources[step]), u(f)]
    for k in range(1, m):
        j = u(rows[u(k)])
        if walk.players[j - u(1)] == player:
            for f in range(n):
                sums[target, u(f)] += sign * values[u(k)] * weights[j, u(f)]
    return target


def explain_vectors(address, walk_address, first):
    """The scores of a kernel member for all coalitions."""
    walk_vectors(bsgd_at(address), walk_at(walk_address), first, False)


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


# Learners -----------------------------------------------------------------------------------------------------------


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
    walk.least, walk.exponent = LEAST_PROBABILITY, state.inverse_temperature
    walk.stacked = walk.factor = 1.0
    members = state.block.members
    for i in range(members.size):
        for h in range(members[i].first, members[i].first + members[i].n_heads):
            is_awake = members[i].dormant == 0.0
            walk.betas[h] = experts[h].inverse_temperature
            walk.shares[h] = experts[h].weight if is_awake and experts[h].weight > LEAST_VOTE else 0.0
            walk.powers[h] = stack.weights[h] if is_awake and is_heard(stack) else 0.0
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


@inlined
def settle(walk):
    """The log-odds of all coalitions; by the ends also what each player adds, and who adds most."""
    find_odds(walk)
    if walk.planned == ENDS:
        share_ends(walk)
        tell(walk)


@kernel
def explain_rows(state, request, walk):
    """Predict the rows of a request one by one, follow each, then learn it."""
    rows, shared = state.rows, request.shared > 0
    for i in range(request.indptr.size - 1):
        walk.row = i
        hold(rows, request, i, shared)
        best = event(state, nothing_packed(), FOLLOW, 1.0)
        if best < -1:
            return
        request.codes[i] = best
        if best >= 0:
            answer(request, i, best, state.proba, state.n_classes)
        if is_learned(request, i):
            hold(rows, request, i, shared)
            event(state, nothing_packed(), request.labels[i], request.weights[i])


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


ENTRIES = {
    function.__name__: Entry(function, (types.int64,) * 3)
    for function in (
        explain_vectors,
        explain_linear,
        explain_faces,
        explain_machine,
        explain_planes,
        explain_blend,
    )
} | {"explain_rows": Entry(explain_rows, tuple(StateType(state.name) for state in (BLEND, REQUEST, WALK)))}
