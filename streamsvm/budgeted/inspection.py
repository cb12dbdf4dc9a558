"""Support vectors of a state as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.core.state import State
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.space import FeatureSpace
from streamsvm.online.scaling import unscaled


def class_coefs(state: State, slots: Ints | None = None) -> Floats:
    """Return the coefficients V of n vectors, shape (heads, classes, n).

    The vectors are those in `slots`, by default all.
    """
    chosen = np.arange(int(state.n_vectors)) if slots is None else slots
    return state.split("coefs")[:, : int(state.n_classes), chosen].astype(float)


def nearest_vectors(
    state: State, rows: State, stats: State, space: FeatureSpace, classes: Sequence[Any], n: int, weights: Floats
) -> list[dict[str, Any]]:
    """Return at most n vectors, the most similar to the current event first.

    Parameters
    ----------
    state
        State of a kernel machine with the kernel values of the current event.
    rows
        Scaling of its values.
    stats
        Statistics of its columns.
    space
        Names of its columns.
    classes
        Labels.
    n
        Maximum number of vectors.
    weights
        Weights of heads for the label of a vector, shape (heads,).

    Returns
    -------
    list of dict
        The `similarity`, `label` and `features` of each vector, see `StreamSVMClassifier.nearest`.
    """
    found: list[dict[str, Any]] = []
    if state.n_vectors == 0:
        return found
    slots = most_like(state, n)
    for b, code in zip(slots.tolist(), labels_of_vectors(state, slots, weights), strict=True):
        vector = state.vectors[: len(space), b]
        columns = np.flatnonzero(vector)
        values = zip(columns.tolist(), unscaled(rows, stats, columns, vector[columns].astype(float)), strict=True)
        features = {space.names[j]: value for j, value in values if not (space.left_out and space.is_dead(j))}
        found.append({"similarity": float(state.kernel[b]), "label": classes[code], "features": features})
    return found


def most_like(state: State, n: int) -> Ints:
    """Return the slots of the n vectors most similar to the current event, in order."""
    similarity = state.kernel[: int(state.n_vectors)]
    near = np.arange(len(similarity))
    if n < len(near):
        near = np.flatnonzero(similarity >= np.partition(similarity, len(near) - n)[len(near) - n])
    return near[np.argsort(-similarity[near], kind="stable")[:n]]


def labels_of_vectors(state: State, slots: Ints, weights: Floats) -> list[int]:
    """Return the class of each vector: the one with the largest weighted coefficient."""
    weighted = (weights[:, None, None] * class_coefs(state, slots)).sum(axis=0)
    found: list[int] = (weighted[1] > 0.0).tolist() if len(weighted) == 2 else weighted.argmax(axis=0).tolist()
    return list(map(int, found))


def mark_touched(state: State) -> None:
    """Recompute the bit masks of nonzero columns."""
    vectors, touched = state.vectors, state.touched
    for first in range(0, len(vectors), 64):
        bits = vectors[first : first + 64] != 0.0
        shifts = np.arange(len(bits), dtype=np.uint64)[:, None]
        touched[:, first // 64] = np.bitwise_or.reduce(bits.astype(np.uint64) << shifts, axis=0)
