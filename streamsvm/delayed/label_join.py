"""Which label belongs to which event: keys, and what has become of each.

Each event, and each label whose event has not come, takes a *slot*: slots are numbered in order of arrival, for ever.
Of a slot the *ledger* holds the digest of its key, what has become of it, the predicted class, the label, and when it
came.
The *table* finds the slot of a key: open addressing with linear probing, where removing closes the gap.

Time is a clock that never goes back: the newest time that has come. A slot has come at the time that the clock showed
then, so slots expire in their own order, whatever the order of times. An event waits for its label until the clock is
more than `wait` ahead; then it is expired, and remembered for as long again, with those that have had their label.
Where more are to wait than may, the oldest is dropped. Where what is known takes more bytes than it may, the oldest
slot goes: one that waits is dropped, any other is forgotten. Bytes are counted event by event, as they come, so that
what goes does not depend on how many are taken at a time.

Keys are told apart by 128 bits of SipHash under a secret key: for another key to have the same is as unlikely as to
guess it (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.access import StateType
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, kernel
from streamsvm.core.schema import Array, Number, Schema, i64, u64
from streamsvm.core.signatures import BYTES, INTEGER, INTEGERS, WORD_TABLE, WORDS
from streamsvm.core.simd import uint

# What has become of a slot: forgotten; an event, or a label without its event, that waits; an event that has had its
# label; one that has waited too long.
GONE, WAITING, EARLY, ANSWERED, EXPIRED = range(5)

# What becomes of an event that comes: it waits; its label was there already; its key is another's.
# Of a label: its event waits; its event has not come; its event has expired; it is the label its event has had; it is
# another one than its event had in time; it is another one, of an event that did not come or had expired.
WAITS, MEETS, DOUBLE, JOINS, COMES_EARLY, COMES_LATE, REPEATS, CORRECTS, DIFFERS = range(9)

NEVER = (1 << 63) - 1

LEDGER = Schema(
    "ledger",
    {
        "wait": Number("for so long events wait", i64, start=NEVER),
        "most": Number("so many slots may wait", i64, start=NEVER),
        "most_bytes": Number("so many bytes all slots may take", i64, start=NEVER),
        "slot_bytes": Number("what any slot takes that is not forgotten, or stands between such", i64),
        "class_bytes": Number("what an event that waits takes for each class there is", i64),
        "n_classes": Number("classes that there are", i64),
        "relearns": Number("whether an event takes as much after its label came", i64),
        "held": Number("bytes of rows, keys and the like of events", i64),
        "clock": Number("the newest time that has come", i64, start=-NEVER),
        "base": Number("the slot that stands first in the ledger", i64),
        "next": Number("the next slot", i64),
        "first": Number("no slot before it waits", i64),
        "known": Number("all slots before it are forgotten", i64),
        "n_waiting": Number("events that wait", i64),
        "n_early": Number("labels that wait", i64),
        "n_known": Number("slots that are not forgotten", i64),
        "n_orphans": Number("labels that have waited too long", i64),
        "n_dropped": Number("slots that had to give way to others", i64),
        "n_left": Number("slots among `left`", i64),
        "digests": Array(("slots", "halves"), "of the keys", u64, external=True),
        "fates": Array(("slots",), "what has become of each", np.uint8, external=True),
        "codes": Array(("slots",), "the predicted classes, -1 for none", np.int32, external=True),
        "labels": Array(("slots",), "the labels by number, -1 where there is none", np.int32, external=True),
        "came": Array(("slots",), "what the clock showed", i64, external=True),
        "times": Array(("slots",), "their own times", i64, external=True),
        "sizes": Array(("slots",), "the bytes of what waits with each", np.int32, external=True),
        "table": Array(
            ("places",), "1 + the slot at each place, 0 where there is none; a power of two", i64, external=True
        ),
        "left": Array(
            ("leaving",),
            "the slots of events that expired, and -1 - those of events that were dropped",
            i64,
            external=True,
        ),
        "left_before": Array(("leaving",), "before which of the events and labels of the batch", i64, external=True),
    },
)

# Keys ---------------------------------------------------------------------------------------------------------------


@inlined
def rotated(x, n):
    """A word, rotated to the left."""
    return (x << uint(n)) | (x >> uint(64 - n))


@inlined
def rounds(v0, v1, v2, v3, n):
    """So many rounds of SipHash."""
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
    """SipHash-2-4 with 128 bits of each text: the i-th has the bytes from ends[i - 1] to before ends[i]."""
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


# The table ----------------------------------------------------------------------------------------------------------


@inlined
def home(state, low):
    """Where a digest is looked for first."""
    return i64(low & uint(state.table.size - 1))


@inlined
def find(state, low, high):
    """The place of a key in the table, or the free place where it belongs."""
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
    """Forget a slot, and close the gap that it leaves in the table."""
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
    """Enter all slots that are not forgotten into an empty table."""
    for slot in range(state.known, state.next):
        at = slot - state.base
        if state.fates[at] != GONE:
            state.table[find(state, state.digests[at, 0], state.digests[at, 1])] = slot + 1


# What becomes of slots ----------------------------------------------------------------------------------------------


@inlined
def waits(state, slot):
    """Whether a slot waits."""
    fate = state.fates[slot - state.base]
    return fate in (WAITING, EARLY)


@inlined
def leave(state, slot, op):
    """Note that an event waits no longer; where it was dropped, instead of its slot -1 - that."""
    state.left[state.n_left] = slot
    state.left_before[state.n_left] = op
    state.n_left += 1
    state.n_waiting -= 1
    state.held -= state.sizes[max(slot, -1 - slot) - state.base]


@kernel
def expire(state, op):
    """Let slots go whose time is up; whether there was room to say which."""
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
    # Twice, as two waits may be more than there is.
    while state.known < state.first and state.clock - state.came[state.known - state.base] - state.wait > state.wait:
        if state.fates[state.known - state.base] != GONE:
            forget(state, state.known)
        state.known += 1
    return True


@kernel
def drop_oldest(state, op):
    """Drop the oldest slot that waits; whether there was room to say which."""
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
    """Whether what is known takes more bytes than it may."""
    return state.held + state.slot_bytes * (state.next - state.known) > state.most_bytes


@kernel
def shrink(state, op):
    """Let the oldest slots go until the others fit; whether there was room to say which."""
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
    """A new slot."""
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
    """An event comes: what becomes of it, its slot, its label, where that was there before, and how late that is."""
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
    """A label comes: what becomes of it, the slot of its event, or its own, and how late it is."""
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
    """Let events (of label -1) and labels come in turn, from `first` on, and find what becomes of each.

    Of events whose label was there before that takes the place of the -1. Returns how many are done: fewer than all
    where there is no more room for those that leave, and all where others have to leave yet. There must be room for as
    many slots.
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
