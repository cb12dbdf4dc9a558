"""Join of single events and labels by compiled calls that hold the GIL.

States are passed by their addresses, because an integer takes a fifth of the time of a state as an argument.
"""

from __future__ import annotations

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, PACKED, columns_at, inlined, jit_holding_gil, state_at, values_at
from streamsvm.delayed.digests import digest
from streamsvm.delayed.label_join import (
    DROPPED,
    EARLY,
    JOIN_TABLE,
    KIND,
    NEVER,
    NO_LABEL,
    PENDING,
    TIMEOUT,
    expire,
    find_key,
    process,
)

NOW = -NEVER
NOT_TAKEN = -2
table_at = state_at(JOIN_TABLE)


@inlined
def needs_batch(state, low, high, time):
    """Return whether an event or label makes the learner learn other events."""
    slots, slot, newest = state.slots, state.table[find_key(state, low, high)] - 1, max(time, state.clock)
    if state.learns_timeouts:
        for at in range(state.first - state.base, state.next - state.base):
            if newest - slots[at].arrived <= state.wait:
                break
            if slots[at].status == PENDING:
                return True
    return slot >= 0 and slots[slot - state.base].status == EARLY


@inlined
def moment(state, time):
    """Return the time of an event or label."""
    return max(state.clock, 0) if time == NOW else time


@jit_holding_gil
def is_simple(table, key, n_key, time):
    """Return whether a single event makes the learner predict it and nothing else.

    Parameters
    ----------
    table
        Address of the join table.
    key, n_key
        The key, filled up with zeros to a whole word, and its number of bytes.
    time
        Time or NOW.
    """
    state = table_at(table)
    low, high = digest(state, key.start, n_key)
    return not needs_batch(state, low, high, moment(state, time))


@jit_holding_gil
def add_event(table, key, n_key, time, packed):
    """Process a simple event, which is stored at the end of the open segment.

    Parameters
    ----------
    table, key, n_key, time
        Arguments as for `is_simple`.
    packed
        Layout, start, n_row, n_words, predicted class, score.

    Returns
    -------
    int
        1 if the event is pending, plus 2 if other events leave.
    """
    state, words = table_at(table), columns_at(packed.start, 5)
    low, high = digest(state, key.start, n_key)
    slot, state.n_entries = state.next, 0
    size = state.event_bytes + state.word_bytes * (words[2] + ((n_key + 7) >> 3))
    process(state, 0, low, high, moment(state, time), NO_LABEL, size)
    is_pending = state.next > slot and state.slots[slot - state.base].status == PENDING
    if is_pending:
        record = state.slots[slot - state.base]
        record.layout, record.start, record.n_row, record.n_key, record.n_words = (
            words[0],
            words[1],
            words[2],
            n_key,
            words[3],
        )
        record.code, record.score = words[4], values_at(packed.start + 40, 1)[0]
    return int(is_pending) + 2 * int(state.n_entries > 1)


@jit_holding_gil
def expire_events(table, time):
    """Expire events up to a time, and note them in the journal; return their number."""
    state = table_at(table)
    state.n_entries, state.clock = 0, max(state.clock, time)
    if state.wait != NEVER:
        expire(state, 0)
    return state.n_entries


@jit_holding_gil
def add_label(table, key, n_key, time, label):
    """Process a single label, given by its number.

    Returns
    -------
    int
        The number of its entry in the journal; NOT_TAKEN if the learner has to learn other events first: then nothing
        has changed.
    """
    state = table_at(table)
    low, high = digest(state, key.start, n_key)
    time = moment(state, time)
    if needs_batch(state, low, high, time):
        return NOT_TAKEN
    state.n_entries = at = 0
    process(state, 0, low, high, time, label, 0)
    while state.journal[at, KIND] == TIMEOUT or state.journal[at, KIND] == DROPPED:
        at += 1
    return at


_KEY = (INTEGER, PACKED, INTEGER, INTEGER)
ENTRY_POINTS = {
    "is_simple": EntryPoint(is_simple, _KEY),
    "add_event": EntryPoint(add_event, (*_KEY, PACKED)),
    "add_label": EntryPoint(add_label, (*_KEY, INTEGER)),
    "expire_events": EntryPoint(expire_events, (INTEGER, INTEGER)),
}
