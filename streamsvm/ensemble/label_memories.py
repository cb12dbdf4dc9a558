"""Memories: what an event whose label arrives later stores of the labels known at its prediction.

A caller that stores events until their labels arrive can store a *memory* with each: the previous labels, the number
of labels learned, and the number of earlier memories. Then no notes are made, and labels may arrive in any order.

Seasons with late labels
------------------------
With memories, a season is found among the labels in the order of their arrival. The label one season ago is the last
known label of the same phase. The phase follows from the number of memories since the event of the last label, divided
by the recent number of memories per label.

Events predicted before the first label have no stored answers, so nothing is known of predictions for a whole delay.
During this time the season counts as more accurate than the vote if the label of the first season in the history names
more labels than the current vote. The current vote has the advantage that it knows all other labels, and the first
season is the most distant one. Later the stored answers decide.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel
from streamsvm.ensemble.label_autocorrelation import (
    MOST_STRIDE,
    answer_rate,
    follow,
    learn_mixture,
    revise,
)
from streamsvm.ensemble.label_baselines import BY_SEASON, BY_VOTE, count_label, first_season_label
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
    """Write the previous labels, the number of learned labels and that of earlier memories to a memory."""
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
def learn_remembered(state, memory, key, n, label, place, ago):
    """Learn the label of an event that was predicted with this memory.

    `ago` is the label one season ago, as stored at the prediction. The other arguments are as for
    `learn_autocorrelation`. Named classes are the current ones, because a memory contains only labels.
    """
    made = min(max(memory[LAGS], 0), state.n_learned)  # a memory may come from a damaged file
    if n >= 2 and place < n:
        state.ago = ago if made > 0 else first_season_label(state)
        revise(state, memory, n)
        learn_mixture(state, memory, n, place)
        if made == 0:
            judge_season(state, place)
    count_label(state, memory, label, LAGS)
    count_late(state, label, state.n_learned - made)
    follow_memories(state, memory[LAGS + 1] + 1)
    follow(state, key, label, made, state.n_learned)


@inlined
def follow_memories(state, n):
    """Update the number of memories up to the event of the last label, and their number per label."""
    n = max(min(n, state.n_remembered), state.n_followed)
    if state.n_followed > 0:
        step = min(max(float(n - state.n_followed), 1.0), MOST_STRIDE)
        state.stride += STRIDE_RATE * (step - state.stride)
    state.n_followed = n


@inlined
def n_waiting(state):
    """Return the number of labels expected between the last label and that of an event predicted now.

    It is smaller than the number of memories where events are predicted several times, or some never get a label.
    """
    return (state.n_remembered - state.n_followed) // int(state.stride + 0.5)


@inlined
def judge_season(state, place):
    """Let the accuracy of the label one season ago be its gain over the current vote, at most FIRST_GAIN.

    This applies to events predicted before the first label, which have no stored answers.
    """
    answers = state.answers
    gain = (1.0 if answers[BY_SEASON] == place else 0.0) - (1.0 if answers[BY_VOTE] == place else 0.0)
    state.season_gain += answer_rate(state) * (gain - state.season_gain)
    state.accuracies[BY_SEASON] = min(max(state.season_gain, 0.0), FIRST_GAIN)
