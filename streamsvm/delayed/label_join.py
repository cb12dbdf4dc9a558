"""Join of events and labels by key, with the status of each.

Each event takes a *slot*, and so does each label whose event has not arrived. Slots are numbered in order of arrival
and never reused. The *ledger* stores for each slot the digest of its key, its status, the predicted class, the label,
and its arrival time.
The *table* maps a key to its slot: open addressing with linear probing and backward-shift deletion.

The clock is the newest time so far, so it never goes back. A slot arrives at the time of the clock, so slots expire in
order, independent of event times. An event expires when the clock is more than `wait` ahead. Expired and
labelled events are remembered for another `wait`. Beyond `most` pending slots, the oldest is dropped. Beyond
`most_bytes`, the oldest slot goes: pending slots are dropped, others forgotten. Bytes are counted event by event, so
the result does not depend on the batch size.

Keys are compared by 128 bits of SipHash with a secret key, so a collision is as unlikely as guessing a digest
(Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.access import StateType
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, kernel
from streamsvm.core.schema import Array, Number, Schema, i64, u64
from streamsvm.core.signatures import BYTES, INTEGER, INTEGERS, WORD_TABLE, WORDS
from streamsvm.core.simd import uint

# Status of a slot: forgotten; pending event; early label without event; labelled event; expired event.
GONE, WAITING, EARLY, ANSWERED, EXPIRED = range(5)

# Result for an event: it is pending; its label was early; its key is a duplicate.
# Result for a label: its event is pending; its event has not arrived; its event has expired; it repeats a label;
# it differs from a label in time; it differs from an early or late label.
WAITS, MEETS, DOUBLE, JOINS, COMES_EARLY, COMES_LATE, REPEATS, CORRECTS, DIFFERS = range(9)

NEVER = (1 << 63) - 1

LEDGER = Schema(
    "ledger",
    {
        "wait": Number("how long events wait", i64, start=NEVER),
        "most": Number("greatest number of pending slots", i64, start=NEVER),
        "most_bytes": Number("greatest number of bytes of all slots", i64, start=NEVER),
        "slot_bytes": Number("bytes per slot since the first remembered one", i64),
        "class_bytes": Number("bytes per pending event and class", i64),
        "n_classes": Number("number of classes", i64),
        "relearns": Number("whether labelled events keep their rows", i64),
        "held": Number("bytes of rows and keys of events", i64),
        "clock": Number("newest time so far", i64, start=-NEVER),
        "base": Number("first slot in the ledger", i64),
        "next": Number("next slot", i64),
        "first": Number("no earlier slot is pending", i64),
        "known": Number("all earlier slots are forgotten", i64),
        "n_waiting": Number("pending events", i64),
        "n_early": Number("early labels", i64),
        "n_known": Number("remembered slots", i64),
        "n_orphans": Number("early labels that expired", i64),
        "n_dropped": Number("dropped slots", i64),
        "n_left": Number("number of slots in `left`", i64),
        "digests": Array(("slots", "halves"), "digests of the keys", u64, external=True),
        "fates": Array(("slots",), "status of each slot", np.uint8, external=True),
        "codes": Array(("slots",), "predicted classes, -1 for none", np.int32, external=True),
        "labels": Array(("slots",), "labels by number, -1 for none", np.int32, external=True),
        "came": Array(("slots",), "clock at arrival", i64, external=True),
        "times": Array(("slots",), "times of events and labels", i64, external=True),
        "sizes": Array(("slots",), "bytes stored with each slot", np.int32, external=True),
        "table": Array(("places",), "1 + the slot at each place, 0 if free; size a power of two", i64, external=True),
        "left": Array(
            ("leaving",),
            "slots of expired events, and -1 - slots of dropped events",
            i64,
            external=True,
        ),
        "left_before": Array(("leaving",), "position in the batch before which each left", i64, external=True),
    },
)

# Keys ---------------------------------------------------------------------------------------------------------------


@inlined
def rotated(x, n):
    """Rotate a word to the left."""
    return (x << uint(n)) | (x >> uint(64 - n))


@inlined
def rounds(v0, v1, v2, v3, n):
    """Run `n` rounds of SipHash."""
    for _ in range(n):
        v0 += v1
        v1 = rotated(v1, 13) ^ v0
        v0 = rotated(v0, 32)
        v2 += v3
        v3 = rotated(v3, 16) ^ v2
        v0 += v3
        v3 = rotated(v3, 21) ^ v0
        v2 += v1
        v1 = rotated(v1, 17) ^ v2
        v2 = rotated(v2, 32)
    return v0, v1, v2, v3


@kernel
def digest(data, ends, secret, digests):
    """Compute 128-bit SipHash-2-4 of each string; the i-th has the bytes `ends[i - 1]:ends[i]`."""
    start = 0
    for i in range(ends.size):
        v0, v1 = secret[0] ^ uint(0x736F6D6570736575), secret[1] ^ uint(0x646F72616E646F6D) ^ uint(0xEE)
        v2, v3 = secret[0] ^ uint(0x6C7967656E657261), secret[1] ^ uint(0x7465646279746573)
        n = ends[i] - start
        for at in range(start, start + n - n % 8 + 1, 8):
            word, m = uint(0), min(8, start + n - at)
            for j in range(m):
                word |= uint(data[at + j]) << uint(8 * j)
            if m < 8:
                word |= uint(n & 255) << uint(56)
            v3 ^= word
            v0, v1, v2, v3 = rounds(v0, v1, v2, v3, 2)
            v0 ^= word
        v2 ^= uint(0xEE)
        v0, v1, v2, v3 = rounds(v0, v1, v2, v3, 4)
        digests[i, 0] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= uint(0xDD)
        v0, v1, v2, v3 = rounds(v0, v1, v2, v3, 4)
        digests[i, 1] = v0 ^ v1 ^ v2 ^ v3
        start = ends[i]


# Table --------------------------------------------------------------------------------------------------------------


@inlined
def home(state, low):
    """Return the preferred place of a digest."""
    return i64(low & uint(state.table.size - 1))


@inlined
def find(state, low, high):
    """Return the place of a key in the table, or the free place for it."""
    table, digests, base, mask = state.table, state.digests, state.base, state.table.size - 1
    place = home(state, low)
    while table[place] > 0:
        at = table[place] - 1 - base
        if digests[at, 0] == low and digests[at, 1] == high:
            break
        place = (place + 1) & mask
    return place


@kernel
def forget(state, slot):
    """Forget a slot, and close its gap in the table."""
    at, table, digests, base, mask = slot - state.base, state.table, state.digests, state.base, state.table.size - 1
    if state.fates[at] == ANSWERED and state.relearns:
        state.held -= state.sizes[at]
    state.fates[at] = GONE
    state.n_known -= 1
    gap = find(state, digests[at, 0], digests[at, 1])
    place = gap
    while True:
        place = (place + 1) & mask
        if table[place] == 0:
            break
        if ((place - home(state, digests[table[place] - 1 - base, 0])) & mask) >= ((place - gap) & mask):
            table[gap] = table[place]
            gap = place
    table[gap] = 0


@kernel
def fill_table(state):
    """Enter all remembered slots into an empty table."""
    for slot in range(state.known, state.next):
        at = slot - state.base
        if state.fates[at] != GONE:
            state.table[find(state, state.digests[at, 0], state.digests[at, 1])] = slot + 1


# Slots --------------------------------------------------------------------------------------------------------------


@inlined
def waits(state, slot):
    """Return whether a slot is pending."""
    fate = state.fates[slot - state.base]
    return fate in (WAITING, EARLY)


@inlined
def leave(state, slot, op):
    """Record that an event is no longer pending; a dropped event is recorded as -1 - slot."""
    state.left[state.n_left] = slot
    state.left_before[state.n_left] = op
    state.n_left += 1
    state.n_waiting -= 1
    state.held -= state.sizes[max(slot, -1 - slot) - state.base]


@kernel
def expire(state, op):
    """Expire slots whose time is up; return whether `left` had room for them."""
    if state.wait == NEVER:
        return True
    while state.first < state.next and state.clock - state.came[state.first - state.base] > state.wait:
        slot = state.first
        if state.fates[slot - state.base] == WAITING:
            if state.n_left == state.left.size:
                return False
            state.fates[slot - state.base] = EXPIRED
            leave(state, slot, op)
        elif state.fates[slot - state.base] == EARLY:
            forget(state, slot)
            state.n_early -= 1
            state.n_orphans += 1
        state.first += 1
    # Subtracted twice, because the sum of two waits may overflow.
    while state.known < state.first and state.clock - state.came[state.known - state.base] - state.wait > state.wait:
        if state.fates[state.known - state.base] != GONE:
            forget(state, state.known)
        state.known += 1
    return True


@kernel
def drop_oldest(state, op):
    """Drop the oldest pending slot; return whether `left` had room for it."""
    while not waits(state, state.first):
        state.first += 1
    slot = state.first
    if state.fates[slot - state.base] == EARLY:
        state.n_early -= 1
    elif state.n_left < state.left.size:
        leave(state, -1 - slot, op)
    else:
        return False
    forget(state, slot)
    state.n_dropped += 1
    return True


@inlined
def is_over(state):
    """Return whether slots exceed `most_bytes`."""
    return state.held + state.slot_bytes * (state.next - state.known) > state.most_bytes


@kernel
def shrink(state, op):
    """Drop or forget the oldest slots until the others fit; return whether `left` had room for them."""
    while is_over(state) and state.known < state.next:
        state.first = max(state.first, state.known)
        if waits(state, state.known):
            if not drop_oldest(state, op):
                return False
        elif state.fates[state.known - state.base] != GONE:
            forget(state, state.known)
        state.known += 1
    state.first = max(state.first, state.known)
    return True


@inlined
def take_slot(state, low, high, fate, label, time, size):
    """Take a new slot."""
    at = state.next - state.base
    state.sizes[at] = size
    if fate == WAITING or (fate == ANSWERED and state.relearns):
        state.held += size
    state.digests[at, 0], state.digests[at, 1] = low, high
    state.fates[at], state.codes[at], state.labels[at] = fate, -1, label
    state.came[at], state.times[at] = state.clock, time
    state.next += 1
    state.n_known += 1
    return state.next - 1


@inlined
def take_event(state, low, high, time, size):
    """Process an event; return its result, slot, early label (-1 for none) and lag."""
    place = find(state, low, high)
    slot = state.table[place] - 1
    if slot < 0:
        slot = take_slot(state, low, high, WAITING, -1, time, size)
        state.table[place] = slot + 1
        state.n_waiting += 1
        return WAITS, slot, -1, 0
    at = slot - state.base
    if state.fates[at] != EARLY:
        return DOUBLE, slot, -1, 0
    lag, new = state.times[at] - time, take_slot(state, low, high, ANSWERED, state.labels[at], time, size)
    state.fates[at] = GONE
    state.n_known -= 1
    state.n_early -= 1
    state.table[place] = new + 1
    return MEETS, new, state.labels[new - state.base], lag


@inlined
def take_label(state, low, high, label, time):
    """Process a label; return its result, the slot of its event or its own, and the lag."""
    place = find(state, low, high)
    slot = state.table[place] - 1
    if slot < 0:
        slot = take_slot(state, low, high, EARLY, label, time, 0)
        state.table[place] = slot + 1
        state.n_early += 1
        return COMES_EARLY, slot, 0
    at = slot - state.base
    fate, before, lag = state.fates[at], state.labels[at], time - state.times[at]
    if fate == WAITING:
        state.fates[at], state.labels[at] = ANSWERED, label
        state.n_waiting -= 1
        if not state.relearns:
            state.held -= state.sizes[at]
        return JOINS, slot, lag
    if fate == EARLY:
        return (REPEATS if before == label else DIFFERS), slot, lag
    state.labels[at] = label
    if before < 0:
        return COMES_LATE, slot, lag
    if before == label:
        return REPEATS, slot, lag
    return (CORRECTS if fate == ANSWERED else DIFFERS), slot, lag


@kernel
def settle(state, first, digests, times, labels, sizes, fates, slots, lags):
    """Process events (label -1) and labels in order from `first`, and find the result of each.

    An early label replaces the -1 of its event. Returns the number of processed entries, which is smaller than their
    number if `left` is full. The last entry may be processed while further slots still have to leave. The caller
    provides room for one slot per entry.
    """
    if not shrink(state, first):
        return first
    for op in range(first, times.size):
        state.clock = max(state.clock, times[op])
        if not expire(state, op) or state.n_left == state.left.size:
            return op
        low, high = digests[op, 0], digests[op, 1]
        if labels[op] < 0:
            fates[op], slots[op], labels[op], lags[op] = take_event(
                state, low, high, times[op], sizes[op] + state.class_bytes * state.n_classes
            )
        else:
            state.n_classes = max(state.n_classes, labels[op] + 1)
            fates[op], slots[op], lags[op] = take_label(state, low, high, labels[op], times[op])
        if state.n_waiting + state.n_early > state.most:
            drop_oldest(state, op + 1)
        if is_over(state) and not shrink(state, op + 1):
            return op + 1
    return times.size


_STATE = StateType(LEDGER.name)

ENTRY_POINTS = {
    "digest": EntryPoint(digest, (BYTES, INTEGERS, WORDS, WORD_TABLE)),
    "fill_table": EntryPoint(fill_table, (_STATE,)),
    "settle": EntryPoint(settle, (_STATE, INTEGER, WORD_TABLE, *(INTEGERS,) * 6)),
}
