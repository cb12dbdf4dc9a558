"""The index: rows on disk, in leaves that a pass may skip."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import connectors
from streamsvm.batch.matrix import Floats, Ints, Matrix, Rows, as_matrix
from streamsvm.batch.metric_forest.blocks import READ_BYTES, Contents, FileBlocks, floats, read_index
from streamsvm.batch.metric_forest.building import build, complete_rows
from streamsvm.parameters import ParameterError

# Maximum share of the memory for one read of adjacent blocks, and the number of its copies in memory.
READ_SHARE, READ_COPIES = 0.05, 3
# Magnitude of the score of a skipped block.
FAR = 1e30


class MetricForest(Rows):
    """Index of rows on disk, with passes that skip rows far from a hyperplane.

    Rows are split at random into parts that fit in memory, and a metric tree divides each part into leaves. A leaf is
    one block, so the rows near a hyperplane are in few blocks. *Positions* number the rows in the order of the leaves.
    `IndexedBCD.fit` accepts a forest in place of rows. `from_source` and `from_batches` create a forest, and `open`
    opens it.

    Parameters
    ----------
    blocks, index
        The rows, and the arrays that describe them.

    Attributes
    ----------
    shape
        Number of rows and columns.
    labels, ids
        Labels of the rows, and their numbers in the source, by position.
    n_leaves
        Number of leaves.

    Notes
    -----
    The published search [1]_ descends the trees by the distance to boundaries between pivots, and ends when it has
    found enough rows. A pass over this index skips the leaves that are certainly beyond the range of the loss. This
    follows from |w . centroid + b| and the radius of the leaf.

    References
    ----------
    .. [1] I. E.-H. Yen, C.-F. Chang, T.-W. Lin, S.-W. Lin, S.-D. Lin: Indexed block coordinate descent for large-scale
       linear classification with limited memory, KDD 2013.
    """

    precision = np.float32

    def __init__(self, blocks: FileBlocks, index: Contents) -> None:
        arrays, d = index.arrays, index.n_columns
        self.blocks, self.classes = blocks, index.classes
        self.codes, self.ids = arrays["codes"], arrays["ids"]
        self.centroids, self.radii = arrays["centroids"], arrays["radii"]
        self.sample_positions = arrays["sample"]
        self.n_leaves = len(self.radii)
        self.shape = (len(self.ids), d)
        self.starts = np.concatenate([[0], np.cumsum(arrays["blocks"][: self.n_leaves, 1])])
        self.memory = math.inf
        self.row_bytes = blocks.row_bytes
        self._own_bytes = sum(array.nbytes for array in arrays.values())

    def close(self) -> None:
        """Close the file."""
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
            scores = np.asarray(self.centroids @ plane[:-1].astype(np.float32), np.float64) + plane[-1]
            # A lower bound of |w . x + b| in each leaf, with a margin for rounding.
            skipped = np.abs(scores) * (1.0 - 1e-5) - np.linalg.norm(plane[:-1]) * self.radii > reach
        i = 0
        while i < self.n_leaves:
            if skipped[i]:
                yield slice(int(self.starts[i]), int(self.starts[i + 1])), math.copysign(FAR, scores[i])
                i += 1
                continue
            stop = i + int(np.argmax(skipped[i:])) if skipped[i:].any() else self.n_leaves
            for begin, end, X in self.blocks.read(i, stop):
                yield slice(int(self.starts[begin]), int(self.starts[end])), as_matrix(floats(X))
            i = stop

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Ints, Any]:
        m = len(self.sample_positions)
        chosen = np.sort(rng.choice(m, min(n, m), replace=False))
        return self.sample_positions[chosen], self.blocks.take(self.shape[0] + chosen)

    def row_budget(self, n_bytes: float) -> float:
        needed = self._own_bytes + n_bytes + READ_COPIES * self.blocks.read_bytes
        if self.memory < needed + self.blocks.read_bytes:
            raise ParameterError(
                "memory",
                f"is {self.memory / 2**20:.1f} MB, but a fit on this index needs {needed / 2**20:.1f} MB besides "
                f"its rows ({self.shape[0]} rows, {self.n_leaves} leaves): increase it",
            )
        return self.memory - needed

    # Building ----------------------------------------------------------------------------------------------------

    @classmethod
    def from_batches(
        cls,
        path: str | os.PathLike[str],
        batches: Iterable[tuple[Any, Any]],
        *,
        memory: int = 256 << 20,
        n_sample: int = 40_000,
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
        random_state
            Seed.

        Raises
        ------
        FileExistsError
            If `path` exists.
        ValueError, OSError
            If rows are missing, mixed or invalid, or if the disk is full. Nothing is left at `path`.
        """
        build(Path(path), batches, memory=memory, n_sample=n_sample, random_state=random_state)

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
        with a missing or infinite value are rejected. The index's header counts them.

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
        rejected = {"rejected": 0}
        with closing(connectors.open_source(source, **{"batch_size": 8192, **(options or {})})) as stream:
            build(Path(path), complete_rows(stream, source, rejected, progress), rejected, memory=memory)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, memory: int = 256 << 20) -> Self:
        """Open an index on disk.

        Parameters
        ----------
        path
            Folder of the index.
        memory
            Maximum number of bytes that the index and a fit on it hold.

        Raises
        ------
        ArchiveError, FileNotFoundError
            If the folder is damaged, not an index, of a newer version, or does not exist.
        """
        index, blocks = read_index(Path(path))
        blocks.read_bytes = min(READ_BYTES, int(READ_SHARE * memory))
        forest = cls(blocks, index)
        forest.memory = memory
        return forest
