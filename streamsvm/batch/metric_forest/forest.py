"""The index: rows as a solver asks for them, and the search for those near a hyperplane."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

import connectors
from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.batch.metric_forest.archive import Contents, check_size, read_index, refusing_damage
from streamsvm.batch.metric_forest.blocks import READ_BYTES, ROWS_FILE, Blocks, FileBlocks, Spill, floats, index_type_of
from streamsvm.batch.metric_forest.building import build_in_memory, build_on_disk
from streamsvm.batch.metric_forest.source import SourceRows

# A leaf in memory has at least so many rows.
LEAF_ROWS = 64
# Neighbouring blocks are read at once up to this share of the memory; copies take some times that.
READ_SHARE, READ_COPIES = 0.05, 3
# A score that stands for those of a block that was left out.
FAR = 1e30


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


class MetricForest:
    """An index of rows that finds those near any hyperplane, in memory or on disk; one serves many fits.

    Rows are split into parts that fit in memory. Each is parted by a tree whose leaves lie side by side, so that a few
    rows near a hyperplane are a few blocks. A forest is given to `IndexedBCD.fit` in place of rows. Use
    `build` or `open` to have one.

    Parameters
    ----------
    blocks, index
        The rows, and what is known of them, as `build` and `open` find them.

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

    def __init__(self, blocks: Blocks, index: Contents) -> None:
        arrays, d = index.arrays, index.n_columns
        self.blocks, self.classes = blocks, index.classes
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
        """The labels of the rows, by position, shape (n,)."""
        labels: NDArray[Any] = np.asarray(self.classes)[self.codes]
        return labels

    @property
    def bytes_read(self) -> int:
        """How much was read from disk."""
        return self.blocks.bytes_read

    # Rows, as a solver asks for them -----------------------------------------------------------------------------

    def scan(self, plane: Floats | None = None, reach: float = math.inf) -> Iterator[tuple[slice, Matrix | float]]:
        """All rows in blocks; those of leaves that surely lie beyond reach of the plane are left out.

        Parameters
        ----------
        plane
            A hyperplane (w, b), shape (d + 1,); None leaves nothing out.
        reach
            Rows with |w . x + b| at most this are wanted.

        Yields
        ------
        (slice, rows or float)
            Positions, and their rows; of a block that was left out a score of the right sign and so large a magnitude.
        """
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
                yield slice(int(self.starts[first]), int(self.starts[last])), as_matrix(floats(X))
            i = stop

    def take(self, positions: Ints) -> Any:
        """Rows at ascending positions; those of the sample are read where they lie together.

        Parameters
        ----------
        positions
            Ascending, shape (n,).

        Returns
        -------
        ndarray or CSR, shape (n, d)
            A copy.
        """
        if len(self.sample_positions):
            indices = np.minimum(np.searchsorted(self.sample_positions, positions), len(self.sample_positions) - 1)
            if np.array_equal(self.sample_positions[indices], positions):
                return self.blocks.take(self.shape[0] + indices)
        return self.blocks.take(positions)

    @contextmanager
    def lend(self, n_bytes: float, share: float) -> Iterator[float]:
        """What of the memory is left for rows beside `n_bytes` of other things, while a share of it keeps blocks.

        Parameters
        ----------
        n_bytes
            What else is held.
        share
            From 0 to 1.

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
        """Of the rows sampled when the index was built, where there are any.

        Parameters
        ----------
        n
            How many at most.
        rng
            What draws them.

        Returns
        -------
        ndarray of int
            Ascending positions.
        """
        among = self.sample_positions if len(self.sample_positions) else np.arange(self.shape[0])
        return np.sort(rng.choice(among, min(n, len(among)), replace=False))

    def spill(self) -> Spill:
        """An empty set of rows on disk, for those that do not fit in memory."""
        assert isinstance(self.blocks, FileBlocks)  # rows that are in memory fit
        return Spill(self.blocks.path.parent.parent, self.blocks)

    # Leaves ------------------------------------------------------------------------------------------------------

    def leaf_of(self, positions: Ints) -> Ints:
        """The leaves rows are in.

        Parameters
        ----------
        positions
            Of the rows.
        """
        return np.asarray(np.searchsorted(self.starts, positions, "right") - 1)

    def leaf_scores(self, plane: Floats) -> Floats:
        """w . centroid + b of every leaf.

        Parameters
        ----------
        plane
            (w, b), shape (d + 1,).

        Returns
        -------
        ndarray of float64, shape (n_leaves,)
            Rounded as the centroids are, which are kept in single precision.
        """
        scores: Floats = np.asarray(self.centroids @ plane[:-1].astype(np.float32), np.float64) + plane[-1]
        return scores

    def leaves(self, leaves: Ints) -> Iterator[tuple[slice, Any]]:
        """Rows of some leaves, in ascending order.

        Parameters
        ----------
        leaves
            Their numbers.

        Yields
        ------
        (slice, rows)
            Positions, and their rows.
        """
        leaves = np.sort(leaves)
        for run in np.split(leaves, np.flatnonzero(np.diff(leaves) > 1) + 1):
            for first, last, X in self.blocks.read(int(run[0]), int(run[-1]) + 1):
                yield slice(int(self.starts[first]), int(self.starts[last])), floats(X)

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
        w, b
            The hyperplane: d numbers, and one.
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
            away = np.abs(np.asarray(floats(X) @ plane[:-1], np.float64) + plane[-1])
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
        random_state
            The seed.
        """
        rng = np.random.default_rng(random_state)
        return cls(*build_in_memory(X, y, leaf_rows=leaf_rows, tree_rows=tree_rows, width=width, rng=rng))

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
        random_state
            The seed.
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
        build_on_disk(
            Path(path),
            batches,
            memory=memory,
            dtype=dtype,
            n_sample=n_sample,
            width=width,
            rng=np.random.default_rng(random_state),
            header=header or dict,
        )

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
        rows = SourceRows(stream, source, progress)
        try:
            cls.from_batches(path, rows, header=rows.header, **how)
        finally:
            stream.close()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, memory: int = 256 << 20, page_cache: bool = True) -> Self:
        """An index on disk.

        Parameters
        ----------
        path
            Its folder.
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
        index = read_index(path)
        with refusing_damage(path):
            table, d = index.arrays, index.n_columns
            blocks = FileBlocks(path / ROWS_FILE, table, d, 0, page_cache, index_type_of(d))
            forest = cls(blocks, index)
            forest.memory = memory
            blocks.read_bytes = min(READ_BYTES, int(READ_SHARE * memory))
            blocks.keep(max(0, memory - forest._own_bytes - READ_COPIES * blocks.read_bytes))
        check_size(path, index.rows_bytes)
        return forest
