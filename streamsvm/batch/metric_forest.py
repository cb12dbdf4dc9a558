"""Rows on disk or in memory, those that lie near one another side by side, and a search for those near a hyperplane.

An index on disk is a folder with two files. `rows.bin` holds blocks of rows one after the other: the leaves of the
trees in order, then a uniform sample of all rows. A block is an array in C order, or the three arrays of a CSR matrix
(row starts as int64, columns, values), little-endian, values in the smallest type that holds them. `index.svm` is an
archive of streamsvm (see `streamsvm.models`): the JSON header has "class", "n_columns", "classes", "n_leaves",
"order" and "rows_bytes", and the arrays are

    block_offset, block_rows, block_filled, block_kind, block_crc     one a block: where it begins, how many rows and
                                        values, the number of its types in TYPES (negative: CSR), zlib's CRC-32
    codes, ids                          one a row, in the smallest unsigned type: the number of its label, and of the
                                        row in its source
    sample                              positions of the sampled rows
    centroids, radii                    one a leaf: mean of its rows, and how far from it they are at most
    pivots, children                    one a node, a tree after the other from its root: a unit vector (the constant
                                        last), and the range of its children; [-1 - leaf, 0] for a leaf
    roots                               one a tree

The folder is built under another name and renamed when all is on disk. Meanwhile rows wait in a file of such blocks,
so that building takes twice the room.
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
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import connectors
from connectors.events import SparseRows
from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.batch.rows import bytes_of, slice_of, squares_of, stack
from streamsvm.models import DAMAGED, ArchiveError, decode_labels, encode_label, read_archive, write_archive

TYPES = ("<u1", "<i1", "<i2", "<f4", "<f8")
ROWS_FILE, INDEX_FILE = "rows.bin", "index.svm"
# A leaf has at least so many bytes on disk, as reading less at once is slow, and so many rows in memory.
LEAF_BYTES, LEAF_ROWS = 256 << 10, 64
# And so many times the bytes of a centroid, which is kept in memory.
CENTROIDS = 32
# Rows that wait to be dealt to trees do so in packets of so many bytes, and at least so many packets a shuffle.
PACKET_BYTES, PACKETS = 64 << 10, 64
# Neighbouring blocks are read at once up to so many bytes in memory, and this share of it; copies take some times that.
READ_BYTES, READ_SHARE, READ_COPIES = 4 << 20, 0.05, 3
# In memory they are gone through so many bytes at a time, which stay in the cache from one use to the next.
BLOCK_BYTES = 1 << 20
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
    read_bytes: int
    row_bytes: float

    def read(self, first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        """Rows of blocks first to last - 1, some at once: the first of them, the one after the last, and the rows."""

    def block(self, i: int) -> Any:
        """Rows of one block, which may be asked for again."""

    def take(self, places: Ints) -> Any:
        """Rows at ascending places in the order of the blocks, as float32 or float64."""

    def keep(self, memory: int) -> int:
        """Change how many bytes of blocks are kept at most, and tell what it was."""

    def close(self) -> None:
        """Read no more."""


class MemoryBlocks:
    """Blocks of an array or CSR matrix."""

    def __init__(self, X: Any, starts: Ints) -> None:
        self.X, self.starts = X, starts
        self.row_bytes = bytes_of(X) / max(1, X.shape[0])
        self.bytes_read = self.read_bytes = 0

    def read(self, first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        rows = max(1, int(BLOCK_BYTES / max(1.0, self.row_bytes)))
        while first < last:
            stop = int(np.searchsorted(self.starts, self.starts[first] + rows, "right")) - 1
            stop = min(max(stop, first + 1), last)
            yield first, stop, self._rows(first, stop)
            first = stop

    def block(self, i: int) -> Any:
        return self._rows(i, i + 1)

    def _rows(self, first: int, last: int) -> Any:
        part = slice(int(self.starts[first]), int(self.starts[last]))
        return slice_of(self.X, part) if scipy.sparse.issparse(self.X) else self.X[part]

    def take(self, places: Ints) -> Any:
        return _floats(self.X[places])

    def keep(self, memory: int) -> int:
        return memory

    def close(self) -> None:
        pass


class FileBlocks:
    """Blocks of `rows.bin`, read at their offsets and checked; those asked for one by one are kept, least recent out.

    Parameters
    ----------
    memory
        How many bytes of blocks to keep at most.
    page_cache
        Whether the operating system should keep what was read, too.
    index_type
        Of the columns of sparse rows.
    """

    def __init__(
        self,
        path: Path,
        table: dict[str, NDArray[Any]],
        d: int,
        memory: int,
        page_cache: bool,
        index_type: np.dtype[Any],
    ) -> None:
        self.path, self.d, self.memory, self.page_cache = path, d, memory, page_cache
        self.offsets, self.rows, self.filled = table["block_offset"], table["block_rows"], table["block_filled"]
        self.kinds, self.crcs = table["block_kind"], table["block_crc"]
        self.index_type = index_type
        self.starts = np.concatenate([[0], np.cumsum(self.rows)])
        itemsizes = np.array([np.dtype(t).itemsize for t in TYPES])[np.abs(self.kinds) - 1]
        is_sparse, floats = self.kinds < 0, np.maximum(itemsizes, 4)
        self.sizes = self.filled * (itemsizes + is_sparse * index_type.itemsize) + is_sparse * 8 * (self.rows + 1)
        self.sizes_in_memory = self.filled * (floats + 4 * is_sparse) + is_sparse * 4 * (self.rows + 1)
        self.row_bytes = float(self.sizes_in_memory.sum()) / max(1, int(self.rows.sum()))
        self.bytes_read = self.bytes_kept = 0
        self.read_bytes = READ_BYTES
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._file = path.open("rb", buffering=0)

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
                if self.sizes_in_memory[first : stop + 1].sum() > self.read_bytes:
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
        size = bytes_of(X)
        if size <= self.memory:
            self._make_room(self.memory - size)
            self._kept[i] = X
            self.bytes_kept += size
        return X

    def _make_room(self, memory: int) -> None:
        while self.bytes_kept > memory:
            self.bytes_kept -= bytes_of(self._kept.popitem(last=False)[1])

    def keep(self, memory: int) -> int:
        self.memory, before = memory, self.memory
        self._make_room(memory)
        return before

    def take(self, places: Ints) -> Any:
        of = np.searchsorted(self.starts, places, "right") - 1
        wanted, firsts = np.unique(of, return_index=True)
        ends = np.append(firsts[1:], len(places))
        kinds = self.kinds[wanted]
        if (kinds < 0).any():
            parts = [
                self.block(i)[places[first:end] - self.starts[i]]
                for i, first, end in zip(wanted.tolist(), firsts, ends, strict=True)
            ]
            return stack(parts, self.d)
        out = np.empty((len(places), self.d), np.float64 if (kinds == len(TYPES)).any() else np.float32)
        for i, first, end in zip(wanted.tolist(), firsts, ends, strict=True):
            out[first:end] = self.block(i)[places[first:end] - self.starts[i]]
        return out

    def close(self) -> None:
        self._file.close()


def _index_type(d: int) -> np.dtype[Any]:
    return np.dtype("<u2" if d <= 1 << 16 else "<u4")


def _float_type(values: np.dtype[Any]) -> type[np.floating[Any]]:
    return np.float64 if values == np.float64 else np.float32


def _floats(X: Any) -> Any:
    """Rows as float32 or float64."""
    return X if X.dtype in (np.float32, np.float64) else X.astype(_float_type(X.dtype))


class Spill:
    """`Rows` set aside on disk, to be gone through again; their file goes with them.

    Parameters
    ----------
    folder
        Where the file is, until it is closed.
    like
        The blocks the rows are from.
    """

    def __init__(self, folder: Path, like: FileBlocks) -> None:
        self._like = like
        self._folder = tempfile.TemporaryDirectory(prefix=".rows.", dir=folder, ignore_cleanup_errors=True)
        self._file = BlockFile(Path(self._folder.name) / ROWS_FILE, like.index_type)
        self._blocks: FileBlocks | None = None
        self.precision = np.float32
        self.n_rows = 0

    def add(self, X: Any) -> None:
        """Some more rows."""
        self._file.write(X, max(1, math.ceil(LEAF_BYTES * X.shape[0] / max(1, bytes_of(X)))))
        self.n_rows += X.shape[0]

    @property
    def blocks(self) -> FileBlocks:
        if self._blocks is None:
            self._file.close()
            like = self._like
            path, table = self._file.path, self._file.table
            self._blocks = FileBlocks(path, table, like.d, 0, like.page_cache, like.index_type)
            self._blocks.read_bytes = like.read_bytes
        return self._blocks

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self._like.d

    @property
    def row_bytes(self) -> float:
        return self.blocks.row_bytes

    def scan(self, plane: Floats | None = None, reach: float = math.inf) -> Iterator[tuple[slice, Matrix | float]]:
        blocks = self.blocks
        before = blocks.bytes_read
        for first, last, X in blocks.read(0, len(blocks.rows)):
            yield slice(int(blocks.starts[first]), int(blocks.starts[last])), as_matrix(_floats(X))
        self._like.bytes_read += blocks.bytes_read - before

    def take(self, positions: Ints) -> Any:
        return self.blocks.take(positions)

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        return np.sort(rng.choice(self.n_rows, min(n, self.n_rows), replace=False))

    def lend(self, n_bytes: float, share: float) -> AbstractContextManager[float]:
        return nullcontext(math.inf)

    def close(self) -> None:
        self._file.close()
        if self._blocks is not None:
            self._blocks.close()
        self._folder.cleanup()


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
        self.codes, self.ids = arrays["codes"], arrays["ids"]
        self.centroids, self.radii = arrays["centroids"], arrays["radii"]
        self.pivots, self.children, self.roots = arrays["pivots"], arrays["children"], arrays["roots"]
        self.sample_positions = arrays["sample"]
        self.n_leaves = len(self.radii)
        self.shape: tuple[int, int] = (len(self.ids), d)
        self.starts = np.concatenate([[0], np.cumsum(arrays["block_rows"][: self.n_leaves])])
        self.is_costly = isinstance(blocks, FileBlocks)
        self.precision = np.float32 if self.is_costly else np.float64
        self.memory = math.inf
        self.row_bytes = blocks.row_bytes
        self._own_bytes = sum(array.nbytes for array in arrays.values())

    def close(self) -> None:
        """Close the files; the index is of no use after that."""
        self.blocks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Rows at ascending positions; those of the sample are read where they lie together."""
        if len(self.sample_positions):
            places = np.minimum(np.searchsorted(self.sample_positions, positions), len(self.sample_positions) - 1)
            if np.array_equal(self.sample_positions[places], positions):
                return self.blocks.take(self.shape[0] + places)
        return self.blocks.take(positions)

    @contextmanager
    def lend(self, n_bytes: float, share: float) -> Iterator[float]:
        """What of the memory is left for rows beside `n_bytes` of other things, while a share of it keeps blocks.

        Raises
        ------
        ValueError
            Where nothing is left.
        """
        needed = self._own_bytes + n_bytes + READ_COPIES * self.blocks.read_bytes
        if self.memory < needed + self.blocks.read_bytes:
            raise ValueError(
                f"a fit on this index holds {needed / 2**20:.1f} MB beside rows, for what is known of {self.shape[0]} "
                f"rows and {self.n_leaves} leaves; opened with {self.memory / 2**20:.1f} MB: give more `memory`"
            )
        left = self.memory - needed
        before = self.blocks.keep(int(share * left)) if self.is_costly else 0
        try:
            yield (1.0 - share) * left
        finally:
            self.blocks.keep(before)

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Of the rows sampled when the index was built, where there are any."""
        among = self.sample_positions if len(self.sample_positions) else np.arange(self.shape[0])
        return np.sort(rng.choice(among, min(n, len(among)), replace=False))

    def spill(self) -> Spill:
        """An empty set of rows on disk, for those that do not fit in memory."""
        assert isinstance(self.blocks, FileBlocks)  # rows that are in memory fit
        return Spill(self.blocks.path.parent.parent, self.blocks)

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
        X = _checked(X)
        classes, codes = np.unique(np.zeros(X.shape[0], int) if y is None else np.asarray(y), return_inverse=True)
        if len(codes) != X.shape[0]:
            raise ValueError(f"{X.shape[0]} rows and {len(codes)} labels: give one a row")
        build = _Build(width, np.random.default_rng(random_state))
        order = build.rng.permutation(X.shape[0])
        split = np.array_split(order, max(1, math.ceil(len(order) / tree_rows)))
        parts = [build.add(X[rows], _smallest(codes[rows]), _smallest(rows), leaf_rows)[0] for rows in split]
        arrays = build.arrays() | {"sample": np.empty(0, np.int64)}
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
        """Build an index on disk in one pass over the batches, whose order does not matter.

        Rows are dealt at random to as many trees as it takes for one to be grown in memory.

        Parameters
        ----------
        path
            The folder to make; it must not exist.
        batches
            Pairs of rows (arrays or CSR) and their labels.
        memory
            About how many bytes to hold at most. An eighth of it is the part one tree is grown on.
        dtype
            "float32" to round values to that; None keeps them exactly, in the smallest type that holds a block.
        n_sample
            How many rows to sample for pilots, at most an eighth of `memory`.
        width
            Children of a node; 1 leaves the rows in random order.
        header
            Gives what else is to be in the header, when all batches have come.

        Raises
        ------
        FileExistsError
            Where something is at `path`.
        ValueError
            For no rows, rows of different kinds, or values that are missing, infinite or no numbers.
        OSError
            Where the disk is full; nothing is left at `path`.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(f"{path} exists: remove it, or build the index elsewhere")
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            rng = np.random.default_rng(random_state)
            dealer = _Dealer(work, memory, dtype, rng)
            with closing(dealer):
                for X, y in batches:
                    dealer.add(X, y)
                _write_index(work, dealer, _Build(width, rng), n_sample, header)
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
            How many bytes the index and a fit on it may hold at most.
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
            classes = decode_labels(header["classes"])
            d, size = int(header["n_columns"]), int(header["rows_bytes"])
            _check_whole(arrays, d, int(header["n_leaves"]), len(classes), size)
            blocks = FileBlocks(path / ROWS_FILE, arrays, d, 0, page_cache, _index_type(d))
            forest = cls(blocks, d, arrays, classes)
            forest.memory = memory
            blocks.read_bytes = min(READ_BYTES, int(READ_SHARE * memory))
            blocks.keep(max(0, memory - forest._own_bytes - READ_COPIES * blocks.read_bytes))
        except DAMAGED as error:
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

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "codes": np.concatenate(self.codes),
            "ids": np.concatenate(self.ids),
            "centroids": np.array(self.centroids, np.float32),
            "radii": np.array(self.radii),
            "pivots": np.concatenate(self.pivots),
            "children": np.concatenate(self.children),
            "roots": np.array(self.roots),
        }


class BlockFile:
    """A file of blocks of rows as it is written, and the table that tells them apart.

    Parameters
    ----------
    index_type
        Of the columns of sparse rows.
    """

    def __init__(self, path: Path, index_type: np.dtype[Any]) -> None:
        self.path, self.index_type = path, index_type
        self.n_blocks = self.n_bytes = 0
        self._file = path.open("wb")
        self._table: dict[str, list[int]] = {key: [] for key in ("offset", "rows", "filled", "kind", "crc")}

    @property
    def table(self) -> dict[str, NDArray[Any]]:
        return {f"block_{key}": np.array(values, np.int64) for key, values in self._table.items()}

    def write(self, X: Any, size: int) -> None:
        """Rows, in blocks of `size`."""
        for first in range(0, X.shape[0], size):
            self._write(X[first : first + size])

    def _write(self, X: Any) -> None:
        sparse = scipy.sparse.issparse(X)
        values = X.data if sparse else X
        kind = next(k for k, t in enumerate(TYPES, 1) if _fits(values, np.dtype(t)))
        data = np.ascontiguousarray(values, TYPES[kind - 1]).tobytes()
        if sparse:
            data = X.indptr.astype("<i8").tobytes() + X.indices.astype(self.index_type).tobytes() + data
        entry = {
            "offset": self.n_bytes,
            "rows": X.shape[0],
            "filled": values.size,
            "kind": -kind if sparse else kind,
            "crc": zlib.crc32(data),
        }
        for key, value in entry.items():
            self._table[key].append(value)
        self.n_blocks += 1
        self.n_bytes += len(data)
        self._file.write(data)

    def sync(self) -> None:
        """Have all of it on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _Dealer:
    """Rows as they come, dealt at random to parts of equal size.

    Rows wait in a file: whenever a share of the memory is full they are shuffled and written in packets. When all have
    come each part is dealt its share of the packets of every shuffle.
    """

    def __init__(self, folder: Path, memory: int, dtype: str | None, rng: np.random.Generator) -> None:
        if dtype not in (None, "float32"):
            raise ValueError(f'`dtype` must be None or "float32", got {dtype!r}')
        self.memory, self.dtype, self.rng = memory, dtype, rng
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
        X = _checked(X)
        if self.dtype:
            X = X.astype(self.dtype)
        sparse = scipy.sparse.issparse(X)
        if self._waiting and sparse != scipy.sparse.issparse(self._waiting[-1]):
            raise ValueError("some batches are sparse and some are not: give one kind")
        if not sparse and self.d not in (0, X.shape[1]):
            raise ValueError(f"a batch has {X.shape[1]} columns after {self.d} before: give all the same")
        labels = y.tolist() if isinstance(y, np.ndarray) else list(y)
        if len(labels) != X.shape[0]:
            raise ValueError(f"a batch has {X.shape[0]} rows and {len(labels)} labels: give one a row")
        codes = [self.numbers.setdefault(label, len(self.numbers)) for label in labels]
        self._waiting_codes.append(_smallest(codes))
        self.d = max(self.d, X.shape[1])
        self.n += X.shape[0]
        self._waiting.append(X)
        self._waiting_bytes += bytes_of(X)
        if self._waiting_bytes >= self.memory // 8:
            self._shuffle()

    def _shuffle(self) -> None:
        if not self._waiting:
            return
        if scipy.sparse.issparse(self._waiting[0]):
            self._waiting = [_resized(X, self.d) for X in self._waiting]
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
        """No more rows come: those there are."""
        self._shuffle()
        self.file.sync()
        return FileBlocks(self.file.path, self.file.table, self.d, 0, False, self.file.index_type)

    def deal(self, blocks: FileBlocks) -> Iterator[tuple[Any, Ints, Ints]]:
        """The parts, each as rows, numbers of their labels, and those of the rows in their source."""
        codes, ids = np.concatenate(self._codes), np.concatenate(self._ids)
        self._codes.clear()
        self._ids.clear()
        n_parts = max(1, math.ceil(float(blocks.sizes_in_memory.sum()) / max(1, self.memory // 8)))
        dealt = np.concatenate([self.rng.permutation(np.arange(*ends)) for ends in pairwise(self._shuffles)])
        for k in range(n_parts):
            packets = np.sort(dealt[k::n_parts])
            if len(packets):
                rows = np.concatenate([np.arange(blocks.starts[i], blocks.starts[i + 1]) for i in packets])
                yield blocks.take(rows), codes[rows], ids[rows]

    def close(self) -> None:
        self.file.close()
        self.file.path.unlink()


def _check_whole(arrays: dict[str, NDArray[Any]], d: int, n_leaves: int, n_classes: int, n_bytes: int) -> None:
    """Raise ValueError where an array is not of its kind, its shape or its range."""
    n, n_nodes, n_blocks = len(arrays["ids"]), len(arrays["children"]), len(arrays["block_rows"])
    n_sample = len(arrays["sample"])
    # Shape, the least value, and the one that all are below.
    expected: dict[str, tuple[tuple[int, ...], float, float]] = {
        "block_offset": ((n_blocks,), 0, n_bytes + 1),
        "block_rows": ((n_blocks,), 1, n + 1),
        "block_filled": ((n_blocks,), 0, n_bytes + 1),
        "block_kind": ((n_blocks,), -len(TYPES), len(TYPES) + 1),
        "block_crc": ((n_blocks,), 0, 1 << 32),
        "codes": ((n,), 0, n_classes),
        "ids": ((n,), 0, n),
        "sample": ((n_sample,), 0, n),
        "centroids": ((n_leaves, d), -math.inf, math.inf),
        "radii": ((n_leaves,), 0, math.inf),
        "pivots": ((n_nodes, d + 1), -2, 2),
        "children": ((n_nodes, 2), -n_leaves, n_nodes + 1),
        "roots": ((len(arrays["roots"]),), 0, n_nodes),
    }
    for name, (shape, least, beyond) in expected.items():
        values = arrays[name]
        kinds = "f" if name in ("centroids", "radii", "pivots") else "iu"
        if values.shape != shape or values.dtype.kind not in kinds:
            raise ValueError(f"`{name}` has shape {values.shape} and type {values.dtype}, not {shape} of kind {kinds}")
        if not (values.size == 0 or (values.min() >= least and values.max() < beyond)):
            raise ValueError(f"`{name}` has values outside of [{least}, {beyond})")
    first, last = arrays["children"].T
    inner = np.flatnonzero(first >= 0)
    if (first[inner] <= inner).any() or (last[inner] <= first[inner]).any():
        raise ValueError("`children` do not come after their parents")
    rows, is_dense = arrays["block_rows"], arrays["block_kind"] > 0
    if rows[:n_leaves].sum() != n or rows[n_leaves:].sum() != n_sample or not arrays["block_kind"].all():
        raise ValueError("blocks do not add up to the rows and their sample")
    if (arrays["block_filled"] != rows * d)[is_dense].any():
        raise ValueError("a block has more or fewer values than its rows have columns")


def _write_index(
    folder: Path, dealer: _Dealer, build: _Build, n_sample: int, header: Callable[[], dict[str, Any]] | None
) -> None:
    """A tree for each part, leaf by leaf; then a sample of all rows, and what is known of them."""
    n, d = dealer.n, dealer.d
    if not n:
        raise ValueError("there are no rows to build an index of")
    waiting, file = dealer.gather(), BlockFile(folder / ROWS_FILE, _index_type(d))
    with closing(waiting), closing(file):
        row_bytes = max(1.0, dealer.file.n_bytes / n)
        leaf = math.ceil(max(LEAF_BYTES, CENTROIDS * 4 * d) / row_bytes)
        n_sample = min(n, n_sample, max(1, int(n * dealer.memory / (8.0 * waiting.sizes_in_memory.sum()))))
        sample = np.sort(build.rng.choice(n, n_sample, replace=False))
        sampled: list[Any] = []
        start = 0
        for X, codes, ids in dealer.deal(waiting):
            X, bounds = build.add(X, codes, ids, leaf)
            for first, last in pairwise(bounds):
                file.write(X[first:last], last - first)
            ends = np.searchsorted(sample, [start, start + X.shape[0]])
            sampled.append(X[sample[slice(*ends)] - start])
            start += X.shape[0]
        n_leaves = file.n_blocks
        file.write(stack(sampled, d), max(1, math.ceil(LEAF_BYTES / row_bytes)))
        file.sync()
    content = {
        "class": "MetricForest",
        "n_columns": d,
        "classes": [encode_label(label) for label in dealer.numbers],
        "n_leaves": n_leaves,
        "rows_bytes": file.n_bytes,
    }
    extra = header() if header else {}
    write_archive(folder / INDEX_FILE, content | extra, build.arrays() | file.table | {"sample": sample})


def _checked(X: Any) -> Any:
    """Rows as an array or canonical CSR in one of the types there are."""
    sparse = scipy.sparse.issparse(X)
    X = X.tocsr() if sparse else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"rows must be a table of two dimensions, got shape {X.shape}")
    if X.shape[1] == 0:
        raise ValueError("rows have no columns")
    if X.dtype not in TYPES:
        X = X.astype(np.float64)
    if sparse and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if not np.isfinite(X.data if sparse else X).all():
        raise ValueError("some values are missing or infinite: fill them in, or leave their rows out")
    return X


def _smallest(values: Any) -> NDArray[Any]:
    """Numbers from 0 on in the smallest unsigned type."""
    values = np.asarray(values)
    smallest: NDArray[Any] = values.astype(np.min_scalar_type(int(values.max(initial=0))))
    return smallest


def _resized(X: Any, d: int) -> Any:
    """A canonical CSR matrix with columns that came later, without copying it."""
    wider = scipy.sparse.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], d), copy=False)
    wider.has_canonical_format = True
    return wider


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
