"""CSV parsing with pyarrow, for lines that it reads exactly as the csv module."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import APART, CODED, LISTED, MISSING_NUMBERS, NUMBERS
from connectors.columns.strings import codes_of, floats_of, texts_of

Cells = Sequence[str] | NDArray[np.float64]

# Below these numbers of lines, importing or calling pyarrow takes longer than Python's csv reader.
FIRST_LINES, FEW_LINES = 8_192, 32
_BLOCK_BYTES = 1 << 30
_USUAL_MISSING_NUMBERS = frozenset(
    (
        *("", "?", "na", "NA", "n/a", "N/A", "<NA>", "nan", "NaN", "NAN", "-nan", "-NaN", "NaT", "null", "NULL"),
        *("Null", "none", "None", "nil", "\\N", "#N/A", "#DIV/0!", "-", "--", "."),
    )
)
"""Frequent markers; each costs time in pyarrow, in every column and batch."""


class ArrowCells:
    """Reader of simple delimited lines, with the results of Python's csv module.

    Both readers round to the nearest float. `read` returns None for lines that they treat differently: quotes, blank
    lines, a wrong number of fields, stray carriage returns and rare missing-value markers. This also holds for infinite
    numbers and for number formats that pyarrow does not support, such as ``+1`` or ``1_000``.

    Parameters
    ----------
    delimiter
        Field delimiter.
    missing
        Missing-value markers of numeric columns.
    marks
        Characters that pyarrow does not handle here: quotes, escapes and comments. Lines that contain one are not read.
    """

    def __init__(self, delimiter: str, missing: frozenset[str], marks: Sequence[bytes] = (b'"',)) -> None:
        self._delimiter, self._marks = delimiter, marks
        self._missing = tuple(sorted(_USUAL_MISSING_NUMBERS if missing is MISSING_NUMBERS else missing))
        self._n_lines = 0
        self._usable = delimiter.isascii() and delimiter.encode() not in marks
        self.is_in_use = False
        """Whether pyarrow has been loaded to read lines."""

    def read(self, lines: Sequence[bytes], names: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Cells] | None:
        """Return the columns in `kinds`, by name, or None if Python must read the lines."""
        self._n_lines += len(lines)
        if not (self._usable and kinds) or self._n_lines < FIRST_LINES or len(lines) < FEW_LINES or len(names) < 2:
            return None
        block = _plain(lines, self._marks)
        if block is None:
            return None
        try:
            import pyarrow
            import pyarrow.csv
        except ImportError:
            self._usable = False
            return None
        self.is_in_use = True
        options = _options(self._delimiter, self._missing, tuple(names), tuple(kinds.items()))
        try:
            table = pyarrow.csv.read_csv(pyarrow.py_buffer(block), *options)
        except pyarrow.ArrowInvalid:
            return None
        if len(table) != len(lines) or any(column.num_chunks != 1 for column in table.columns):
            return None
        columns: dict[str, Cells] = {}
        for (name, kind), column in zip(kinds.items(), table.columns, strict=True):
            chunk = column.chunk(0)
            if kind == NUMBERS:
                columns[name] = values = floats_of(chunk)
                if len(values) - np.count_nonzero(np.isfinite(values)) != chunk.null_count:
                    return None
            elif kind == APART:
                columns[name] = texts_of(chunk)
            else:
                coded = codes_of(chunk)
                columns[name] = coded if kind == CODED else coded.tolist()
        return columns


@lru_cache(maxsize=2)
def _options(
    delimiter: str, missing: tuple[str, ...], names: tuple[str, ...], kinds: tuple[tuple[str, str], ...]
) -> tuple[Any, ...]:
    """Return the options of pyarrow for reading, parsing and converting."""
    import pyarrow
    from pyarrow import csv

    coded = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    known = {NUMBERS: pyarrow.float64(), APART: pyarrow.string(), LISTED: coded, CODED: coded}
    types = {name: known[kind] for name, kind in kinds}
    return (
        csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
        csv.ParseOptions(delimiter=delimiter, quote_char=False),
        csv.ConvertOptions(
            check_utf8=False,
            column_types=types,
            include_columns=list(types),
            null_values=missing,
            strings_can_be_null=False,
        ),
    )


def _plain(lines: Sequence[bytes], marks: Sequence[bytes]) -> bytes | None:
    """Join lines with newlines; None if they contain marks or invalid UTF-8."""
    block = b"".join(lines)
    if any(mark in block for mark in marks) or codecs.BOM_UTF8 in block:
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
