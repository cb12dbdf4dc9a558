"""Memories: labels known at a prediction, stored until the event's label arrives.

A caller that stores events until their labels arrive can store a *memory* with each. It contains the previous labels,
the number of labels learned, and the number of earlier memories. Then no notes are made, and labels may arrive in any
order.

Seasons with late labels
------------------------
With memories, a season is found among the labels in the order of their arrival. The label one season ago is the last
known label of the same phase. The phase follows from the number of memories since the event of the last label, divided
by the recent number of memories per label.

Events predicted before the first label have no stored answers, so predictions cannot be judged for a whole delay.
During this time, the label in the first season of the history is compared with the current vote. If it is right more
often, the season counts as more accurate than the vote. This comparison favours the vote, which has learned all other
labels, while the first season is the most distant one. Later the stored answers decide.

A season is judged by the labels that it would have named at the predictions, had it been known then. Otherwise, the
labels of the two delays before it was found would count against it.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel
from streamsvm.ensemble.label_autocorrelation import (
    MOST_STRIDE,
    answer_rate,
    learn_mixture,
    mix_after,
    record_label,
    start_accuracies,
)
from streamsvm.ensemble.label_baselines import BY_SEASON, BY_VOTE, count_label, next_season_label
from streamsvm.ensemble.late_mixture import count_late
from streamsvm.ensemble.notes import LAGS, NOTES

# Number of elements that `remember` writes to a memory.
MEMORY = LAGS + 2
# Upper bound of the accuracy of the season before any stored answer has been judged.
FIRST_GAIN = 0.05
# Rate of the number of memories per label.
STRIDE_RATE = 0.02


@kernel
def remember(state, memory):
    """Write the previous labels and the numbers of labels and memories to a memory."""
    for k in range(LAGS):
        memory[k] = state.recent[k]
    memory[LAGS], memory[LAGS + 1] = state.n_learned, state.n_remembered
    state.n_remembered += 1
    state.n_fresh = min(state.n_fresh + 1, NOTES)


@inlined
def is_current(state):
    """Return whether the last label is recent enough to be informative.

    It counts the predictions made with memories since that label.
    """
    return state.n_fresh < NOTES


@kernel
def learn_remembered(state, memory, key, n, label, place):
    """Learn the label of an event that was predicted with this memory.

    The other arguments are as for `learn_autocorrelation`. Named classes are the current ones, because a memory
    contains only labels. The label one season ago goes to `ago`.
    """
    made = min(max(memory[LAGS], 0), state.n_learned)  # a memory may come from a damaged file
    state.ago = next_season_label(state, made)
    if state.n_learned == 0 and state.n_remembered == 1:
        start_accuracies(state)
    if n >= 2 and place < n:
        mix_after(state, memory, n)
        learn_mixture(state, memory, n, place)
        if made == 0:
            judge_season(state, place)
    count_label(state, memory, label, LAGS)
    count_late(state, label, state.n_learned - made)
    count_memories(state, memory[LAGS + 1] + 1)
    record_label(state, key, label, made, state.n_learned)


@inlined
def count_memories(state, n):
    """Update the number of memories up to the event of the last label.

    Also update the number of memories per label.
    """
    n = max(min(n, state.n_remembered), state.n_followed)
    if state.n_followed > 0:
        step = min(max(float(n - state.n_followed), 1.0), MOST_STRIDE)
        state.stride += STRIDE_RATE * (step - state.stride)
    state.n_followed = n


@inlined
def n_waiting(state):
    """Return the expected number of labels between the last one and the next event's.

    It is smaller than the number of memories if events are predicted several times or some never get a label.
    """
    return (state.n_remembered - state.n_followed) // int(state.stride + 0.5)


@inlined
def judge_season(state, place):
    """Set the accuracy of the label one season ago to its gain over the current vote.

    The accuracy is at most FIRST_GAIN. This applies to events predicted before the first label, which have no stored
    answers.
    """
    answers = state.answers
    gain = (1.0 if answers[BY_SEASON] == place else 0.0) - (1.0 if answers[BY_VOTE] == place else 0.0)
    state.season_gain += answer_rate(state) * (gain - state.season_gain)
    state.accuracies[BY_SEASON] = min(max(state.season_gain, 0.0), FIRST_GAIN)
