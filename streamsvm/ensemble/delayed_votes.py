"""Answers of experts at prediction time, kept until a late label arrives.

The *memory* of an event is an int64 array. It starts with what `label_autocorrelation.remember` writes, followed by the
number of events learned before the prediction. Then come the answers of the experts, and the answers that label
autocorrelation compares. Each element stores four: 1 + class, or 0 if there was no answer.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined
from streamsvm.ensemble.label_autocorrelation import ANSWERS, MEMORY

# Index of the number of learned events in a memory, and of the first answer.
SEEN, FIRST = MEMORY, MEMORY + 1
PER_NUMBER, BITS = 4, 16
# Classes from this number on do not fit and are not stored.
MOST_CLASSES = (1 << BITS) - 1


def memory_size(n_experts: int) -> int:
    """Return the number of elements of a memory."""
    return FIRST + -(-(n_experts + ANSWERS) // PER_NUMBER)


@inlined
def keep_answer(memory, h, best):
    """Write the class predicted by expert h to a memory that has no answer of it yet."""
    if best < MOST_CLASSES:
        memory[FIRST + h // PER_NUMBER] |= (best + 1) << (BITS * (h % PER_NUMBER))


@inlined
def kept_answer(memory, h):
    """Return the class predicted by expert h in a memory, or -1."""
    return ((memory[FIRST + h // PER_NUMBER] >> (BITS * (h % PER_NUMBER))) & MOST_CLASSES) - 1
