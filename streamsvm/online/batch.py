"""Batch of rows of a call, and minibatch of scaled rows for an ensemble.

The members share the minibatch, which also has their scores. The kernels of a member export `run_member(state, block,
i, cached)`, compiled separately; `state` and `block` are addresses. It scores the rows of the block unless they are
cached, and learns the rows with a label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.jit import inlined, uint
from streamsvm.core.schema import Array, Number, Schema, address, i64, records
from streamsvm.core.state import State
from streamsvm.features.scaler import current_row

BATCH = Schema(
    "batch",
    {
        "shared": Number("whether all rows list the columns of the first row", i64),
        "notes": Number("whether label autocorrelation notes the predictions, as with `predict_one`", i64),
        "unordered": Number("whether rows are only predicted, and their order has no meaning", i64),
        "predicts": Number("whether to write codes, scores and probabilities", i64),
        "first": Number("first row to process", i64),
        "cached": Number("whether the first row is already scaled and scored by the members", i64),
        "values": Array(("entries",), "values of all rows; row i is values[indptr[i]:indptr[i + 1]]", external=True),
        "columns": Array(("entries",), "column of each value", i64, external=True),
        "indptr": Array(("ends",), "boundaries of the rows, as in CSR", i64, external=True),
        "labels": Array(("rows",), "class of each row; -1 for rows that are not learned", i64, external=True),
        "weights": Array(("rows",), "weight of each row; rows of weight 0 are not learned", external=True),
        "codes": Array(("rows",), "predicted class of each row, -1 if no class is known", i64, external=True),
        "scores": Array(("scored",), "probability of the predicted class; empty if not requested", external=True),
        "proba": Array(("scored", "asked_classes"), "probabilities of the first `asked_classes`", external=True),
        "memory_rows": Array(
            ("memory_rows",),
            "1 + index in `memories` of a row with a delayed label, predicted or learned here; 0 for others",
            i64,
            external=True,
        ),
        "memories": Array(("waiting", "memory"), "state stored when an event is predicted", i64, external=True),
    },
)


def one_event(values: NDArray[np.float64], columns: NDArray[np.int64]) -> State:
    """Create a batch of a single event that reads from the given arrays."""
    batch = State(BATCH)
    batch.bind(
        values=values,
        columns=columns,
        indptr=np.zeros(2, i64),
        labels=np.zeros(1, i64),
        weights=np.zeros(1),
        codes=np.zeros(1, i64),
        scores=np.zeros(0),
        proba=np.zeros((0, 0)),
        memory_rows=np.zeros(0, i64),
        memories=np.zeros((0, 0), i64),
    )
    return batch


@inlined
def is_learned(batch, i):
    """Return whether row i has a label and a positive weight."""
    return batch.labels[i] >= 0 and batch.weights[i] > 0.0


@inlined
def late_at(batch, i):
    """Return the index in `memories` of row i if its label is delayed, else -1."""
    return batch.memory_rows[i] - 1 if batch.memory_rows.size > 0 else -1


@inlined
def write_proba(batch, i, best, proba, n):
    """Write the requested probabilities of row i, given its predicted class among n."""
    if batch.scores.size == 0:
        return
    batch.scores[i] = proba[best]
    out = batch.proba
    for c in range(min(n, out.shape[1])):
        out[i, c] = proba[c]


# Minibatch ----------------------------------------------------------------------------------------------------------

MINIBATCH = Schema(
    "block",
    {
        "first": Number("position of the first row in the batch", i64),
        "n_rows": Number("number of rows; -1 - i if value i of the first row cannot be used", i64),
        "rows": records(
            ("block",),
            "the rows",
            start=Number("position of its first pair", i64),
            n_pairs=Number("number of standardised pairs", i64),
            in_order=Number("whether the standardised pairs are of weight rows 0, 1, 2, ...", i64),
            n_ranked=Number("number of ranked pairs", i64),
            n_codes=Number("number of codes, from slot `start` on", i64),
            seen=Number("number of events learned before"),
            key=Number("hash of the row, see `notes.row_key`"),
            label=Number("class, or -1 if the row is not learned", i64),
            weight=Number("sample weight"),
            late=Number("whether other events were learned between its prediction and its label", i64),
        ),
        "weight_rows": Array(("ways", "pairs"), "weight rows of standardised and ranked pairs", i64),
        "scaled": Array(("ways", "pairs"), "scaled value of each pair"),
        "slots": Array(("pairs",), "slots of the codes, see `ensemble.codes`", i64),
        "scores": Array(("block", "experts*classes"), "scores of all experts for each row"),
        "members": records(
            ("members",),
            "the members",
            state=address("state of the member"),
            run=address("address of `run_member`"),
            way=Number("0 for standardised values, 1 for ranks", i64),
            first=Number("number of its first head among all heads", i64),
            n_heads=Number("number of heads", i64),
        ),
    },
)


@inlined
def keep_pairs(block, way, at, rows, m):
    """Copy the m pairs of the current row into the block, from position `at` on."""
    event_rows, values = current_row(rows)
    kept_rows, kept = block.weight_rows, block.scaled
    for i in range(m):
        kept[way, uint(at + i)] = values[uint(i)]
    if not rows.in_order:
        for i in range(m):
            kept_rows[way, uint(at + i)] = event_rows[uint(i)]


@inlined
def load_cached_row(block, k, way, rows):
    """Make row k of the block a member's current row; returns the number of pairs.

    Pairs of columns beyond the member's memory are dropped.
    """
    row = block.rows[k]
    kept_rows, kept = block.weight_rows, block.scaled
    taken, taken_rows = rows.scaled, rows.own_rows
    at, m = row.start, row.n_ranked if way else row.n_pairs
    if row.in_order and not way:
        rows.in_order, m = 1, min(m, taken.size)
    else:
        rows.in_order = 0
        while m > 0 and kept_rows[way, at + m - 1] >= taken.size:
            m -= 1
        for i in range(m):
            taken_rows[uint(i)] = kept_rows[way, uint(at + i)]
    for i in range(m):
        taken[uint(i)] = kept[way, uint(at + i)]
    rows.n_pairs = m
    return m


@inlined
def keep_scores(block, k, i, scores):
    """Copy the scores of member i for row k into the block, one head after another."""
    member = block.members[i]
    kept = block.scores
    at = member.first * (scores.size // member.n_heads)
    for c in range(scores.size):
        kept[k, uint(at + c)] = scores[uint(c)]
