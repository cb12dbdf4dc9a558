"""Answers at prediction time, kept until a late label arrives.

The *memory* of an event is an int64 array. It starts with what `label_memories.remember` writes, followed by the number
of events learned before the prediction, and the labels of earlier equal rows (`repeats`). Then come the *answers*,
which are classes named by the experts, the answers of label autocorrelation, the votes and their mixture. The last two
are the prediction before and after `late_mixture`. Each element stores four answers: 1 + class, or 0 if there was none.
The *confidences* follow: the probabilities that experts, votes and the prediction before `late_mixture` gave to the
classes they named, eight per element.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined
from streamsvm.ensemble.combined_vote import VOTES
from streamsvm.ensemble.label_baselines import ANSWERS
from streamsvm.ensemble.label_memories import MEMORY

# Index of the number of learned events in a memory, of the labels of equal rows, and of the first answer.
SEEN, REPEATED, FIRST = MEMORY, MEMORY + 1, MEMORY + 2
PER_NUMBER, BITS = 4, 16
# Classes from this number on do not fit and are not stored.
MOST_CLASSES = (1 << BITS) - 1
CONFIDENCES, LEVELS = 8, 255


@inlined
def first_confidence(n_experts):
    """Return the index of the first confidence in a memory."""
    return FIRST + (n_experts + ANSWERS + VOTES + 2 + PER_NUMBER) // PER_NUMBER


def memory_size(n_experts: int) -> int:
    """Return the number of elements of a memory."""
    n_answers, n_confidences = n_experts + ANSWERS + VOTES + 3, n_experts + VOTES + 1
    return FIRST + -(-n_answers // PER_NUMBER) + -(-n_confidences // CONFIDENCES)


@inlined
def keep_answer(memory, i, best):
    """Write answer i to a memory that has none of it yet."""
    if best < MOST_CLASSES:
        memory[FIRST + i // PER_NUMBER] |= (best + 1) << (BITS * (i % PER_NUMBER))


@inlined
def kept_answer(memory, i):
    """Return answer i of a memory, or -1."""
    return answer_in(memory[FIRST + i // PER_NUMBER], i % PER_NUMBER)


@inlined
def answer_in(element, i):
    """Return answer i of an element, from the lowest bits on, or -1."""
    return ((element >> (BITS * i)) & MOST_CLASSES) - 1


@inlined
def keep_confidence(memory, n_experts, i, p):
    """Write the probability p of the class that expert, vote or prediction i named."""
    level = int(min(max(p, 0.0), 1.0) * LEVELS + 0.5)
    memory[first_confidence(n_experts) + i // CONFIDENCES] |= level << (8 * (i % CONFIDENCES))


@inlined
def kept_confidence(memory, n_experts, i):
    """Return the probability of the class that expert, vote or prediction i named."""
    level = (memory[first_confidence(n_experts) + i // CONFIDENCES] >> (8 * (i % CONFIDENCES))) & LEVELS
    return min(max(level, 0.5), LEVELS - 0.5) / LEVELS


@inlined
def kept_likelihood(memory, n_experts, i, is_right, n):
    """Return the probability of the label by expert, vote or prediction i.

    If it named another class, the other n - 1 classes are assumed to be equally likely.
    """
    p = kept_confidence(memory, n_experts, i)
    return p if is_right else (1.0 - p) / (n - 1)
