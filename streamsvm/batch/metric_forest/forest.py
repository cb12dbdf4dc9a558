"""The index: rows for solvers, and the search for rows near a hyperplane."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import connectors
from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.batch.metric_forest.archive import Contents, check_size, read_index, refusing_damage
from streamsvm.batch.metric_forest.blocks import READ_BYTES, ROWS_FILE, Blocks, FileBlocks, floats, index_type_of
from streamsvm.batch.metric_forest.building import Plan, build_in_memory, build_on_disk
from streamsvm.batch.metric_forest.source import SourceRows
from streamsvm.batch.rows import Rows

# Minimum rows of a leaf in memory.
LEAF_ROWS = 64
# Maximum share of the memory for one read of adjacent blocks, and the number of its copies in memory.
READ_SHARE, READ_COPIES = 0.05, 3
# Magnitude of the score of a skipped block.
FAR = 1e30


class MetricForest(Rows):
    """An index of rows, in memory or on disk, that finds the rows near a hyperplane.

    Rows are split at random into parts that fit in memory, and a metric tree divides each part into leaves. A leaf is
    one block, so the rows near a hyperplane are in few blocks. *Positions* number the rows in the order of the leaves.
    `IndexedBCD.fit` accepts a forest in place of rows. `build` creates a forest in memory. `from_source` and
    `from_batches` create one on disk, and `open` opens it.

    Parameters
    ----------
    blocks, index
        The rows, and the arrays that describe them; `build` and `open` create both.

    Attributes
    ----------
    shape
        Number of rows and columns.
    labels, ids
        Labels of the rows, and their numbers in the source, by position.
    n_leaves
        Number of leaves.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> forest = MetricForest.build(X)
    >>> forest.shape, forest.n_leaves
    ((5000, 2), 51)

    Notes
    -----
    The published search [1]_ descends the trees by the distance to boundaries between pivots. This one visits leaves in
    ascending order of |w . centroid + b|, which finds more of the nearest rows per visited row.

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
        self.sample_positions = arrays["sample"]
        self.n_leaves = len(self.radii)
        self.shape = (len(self.ids), d)
        self.starts = np.concatenate([[0], np.cumsum(arrays["block_rows"][: self.n_leaves])])
        self.is_costly = isinstance(blocks, FileBlocks)
        self.precision = np.float32 if self.is_costly else np.float64
        self.memory = math.inf
        self.row_bytes = blocks.row_bytes
        self._own_bytes = sum(array.nbytes for array in arrays.values())

    def close(self) -> None:
        """Close the file."""
        if isinstance(self.blocks, FileBlocks):
            self.blocks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def labels(self) -> NDArray[Any]:
        """Labels of the rows, by position, shape (n,)."""
        labels: NDArray[Any] = np.asarray(self.classes)[self.codes]
        return labels

    @property
    def bytes_read(self) -> int:
        """Bytes read from disk."""
        return self.blocks.bytes_read

    # Rows for solvers --------------------------------------------------------------------------------------------

    def scan(self, plane: Floats | None = None, reach: float = math.inf) -> Iterator[tuple[slice, Matrix | float]]:
        skipped = np.zeros(self.n_leaves, bool)
        if plane is not None and reach < math.inf:
            scores = self.leaf_scores(plane)
            skipped = self._least(scores, plane) > reach
        i = 0
        while i < self.n_leaves:
            if skipped[i]:
                yield slice(int(self.starts[i]), int(self.starts[i + 1])), math.copysign(FAR, scores[i])
                i += 1
                continue
            stop = i + int(np.argmax(skipped[i:])) if skipped[i:].any() else self.n_leaves
            for part, X in self._read(i, stop):
                yield part, as_matrix(X)
            i = stop

    def _read(self, first: int, last: int) -> Iterator[tuple[slice, Any]]:
        for begin, end, X in self.blocks.read(first, last):
            yield slice(int(self.starts[begin]), int(self.starts[end])), floats(X)

    def _least(self, scores: Floats, plane: Floats) -> Floats:
        """Compute lower bounds of |w . x + b| in each leaf, with a margin for rounding."""
        return np.asarray(np.abs(scores) * (1.0 - 1e-5) - np.linalg.norm(plane[:-1]) * self.radii)

    def take(self, positions: Ints) -> Any:
        # Rows of the sample are stored together, so reading them there is faster.
        if len(self.sample_positions):
            indices = np.minimum(np.searchsorted(self.sample_positions, positions), len(self.sample_positions) - 1)
            if np.array_equal(self.sample_positions[indices], positions):
                return self.blocks.take(self.shape[0] + indices)
        return self.blocks.take(positions)

    def lend(self, n_bytes: float) -> float:
        needed = self._own_bytes + n_bytes + READ_COPIES * self.blocks.read_bytes
        if self.memory < needed + self.blocks.read_bytes:
            raise ValueError(
                f"a fit on this index holds {needed / 2**20:.1f} MB beside rows, for what is known of {self.shape[0]} "
                f"rows and {self.n_leaves} leaves; opened with {self.memory / 2**20:.1f} MB: give more `memory`"
            )
        return self.memory - needed

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        if not len(self.sample_positions):
            return super().sample(n, rng)
        return np.sort(rng.choice(self.sample_positions, min(n, len(self.sample_positions)), replace=False))

    # Leaves ------------------------------------------------------------------------------------------------------

    def leaf_of(self, positions: Ints) -> Ints:
        """Return the leaf of each row.

        Parameters
        ----------
        positions
            Positions of the rows.
        """
        return np.asarray(np.searchsorted(self.starts, positions, "right") - 1)

    def leaf_scores(self, plane: Floats) -> Floats:
        """Compute w . centroid + b of every leaf in single precision.

        Parameters
        ----------
        plane
            (w, b), shape (d + 1,).
        """
        scores: Floats = np.asarray(self.centroids @ plane[:-1].astype(np.float32), np.float64) + plane[-1]
        return scores

    def leaves(self, leaves: Ints) -> Iterator[tuple[slice, Any]]:
        """Read the rows of some leaves.

        Parameters
        ----------
        leaves
            Numbers of the leaves.

        Yields
        ------
        (slice, rows)
            A range of positions, ascending, and the rows.
        """
        leaves = np.sort(leaves)
        for run in np.split(leaves, np.flatnonzero(np.diff(leaves) > 1) + 1):
            yield from self._read(int(run[0]), int(run[-1]) + 1)

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
        """Build an index in memory.

        Parameters
        ----------
        X
            Rows, an array or CSR matrix; they are copied.
        y
            Labels, used only for `labels`.
        leaf_rows
            Minimum rows of a leaf; the maximum is less than four times this number.
        tree_rows
            Maximum rows of a tree, drawn at random.
        width
            Maximum children of a node; 1 leaves the rows in random order.
        random_state
            Seed.
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
        n_sample: int = 40_000,
        width: int = 10,
        random_state: int = 0,
    ) -> None:
        """Build an index on disk in one pass over batches in any order.

        Parameters
        ----------
        path
            The folder to create; it must not exist.
        batches
            Pairs of rows (arrays or CSR matrices) and labels. Values are stored exactly, in the smallest type that fits
            a block.
        memory
            Approximate maximum number of bytes in memory. A tree is built on an eighth of it.
        n_sample
            Rows to sample for initial solutions; the sample takes at most an eighth of `memory`.
        width
            Maximum children of a node; 1 leaves the rows in random order.
        random_state
            Seed.

        Raises
        ------
        FileExistsError
            If `path` exists.
        ValueError, OSError
            If rows are missing, mixed or invalid, or if the disk is full. Nothing is left at `path`.
        """
        build_on_disk(Path(path), batches, Plan(memory, n_sample, width, random_state), dict)

    @classmethod
    def from_source(
        cls,
        path: str | os.PathLike[str],
        source: str,
        *,
        memory: int = 256 << 20,
        progress: Callable[[int, float | None], Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Build an index on disk from CSV, libsvm, Parquet or any source, in one pass.

        Columns keep the order of the source, or their numbers in libsvm. Rows that are malformed, without a label, or
        with a missing or infinite value are rejected. The index's header counts them and describes the first ones.

        Parameters
        ----------
        path
            The folder to create; it must not exist.
        source
            A path or URL.
        memory
            As in `from_batches`.
        progress
            Called with the number of rows read, and the share of the source read or None if it is unknown.
        options
            Options of the source, such as `label`.

        Raises
        ------
        ValueError
            For columns with values that are not numbers.
        """
        stream = connectors.open_source(source, **{"batch_size": 8192, **(options or {})})
        rows = SourceRows(stream, source, progress)
        try:
            build_on_disk(Path(path), rows, Plan(memory), rows.header)
        finally:
            stream.close()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, memory: int = 256 << 20, page_cache: bool = True) -> Self:
        """Open an index on disk.

        Parameters
        ----------
        path
            Folder of the index.
        memory
            Maximum number of bytes that the index and a fit on it hold.
        page_cache
            Whether the operating system should cache the file.

        Raises
        ------
        ArchiveError, FileNotFoundError
            If the folder is damaged, not an index, of a newer version, or does not exist.
        """
        path = Path(path)
        index = read_index(path)
        with refusing_damage(path):
            blocks = FileBlocks(
                path / ROWS_FILE, index.arrays, index.n_columns, index_type_of(index.n_columns), page_cache
            )
            forest = cls(blocks, index)
            forest.memory = memory
            blocks.read_bytes = min(READ_BYTES, int(READ_SHARE * memory))
        check_size(path, index.rows_bytes)
        return forest
