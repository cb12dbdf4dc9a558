"""Join of single events and labels, by one call each that holds the interpreter lock."""

from __future__ import annotations

from streamsvm.core.access import PACKED, StateType, columns_at, values_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, jit_holding_gil
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import uint
from streamsvm.delayed.digests import digest
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
    expire,
    find,
    process,
)
from streamsvm.ensemble import vote
from streamsvm.ensemble.blend import blend_at
from streamsvm.features.scaler import SCALER
from streamsvm.online import driver
from streamsvm.online.batch import BATCH

NOW = -NEVER
NOT_TAKEN = -2


@inlined
def needs_batch(state, low, high, time):
    """Return whether an event or label makes the learner learn other events."""
    slots, slot, newest = state.slots, state.table[find(state, low, high)] - 1, max(time, state.clock)
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
    key, n_key
        The key, filled up with zeros to a whole word, and its number of bytes.
    time
        Time or NOW.
    """
    low, high = digest(state, key.start, n_key)
    return not needs_batch(state, low, high, moment(state, time))


@inlined
def store_event(state, low, high, time, n_row, n_key, n_words):
    """Process a simple event; return whether it is pending, plus 2 if others leave."""
    state.n_entries = 0
    slot = state.next
    size = state.event_bytes + state.word_bytes * (n_row + ((n_key + 7) >> 3))
    process(state, 0, low, high, time, NO_LABEL, size)
    is_pending = state.next > slot and state.slots[slot - state.base].status == PENDING
    if is_pending:
        record = state.slots[slot - state.base]
        record.n_row, record.n_key, record.n_words = n_row, n_key, n_words
    return int(is_pending) + 2 * int(state.n_entries > 1)


@inlined
def describe(state, layout, start, code, score):
    """Store what is known of the last event."""
    record = state.slots[state.next - 1 - state.base]
    record.layout, record.start, record.code, record.score = layout, start, code, score


@jit_holding_gil
def add_event(state, key, n_key, time, packed):
    """Process a simple event, which is stored at the end of the open segment.

    Parameters
    ----------
    key, n_key, time
        Arguments as for `is_simple`.
    packed
        Layout, start, n_row, n_words, predicted class, score.

    Returns
    -------
    int
        1 if the event is pending, plus 2 if other events leave.
    """
    words, (low, high) = columns_at(packed.start, 5), digest(state, key.start, n_key)
    found = store_event(state, low, high, moment(state, time), words[2], n_key, words[3])
    if found & 1:
        describe(state, words[0], words[1], words[4], values_at(packed.start + 40, 1)[0])
    return found


@inlined
def run_row(rows, batch, start, n, label):
    """Predict the row of the first n columns at an address, or learn it if it has a label.

    Return whether this was done; otherwise nothing has changed.
    """
    row = rows.row
    # Another thread holds the lock, or the memory was replaced or has to grow.
    if n == 0 or rows.held > 0 or n > row.size or rows.seen >= rows.room:
        return False
    values = values_at(start, n)
    for j in range(n):
        row[uint(j)] = values[uint(j)]
    batch.labels[0], batch.answering = label, int(label < 0)
    if batch.memories.size > 0:
        return vote.run_rows(blend_at(rows.learner), batch) == 1
    return driver.run_rows(rows, batch) == 1


@jit_holding_gil
def predict_event(state, rows, batch, row, key, n_key, time, layout, start, n_notes):
    """Predict and process a simple event.

    Parameters
    ----------
    state, rows
        Join table, and rows of the learner.
    batch
        Batch of this row, which gets the prediction.
    row
        Values of the first columns.
    key, n_key, time
        Arguments as for `is_simple`.
    layout, start
        Layout of the row, and position of its first word in the open segment.
    n_notes
        Number of words that are stored beside the probabilities.

    Returns
    -------
    int
        1 if the event is pending, plus 2 if other events leave; NOT_TAKEN if the event needs another call: then nothing
        has changed.
    """
    low, high = digest(state, key.start, n_key)
    time = moment(state, time)
    if needs_batch(state, low, high, time):
        return NOT_TAKEN
    memories, n_row = batch.memories, row.size >> 3
    for i in range(memories.size):
        memories[0, i] = 0
    if not run_row(rows, batch, row.start, n_row, -1):
        return NOT_TAKEN
    n_words = n_row + (key.size >> 3) + n_notes + batch.proba.shape[1] + memories.shape[1]
    found = store_event(state, low, high, time, n_row, n_key, n_words)
    if found & 1:
        describe(state, layout, start, batch.codes[0], batch.scores[0])
    return found


@jit_holding_gil
def learn_row(rows, batch, held, n_row, label):
    """Learn a row of the first columns, given with all words of its event; return False if nothing has changed."""
    memories = batch.memories
    stored = columns_at(held.start + (held.size - 8 * memories.size), memories.size)
    for i in range(memories.size):
        memories[0, i] = stored[i]
    return run_row(rows, batch, held.start, n_row, label)


@jit_holding_gil
def expire_events(state, time):
    """Expire events up to a time, and note them in the journal; return their number."""
    state.n_entries, state.clock = 0, max(state.clock, time)
    if state.wait != NEVER:
        expire(state, 0)
    return state.n_entries


@jit_holding_gil
def add_label(state, key, n_key, time, label):
    """Process a single label, given by its number.

    Returns
    -------
    int
        The kind of its entry in the journal, IN_TIME with the event in `found`; NOT_TAKEN if the learner has to learn
        other events first: then nothing has changed.
    """
    low, high = digest(state, key.start, n_key)
    time = moment(state, time)
    if needs_batch(state, low, high, time):
        return NOT_TAKEN
    slot = state.table[find(state, low, high)] - 1
    state.n_entries = 0
    process(state, 0, low, high, time, label, 0)
    for i in range(state.n_entries):
        kind = state.journal[i, KIND]
        if kind != TIMEOUT and kind != DROPPED:
            if kind == IN_TIME:
                record, found = state.slots[slot - state.base], state.found
                found[0], found[1], found[2] = slot, record.layout, record.start
                found[3], found[4], found[5] = record.n_row, record.n_words, state.n_entries
            return kind
    return -1


_STATE, _ROWS, _BATCH = StateType(JOIN_TABLE.name), StateType(SCALER.name), StateType(BATCH.name)
_KEY = (PACKED, INTEGER)
ENTRY_POINTS = {
    "is_simple": EntryPoint(is_simple, (_STATE, *_KEY, INTEGER)),
    "add_event": EntryPoint(add_event, (_STATE, *_KEY, INTEGER, PACKED)),
    "add_label": EntryPoint(add_label, (_STATE, *_KEY, INTEGER, INTEGER)),
    "predict_event": EntryPoint(
        predict_event, (_STATE, _ROWS, _BATCH, PACKED, *_KEY, INTEGER, INTEGER, INTEGER, INTEGER)
    ),
    "learn_row": EntryPoint(learn_row, (_ROWS, _BATCH, PACKED, INTEGER, INTEGER)),
    "expire_events": EntryPoint(expire_events, (_STATE, INTEGER)),
}
