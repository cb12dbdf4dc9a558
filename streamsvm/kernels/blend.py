"""The blend: kernel, linear and polytope members that see the same events, and vote.

All live in one arena. The layout is a row of layouts of LENGTH numbers each, all with offsets into the whole arena: the
blend's own, whose statistics standardise; one whose statistics rank; then one for each member. An event is scaled once
in each way and handed over to the members, whose own statistics stay empty.

A member has one or more *heads*, each with scores of its own. Every head votes with its probabilities, weighted by
exp(VOTE_SHARPNESS * accuracy), the accuracy decayed by PARAMS[VOTE_DECAY]. The vote's probabilities are raised to the
power PARAMS[POWER], learned by their log loss. A second vote is heard where it is more often right
(`streamsvm.kernels.stack`). Last comes what the order of labels says (`streamsvm.kernels.order`).

A member far less accurate than the best sleeps: it does not vote, and learns from one event in NAP_SAMPLE. It wakes
when it has come nearer, or when the blend is wrong more often than it was.

Kernel members see as many columns as there is room for in their dictionaries, the first ones.

Behind the sections of every learner stand MEMBER_FIELDS numbers a member, VOTER_FIELDS numbers a head, the single event
last predicted, what `order` keeps (its counts and notes empty where labels have no say), the naps, what `stack` keeps,
and the memory of the other layouts. A linear member's own are weights in rows of all classes of all
heads for each weight row, the steps of the heads, scores, and updates.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.kernels import budgeted, inlined, kernel, polytope
from streamsvm.kernels.order import add_order, learn_order, note, row_key
from streamsvm.kernels.polytope import add_faces, dot_faces
from streamsvm.kernels.rows import (
    COUNT_AT,
    N_CLASSES,
    PARAMS,
    PRESENT,
    PROBA,
    ROW,
    ROW_LENGTH,
    ROWS_AT,
    SCALED,
    SEEN,
    WORK,
    borrow,
    in_hand,
    load,
    observe,
    section,
    statistic,
    u,
)
from streamsvm.kernels.stack import LEAST, first_vote, learn_stack, stack

# Counters behind those of every learner: the length of one layout, whether any member sees ranks, the members, and 1 +
# the length of the event in section LAST, whose scores are at hand, 0 where they are not.
LENGTH, RANKED, N_MEMBERS, AT_HAND = 12, 13, 14, 15
# Where the layout that ranks is, and the first member's.
RANKS_PART, FIRST_PART = 1, 2

# Sections and parameters behind those of every learner.
MEMBERS, VOTERS, LAST, ORDER, COUNTS, NOTES, SCRATCH, NAPS, STACK, INPUTS, MEMORY = range(7, 18)
# The decay of accuracies; the power; the seed; the share of right predictions of late, and over longer.
VOTE_DECAY, POWER, SEED, RIGHT_NOW, RIGHT_LONG, N_PARAMS = range(3, 9)

# Numbers of a member: its kind, whether it sees ranks, its first head and how many, the pairs of the event in hand, and
# whether it takes part in this event.
KIND, ON_RANKS, FIRST, HEADS, PAIRS, PRESENT_NOW, MEMBER_FIELDS = range(7)
# More of them, which change: whether it sleeps, and how many events must have been learned before it may.
ASLEEP, RESTLESS, NAP_FIELDS = range(3)
# Numbers of a head: the decayed accuracy, the share of the vote, and how many f its probabilities are the softmax of.
ACCURACY, VOTE, SHARPNESS, VOTER_FIELDS = range(4)

# Kinds of members.
KERNEL, POLYTOPE, LINEAR = 0, 1, 2

# Sections of a linear member behind those of every learner.
WEIGHTS, RATES, SCORES, UPDATE = range(7, 11)

VOTE_SHARPNESS = 100.0
# Accuracies begin as if a head had been wrong on so many events.
VOTE_CAUTION = 30.0
# Heads with less than this share of the vote are not heard.
LEAST_VOTE = 1e-4
# A member falls asleep when its best head is less accurate than the best of all by the first gap, and wakes when by
# less than the second. This is looked at every so many events, not among the first, nor soon after a drift woke it.
SLEEPY_GAP, WAKING_GAP, NAP_CHECK, AWAKE_LEAST = 0.10, 0.08, 256, 1024
# A sleeper learns from one event in so many, and its accuracies move by so many times more.
NAP_SAMPLE, NAP_RATE = 8, 3.0
# There is drift where the accuracy of late is below the longer one by so many standard deviations.
NOW_RATE, LONG_RATE, DRIFT = 1.0 / 64.0, 1.0 / 1024.0, 3.5
LEAST_LOG = math.log(LEAST)
# No probability is taken for less than this.
LEAST_PROBABILITY = 1e-6
# The step of the power of the probabilities, and how far it goes.
POWER_RATE, LEAST_POWER, MOST_POWER, MOST_SURPRISE = 0.01, 0.1, 10.0, 5.0


@inlined
def part(layout, i):
    """The i-th layout."""
    n = layout[LENGTH]
    return layout[i * n : (i + 1) * n]


# Members ----------------------------------------------------------------------------------------------------------


@kernel
def load_event(arena, layout, values, columns, start, end, shared):
    """Make a row the event in hand, also as ranks; returns 0, or -1 - i where entry i cannot be used."""
    m = load(arena, layout, values, columns, start, end, shared)
    if m < 0:
        return m
    ranks, n_ranked = part(layout, RANKS_PART), m
    if layout[RANKED] > 0:
        n_ranked = load(arena, ranks, values, columns, start, end, shared)
    members = section(arena, layout, MEMBERS)
    for i in range(layout[N_MEMBERS]):
        base, own = i * MEMBER_FIELDS, part(layout, FIRST_PART + i)
        giver, n = (ranks, n_ranked) if members[base + ON_RANKS] > 0.0 else (layout, m)
        members[base + PAIRS] = within(arena, giver, n, section(arena, own, SCALED).size)
    return 0


@inlined
def within(arena, giver, m, n_rows):
    """How many of the m pairs of an event are of the first n_rows weight rows."""
    if m > n_rows or giver[ROWS_AT] == WORK:
        rows, _ = in_hand(arena, giver)
        while m > 0 and rows[m - 1] >= n_rows:
            m -= 1
    return m


@inlined
def hand_over(arena, giver, taker, m):
    """Copy an event of m pairs from one layout to another."""
    rows, scaled = in_hand(arena, giver)
    taken = section(arena, taker, SCALED)
    for i in range(m):
        taken[u(i)] = scaled[u(i)]
    if giver[ROWS_AT] == giver[COUNT_AT]:
        taker[ROWS_AT] = taker[COUNT_AT]
    else:
        taker[ROWS_AT] = WORK
        for i in range(m):
            taker[u(WORK + i)] = rows[u(i)]


@kernel
def is_at_hand(arena, layout, row, n):
    """Whether a row of n values is the one predicted last, and nothing has happened since: its scores are there."""
    if layout[AT_HAND] != n + 1:
        return False
    last, same = section(arena, layout, LAST), True
    for j in range(n):
        same &= row[j] == last[j] or (math.isnan(row[j]) and math.isnan(last[j]))
    return same


@kernel
def keep_at_hand(arena, layout, row, n):
    """Keep a row whose scores have been computed: the event predicted is most often the one learned next."""
    last = section(arena, layout, LAST)
    for j in range(n):
        last[j] = row[j]
    layout[AT_HAND] = n + 1


@kernel
def evaluate(arena, layout, i):
    """The scores of all heads of member i for the event in hand."""
    base, own = i * MEMBER_FIELDS, part(layout, FIRST_PART + i)
    members = section(arena, layout, MEMBERS)
    kind, m = members[base + KIND], int(members[base + PAIRS])
    hand_over(arena, part(layout, RANKS_PART) if members[base + ON_RANKS] > 0.0 else part(layout, 0), own, m)
    if kind == KERNEL:
        budgeted.evaluate(arena, own, m, False)
        return
    rows, scaled = in_hand(arena, own)
    if kind == POLYTOPE:
        polytope.predict(arena, own, rows, scaled, m)
    else:
        scores = section(arena, own, SCORES)
        dot_faces(section(arena, own, WEIGHTS), scores.size, scores.size, rows, scaled, m, scores)


@inlined
def scores_of(arena, own, kind):
    """The scores of a member, those of one head after those of another."""
    if kind == KERNEL:
        return section(arena, own, budgeted.SCORES)
    if kind == POLYTOPE:
        return section(arena, own, polytope.F)
    return section(arena, own, SCORES)


@inlined
def best_class(scores, at, n):
    """The class with the largest score, the first of equals."""
    best = 0
    for c in range(1, n):
        if scores[at + c] > scores[at + best]:
            best = c
    return best


@kernel
def spread(arena, layout):
    """The probabilities of all classes, from the scores of members that are awake."""
    n, proba = layout[N_CLASSES], section(arena, layout, PROBA)
    members, voters = section(arena, layout, MEMBERS), section(arena, layout, VOTERS)
    for c in range(n):
        proba[c] = 0.0
    stacking, inputs = section(arena, layout, STACK), section(arena, layout, INPUTS)
    class_room = proba.size
    for i in range(layout[N_MEMBERS]):
        base, own = i * MEMBER_FIELDS, part(layout, FIRST_PART + i)
        scores, n_heads = scores_of(arena, own, members[base + KIND]), int(members[base + HEADS])
        room, is_present = scores.size // n_heads, members[base + PRESENT_NOW] > 0.0
        for h in range(n_heads):
            head = int(members[base + FIRST]) + h
            voter, at = head * VOTER_FIELDS, head * class_room
            if is_present:
                add_vote(scores, h * room, n, voters[voter + SHARPNESS], voters[voter + VOTE], proba, inputs, at)
            else:
                for c in range(n):
                    inputs[at + c] = 0.0
    total, power = 0.0, section(arena, layout, PARAMS)[POWER]
    for c in range(n):
        proba[c] = math.exp(power * math.log(max(proba[c], LEAST_PROBABILITY)))
        total += proba[c]
    for c in range(n):
        proba[c] /= total
    if n < 2:
        return
    stack(stacking, inputs, n, proba)
    counts, scratch = section(arena, layout, COUNTS), section(arena, layout, SCRATCH)
    if counts.size > 0:
        for c in range(n):
            scratch[c] = proba[c]
        add_order(counts, section(arena, layout, ORDER), scratch, n, proba)


@inlined
def add_vote(scores, at, n, sharpness, vote, proba, logs, to):
    """Add the softmax of a head's scores, times its vote; its logarithms go where `stack` finds them."""
    top, total = scores[at + best_class(scores, at, n)], 0.0
    for c in range(n):
        logs[to + c] = sharpness * (scores[at + c] - top)
        total += math.exp(logs[to + c])
    if vote > LEAST_VOTE:
        for c in range(n):
            proba[c] += vote * math.exp(logs[to + c]) / total
    less = math.log(total)
    for c in range(n):
        logs[to + c] = max(logs[to + c] - less, LEAST_LOG)


# Learning ---------------------------------------------------------------------------------------------------------


@kernel
def count(arena, layout, label, key):
    """Take how well the event in hand was predicted into the votes, the power, and what is known of the order."""
    n, counts, scratch = layout[N_CLASSES], section(arena, layout, COUNTS), section(arena, layout, SCRATCH)
    if n >= 2:
        watch(arena, layout, 1.0 if best_class(section(arena, layout, PROBA), 0, n) == label else 0.0)
        count_votes(arena, layout, label)
        if label < n:
            stacking, inputs = section(arena, layout, STACK), section(arena, layout, INPUTS)
            temper(section(arena, layout, PARAMS), first_vote(stacking, inputs), n, label)
            learn_stack(stacking, inputs, n, label)
    if counts.size > 0:
        learn_order(counts, section(arena, layout, ORDER), section(arena, layout, NOTES), scratch, key, n, label)
    layout[N_CLASSES] = max(n, label + 1)


@kernel
def count_votes(arena, layout, label):
    """Take the predictions of all heads into their accuracies, and share the vote anew."""
    n, params = layout[N_CLASSES], section(arena, layout, PARAMS)
    # At first accuracies are means, a little below what they will be.
    rate = max(1.0 - params[VOTE_DECAY], 1.0 / (params[SEEN] + VOTE_CAUTION))
    members, voters, naps = (
        section(arena, layout, MEMBERS),
        section(arena, layout, VOTERS),
        section(arena, layout, NAPS),
    )
    top = 0.0
    for i in range(layout[N_MEMBERS]):
        base, own = i * MEMBER_FIELDS, part(layout, FIRST_PART + i)
        scores, n_heads = scores_of(arena, own, members[base + KIND]), int(members[base + HEADS])
        room, is_present = scores.size // n_heads, members[base + PRESENT_NOW] > 0.0
        own_rate = min(NAP_RATE * rate, 1.0) if naps[i * NAP_FIELDS + ASLEEP] > 0.0 else rate
        for h in range(n_heads):
            voter = (int(members[base + FIRST]) + h) * VOTER_FIELDS
            if is_present:
                right = 1.0 if best_class(scores, h * room, n) == label else 0.0
                voters[voter + ACCURACY] += own_rate * (right - voters[voter + ACCURACY])
            top = max(top, voters[voter + ACCURACY])
    total = 0.0
    for voter in range(0, voters.size, VOTER_FIELDS):
        voters[voter + VOTE] = math.exp(VOTE_SHARPNESS * (voters[voter + ACCURACY] - top))
        total += voters[voter + VOTE]
    for voter in range(0, voters.size, VOTER_FIELDS):
        voters[voter + VOTE] /= total


# Sleep ------------------------------------------------------------------------------------------------------------


@kernel
def call_awake(arena, layout):
    """Those members that are awake take part in the event in hand."""
    members, naps = section(arena, layout, MEMBERS), section(arena, layout, NAPS)
    for i in range(layout[N_MEMBERS]):
        members[i * MEMBER_FIELDS + PRESENT_NOW] = 1.0 - naps[i * NAP_FIELDS + ASLEEP]
        if naps[i * NAP_FIELDS + ASLEEP] == 0.0:
            evaluate(arena, layout, i)


@kernel
def call_sleepers(arena, layout):
    """Some of those that sleep take part in learning it."""
    members, naps, params = (
        section(arena, layout, MEMBERS),
        section(arena, layout, NAPS),
        section(arena, layout, PARAMS),
    )
    for i in range(layout[N_MEMBERS]):
        if naps[i * NAP_FIELDS + ASLEEP] > 0.0 and is_drawn(params[SEEN], i, params[SEED]):
            members[i * MEMBER_FIELDS + PRESENT_NOW] = 1.0
            evaluate(arena, layout, i)


@inlined
def is_drawn(seen, i, seed):
    """Whether a sleeper learns from an event: one in NAP_SAMPLE, drawn anew by a hash of the event's number."""
    mixed = (u(seen) + u(i + 1) * u(0x9E3779B97F4A7C15)) ^ (u(seed) * u(0xD1B54A32D192ED03))
    mixed = (mixed ^ (mixed >> u(30))) * u(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> u(27))) * u(0x94D049BB133111EB)
    return (mixed >> u(33)) % u(NAP_SAMPLE) == 0


@kernel
def watch(arena, layout, right):
    """Take whether the blend was right into its accuracies: wake all on drift, else look who may sleep."""
    params, naps = section(arena, layout, PARAMS), section(arena, layout, NAPS)
    seen = params[SEEN]
    params[RIGHT_NOW] += max(NOW_RATE, 1.0 / (seen + 1.0)) * (right - params[RIGHT_NOW])
    params[RIGHT_LONG] += max(LONG_RATE, 1.0 / (seen + 1.0)) * (right - params[RIGHT_LONG])
    spread = params[RIGHT_LONG] * (1.0 - params[RIGHT_LONG]) * NOW_RATE / (2.0 - NOW_RATE)
    if params[RIGHT_NOW] < params[RIGHT_LONG] - DRIFT * math.sqrt(spread):
        for i in range(layout[N_MEMBERS]):
            if naps[i * NAP_FIELDS + ASLEEP] > 0.0:
                naps[i * NAP_FIELDS + ASLEEP] = 0.0
                naps[i * NAP_FIELDS + RESTLESS] = seen + AWAKE_LEAST
    elif seen >= AWAKE_LEAST and int(seen) % NAP_CHECK == 0:
        look_after(arena, layout, seen)


@kernel
def look_after(arena, layout, seen):
    """Let members sleep that are far behind, and wake those that are not."""
    naps, voters, best = section(arena, layout, NAPS), section(arena, layout, VOTERS), 0.0
    for voter in range(0, voters.size, VOTER_FIELDS):
        best = max(best, voters[voter + ACCURACY])
    for i in range(layout[N_MEMBERS]):
        behind = best - best_accuracy(arena, layout, i)
        if behind < WAKING_GAP:
            naps[i * NAP_FIELDS + ASLEEP] = 0.0
        elif behind > SLEEPY_GAP and seen >= naps[i * NAP_FIELDS + RESTLESS]:
            naps[i * NAP_FIELDS + ASLEEP] = 1.0


@inlined
def best_accuracy(arena, layout, i):
    """The accuracy of the best head of member i."""
    members, voters, best = section(arena, layout, MEMBERS), section(arena, layout, VOTERS), 0.0
    for h in range(int(members[i * MEMBER_FIELDS + HEADS])):
        best = max(best, voters[(int(members[i * MEMBER_FIELDS + FIRST]) + h) * VOTER_FIELDS + ACCURACY])
    return best


@inlined
def temper(params, proba, n, label):
    """A step of the power of the probabilities: up where the label is likelier than the entropy has it, else down.

    With q the probabilities the gradient of log q_label in the logarithm of the power is log q_label + entropy(q).
    """
    gradient = math.log(max(proba[label], 1e-300))
    for c in range(n):
        if proba[c] > 0.0:
            gradient -= proba[c] * math.log(proba[c])
    gradient = max(gradient, -MOST_SURPRISE)
    params[POWER] = min(max(params[POWER] * math.exp(POWER_RATE * gradient), LEAST_POWER), MOST_POWER)


@kernel
def step_plain(arena, own, kind, m, label, weight):
    """One step of a member that is a polytope or linear."""
    rows, scaled = in_hand(arena, own)
    if kind == POLYTOPE:
        polytope.step(arena, own, rows, scaled, m, label, weight, -1)
    else:
        step_linear(arena, own, rows, scaled, m, label, weight)


@kernel
def step_linear(arena, own, rows, scaled, m, label, weight):
    """One step of logistic regression for each head."""
    own[N_CLASSES] = max(own[N_CLASSES], label + 1)
    n, rates = own[N_CLASSES], section(arena, own, RATES)
    scores, update = section(arena, own, SCORES), section(arena, own, UPDATE)
    room = scores.size // rates.size
    for h in range(rates.size):
        at, total = h * room, 0.0
        top = scores[at + best_class(scores, at, n)]
        for c in range(at, at + n):
            update[c] = math.exp(scores[c] - top)
            total += update[c]
        # An event that weighs much takes no longer step than one that follows it wholly.
        change = min(weight, 1.0 / rates[h]) * rates[h]
        for c in range(at, at + n):
            update[c] *= -change / total
        update[at + label] += change
    add_faces(section(arena, own, WEIGHTS), scores.size, 0, scores.size, rows, scaled, m, update)


@kernel
def observe_event(arena, layout, values, columns, start, end, shared):
    """Take a learned row into the statistics."""
    observe(arena, layout, values, columns, start, end, shared)
    if layout[RANKED] > 0:
        observe(arena, part(layout, RANKS_PART), values, columns, start, end, shared)


# Entry points -----------------------------------------------------------------------------------------------------
#
# One compiled function holds the steps of all members: compiling it takes long, and each caller would do so again.


@kernel
def run(arena, layout, values, columns, indptr, shared, labels, weights, predicting, codes, scores, probas):
    """`run_rows`; where indptr is empty, for the event in section ROW: codes[0] is -2 - i if value i cannot be used."""
    arena, layout = borrow(arena), borrow(layout)
    values, columns, indptr = borrow(values), borrow(columns), borrow(indptr)
    labels, weights, codes = borrow(labels), borrow(weights), borrow(codes)
    proba, params, members = (
        section(arena, layout, PROBA),
        section(arena, layout, PARAMS),
        section(arena, layout, MEMBERS),
    )
    order, notes, present = (
        section(arena, layout, ORDER),
        section(arena, layout, NOTES),
        statistic(arena, layout, PRESENT),
    )
    is_event, n_rows = indptr.size == 0, max(indptr.size - 1, 1)
    start, end, at_hand = 0, layout[ROW_LENGTH], False
    if is_event:
        values, columns = section(arena, layout, ROW), layout[layout[COUNT_AT] :]
        at_hand = is_at_hand(arena, layout, values, end)
    elif indptr.size == 1:
        n_rows = 0
    layout[AT_HAND] = 0
    for i in range(n_rows):
        if not is_event:
            start, end = indptr[i], indptr[i + 1]
        if not at_hand:
            bad = load_event(arena, layout, values, columns, start, end, shared)
            if bad < 0:
                if is_event:
                    codes[0] = bad - 1
                return i
            call_awake(arena, layout)
            spread(arena, layout)
        n = layout[N_CLASSES]
        key = row_key(values, columns, start, end, shared, present) if notes.size > 0 else 0.0
        if predicting:
            if notes.size > 0:
                note(order, notes, key)
            best = best_class(proba, 0, n) if n > 0 else -1
            codes[i] = best
            if best >= 0 and scores.size > 0:
                scores[i] = proba[best]
                for c in range(min(n, probas.shape[1])):
                    probas[i, c] = proba[c]
        if labels[i] < 0 or not weights[i] > 0.0:
            if is_event:
                keep_at_hand(arena, layout, values, end)
            continue
        label, weight = labels[i], weights[i]
        call_sleepers(arena, layout)
        count(arena, layout, label, key)
        for j in range(layout[N_MEMBERS]):
            if members[j * MEMBER_FIELDS + PRESENT_NOW] == 0.0:
                continue
            own, kind = part(layout, FIRST_PART + j), members[j * MEMBER_FIELDS + KIND]
            m = int(members[j * MEMBER_FIELDS + PAIRS])
            section(arena, own, PARAMS)[SEEN] = params[SEEN]
            if kind == KERNEL:
                # How often norms are renewed must not depend on columns that only later events have.
                own[ROW_LENGTH] = own[budgeted.N_KNOWN]
                budgeted.step(arena, own, m, label, weight)
                if own[budgeted.N_VECTORS] > own[budgeted.BUDGET]:
                    budgeted.make_room(arena, own)
            else:
                step_plain(arena, own, kind, m, label, weight)
        observe_event(arena, layout, values, columns, start, end, shared)
    return n_rows


def run_rows(
    arena, layout, values, columns, indptr, shared, labels, weights, predicting, out_codes, out_scores, out_proba
):
    """Predict each row (if `predicting`), then learn it where its label is not -1.

    Parameters and returns are those of `polytope.run_rows`.
    """
    return run(
        arena, layout, values, columns, indptr, shared, labels, weights, predicting, out_codes, out_scores, out_proba
    )


# What `run` takes of a single event.
NO_LABEL, ONE_WEIGHT, NO_COLUMNS = np.array([-1]), np.ones(1), np.zeros(0, np.int64)
NO_VALUES, NO_PROBA = np.zeros(0), np.zeros((0, 0))


def predict_event(arena, layout):
    """Predict the event in section ROW, which has a value for each of the first ROW_LENGTH columns.

    Returns the best class, -1 where there is none, or -2 - i where value i cannot be used.
    """
    codes = np.zeros(1, np.int64)
    rows = NO_VALUES, NO_COLUMNS, NO_COLUMNS, True
    run(arena, layout, *rows, NO_LABEL, ONE_WEIGHT, True, codes, NO_VALUES, NO_PROBA)
    return int(codes[0])


def learn_event(arena, layout, label, weight):
    """Learn the event in section ROW. Returns 0, or -2 - i where value i cannot be used, and nothing has changed."""
    codes = np.zeros(1, np.int64)
    rows = NO_VALUES, NO_COLUMNS, NO_COLUMNS, True
    run(arena, layout, *rows, np.array([label]), np.array([weight]), False, codes, NO_VALUES, NO_PROBA)
    return int(codes[0])
