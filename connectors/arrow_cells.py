"""Cells of delimited lines by pyarrow's reader, for lines that mean the same to it as to Python's csv module."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# To import pyarrow takes as long as to read so many lines without it, and to call it as long as so few.
FIRST_LINES, FEW_LINES = 8_192, 32
_BLOCK_BYTES = 1 << 30


class ArrowCells:
    """Reads lines that have nothing unusual, with the results of Python's reader.

    Both round to the nearest float. What they take differently is left to Python: quotes, blank lines, lines of another
    width, stray carriage returns, and numbers that pyarrow does not know (``+1``, ``1_000``) or that are not finite.

    Parameters
    ----------
    delimiter
        What stands between two cells.
    missing
        Cells that are no number, but missing.
    """

    def __init__(self, delimiter: str, missing: frozenset[str]) -> None:
        self._delimiter, self._missing = delimiter, sorted(missing)
        self._n_lines = 0
        self._csv: Any = None
        self._usable = delimiter.isascii() and delimiter != '"'

    def read(
        self, lines: Sequence[bytes], names: Sequence[str], used: Sequence[str], numeric: frozenset[str]
    ) -> dict[str, list[str] | NDArray[np.float64]] | None:
        """The used columns by name, the numeric ones as numbers, NaN where missing; None where Python is to read."""
        self._n_lines += len(lines)
        if not self._usable or self._n_lines < FIRST_LINES or len(lines) < FEW_LINES or len(names) < 2:
            return None
        block = _plain(lines)
        if block is None or not self._is_at_hand():
            return None
        try:
            table = self._csv.read_csv(self._csv_buffer(block), *self._options(tuple(names), tuple(used), numeric))
        except self._invalid:
            return None
        if len(table) != len(lines) or any(column.num_chunks != 1 for column in table.columns):
            return None
        columns: dict[str, list[str] | NDArray[np.float64]] = {}
        for name, column in zip(used, table.columns, strict=True):
            chunk = column.chunk(0)
            if name not in numeric:
                columns[name] = _texts(chunk)
                continue
            columns[name] = values = floats_of(chunk)
            if len(values) - np.count_nonzero(np.isfinite(values)) != chunk.null_count:
                return None
        return columns

    def _is_at_hand(self) -> bool:
        if self._csv is None:
            try:
                import pyarrow
                import pyarrow.csv
            except ImportError:
                self._usable = False
                return False
            self._csv, self._csv_buffer, self._invalid = pyarrow.csv, pyarrow.py_buffer, pyarrow.ArrowInvalid
            self._text, self._number = pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), pyarrow.float64()
            self._options = lru_cache(maxsize=1)(self._make_options)
        return True

    def _make_options(self, names: tuple[str, ...], used: tuple[str, ...], numeric: frozenset[str]) -> tuple[Any, ...]:
        types = {name: self._number if name in numeric else self._text for name in used}
        return (
            self._csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
            self._csv.ParseOptions(delimiter=self._delimiter, quote_char=False),
            self._csv.ConvertOptions(
                check_utf8=False,
                column_types=types,
                include_columns=used,
                null_values=self._missing,
                strings_can_be_null=False,
            ),
        )


def floats_of(array: Any) -> NDArray[np.float64]:
    """An array of pyarrow's as numpy's, NaN where null. Its own `to_numpy` imports pandas, where that is installed."""
    validity, data = array.buffers()
    values = np.frombuffer(data, np.float64, len(array), 8 * array.offset)
    if array.null_count:
        there = np.unpackbits(np.frombuffer(validity, np.uint8), count=array.offset + len(array), bitorder="little")
        values = np.where(there[array.offset :], values, np.nan)
    return values


def _texts(array: Any) -> list[str]:
    """Texts that are held once each: to make these is what takes long."""
    indices = np.frombuffer(array.indices.buffers()[1], np.int32, len(array), 4 * array.offset)
    return list(map(array.dictionary.to_pylist().__getitem__, indices.tolist()))


def _plain(lines: Sequence[bytes]) -> bytes | None:
    """The lines as one text that holds no quotes, and whose lines end in newlines; None where that is not so."""
    block = b"".join(lines)
    if b'"' in block or block.startswith(codecs.BOM_UTF8):
        return None
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
        if b"\r" in block:
            return None
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            return None
    return block
