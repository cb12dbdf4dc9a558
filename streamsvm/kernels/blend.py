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

What an event looks like to the members follows from the events before it, and what a member learns from it does not
depend on the others, nor on the votes. So rows go through in blocks: all are scaled, then each member runs over the
block, one beside another on threads of their own, then the votes are taken. Who sleeps changes only between blocks,
after every BLOCK events learned.

Kernel members see as many columns as there is room for in their dictionaries, the first ones.

Behind the sections of every learner stand MEMBER_FIELDS numbers a member, VOTER_FIELDS numbers a head, the single event
last predicted (its values, then its columns), what `order` keeps (its counts and notes empty where labels have no say),
the naps, what `stack` keeps, the block (the weight rows and the values of its events, scaled in one way after those in
the other, BLOCK_FIELDS numbers a row, and all heads' scores of each row), what is asked of rows, and the memory of the
other layouts. A linear member's own are weights in rows of all classes of all heads for each weight row, the steps of
the heads, scores, and updates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamsvm.kernels import budgeted, call, inlined, kernel, polytope
from streamsvm.kernels.budgeted import best_class, exp_below
from streamsvm.kernels.order import add_order, learn_order, note, row_key
from streamsvm.kernels.polytope import add_faces, dot_faces
from streamsvm.kernels.rows import (
    COUNT_AT,
    N_CLASSES,
    N_COUNTERS,
    PARAMS,
    PREDICT,
    PRESENT,
    PROBA,
    ROW_LENGTH,
    ROWS_AT,
    SCALED,
    SEEN,
    WORK,
    borrow,
    borrow_at,
    in_hand,
    load,
    observe,
    section,
    single_event,
    statistic,
    u,
)
from streamsvm.kernels.stack import LEAST, first_logs, first_vote, learn_stack, stack

# Counters behind those of every learner: the length of one layout, whether any member sees ranks, the members, and 1 +
# the length of the event in section LAST, whose scores are at hand, 0 where they are not; negative where it lists its
# columns. Then the address of `run_member`.
LENGTH, RANKED, N_MEMBERS, AT_HAND, RUN_MEMBER = 14, 15, 16, 17, 18
# Where the layout that ranks is, and the first member's.
RANKS_PART, FIRST_PART = 1, 2

# Sections and parameters behind those of every learner.
(
    MEMBERS,
    VOTERS,
    LAST,
    ORDER,
    COUNTS,
    NOTES,
    SCRATCH,
    NAPS,
    STACK,
    INPUTS,
    EVENT_ROWS,
    EVENTS,
    TABLE,
    BLOCK_SCORES,
    REQUEST,
    MEMORY,
) = range(7, 23)
# The decay of accuracies; the power; the seed; the share of right predictions of late, and over longer.
VOTE_DECAY, POWER, SEED, RIGHT_NOW, RIGHT_LONG, N_PARAMS = range(3, 9)

# Numbers of a member: its kind, whether it sees ranks, its first head and how many, and the thread it runs on.
KIND, ON_RANKS, FIRST, HEADS, THREAD, MEMBER_FIELDS = range(6)
# More of them, which change: whether it sleeps, and how many events must have been learned before it may.
ASLEEP, RESTLESS, NAP_FIELDS = range(3)
# Numbers of a head: the decayed accuracy, the share of the vote, and how many f its probabilities are the softmax of.
ACCURACY, VOTE, SHARPNESS, VOTER_FIELDS = range(4)

# Numbers of a row in a block: where its pairs begin, how many are standardised, whether these are of the first columns
# one after the other, how many are ranked, the events learned before it, its key (see `order`), and its label, -1 where
# it is not learned, and weight.
AT, PAIRS, IS_WHOLE, RANKED_PAIRS, LEARNED, KEY, LABEL, ROW_WEIGHT, BLOCK_FIELDS = range(9)
# What is requested of rows: to do all, or a block one part after another; members learn on one thread each, the t-th
# asks for LEARN + t.
ALL, SCALE, VOTE_ON, LEARN = range(4)
# A request: for each array its address and size; the columns of the probabilities; whether rows share their columns and
# are predicted; the first row of a block, and how many it has.
VALUES, COLUMNS, INDPTR, LABELS, WEIGHTS_OF, CODES, SCORES_OF, PROBAS = range(0, 16, 2)
N_PROBAS, SHARED, PREDICTING, FIRST_ROW, N_BLOCK, N_REQUEST = range(16, 22)

# Kinds of members.
KERNEL, POLYTOPE, LINEAR = 0, 1, 2

# Sections of a linear member behind those of every learner.
WEIGHTS, RATES, SCORES, UPDATE = range(7, 11)

VOTE_SHARPNESS = 100.0
# Accuracies begin as if a head had been wrong on so many events.
VOTE_CAUTION = 30.0
# Heads with less than this share of the vote are not heard.
LEAST_VOTE = 1e-4
# Drift is looked for, and a block ends, when the number of events learned is a multiple of this.
BLOCK = 32
# A member falls asleep when its best head is less accurate than the best of all by the first gap, and wakes when by
# less than the second. This is looked at every so many events (of whole blocks), not among the first, nor soon after a
# drift woke it.
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
def load_event(arena, layout, values, columns, start, end, shared, k, at):
    """Make a row the k-th of the block, its pairs from `at` on; returns 0, or -1 - i where entry i cannot be used."""
    table = section(arena, layout, TABLE)[k * BLOCK_FIELDS : (k + 1) * BLOCK_FIELDS]
    m = load(arena, layout, values, columns, start, end, shared)
    if m < 0:
        return m
    table[AT], table[PAIRS], table[IS_WHOLE] = at, m, 1.0 if layout[ROWS_AT] == layout[COUNT_AT] else 0.0
    keep_pairs(arena, layout, layout, m, at)
    if layout[RANKED] > 0:
        ranks = part(layout, RANKS_PART)
        m = load(arena, ranks, values, columns, start, end, shared)
        table[RANKED_PAIRS] = m
        keep_pairs(arena, layout, ranks, m, section(arena, layout, EVENTS).size // 2 + at)
    table[KEY] = 0.0
    if section(arena, layout, NOTES).size > 0:
        table[KEY] = row_key(values, columns, start, end, shared, statistic(arena, layout, PRESENT))
    return 0


@inlined
def keep_pairs(arena, layout, giver, m, at):
    """Keep the event in hand of a layout, m pairs, among those of the block."""
    events, event_rows = section(arena, layout, EVENTS), section(arena, layout, EVENT_ROWS).view(np.int64)
    rows, scaled = in_hand(arena, giver)
    for i in range(m):
        events[u(at + i)] = scaled[u(i)]
    if giver[ROWS_AT] == WORK:
        for i in range(m):
            event_rows[u(at + i)] = rows[u(i)]


@inlined
def hand_over(arena, layout, own, on_ranks, k):
    """Make the k-th row of the block a member's event in hand: as many pairs, which it returns, as it has room for."""
    table = section(arena, layout, TABLE)[k * BLOCK_FIELDS : (k + 1) * BLOCK_FIELDS]
    events, event_rows = section(arena, layout, EVENTS), section(arena, layout, EVENT_ROWS).view(np.int64)
    at, m = int(table[AT]), int(table[PAIRS])
    if on_ranks:
        at, m = at + events.size // 2, int(table[RANKED_PAIRS])
    taken = section(arena, own, SCALED)
    if table[IS_WHOLE] > 0.0 and not on_ranks:
        own[ROWS_AT], m = own[COUNT_AT], min(m, taken.size)
    else:
        own[ROWS_AT] = WORK
        while m > 0 and event_rows[at + m - 1] >= taken.size:
            m -= 1
        for i in range(m):
            own[u(WORK + i)] = event_rows[u(at + i)]
    for i in range(m):
        taken[u(i)] = events[u(at + i)]
    return m


@kernel
def is_at_hand(arena, layout, row, columns, n, shared):
    """Whether a row of n values is the one predicted last, and nothing has happened since: its scores are there."""
    if layout[AT_HAND] != (n + 1 if shared else -n - 1):
        return False
    last, same = section(arena, layout, LAST), True
    for j in range(n):
        same &= row[j] == last[j] or (math.isnan(row[j]) and math.isnan(last[j]))
    if not shared:
        last_columns = last[last.size // 2 :]
        for j in range(n):
            same &= columns[j] == last_columns[j]
    return same


@kernel
def keep_at_hand(arena, layout, row, columns, n, shared):
    """Keep a row whose scores have been computed: the event predicted is most often the one learned next."""
    last = section(arena, layout, LAST)
    for j in range(n):
        last[j] = row[j]
    if not shared:
        last_columns = last[last.size // 2 :]
        for j in range(n):
            last_columns[j] = columns[j]
    layout[AT_HAND] = n + 1 if shared else -n - 1


@inlined
def evaluate(arena, own, kind, m):
    """The scores of all heads of a member for its event in hand."""
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
def keep_scores(arena, layout, i, own, kind, k):
    """Keep the scores of member i for the k-th row of the block."""
    kept, scores = section(arena, layout, BLOCK_SCORES), scores_of(arena, own, kind)
    room = section(arena, layout, PROBA).size
    first = int(section(arena, layout, MEMBERS)[i * MEMBER_FIELDS + FIRST])
    at = (k * (section(arena, layout, VOTERS).size // VOTER_FIELDS) + first) * room
    for c in range(scores.size):
        kept[u(at + c)] = scores[u(c)]


@kernel
def spread(arena, layout, k):
    """The probabilities of all classes, from the scores for row k of members that are awake."""
    n, proba, scores = layout[N_CLASSES], section(arena, layout, PROBA), section(arena, layout, BLOCK_SCORES)
    if n == 0:
        return
    members, voters, naps = (
        section(arena, layout, MEMBERS),
        section(arena, layout, VOTERS),
        section(arena, layout, NAPS),
    )
    room, first = proba.size, k * (voters.size // VOTER_FIELDS)
    for c in range(n):
        proba[c] = 0.0
    stacking, inputs = section(arena, layout, STACK), section(arena, layout, INPUTS)
    for i in range(layout[N_MEMBERS]):
        base, is_awake = i * MEMBER_FIELDS, naps[i * NAP_FIELDS + ASLEEP] == 0.0
        for h in range(int(members[base + FIRST]), int(members[base + FIRST] + members[base + HEADS])):
            voter, at = h * VOTER_FIELDS, (first + h) * room
            if is_awake:
                add_vote(scores, at, n, voters[voter + SHARPNESS], voters[voter + VOTE], proba, inputs, h * room)
            else:
                for c in range(n):
                    inputs[h * room + c] = 0.0
    total, power = 0.0, section(arena, layout, PARAMS)[POWER]
    for c in range(n):
        proba[c] = exp_below(power * math.log(min(max(proba[c], LEAST_PROBABILITY), 1.0)))
        total += proba[c]
    share = 1.0 / total
    for c in range(n):
        proba[c] *= share
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
        logs[to + c] = exp_below(sharpness * (scores[at + c] - top))
        total += logs[to + c]
    if vote > LEAST_VOTE:
        share = vote / total
        for c in range(n):
            proba[c] += share * logs[to + c]
    less = math.log(total)
    for c in range(n):
        logs[to + c] = max(sharpness * (scores[at + c] - top) - less, LEAST_LOG)


# Learning ---------------------------------------------------------------------------------------------------------


@kernel
def count(arena, layout, label, k):
    """Take how well row k of the block was predicted into the votes, the power, and what is known of the order."""
    n, counts, scratch = layout[N_CLASSES], section(arena, layout, COUNTS), section(arena, layout, SCRATCH)
    table = section(arena, layout, TABLE)[k * BLOCK_FIELDS : (k + 1) * BLOCK_FIELDS]
    seen, key = table[LEARNED], table[KEY]
    if n >= 2:
        right = 1.0 if best_class(section(arena, layout, PROBA), 0, n) == label else 0.0
        count_votes(arena, layout, label, k, seen)
        watch(arena, layout, right, seen)
        if label < n:
            stacking, inputs = section(arena, layout, STACK), section(arena, layout, INPUTS)
            temper(section(arena, layout, PARAMS), first_vote(stacking, inputs), first_logs(stacking, inputs), n, label)
            learn_stack(stacking, inputs, n, label)
    if counts.size > 0:
        learn_order(counts, section(arena, layout, ORDER), section(arena, layout, NOTES), scratch, key, n, label)
    layout[N_CLASSES] = max(n, label + 1)


@kernel
def count_votes(arena, layout, label, k, seen):
    """Take the predictions of all heads for row k into their accuracies, and share the vote anew."""
    n, params, scores = layout[N_CLASSES], section(arena, layout, PARAMS), section(arena, layout, BLOCK_SCORES)
    # At first accuracies are means, a little below what they will be.
    rate = max(1.0 - params[VOTE_DECAY], 1.0 / (seen + VOTE_CAUTION))
    members, voters, naps = (
        section(arena, layout, MEMBERS),
        section(arena, layout, VOTERS),
        section(arena, layout, NAPS),
    )
    room, first, top = section(arena, layout, PROBA).size, k * (voters.size // VOTER_FIELDS), 0.0
    for i in range(layout[N_MEMBERS]):
        base, is_present = i * MEMBER_FIELDS, takes_part(arena, layout, i, True, seen)
        own_rate = min(NAP_RATE * rate, 1.0) if naps[i * NAP_FIELDS + ASLEEP] > 0.0 else rate
        for h in range(int(members[base + FIRST]), int(members[base + FIRST] + members[base + HEADS])):
            voter = h * VOTER_FIELDS
            if is_present:
                right = 1.0 if best_class(scores, (first + h) * room, n) == label else 0.0
                voters[voter + ACCURACY] += own_rate * (right - voters[voter + ACCURACY])
            top = max(top, voters[voter + ACCURACY])
    total = 0.0
    for voter in range(0, voters.size, VOTER_FIELDS):
        voters[voter + VOTE] = exp_below(VOTE_SHARPNESS * (voters[voter + ACCURACY] - top))
        total += voters[voter + VOTE]
    share = 1.0 / total
    for voter in range(0, voters.size, VOTER_FIELDS):
        voters[voter + VOTE] *= share


# Sleep ------------------------------------------------------------------------------------------------------------


@inlined
def takes_part(arena, layout, i, is_learned, seen):
    """Whether member i sees an event, with so many learned before: all of them if awake, else some that are learned."""
    if section(arena, layout, NAPS)[i * NAP_FIELDS + ASLEEP] == 0.0:
        return True
    return is_learned and is_drawn(seen, i, section(arena, layout, PARAMS)[SEED])


@inlined
def is_drawn(seen, i, seed):
    """Whether a sleeper learns from an event: one in NAP_SAMPLE, drawn anew by a hash of the event's number."""
    mixed = (u(seen) + u(i + 1) * u(0x9E3779B97F4A7C15)) ^ (u(seed) * u(0xD1B54A32D192ED03))
    mixed = (mixed ^ (mixed >> u(30))) * u(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> u(27))) * u(0x94D049BB133111EB)
    return (mixed >> u(33)) % u(NAP_SAMPLE) == 0


@kernel
def watch(arena, layout, right, seen):
    """Take whether the blend was right into its accuracies; after BLOCK events wake or let sleep."""
    params, naps = section(arena, layout, PARAMS), section(arena, layout, NAPS)
    seen += 1.0
    params[RIGHT_NOW] += max(NOW_RATE, 1.0 / seen) * (right - params[RIGHT_NOW])
    params[RIGHT_LONG] += max(LONG_RATE, 1.0 / seen) * (right - params[RIGHT_LONG])
    if int(seen) % BLOCK != 0:
        return
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
def temper(params, proba, logs, n, label):
    """A step of the power of the probabilities: up where the label is likelier than the entropy has it, else down.

    With q the probabilities the gradient of log q_label in the logarithm of the power is log q_label + entropy(q).
    """
    gradient = logs[label]
    for c in range(n):
        gradient -= proba[c] * logs[c]
    gradient = max(gradient, -MOST_SURPRISE)
    params[POWER] = min(max(params[POWER] * math.exp(POWER_RATE * gradient), LEAST_POWER), MOST_POWER)


@inlined
def step_plain(arena, own, kind, m, label, weight):
    """One step of a member that is a polytope or linear."""
    rows, scaled = in_hand(arena, own)
    if kind == POLYTOPE:
        polytope.step(arena, own, rows, scaled, m, label, weight, -1)
    else:
        step_linear(arena, own, rows, scaled, m, label, weight)


@inlined
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
            update[c] = exp_below(scores[c] - top)
            total += update[c]
        # An event that weighs much takes no longer step than one that follows it wholly.
        change = min(weight, 1.0 / rates[h]) * rates[h]
        share = -change / total
        for c in range(at, at + n):
            update[c] *= share
        update[at + label] += change
    add_faces(section(arena, own, WEIGHTS), scores.size, 0, scores.size, rows, scaled, m, update)


@kernel
def observe_event(arena, layout, values, columns, start, end, shared):
    """Take a learned row into the statistics."""
    observe(arena, layout, values, columns, start, end, shared)
    if layout[RANKED] > 0:
        observe(arena, part(layout, RANKS_PART), values, columns, start, end, shared)


# Blocks -----------------------------------------------------------------------------------------------------------


@inlined
def add_to_block(arena, layout, values, columns, start, end, shared, label, weight, k, at, at_hand):
    """Make a row the k-th of a block, scaled already if `at_hand`; returns 0, or -1 - i where entry i is of no use."""
    if not at_hand:
        bad = load_event(arena, layout, values, columns, start, end, shared, k, at)
        if bad < 0:
            return bad
    table, base = section(arena, layout, TABLE), k * BLOCK_FIELDS
    table[base + LEARNED], table[base + ROW_WEIGHT] = section(arena, layout, PARAMS)[SEEN], weight
    table[base + LABEL] = label if weight > 0.0 else -1
    if table[base + LABEL] >= 0.0:
        observe_event(arena, layout, values, columns, start, end, shared)
    return 0


@inlined
def scale_block(arena, layout, request, first):
    """Scale rows from `first` on, each with the statistics of those learned before it, as far as a block goes.

    Returns how many rows it has, or -1 - i if entry i of the first cannot be used.
    """
    values, columns, indptr = floats(request, VALUES), integers(request, COLUMNS), integers(request, INDPTR)
    labels, weights, shared = integers(request, LABELS), floats(request, WEIGHTS_OF), request[SHARED] > 0
    table, params = section(arena, layout, TABLE), section(arena, layout, PARAMS)
    room = section(arena, layout, EVENTS).size // (2 if layout[RANKED] > 0 else 1)
    at, n_block = 0, 0
    for i in range(first, min(first + table.size // BLOCK_FIELDS, indptr.size - 1)):
        start, end = indptr[i], indptr[i + 1]
        if at + end - start + 1 > room:
            break
        seen = params[SEEN]
        bad = add_to_block(
            arena, layout, values, columns, start, end, shared, labels[i], weights[i], n_block, at, False
        )
        if bad < 0:
            return bad if n_block == 0 else n_block
        n_block += 1
        at += end - start + 1
        if params[SEEN] > seen and int(params[SEEN]) % BLOCK == 0:
            break
    return n_block


def run_member(values, n_values, counters, n_counters, i, n_block, at_hand):
    """Let member i score the rows of a block, and learn those with a label; one awake may have its scores `at_hand`.

    It is compiled apart: arena and layout come by their addresses and sizes.
    """
    arena, layout = borrow_at(values, n_values, np.float64), borrow_at(counters, n_counters, np.int64)
    members, table = section(arena, layout, MEMBERS), section(arena, layout, TABLE)
    own, kind = part(layout, FIRST_PART + i), members[i * MEMBER_FIELDS + KIND]
    on_ranks = members[i * MEMBER_FIELDS + ON_RANKS] > 0.0
    scored = at_hand > 0 and section(arena, layout, NAPS)[i * NAP_FIELDS + ASLEEP] == 0.0
    for k in range(n_block):
        base = k * BLOCK_FIELDS
        label, weight, seen = int(table[base + LABEL]), table[base + ROW_WEIGHT], table[base + LEARNED]
        if not takes_part(arena, layout, i, label >= 0, seen):
            continue
        m = hand_over(arena, layout, own, on_ranks, k)
        if not scored:
            evaluate(arena, own, kind, m)
            keep_scores(arena, layout, i, own, kind, k)
        if label < 0:
            continue
        section(arena, own, PARAMS)[SEEN] = seen
        if kind == KERNEL:
            # How often norms are renewed must not depend on columns that only later events have.
            own[ROW_LENGTH] = own[budgeted.N_KNOWN]
            budgeted.step(arena, own, m, label, weight)
            if own[budgeted.N_VECTORS] > own[budgeted.BUDGET]:
                call(own[budgeted.MAKE_ROOM], (arena.ctypes.data, arena.size, own.ctypes.data, own.size))
        else:
            step_plain(arena, own, kind, m, label, weight)


@inlined
def call_member(arena, layout, i, n_block, at_hand):
    """Call `run_member`."""
    places = arena.ctypes.data, arena.size, layout.ctypes.data, layout.size
    call(layout[RUN_MEMBER], (*places, i, n_block, int(at_hand)))


@inlined
def vote_on(arena, layout, predicting, k, at_hand):
    """Predict row k of the block from the scores of all members, and count how well that went; returns the class."""
    proba, table = section(arena, layout, PROBA), section(arena, layout, TABLE)
    order, notes = section(arena, layout, ORDER), section(arena, layout, NOTES)
    n = layout[N_CLASSES]
    if not at_hand:
        spread(arena, layout, k)
    if predicting and notes.size > 0:
        note(order, notes, table[k * BLOCK_FIELDS + KEY])
    return best_class(proba, 0, n) if n > 0 else -1


@inlined
def vote_on_block(arena, layout, request, first, n_block):
    """Predict the rows of a block, say so where that is asked for, and count how well it went."""
    proba, table = section(arena, layout, PROBA), section(arena, layout, TABLE)
    codes, scores, probas = integers(request, CODES), floats(request, SCORES_OF), floats(request, PROBAS)
    predicting, room = request[PREDICTING] > 0, request[N_PROBAS]
    for k in range(n_block):
        i, n, label = first + k, layout[N_CLASSES], int(table[k * BLOCK_FIELDS + LABEL])
        best = vote_on(arena, layout, predicting, k, False)
        if predicting:
            codes[i] = best
            if best >= 0 and scores.size > 0:
                scores[i] = proba[best]
                for c in range(min(n, room)):
                    probas[i * room + c] = proba[c]
        if label >= 0:
            count(arena, layout, label, k)


# Entry points -----------------------------------------------------------------------------------------------------
#
# Each argument of an entry point costs as much as a part of the step: what rows there are stands in a request.


@inlined
def floats(request, i):
    """An array of a request."""
    return borrow_at(request[i], request[i + 1], np.float64)


@inlined
def integers(request, i):
    """An array of a request."""
    return borrow_at(request[i], request[i + 1], np.int64)


@kernel
def event(arena, layout, label, weight):
    """Predict or learn the event in section ROW, as `polytope.event` does."""
    arena, layout = borrow(arena), borrow(layout)
    row, columns, n, shared = single_event(arena, layout)
    at_hand = is_at_hand(arena, layout, row, columns, n, shared)
    layout[AT_HAND] = 0
    bad = add_to_block(arena, layout, row, columns, 0, n, shared, label, weight, 0, 0, at_hand)
    if bad < 0:
        return bad - 1
    for i in range(layout[N_MEMBERS]):
        call_member(arena, layout, i, 1, at_hand)
    best = vote_on(arena, layout, label == PREDICT, 0, at_hand)
    if label == PREDICT:
        keep_at_hand(arena, layout, row, columns, n, shared)
        return best
    count(arena, layout, label, 0)
    return 0


@kernel
def run_request(arena, layout, what):
    """Do what is requested of rows.

    To do ALL returns how many rows were done. To SCALE returns how many rows from FIRST_ROW on make a block (of N_BLOCK
    rows, then), LEARN lets the members of a thread run over it, VOTE_ON returns where the next begins.
    """
    arena, layout = borrow(arena), borrow(layout)
    request = section(arena, layout, REQUEST).view(np.int64)
    members, n_rows = section(arena, layout, MEMBERS), request[INDPTR + 1] - 1
    first, n_block = request[FIRST_ROW], request[N_BLOCK]
    if what < LEARN:
        layout[AT_HAND] = 0
    while first < n_rows:
        if what in (ALL, SCALE):
            n_block = scale_block(arena, layout, request, first)
            if what == SCALE:
                return n_block
            if n_block < 0:
                return first
        if what == ALL or what >= LEARN:
            for i in range(layout[N_MEMBERS]):
                if what == ALL or members[i * MEMBER_FIELDS + THREAD] == what - LEARN:
                    call_member(arena, layout, i, n_block, False)
        if what in (ALL, VOTE_ON):
            vote_on_block(arena, layout, request, first, n_block)
        first += n_block
        if what != ALL:
            return first
    return n_rows


class Request:
    """Rows to predict and learn, as `polytope.run_rows` takes them; to be held until `run_request` has done them."""

    def __init__(self, arena: Any, layout: Any, *rows: Any) -> None:
        values, columns, indptr, shared, labels, weights, predicting, codes, scores, proba = rows
        self._arrays = [
            np.ascontiguousarray(values, np.float64),
            np.ascontiguousarray(columns, np.int64),
            np.ascontiguousarray(indptr, np.int64),
            np.ascontiguousarray(labels, np.int64),
            np.ascontiguousarray(weights, np.float64),
            codes,
            scores,
            proba,
        ]
        at = N_COUNTERS + REQUEST
        self.fields = arena[layout[at] : layout[at + 1]].view(np.int64)
        places = [number for a in self._arrays for number in (a.__array_interface__["data"][0], a.size)]
        self.fields[:] = [*places, proba.shape[1], shared, predicting, 0, 0]

    def clear(self) -> None:
        """Forget the rows: nothing of them is left in what a model is copied from."""
        self.fields[:] = 0


def run_rows(arena, layout, *rows):
    """Predict each row (if `predicting`), then learn it where its label is not -1.

    Parameters and returns are those of `polytope.run_rows`.
    """
    request = Request(arena, layout, *rows)
    done = run_request(arena, layout, ALL)
    request.clear()
    return done
