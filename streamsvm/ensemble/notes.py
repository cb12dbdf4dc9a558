"""Notes of predicted events: the labels known at each prediction, until learning."""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import inlined, kernel, uint

# Number of previous labels in the longest context.
LAGS = 3
# Rate of the decayed share of equal rows that are separate events.
DISTINCT_RATE = 1.0 / 16.0
# Maximum number of notes.
NOTES = 1024
# Results of `recall` besides an index: the current labels apply, or the labels are unknown.
NOW, UNKNOWN = -1, -2


@kernel
def row_key(values, columns, present):
    """Return a hash of a row, without missing values, zeros and columns never seen."""
    bits = values.view(np.uint64)
    key = uint(14695981039346656037)
    for i in range(values.size):
        column = uint(columns[uint(i)])
        if values[uint(i)] != 0.0 and values[uint(i)] == values[uint(i)] and present[column] > 0.0:
            key = (key ^ bits[uint(i)] ^ (column << uint(1))) * uint(1099511628211)
            key ^= key >> uint(29)
    return float(key >> uint(12))


@inlined
def has_room(state):
    """Return whether there is memory for another note.

    The memory grows up to NOTES notes and is a ring buffer from then on.
    """
    return state.oldest + state.n_notes < state.keys.size or state.keys.size == NOTES


@kernel
def add_note(state, key):
    """Record a prediction together with the labels known now."""
    n, oldest, n_fresh = state.n_notes, state.oldest, state.n_fresh
    if state.n_learned > 0 and n_fresh > 0 and n > 0 and state.keys[(oldest + n - 1) % NOTES] == key:
        return
    state.n_fresh = min(n_fresh + 1, NOTES)
    at = (oldest + n) % NOTES
    if n == NOTES:
        state.oldest = (oldest + 1) % NOTES
        if n_fresh < NOTES:
            state.n_lost += 1
    else:
        state.n_notes = n + 1
    state.keys[at], state.made[at], state.left[at] = key, state.n_learned, 0
    for k in range(LAGS):
        state.noted[at, k] = state.recent[k]


@kernel
def recall(state, key):
    """Find the note that applies to a learned event.

    Returns
    -------
    int
        Index of the note; NOW if the current labels apply, because the event was not predicted since the last label;
        UNKNOWN if its note may be lost.
    """
    first = find_note(state, key, False)
    if first < 0:
        return UNKNOWN if state.n_notes > 0 and state.n_lost > 0 and may_wait(state) else NOW
    return first if state.distinct > 0.5 else find_note(state, key, True)


@inlined
def may_wait(state):
    """Return whether an event may have been predicted though its note is lost."""
    if state.made[state.oldest] == 0 and state.n_fresh == 0:
        return False
    return state.n_fresh < NOTES


@inlined
def find_note(state, key, newest):
    """Return the index of the oldest or newest note of an event, or -1."""
    n, oldest = state.n_notes, state.oldest
    for i in range(n):
        at = (oldest + (n - 1 - i if newest else i)) % NOTES
        if state.keys[at] == key:
            return at
    return -1


@inlined
def same_labels(state, at):
    """Return whether the labels of a note are the current ones."""
    same = True
    for k in range(LAGS):
        same &= state.noted[at, k] == state.recent[k]
    return same


@inlined
def n_before(state, at):
    """Return the number of earlier notes made after the same number of labels."""
    n, made, slot = 0, state.made[at], at
    while slot != state.oldest:
        slot = (slot + NOTES - 1) % NOTES
        if state.made[slot] != made:
            break
        n += 1
    return float(n)


@kernel
def drop(state, key):
    """Remove the oldest note of a learned event, and all earlier notes.

    Labels arrive in the order of events, so earlier notes are obsolete. Removed notes that waited while an equal row
    was learned update `distinct`.
    """
    n, oldest, at = state.n_notes, state.oldest, find_note(state, key, False)
    is_fresh = (find_note(state, key, True) - oldest) % NOTES >= n - state.n_fresh
    n_dropped = (at - oldest) % NOTES + 1
    for i in range(n):
        slot = (oldest + i) % NOTES
        if i >= n_dropped:
            if state.keys[slot] == key:
                state.left[slot] = 1
            continue
        if state.left[slot] and not (slot == at and is_fresh):
            state.distinct += DISTINCT_RATE * ((1.0 if slot == at else 0.0) - state.distinct)
        state.keys[slot], state.made[slot], state.left[slot] = 0.0, 0, 0
        for k in range(LAGS):
            state.noted[slot, k] = 0
    state.n_lost = n - 1
    state.n_notes = n - n_dropped
    state.oldest = (at + 1) % NOTES if n_dropped < n else 0
