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


def complete_rows(
    stream: Any, name: str, rejected: dict[str, Any], progress: Callable[[int, float | None], Any] | None
) -> Iterator[tuple[Any, Any]]:
    """Yield batches of the complete rows of a source; count the others.

    Parameters
    ----------
    stream
        The open source.
    name
        Path or URL, for messages.
    rejected
        Number of rejected rows, and a description of the first ones; both are updated.
    progress
        Called with the number of rows read, and the share of the source read or None if it is unknown.
    """
    n, first = 0, rejected["first_rejected"]
    for batch in stream:
        X, is_bad = _rows_of(batch.features, name)
        has_label = np.array([label is not None for label in batch.labels])
        incomplete = np.flatnonzero(is_bad | ~has_label).tolist()
        found = [(one.reason, one.origin) for one in batch.rejected]
        found += [("a missing or infinite value" if has_label[i] else "no label", batch.origins[i]) for i in incomplete]
        rejected["rejected"] += len(found)
        for reason, origin in found[: REJECTED_KEPT - len(first)]:
            first.append({"reason": reason, "origin": {key: str(value) for key, value in origin.items()}})
        keep = np.flatnonzero(has_label & ~is_bad)
        n += len(keep)
        if len(keep):
            yield X[keep], [batch.labels[i] for i in keep]
        if progress is not None:
            progress(n, getattr(stream, "fraction", None))


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
