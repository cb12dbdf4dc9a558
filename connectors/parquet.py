"""Parquet source: a file or a directory of parts. Requires pyarrow."""

from __future__ import annotations

import glob
import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.arrow_cells import floats_of
from connectors.cells import Bad
from connectors.columns import Labels, TextColumns
from connectors.errors import ConnectorError
from connectors.events import BATCH_BYTES, BATCH_EVENTS, Batch, Origins, Position, Table
from connectors.notices import Notice
from connectors.options import Options, Roles, printable
from connectors.streams import PrefetchSource
from connectors.time_texts import time_features
from connectors.times import Times

_INDEX = re.compile(r"__index_level_\d+__")
_SAMPLE = 1000
# Upper limits of one read. Smaller reads take about as long.
_READ_ROWS, _READ_VALUES, _READ_BYTES = 1 << 13, 1 << 22, 1 << 24


def import_arrow(name: str) -> Any:
    """Import pyarrow with its Parquet module."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConnectorError(
            f"{name}: Parquet needs pyarrow: pip install 'streamsvm[parquet]'", "no pyarrow"
        ) from error
    return pyarrow


class ParquetSource(PrefetchSource):
    """Read events in batches of rows. Numbers and booleans are numeric columns; times are used if declared.

    Texts are categories, or numbers if their first thousand values are, as in CSV.
    """

    def __init__(self, path: str, options: Options) -> None:
        super().__init__()
        self.name = printable(path)
        self._pa = import_arrow(path)
        self._batch_size = options.integer("batch_size", BATCH_EVENTS, 1)
        self._roles = Roles.of(options)
        options.finish()
        self._open(sorted(glob.glob(os.path.join(glob.escape(path), "*.parquet"))) if os.path.isdir(path) else [path])
        schema = self._files[0].schema_arrow
        if any(file.schema_arrow.names != schema.names for file in self._files):
            raise ConnectorError(f"{path}: the files of the directory differ in their columns", "columns differ")
        self._roles.check(path, schema.names)
        features = self._roles.features(schema.names)
        index = [column.name for column in schema if column.name in features and self._is_index(column)]
        self._features = [name for name in features if name not in index]
        self._batch_size = min(self._batch_size, max(1, BATCH_BYTES // (8 * max(len(self._features), 1))))
        counts = Counter(schema.names)
        for name in (*self._features, *self._others()):
            if counts[name] > 1:
                raise ConnectorError(f"{path}: column {name!r} appears twice; name it in ignore=", "twice", column=name)
        for name in (*self._features, self._roles.label):
            if name is not None:
                self._check_type(name, schema.field(name).type)
        self._columns = TextColumns(self._features, self._roles, are_typed=True)
        left_out = "column {name!r} is the index of a data frame and is dropped (--types {name}:number keeps it)"
        self._columns.numbers.notices.say(*(Notice.of(left_out, name) for name in index))
        self._labels = Labels(self._roles.missing, self._columns.numbers.notices, str)
        self._absent = self._roles.missing_values
        self._total = sum(file.metadata.num_rows for file in self._files)
        self._row = 0

    def _open(self, paths: list[str]) -> None:
        if not paths:
            raise ConnectorError(f"{self.name}: the directory contains no Parquet files (*.parquet)", "empty")
        self._files = []
        try:
            with open(paths[0], "rb") as first:
                self._fingerprint = hashlib.sha256(first.read(4096)).hexdigest()
            for path in paths:
                self._files.append(self._file(path))
        except FileNotFoundError:
            raise ConnectorError(f"{self.name}: no such file", "missing") from None
        except (OSError, self._pa.ArrowException) as error:
            raise ConnectorError(f"{self.name}: cannot be read as Parquet: {error}", "not Parquet") from error

    def _file(self, path: str) -> Any:
        """Open a file and keep dictionary-encoded texts as dictionaries.

        Each distinct text is decoded once.
        """
        kinds = self._pa.types
        file = self._pa.parquet.ParquetFile(path)
        texts = [one.name for one in file.schema_arrow if kinds.is_string(one.type) or kinds.is_large_string(one.type)]
        texts = [name for name in texts if self._is_dictionary(file, name)]
        if not texts:
            return file
        with file:
            return self._pa.parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=texts)

    def _is_dictionary(self, file: Any, name: str) -> bool:
        """Return whether any row group stores a column as a dictionary."""
        column = file.metadata.schema.names.index(name)
        groups = (file.metadata.row_group(i).column(column) for i in range(file.num_row_groups))
        return any("DICTIONARY" in encoding for group in groups for encoding in group.encodings)

    def _is_index(self, column: Any) -> bool:
        """Return whether a column is an unnamed integer index written by pandas."""
        is_named_so = _INDEX.fullmatch(column.name) is not None and column.name not in self._roles.types
        return is_named_so and bool(self._pa.types.is_integer(column.type))

    def _check_type(self, name: str, kind: Any) -> None:
        types = self._pa.types
        is_time = types.is_timestamp(kind) or types.is_date(kind)
        if self._kind(kind) is None and not (is_time and self._roles.types.get(name) == "time"):
            way = f"ignore= or time=, or set types={name}:time" if is_time else "ignore= or time="
            what = f"column {name!r} is of type {kind}; name it in {way}"
            raise ConnectorError(f"{self.name}: {what}", "type", column=name)

    def _kind(self, kind: Any) -> str | None:
        types = self._pa.types
        kind = kind.value_type if types.is_dictionary(kind) else kind
        numbers = types.is_floating, types.is_integer, types.is_boolean, types.is_decimal, types.is_null
        if any(is_one(kind) for is_one in numbers):
            return "number"
        return "category" if types.is_string(kind) or types.is_large_string(kind) else None

    def _batches(self) -> Iterator[Batch]:
        columns = [name for name in (*self._features, *self._others()) if name is not None]
        read = max(self._batch_size, min(_READ_ROWS, _READ_VALUES // max(len(columns), 1)))
        for group, skip in self._groups_left():
            file, number = group
            about = file.metadata.row_group(number)
            n = max(1, min(read, _READ_BYTES * about.num_rows // max(about.total_byte_size, 1)))
            try:
                for part in file.iter_batches(n, row_groups=[number], columns=columns):
                    first, skip = min(skip, len(part)), max(0, skip - len(part))
                    if self._row == 0:
                        self._look_at(part.slice(0, _SAMPLE))
                    for start in range(first, len(part), self._batch_size):
                        yield self._batch(part.slice(start, self._batch_size))
            except (OSError, self._pa.ArrowException) as error:
                raise ConnectorError(f"{self.name}: cannot be read after row {self._row}: {error}") from error

    def _look_at(self, rows: Any) -> None:
        """Decide which columns of texts are numbers. Warn of counters and sentinels."""
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        self._columns.decide(self.name, {name: self._cells(name, columns[name], {}) for name in self._features}, False)

    def _others(self) -> Sequence[str | None]:
        return self._roles.label, self._roles.key, self._roles.time

    def _groups_left(self) -> list[tuple[tuple[Any, int], int]]:
        """Return the row groups that are not completely read, with the rows to skip in each."""
        left, start = [], 0
        for file in self._files:
            for number in range(file.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                if start + size > self._row:
                    left.append(((file, number), max(0, self._row - start)))
                start += size
        return left

    def _batch(self, rows: Any) -> Batch:
        bad: Bad = {}
        start, self._row = self._row, self._row + len(rows)
        table: Table = {}
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))  # access by name searches all names
        for name in self._features:
            table |= self._column(name, columns[name], bad)
        label, keys, times = (None if name is None else columns[name] for name in self._others())
        moments = None if times is None else self._read_times(str(self._roles.time), times, bad)
        batch = Batch(
            table,
            [None] * len(rows) if label is None else self._known(_plain(str(self._roles.label), label, bad)),
            Origins({"file": self.name}, {"row": range(start, self._row)}),
            self._read_position,  # includes the units of these times
            keys=None if keys is None else _plain(str(self._roles.key), keys, bad),
            times=moments,
        )
        return batch.without(bad) if bad else batch

    def _known(self, labels: list[Any]) -> list[Any]:
        return labels if set(map(type, labels)) == {int} else [self._label(value) for value in labels]

    def _label(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._labels[value]
        return None if value != value else value

    def _column(self, name: str, column: Any, bad: Bad) -> Table:
        if self._roles.types.get(name) == "time" and (found := self._milliseconds(column)) is not None:
            return dict(time_features(name, *found))
        return self._columns.feature(name, self._cells(name, column, bad), bad)

    def _cells(self, name: str, column: Any, bad: Bad) -> Any:
        """Return an array of numbers, or a list of texts or times."""
        kind = self._kind(column.type)
        wanted = self._roles.types.get(name, kind)
        if kind == "category" or wanted == "category":
            return _texts(name, column, bad)
        if wanted == "time":
            return _plain(name, column, bad)
        # Other columns are copied, because buffers of pyarrow are read-only.
        is_plain = column.type == self._pa.float64()
        values = (
            floats_of(column)
            if is_plain
            else np.array(column.cast(self._pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        )
        return np.where(np.isin(values, self._absent), math.nan, values) if self._absent else values

    def _read_times(self, name: str, column: Any, bad: Bad) -> NDArray[np.int64]:
        """Return the times of events."""
        found = self._milliseconds(column)
        if found is None:
            return self._columns.times.milliseconds(name, _plain(name, column, bad), bad)
        times, there = found
        for i in np.flatnonzero(~there).tolist():
            bad.setdefault(i, f"'{name}' is missing, but is the time of the event")
        return times

    def _milliseconds(self, column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        """Return times as milliseconds since 1970 and their validity mask. None for a column of another type."""
        kind, types = column.type, self._pa.types
        if types.is_date(kind):
            column = column.cast(self._pa.timestamp("ms"))
        elif not types.is_timestamp(kind):
            return None
        there = np.array(column.is_valid().to_numpy(zero_copy_only=False))
        numbers = np.array(column.cast(self._pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
        return Times(column.type.unit).milliseconds("", numbers, {}), there

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return self._columns.numbers.notices.texts

    @property
    def _read_position(self) -> Position:
        """Number of rows read, a fingerprint of the first file, and the decisions about texts and times."""
        return {"row": self._row, "sha256": self._fingerprint} | self._columns.decided

    @property
    def _read_fraction(self) -> float | None:
        return self._row / self._total if self._total else 1.0

    def _go_to(self, position: Position) -> None:
        if position.get("sha256") != self._fingerprint or not 0 <= int(position["row"]) <= self._total:
            raise ConnectorError(f"{self.name}: is not the file that was read before", "another")
        self._row = int(position["row"])
        self._columns.restore({"types": {}, "strays": {}} | position)

    def _let_go(self) -> None:
        for file in self._files:
            file.close()


def _texts(name: str, column: Any, bad: Bad) -> list[str]:
    """Return values as text cells."""
    return ["" if value is None else str(value) for value in _values(name, column, bad)]


def _values(name: str, column: Any, bad: Bad) -> list[Any]:
    """Return Python values. Dictionary values are decoded once. Rows that are not valid UTF-8 are added to `bad`."""
    if hasattr(column, "dictionary"):
        entries, broken = _decoded(column.dictionary)
        entries.append(None)
        numbers = column.indices.fill_null(len(entries) - 1).to_numpy(zero_copy_only=False).tolist()
        values = [entries[number] for number in numbers]
        broken = {i for i, number in enumerate(numbers) if number in broken} if broken else broken
    else:
        values, broken = _decoded(column)
    for i in broken:
        bad.setdefault(i, f"'{name}' is not valid utf-8")
    return values


def _decoded(column: Any) -> tuple[list[Any], set[int]]:
    """Return Python values and the indices of texts that are not valid UTF-8, which are None."""
    try:
        return column.to_pylist(), set()
    except UnicodeDecodeError:
        raw = column.cast("large_binary" if str(column.type).startswith("large") else "binary").to_pylist()
    values: list[Any] = [None] * len(raw)
    broken = set()
    for i, text in enumerate(raw):
        try:
            values[i] = None if text is None else text.decode()
        except UnicodeDecodeError:
            broken.add(i)
    return values, broken


def _plain(name: str, column: Any, bad: Bad) -> list[Any]:
    """Return values of built-in types. Decimals become integers if their scale is 0, and floats otherwise."""
    values = _values(name, column, bad)
    if not str(column.type).startswith("decimal"):
        return values
    kind = float if column.type.scale > 0 else int
    return [None if value is None else kind(value) for value in values]
