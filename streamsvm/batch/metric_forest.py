"""Rows on disk or in memory, those that lie near one another side by side, and a search for those near a hyperplane.

An index on disk is a folder with two files. `rows.bin` holds blocks of rows one after the other: the leaves of the
trees in order, then a uniform sample of all rows. A block is an array in C order, or the three arrays of a CSR matrix
(row starts as int64, columns, values), little-endian, values in the smallest type that holds them. `index.svm` is an
archive of streamsvm (see `streamsvm.models`): the JSON header has "class", "n_columns", "classes", "n_leaves",
"order" and "rows_bytes", and the arrays are

    block_offset, block_rows, block_filled, block_kind, block_crc     one a block: where it begins, how many rows and
                                        values, the number of its types in TYPES (negative: CSR), zlib's CRC-32
    codes, ids                          one a row: the number of its label, and of the row in its source
    sample                              positions of the sampled rows
    centroids, radii                    one a leaf: mean of its rows, and how far from it they are at most
    pivots, children                    one a node, a tree after the other from its root: a unit vector (the constant
                                        last), and the range of its children; [-1 - leaf, 0] for a leaf
    roots                               one a tree

The folder is built under another name and renamed when all is on disk.
"""

from __future__ import annotations

import heapq
import math
import os
import shutil
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import connectors
from connectors.events import SparseRows
from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.batch.rows import slice_of, squares_of, stack
from streamsvm.models import ArchiveError, decode_label, encode_label, read_archive, write_archive

TYPES = ("<u1", "<i1", "<i2", "<f4", "<f8")
ROWS_FILE, INDEX_FILE = "rows.bin", "index.svm"
# A leaf has at least so many bytes on disk, as reading less at once is slow, and so many rows in memory.
LEAF_BYTES, LEAF_ROWS = 256 << 10, 64
# Neighbouring blocks are read at once up to so many bytes.
READ_BYTES = 4 << 20
# A score that stands for those of a block that was left out.
FAR = 1e30
# So many rejected rows are described in the header.
REJECTED_KEPT = 20


class Nearest(NamedTuple):
    """Rows near a hyperplane.

    Parameters
    ----------
    positions
        Of the rows, the nearest first.
    distances
        |w . x + b| of each.
    n_rows, n_leaves
        How many were touched to find them.
    """

    positions: Ints
    distances: Floats
    n_rows: int
    n_leaves: int


class Blocks(Protocol):
    """Where blocks of rows are."""

    bytes_read: int

    def read(self, first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        """Rows of blocks first to last - 1, some at once: the first of them, the one after the last, and the rows."""

    def block(self, i: int) -> Any:
        """Rows of one block, which may be asked for again."""


class MemoryBlocks:
    """Blocks of an array or CSR matrix."""

    def __init__(self, X: Any, starts: Ints) -> None:
        self.X, self.starts = X, starts
        self.bytes_read = 0

    def read(self, first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        for i in range(first, last):
            yield i, i + 1, self.block(i)

    def block(self, i: int) -> Any:
        part = slice(int(self.starts[i]), int(self.starts[i + 1]))
        return slice_of(self.X, part) if scipy.sparse.issparse(self.X) else self.X[part]


class FileBlocks:
    """Blocks of `rows.bin`, read at their offsets and checked; those asked for one by one are kept, least recent out.

    Parameters
    ----------
    memory
        How many bytes of blocks to keep at most.
    page_cache
        Whether the operating system should keep what was read, too.
    """

    def __init__(self, path: Path, table: dict[str, NDArray[Any]], d: int, memory: int, page_cache: bool) -> None:
        self.path, self.d, self.memory, self.page_cache = path, d, memory, page_cache
        self.offsets, self.rows, self.filled = table["block_offset"], table["block_rows"], table["block_filled"]
        self.kinds, self.crcs = table["block_kind"], table["block_crc"]
        self.index_type = _index_type(d)
        self.sizes = np.array([self._size(i) for i in range(len(self.rows))], np.int64)
        self.bytes_read = self.bytes_kept = 0
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._file = path.open("rb", buffering=0)

    def _size(self, i: int) -> int:
        kind, filled = int(self.kinds[i]), int(self.filled[i])
        size = filled * np.dtype(TYPES[abs(kind) - 1]).itemsize
        return size if kind > 0 else size + filled * self.index_type.itemsize + 8 * (int(self.rows[i]) + 1)

    def _bytes(self, first: int, last: int) -> memoryview:
        """What is in blocks first to last - 1, checked."""
        begin, end = int(self.offsets[first]), int(self.offsets[last - 1] + self.sizes[last - 1])
        parts = []
        at = begin
        while at < end:
            part = os.pread(self._file.fileno(), end - at, at)
            if not part:
                raise ArchiveError(
                    f"{self.path} ends at byte {at}, where block {first} goes on to {end}: build it anew"
                )
            parts.append(part)
            at += len(part)
        data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        self.bytes_read += end - begin
        if not self.page_cache:
            os.posix_fadvise(self._file.fileno(), begin, end - begin, os.POSIX_FADV_DONTNEED)
        for i in range(first, last):
            start = int(self.offsets[i]) - begin
            if zlib.crc32(data[start : start + int(self.sizes[i])]) != int(self.crcs[i]):
                raise ArchiveError(f"{self.path}: block {i} at byte {begin + start} is damaged: build the index anew")
        return data

    def read(self, first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        while first < last:
            stop = first + 1
            kind = self.kinds[first]
            while stop < last and kind == self.kinds[stop] and kind > 0:
                if self.offsets[stop] + self.sizes[stop] - self.offsets[first] > READ_BYTES:
                    break
                stop += 1
            data = self._bytes(first, stop)
            yield first, stop, self._decoded(data, kind, int(self.rows[first:stop].sum()), int(self.filled[first]))
            first = stop

    def _decoded(self, data: memoryview, kind: int, n: int, filled: int) -> Any:
        values: np.dtype[Any] = np.dtype(TYPES[abs(kind) - 1])
        if kind > 0:
            return np.frombuffer(data, values).reshape(n, self.d)
        starts = np.frombuffer(data, "<i8", n + 1)
        indices = np.frombuffer(data, self.index_type, filled, 8 * (n + 1))
        X = scipy.sparse.csr_matrix(
            (
                np.frombuffer(data, values, filled, 8 * (n + 1) + indices.nbytes).astype(_float_type(values)),
                indices.astype(np.int32),
                starts.astype(np.int32),
            ),
            shape=(n, self.d),
        )
        X.has_canonical_format = True
        return X

    def block(self, i: int) -> Any:
        if i in self._kept:
            self._kept.move_to_end(i)
            return self._kept[i]
        _, _, X = next(self.read(i, i + 1))
        size = _bytes_of(X)
        if size <= self.memory:
            while self.bytes_kept + size > self.memory:
                self.bytes_kept -= _bytes_of(self._kept.popitem(last=False)[1])
            self._kept[i] = X
            self.bytes_kept += size
        return X

    def close(self) -> None:
        self._file.close()


def _index_type(d: int) -> np.dtype[Any]:
    return np.dtype("<u2" if d <= 1 << 16 else "<u4")


def _float_type(values: np.dtype[Any]) -> type[np.floating[Any]]:
    return np.float64 if values == np.float64 else np.float32


def _bytes_of(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if scipy.sparse.issparse(X) else X.nbytes)


def _floats(X: Any) -> Any:
    """Rows as float32 or float64."""
    return X if X.dtype in (np.float32, np.float64) else X.astype(_float_type(X.dtype))


# Trees -----------------------------------------------------------------------------------------------------------


class Tree(NamedTuple):
    """Order of some rows, bounds of the leaves in it, and nodes from the root on."""

    order: Ints
    starts: Ints
    pivots: Floats
    children: Ints


def grow(X: Any, leaf: int, width: int, rng: np.random.Generator) -> Tree:
    """A tree that parts its rows by the nearest of `width` pivots, down to leaves of `leaf` to some twice as many rows.

    Near is a small angle of x to the line through the pivot, which is the angle between their images under the
    quadratic kernel (x . p)^2. Pivots are rows chosen at random; one that is nearest to too few leaves its rows to
    the others. As x and -x are near one another so, a part is cut in two where both sides are large enough: the mean of
    a leaf then tells where its rows are.
    """
    norms = np.sqrt(squares_of(X) + 1.0)
    if width == 1:
        return _cut(X, norms, leaf)
    pivots: list[Floats] = [_pivot(X, norms, 0)]
    children: list[tuple[int, int]] = [(0, 0)]
    order: list[Ints] = []
    pending = [(0, np.arange(X.shape[0]))]
    while pending:
        node, rows = pending.pop()
        parts = _parts(X, norms, rows, leaf, width, rng) if len(rows) >= 2 * leaf else None
        if parts is None:
            children[node] = (-1 - len(order), 0)
            order.append(rows)
            continue
        children[node] = (len(pivots), len(pivots) + len(parts))
        for pivot, part in parts:
            pending.append((len(pivots), part))
            pivots.append(_pivot(X, norms, pivot))
            children.append((0, 0))
    starts = np.cumsum([0, *(len(part) for part in order)])
    return Tree(np.concatenate(order), starts, np.array(pivots, np.float32), np.array(children, np.int64))


def _cut(X: Any, norms: Floats, leaf: int) -> Tree:
    """Leaves of consecutive rows under one root."""
    n = X.shape[0]
    starts = np.linspace(0, n, max(1, n // leaf) + 1).astype(np.int64)
    pivots = [_pivot(X, norms, 0), *(_pivot(X, norms, int(row)) for row in starts[:-1])]
    children = [(1, len(pivots)), *((-k, 0) for k in range(1, len(pivots)))]
    return Tree(np.arange(n), starts, np.array(pivots, np.float32), np.array(children, np.int64))


def _pivot(X: Any, norms: Floats, row: int) -> Floats:
    x = X[[row]].toarray()[0] if scipy.sparse.issparse(X) else X[row]
    return np.asarray(np.append(x, 1.0) / norms[row])


def _parts(
    X: Any, norms: Floats, rows: Ints, leaf: int, width: int, rng: np.random.Generator
) -> list[tuple[int, Ints]] | None:
    """Rows by the nearest of some pivots, as pairs of a pivot and its rows; None where they cannot be parted."""
    chosen = np.sort(rng.choice(rows, min(width, len(rows)), replace=False))
    P = X[chosen]
    inner = (_floats(X[rows]) @ _floats(P).T if not scipy.sparse.issparse(X) else (X[rows] @ P.T).toarray()) + 1.0
    similar = (inner / norms[chosen]) ** 2
    kept = np.arange(len(chosen))
    while len(kept) > 1:
        nearest = similar[:, kept].argmax(axis=1)
        counts = np.bincount(nearest, minlength=len(kept))
        if counts.min() >= leaf:
            sides = np.take_along_axis(inner[:, kept], nearest[:, None], axis=1)[:, 0] > 0.0
            parts = []
            for k, pivot in enumerate(chosen[kept]):
                ahead, behind = rows[(nearest == k) & sides], rows[(nearest == k) & ~sides]
                halves = [ahead, behind] if min(len(ahead), len(behind)) >= leaf else [rows[nearest == k]]
                parts += [(int(pivot), half) for half in halves]
            return parts
        kept = np.delete(kept, counts.argmin())
    if len(rows) < 4 * leaf:
        return None
    # All are alike: cut where the angle to one pivot is in the middle.
    ranked = rows[np.argsort(similar[:, kept[0]] / norms[rows] ** 2, kind="stable")]
    return [(int(half[len(half) // 2]), half) for half in np.array_split(ranked, 2)]


# The forest ------------------------------------------------------------------------------------------------------


class MetricForest:
    """An index of rows that finds those near any hyperplane, in memory or on disk; one serves many fits.

    Rows are split into parts that fit in memory. Each is parted by a tree whose leaves lie side by side, so that a few
    rows near a hyperplane are a few blocks. A forest is given to `IndexedBCD.fit` in place of rows.

    Positions number the rows in the order of the leaves, `ids` say which row of the source stands there.

    Attributes
    ----------
    shape
        How many rows and columns.
    labels
        One a row, by position.
    ids
        Numbers of the rows in their source, by position.
    n_leaves
        How many leaves there are.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> forest = MetricForest.build(X)
    >>> w = np.array([1.0, -1.0])
    >>> found = forest.nearest_to_hyperplane(w, 0.0, 10)
    >>> sorted(forest.ids[found.positions]) == sorted(np.argsort(np.abs(X @ w))[:10])
    True
    >>> found.n_rows < 5000
    True

    Notes
    -----
    After Yen, Chang, Lin, Lin and Lin [1]_, who visit tree after tree by the distance to boundaries between pivots;
    `order="boundary"` does that with one queue for all trees, `order="centroid"` takes the leaves whose means are
    nearest, which finds more in as many rows.

    References
    ----------
    .. [1] I. E.-H. Yen, C.-F. Chang, T.-W. Lin, S.-W. Lin, S.-D. Lin: Indexed block coordinate descent for large-scale
       linear classification with limited memory, KDD 2013.
    """

    def __init__(self, blocks: Blocks, d: int, arrays: dict[str, NDArray[Any]], classes: list[Any]) -> None:
        self.blocks, self.classes = blocks, classes
        # Some bytes for each of many rows: in the smallest type.
        self.codes = arrays["codes"].astype(np.min_scalar_type(max(0, len(classes) - 1)))
        self.ids = arrays["ids"].astype(np.min_scalar_type(len(arrays["ids"])))
        self.centroids, self.radii = arrays["centroids"], arrays["radii"]
        self.pivots, self.children, self.roots = arrays["pivots"], arrays["children"], arrays["roots"]
        self.sample_positions = arrays["sample"]
        self.n_leaves = len(self.radii)
        self.shape: tuple[int, int] = (len(self.ids), d)
        self.starts = np.concatenate([[0], np.cumsum(arrays["block_rows"][: self.n_leaves])])
        self._n_blocks = len(arrays["block_rows"])
        self.is_costly = isinstance(blocks, FileBlocks)
        self.memory = blocks.memory if isinstance(blocks, FileBlocks) else 1 << 62
        self.row_bytes = float(blocks.sizes.sum()) / max(1, len(self.ids)) if isinstance(blocks, FileBlocks) else 0.0

    @property
    def labels(self) -> NDArray[Any]:
        labels: NDArray[Any] = np.asarray(self.classes)[self.codes]
        return labels

    @property
    def bytes_read(self) -> int:
        """How much was read from disk."""
        return self.blocks.bytes_read

    # Rows, as a solver asks for them -----------------------------------------------------------------------------

    def scan(self, plane: Floats | None = None, reach: float = math.inf) -> Iterator[tuple[slice, Matrix | float]]:
        """All rows in blocks; those of leaves that surely lie beyond reach of the plane are left out."""
        skipped = np.zeros(self.n_leaves, bool)
        if plane is not None and reach < math.inf:
            scores = self.leaf_scores(plane)
            # Centroids are kept in single precision.
            bound = np.abs(scores) * (1.0 - 1e-5) - np.linalg.norm(plane[:-1]) * self.radii
            skipped = bound > reach
        i = 0
        while i < self.n_leaves:
            if skipped[i]:
                yield slice(int(self.starts[i]), int(self.starts[i + 1])), math.copysign(FAR, scores[i])
                i += 1
                continue
            stop = i + int(np.argmax(skipped[i:])) if skipped[i:].any() else self.n_leaves
            for first, last, X in self.blocks.read(i, stop):
                yield slice(int(self.starts[first]), int(self.starts[last])), as_matrix(_floats(X))
            i = stop

    def take(self, positions: Ints) -> Any:
        """Rows at ascending positions."""
        places = np.searchsorted(self.sample_positions, positions)
        if len(self.sample_positions) and np.array_equal(
            self.sample_positions[np.minimum(places, len(self.sample_positions) - 1)], positions
        ):
            rows = self._sampled()
            return rows if len(places) == rows.shape[0] else rows[places]
        leaves = self.leaf_of(positions)
        parts = [
            _floats(self.blocks.block(leaf))[positions[leaves == leaf] - self.starts[leaf]]
            for leaf in np.unique(leaves)
        ]
        return stack(parts, self.shape[1])

    def _sampled(self) -> Any:
        return stack([_floats(X) for _, _, X in self.blocks.read(self.n_leaves, self._n_blocks)], self.shape[1])

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Of the rows sampled when the index was built, where there are any."""
        among = self.sample_positions if len(self.sample_positions) else np.arange(self.shape[0])
        return np.sort(rng.choice(among, min(n, len(among)), replace=False))

    # Leaves ------------------------------------------------------------------------------------------------------

    def leaf_of(self, positions: Ints) -> Ints:
        """The leaves rows are in."""
        return np.asarray(np.searchsorted(self.starts, positions, "right") - 1)

    def leaf_scores(self, plane: Floats) -> Floats:
        """w . centroid + b of every leaf."""
        scores: Floats = np.asarray(self.centroids @ plane[:-1].astype(np.float32), np.float64) + plane[-1]
        return scores

    def leaves(self, leaves: Ints) -> Iterator[tuple[slice, Any]]:
        """Rows of some leaves, in ascending order."""
        leaves = np.sort(leaves)
        for run in np.split(leaves, np.flatnonzero(np.diff(leaves) > 1) + 1):
            for first, last, X in self.blocks.read(int(run[0]), int(run[-1]) + 1):
                yield slice(int(self.starts[first]), int(self.starts[last])), _floats(X)

    # Search ------------------------------------------------------------------------------------------------------

    def nearest_to_hyperplane(
        self,
        w: Floats,
        b: float,
        n: int,
        *,
        budget: int | None = None,
        reach: float = math.inf,
        order: str = "centroid",
        skip: NDArray[np.bool_] | None = None,
    ) -> Nearest:
        """The rows with the smallest |w . x + b|.

        Parameters
        ----------
        n
            How many.
        budget
            Leaves are visited until so many rows were touched; None for the exact answer.
        reach
            Only rows with |w . x + b| at most this count, and leaves surely beyond it are not visited.
        order
            "centroid" visits the leaves with the smallest |w . centroid + b| first; "boundary" descends the trees,
            the smallest distance to the boundary between a child and its best sibling first.
        skip
            Rows to leave aside, by position; a leaf all of whose rows are skipped is not visited.
        """
        if order not in ("centroid", "boundary"):
            raise ValueError(f'`order` must be "centroid" or "boundary", got {order!r}')
        plane = np.append(np.asarray(w, np.float64), float(b))
        scores = np.abs(self.leaf_scores(plane))
        bounds = scores * (1.0 - 1e-5) - np.linalg.norm(plane[:-1]) * self.radii
        by = iter(np.argsort(scores, kind="stable")) if order == "centroid" else self._by_boundary(plane)
        positions, distances = np.empty(0, np.int64), np.empty(0)
        n_rows = n_leaves = 0
        for leaf in by:
            worst = distances[-1] if len(distances) == n else math.inf
            part = np.arange(self.starts[leaf], self.starts[leaf + 1])
            if bounds[leaf] > min(worst, reach) or (skip is not None and skip[part].all()):
                continue
            if budget is not None and n_rows >= budget:
                break
            X = self.blocks.block(int(leaf))
            away = np.abs(np.asarray(_floats(X) @ plane[:-1], np.float64) + plane[-1])
            n_rows, n_leaves = n_rows + len(part), n_leaves + 1
            is_fit = away <= reach
            if skip is not None:
                is_fit &= ~skip[part]
            positions = np.concatenate([positions, part[is_fit]])
            distances = np.concatenate([distances, away[is_fit]])
            best = np.argsort(distances, kind="stable")[:n]
            positions, distances = positions[best], distances[best]
        return Nearest(positions, distances, n_rows, n_leaves)

    def _by_boundary(self, plane: Floats) -> Iterator[int]:
        """Leaves as best-bin-first search over the trees meets them."""
        query = plane / max(float(np.linalg.norm(plane)), 1e-300)
        queue = [(0.0, int(root)) for root in self.roots]
        while queue:
            distance, node = heapq.heappop(queue)
            first, last = self.children[node]
            if first < 0:
                yield -1 - int(first)
                continue
            pivots = np.asarray(self.pivots[first:last], np.float64)
            near = (pivots @ query) ** 2
            best = int(near.argmin())
            apart = np.sqrt(np.maximum(2.0 - 2.0 * (pivots @ pivots[best]) ** 2, 1e-12))
            for k, beyond in enumerate((near - near[best]) / apart):
                heapq.heappush(queue, (max(distance, float(beyond)), int(first) + k))

    # Building ----------------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        X: Any,
        y: Any = None,
        *,
        leaf_rows: int = LEAF_ROWS,
        tree_rows: int = 100_000,
        width: int = 10,
        random_state: int = 0,
    ) -> Self:
        """An index in memory.

        Parameters
        ----------
        X
            Rows, an array or CSR; they are copied.
        y
            Labels, for `labels` alone.
        leaf_rows
            A leaf has at least so many rows, and fewer than four times as many.
        tree_rows
            Rows of a tree, chosen at random.
        width
            Children of a node; 1 leaves the rows in random order.
        """
        X = X if scipy.sparse.issparse(X) else np.asarray(X)
        classes, codes = np.unique(np.zeros(X.shape[0], int) if y is None else np.asarray(y), return_inverse=True)
        build = _Build(width, np.random.default_rng(random_state))
        order = build.rng.permutation(X.shape[0])
        split = np.array_split(order, max(1, math.ceil(len(order) / tree_rows)))
        parts = [build.add(X[rows], codes[rows], rows, leaf_rows)[0] for rows in split]
        arrays = build.arrays(X.shape[1]) | {"sample": np.empty(0, np.int64)}
        arrays["block_rows"] = np.array(build.leaf_rows, np.int64)
        blocks = MemoryBlocks(stack(parts, X.shape[1]), np.concatenate([[0], np.cumsum(arrays["block_rows"])]))
        return cls(blocks, X.shape[1], arrays, list(classes))

    @classmethod
    def from_batches(
        cls,
        path: str | os.PathLike[str],
        batches: Iterable[tuple[Any, Any]],
        *,
        memory: int = 256 << 20,
        dtype: str | None = None,
        n_sample: int = 40_000,
        width: int = 10,
        random_state: int = 0,
        header: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """Build an index on disk in one pass.

        Parameters
        ----------
        path
            The folder to make; it must not exist.
        batches
            Pairs of rows (arrays or CSR) and their labels.
        memory
            About how many bytes to hold at most. A sixth of it is the part one tree is grown on.
        dtype
            "float32" to round values to that; None keeps them exactly, in the smallest type that holds a block.
        n_sample
            How many rows to sample for pilots, at most an eighth of `memory`.
        width
            Children of a node; 1 leaves the rows in their order.

        Raises
        ------
        FileExistsError
            Where something is at `path`.
        ValueError
            For no rows, or rows of different kinds.
        OSError
            Where the disk is full; nothing is left at `path`.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(f"{path} exists: remove it, or build the index elsewhere")
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            writer = _Writer(work, memory, dtype, n_sample, _Build(width, np.random.default_rng(random_state)))
            with writer.file:
                for X, y in batches:
                    writer.add(X, y)
                writer.finish(header() if header else {})
            work.rename(path)
            _sync_folder(path.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @classmethod
    def from_source(
        cls,
        path: str | os.PathLike[str],
        source: str,
        *,
        progress: Callable[[int, float | None], Any] | None = None,
        options: dict[str, Any] | None = None,
        **how: Any,
    ) -> None:
        """Build an index on disk from CSV, libsvm, Parquet or whatever else `connectors` reads, in one pass.

        Columns keep the order of the source, of libsvm their numbers. Rows that cannot be read, without a label or
        with a missing or infinite value are left out; the header counts them and describes the first.

        Parameters
        ----------
        path
            The folder to make; it must not exist.
        source
            A path or URL.
        progress
            Called with the rows read so far and the share of the source read, None where unknown.
        options
            Of the source, such as `label`.
        how
            As for `from_batches`.

        Raises
        ------
        ValueError
            For columns that hold anything but numbers.
        """
        stream = connectors.open_source(source, **{"batch_size": 8192, **(options or {})})
        rejected: list[dict[str, Any]] = []
        counts = {"rejected": 0}

        def reject(reason: str, origin: Any) -> None:
            counts["rejected"] += 1
            if len(rejected) < REJECTED_KEPT:
                rejected.append({"reason": reason, "origin": {key: str(value) for key, value in origin.items()}})

        def batches() -> Iterator[tuple[Any, Any]]:
            n = 0
            for batch in stream:
                for one in batch.rejected:
                    reject(one.reason, one.origin)
                X, bad = _rows_of(batch.features, source)
                is_good = ~bad
                for i, label in enumerate(batch.labels):
                    if label is None:
                        is_good[i] = False
                        reject("no label", batch.origins[i])
                    elif bad[i]:
                        reject("a missing or infinite value", batch.origins[i])
                keep = np.flatnonzero(is_good)
                n += len(keep)
                if len(keep):
                    yield X[keep], [batch.labels[i] for i in keep]
                if progress is not None:
                    progress(n, getattr(stream, "fraction", None))

        try:
            cls.from_batches(path, batches(), header=lambda: counts | {"first_rejected": rejected}, **how)
        finally:
            stream.close()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, memory: int = 256 << 20, page_cache: bool = True) -> Self:
        """An index on disk.

        Parameters
        ----------
        memory
            How many bytes of rows to keep at most.
        page_cache
            Whether the operating system should keep what was read, too.

        Raises
        ------
        ArchiveError
            Where it is damaged, foreign or of a newer version.
        FileNotFoundError
            Where there is none.
        """
        path = Path(path)
        header, arrays = read_archive(path / INDEX_FILE)
        if header.get("class") != "MetricForest":
            raise ArchiveError(f"{path / INDEX_FILE} holds {header.get('class')!r}, not a MetricForest")
        try:
            classes = [decode_label(label) for label in header["classes"]]
            d, size = int(header["n_columns"]), int(header["rows_bytes"])
            blocks = FileBlocks(path / ROWS_FILE, arrays, d, memory, page_cache)
            forest = cls(blocks, d, arrays, classes)
            leaf_rows = arrays["block_rows"][: forest.n_leaves]
            if len(forest.codes) != len(forest.ids) or leaf_rows.sum() != len(forest.ids):
                raise ValueError("its arrays do not fit one another")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ArchiveError(f"{path / INDEX_FILE} is not a whole index: {error}") from error
        if (path / ROWS_FILE).stat().st_size != size:
            raise ArchiveError(
                f"{path / ROWS_FILE} has {(path / ROWS_FILE).stat().st_size} bytes where {size} were written: "
                "build the index anew"
            )
        return forest


class _Build:
    """What is gathered about leaves and nodes as trees are added."""

    def __init__(self, width: int, rng: np.random.Generator) -> None:
        self.width, self.rng = width, rng
        self.codes: list[Ints] = []
        self.ids: list[Ints] = []
        self.leaf_rows: list[int] = []
        self.centroids: list[Floats] = []
        self.radii: list[float] = []
        self.pivots: list[Floats] = []
        self.children: list[Ints] = []
        self.roots: list[int] = []
        self.n_nodes = 0

    def add(self, X: Any, codes: Ints, ids: Ints, leaf: int) -> tuple[Any, Ints]:
        """Grow a tree on some rows: these in its order, and bounds of its leaves."""
        tree = grow(X, leaf, self.width, self.rng)
        X = X[tree.order]
        self.codes.append(codes[tree.order])
        self.ids.append(ids[tree.order])
        children = tree.children.copy()
        is_leaf = children[:, 0] < 0
        children[is_leaf, 0] -= len(self.leaf_rows)
        children[~is_leaf] += self.n_nodes
        self.roots.append(self.n_nodes)
        self.n_nodes += len(children)
        self.children.append(children)
        self.pivots.append(tree.pivots)
        for first, last in pairwise(tree.starts):
            self._describe(X[first:last])
        return X, tree.starts

    def _describe(self, rows: Any) -> None:
        rows = _floats(rows)
        centroid: Any = np.asarray(rows.mean(axis=0), np.float32).ravel()
        inner = np.asarray(rows @ centroid, np.float64).ravel()
        away = squares_of(rows) - 2.0 * inner + float(centroid.astype(np.float64) @ centroid)
        self.leaf_rows.append(rows.shape[0])
        self.centroids.append(centroid)
        # Differences of squares in single precision round; the bound must hold all the same.
        largest = float(squares_of(rows).max(initial=0.0))
        self.radii.append(math.sqrt(max(0.0, float(away.max())) + 1e-5 * largest))

    def arrays(self, d: int) -> dict[str, NDArray[Any]]:
        """All of it, at the width that is known now."""
        return {
            "codes": np.concatenate(self.codes),
            "ids": np.concatenate(self.ids),
            "centroids": np.array([_padded(c, d) for c in self.centroids], np.float32).reshape(-1, d),
            "radii": np.array(self.radii),
            "pivots": np.concatenate([_widened(p, d) for p in self.pivots]),
            "children": np.concatenate(self.children),
            "roots": np.array(self.roots),
        }


def _padded(values: Floats, d: int) -> Floats:
    return values if len(values) == d else np.append(values, np.zeros(d - len(values), values.dtype))


def _widened(pivots: Floats, d: int) -> Floats:
    """Pivots, the constant last, with columns that came later."""
    missing = d + 1 - pivots.shape[1]
    return pivots if not missing else np.insert(pivots, [pivots.shape[1] - 1] * missing, 0.0, axis=1)


class _Writer:
    """Rows as they come, into trees of what fits in memory, onto disk."""

    def __init__(self, folder: Path, memory: int, dtype: str | None, n_sample: int, build: _Build) -> None:
        if dtype not in (None, "float32"):
            raise ValueError(f'`dtype` must be None or "float32", got {dtype!r}')
        self.folder, self.memory, self.dtype, self.n_sample, self.build = folder, memory, dtype, n_sample, build
        self.file = (folder / ROWS_FILE).open("wb")
        self.table: dict[str, list[int]] = {key: [] for key in ("offset", "rows", "filled", "kind", "crc")}
        self.numbers: dict[Any, int] = {}
        self.d = self.n = self.waiting_bytes = 0
        self.waiting: list[tuple[Any, Ints]] = []
        self.sampled: tuple[Any, Floats, Ints] | None = None

    def add(self, X: Any, y: Any) -> None:
        X = X.tocsr() if scipy.sparse.issparse(X) else np.asarray(X)
        if self.dtype:
            X = X.astype(self.dtype)
        if self.waiting and scipy.sparse.issparse(X) != scipy.sparse.issparse(self.waiting[-1][0]):
            raise ValueError("some batches are sparse and some are not: give one kind")
        if not scipy.sparse.issparse(X) and self.d not in (0, X.shape[1]):
            raise ValueError(f"a batch has {X.shape[1]} columns after {self.d} before: give all the same")
        labels = y.tolist() if isinstance(y, np.ndarray) else list(y)
        codes = np.array([self.numbers.setdefault(label, len(self.numbers)) for label in labels], np.int64)
        self.d = max(self.d, X.shape[1])
        self._draw(X)
        self.n += X.shape[0]
        self.waiting.append((X, codes))
        self.waiting_bytes += _bytes_of(X)
        if self.waiting_bytes >= self.memory // 6:
            self._flush()

    def _draw(self, X: Any) -> None:
        """Keep the rows with the smallest of random numbers: a uniform sample at any time."""
        row_bytes = max(1, _bytes_of(X) // max(1, X.shape[0]))
        most = min(self.n_sample, max(1, self.memory // 8 // row_bytes))
        keys = self.build.rng.random(X.shape[0])
        ids = self.n + np.arange(X.shape[0])
        if self.sampled is None:
            self.sampled = X[:0], np.empty(0), np.empty(0, np.int64)
        rows, old_keys, old_ids = self.sampled
        limit = old_keys.max() if len(old_keys) >= most else math.inf
        new = np.flatnonzero(keys < limit)
        if not len(new):
            return
        if scipy.sparse.issparse(X):
            rows.resize((rows.shape[0], self.d))
            X.resize((X.shape[0], self.d))
        rows = stack([rows, X[new]], self.d)
        keys, ids = np.concatenate([old_keys, keys[new]]), np.concatenate([old_ids, ids[new]])
        best = np.sort(np.argsort(keys)[:most])
        self.sampled = rows[best], keys[best], ids[best]

    def _flush(self) -> None:
        """Grow a tree on the rows that wait, and write its leaves."""
        if not self.waiting:
            return
        parts = [X for X, _ in self.waiting]
        if scipy.sparse.issparse(parts[0]):
            for X in parts:
                X.resize((X.shape[0], self.d))
        X = stack(parts, self.d)
        codes = np.concatenate([codes for _, codes in self.waiting])
        ids = self.n - X.shape[0] + np.arange(X.shape[0])
        size = self.waiting_bytes
        parts.clear()
        self.waiting.clear()
        self.waiting_bytes = 0
        leaf = max(1, math.ceil(LEAF_BYTES / max(1.0, size / X.shape[0])))
        X, starts = self.build.add(X, codes, ids, leaf)
        for first, last in pairwise(starts):
            self._write(X[first:last])

    def _write(self, X: Any) -> None:
        """One block."""
        sparse = scipy.sparse.issparse(X)
        values = X.data if sparse else X
        kind = next(k for k, t in enumerate(TYPES, 1) if _fits(values, np.dtype(t)))
        data = np.ascontiguousarray(values, TYPES[kind - 1]).tobytes()
        if sparse:
            data = X.indptr.astype("<i8").tobytes() + X.indices.astype(_index_type(self.d)).tobytes() + data
        entry = {
            "offset": self.file.tell(),
            "rows": X.shape[0],
            "filled": values.size,
            "kind": -kind if sparse else kind,
            "crc": zlib.crc32(data),
        }
        for key, value in entry.items():
            self.table[key].append(value)
        self.file.write(data)

    def finish(self, extra: dict[str, Any]) -> None:
        """The last tree, the sample, and all that is known of them."""
        self._flush()
        if self.sampled is None or not self.n:
            raise ValueError("there are no rows to build an index of")
        n_leaves = len(self.table["rows"])
        arrays = self.build.arrays(self.d)
        positions = np.empty(self.n, np.int64)
        positions[arrays["ids"]] = np.arange(self.n)
        rows, _, ids = self.sampled
        places = positions[ids]
        order = np.argsort(places)
        if scipy.sparse.issparse(rows):
            rows.resize((rows.shape[0], self.d))
        rows = rows[order]
        step = max(1, math.ceil(LEAF_BYTES * rows.shape[0] / max(1, _bytes_of(rows))))
        for first in range(0, rows.shape[0], step):
            self._write(rows[first : first + step])
        self.file.flush()
        os.fsync(self.file.fileno())
        arrays["sample"] = places[order]
        arrays |= {f"block_{key}": np.array(values, np.int64) for key, values in self.table.items()}
        header = {
            "class": "MetricForest",
            "n_columns": self.d,
            "classes": [encode_label(label) for label in self.numbers],
            "n_leaves": n_leaves,
            "rows_bytes": self.file.tell(),
            **extra,
        }
        write_archive(self.folder / INDEX_FILE, header, arrays)


def _fits(values: Any, dtype: np.dtype[Any]) -> bool:
    """Whether values are the same in another type."""
    if values.dtype == dtype:
        return True
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if values.size and not (values.min() >= limits.min and values.max() <= limits.max):
            return False
    return bool(np.array_equal(values, values.astype(dtype)))


def _rows_of(features: Any, source: str) -> tuple[Any, NDArray[np.bool_]]:
    """Rows of a batch, and which of them have a missing or infinite value."""
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


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
