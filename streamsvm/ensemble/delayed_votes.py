"""What each expert of a blend answered when an event was predicted, kept until its label comes late.

A *memory* of an event has, after what `autocorrelation` remembers, how many events had been learned, and the answers,
four to a number: 1 + the class, and 0 where an expert was not asked.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined
from streamsvm.ensemble.label_autocorrelation import MEMORY

# Where a memory has how many events had been learned, and where the answers begin.
SEEN, ANSWERS = MEMORY, MEMORY + 1
PER_NUMBER, BITS = 4, 16
# Classes of higher numbers are not kept.
MOST_CLASSES = (1 << BITS) - 1


def memory_size(n_experts: int) -> int:
    """How many numbers a memory has."""
    return ANSWERS + -(-n_experts // PER_NUMBER)


@inlined
def keep_answer(memory, h, best):
    """Leave the answer of expert h, of which there is none yet, in a memory."""
    if best < MOST_CLASSES:
        memory[ANSWERS + h // PER_NUMBER] |= (best + 1) << (BITS * (h % PER_NUMBER))


@inlined
def kept_answer(memory, h):
    """The answer of expert h in a memory, -1 where there is none."""
    return ((memory[ANSWERS + h // PER_NUMBER] >> (BITS * (h % PER_NUMBER))) & MOST_CLASSES) - 1
