"""Result tables as lines of CSV or JSON, and detection of earlier results."""

from __future__ import annotations

import contextlib
import csv
import errno
import glob
import io
import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from connectors.columns.cells import Memo
from connectors.columns.strings import CategoricalColumn, StringColumn
from connectors.errors import ConnectorError
from connectors.events import Results
from connectors.registry import SinkSettings
from connectors.streams import Sink
from connectors.text.lines import LineReader
from connectors.text.opening import open_bytes

_PLACES = frozenset(
    ("stream", "file", "part", "number", "partition", "offset", "line", "row", "element", "event", "key")
)
ALARM = ["time", "events", "since", "kind", "column", "before", "after", "evidence", "relevance"]
"""Columns of an alarm, after the origin of its event."""


_TEXT_OR_NONE = frozenset({str, NoneType})
_JSON_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class ReplacingSink(Sink):
    """Base class of sinks that replace or continue the results of an earlier run.

    Parameters
    ----------
    settings
        Settings of the run.
    """

    can_rewind = True
    _columns: list[str] | None = None  # of all rows, once known

    def __init__(self, settings: SinkSettings) -> None:
        self._fresh, self._overwrite, self._touched = not settings.resume, settings.overwrite, False

    @abstractmethod
    def _is_replaceable(self) -> bool:
        """Return whether there is nothing to replace, or it looks like results."""

    def _check_columns(self, table: Results) -> None:
        """Raise ConnectorError if rows have other columns than the first ones."""
        self._touched = True
        if self._columns is None:
            self._columns = list(table)
        if list(table) != self._columns:
            what = f"has the columns {self._columns}, but the rows to be written {list(table)}"
            raise ConnectorError(f"{self.name}: {what}", "columns differ")

    def check_replaced(self) -> None:
        """Raise ConnectorError if what exists does not look like results."""
        if self._fresh and not self._overwrite and not self._is_replaceable():
            what = "exists and does not look like results of streamsvm: give another name, or replace it with"
            raise ConnectorError(f"{self.name}: {what} --set overwrite=true (in Python overwrite=True)")


def check_link(path: str) -> None:
    """Raise an error if a path is a symbolic link of another user other than root.

    Raises
    ------
    PermissionError
        If the path is such a link.
    """
    if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
        owner = os.lstat(path).st_uid
        raise PermissionError(errno.EPERM, f"it is a symbolic link of another user ({owner}): remove it", path)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make new and removed names in a directory durable, if the system supports it.

    Raises
    ------
    OSError
        Where that fails.
    """
    try:
        directory = os.open(path, os.O_RDONLY)
    except PermissionError:  # it may be writable and not readable
        return
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    finally:
        os.close(directory)


def make_directory(path: str | os.PathLike[str]) -> None:
    """Create a directory and its parents durably; it may exist.

    Raises
    ------
    OSError
        Where that fails.
    """
    path = Path(path).resolve()
    if not path.parent.is_dir():
        make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def is_replaceable(path: str) -> bool:
    """Return whether a path does not exist, is empty or looks like results."""
    if os.path.isdir(path):
        return all(any(map(are_results, _names_of_part(part))) for part in parts_in(path))
    if not os.path.isfile(path) or not os.path.getsize(path):
        return True
    return any(map(are_results, names_in(path))) or _is_empty(path)


def parts_in(path: str) -> list[str]:
    """Return the finished parts of a directory of any format."""
    names = sorted(glob.glob(os.path.join(glob.escape(path), "**", "part-[0-9]*"), recursive=True))
    return [name for name in names if os.path.isfile(name) and not name.endswith((".tmp", ".inprogress"))]


def _is_empty(path: str) -> bool:
    """Return whether a compressed file has no content, as after an early kill."""
    try:
        with contextlib.closing(open_bytes(path)) as stream:
            return stream.read(0.0) is None and (stream.damage is None or stream.damage.endswith("is truncated"))
    except ConnectorError:
        return False


def names_in(path: str) -> list[list[str]]:
    """Return the possible column names of a text file, one list for each format."""
    try:
        with contextlib.closing(open_bytes(path)) as stream:
            line = b"".join(LineReader(stream, path).peek(1))
    except ConnectorError:
        return []
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        with contextlib.suppress(csv.Error):
            return [next(csv.reader([text], delimiter=mark), []) for mark in ",\t"]
        return []
    return [list(row)] if isinstance(row, dict) else []


def _names_of_part(path: str) -> list[list[str]]:
    return names_in_parquet(path) if ".parquet" in os.path.basename(path) else names_in(path)


def names_in_parquet(place: Any) -> list[list[str]]:
    """Return the column names of a Parquet file, as `names_in` does."""
    import pyarrow
    import pyarrow.parquet

    try:
        return [list(pyarrow.parquet.read_schema(place).names)]
    except (OSError, pyarrow.ArrowException):
        return []


def are_results(names: list[str]) -> bool:
    """Return whether columns are those of a file of results.

    Results are predictions, joined results, requests, alarms and rejected events.
    """
    if names[:2] == ["reason", "raw"]:
        return True
    if names[-len(ALARM) :] == ALARM:
        return True
    places = names[: names.index("prediction")] if "prediction" in names else []
    return bool(places) and _PLACES.issuperset(places) and names[len(places) + 1 : len(places) + 2] == ["score"]


def columns_of(table: Results) -> dict[str, Sequence[Any]]:
    """Return columns of equal length as Python values."""
    given: Iterable[tuple[str, Any]] = table.items()
    columns = {
        name: column.tolist() if isinstance(column, np.ndarray | StringColumn | CategoricalColumn) else column
        for name, column in given
    }
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"columns of unequal length: { {name: len(column) for name, column in table.items()} }")
    return columns


class HeldRows(dict[str, list[Any]]):
    """Rows that wait to be written, as columns of flat values."""

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(next(iter(self.values()), ()))

    def add(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows as from `flat_columns`."""
        for name, column in columns.items():
            self.setdefault(name, []).extend(column)


def flat_columns(table: Results) -> dict[str, Sequence[Any]]:
    """Return columns with one value per cell: nested values are written as JSON."""
    return {name: _flat(column) for name, column in columns_of(table).items()}


def _flat(column: Sequence[Any]) -> Sequence[Any]:
    first = next((value for value in column if value is not None), None)
    if not isinstance(first, dict | list):
        return column
    return [None if value is None else json_bytes(value).decode() for value in column]


def float_texts(values: NDArray[np.float64]) -> list[str]:
    """Format floats like `repr`.

    orjson gives equal texts for numbers without an exponent and is many times faster.

    Examples
    --------
    >>> float_texts(np.array([0.1, 2.0])), float_texts(np.array([1e-5, 2e16]))
    (['0.1', '2.0'], ['1e-05', '2e+16'])
    """
    sizes = np.abs(values)
    if sizes.min() >= 1e-4 and sizes.max() < 1e15:  # both are false if there is a NaN
        return orjson.dumps(np.ascontiguousarray(values), option=_JSON_OPTIONS)[1:-1].decode().split(",")
    return list(map(repr, values.tolist()))


class LineWriter(ABC):
    """Base class of formats of lines.

    Attributes
    ----------
    suffix
        Suffix of file names.
    """

    suffix: str

    def head(self, names: list[str]) -> bytes:
        """Return the header; by default there is none."""
        return b""

    @abstractmethod
    def body(self, table: Results) -> bytes:
        """Return the rows."""


class CsvLines(LineWriter):
    """Comma-separated values with a header. None is an empty cell."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter, self.suffix = delimiter, ".tsv" if delimiter == "\t" else ".csv"
        self._cells = Memo(self._cell)
        self._unusual = re.compile(f'[{re.escape(delimiter)}"\r\n]')

    def head(self, names: list[str]) -> bytes:
        return self._encode([names])

    def body(self, table: Results) -> bytes:
        columns = [self._texts(column) for column in table.values()]
        if len(columns) < 2 or not all(columns):
            return self._encode(list(zip(*flat_columns(table).values(), strict=True)))
        rows: Iterable[Iterable[str]] = zip(*columns, strict=True)
        return ("\n".join(map(self._delimiter.join, rows)) + "\n").encode("utf-8", "replace")

    def _texts(self, column: Any) -> list[str] | None:
        """Format a column at once. None for rare types and for empty columns."""
        if isinstance(column, np.ndarray) and column.dtype == np.float64 and len(column):
            return float_texts(column)
        if isinstance(column, range):
            return list(map(str, column))
        kinds = set(map(type, column[:1] if isinstance(column, StringColumn) else column))
        if kinds == {int}:
            return list(map(str, column))
        if not kinds or not kinds <= _TEXT_OR_NONE:
            return None
        cells = [text or "" for text in column] if NoneType in kinds else list(column)
        if self._unusual.search("".join(cells)):
            cells = list(map(self._cells.__getitem__, cells))
        return None if None in cells else cells

    def _cell(self, text: str) -> str | None:
        """Format a cell. None if all cells must be quoted."""
        cell = self._format([[text, None]], csv.QUOTE_MINIMAL).removesuffix(f"{self._delimiter}\n")
        return None if "\r" in cell else cell

    def _encode(self, rows: list[Any]) -> bytes:
        text = self._format(rows, csv.QUOTE_MINIMAL)
        if "\r" in text:  # older versions of the csv module do not quote it
            text = self._format(rows, csv.QUOTE_ALL)
        return text.encode("utf-8", "replace")

    def _format(self, rows: list[Any], quoting: Literal[0, 1]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, quoting=quoting, lineterminator="\n").writerows(rows)
        return text.getvalue()


class JsonLines(LineWriter):
    """One JSON object per row."""

    suffix = ".jsonl"

    def body(self, table: Results) -> bytes:
        rows = zip(*columns_of(table).values(), strict=True)
        lines = (json_bytes(dict(zip(table, row, strict=True))) for row in rows)
        return b"".join(line + b"\n" for line in lines)


def json_bytes(value: dict[str, Any] | list[Any]) -> bytes:
    """Format an object or a list as JSON.

    Values without a JSON form become text, and NaN becomes null.
    """
    try:
        return orjson.dumps(value, default=_plain, option=_JSON_OPTIONS)
    except TypeError:  # integers beyond 64 bits and lone surrogates, which the slower json module supports
        return json.dumps(_without_nan(value), default=_plain).encode()


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    """Convert a value without a JSON form: sets to lists, others to text."""
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else str(value)
