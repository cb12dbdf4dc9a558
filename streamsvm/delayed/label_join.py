"""Join of events and labels by key, with the status of each.

Each event takes a *slot*, and so does each label whose event has not arrived. Slots are numbered in order of arrival
and never reused. The *table* maps the digest of a key to its slot: open addressing with linear probing and
backward-shift deletion.

The clock is the newest time so far, so it never goes back. A slot arrives at the time of the clock, so slots expire in
order, independent of event times. An event expires when the clock is more than `wait` ahead. Expired and
labelled events are remembered for another `wait`. Beyond `most` pending slots, the oldest is dropped. Beyond
`most_bytes`, the oldest slot goes: pending slots are dropped, others forgotten. Bytes are counted event by event, so
the result does not depend on the batch size.
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGERS, WORD_TABLE, StateType, inlined, kernel, uint
from streamsvm.core.schema import Array, Number, Schema, i32, i64, u64

# Status of a slot: forgotten; pending event; early label without event; labelled event; expired event.
FORGOTTEN, PENDING, EARLY, LABELLED, EXPIRED = range(5)

# Kinds of journal entries.
# Events: pending; duplicate key; expired; dropped.
# Labels: of a pending event; before its event; of an expired event; repeated; different from a label in time; different
# from an early or late label. Only counted: an early label expired; an early label was dropped.
EVENT, DUPLICATE, TIMEOUT, DROPPED, IN_TIME, BEFORE, LATE, REPEATED, CORRECTED, DIFFERENT, UNMATCHED, LOST = range(12)
N_KINDS = 12
LABELS = (IN_TIME, BEFORE, LATE, REPEATED, CORRECTED, DIFFERENT)

NO_LABEL, TIMEOUT_LABEL = -1, -2
NEVER = (1 << 63) - 1

JOIN_TABLE = Schema(
    "join_table",
    {
        "wait": Number("how long events wait", i64, start=NEVER),
        "most": Number("greatest number of pending slots", i64, start=NEVER),
        "most_bytes": Number("greatest number of bytes of all slots", i64, start=NEVER),
        "slot_bytes": Number("bytes per slot since the first remembered one", i64),
        "class_bytes": Number("bytes per pending event and class", i64),
        "relearns": Number("whether labelled events keep their rows", i64),
        "learns_timeouts": Number("whether expired events are learned", i64),
        "word_bytes": Number("counted bytes per word of the row and the key of an event", i64),
        "event_bytes": Number("other bytes per pending event", i64),
        "secret_low": Number("first half of the secret of the digests", i64),
        "secret_high": Number("second half", i64),
        "base": Number("first slot in `slots`", i64),
        "n_bytes": Number("bytes of rows and keys of events", i64, saved=True),
        "n_classes": Number("number of classes", i64, saved=True),
        "clock": Number("newest time so far", i64, start=-NEVER, saved=True),
        "next": Number("next slot", i64, saved=True),
        "first": Number("no earlier slot is pending", i64, saved=True),
        "known": Number("all earlier slots are forgotten", i64, saved=True),
        "n_pending": Number("pending events", i64, saved=True),
        "n_early": Number("early labels", i64, saved=True),
        "n_known": Number("remembered slots", i64, saved=True),
        "n_entries": Number("number of entries in the journal", i64),
        "counts": Array(("kinds",), "number of journal entries of each kind since the start", i64, saved=True),
        "slots": Array(
            ("slots",),
            "events, and labels without event",
            external=True,
            fields={
                "low": Number("first half of the digest of the key", u64),
                "high": Number("second half", u64),
                "arrived": Number("clock at arrival", i64),
                "time": Number("time of the event or label", i64),
                "start": Number("first stored word in the segment", i64),
                "origin": Number("numbers that identify the origin", np.dtype((i64, 2))),
                "score": Number("probability of the prediction"),
                "code": Number("predicted class, -1 for none", i32),
                "label": Number("label by number, -1 for none", i32),
                "size": Number("counted bytes", i32),
                "status": Number("status", i32),
                "layout": Number("layout of the row", i32),
                "n_row": Number("number of words of the row", i32),
                "n_key": Number("number of bytes of the key", i32),
                "n_words": Number("number of words of row, key, probabilities and memory", i32),
            },
        ),
        "table": Array(("places",), "1 + the slot at each place, 0 if free; size a power of two", i64, external=True),
        "journal": Array(
            ("entries", "fields"),
            "kind, position in the batch, slot, label and label time minus event time of each entry, in order",
            i64,
            external=True,
        ),
        "found": Array(
            ("fields",),
            "slot, layout, start, n_row, n_key, n_words of the labelled event, and number of entries",
            i64,
            external=True,
        ),
    },
)
KIND, POSITION, SLOT, LABEL, LAG = range(5)
N_FIELDS = 5

# Table --------------------------------------------------------------------------------------------------------------


@inlined
def home(state, low):
    """Return the preferred place of a digest."""
    return i64(low & uint(state.table.size - 1))


@inlined
def find_key(state, low, high):
    """Return the place of a key in the table, or the free place for it."""
    table, slots, base, mask = state.table, state.slots, state.base, state.table.size - 1
    place = home(state, low)
    while table[place] > 0:
        slot = slots[table[place] - 1 - base]
        if slot.low == low and slot.high == high:
            break
        place = (place + 1) & mask
    return place


@kernel
def forget(state, slot):
    """Forget a slot, and close its gap in the table."""
    record, table, slots, base, mask = (
        state.slots[slot - state.base],
        state.table,
        state.slots,
        state.base,
        state.table.size - 1,
    )
    if record.status == LABELLED and state.relearns:
        state.n_bytes -= record.size
    record.status = FORGOTTEN
    state.n_known -= 1
    gap = find_key(state, record.low, record.high)
    place = gap
    while True:
        place = (place + 1) & mask
        if table[place] == 0:
            break
        if ((place - home(state, slots[table[place] - 1 - base].low)) & mask) >= ((place - gap) & mask):
            table[gap] = table[place]
            gap = place
    table[gap] = 0


@kernel
def fill_table(state):
    """Enter all remembered slots into an empty table."""
    for slot in range(state.known, state.next):
        record = state.slots[slot - state.base]
        if record.status != FORGOTTEN:
            state.table[find_key(state, record.low, record.high)] = slot + 1


# Slots --------------------------------------------------------------------------------------------------------------


@inlined
def write_entry(state, kind, op, slot, label, lag):
    """Write an entry to the journal and count it."""
    entry = state.journal[state.n_entries]
    entry[KIND], entry[POSITION], entry[SLOT], entry[LABEL], entry[LAG] = kind, op, slot, label, lag
    state.n_entries += 1
    state.counts[kind] += 1


@inlined
def end_pending(state, kind, op, slot):
    """Note that an event is no longer pending."""
    write_entry(state, kind, op, slot, TIMEOUT_LABEL, state.wait)
    state.n_pending -= 1
    state.n_bytes -= state.slots[slot - state.base].size


@kernel
def expire(state, op):
    """Expire slots whose time is up, and forget those whose time was up long ago."""
    while state.first < state.next and state.clock - state.slots[state.first - state.base].arrived > state.wait:
        record = state.slots[state.first - state.base]
        if record.status == PENDING:
            record.status = EXPIRED
            end_pending(state, TIMEOUT, op, state.first)
        elif record.status == EARLY:
            forget(state, state.first)
            state.n_early -= 1
            state.counts[UNMATCHED] += 1
        state.first += 1
    # Subtracted twice, because the sum of two waits may overflow.
    while (
        state.known < state.first
        and state.clock - state.slots[state.known - state.base].arrived - state.wait > state.wait
    ):
        if state.slots[state.known - state.base].status != FORGOTTEN:
            forget(state, state.known)
        state.known += 1


@kernel
def drop_oldest(state, op):
    """Drop the oldest pending slot."""
    while state.slots[state.first - state.base].status not in (PENDING, EARLY):
        state.first += 1
    if state.slots[state.first - state.base].status == PENDING:
        end_pending(state, DROPPED, op, state.first)
    else:
        state.n_early -= 1
        state.counts[LOST] += 1
    forget(state, state.first)


@kernel
def shrink(state, op):
    """Drop or forget the oldest slots until the others fit into `most_bytes`."""
    while state.known < state.next and (
        state.n_bytes + state.slot_bytes * (state.next - state.known) > state.most_bytes
    ):
        state.first = max(state.first, state.known)
        status = state.slots[state.known - state.base].status
        if status in (PENDING, EARLY):
            drop_oldest(state, op)
        elif status != FORGOTTEN:
            forget(state, state.known)
        state.known += 1
    state.first = max(state.first, state.known)


@inlined
def take_slot(state, place, low, high, status, label, time):
    """Take a new slot and enter it into the table."""
    slot = state.next
    record = state.slots[slot - state.base]
    record.low, record.high, record.status = low, high, status
    record.arrived, record.time, record.size = state.clock, time, 0
    record.label, record.code, record.score = label, -1, np.nan
    record.start = record.n_row = record.n_key = record.n_words = 0
    state.table[place] = slot + 1
    state.next += 1
    state.n_known += 1
    return slot


@inlined
def match(state, op, slot, label, time):
    """Match a pending event with its label."""
    record = state.slots[slot - state.base]
    record.status, record.label = LABELLED, label
    state.n_pending -= 1
    if not state.relearns:
        state.n_bytes -= record.size
    write_entry(state, IN_TIME, op, slot, label, time - record.time)


@inlined
def take_event(state, op, low, high, time, size):
    """Process an event."""
    place = find_key(state, low, high)
    early = state.table[place] - 1
    if early >= 0 and state.slots[early - state.base].status != EARLY:
        write_entry(state, DUPLICATE, op, -1, NO_LABEL, 0)
        return
    slot = take_slot(state, place, low, high, PENDING, NO_LABEL, time)
    state.slots[slot - state.base].size = size
    state.n_pending += 1
    state.n_bytes += size
    write_entry(state, EVENT, op, slot, NO_LABEL, 0)
    if early >= 0:
        record = state.slots[early - state.base]
        record.status = FORGOTTEN
        state.n_known -= 1
        state.n_early -= 1
        state.counts[BEFORE] -= 1
        match(state, op, slot, record.label, record.time)


@inlined
def take_label(state, op, low, high, label, time):
    """Process a label."""
    place = find_key(state, low, high)
    slot = state.table[place] - 1
    if slot < 0:
        slot = take_slot(state, place, low, high, EARLY, label, time)
        state.n_early += 1
        write_entry(state, BEFORE, op, slot, label, 0)
        return
    record = state.slots[slot - state.base]
    status, before, lag = record.status, record.label, time - record.time
    if status == PENDING:
        match(state, op, slot, label, time)
        return
    if status != EARLY:
        record.label = label
    if before < 0:
        kind = LATE
    elif before == label:
        kind = REPEATED
    else:
        kind = CORRECTED if status == LABELLED else DIFFERENT
    write_entry(state, kind, op, slot, label, lag)


@inlined
def process(state, op, low, high, time, label, size):
    """Process an event (label -1) or label."""
    state.clock = max(state.clock, time)
    if state.wait != NEVER:
        expire(state, op)
    if label < 0:
        take_event(state, op, low, high, time, size + state.class_bytes * state.n_classes)
    else:
        state.n_classes = max(state.n_classes, label + 1)
        take_label(state, op, low, high, label, time)
    if state.n_pending + state.n_early > state.most:
        drop_oldest(state, op + 1)
    shrink(state, op + 1)


@kernel
def run(state, digests, times, labels, sizes):
    """Process events (label -1) and labels in order; write the journal.

    The caller provides room for one slot per entry. The journal needs three entries per event or label, and one per
    pending event.
    """
    state.n_entries = 0
    for op in range(times.size):
        process(state, op, digests[op, 0], digests[op, 1], times[op], labels[op], sizes[op])


_STATE = StateType(JOIN_TABLE.name)

ENTRY_POINTS = {
    "fill_table": EntryPoint(fill_table, (_STATE,)),
    "run": EntryPoint(run, (_STATE, WORD_TABLE, INTEGERS, INTEGERS, INTEGERS)),
}
