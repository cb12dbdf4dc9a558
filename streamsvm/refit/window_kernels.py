"""Windows of a stream: which events are kept, and where.

Each event held has a *slot*: slots 0 ... held - 1 are in use, in no order, chained in order of arrival, all together
and class by class. Its values stand in the *arena*, an array of words of eight bytes, and so do its columns, two to a
word, unless they are 0 ... length - 1. Rows stand there in order of arrival, with gaps where some have left; where the
end is reached they move together. An eighth of the arena is spare, so an event pays for moving some seven times its own
words, at most. Where windows are balanced, it also pays for a look at the count of each class.

Where one event has to leave, it is the oldest; if `balanced`, the oldest of the class that has most, the new event
counted (of several the one whose oldest is oldest); and where `chances` are given, any one drawn from these instead.

An event counts as having come at the newest time known when it came. So times that jump back, or are missing, leave the
order of events alone, and one that is far ahead empties the window once and no more. Its time is up when the newest is
more than `span` ahead. Then it leaves; if `balanced`, only while its class holds more than its share: as many as there
are events whose time is not up, divided by the classes held, and at least one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streamsvm.core.access import StateType
from streamsvm.core.entry_points import Entry
from streamsvm.core.jit import brief, inlined, kernel
from streamsvm.core.state import Array, Declaration, Number, Part, i64, records, u64
from streamsvm.features.scaler import FAR, LEAST_UNTIED, ROWS, observe_rows
from streamsvm.polytope.kernels import draw

# What an event takes in a copy, beside its values; and as many words as there may ever be.
EVENT_WORDS, MOST_WORDS = 5, 1 << 60

COPY = Declaration(
    "window_copy",
    {
        "next": Number("the slot of the event that is copied next, -1 where there is none", i64, start=-1),
        "done": Number("how many have been", i64),
        "end": Number("where the values of the next begin", i64),
        "n_events": Number("how many there are", i64),
        "n_values": Number("the lengths of all rows", i64),
        "shared": Number("whether all rows have the same columns, which are not copied", i64),
        "n_columns": Number("all columns of rows that have been copied are among the first so many", i64),
        "words": Array(
            ("words",),
            "values, columns unless these are shared, where rows end, classes, how many came before, weights, times",
            lent=True,
        ),
        "integers": Array(("words",), "the same memory, for what is whole", i64, lent=True),
    },
)

WINDOW = Declaration(
    "window",
    {
        "n_most": Number("at most so many events are held", i64),
        "most_classes": Number("there is memory for so many classes", i64),
        "balanced": Number("whether the class that has most gives way", i64),
        "span": Number("events are held for so long", start=math.inf),
        "chances": Number(
            "0, or of how many chances each event held is one that another leaves for the new event", i64
        ),
        "capacity": Number("so many words may be taken by rows", i64),
        "is_largest": Number("whether the arena cannot grow", i64),
        "held": Number("events held", i64),
        "taken": Number("events that came", i64),
        "dropped": Number("events that left, or were not taken in, for want of memory", i64),
        "newest": Number("the newest time known", start=-math.inf),
        "first": Number("the slot of the oldest event, -1 where there is none", i64, start=-1),
        "last": Number("the slot of the newest", i64, start=-1),
        "in_time": Number("the slot of the oldest whose time is not up", i64, start=-1),
        "n_late": Number("how many came before it", i64),
        "end": Number("where the next row begins in the arena", i64),
        "live": Number("words taken by rows", i64),
        "n_values": Number("the lengths of all rows", i64),
        "n_squares": Number("their squares", i64),
        "n_listed": Number("how many list their columns", i64),
        "asked": Number("the capacity there must be before the next event", i64),
        "slots": records(
            ("slots",),
            "the events held",
            start=Number("where its row begins in the arena", i64),
            length=Number("how many values it has", i64),
            listed=Number("whether its columns are listed behind the values, else they are 0, 1, 2, ...", i64),
            code=Number("its class", i64),
            weight=Number("its weight"),
            time=Number("its time, NaN where it has none"),
            clock=Number("the newest time known when it came"),
            number=Number("how many came before it", i64),
            before=Number("the slot of the event held that came before it, -1 where there is none", i64),
            after=Number("of that which came after it", i64),
            class_before=Number("the same among its class", i64),
            class_after=Number("the same among its class", i64),
        ),
        "classes": records(
            ("classes",),
            "the classes",
            held=Number("events held", i64),
            late=Number("how many of them have their time up", i64),
            first=Number("the slot of the oldest, -1 where there is none", i64, start=-1),
            last=Number("the slot of the newest", i64, start=-1),
        ),
        "rng": Array(("generators",), "the state of the random numbers", u64),
        "values": Array(("words",), "the arena", lent=True),
        "columns": Array(("halves",), "the same memory, for columns", np.int32, lent=True),
        "copy": Part(COPY, "what was held when a copy was begun"),
    },
)


# Rows in the arena ------------------------------------------------------------------------------------------------


@inlined
def words(length, listed):
    """The words of a row."""
    return length + ((length + 1) >> 1 if listed else 0)


@inlined
def count_words(state, length, listed, n):
    """Take into account that there are n rows of a kind more."""
    state.live += n * words(length, listed)
    state.n_values += n * length
    state.n_squares += n * length * length
    state.n_listed += n * listed


@kernel
def measure(values, columns, start, end, skip):
    """How many values a row will have in the arena, and whether its columns will be listed.

    Where a row has a value or NaN for each of the first columns it stays as it is; of others NaN are left out.
    """
    n = end - start
    if n == 0 or columns[end - skip - 1] == n - 1:
        return n, 0
    kept, last = 0, -1
    for i in range(start, end):
        if not math.isnan(values[i]):
            kept += 1
            last = columns[i - skip]
    return kept, 0 if last == kept - 1 else 1


@kernel
def write_row(state, slot, values, columns, start, end, skip):
    """Copy a row into the arena, where its slot says."""
    own, out, listed = state.slots[slot], state.values, state.columns
    at, beside = own.start, 2 * (own.start + own.length)
    is_whole = own.length == end - start
    for i in range(start, end):
        if is_whole or not math.isnan(values[i]):
            out[at] = values[i]
            at += 1
            if own.listed:
                listed[beside] = columns[i - skip]
                beside += 1


@kernel
def compact(state, values, columns):
    """Move all rows together, into an arena that may be another."""
    old_values, old_columns, slots = state.values, state.columns, state.slots
    at, slot = 0, state.first
    while slot >= 0:
        own = slots[slot]
        start, length = own.start, own.length
        for i in range(length):
            values[at + i] = old_values[start + i]
        if own.listed:
            to, of = 2 * (at + length), 2 * (start + length)
            for i in range(length):
                columns[to + i] = old_columns[of + i]
        own.start = at
        at += words(length, own.listed)
        slot = own.after
    state.end = at


# Copies -----------------------------------------------------------------------------------------------------------


@brief
def begin_copy(state):
    """Begin to copy all that is held now, if there is memory of `copy_words`; returns whether there is."""
    copy = state.copy
    if copy.words.size < copy_words(state):
        return False
    copy.next, copy.done, copy.end, copy.n_columns = state.first, 0, 0, 0
    copy.n_events, copy.n_values, copy.shared = state.held, state.n_values, is_shared(state)
    copy.integers[listed_in_copy(copy) + copy.n_values] = 0
    return True


@brief
def copy_words(state):
    """The words of memory that a copy takes."""
    return state.n_values * (1 if is_shared(state) else 2) + EVENT_WORDS * state.held + 1


@brief
def copy_sizes(state):
    """How many events the copy has, the lengths of their rows, and whether these share their columns."""
    return state.copy.n_events, state.copy.n_values, state.copy.shared != 0


@inlined
def is_shared(state):
    """Whether all rows have the same columns: lengths are the same if their mean square is the square of their mean."""
    return state.n_listed == 0 and state.held * state.n_squares == state.n_values * state.n_values


@inlined
def listed_in_copy(copy):
    """How many columns it lists."""
    return 0 if copy.shared else copy.n_values


@brief
def copy_events(state, n_words):
    """Copy the next events, in order of arrival, until these are so many words or all; returns whether that is all."""
    copy, slot, n = state.copy, state.copy.next, state.copy.n_events
    ends = copy.n_values + listed_in_copy(copy) + 1
    while slot >= 0 and n_words > 0:
        own, k = state.slots[slot], ends + copy.done
        copy_row(state, own.start, own.length, own.listed)
        copy.integers[k], copy.integers[k + n], copy.integers[k + 2 * n] = copy.end, own.code, own.number
        copy.words[k + 3 * n], copy.words[k + 4 * n] = own.weight, own.time
        copy.done += 1
        n_words -= own.length + EVENT_WORDS
        slot = own.after if copy.done < n else -1
    copy.next = slot
    return slot < 0


@kernel
def copy_rest(state):
    """Copy all that is left."""
    copy_events(state, MOST_WORDS)


@inlined
def copy_row(state, start, length, listed):
    """Copy a row out of the arena, and its columns unless these are shared."""
    copy, to, beside = state.copy, state.copy.end, 2 * (start + length)
    columns = copy.n_values + to
    for i in range(length):
        copy.words[to + i] = state.values[start + i]
    for i in range(0 if copy.shared else length):
        copy.integers[columns + i] = state.columns[beside + i] if listed else i
    copy.end = to + length
    # Columns that came later in the batch a row came in have no value here, as if they were not.
    while length > 0 and math.isnan(copy.words[to + length - 1]):
        length -= 1
    if length > 0:
        last = state.columns[beside + length - 1] if listed else length - 1
        copy.n_columns = max(copy.n_columns, last + 1)


@inlined
def save_from(state, slot):
    """Have all copied that is to be, before an event leaves that has not been."""
    following = state.copy.next
    if following >= 0 and state.slots[slot].number >= state.slots[following].number:
        copy_events(state, MOST_WORDS)


# Chains of events -------------------------------------------------------------------------------------------------


@kernel
def place(state, slot, code, weight, time, clock, number, values, columns, start, end, skip):
    """Put the newest event into a free slot and at the end of the arena, where it fits."""
    own, group = state.slots[slot], state.classes[code]
    own.code, own.weight, own.time, own.clock, own.number = code, weight, time, clock, number
    length, listed = measure(values, columns, start, end, skip)
    own.start, own.length, own.listed = state.end, length, listed
    write_row(state, slot, values, columns, start, end, skip)
    state.end += words(length, listed)
    count_words(state, length, listed, 1)
    own.before, own.after, own.class_before, own.class_after = state.last, -1, group.last, -1
    if state.last >= 0:
        state.slots[state.last].after = slot
    else:
        state.first = slot
    if group.last >= 0:
        state.slots[group.last].class_after = slot
    else:
        group.first = slot
    if state.in_time < 0:
        state.in_time = slot
    state.last = group.last = slot
    group.held += 1
    state.held += 1


@inlined
def chain(state, slot, before, after):
    """Have those before and after an event point to these slots in place of its own: its neighbours', or a new one."""
    own, group = state.slots[slot], state.classes[state.slots[slot].code]
    if own.before >= 0:
        state.slots[own.before].after = after[0]
    else:
        state.first = after[0]
    if own.after >= 0:
        state.slots[own.after].before = before[0]
    else:
        state.last = before[0]
    if own.class_before >= 0:
        state.slots[own.class_before].class_after = after[1]
    else:
        group.first = after[1]
    if own.class_after >= 0:
        state.slots[own.class_after].class_before = before[1]
    else:
        group.last = before[1]


@kernel
def remove(state, slot):
    """Forget an event. The last slot in use becomes free: what it holds takes the place."""
    save_from(state, slot)
    own = state.slots[slot]
    group = state.classes[own.code]
    if state.in_time < 0 or own.number < state.slots[state.in_time].number:
        state.n_late -= 1
        group.late -= 1
    elif state.in_time == slot:
        state.in_time = own.after
    chain(state, slot, (own.before, own.class_before), (own.after, own.class_after))
    group.held -= 1
    state.held -= 1
    count_words(state, own.length, own.listed, -1)
    if slot < state.held:
        move(state, state.held, slot)


@kernel
def move(state, slot, to):
    """Give an event another slot."""
    own, new = state.slots[slot], state.slots[to]
    chain(state, slot, (to, to), (to, to))
    if state.in_time == slot:
        state.in_time = to
    if state.copy.next == slot:
        state.copy.next = to
    new.start, new.length, new.listed = own.start, own.length, own.listed
    new.code, new.weight, new.time, new.clock, new.number = own.code, own.weight, own.time, own.clock, own.number
    new.before, new.after, new.class_before, new.class_after = own.before, own.after, own.class_before, own.class_after


# Who leaves -------------------------------------------------------------------------------------------------------


@kernel
def fullest(state, code):
    """The class that has most, with one event more of class `code`; of several the one whose oldest is oldest."""
    best, most, oldest = -1, 0, 0
    for c in range(state.classes.size):
        group = state.classes[c]
        if group.held == 0:
            continue
        n, number = group.held + (c == code), state.slots[group.first].number
        if n > most or (n == most and number < oldest):
            best, most, oldest = c, n, number
    return best


@kernel
def next_to_leave(state, code):
    """The slot of the event that leaves for one of class `code`."""
    if not state.balanced:
        return draw(state.rng, state.held) if state.chances > 0 else state.first
    c = fullest(state, code)
    if state.chances == 0:
        return state.classes[c].first
    while True:  # the fullest class has its share of the slots, so this ends soon
        slot = draw(state.rng, state.held)
        if state.slots[slot].code == c:
            return slot


@kernel
def note_late(state):
    """See whose time is up."""
    while state.in_time >= 0 and state.newest - state.slots[state.in_time].clock > state.span:
        own = state.slots[state.in_time]
        state.classes[own.code].late += 1
        state.n_late += 1
        state.in_time = own.after


@kernel
def expire(state, code):
    """Let events leave whose time is up, before one of class `code` enters."""
    note_late(state)
    if not state.balanced:
        while state.n_late > 0:
            remove(state, state.first)
        return
    n_classes = 0
    for c in range(state.classes.size):
        n_classes += state.classes[c].held > 0 or c == code
    share = max((state.held - state.n_late + 1) // n_classes, 1)
    for c in range(state.classes.size):
        group = state.classes[c]
        while group.late > 0 and group.held + (c == code) > share:
            remove(state, group.first)


@kernel
def read_clock(state, time):
    """Bring the newest time known up to that of an event. Events before the first time known came at that."""
    if math.isfinite(time) and time > state.newest:
        if state.newest == -math.inf:
            for slot in range(state.held):
                state.slots[slot].clock = time
        state.newest = time


@kernel
def make_way(state, code, need):
    """Let leave what has to for an event of class `code` that takes so many words."""
    if state.span < math.inf:
        expire(state, code)
    if state.chances > 0:
        if draw(state.rng, state.chances) < state.held:
            remove(state, next_to_leave(state, code))
    elif state.held >= state.n_most:
        remove(state, next_to_leave(state, code))
    maintain(state, code, need)


@kernel
def maintain(state, code, need):
    """Let events leave until so many words for one of class `code` are within capacity."""
    while state.live + need > state.capacity and state.held > 0:
        remove(state, next_to_leave(state, code))
        state.dropped += 1


@kernel
def keep_latest(state, n):
    """Forget all but those that are among the last n that came."""
    while state.held > 0 and state.slots[state.first].number < state.taken - n:
        remove(state, state.first)


# Many events ------------------------------------------------------------------------------------------------------


@kernel
def add_rows(state, values, columns, indptr, shared, codes, weights, times, first, end):
    """Take in the rows first ... end - 1 that have a class and a weight.

    Returns `end`, or the row before which there must be more capacity: for its class, or for as many words as `asked`.
    """
    for i in range(first, end):
        code, start = codes[i], indptr[i]
        if code < 0 or not 0.0 < weights[i] < math.inf:
            continue
        skip = start if shared else 0
        length, listed = measure(values, columns, start, indptr[i + 1], skip)
        need = words(length, listed)
        if code < state.most_classes and code >= state.classes.size:
            return i
        if state.live + need > state.capacity and not state.is_largest:
            state.asked = state.live + need
            return i
        if code >= state.most_classes or need > state.capacity:
            state.dropped += 1
        else:
            read_clock(state, times[i])
            make_way(state, code, need)
            if state.end + need > state.values.size:
                compact(state, state.values, state.columns)
            time = times[i] if math.isfinite(times[i]) else math.nan
            place(
                state, state.held, code, weights[i], time, state.newest, state.taken,
                values, columns, start, indptr[i + 1], skip,
            )  # fmt: skip
        state.taken += 1
    return end


@brief
def add_row(state, values, columns, indptr, shared, codes, weights, times):
    """Take in a single row; returns whether there was capacity."""
    return add_rows(state, values, columns, indptr, shared, codes, weights, times, 0, 1) > 0


@kernel
def restore_rows(state, values, columns, indptr, shared, codes, weights, times, clocks, numbers, slots):
    """Put events, in order of arrival, into these slots of an empty window."""
    for i in range(codes.size):
        skip = indptr[i] if shared else 0
        place(
            state, slots[i], codes[i], weights[i], times[i], clocks[i], numbers[i],
            values, columns, indptr[i], indptr[i + 1], skip,
        )  # fmt: skip
    note_late(state)


@kernel
def count_outliers(statistics, values, columns, indptr, shared):
    """Take all rows into the statistics, and count the values that are outliers by these.

    As for scaled values, those of columns with many equal values are the farther off, the fewer they are.
    """
    observe_rows(statistics, values, columns, indptr, shared)
    n = 0
    for i in range(indptr.size - 1):
        skip = indptr[i] if shared else 0
        for k in range(indptr[i], indptr[i + 1]):
            j = columns[k - skip]
            z = (values[k] - statistics.shift[j]) * statistics.scale[j]
            n += abs(z) * math.sqrt(max(1.0 - statistics.ties[j], LEAST_UNTIED)) > FAR
    return n


_STATE = StateType(WINDOW.name)
_FLOATS, _INTS = types.float64[::1], types.int64[::1]
_ROWS = (_FLOATS, _INTS, _INTS, types.boolean)

ENTRIES = {
    "add_row": Entry(add_row, (_STATE, *_ROWS, _INTS, _FLOATS, _FLOATS)),
    "add_rows": Entry(add_rows, (_STATE, *_ROWS, _INTS, _FLOATS, _FLOATS, types.int64, types.int64)),
    "restore_rows": Entry(restore_rows, (_STATE, *_ROWS, _INTS, _FLOATS, _FLOATS, _FLOATS, _INTS, _INTS)),
    "begin_copy": Entry(begin_copy, (_STATE,)),
    "copy_words": Entry(copy_words, (_STATE,)),
    "copy_sizes": Entry(copy_sizes, (_STATE,)),
    "copy_events": Entry(copy_events, (_STATE, types.int64)),
    "copy_rest": Entry(copy_rest, (_STATE,)),
    "compact": Entry(compact, (_STATE, _FLOATS, types.int32[::1])),
    "maintain": Entry(maintain, (_STATE, types.int64, types.int64)),
    "count_outliers": Entry(count_outliers, (StateType(ROWS.name), *_ROWS)),
    "keep_latest": Entry(keep_latest, (_STATE, types.int64)),
}
