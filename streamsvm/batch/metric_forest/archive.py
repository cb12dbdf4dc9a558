"""The files of an index on disk.

An index is a folder with two files. `rows.bin` holds blocks of rows: the leaves of the trees in order, then a uniform
sample of all rows. A block is an array in C order, or the three arrays of a CSR matrix (row starts as int64, columns,
values), little-endian, with values in the smallest type that holds them. `index.svm` is an archive of streamsvm (see
`streamsvm.models`): the JSON header has "class", "n_columns", "classes", "n_leaves" and "rows_bytes", and the arrays
are

    block_offset, block_rows, block_filled, block_kind, block_crc     per block: offset, number of rows and of values,
                                        number of the type in TYPES (negative: CSR), zlib's CRC-32
    codes, ids                          per row, in the smallest unsigned type: number of the label, and of the row in
                                        its source
    sample                              positions of the sampled rows
    centroids, radii                    per leaf: mean of its rows, and their largest distance from it
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from streamsvm.batch.metric_forest.blocks import ROWS_FILE, TYPES
from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED, decode_labels, encode_label, read_archive, write_archive

INDEX_FILE = "index.svm"


class Contents(NamedTuple):
    """Header and arrays of an index."""

    classes: list[Any]
    n_columns: int
    rows_bytes: int
    arrays: dict[str, NDArray[Any]]


def write_index(folder: Path, index: Contents, n_leaves: int, extra: Mapping[str, Any]) -> None:
    """Write `index.svm`; `extra` are additional entries of the header."""
    header = {
        "class": "MetricForest",
        "n_columns": index.n_columns,
        "classes": [encode_label(label) for label in index.classes],
        "n_leaves": n_leaves,
        "rows_bytes": index.rows_bytes,
    }
    write_archive(folder / INDEX_FILE, header | dict(extra), index.arrays)


def read_index(folder: Path) -> Contents:
    """Read and validate `index.svm`.

    Raises
    ------
    ArchiveError
        If the file is damaged, is not an index, or has a newer version.
    """
    header, arrays = read_archive(folder / INDEX_FILE)
    if header.get("class") != "MetricForest":
        raise ArchiveError(f"{folder / INDEX_FILE} holds {header.get('class')!r}, not a MetricForest")
    with refusing_damage(folder):
        index = Contents(decode_labels(header["classes"]), int(header["n_columns"]), int(header["rows_bytes"]), arrays)
        _check_ranges(index, int(header["n_leaves"]))
        _check_blocks(index.arrays, index.n_columns, int(header["n_leaves"]))
    return index


@contextmanager
def refusing_damage(folder: Path) -> Iterator[None]:
    """Convert errors that corrupt content raises to ArchiveError."""
    try:
        yield
    except DAMAGED as error:
        raise ArchiveError(f"{folder / INDEX_FILE} is not a whole index: {error}") from error


def check_size(folder: Path, size: int) -> None:
    """Raise ArchiveError if the file of rows does not have the expected size."""
    found = (folder / ROWS_FILE).stat().st_size
    if found != size:
        raise ArchiveError(f"{folder / ROWS_FILE} has {found} bytes where {size} were written: build the index anew")


def _check_ranges(index: Contents, n_leaves: int) -> None:
    """Raise ValueError if an array has a wrong type, shape or range."""
    arrays, d, n_bytes, n_classes = index.arrays, index.n_columns, index.rows_bytes, len(index.classes)
    n, n_blocks = len(arrays["ids"]), len(arrays["block_rows"])
    # Shape, minimum, and an exclusive maximum.
    expected: dict[str, tuple[tuple[int, ...], float, float]] = {
        "block_offset": ((n_blocks,), 0, n_bytes + 1),
        "block_rows": ((n_blocks,), 1, n + 1),
        "block_filled": ((n_blocks,), 0, n_bytes + 1),
        "block_kind": ((n_blocks,), -len(TYPES), len(TYPES) + 1),
        "block_crc": ((n_blocks,), 0, 1 << 32),
        "codes": ((n,), 0, n_classes),
        "ids": ((n,), 0, n),
        "sample": ((len(arrays["sample"]),), 0, n),
        "centroids": ((n_leaves, d), -math.inf, math.inf),
        "radii": ((n_leaves,), 0, math.inf),
    }
    for name, (shape, least, beyond) in expected.items():
        values = arrays[name]
        kinds = "f" if name in ("centroids", "radii") else "iu"
        if values.shape != shape or values.dtype.kind not in kinds:
            raise ValueError(f"`{name}` has shape {values.shape} and type {values.dtype}, not {shape} of kind {kinds}")
        if not (values.size == 0 or (values.min() >= least and values.max() < beyond)):
            raise ValueError(f"`{name}` has values outside of [{least}, {beyond})")


def _check_blocks(arrays: dict[str, NDArray[Any]], d: int, n_leaves: int) -> None:
    """Raise ValueError if the blocks do not fit the rows."""
    n, n_sample = len(arrays["ids"]), len(arrays["sample"])
    rows, is_dense = arrays["block_rows"], arrays["block_kind"] > 0
    if rows[:n_leaves].sum() != n or rows[n_leaves:].sum() != n_sample or not arrays["block_kind"].all():
        raise ValueError("blocks do not add up to the rows and their sample")
    if (arrays["block_filled"] != rows * d)[is_dense].any():
        raise ValueError("a block has more or fewer values than its rows have columns")
