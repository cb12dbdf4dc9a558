"""The files of an index on disk.

An index is a folder with two files. `rows.bin` holds blocks of rows: the leaves of the trees in order, then a uniform
sample of all rows. A block is an array in the format of `numpy.save`, or the three arrays of a CSR matrix (row starts,
columns, values), with values in the smallest type that holds them. `index.svm` is an archive of streamsvm (see
`streamsvm.models`): the JSON header has "class", "n_columns", "classes", "n_leaves" and "row_bytes", and the arrays are

    block_rows, block_bytes, block_crc  per block: numbers of rows and of bytes, and zlib's CRC-32
    codes, ids                          per row, in the smallest unsigned type: number of the label, and of the row in
                                        its source
    sample                              positions of the sampled rows
    centroids, radii                    per leaf: mean of its rows, and their largest distance from it
"""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.matrix import Ints, stack
from streamsvm.models import ArchiveError
from streamsvm.models.archive import CORRUPT_ERRORS, decode_labels, encode_label, read_archive, write_archive

# Types of stored values, the smallest first.
TYPES = ("<u1", "<i1", "<i2", "<f4", "<f8")
ROWS_FILE = "rows.bin"
# Minimum bytes of a block on disk, because small reads are slow.
LEAF_BYTES = 256 << 10


class FileBlocks:
    """Blocks of rows in a file, verified by checksums when they are read.

    Parameters
    ----------
    path, table, d
        The file, the table of `BlockFile`, and the number of columns.
    row_bytes
        Mean bytes of a row in memory.
    """

    def __init__(self, path: Path, table: dict[str, NDArray[Any]], d: int, row_bytes: float) -> None:
        self.path, self.d, self.row_bytes = path, d, row_bytes
        self.rows, self.sizes, self.crcs = table["block_rows"], table["block_bytes"], table["block_crc"]
        self.starts, self.offsets = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (self.rows, self.sizes))
        self.bytes_read = 0
        self._file = path.open("rb", buffering=0)

    def block(self, i: int) -> Any:
        """Read the rows of a block, as float32 or float64."""
        size, offset = int(self.sizes[i]), int(self.offsets[i])
        data = os.pread(self._file.fileno(), size, offset)
        self.bytes_read += size
        try:
            if zlib.crc32(data) != int(self.crcs[i]):
                raise ValueError("its checksum differs")
            return self._decoded(data, int(self.rows[i]))
        except (EOFError, *CORRUPT_ERRORS) as error:
            raise ArchiveError(
                f"{self.path}: block {i} at byte {offset} is damaged ({error}): rebuild the index"
            ) from error

    def _decoded(self, data: bytes, n: int) -> Any:
        """Return rows from the bytes of a block; they are checked, because a crafted file has matching checksums."""
        file, arrays = io.BytesIO(data), []
        while file.tell() < len(data):
            arrays.append(np.load(file, allow_pickle=False))
        values = arrays[-1]
        if values.dtype not in TYPES:
            raise TypeError(f"values of type {values.dtype}")
        values = values.astype(np.float64 if values.dtype == np.float64 else np.float32, copy=False)
        if len(arrays) == 1:
            return values.reshape(n, self.d)
        starts, columns, _ = arrays
        X = scipy.sparse.csr_matrix((values, columns.astype(np.int32), starts), shape=(n, self.d))
        X.check_format()
        X.has_canonical_format = True
        return X

    def take(self, positions: Ints) -> Any:
        """Copy rows at ascending positions, as float32 or float64."""
        numbers, firsts = np.unique(np.searchsorted(self.starts, positions, "right") - 1, return_index=True)
        parts = np.split(positions, firsts[1:])
        found = (self.block(i)[part - self.starts[i]] for i, part in zip(numbers.tolist(), parts, strict=True))
        return stack(list(found), self.d)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class BlockFile:
    """Writer of blocks of rows.

    Attributes
    ----------
    n_bytes, memory
        Number of bytes of all arrays on disk, and in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.n_bytes, self.memory = path, 0, 0
        self._file = path.open("wb")
        self._table: dict[str, list[int]] = {"block_rows": [], "block_bytes": [], "block_crc": []}

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self._table["block_rows"])

    @property
    def table(self) -> dict[str, NDArray[Any]]:
        """Numbers of rows and bytes, and checksum of each block."""
        return {key: np.array(values, np.int64) for key, values in self._table.items()}

    def write(self, X: Any, size: int) -> None:
        """Write rows in blocks of `size` rows."""
        for first in range(0, X.shape[0], size):
            self._write(X[first : first + size])

    def _write(self, X: Any) -> None:
        sparse, content = scipy.sparse.issparse(X), io.BytesIO()
        values = X.data if sparse else X
        kind = next(kind for kind in TYPES if _fits(values, np.dtype(kind)))
        arrays = [np.ascontiguousarray(values, kind)]
        if sparse:
            arrays = [X.indptr.astype("<i4"), X.indices.astype(np.min_scalar_type(X.shape[1])), *arrays]
        for array in arrays:
            np.save(content, array)
        data = content.getbuffer()
        for key, value in zip(self._table, (X.shape[0], len(data), zlib.crc32(data)), strict=True):
            self._table[key].append(value)
        self.n_bytes += sum(array.nbytes for array in arrays)
        self.memory += values.size * max(np.dtype(kind).itemsize, 4)
        self.memory += 4 * (X.indices.size + X.indptr.size) if sparse else 0
        self._file.write(data)

    def sync(self) -> None:
        """Flush the file to disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _fits(values: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether another type represents the values exactly."""
    if values.dtype == dtype:
        return True
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if values.size and not (values.min() >= limits.min and values.max() <= limits.max):
            return False
    return bool(np.array_equal(values, values.astype(dtype)))


INDEX_FILE = "index.svm"


class Contents(NamedTuple):
    """Header and arrays of an index."""

    classes: list[Any]
    n_columns: int
    n_leaves: int
    row_bytes: float
    arrays: dict[str, NDArray[Any]]


def write_index(folder: Path, index: Contents, extra: Mapping[str, Any]) -> None:
    """Write `index.svm`; `extra` are additional entries of the header."""
    header = {
        "class": "MetricForest",
        "classes": [encode_label(label) for label in index.classes],
        "n_columns": index.n_columns,
        "n_leaves": index.n_leaves,
        "row_bytes": index.row_bytes,
    }
    write_archive(folder / INDEX_FILE, header | dict(extra), index.arrays)


def read_index(folder: Path) -> Contents:
    """Read and validate `index.svm`.

    Raises
    ------
    ArchiveError
        If it is not an index, or `rows.bin` does not have the size that it states.
    """
    header, arrays = read_archive(folder / INDEX_FILE)
    if header.get("class") != "MetricForest":
        raise ArchiveError(f"{folder / INDEX_FILE} holds {header.get('class')!r}, not a MetricForest")
    with refusing_damage(folder):
        numbers = int(header["n_columns"]), int(header["n_leaves"]), float(header["row_bytes"])
        index = Contents(decode_labels(header["classes"]), *numbers, arrays)
        _check(index)
    found, expected = (folder / ROWS_FILE).stat().st_size, int(arrays["block_bytes"].sum())
    if found != expected:
        raise ArchiveError(f"{folder / ROWS_FILE} has {found} bytes where {expected} were written: rebuild the index")
    return index


@contextmanager
def refusing_damage(folder: Path) -> Iterator[None]:
    """Convert errors that corrupt content raises to ArchiveError."""
    try:
        yield
    except CORRUPT_ERRORS as error:
        raise ArchiveError(f"{folder / INDEX_FILE} is not a whole index: {error}") from error


def _check(index: Contents) -> None:
    """Raise ValueError if an array has a wrong type, shape or range."""
    arrays, n_leaves = index.arrays, index.n_leaves
    n, n_sample, n_blocks = len(arrays["ids"]), len(arrays["sample"]), len(arrays["block_rows"])
    # Shape, minimum, and an exclusive maximum.
    expected: dict[str, tuple[tuple[int, ...], float, float]] = {
        "block_rows": ((n_blocks,), 1, n + 1),
        "block_bytes": ((n_blocks,), 1, 1 << 40),
        "block_crc": ((n_blocks,), 0, 1 << 32),
        "codes": ((n,), 0, len(index.classes)),
        "ids": ((n,), 0, n),
        "sample": ((n_sample,), 0, n),
        "centroids": ((n_leaves, index.n_columns), -math.inf, math.inf),
        "radii": ((n_leaves,), 0, math.inf),
    }
    for name, (shape, least, beyond) in expected.items():
        values = arrays[name]
        kinds = "f" if name in ("centroids", "radii") else "iu"
        if values.shape != shape or values.dtype.kind not in kinds:
            raise ValueError(f"`{name}` has shape {values.shape} and type {values.dtype}, not {shape} of kind {kinds}")
        if not (values.size == 0 or (values.min() >= least and values.max() < beyond)):
            raise ValueError(f"`{name}` has values outside of [{least}, {beyond})")
    rows = arrays["block_rows"]
    if rows[:n_leaves].sum() != n or rows[n_leaves:].sum() != n_sample or not 0.0 < index.row_bytes < math.inf:
        raise ValueError("blocks do not add up to the rows and their sample")
