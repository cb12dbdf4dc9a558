"""The blend: members of several kinds that see the same events, and vote.

An event is scaled once in each way (standardised, and by ranks) and handed over to the members, each with a state of
its own. A member has one or more *heads*, each an expert with scores of its own. Every expert votes with its
probabilities, weighted by exp(VOTE_INVERSE_TEMPERATURE * accuracy - RARE_WEIGHT * rarity * log loss), both decayed by
`expert_decay`. Accuracy says little where most events are of one class: with H the entropy of the classes of late, the
rarity 1 / H - 1 / log(n_classes), 0 where classes are even, lets log loss have a say in shares of H. The vote's
probabilities are raised to the power `inverse_temperature`, learned by their log loss. A second vote is heard where it
is more often right (`stacking`). Then comes what the labels before say (`autocorrelation`), and last what all that is
worth where labels are noisy (`calibration`).

Where the label of an event comes late, experts have learned others in between when it does: what they would answer then
says little of what they answered. So their answers are kept in the memory of an event that waits (`answers`), and by
these they are weighed. Differences between experts are smaller then, and what was best of late has passed by the time
it is known: accuracies are over LATE_WINDOW times as many events, and the second vote, which finds its weights by the
scores of now, is not learned.

What an event looks like to the members follows from the events before it, and what a member learns from it does not
depend on the others, nor on the votes. So rows go through in blocks: all are scaled, then each member runs over the
block, then the votes are taken. A member is called by the address of its `run_member`, whatever its kind.
"""

from __future__ import annotations

import math

from streamsvm.core.access import StateType, address_of, state_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import call_pointer, inlined, kernel
from streamsvm.core.losses import FEW, LEAST_BY_HEAD, LEAST_BY_VOTE, best_class, fast_softmax_terms, scale_terms, sum_of
from streamsvm.core.math import exp32, exp_below, log32, log_of, logs_of, most_loss
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import uint
from streamsvm.core.state import Array, Number, Schema, Substate, address, f32, i64, records
from streamsvm.ensemble.delayed_votes import SEEN, keep_answer, kept_answer
from streamsvm.ensemble.label_autocorrelation import (
    AUTOCORRELATION,
    LAGS,
    add_autocorrelation,
    context,
    has_room,
    is_current,
    learn_autocorrelation,
    learn_remembered,
    likely_at,
    n_others,
    note,
    remember,
    row_key,
    weigh,
)
from streamsvm.ensemble.stacked_vote import STACK, first_logs, forget_stack, is_used, learn_stack, stack
from streamsvm.features.ranks import observe_ranks
from streamsvm.features.scaler import (
    MOST_EVENTS,
    SCALER,
    follow,
    row_at,
    rows_at,
)
from streamsvm.features.statistics import observe
from streamsvm.features.transform import load, load_pairs
from streamsvm.online.batch import BATCH, answer, late_at
from streamsvm.online.calibration import CALIBRATION, allow_for_noise, calibrated, inverse_temperature, learn_noise
from streamsvm.online.minibatch import MINIBATCH, keep_pairs

VOTE_INVERSE_TEMPERATURE = 100.0
# Accuracies begin as if an expert had been wrong on so many events.
VOTE_CAUTION = 30.0
# What log loss has to say beside accuracy where classes are rare, and how far: the entropy of classes is over so many
# labels, is looked at when a block ends, and rarity grows no further.
RARE_WEIGHT, FREQUENCY_DECAY, MOST_RARITY = 10.0, 0.999, 50.0
# So much of an expert's log loss is gone with each label that comes late.
FORGOTTEN = 0.02
# By labels that come late accuracies are over so many times as many events.
LATE_WINDOW = 20.0
# Experts with less than this share of the vote are not heard.
LEAST_VOTE = 1e-4
# The most rows of a block. How even the classes are is measured once for so many events learned.
BLOCK = 32
LEAST_LOG = math.log(LEAST_BY_HEAD)
# Where classes are many, those are voted on that an expert gives so much.
LEAST_NAMED = LEAST_BY_HEAD / 4.0
# What labels are worth where they are noisy is learned from one of so many: predictions do not hang on it.
NOISE_SAMPLE = 2
# Loops over experts go over a multiple of so many: then they are vector instructions, without a remainder.
EXPERTS_AT_ONCE = 16

_SHARE = (0.0, 1.0)

BLEND = Schema(
    "blend",
    {
        "rows": Substate(SCALER, "rows on their way, standardised"),
        "ranks": Substate(
            SCALER, "rows on their way, by ranks; what these are among alone: statistics are those of `rows`"
        ),
        "whole": Substate(BATCH, "what is asked of a single event that has all columns"),
        "listed": Substate(BATCH, "what is asked of one that lists its columns"),
        "block": Substate(MINIBATCH, "the rows that members see"),
        "stack": Substate(STACK, "the second vote"),
        "autocorrelation": Substate(AUTOCORRELATION, "what the labels before say"),
        "calibration": Substate(CALIBRATION, "what probabilities are worth where labels are noisy"),
        "scale": address("`scale_rows`"),
        "vote": address("`vote_on_rows`"),
        "n_classes": Number("classes known", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "is_ranking": Number("whether any member sees ranks", i64),
        "uses_autocorrelation": Number("whether label autocorrelation is learned, and heard", i64),
        "cached": Number(
            "1 + the length of the event last predicted, whose scores are at hand, 0 where they are not; "
            "negative where it lists its columns",
            i64,
        ),
        "expert_decay": Number("of the experts' accuracies"),
        "n_late": Number(
            "labels learned by which answers were judged that had been kept", i64, saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "inverse_temperature": inverse_temperature("the exponent of the vote's probabilities"),
        "rare_weight": Number("what log loss has to say by it", start=RARE_WEIGHT),
        "rarity": Number("how far classes are from even", saved=True, bounds=(0.0, MOST_RARITY)),
        "experts": records(
            ("experts",),
            "the heads of all members",
            accuracy=Number("the decayed accuracy", saved=True, bounds=_SHARE),
            loss=Number("the decayed log loss", saved=True, bounds=(0.0, most_loss(LEAST_BY_HEAD))),
            weight=Number("the expert weight: its share of the vote", saved=True, bounds=_SHARE),
            inverse_temperature=Number("how many f its probabilities are the softmax of"),
            best=Number("the class it finds likeliest for the event in hand", i64),
            total=Number("the sum of the terms of its softmax"),
        ),
        "frequencies": Array(
            ("classes",), "how often each class came, decayed; of few classes", saved=True, bounds=(0.0, MOST_EVENTS)
        ),
        "last": Array(("columns",), "the values of the event last predicted"),
        "last_columns": Array(("columns",), "the columns it listed", i64),
        "proba": Array(("classes",), "the probability of each class"),
        "n_softened": Number("of so many classes the terms of the rows of the block are there, 0 for none", i64),
        "bests": Array(("block", "experts"), "the classes that experts find likeliest for the rows of the block", i64),
        "terms": Array(
            ("block", "lanes*few"),
            "of few classes, one expert after another: beta times how far scores are below the best",
            f32,
        ),
        "powers": Array(("block", "lanes*few"), "exp of these", f32),
        "totals": Array(("block", "lanes"), "their sums", f32, start=1.0),
        "total_logs": Array(("block", "lanes"), "the logarithms of these", f32),
        "place": Array(("classes",), "where each class is among those named, -1 for nowhere", i64, start=-1),
        "votes": Array(("classes",), "their probabilities, and that of all others together"),
    },
)


blend_at, block_at, batch_at = state_at(BLEND), state_at(MINIBATCH), state_at(BATCH)


@inlined
def padded(n):
    """n, rounded up to a multiple of EXPERTS_AT_ONCE."""
    return (n + EXPERTS_AT_ONCE - 1) // EXPERTS_AT_ONCE * EXPERTS_AT_ONCE


# Rows -------------------------------------------------------------------------------------------------------------


@kernel
def load_event(state, block, values, columns, k, at):
    """Make a row the k-th of the block, its pairs from `at` on; returns 0, or -1 - i where entry i cannot be used."""
    rows = state.rows
    m = load(rows, values, columns)
    if m < 0:
        return m
    row = block.rows[k]
    row.start, row.n_pairs, row.in_order, row.key = at, m, rows.in_order, 0.0
    keep_pairs(block, 0, at, rows, m)
    if state.is_ranking:
        ranks = state.ranks
        m = load_pairs(ranks, rows, values, columns)
        row.n_ranked = m
        keep_pairs(block, 1, at, ranks, m)
    if state.uses_autocorrelation:
        row.key = row_key(values, columns, rows.present)
    return 0


@kernel
def is_cached(state, row, columns, n, shared):
    """Whether a row of n values is the one predicted last, and nothing has happened since: its scores are there."""
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
    """Keep a row whose scores have been computed: the event predicted is most often the one learned next."""
    last, last_columns = state.last, state.last_columns
    for j in range(n):
        last[j] = row[j]
    if not shared:
        for j in range(n):
            last_columns[j] = columns[j]
    state.cached = n + 1 if shared else -n - 1


@kernel
def observe_event(state, values, columns):
    """Take a learned row into the statistics."""
    if state.is_ranking:
        observe_ranks(state.ranks, state.rows, values, columns)
    observe(state.rows, values, columns)


# Votes ------------------------------------------------------------------------------------------------------------


@kernel
def find_proba(state, block, k):
    """The probabilities of all classes, from the members' scores for row k of the block."""
    n, proba = state.n_classes, state.proba
    if n == 0:
        return
    if n > FEW:
        name_classes(state, block, k)
        vote_on_named(state, block, k)
        proba = state.votes
    else:
        vote_on_all(state, block, k)
    settle_votes(state, n_voted(state), proba)
    if n > FEW:
        spread_votes(state)


@inlined
def vote_on_all(state, block, k):
    """The first vote, where classes are few: the softmax of each expert's scores, times its weight.

    The logarithms of its probabilities go where `stack` finds them.
    """
    n, proba, experts, logs = state.n_classes, state.proba, state.experts, state.stack.logs
    if state.n_softened != n:
        soften(state, block, k)
    terms, powers, totals, total_logs = state.terms[k], state.powers[k], state.totals[k], state.total_logs[k]
    for c in range(n):
        proba[c] = 0.0
    for h in range(experts.size):
        experts[h].best = state.bests[k, h]
        weight, less = experts[h].weight, total_logs[uint(h)]
        share = weight / totals[uint(h)] if weight > LEAST_VOTE else 0.0
        for c in range(n):
            proba[c] += share * powers[uint(h * n + c)]
            logs[h, c] = max(float(terms[uint(h * n + c)] - less), LEAST_LOG)


@inlined
def soften(state, block, first):
    """The terms of all experts' softmax, and their sums, for the rows of the block from one on.

    All rows at a time: there is nothing they would wait for, and the loops over experts vectorise.
    """
    n, n_experts, rows = state.n_classes, state.experts.size, range(first, block.n_rows)
    terms, powers, totals, total_logs = state.terms, state.powers, state.totals, state.total_logs
    state.n_softened = n
    for k in rows:
        find_terms(state, block, k)
    for k in rows:
        for j in range(padded(n_experts * n)):
            powers[uint(k), uint(j)] = exp32(terms[uint(k), uint(j)])
    for k in rows:
        for h in range(n_experts):
            total = f32(0.0)
            for c in range(n):
                total += powers[uint(k), uint(h * n + c)]
            totals[uint(k), uint(h)] = total
    for k in rows:
        for h in range(padded(n_experts)):
            total_logs[uint(k), uint(h)] = log32(totals[uint(k), uint(h)])


@inlined
def find_terms(state, block, k):
    """The classes that experts find likeliest for row k, and beta times how far the scores of all are below."""
    n, capacity, experts, scores = state.n_classes, state.proba.size, state.experts, block.scores[k]
    terms, bests = state.terms[k], state.bests[k]
    for h in range(experts.size):
        at, beta = h * capacity, experts[h].inverse_temperature
        bests[uint(h)] = best_class(scores, at, n)
        top = scores[at + bests[uint(h)]]
        for c in range(n):
            terms[uint(h * n + c)] = f32(beta * (scores[at + c] - top))


@inlined
def settle_votes(state, n, proba):
    """The probabilities of the n classes voted on, by all that follows the first vote."""
    others = n_others(state.autocorrelation, n)
    sharpen_votes(state, n, others, proba)
    if n < 2:
        return
    state.stack.others = others
    stack(state.stack, n, proba)
    if state.uses_autocorrelation:
        take_logs(state, n, others, proba)
        add_autocorrelation(state.autocorrelation, n, proba)
    allow_for_noise(state.calibration, n, others, proba)


@inlined
def take_logs(state, n, others, proba):
    """Hand on the logarithms of the probabilities: those of the first vote are at hand."""
    logs, first = state.autocorrelation.logs, first_logs(state.stack)
    if is_used(state.stack):
        logs_of(proba, n, others, LEAST_BY_VOTE, logs)
        return
    for c in range(n):
        logs[c] = first[c]


@inlined
def sharpen_votes(state, n, others, proba):
    """The probabilities of the first vote to the power of the inverse temperature."""
    total, beta = 0.0, state.inverse_temperature
    proba[n - 1] /= others
    for c in range(n):
        proba[c] = exp_below(beta * log_of(min(max(proba[c], LEAST_BY_VOTE), 1.0)))
        if c == n - 1:
            proba[c] *= others
        total += proba[c]
    scale_terms(proba, 0, n, 1.0 / total)


# Many classes -----------------------------------------------------------------------------------------------------
#
# Where classes are many, those are named that an expert, or the labels before, find likely; all others are voted on
# together, as if they were equally likely: the last of the classes voted on stands for them. Its probability is that of
# all together, its logarithm that of one. What an event costs then follows from the classes that matter for it.


@inlined
def n_voted(state):
    """How many classes are voted on, all that are not named counted as one."""
    named = state.autocorrelation.n_named
    return min(named + 1, state.n_classes) if named > 0 else state.n_classes


@inlined
def place_of(state, label):
    """Where a class is among those voted on."""
    if state.autocorrelation.n_named == 0 or label >= state.n_classes:
        return label
    return state.place[label] if state.place[label] >= 0 else state.autocorrelation.n_named


@inlined
def best_named(state):
    """The likeliest class, -1 where there is none."""
    labels = state.autocorrelation
    if labels.n_named > 0:
        return labels.named[best_class(state.votes, 0, labels.n_named)]
    return best_class(state.proba, 0, state.n_classes) if state.n_classes > 0 else -1


@inlined
def name_class(state, c):
    """Let a class be voted on by name."""
    labels = state.autocorrelation
    if state.place[uint(c)] < 0:
        state.place[uint(c)] = labels.n_named
        labels.named[labels.n_named] = c
        labels.n_named += 1


@kernel
def name_classes(state, block, k):
    """Choose the classes that are voted on by name for row k; the first vote on all is left in `proba`."""
    n, place, logs, proba = state.n_classes, state.place, state.stack.logs, state.proba
    for c in range(n):
        proba[uint(c)] = 0.0
    labels = state.autocorrelation
    for i in range(labels.n_named):
        place[labels.named[i]] = -1
    labels.n_named, labels.n_classes = 0, n
    capacity, scores = state.proba.size, block.scores[k]
    for h in range(state.experts.size):
        expert = state.experts[h]
        expert.best = best_class(scores, h * capacity, n)
        terms = logs[h]
        expert.total = fast_softmax_terms(scores, h * capacity, n, expert.inverse_temperature, terms, 0)
        name_class(state, expert.best)
        share, least = expert.weight / expert.total, LEAST_NAMED * expert.total
        for c in range(n):
            proba[uint(c)] += share * terms[uint(c)]
        for c in range(n):
            if terms[uint(c)] >= least:
                name_class(state, c)
    for lag in range(1, LAGS + 1 if state.uses_autocorrelation else 1):
        row = context(labels.recent, lag)
        least = likely_at(labels, row, n)
        for c in range(n):
            if labels.counts[uint(row), uint(c)] >= least:
                name_class(state, c)


@kernel
def vote_on_named(state, block, k):
    """The first vote, on the classes that are named and, the last, all others together."""
    labels, n, votes = state.autocorrelation, n_voted(state), state.votes
    m, named, others = labels.n_named, labels.named, n_others(labels, n)
    capacity, scores, logs = state.proba.size, block.scores[k], state.stack.logs
    for c in range(n):
        votes[c] = 0.0
    for h in range(state.experts.size):
        expert, at, rest = state.experts[h], h * capacity, 1.0
        weight, beta, top = expert.weight, expert.inverse_temperature, scores[h * capacity + expert.best]
        less = log_of(expert.total)
        for c in range(m):
            log = beta * (scores[at + named[c]] - top) - less
            p = exp_below(log)
            rest -= p
            votes[c] += weight * p
            logs[h, c] = max(log, LEAST_LOG)
        if m < n:
            rest = max(rest, 0.0)
            votes[m] += weight * rest
            logs[h, m] = log_of(max(rest / others, LEAST_BY_HEAD))


@kernel
def spread_votes(state):
    """Probabilities of all classes: those that are not named share as in the first vote."""
    m, n, proba, votes = state.autocorrelation.n_named, state.n_classes, state.proba, state.votes
    for i in range(m):
        proba[state.autocorrelation.named[i]] = 0.0
    others = sum_of(proba, 0, n)
    share = votes[m] / others if m < n and others > 0.0 else 0.0
    for c in range(n):
        proba[uint(c)] *= share
    for i in range(m):
        proba[state.autocorrelation.named[i]] = votes[i]


# Learning ---------------------------------------------------------------------------------------------------------


@kernel
def count(state, block, batch, label, k):
    """Take how well row k of the block was predicted into votes, temperature, and label autocorrelation."""
    n, row, late = state.n_classes, block.rows[k], late_at(batch, block.first + k)
    voted, place = n_voted(state), place_of(state, label)
    if n >= 2:
        count_votes(state, block, batch, label, k, place)
        follow_classes(state, label, row.seen)
        if label < n:
            plain, logs = state.stack.plain, first_logs(state.stack)
            state.inverse_temperature = calibrated(state.inverse_temperature, logs, plain, voted, place)
            if int(row.seen) % NOISE_SAMPLE == 0:
                learn_noise(state.calibration, voted, place, state.votes if n > FEW else state.proba)
            if row.late > 0:
                forget_stack(state.stack)
            else:
                learn_stack(state.stack, voted, place)
    if state.uses_autocorrelation:
        if late >= 0:
            learn_remembered(state.autocorrelation, batch.memories[late], row.key, voted, label, place)
        else:
            learn_autocorrelation(state.autocorrelation, row.key, voted, label, place)
    state.n_classes = max(n, label + 1)


@kernel
def count_votes(state, block, batch, label, k, place):
    """Take the predictions of all experts for row k into their accuracies and log losses, and weigh them anew.

    An expert that was not asked when an event was predicted that comes late is judged by its answer of now.
    """
    n, experts, row = state.n_classes, state.experts, block.rows[k]
    is_late, late = row.late > 0, late_at(batch, block.first + k)
    if is_late:
        judge_kept(state, batch.memories[late], label)
    # At first accuracies are means, a little below what they will be.
    rate = max(1.0 - state.expert_decay, 1.0 / (row.seen + VOTE_CAUTION))
    logs, top = state.stack.logs, -math.inf
    for h in range(experts.size):
        if not is_late or kept_answer(batch.memories[late], h) < 0:
            right = 1.0 if experts[h].best == label else 0.0
            experts[h].accuracy += rate * (right - experts[h].accuracy)
        if is_late:
            experts[h].loss -= FORGOTTEN * experts[h].loss
        elif label < n:
            experts[h].loss -= rate * (logs[h, place] + experts[h].loss)
        top = max(top, merit(state, h))
    total = 0.0
    for h in range(experts.size):
        experts[h].weight = exp_below(merit(state, h) - top)
        total += experts[h].weight
    share = 1.0 / total
    for h in range(experts.size):
        experts[h].weight *= share


@inlined
def merit(state, h):
    """The logarithm of what an expert's vote weighs, but for a constant."""
    expert = state.experts[h]
    return VOTE_INVERSE_TEMPERATURE * expert.accuracy - state.rare_weight * state.rarity * expert.loss


@kernel
def follow_classes(state, label, seen):
    """Take a label into how often classes come; when a block ends, see how far from even that is."""
    n, frequencies = max(state.n_classes, label + 1), state.frequencies
    if n > FEW:
        state.rarity = 0.0
        return
    total = entropy = 0.0
    for c in range(n):
        frequencies[c] *= FREQUENCY_DECAY
        total += frequencies[c]
    frequencies[label] += 1.0
    if int(seen) % BLOCK != 0 or n < 2:
        return
    for c in range(n):
        share = frequencies[c] / (total + 1.0)
        entropy -= share * math.log(share) if share > 0.0 else 0.0
    even = 1.0 / math.log(n)
    state.rarity = min(1.0 / entropy - even, MOST_RARITY) if entropy > 1.0 / (MOST_RARITY + even) else MOST_RARITY
    state.rarity = max(state.rarity, 0.0)


@kernel
def judge_kept(state, memory, label):
    """Take what experts had answered when an event was predicted into their accuracies."""
    experts, asked = state.experts, 0
    # Begun anew: what they would have answered when labels came says little.
    rate = max((1.0 - state.expert_decay) / LATE_WINDOW, 1.0 / (state.n_late + VOTE_CAUTION))
    for h in range(experts.size):
        answer = kept_answer(memory, h)
        if answer >= 0:
            right, asked = 1.0 if answer == label else 0.0, 1
            experts[h].accuracy += rate * (right - experts[h].accuracy)
    state.n_late += asked


# Blocks -----------------------------------------------------------------------------------------------------------


@inlined
def add_row(state, block, batch, i, k, at):
    """Make row i of a batch the k-th of a block, its pairs from `at` on, and take it into the statistics if learned.

    Returns 0, or -1 - j where entry j of the row cannot be used.
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
        observe_event(state, values, columns)
    row.late = follow_memory(row, batch.memories[late]) if late >= 0 else 0
    return 0


@inlined
def follow_memory(row, memory):
    """Whether other events have been learned since a row was predicted, of which its memory has note."""
    if row.label < 0:
        memory[SEEN] = int(row.seen)
    return int(row.label >= 0 and row.seen > memory[SEEN])


@inlined
def scale_block(state, block, batch):
    """Scale rows from `block.first` on, each with the statistics of those learned before it, as far as a block goes.

    Returns the number of its rows, or -1 - i if entry i of the first cannot be used.
    """
    first, indptr = block.first, batch.indptr
    capacity, at, n_block = block.scaled.shape[1], 0, 0
    for i in range(first, min(first + block.rows.size, indptr.size - 1)):
        n_pairs = indptr[i + 1] - indptr[i] + 1
        if at + n_pairs > capacity:
            break
        bad = add_row(state, block, batch, i, n_block, at)
        if bad < 0:
            return bad if n_block == 0 else n_block
        n_block += 1
        at += n_pairs
    return n_block


def scale_rows(address, block_address, request_address):
    """`scale_block`, compiled separately; it leaves the number of rows in `block.n_rows`."""
    block = block_at(block_address)
    block.n_rows = scale_block(blend_at(address), block, batch_at(request_address))


@inlined
def call_member(block, i, cached):
    """Let a member score the rows of a block, and learn those with a label; it may have its scores `at_hand`."""
    member = block.members[i]
    call_pointer(member.run, (member.state, address_of(block), i, int(cached)))


@kernel
def remember_votes(state, memory):
    """Leave what is known now in the memory of an event that waits, and what experts answer."""
    if state.uses_autocorrelation:
        remember(state.autocorrelation, memory)
    for h in range(state.experts.size if state.n_classes > 0 else 0):
        keep_answer(memory, h, state.experts[h].best)


@inlined
def lift_weight(state, batch, row, late):
    """How much label autocorrelation weighs for a row."""
    if not state.uses_autocorrelation or (row.label >= 0 and batch.predicting == 0):
        return 1.0
    if batch.unordered > 0:
        return 0.0
    if late >= 0:
        return 1.0 if row.label >= 0 or is_current(state.autocorrelation) else 0.0
    return weigh(state.autocorrelation, row.key, state.n_classes)


@inlined
def vote_on(state, block, batch, k, cached):
    """Predict row k of a block from the scores of all members; returns the class."""
    row, i = block.rows[k], block.first + k
    late = late_at(batch, i)
    if not cached:
        state.autocorrelation.weight = lift_weight(state, batch, row, late)
        find_proba(state, block, k)
    if late >= 0 and row.label < 0:
        remember_votes(state, batch.memories[late])
    elif late < 0 and state.uses_autocorrelation and batch.predicting > 0:
        note(state.autocorrelation, row.key)
    return best_named(state)


@inlined
def vote_on_block(state, block, batch):
    """Predict the rows of a block, say so where that is asked for, and count how well it went."""
    cached = batch.cached > 0
    state.n_softened = 0
    for k in range(block.n_rows):
        label, i = block.rows[k].label, block.first + k
        best = vote_on(state, block, batch, k, cached)
        if batch.answering > 0:
            batch.codes[i] = best
            if best >= 0:
                answer(batch, i, best, state.proba, state.n_classes)
        if batch.following > 0:
            follow(state.rows, label, i)
        if label >= 0:
            if state.autocorrelation.weight < 1.0:  # what is learned does not depend on how many were predicted before
                state.autocorrelation.weight = 1.0
                find_proba(state, block, k)
            count(state, block, batch, label, k)


def vote_on_rows(address, block_address, request_address):
    """`vote_on_block`, compiled separately."""
    vote_on_block(blend_at(address), block_at(block_address), batch_at(request_address))


# Entry points -----------------------------------------------------------------------------------------------------


def drive(address, values_address, columns_address, n, shared):
    """Predict or learn a single event, as a batch of one row; compiled separately, see `driver`."""
    rows = rows_at(address)
    state = blend_at(rows.learner)
    predicting = rows.asked < 0
    if predicting and state.uses_autocorrelation and not has_room(state.autocorrelation):
        rows.best = -2  # memory has to grow before another prediction is noted
        return
    batch, block, row = state.whole if shared else state.listed, state.block, rows.row
    columns = rows.all_rows if shared else rows.row_columns
    cached = is_cached(state, row, columns, n, shared)
    state.cached = 0
    batch.shared, batch.cached = shared, int(cached)
    batch.predicting, batch.answering = int(predicting), int(rows.label < 0)
    batch.following = rows.following
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
    """Predict and learn rows, a block after the other; returns how many were done, all but for one of no use."""
    block, n_rows = state.block, batch.indptr.size - 1
    addresses = address_of(state), address_of(block), address_of(batch)
    state.cached = block.first = 0
    while block.first < n_rows:
        call_pointer(state.scale, addresses)
        if block.n_rows < 0:
            return block.first
        for i in range(block.members.size):
            call_member(block, i, False)
        call_pointer(state.vote, addresses)
        block.first += block.n_rows
    return n_rows


_STATE = StateType(BLEND.name)

ENTRY_POINTS = {
    "drive": EntryPoint(drive, (INTEGER,) * 5),
    "run_rows": EntryPoint(run_rows, (_STATE, StateType(BATCH.name))),
    "scale_rows": EntryPoint(scale_rows, (INTEGER,) * 3),
    "vote_on_rows": EntryPoint(vote_on_rows, (INTEGER,) * 3),
}
CODE = {"drive": ENTRY_POINTS["drive"]}
