"""What is asked of many rows at once: the rows, their labels, and where the answers go. All learners take it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.jit import inlined
from streamsvm.core.schema import Array, Number, Schema, i64
from streamsvm.core.state import State

BATCH = Schema(
    "request",
    {
        "shared": Number("whether all rows have the columns of the first, as for `rows.load`", i64),
        "predicting": Number("whether rows are predicted, as somebody who takes heed of it would", i64),
        "unordered": Number("whether rows are only predicted, as a batch in no order", i64),
        "answering": Number("whether codes, and what else is asked for, are wanted", i64),
        "following": Number("whether what follows events is told of these", i64),
        "cached": Number("whether the first row is scaled already, and members have its scores", i64),
        "values": Array(
            ("entries",), "the entries of all rows; row i has those of indptr[i]:indptr[i + 1]", external=True
        ),
        "columns": Array(("entries",), "their columns", i64, external=True),
        "indptr": Array(("ends",), "where rows begin and end", i64, external=True),
        "labels": Array(("asked",), "a class for each row, -1 where unknown: it is not learned", i64, external=True),
        "weights": Array(("asked",), "how much its step weighs: none is made where that is 0", external=True),
        "codes": Array(("asked",), "the best class for each row, -1 where there is none", i64, external=True),
        "scores": Array(("scored",), "its probability, unless empty", external=True),
        "proba": Array(("scored", "asked_classes"), "the probabilities of so many classes", external=True),
        "apart": Array(
            ("apart",),
            "1 + the number of the memory rows share which are an event, predicted and learned later; 0 for others",
            i64,
            external=True,
        ),
        "memories": Array(("waiting", "memory"), "what was known when an event was predicted", i64, external=True),
    },
)


def one_event(values: NDArray[np.float64], columns: NDArray[np.int64]) -> State:
    """A request for a single event, whose values and columns come to stand in these arrays."""
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
    """Whether row i is to be learned."""
    return batch.labels[i] >= 0 and batch.weights[i] > 0.0


@inlined
def late_at(batch, i):
    """The memory of row i, where it is either predicted or learned, and others may be both at once; -1 for none."""
    return batch.apart[i] - 1 if batch.apart.size > 0 else -1


@inlined
def needs_proba(batch):
    """Whether anybody looks at the probabilities."""
    return batch.scores.size > 0 or batch.following > 0


@inlined
def answer(batch, i, best, proba, n):
    """The probability of the best of n classes for row i, and of as many classes, as far as they are asked for."""
    if batch.scores.size == 0:
        return
    batch.scores[i] = proba[best]
    out = batch.proba
    for c in range(min(n, out.shape[1])):
        out[i, c] = proba[c]
