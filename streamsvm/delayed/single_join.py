"""Join of single events and labels by compiled calls that hold the GIL."""

from __future__ import annotations

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, PACKED, StateType, inlined, jit_holding_gil
from streamsvm.delayed.digests import digest
from streamsvm.delayed.label_join import EARLY, JOIN_TABLE, NEVER, PENDING, expire, find_key, process

NOW = -NEVER
NOT_TAKEN = -2


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
def is_simple(state, key, n_key, time):
    """Return whether a single event makes the learner predict it and nothing else.

    Parameters
    ----------
    state
        The join table.
    key, n_key
        The key, filled up with zeros to a whole word, and its number of bytes.
    time
        Time or NOW.
    """
    low, high = digest(state, key.start, n_key)
    return not needs_batch(state, low, high, moment(state, time))


@jit_holding_gil
def process_one(state, key, n_key, time, label, n_words):
    """Process a single event (label -1, with n words of row and key) or label.

    The other arguments are as for `is_simple`.

    Returns
    -------
    int
        The number of entries in the journal; NOT_TAKEN if the learner has to learn other events first: then nothing has
        changed.
    """
    low, high = digest(state, key.start, n_key)
    time = moment(state, time)
    if needs_batch(state, low, high, time):
        return NOT_TAKEN
    state.n_entries = 0
    process(state, 0, low, high, time, label, state.event_bytes + state.word_bytes * n_words)
    return state.n_entries


@jit_holding_gil
def expire_events(state, time):
    """Expire events up to a time, and note them in the journal; return their number."""
    state.n_entries, state.clock = 0, max(state.clock, time)
    if state.wait != NEVER:
        expire(state, 0)
    return state.n_entries


_KEY = (StateType(JOIN_TABLE.name), PACKED, INTEGER, INTEGER)
ENTRY_POINTS = {
    "is_simple": EntryPoint(is_simple, _KEY),
    "process_one": EntryPoint(process_one, (*_KEY, INTEGER, INTEGER)),
    "expire_events": EntryPoint(expire_events, (_KEY[0], INTEGER)),
}
