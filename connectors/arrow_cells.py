"""Cells of delimited lines by pyarrow's reader, for lines that mean the same to it as to Python's csv module."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.held import Coded, Texts
from connectors.options import MISSING_NUMBERS, USUAL_MISSING_NUMBERS

# What a column is read as: numbers, NaN where missing; times, whole numbers of milliseconds unless they are written
# otherwise; texts of which few are alike; texts of which most are, held once each, or listed.
NUMBERS, TIMES, APART, CODED, LISTED = "numbers", "times", "apart", "coded", "listed"

FURTHEST_MS = 1 << 62
"""There are no times as far from 1970, so that 64 bits hold how far two are apart."""

Cells = Sequence[str] | NDArray[np.float64] | NDArray[np.int64]

# To import pyarrow takes as long as to read so many lines without it, and to call it as long as so few.
FIRST_LINES, FEW_LINES = 8_192, 32
_BLOCK_BYTES = 1 << 30
_HEXADECIMAL = re.compile(b"0[xX]")  # which pyarrow takes for a whole number


class ArrowCells:
    """Reads lines that have nothing unusual, with the results of Python's reader.

    Both round to the nearest float. What they take differently is left to Python: quotes, blank lines, lines of another
    width, stray carriage returns, rare markers of missing values, and numbers that pyarrow does not know (``+1``,
    ``1_000``) or that are not finite.

    Parameters
    ----------
    delimiter
        What stands between two cells.
    missing
        Cells that are no number, but missing.
    marks
        Lines that hold any of these are left to Python: quotes, escapes and comments.
    """

    def __init__(self, delimiter: str, missing: frozenset[str], marks: Sequence[bytes] = (b'"',)) -> None:
        self._delimiter, self._marks = delimiter, marks
        self._missing = sorted(USUAL_MISSING_NUMBERS if missing is MISSING_NUMBERS else missing)
        self._n_lines = 0
        self._has_whole_times = True
        self._csv: Any = None
        self._usable = delimiter.isascii() and delimiter.encode() not in marks

    @property
    def is_in_use(self) -> bool:
        """Whether pyarrow has read any."""
        return self._csv is not None

    def read(self, lines: Sequence[bytes], names: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Cells] | None:
        """The columns of which the kinds are given, by name; None where Python is to read."""
        self._n_lines += len(lines)
        if not self._usable or self._n_lines < FIRST_LINES or len(lines) < FEW_LINES or len(names) < 2:
            return None
        block = _plain(lines, self._marks)
        if block is None or not self._is_at_hand():
            return None
        whole = TIMES in kinds.values() and self._has_whole_times and not _HEXADECIMAL.search(block)
        columns = self._read(block, names, kinds, whole) if whole else None
        if columns is None:
            columns = self._read(block, names, kinds, False)
            self._has_whole_times &= not whole or columns is None
        return None if columns is None or any(len(column) != len(lines) for column in columns.values()) else columns

    def _read(
        self, block: bytes, names: Sequence[str], kinds: Mapping[str, str], whole: bool
    ) -> dict[str, Cells] | None:
        options = self._options(tuple(names), tuple(kinds.items()), whole)
        try:
            table = self._csv.read_csv(self._csv_buffer(block), *options)
        except self._invalid:
            return None
        if any(column.num_chunks != 1 for column in table.columns):
            return None
        columns: dict[str, Cells] = {}
        for (name, kind), column in zip(kinds.items(), table.columns, strict=True):
            chunk = column.chunk(0)
            if kind == NUMBERS:
                columns[name] = values = floats_of(chunk)
                if len(values) - np.count_nonzero(np.isfinite(values)) != chunk.null_count:
                    return None
            elif kind == TIMES and whole:
                if chunk.null_count:
                    return None
                columns[name] = times = np.frombuffer(chunk.buffers()[1], np.int64, len(chunk), 8 * chunk.offset)
                if ((times <= -FURTHEST_MS) | (times >= FURTHEST_MS)).any():
                    return None
            elif kind == APART:
                columns[name] = _apart(chunk)
            else:
                coded = _coded(chunk)
                columns[name] = coded if kind == CODED else coded.tolist()
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
            self._types = {
                NUMBERS: pyarrow.float64(),
                TIMES: pyarrow.int64(),
                APART: pyarrow.string(),
                LISTED: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
            }
            self._options = lru_cache(maxsize=2)(self._make_options)
        return True

    def _make_options(self, names: tuple[str, ...], kinds: tuple[tuple[str, str], ...], whole: bool) -> tuple[Any, ...]:
        listed = {CODED} if whole else {CODED, TIMES}
        types = {name: self._types[LISTED if kind in listed else kind] for name, kind in kinds}
        return (
            self._csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
            self._csv.ParseOptions(delimiter=self._delimiter, quote_char=False),
            self._csv.ConvertOptions(
                check_utf8=False,
                column_types=types,
                include_columns=list(types),
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


def _coded(array: Any) -> Coded:
    """Texts that are held once each: to make these is what takes long."""
    indices = np.frombuffer(array.indices.buffers()[1], np.int32, len(array), 4 * array.offset)
    return Coded(indices.astype(np.int64), array.dictionary.to_pylist())


def _apart(array: Any) -> Texts:
    """Texts that are held one by one."""
    _, bounds, data = array.buffers()
    starts = np.frombuffer(bounds, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return Texts(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), starts)


def _plain(lines: Sequence[bytes], marks: Sequence[bytes]) -> bytes | None:
    """The lines as one text that holds no marks, and whose lines end in newlines; None where that is not so."""
    block = b"".join(lines)
    if any(mark in block for mark in marks) or block.startswith(codecs.BOM_UTF8):
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
