"""Building an index: random split of the rows, trees, and summaries of leaves.

On disk the folder is built under a temporary name, and renamed when it is complete. Incoming rows are first written to
a temporary file of blocks, so building takes twice the space of the index.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.extmath import row_norms

from connectors.events import SparseRows
from connectors.outputs.results import sync_directory
from streamsvm.batch.matrix import Floats, Ints, bytes_of, canonical, canonical_of, stack
from streamsvm.batch.metric_forest.blocks import (
    LEAF_BYTES,
    ROWS_FILE,
    TYPES,
    BlockFile,
    Contents,
    FileBlocks,
    floats,
    index_type_of,
    write_index,
)
from streamsvm.labels import is_label

# Minimum size of a leaf on disk, relative to its centroid, which stays in memory.
CENTROIDS = 32
# Bytes of a packet of rows in the temporary file, and minimum number of packets per shuffle.
PACKET_BYTES, PACKETS = 64 << 10, 64
# A tree, or a shuffle, takes at most 1 / PARTS of the memory.
PARTS = 8
# Maximum length of a row, because distances of leaves are in single precision.
LONGEST = 1e19


class Leaves:
    """Labels, ids, centroids and radii of the leaves of all trees."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.codes: list[Ints] = []
        self.ids: list[Ints] = []
        self.leaf_rows: list[int] = []
        self.centroids: list[Floats] = []
        self.radii: list[float] = []

    def add(self, X: Any, codes: Ints, ids: Ints, leaf: int) -> Iterator[Any]:
        """Grow a tree; yields the rows of its leaves in order."""
        for rows in grow(X, leaf, self.rng):
            self.codes.append(codes[rows])
            self.ids.append(ids[rows])
            of_leaf = X[rows]
            self._describe(of_leaf)
            yield of_leaf

    def _describe(self, rows: Any) -> None:
        rows = floats(rows)
        centroid: Any = np.asarray(rows.mean(axis=0), np.float32).ravel()
        inner = np.asarray(rows @ centroid, np.float64).ravel()
        squares = row_norms(rows, squared=True).astype(np.float64)
        away = squares - 2.0 * inner + float(centroid.astype(np.float64) @ centroid)
        self.leaf_rows.append(rows.shape[0])
        self.centroids.append(centroid)
        # The radius must remain a bound in spite of rounding in single precision.
        largest = float(squares.max(initial=0.0))
        self.radii.append(math.sqrt(max(0.0, float(away.max())) + 1e-5 * largest))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the index, by their names in the archive."""
        return {
            "codes": np.concatenate(self.codes),
            "ids": np.concatenate(self.ids),
            "centroids": np.array(self.centroids, np.float32),
            "radii": np.array(self.radii),
        }


class RandomSplit:
    """Random split of incoming rows into parts of equal size.

    When incoming rows fill a share of the memory, they are shuffled and written to a temporary file in packets. At the
    end each part receives its share of the packets of every shuffle.
    """

    def __init__(self, folder: Path, memory: int, rng: np.random.Generator) -> None:
        self.memory, self.rng = memory, rng
        self.file = BlockFile(folder / "waiting.bin", np.dtype("<u4"))
        self.numbers: dict[Any, int] = {}
        self.d = self.n = 0
        self._codes: list[Ints] = []
        self._ids: list[Ints] = []
        self._shuffles: list[int] = [0]
        self._waiting: list[Any] = []
        self._waiting_codes: list[Ints] = []
        self._waiting_bytes = 0

    def add(self, X: Any, y: Any) -> None:
        """Add rows, an array or CSR matrix of shape (n, d), and their n labels.

        Raises
        ------
        ValueError
            For rows of another kind or width than before, a different number of labels, or invalid rows or labels.
        """
        X = _checked(X)
        sparse = scipy.sparse.issparse(X)
        if self._waiting and sparse != scipy.sparse.issparse(self._waiting[-1]):
            raise ValueError("some batches are sparse and others dense: use one kind")
        if not sparse and self.d not in (0, X.shape[1]):
            raise ValueError(f"a batch has {X.shape[1]} columns after {self.d} before: use the same columns in all")
        labels = y.tolist() if isinstance(y, np.ndarray) else list(y)
        if len(labels) != X.shape[0]:
            raise ValueError(f"a batch has {X.shape[0]} rows and {len(labels)} labels: pass one label per row")
        n_known = len(self.numbers)
        codes = [self.numbers.setdefault(label, len(self.numbers)) for label in labels]
        if not all(map(is_label, islice(self.numbers, n_known, None))):
            raise ValueError("some labels are None or NaN: drop their rows")
        self._waiting_codes.append(_smallest(codes))
        self.d = max(self.d, X.shape[1])
        self.n += X.shape[0]
        self._waiting.append(X)
        self._waiting_bytes += bytes_of(X)
        if self._waiting_bytes >= self.memory // PARTS:
            self._shuffle()

    def _shuffle(self) -> None:
        if not self._waiting:
            return
        if scipy.sparse.issparse(self._waiting[0]):
            self._waiting = [canonical_of(X.data, X.indices, X.indptr, (X.shape[0], self.d)) for X in self._waiting]
        X, codes = stack(self._waiting, self.d), np.concatenate(self._waiting_codes)
        self._waiting.clear()
        self._waiting_codes.clear()
        order = self.rng.permutation(X.shape[0])
        self._codes.append(codes[order])
        self._ids.append(_smallest(self.n - X.shape[0] + order))
        n_packets = max(PACKETS, self._waiting_bytes // PACKET_BYTES)
        size = max(1, X.shape[0] // n_packets)
        for first in range(0, X.shape[0], PACKETS * size):
            self.file.write(X[order[first : first + PACKETS * size]], size)
        self._shuffles.append(self.file.n_blocks)
        self._waiting_bytes = 0

    def gather(self) -> FileBlocks:
        """End the input; returns the rows in the temporary file."""
        self._shuffle()
        self.file.sync()
        return FileBlocks(self.file.path, self.file.table, self.d, self.file.index_type)

    def deal(self, blocks: FileBlocks) -> Iterator[tuple[Any, Ints, Ints]]:
        """Yield the parts: rows, label codes, and ids."""
        codes, ids = np.concatenate(self._codes), np.concatenate(self._ids)
        self._codes.clear()
        self._ids.clear()
        n_parts = max(1, math.ceil(float(blocks.sizes_in_memory.sum()) / max(1, self.memory // PARTS)))
        dealt = np.concatenate([self.rng.permutation(np.arange(*ends)) for ends in pairwise(self._shuffles)])
        for k in range(n_parts):
            packets = np.sort(dealt[k::n_parts])
            if len(packets):
                rows = np.concatenate([np.arange(blocks.starts[i], blocks.starts[i + 1]) for i in packets])
                yield blocks.take(rows), codes[rows], ids[rows]

    def close(self) -> None:
        """Remove the temporary file."""
        self.file.close()
        self.file.path.unlink()


def build(
    path: Path,
    batches: Iterable[tuple[Any, Any]],
    header: Mapping[str, Any] = MappingProxyType({}),
    *,
    memory: int,
    n_sample: int = 40_000,
    random_state: int = 0,
) -> None:
    """Build an index in a new folder, or leave nothing behind.

    `header` has additional entries of the header, which may change while the batches are read. See
    `MetricForest.from_batches` for the other parameters.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or build the index elsewhere")
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    rng = np.random.default_rng(random_state)
    try:
        split = RandomSplit(work, memory, rng)
        with closing(split):
            for X, y in batches:
                split.add(X, y)
            write_index(work, _write_rows(work, split, Leaves(rng), n_sample), header)
        work.rename(path)
        sync_directory(path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_rows(folder: Path, split: RandomSplit, leaves: Leaves, n_sample: int) -> Contents:
    """Write the leaves of each tree, then a sample of all rows; return the index."""
    n, d = split.n, split.d
    if not n:
        raise ValueError("no rows to index")
    waiting, file = split.gather(), BlockFile(folder / ROWS_FILE, index_type_of(d))
    with closing(waiting), closing(file):
        row_bytes = max(1.0, split.file.n_bytes / n)
        leaf = math.ceil(max(LEAF_BYTES, CENTROIDS * 4 * d) / row_bytes)
        n_sample = min(n, n_sample, max(1, int(n * split.memory / (PARTS * waiting.sizes_in_memory.sum()))))
        sample = np.sort(leaves.rng.choice(n, n_sample, replace=False))
        sampled: list[Any] = []
        start = 0
        for part in split.deal(waiting):
            for X in leaves.add(*part, leaf):
                file.write(X, X.shape[0])
                ends = np.searchsorted(sample, [start, start + X.shape[0]])
                sampled.append(X[sample[slice(*ends)] - start])
                start += X.shape[0]
        file.write(stack(sampled, d), max(1, math.ceil(LEAF_BYTES / row_bytes)))
        file.sync()
    arrays = leaves.arrays() | {"blocks": file.table, "sample": sample}
    return Contents(list(split.numbers), d, file.n_bytes, arrays)


def _checked(X: Any) -> Any:
    """Return rows as an array or canonical CSR matrix of a supported type."""
    sparse = scipy.sparse.issparse(X)
    X = X.tocsr() if sparse else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"rows must be a table of two dimensions, got shape {X.shape}")
    if X.shape[1] == 0:
        raise ValueError("rows have no columns")
    if X.dtype not in TYPES:
        X = X.astype(np.float64)
    X = canonical(X) if sparse else X
    if not np.isfinite(X.data if sparse else X).all():
        raise ValueError("some values are missing or infinite: impute them, or drop their rows")
    with np.errstate(over="ignore"):
        largest = float(row_norms(X).max(initial=0.0)) if X.dtype.kind == "f" else 0.0
    if largest > LONGEST:
        raise ValueError(f"a row has length {largest:.3g}, more than {LONGEST:g}: scale its columns")
    return X


def _smallest(values: Any) -> NDArray[Any]:
    """Convert to the smallest unsigned type."""
    values = np.asarray(values)
    smallest: NDArray[Any] = values.astype(np.min_scalar_type(int(values.max(initial=0))))
    return smallest


def complete_rows(
    stream: Any, name: str, rejected: dict[str, int], progress: Callable[[int, float | None], Any] | None
) -> Iterator[tuple[Any, Any]]:
    """Yield batches of the complete rows of a source; count the others.

    Parameters
    ----------
    stream
        The open source.
    name
        Path or URL, for messages.
    rejected
        Number of rejected rows, which is updated.
    progress
        Called with the number of rows read, and the share of the source read or None if it is unknown.
    """
    n = 0
    for batch in stream:
        X, is_bad = _rows_of(batch.features, name)
        keep = np.flatnonzero(~is_bad & np.array([label is not None for label in batch.labels]))
        rejected["rejected"] += len(batch.rejected) + len(batch.labels) - len(keep)
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
                f"{source}: column {name!r} contains values that are not numbers ({error}): encode or ignore it"
            ) from None
    X = np.column_stack(columns)
    return X, ~np.isfinite(X).all(axis=1)


# Maximum children of a node.
WIDTH = 10


def grow(X: Any, leaf: int, rng: np.random.Generator) -> list[Ints]:
    """Split rows recursively by the nearest of WIDTH pivots.

    The distance is the angle between x and the line through the pivot, as in the quadratic embedding (x . p)^2 of Yen
    et al. Pivots are random rows. A pivot that is nearest to too few rows is dropped. In this metric x and -x are near,
    but the mean of a leaf has to represent its rows. A part is therefore also split by the sign of x . p if both sides
    are large enough.

    Returns
    -------
    list of ndarray
        The indices of the rows of each leaf, at least `leaf` of them.
    """
    n = X.shape[0]
    norms = np.sqrt(row_norms(floats(X), squared=True).astype(np.float64) + 1.0)
    leaves: list[Ints] = []
    pending = [np.arange(n)]
    while pending:
        rows = pending.pop()
        parts = _split(X, norms, rows, leaf, rng) if len(rows) >= 2 * leaf else []
        pending += parts
        if not parts:
            leaves.append(rows)
    return leaves


def _split(X: Any, norms: Floats, rows: Ints, leaf: int, rng: np.random.Generator) -> list[Ints]:
    """Split rows by the nearest of random pivots.

    The list is empty if no split leaves at least `leaf` rows in each part.
    """
    chosen = np.sort(rng.choice(rows, min(WIDTH, len(rows)), replace=False))
    P = X[chosen]
    inner = (floats(X[rows]) @ floats(P).T if not scipy.sparse.issparse(X) else (X[rows] @ P.T).toarray()) + 1.0
    similar = (inner / norms[chosen]) ** 2
    kept = np.arange(len(chosen))
    while len(kept) > 1:
        nearest = similar[:, kept].argmax(axis=1)
        counts = np.bincount(nearest, minlength=len(kept))
        if counts.min() >= leaf:
            is_ahead = np.take_along_axis(inner[:, kept], nearest[:, None], axis=1)[:, 0] > 0.0
            parts = []
            for k in range(len(kept)):
                ahead, behind = rows[(nearest == k) & is_ahead], rows[(nearest == k) & ~is_ahead]
                parts += [ahead, behind] if min(len(ahead), len(behind)) >= leaf else [rows[nearest == k]]
            return parts
        kept = np.delete(kept, counts.argmin())
    if len(rows) < 4 * leaf:
        return []
    # The rows are similar, so split them at the median angle to one pivot.
    ranked = rows[np.argsort(similar[:, kept[0]] / norms[rows] ** 2, kind="stable")]
    return np.array_split(ranked, 2)
