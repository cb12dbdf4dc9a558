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

from streamsvm.core.access import state_at
from streamsvm.core.jit import fused, inlined, kernel
from streamsvm.core.losses import LEAST_BY_HEAD, LEAST_BY_VOTE, best_class
from streamsvm.core.math import ZERO, exp32, log32
from streamsvm.core.simd import u
from streamsvm.core.state import Array, Declaration, Number, address, f32, i64
from streamsvm.features.scaler import in_hand
from streamsvm.online.calibration import is_heard as is_noise_heard

# So many features are told apart, the most relevant ones; the others are one player together.
MOST = 64

# No probability is taken for less, nor log-odds for more than it makes them; of a blend's first vote.
LEAST, FARTHEST, FARTHEST_VOTED = 1e-9, -math.log(1e-9), -math.log(LEAST_BY_VOTE)

LEAST_LOG = math.log(LEAST_BY_HEAD)
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
        "wanted": Number("the class to be explained, -1 for the most probable one", i64, start=-1),
        "label": Number("the class that is explained, -1 where there are no two", i64),
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
    """The class that is explained, and the most probable other one."""
    walk.label = walk.wanted if 0 <= walk.wanted < n else best_class(proba, 0, n)
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


@inlined
def settle(walk):
    """The log-odds of all coalitions; by the ends also what each player adds, and who adds most."""
    find_odds(walk)
    if walk.planned == ENDS:
        share_ends(walk)
        tell(walk)
