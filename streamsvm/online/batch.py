"""Batch of rows for an online learner: features, labels, weights and outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.jit import inlined
from streamsvm.core.schema import Array, Number, Schema, i64
from streamsvm.core.state import State

BATCH = Schema(
    "request",
    {
        "shared": Number("whether all rows list the columns of the first row, as in `rows.load`", i64),
        "predicting": Number("whether predictions are recorded, as `predict_one` records them", i64),
        "unordered": Number("whether rows are only predicted, and their order has no meaning", i64),
        "answering": Number("whether to write codes, scores and probabilities", i64),
        "following": Number("whether to call the callback for each row", i64),
        "cached": Number("whether the first row is already scaled and scored by the members", i64),
        "values": Array(("entries",), "values of all rows; row i is values[indptr[i]:indptr[i + 1]]", external=True),
        "columns": Array(("entries",), "column of each value", i64, external=True),
        "indptr": Array(("ends",), "boundaries of the rows, as in CSR", i64, external=True),
        "labels": Array(("asked",), "class of each row; -1 for rows that are not learned", i64, external=True),
        "weights": Array(("asked",), "weight of each row; rows of weight 0 are not learned", external=True),
        "codes": Array(("asked",), "predicted class of each row, -1 if no class is known", i64, external=True),
        "scores": Array(("scored",), "probability of the predicted class; empty if not requested", external=True),
        "proba": Array(("scored", "asked_classes"), "probabilities of the first `asked_classes`", external=True),
        "apart": Array(
            ("apart",),
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
        apart=np.zeros(0, i64),
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
    return batch.apart[i] - 1 if batch.apart.size > 0 else -1


@inlined
def needs_proba(batch):
    """Return whether probabilities are an output or an argument of the callback."""
    return batch.scores.size > 0 or batch.following > 0


@inlined
def answer(batch, i, best, proba, n):
    """Write the requested probabilities of row i, given its predicted class among n."""
    if batch.scores.size == 0:
        return
    batch.scores[i] = proba[best]
    out = batch.proba
    for c in range(min(n, out.shape[1])):
        out[i, c] = proba[c]
