"""Join of single events and labels, by one call each that holds the interpreter lock."""

from __future__ import annotations

import math

from streamsvm.core.access import PACKED, StateType, address_of, columns_at, element_address, values_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import call_pointer, inlined, jit_holding_gil
from streamsvm.core.schema import u64
from streamsvm.core.signatures import INTEGER
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
from streamsvm.features.scaler import SCALER
from streamsvm.online import driver

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
def is_simple(state, packed):
    """Return whether a single event makes the learner predict it and nothing else.

    Parameters
    ----------
    packed
        Digest (two words), time or NOW.
    """
    words = columns_at(packed.start, 3)
    return not needs_batch(state, u64(words[0]), u64(words[1]), moment(state, words[2]))


@inlined
def store_event(state, words, code, score):
    """Process a simple event, given as for `add_event`; return whether it is pending."""
    state.n_entries = 0
    slot = state.next
    process(state, 0, u64(words[0]), u64(words[1]), moment(state, words[2]), NO_LABEL, words[3])
    if state.next == slot or state.slots[slot - state.base].status != PENDING:
        return False
    record = state.slots[slot - state.base]
    record.code, record.start, record.layout = code, words[4], words[5]
    record.n_row, record.n_key, record.n_words = words[6], words[7], words[8]
    record.score = score
    return True


@jit_holding_gil
def add_event(state, packed):
    """Process a simple event, which is stored at the end of the open segment.

    Parameters
    ----------
    packed
        Digest (two words), time or NOW, counted bytes, start, layout, n_row, n_key, n_words, predicted class, score.

    Returns
    -------
    bool
        Whether the event is pending.
    """
    words = columns_at(packed.start, 10)
    return store_event(state, words, words[9], values_at(packed.start + 80, 1)[0])


@inlined
def run_row(rows, row, label):
    """Predict a row of the first columns, and learn it if it has a label, as `driver.run_rows` does.

    Returns
    -------
    int
        The best class, -1 if no class is known; NOT_TAKEN if nothing has changed.
    """
    n = driver.put(rows, row)
    if n <= 0:
        return NOT_TAKEN
    rows.at, rows.weight, rows.label = 0, 1.0, label
    rows.answering, rows.following, rows.telling = 1, 0, 1
    places = element_address(rows.row, 0), element_address(rows.all_rows, 0)
    call_pointer(rows.drive, (address_of(rows), places[0], places[1], n, 1))
    return rows.best if rows.best >= -1 else NOT_TAKEN


@jit_holding_gil
def predict_event(state, rows, packed, row):
    """Predict and process a simple event of a learner without memory of predictions.

    Parameters
    ----------
    state, rows
        Join table, and rows of the learner.
    packed
        Arguments as for `add_event`. Instead of class and score, the number of classes, and the address to which the
        score and the probabilities of these classes are written.
    row
        Values of the first columns.

    Returns
    -------
    int
        The predicted class; NOT_TAKEN - 2 - class if the event is not pending; NOT_TAKEN if the event needs another
        call: then nothing has changed.
    """
    words = columns_at(packed.start, 11)
    if needs_batch(state, u64(words[0]), u64(words[1]), moment(state, words[2])):
        return NOT_TAKEN
    best = run_row(rows, row, -1)
    if best == NOT_TAKEN:
        return best
    n_classes = words[9]
    found = values_at(words[10], 1 + n_classes)
    found[0] = rows.proba[best] if best >= 0 else math.nan
    for c in range(n_classes):
        found[1 + c] = rows.proba[c] if best >= 0 and c < rows.n_shares else 0.0
    return best if store_event(state, words, best, found[0]) else NOT_TAKEN - 2 - best


@jit_holding_gil
def learn_row(rows, row, label):
    """Learn a row of the first columns; return NOT_TAKEN if nothing has changed."""
    return run_row(rows, row, label)


@jit_holding_gil
def expire_events(state, packed):
    """Expire events up to a time, and note them in the journal; return their number."""
    state.n_entries, state.clock = 0, max(state.clock, columns_at(packed.start, 1)[0])
    if state.wait != NEVER:
        expire(state, 0)
    return state.n_entries


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


_STATE, _ROWS = StateType(JOIN_TABLE.name), StateType(SCALER.name)
ENTRY_POINTS = {
    "is_simple": EntryPoint(is_simple, (_STATE, PACKED)),
    "add_event": EntryPoint(add_event, (_STATE, PACKED)),
    "add_label": EntryPoint(add_label, (_STATE, PACKED)),
    "predict_event": EntryPoint(predict_event, (_STATE, _ROWS, PACKED, PACKED)),
    "learn_row": EntryPoint(learn_row, (_ROWS, PACKED, INTEGER)),
    "expire_events": EntryPoint(expire_events, (_STATE, PACKED)),
}
