"""Blocks of rows, in memory or in a file: an array in C order each, or the three arrays of a CSR matrix."""

from __future__ import annotations

import math
import os
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.batch.rows import bytes_of, slice_of, stack
from streamsvm.models import ArchiveError

TYPES = ("<u1", "<i1", "<i2", "<f4", "<f8")
ROWS_FILE = "rows.bin"
# A block on disk has at least so many bytes, as reading less at once is slow.
LEAF_BYTES = 256 << 10
# Neighbouring blocks are read at once up to so many bytes.
READ_BYTES = 4 << 20
# In memory they are gone through so many bytes at a time, which stay in the cache from one use to the next.
BLOCK_BYTES = 1 << 20


class Blocks(Protocol):
    """Where blocks of rows are."""

    bytes_read: int
    read_bytes: int
    row_bytes: float

    def read(self, first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        """Rows of blocks first to last - 1, some at once: the first of them, the one after the last, and the rows."""

    def block(self, i: int) -> Any:
        """Rows of one block, which may be asked for again."""

    def take(self, positions: Ints) -> Any:
        """Rows at ascending positions in the order of the blocks, as float32 or float64."""

    def keep(self, memory: int) -> int:
        """Change how many bytes of blocks are kept at most, and tell what it was."""

    def close(self) -> None:
        """Read no more."""


class MemoryBlocks(Blocks):
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

    def take(self, positions: Ints) -> Any:
        return floats(self.X[positions])

    def keep(self, memory: int) -> int:
        return memory

    def close(self) -> None:
        pass


class FileBlocks(Blocks):
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
        # The checksum stands in the same folder: whoever wrote the block may have written that, too.
        if starts[0] != 0 or starts[-1] != filled or (np.diff(starts) < 0).any() or indices.max(initial=0) >= self.d:
            raise ArchiveError(f"{self.path}: a block names rows or columns that are not there: build the index anew")
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
            self._evict(self.memory - size)
            self._kept[i] = X
            self.bytes_kept += size
        return X

    def _evict(self, memory: int) -> None:
        while self.bytes_kept > memory:
            self.bytes_kept -= bytes_of(self._kept.popitem(last=False)[1])

    def keep(self, memory: int) -> int:
        self.memory, before = memory, self.memory
        self._evict(memory)
        return before

    def take(self, positions: Ints) -> Any:
        of = np.searchsorted(self.starts, positions, "right") - 1
        wanted, firsts = np.unique(of, return_index=True)
        ends = np.append(firsts[1:], len(positions))
        kinds = self.kinds[wanted]
        if (kinds < 0).any():
            parts = [
                self.block(i)[positions[first:end] - self.starts[i]]
                for i, first, end in zip(wanted.tolist(), firsts, ends, strict=True)
            ]
            return stack(parts, self.d)
        out = np.empty((len(positions), self.d), np.float64 if (kinds == len(TYPES)).any() else np.float32)
        for i, first, end in zip(wanted.tolist(), firsts, ends, strict=True):
            out[first:end] = self.block(i)[positions[first:end] - self.starts[i]]
        return out

    def close(self) -> None:
        self._file.close()


def index_type_of(d: int) -> np.dtype[Any]:
    """The smallest type that numbers d columns."""
    return np.dtype("<u2" if d <= 1 << 16 else "<u4")


def _float_type(values: np.dtype[Any]) -> type[np.floating[Any]]:
    return np.float64 if values == np.float64 else np.float32


def floats(X: Any) -> Any:
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
        """The rows as they are read again; none can be added after that."""
        if self._blocks is None:
            self._file.close()
            like = self._like
            path, table = self._file.path, self._file.table
            self._blocks = FileBlocks(path, table, like.d, 0, like.page_cache, like.index_type)
            self._blocks.read_bytes = like.read_bytes
        return self._blocks

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns."""
        return self.n_rows, self._like.d

    @property
    def row_bytes(self) -> float:
        """What a row takes in memory, in bytes."""
        return self.blocks.row_bytes

    def scan(self, plane: Floats | None = None, reach: float = math.inf) -> Iterator[tuple[slice, Matrix | float]]:
        """All rows in blocks, as ranges of positions that ascend; the hyperplane leaves none out."""
        blocks = self.blocks
        before = blocks.bytes_read
        for first, last, X in blocks.read(0, len(blocks.rows)):
            yield slice(int(blocks.starts[first]), int(blocks.starts[last])), as_matrix(floats(X))
        self._like.bytes_read += blocks.bytes_read - before

    def take(self, positions: Ints) -> Any:
        """Some rows, at ascending positions, copied into an array or CSR."""
        return self.blocks.take(positions)

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Ascending positions of n rows chosen at random, fewer where there are fewer."""
        return np.sort(rng.choice(self.n_rows, min(n, self.n_rows), replace=False))

    def lend(self, n_bytes: float, share: float) -> AbstractContextManager[float]:
        """There is no bound of their own on what is held beside them."""
        return nullcontext(math.inf)

    def close(self) -> None:
        """Remove them from the disk."""
        self._file.close()
        if self._blocks is not None:
            self._blocks.close()
        self._folder.cleanup()


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
        """What there is to know of each block: where it begins, rows, filled cells, type of numbers, checksum."""
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
        """Have all of it written, and write no more."""
        self._file.close()


def _fits(values: Any, dtype: np.dtype[Any]) -> bool:
    """Whether values are the same in another type."""
    if values.dtype == dtype:
        return True
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if values.size and not (values.min() >= limits.min and values.max() <= limits.max):
            return False
    return bool(np.array_equal(values, values.astype(dtype)))
