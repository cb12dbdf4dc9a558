"""Join of single events and labels by compiled calls that hold the GIL.

States are passed by their addresses, because an integer takes a fifth of the time of a state as an argument.
"""

from __future__ import annotations

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, PACKED, columns_at, inlined, jit_holding_gil, state_at, uint, values_at
from streamsvm.decide.conformal_kernels import cover_row, covering_at, sets_at
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
    find_key,
    process,
)
from streamsvm.ensemble import vote
from streamsvm.ensemble.blend import batch_at, blend_at
from streamsvm.features.scaler import rows_at
from streamsvm.online import driver

NOW = -NEVER
NOT_TAKEN = -2
# A binding: addresses of the rows of a learner, of the batch of one row, which gets the prediction, and of the row of
# prediction sets, which gets the probabilities to be stored; address of the prediction sets, 0 for none; layout of the
# row, and number of words that are stored beside the probabilities.
ROWS, BATCH, COVERING, SETS, LAYOUT, NOTES, N_BOUND = range(7)
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
    found = store_event(state, low, high, moment(state, time), words[2], n_key, words[3])
    if found & 1:
        describe(state, words[0], words[1], words[4], values_at(packed.start + 40, 1)[0])
    return found


@inlined
def run_row(rows, batch, start, n, label):
    """Predict the row of n columns at an address, or learn it if it has a label.

    Return whether this was done; otherwise nothing has changed.
    """
    row = rows.row
    # Another thread holds the lock, or the memory was replaced or has to grow.
    if n == 0 or rows.held > 0 or n > row.size or rows.seen >= rows.room:
        return False
    values = values_at(start, n)
    for j in range(n):
        row[uint(j)] = values[uint(j)]
    batch.labels[0], batch.predicts = label, int(label < 0)
    if batch.memories.size > 0:
        return vote.run_rows(blend_at(rows.learner), batch) == 1
    return driver.run_rows(rows, batch) == 1


@inlined
def parts_of(binding):
    """Return rows and single-row batch of a learner, and its prediction sets' row."""
    numbers = columns_at(binding, 3)
    return rows_at(numbers[ROWS]), batch_at(numbers[BATCH]), covering_at(numbers[COVERING])


@inlined
def is_covered(sets, covering):
    """Return whether prediction sets are absent, or have thresholds by class."""
    if sets == 0:
        return True
    state = sets_at(sets)
    return state.n_groups >= (covering.proba.shape[1] if state.by_class > 0 else 1)


@inlined
def decide(sets, covering, proba):
    """Copy probabilities to the words to be stored, negated for set members."""
    packed, members = covering.proba, covering.members
    for c in range(packed.shape[1]):
        packed[0, c] = proba[0, c]
    if sets != 0:
        cover_row(sets_at(sets), covering, 0, -1)
        for c in range(packed.shape[1]):
            packed[0, c] = -packed[0, c] if members[0, c] else packed[0, c]


@jit_holding_gil
def predict_event(table, binding, row, key, n_key, time, start):
    """Predict and process a simple event.

    Parameters
    ----------
    table
        Address of the join table.
    binding
        Address of the binding of the learner.
    row
        Values of the first columns.
    key, n_key, time
        Arguments as for `is_simple`.
    start
        Position of the first word of the row in the open segment.

    Returns
    -------
    int
        1 if the event is pending, plus 2 if other events leave; NOT_TAKEN if the event needs another call: then nothing
        has changed.
    """
    state, (rows, batch, covering), bound = table_at(table), parts_of(binding), columns_at(binding, N_BOUND)
    low, high = digest(state, key.start, n_key)
    time, sets = moment(state, time), bound[SETS]
    if needs_batch(state, low, high, time) or not is_covered(sets, covering):
        return NOT_TAKEN
    memories, n_row = batch.memories, row.size >> 3
    for i in range(memories.size):
        memories[0, i] = 0
    if not run_row(rows, batch, row.start, n_row, -1):
        return NOT_TAKEN
    decide(sets, covering, batch.proba)
    n_words = n_row + (key.size >> 3) + bound[NOTES] + batch.proba.shape[1] + memories.shape[1]
    found = store_event(state, low, high, time, n_row, n_key, n_words)
    if found & 1:
        describe(state, bound[LAYOUT], start, batch.codes[0], batch.scores[0])
    return found


@jit_holding_gil
def learn_row(binding, held, n_row, n_key, label):
    """Learn a row of the first columns, and update the prediction sets.

    `held` has all words of the event.

    Return False if nothing has changed.
    """
    (rows, batch, covering), sets = parts_of(binding), columns_at(binding, N_BOUND)[SETS]
    memories, proba = batch.memories, covering.proba
    if not is_covered(sets, covering):
        return False
    stored = columns_at(held.start + (held.size - 8 * memories.size), memories.size)
    for i in range(memories.size):
        memories[0, i] = stored[i]
    if not run_row(rows, batch, held.start, n_row, label):
        return False
    if sets != 0:
        first, n = n_row + ((n_key + 7) >> 3), held.size >> 3
        shares = values_at(held.start + 8 * first, n - first - memories.size)
        for c in range(proba.shape[1]):
            proba[0, c] = abs(shares[c]) if c < shares.size else 0.0
        cover_row(sets_at(sets), covering, 0, label)
    return True


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
        The kind of its entry in the journal, IN_TIME with the event in `found`; NOT_TAKEN if the learner has to learn
        other events first: then nothing has changed.
    """
    state = table_at(table)
    low, high = digest(state, key.start, n_key)
    time = moment(state, time)
    if needs_batch(state, low, high, time):
        return NOT_TAKEN
    slot = state.table[find_key(state, low, high)] - 1
    state.n_entries = 0
    process(state, 0, low, high, time, label, 0)
    for i in range(state.n_entries):
        kind = state.journal[i, KIND]
        if kind != TIMEOUT and kind != DROPPED:
            if kind == IN_TIME:
                record, found = state.slots[slot - state.base], state.found
                found[0], found[1], found[2] = slot, record.layout, record.start
                found[3], found[4], found[5] = record.n_row, record.n_key, record.n_words
                found[6] = state.n_entries
            return kind
    return -1


_KEY = (INTEGER, PACKED, INTEGER, INTEGER)
ENTRY_POINTS = {
    "is_simple": EntryPoint(is_simple, _KEY),
    "add_event": EntryPoint(add_event, (*_KEY, PACKED)),
    "add_label": EntryPoint(add_label, (*_KEY, INTEGER)),
    "predict_event": EntryPoint(predict_event, (INTEGER, INTEGER, PACKED, *_KEY[1:], INTEGER)),
    "learn_row": EntryPoint(learn_row, (INTEGER, PACKED, INTEGER, INTEGER, INTEGER)),
    "expire_events": EntryPoint(expire_events, (INTEGER, INTEGER)),
}
