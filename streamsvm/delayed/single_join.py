"""Join of single events and labels, by one call each that holds the interpreter lock."""

from __future__ import annotations

from streamsvm.core.access import PACKED, StateType, columns_at, values_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, jit_holding_gil
from streamsvm.core.schema import u64
from streamsvm.delayed.label_join import (
    DROPPED,
    EARLY,
    IN_TIME,
    JOIN_TABLE,
    KIND,
    NEVER,
    NO_LABEL,
    PENDING,
    TIMEOUT,
    find,
    process,
)

NOW = -NEVER
NOT_TAKEN = -2


@inlined
def needs_batch(state, low, high, time):
    """Return whether an event or label makes the learner learn other events."""
    place = find(state, low, high)
    slots, first, slot = state.slots, state.first, state.table[place] - 1
    newest = max(time, state.clock)
    if state.learns_timeouts and first < state.next and newest - slots[first - state.base].arrived > state.wait:
        return True
    return slot >= 0 and slots[slot - state.base].status == EARLY


@inlined
def moment(state, time):
    """Return the time of an event or label."""
    return max(state.clock, 0) if time == NOW else time


@jit_holding_gil
def is_simple(state, packed):
    """Return whether a single event makes the learner predict it and nothing else.

    Parameters
    ----------
    packed
        Digest (two words), time or NOW.
    """
    words = columns_at(packed.start, 3)
    return not needs_batch(state, u64(words[0]), u64(words[1]), moment(state, words[2]))


@jit_holding_gil
def add_event(state, packed):
    """Process a simple event, which is stored at the end of the open segment.

    Parameters
    ----------
    packed
        Digest (two words), time or NOW, counted bytes, predicted class, start, layout, n_row, n_key, n_words, score.

    Returns
    -------
    int
        The slot of the event; -1 if it is not pending.
    """
    words = columns_at(packed.start, 10)
    state.n_entries = 0
    slot = state.next
    process(state, 0, u64(words[0]), u64(words[1]), moment(state, words[2]), NO_LABEL, words[3])
    if state.next == slot or state.slots[slot - state.base].status != PENDING:
        return -1
    record = state.slots[slot - state.base]
    record.code, record.start, record.layout = words[4], words[5], words[6]
    record.n_row, record.n_key, record.n_words = words[7], words[8], words[9]
    record.score = values_at(packed.start + 80, 1)[0]
    return slot


@jit_holding_gil
def add_label(state, packed):
    """Process a single label.

    Parameters
    ----------
    packed
        Digest (two words), time or NOW, label by number.

    Returns
    -------
    int
        The kind of its entry in the journal, IN_TIME with the event in `found`; NOT_TAKEN if the learner has to learn
        other events first: then nothing has changed.
    """
    words = columns_at(packed.start, 4)
    low, high, time = u64(words[0]), u64(words[1]), moment(state, words[2])
    if needs_batch(state, low, high, time):
        return NOT_TAKEN
    slot = state.table[find(state, low, high)] - 1
    state.n_entries = 0
    process(state, 0, low, high, time, words[3], 0)
    for i in range(state.n_entries):
        kind = state.journal[i, KIND]
        if kind != TIMEOUT and kind != DROPPED:
            if kind == IN_TIME:
                record, found = state.slots[slot - state.base], state.found
                found[0], found[1], found[2] = slot, record.layout, record.start
                found[3], found[4] = record.n_row, record.n_words
            return kind
    return -1


_STATE = StateType(JOIN_TABLE.name)
ENTRY_POINTS = {
    "is_simple": EntryPoint(is_simple, (_STATE, PACKED)),
    "add_event": EntryPoint(add_event, (_STATE, PACKED)),
    "add_label": EntryPoint(add_label, (_STATE, PACKED)),
}
