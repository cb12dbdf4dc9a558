"""Entry points of all online learners, for single events and batches of rows.

They are compiled once for all learners. A learner exports `step`, which predicts and learns the current event, and
`drive`, which scales an event and calls `step`. Both are compiled separately and called by the addresses in `rows`.
"""

from __future__ import annotations

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import (
    INTEGER,
    NUMBER,
    PACKED,
    StateType,
    address_of,
    call_pointer,
    columns_at,
    element_address,
    inlined,
    jit_holding_gil,
    kernel,
    packed_values,
    shares_of,
    uint,
    values_at,
)
from streamsvm.features.scaler import CALLBACK, PREDICT, PROBA, SCALER, rows_at
from streamsvm.features.statistics import observe_current_row
from streamsvm.features.transform import load_row
from streamsvm.online.batch import BATCH, is_learned, write_proba

# Return value of `unpack` if it copies no values.
NOT_TAKEN = -(1 << 62)


def drive(address, values_address, columns_address, n, shared):
    """Scale an event, predict it, and learn it if it has a label.

    The statistics are updated with learned events.
    """
    rows = rows_at(address)
    values, columns = values_at(values_address, n), columns_at(columns_address, n)
    m = load_row(rows, values, columns)
    if m < 0:
        rows.best = m - 1
        return
    call_pointer(rows.step, (rows.learner,))
    if rows.label >= 0:
        observe_current_row(rows, values, columns)


@inlined
def unpack(rows, packed):
    """Copy the packed values of a single event into the learner's memory.

    If there are no packed values, a thread that holds the lock has already written them. They are values of the first
    `row_length` columns, or of the listed ones.

    Returns
    -------
    int
        The number of values; -1 - n for n values of listed columns; NOT_TAKEN if another thread holds the lock, or the
        memory was replaced or has to grow.
    """
    values, row = packed_values(packed), rows.row
    n = values.size
    if n == 0:
        listed = rows.listed
        rows.listed = 0
        return -listed if listed > 0 else rows.row_length
    if rows.held > 0 or n > row.size or rows.seen >= rows.room:
        return NOT_TAKEN
    for j in range(n):
        row[uint(j)] = values[uint(j)]
    return n


@jit_holding_gil
def event(address, packed, label, weight):
    """Predict a single event, or learn it if `label` is a class.

    Parameters
    ----------
    address
        Address of the memory of rows, which Python passes faster than the memory. The caller keeps the memory alive.
    packed
        Packed values, or none if they have already been written.
    label
        A class to learn, PREDICT for a prediction, or PROBA or CALLBACK for a prediction with probabilities.
    weight
        Weight of the event.

    Returns
    -------
    int
        For a prediction the best class, or -1 without classes. After learning 0, or 1 if a column of missing values is
        due (`opening`). A number below -1 means that nothing has changed: -2 - i if value i cannot be used, and -2 if
        `unpack` copied no values. Probabilities are in `proba`, after learning only if there is a callback.
    """
    rows = rows_at(address)
    n = unpack(rows, packed)
    if n == NOT_TAKEN:
        return -2
    rows.request, rows.label, rows.weight, rows.at = label, max(label, -1), weight, 0
    rows.calls_back = int(rows.callback != 0 and (label >= 0 or label <= CALLBACK))
    rows.needs_proba = int(label < PREDICT or rows.calls_back > 0)
    shared = n >= 0
    columns = element_address(rows.all_rows if shared else rows.row_columns, 0)
    call_pointer(rows.drive, (address, element_address(rows.row, 0), columns, n if shared else -1 - n, int(shared)))
    return rows.best if label < 0 or rows.best < -1 else rows.opening


@jit_holding_gil
def event_proba(address, packed):
    """Return the class probabilities of an event, or none if it cannot be used."""
    rows, known = rows_at(address), event(address, packed, PROBA, 1.0) >= 0
    return shares_of(rows.proba, rows.n_shares if known else 0)


@kernel
def run_rows(rows, batch):
    """Predict and learn rows in order, up to the first that cannot be used.

    It stops after a row that asks for a column of missing values. Returns the number of processed rows.
    """
    values, columns, indptr, shared = batch.values, batch.columns, batch.indptr, batch.shared > 0
    rows.needs_proba, rows.calls_back = int(batch.scores.size > 0), 0
    for i in range(batch.first, indptr.size - 1):
        start, end = indptr[i], indptr[i + 1]
        rows.at, rows.weight = i, batch.weights[i]
        rows.label = batch.labels[i] if is_learned(batch, i) else -1
        places = element_address(values, start), element_address(columns, 0 if shared else start)
        call_pointer(rows.drive, (address_of(rows), places[0], places[1], end - start, batch.shared))
        if rows.best < -1:
            return i
        if batch.predicts:
            batch.codes[i] = rows.best
            if rows.best >= 0:
                write_proba(batch, i, rows.best, rows.proba, rows.n_shares)
        if rows.opening > 0:
            return i + 1
    return indptr.size - 1


_SCALER = StateType(SCALER.name)

ENTRY_POINTS = {
    "drive": EntryPoint(drive, (INTEGER,) * 5),
    "event": EntryPoint(event, (INTEGER, PACKED, INTEGER, NUMBER)),
    "event_proba": EntryPoint(event_proba, (INTEGER, PACKED)),
    "run_rows": EntryPoint(run_rows, (_SCALER, StateType(BATCH.name))),
}
