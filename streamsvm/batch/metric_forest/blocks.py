"""The files of an index on disk.

An index is a folder with two files. `rows.bin` holds blocks of rows: the leaves of the trees in order, then a uniform
sample of all rows. A block is an array in C order, or the three arrays of a CSR matrix: row starts as int64, columns,
values. All are little-endian. Values have the smallest type that holds them. `index.svm` is an archive of streamsvm
(see `streamsvm.models`): the JSON header has "class", "n_columns", "classes" and "rows_bytes", and the arrays are

    blocks                              per block: offset, number of rows and of values, number of the type in TYPES
                                        (negative: CSR), zlib's CRC-32
    codes, ids                          per row, in the smallest unsigned type: number of the label, and of the row in
                                        its source
    sample                              positions of the sampled rows
    centroids, radii                    per leaf: mean of its rows, and their largest distance from it
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.matrix import Ints, canonical_of, stack
from streamsvm.models import ArchiveError
from streamsvm.models.archive import CORRUPT_ERRORS, decode_labels, encode_label, read_archive, write_archive

TYPES = ("<u1", "<i1", "<i2", "<f4", "<f8")
ROWS_FILE = "rows.bin"
# Minimum bytes of a block on disk, because small reads are slow.
LEAF_BYTES = 256 << 10
# Maximum bytes of adjacent blocks in one read.
READ_BYTES = 4 << 20


class FileBlocks:
    """Blocks of rows in a file, verified by checksums when they are read.

    Parameters
    ----------
    path, table, d
        The file, the table of `BlockFile`, and the number of columns.
    index_type
        Type of the column numbers of sparse rows.
    """

    def __init__(self, path: Path, table: Ints, d: int, index_type: np.dtype[Any]) -> None:
        self.path, self.d, self.index_type = path, d, index_type
        self.offsets, self.rows, self.filled, self.kinds, self.crcs = np.ascontiguousarray(table.T)
        self.starts = np.concatenate([[0], np.cumsum(self.rows)])
        itemsizes = np.array([np.dtype(t).itemsize for t in TYPES])[np.abs(self.kinds) - 1]
        is_sparse, floats = self.kinds < 0, np.maximum(itemsizes, 4)
        self.sizes = self.filled * (itemsizes + is_sparse * index_type.itemsize) + is_sparse * 8 * (self.rows + 1)
        self.sizes_in_memory = self.filled * (floats + 4 * is_sparse) + is_sparse * 4 * (self.rows + 1)
        self.row_bytes = float(self.sizes_in_memory.sum()) / max(1, int(self.rows.sum()))
        self.bytes_read, self.read_bytes = 0, READ_BYTES
        self._file = path.open("rb", buffering=0)

    def _bytes(self, first: int, last: int) -> memoryview:
        """Read and verify blocks first to last - 1."""
        begin, end = int(self.offsets[first]), int(self.offsets[last - 1] + self.sizes[last - 1])
        parts = []
        at = begin
        while at < end:
            part = os.pread(self._file.fileno(), end - at, at)
            if not part:
                raise ArchiveError(f"{self.path} ends at byte {at}, where block {first} extends to {end}: rebuild it")
            parts.append(part)
            at += len(part)
        data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        self.bytes_read += end - begin
        for i in range(first, last):
            start = int(self.offsets[i]) - begin
            if zlib.crc32(data[start : start + int(self.sizes[i])]) != int(self.crcs[i]):
                raise ArchiveError(f"{self.path}: block {i} at byte {begin + start} is damaged: rebuild the index")
        return data

    def read(self, first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        """Yield the rows of blocks first to last - 1, several blocks at a time.

        Each item has the first block, the last block + 1, and the rows.
        """
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
        # The checksum does not protect against a crafted file, so check the indices.
        if starts[0] != 0 or starts[-1] != filled or (np.diff(starts) < 0).any() or indices.max(initial=0) >= self.d:
            raise ArchiveError(f"{self.path}: a block refers to rows or columns that do not exist: rebuild the index")
        stored = np.frombuffer(data, values, filled, 8 * (n + 1) + indices.nbytes).astype(_float_type(values))
        return canonical_of(stored, indices.astype(np.int32), starts.astype(np.int32), (n, self.d))

    def take(self, positions: Ints) -> Any:
        """Copy rows at ascending positions, as float32 or float64."""
        of = np.searchsorted(self.starts, positions, "right") - 1
        wanted, firsts = np.unique(of, return_index=True)
        ends = np.append(firsts[1:], len(positions))
        parts = [
            floats(self._block(i)[positions[first:end] - self.starts[i]])
            for i, first, end in zip(wanted.tolist(), firsts, ends, strict=True)
        ]
        return stack(parts, self.d)

    def _block(self, i: int) -> Any:
        return next(self.read(i, i + 1))[2]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def index_type_of(d: int) -> np.dtype[Any]:
    """Return the smallest type for d column numbers."""
    return np.dtype("<u2" if d <= 1 << 16 else "<u4")


def _float_type(values: np.dtype[Any]) -> type[np.floating[Any]]:
    return np.float64 if values == np.float64 else np.float32


def floats(X: Any) -> Any:
    """Convert rows to float32 or float64."""
    return X if X.dtype in (np.float32, np.float64) else X.astype(_float_type(X.dtype))


class BlockFile:
    """Writer of blocks of rows, with a table of their offsets.

    Parameters
    ----------
    path
        The file.
    index_type
        Type of the column numbers of sparse rows.
    """

    def __init__(self, path: Path, index_type: np.dtype[Any]) -> None:
        self.path, self.index_type = path, index_type
        self.n_blocks = self.n_bytes = 0
        self._file = path.open("wb")
        self._table: list[tuple[int, ...]] = []

    @property
    def table(self) -> Ints:
        """Offset, rows, stored values, type and checksum of each block, shape (n, 5)."""
        return np.array(self._table, np.int64).reshape(-1, 5)

    def write(self, X: Any, size: int) -> None:
        """Write rows in blocks of `size` rows."""
        for first in range(0, X.shape[0], size):
            self._write(X[first : first + size])

    def _write(self, X: Any) -> None:
        sparse = scipy.sparse.issparse(X)
        values = X.data if sparse else X
        kind = next(k for k, t in enumerate(TYPES, 1) if _fits(values, np.dtype(t)))
        data = np.ascontiguousarray(values, TYPES[kind - 1]).tobytes()
        if sparse:
            data = X.indptr.astype("<i8").tobytes() + X.indices.astype(self.index_type).tobytes() + data
        self._table.append((self.n_bytes, X.shape[0], values.size, -kind if sparse else kind, zlib.crc32(data)))
        self.n_blocks += 1
        self.n_bytes += len(data)
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
    rows_bytes: int
    arrays: dict[str, NDArray[Any]]


def write_index(folder: Path, index: Contents, extra: Mapping[str, Any]) -> None:
    """Write `index.svm`; `extra` are additional entries of the header."""
    header = {
        "class": "MetricForest",
        "n_columns": index.n_columns,
        "classes": [encode_label(label) for label in index.classes],
        "rows_bytes": index.rows_bytes,
    }
    write_archive(folder / INDEX_FILE, header | dict(extra), index.arrays)


def read_index(folder: Path) -> tuple[Contents, FileBlocks]:
    """Read and validate `index.svm`, and open the file of rows.

    Raises
    ------
    ArchiveError
        If a file is damaged, is not of an index, or has a newer version.
    """
    header, arrays = read_archive(folder / INDEX_FILE)
    if header.get("class") != "MetricForest":
        raise ArchiveError(f"{folder / INDEX_FILE} holds {header.get('class')!r}, not a MetricForest")
    try:
        index = Contents(decode_labels(header["classes"]), int(header["n_columns"]), int(header["rows_bytes"]), arrays)
        _check_ranges(index)
        _check_blocks(index.arrays, index.n_columns)
        blocks = FileBlocks(folder / ROWS_FILE, arrays["blocks"], index.n_columns, index_type_of(index.n_columns))
    except CORRUPT_ERRORS as error:
        name = folder / INDEX_FILE
        raise ArchiveError(f"{name} is not a complete index of this version; rebuild it: {error}") from error
    found, size = blocks.path.stat().st_size, index.rows_bytes
    if found != size:
        raise ArchiveError(f"{blocks.path} has {found} bytes where {size} were written: rebuild the index")
    return index, blocks


def _check_ranges(index: Contents) -> None:
    """Raise ValueError if an array has a wrong type, shape or range."""
    arrays, d, n_bytes, n_classes = index.arrays, index.n_columns, index.rows_bytes, len(index.classes)
    n, n_blocks, n_leaves = len(arrays["ids"]), len(arrays["blocks"]), len(arrays["radii"])
    # Shape, minimum, and an exclusive maximum; those of blocks by column.
    expected: dict[str, tuple[tuple[int, ...], Any, Any]] = {
        "blocks": (
            (n_blocks, 5),
            [0, 1, 0, -len(TYPES), 0],
            [n_bytes + 1, n + 1, n_bytes + 1, len(TYPES) + 1, 1 << 32],
        ),
        "codes": ((n,), 0, n_classes),
        "ids": ((n,), 0, n),
        "sample": ((len(arrays["sample"]),), 0, n),
        "centroids": ((n_leaves, d), -math.inf, math.inf),
        "radii": ((n_leaves,), 0, math.inf),
    }
    for name, (shape, least, beyond) in expected.items():
        values = arrays[name]
        kinds = "f" if name in ("centroids", "radii") else "i" if name == "blocks" else "iu"
        if values.shape != shape or values.dtype.kind not in kinds:
            raise ValueError(f"`{name}` has shape {values.shape} and type {values.dtype}, not {shape} of kind {kinds}")
        if len(values) and not ((values.min(axis=0) >= least).all() and (values.max(axis=0) < beyond).all()):
            raise ValueError(f"`{name}` has values outside of [{least}, {beyond})")


def _check_blocks(arrays: dict[str, NDArray[Any]], d: int) -> None:
    """Raise ValueError if the blocks do not fit the rows."""
    n, n_sample, n_leaves = len(arrays["ids"]), len(arrays["sample"]), len(arrays["radii"])
    rows, filled, kinds = arrays["blocks"][:, 1:4].T
    if rows[:n_leaves].sum() != n or rows[n_leaves:].sum() != n_sample or not kinds.all():
        raise ValueError("blocks do not add up to the rows and their sample")
    if (filled != rows * d)[kinds > 0].any():
        raise ValueError("a block has more or fewer values than its rows have columns")
