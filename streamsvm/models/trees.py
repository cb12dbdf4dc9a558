"""Trees that add to the scores of classes, as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import check_names, decode_labels, encode_label, whole
from streamsvm.models.arrays import Model
from streamsvm.models.saved import Archived

# The arrays of an archive.
_ARRAYS: dict[str, Any] = {name: np.dtype(np.float64) for name in ("start", "threshold", "value")}
_ARRAYS |= dict.fromkeys(("roots", "outputs", "feature", "left", "right", "missing"), np.dtype(np.int64))


@dataclass(slots=True)
class Trees(Archived, Model):
    """Boosted trees, each of which adds to the score of a class.

    At an inner node a row goes left where its value is at most the threshold, right where it is larger, and to
    `missing` where it is missing.

    Parameters
    ----------
    classes
        The labels.
    n_columns
        Number of columns.
    start
        Initial scores, shape (n_classes,).
    roots, outputs
        Root node and class number of each tree, shape (n_trees,).
    feature, left, right, missing, threshold, value
        Column, next nodes (left is -1 at a leaf), threshold and leaf value of each node, shape (n_nodes,).

    Examples
    --------
    >>> stump = Trees(
    ...     ["low", "high"], 1, np.zeros(2), np.array([0]), np.array([1]), feature=np.array([0, 0, 0]),
    ...     left=np.array([1, -1, -1]), right=np.array([2, -1, -1]), missing=np.array([1, -1, -1]),
    ...     threshold=np.array([3.0, 0.0, 0.0]), value=np.array([0.0, -1.0, 1.0]),
    ... )
    >>> stump.predict(np.array([[1.0], [5.0], [np.nan]]))
    ['low', 'high', 'low']
    """

    classes: list[Any]
    n_columns: int
    start: NDArray[np.float64]
    roots: NDArray[np.int64]
    outputs: NDArray[np.int64]
    feature: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    missing: NDArray[np.int64]
    threshold: NDArray[np.float64]
    value: NDArray[np.float64]

    def __post_init__(self) -> None:
        n, (n_trees,) = len(self.left), self.roots.shape
        nodes = (self.feature, self.left, self.right, self.missing, self.threshold, self.value)
        if any(array.shape != (n,) for array in nodes) or self.outputs.shape != (n_trees,):
            raise ValueError("nodes, or trees, are described by arrays of several lengths")
        inner = np.flatnonzero(self.left >= 0)
        left, right, missing = (array[inner] for array in (self.left, self.right, self.missing))
        if not ((left > inner) & (right > inner) & (left < n) & (right < n)).all():
            raise ValueError("the nodes of a tree must follow one another")
        if not ((missing == left) | (missing == right)).all():
            raise ValueError("where a value is missing a row goes on to one of the two nodes that follow")
        named = ((self.roots, n), (self.outputs, len(self.classes)), (self.feature[inner], self.n_columns))
        if not all(((array >= 0) & (array < n_most)).all() for array, n_most in named):
            raise ValueError("trees name nodes, classes or columns that are not there")
        if len(met := np.concatenate([self.roots, left, right])) > len(np.unique(met)):
            raise ValueError("there must be one way to each node")
        if self.start.shape != (len(self.classes),) or np.isnan(self.threshold).any():
            raise ValueError("scores must begin with a number for each class, and no threshold may be NaN")
        if not (np.isfinite(self.start).all() and np.isfinite(self.value).all()):
            raise ValueError("scores must be finite")

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the score of every class, shape (n, n_classes), for raw rows.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.
        """
        scores, rows = np.tile(self.start, (len(X), 1)), np.arange(len(X))
        for root, output in zip(self.roots, self.outputs, strict=True):
            at = np.full(len(X), root)
            while (inner := self.left[at] >= 0).any():
                values = X[rows, self.feature[at]]
                follow = np.where(values <= self.threshold[at], self.left[at], self.right[at])
                at = np.where(inner, np.where(np.isnan(values), self.missing[at], follow), at)
            scores[:, output] += self.value[at]
        return scores

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Header and arrays of an archive."""
        header = {"class": "Trees", "classes": [encode_label(label) for label in self.classes]}
        return header | {"n_columns": self.n_columns}, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        check_names(arrays, set(_ARRAYS))
        for name, dtype in _ARRAYS.items():
            if arrays[name].dtype != dtype:
                raise ValueError(f"array {name!r} has type {arrays[name].dtype}")
        return cls(decode_labels(header["classes"]), whole(header["n_columns"]), **arrays)
