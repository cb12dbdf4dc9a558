"""Rows of a source, for building an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from connectors.events import SparseRows

# Maximum number of rejected rows that the header describes.
REJECTED_KEPT = 20


class SourceRows:
    """Iterator over batches of the complete rows of a source; counts the others.

    Parameters
    ----------
    stream
        The open source.
    name
        Path or URL, for messages.
    progress
        Called with the number of rows read, and the share of the source read or None if it is unknown.
    """

    def __init__(self, stream: Any, name: str, progress: Callable[[int, float | None], Any] | None) -> None:
        self._stream, self._name, self._progress = stream, name, progress
        self._n_rejected = 0
        self._first_rejected: list[dict[str, Any]] = []

    def header(self) -> dict[str, Any]:
        """Return the number of rejected rows, and a description of the first ones."""
        return {"rejected": self._n_rejected, "first_rejected": self._first_rejected}

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        n = 0
        for batch in self._stream:
            for one in batch.rejected:
                self._reject(one.reason, one.origin)
            X, is_bad = _rows_of(batch.features, self._name)
            has_label = np.array([label is not None for label in batch.labels])
            for i in np.flatnonzero(is_bad | ~has_label).tolist():
                self._reject("a missing or infinite value" if has_label[i] else "no label", batch.origins[i])
            keep = np.flatnonzero(has_label & ~is_bad)
            n += len(keep)
            if len(keep):
                yield X[keep], [batch.labels[i] for i in keep]
            if self._progress is not None:
                self._progress(n, getattr(self._stream, "fraction", None))

    def _reject(self, reason: str, origin: Any) -> None:
        self._n_rejected += 1
        if len(self._first_rejected) < REJECTED_KEPT:
            described = {key: str(value) for key, value in origin.items()}
            self._first_rejected.append({"reason": reason, "origin": described})


def _rows_of(features: Any, source: str) -> tuple[Any, NDArray[np.bool_]]:
    """Return the rows of a batch, and whether each has a missing or infinite value."""
    if isinstance(features, list):
        raise ValueError(f"{source}: rows of nested or changing fields cannot be indexed: write them as CSV or Parquet")
    if isinstance(features, SparseRows):
        width = int(features.indices.max(initial=0)) + 1
        X = scipy.sparse.csr_matrix(
            (np.asarray(features.values, np.float64), features.indices, features.indptr), shape=(len(features), width)
        )
        X.sum_duplicates()
        bad = np.zeros(X.shape[0], bool)
        bad[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~np.isfinite(X.data)]] = True
        return X, bad
    columns = []
    for name, column in features.items():
        try:
            columns.append(np.asarray(column, np.float64))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{source}: column {name!r} holds more than numbers ({error}): encode or ignore it"
            ) from None
    X = np.column_stack(columns)
    return X, ~np.isfinite(X).all(axis=1)
