"""Update of an ensemble with a label: weights of the experts and corrections."""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import FEW
from streamsvm.core.math import exp_below, log_of
from streamsvm.ensemble.blend import (
    BLOCK,
    FORGOTTEN,
    FREQUENCY_DECAY,
    LATE_WINDOW,
    MOST_RARITY,
    NOISE_SAMPLE,
    VOTE_CAUTION,
    VOTE_INVERSE_TEMPERATURE,
)
from streamsvm.ensemble.combined_vote import (
    FEW_LATE,
    LATE_ADVANTAGE,
    VOTES,
    judge_votes,
    learn_combination,
    plain_logs,
)
from streamsvm.ensemble.delayed_votes import REPEATED, SEEN, kept_answer, kept_confidence, kept_likelihood
from streamsvm.ensemble.label_autocorrelation import answer_rate, learn_autocorrelation
from streamsvm.ensemble.label_baselines import ANSWERS, BY_FREQUENCY, BY_LAST, BY_SEASON, BY_VOTE, n_answers
from streamsvm.ensemble.label_memories import learn_remembered
from streamsvm.ensemble.late_mixture import (
    BY_LATE_FREQUENCY,
    BY_LATE_LAST,
    BY_LATE_SEASON,
    BY_LATE_VOTE,
    BY_P,
    BY_POOL,
    learn_late,
)
from streamsvm.ensemble.many_classes import n_voted, place_of
from streamsvm.ensemble.notes import LAGS
from streamsvm.ensemble.probabilities import place_repeats
from streamsvm.ensemble.repeats import add_repeats, learn_weights, store_label
from streamsvm.online.batch import late_at
from streamsvm.online.calibration import calibrated, learn_noise

# Learning ---------------------------------------------------------------------------------------------------------


@kernel
def count(state, block, batch, label, k):
    """Update weights, temperature, corrections and autocorrelation with a label.

    Parameters
    ----------
    label
        Class of row k of the block.
    k
        Index of the row in the block. Its scores and probabilities are known.
    """
    n, row, late = state.n_classes, block.rows[k], late_at(batch, block.first + k)
    voted, place = n_voted(state), place_of(state, label)
    if n >= 2:
        count_votes(state, block, batch, label, k, place)
        update_frequencies(state, label, row.seen)
        if label < n:
            plain, logs = state.combination.plain, plain_logs(state.combination)
            state.inverse_temperature = calibrated(state.inverse_temperature, logs, plain, voted, place)
            if int(row.seen) % NOISE_SAMPLE == 0:
                learn_noise(state.calibration, voted, place, plain)
            if row.late > 0:
                learn_kept_combination(state, batch.memories[late], label, row.seen - batch.memories[late, SEEN])
            else:
                learn_combination(state.combination, voted, place)
    if state.uses_autocorrelation:
        if late >= 0:
            memory = batch.memories[late]
            learn_remembered(state.autocorrelation, memory, row.key, voted, label, place)
            judge_answers(state, memory, label)
            if row.late > 0 and label < n and n >= 2:
                learn_kept_mixture(state, memory, voted, place)
        else:
            learn_autocorrelation(state.autocorrelation, row.key, voted, label, place)
    if row.late > 0 and n >= 2:
        state.repeats.found = batch.memories[late, REPEATED]
        place_repeats(state)
        add_repeats(state.repeats, voted, n_answers(state.autocorrelation, voted), state.repeats.after)
    learn_repeats(state, row, label, place)
    state.n_classes = max(n, label + 1)


@inlined
def learn_repeats(state, row, label, place):
    """Learn the label of a row for equal rows.

    Rows equal to the row learned last do not change the weights, whatever their label. If only those with another label
    did, the labels of rows in runs would seem to change more often than they do.
    """
    repeats = state.repeats
    if row.key != repeats.last and repeats.n_found > 0 and state.n_classes > 1 and place < n_voted(state):
        learn_weights(repeats, place)
    store_label(repeats, row.key, label, row.seen)


@kernel
def count_votes(state, block, batch, label, k, place):
    """Update accuracy, log loss and weight of each expert with the label of row k.

    If the label is late, the answers stored at prediction time count. An expert without a stored answer is judged by
    its current prediction.
    """
    n, experts, row = state.n_classes, state.experts, block.rows[k]
    is_late, late = row.late > 0, late_at(batch, block.first + k)
    if is_late:
        judge_kept(state, batch.memories[late], label)
    # Early accuracies are means over the events so far, biased downwards by VOTE_CAUTION.
    rate = max(1.0 - state.expert_decay, 1.0 / (row.seen + VOTE_CAUTION))
    logs, top = state.combination.logs, -math.inf
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
    """Return the logarithm of an expert's weight, up to a constant."""
    expert = state.experts[h]
    return VOTE_INVERSE_TEMPERATURE * expert.accuracy - state.rare_weight * state.rarity * expert.loss


@kernel
def update_frequencies(state, label, seen):
    """Update the class frequencies with a label, and once per block the rarity."""
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
    """Update the accuracies with the answers stored when the event was predicted."""
    experts, asked = state.experts, 0
    # The means restart with `n_late`, because current predictions say little about stored answers.
    rate = max((1.0 - state.expert_decay) / LATE_WINDOW, 1.0 / (state.n_late + VOTE_CAUTION))
    for h in range(experts.size):
        answer = kept_answer(memory, h)
        if answer >= 0:
            right, asked = 1.0 if answer == label else 0.0, 1
            experts[h].accuracy += rate * (right - experts[h].accuracy)
    state.n_late += asked


@kernel
def learn_kept_combination(state, memory, label, delay):
    """Update the combined vote with the stored answers and confidences.

    `delay` is the number of events learned since then.
    """
    n, n_experts, combination = state.n_classes, state.experts.size, state.combination
    first = n_experts + ANSWERS
    if kept_answer(memory, first) < 0:
        return
    for h in range(n_experts):
        is_right = kept_answer(memory, h) == label
        combination.by_experts[h] = kept_likelihood(memory, n_experts, h, is_right, n)
    for j in range(VOTES):
        is_right = kept_answer(memory, first + j) == label
        likelihood = kept_likelihood(memory, n_experts, n_experts + j, is_right, n)
        combination.by_votes[j] = exp_below(min(FEW_LATE / delay, 1.0) * log_of(likelihood))
    for j in range(VOTES + 1):
        combination.answers[j] = kept_answer(memory, first + j)
    judge_votes(combination, label, LATE_ADVANTAGE)


@kernel
def judge_answers(state, memory, label):
    """Update the accuracies of label autocorrelation with stored answers.

    The season is judged by the label that the current season would have named.
    """
    labels, first = state.autocorrelation, state.experts.size
    accuracies, rate = labels.accuracies, answer_rate(labels)
    is_answered = kept_answer(memory, first + BY_VOTE) >= 0
    for i in range(ANSWERS):
        answer = labels.ago if i == BY_SEASON and is_answered else kept_answer(memory, first + i)
        if answer >= 0:
            accuracies[i] += rate * ((1.0 if answer == label else 0.0) - accuracies[i])


@kernel
def learn_kept_mixture(state, memory, n, place):
    """Update the mixture under late labels with the prediction stored in a memory.

    The label is at position `place` of the n classes voted on.
    """
    labels, n_experts = state.autocorrelation, state.experts.size
    named, late = labels.late_named, n_experts + ANSWERS + VOTES + 1
    named[BY_P], named[BY_POOL] = kept_place(state, memory, late), kept_place(state, memory, late + 1)
    named[BY_LATE_VOTE] = kept_place(state, memory, n_experts + BY_VOTE)
    named[BY_LATE_LAST] = kept_place(state, memory, n_experts + BY_LAST)
    named[BY_LATE_SEASON] = known_place(state, labels.ago)
    named[BY_LATE_FREQUENCY] = kept_place(state, memory, n_experts + BY_FREQUENCY)
    if named[BY_P] >= 0:
        labels.confidence = kept_confidence(memory, n_experts, n_experts + VOTES)
        delay = labels.n_learned - min(max(memory[LAGS], 0), labels.n_learned)
        learn_late(labels, place, n, delay, max(state.n_late, 1))


@inlined
def kept_place(state, memory, i):
    """Return the position of answer i of a memory among the classes voted on, or -1."""
    return known_place(state, kept_answer(memory, i))


@inlined
def known_place(state, label):
    """Return the position of a class in the vote, or -1 if it is unknown."""
    return place_of(state, label) if 0 <= label < state.n_classes else -1
