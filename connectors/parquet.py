"""Parquet: a file or a directory of parts as a source, a directory with one part a flush as a sink. Needs pyarrow."""

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

from connectors.ahead import AheadSource
from connectors.arrow_cells import floats_of
from connectors.cells import Bad
from connectors.columns import Labels, TextColumns, categories
from connectors.counters import warn_if_counter
from connectors.errors import ConnectorError
from connectors.events import BATCH_BYTES, BATCH_EVENTS, Batch, Origins, Position, Results, Sink, Table
from connectors.notices import Notice
from connectors.options import Options, Roles, printable
from connectors.registry import Setting
from connectors.results import check_link, check_replaced
from connectors.sinks import flat_columns, sync_directory, writing
from connectors.spelling import warn_of_sentinels
from connectors.times import Times, time_features

_INDEX = re.compile(r"__index_level_\d+__")
_PART_ROWS = 1 << 17
_SAMPLE = 1000
# At most at a time: to ask for fewer takes about as long.
_READ_ROWS, _READ_VALUES, _READ_BYTES = 1 << 13, 1 << 22, 1 << 24


def _arrow(name: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConnectorError(f"{name}: Parquet needs pyarrow: pip install 'streamsvm[parquet]'") from error
    return pyarrow


class ParquetSource(AheadSource):
    """Events by row batches. Numbers and truth values are numeric columns, times by choice.

    Texts are categories, or numbers where their first thousand are, as in CSV.
    """

    def __init__(self, path: str, options: Options) -> None:
        super().__init__()
        self.name = printable(path)
        self._pa = _arrow(path)
        self._batch_size = options.integer("batch_size", BATCH_EVENTS, 1)
        self._roles = Roles.of(options)
        self._times = Times(self._roles.time_unit, self._roles.time_format)
        options.finish()
        self._open(sorted(glob.glob(os.path.join(glob.escape(path), "*.parquet"))) if os.path.isdir(path) else [path])
        schema = self._files[0].schema_arrow
        if any(file.schema_arrow.names != schema.names for file in self._files):
            raise ConnectorError(f"{path}: the files of the directory differ in their columns")
        self._roles.check(path, schema.names)
        features = self._roles.features(schema.names)
        index = [column.name for column in schema if column.name in features and self._is_index(column)]
        self._features = [name for name in features if name not in index]
        self._batch_size = min(self._batch_size, max(1, BATCH_BYTES // (8 * max(len(self._features), 1))))
        counts = Counter(schema.names)
        for name in (*self._features, *self._others()):
            if counts[name] > 1:
                raise ConnectorError(f"{path}: column {name!r} appears twice; name it in ignore=")
        for name in (*self._features, self._roles.label):
            if name is not None:
                self._check_type(name, schema.field(name).type)
        self._of_texts = [name for name in self._features if self._kind(schema.field(name).type) == "category"]
        self._texts = TextColumns(self._of_texts, self._roles, are_typed=True)
        self._texts.times = self._times
        left_out = "column {name!r} is the index of a data frame: it is left out (--types {name}:number keeps it)"
        self._texts.numbers.notices.say(*(Notice.of(left_out, name) for name in index))
        self._labels = Labels(self._roles.missing, self._texts.numbers.notices, str)
        self._absent = self._roles.missing_values
        self._total = sum(file.metadata.num_rows for file in self._files)
        self._row = 0

    def _open(self, paths: list[str]) -> None:
        if not paths:
            raise ConnectorError(f"{self.name}: the directory holds no Parquet files (*.parquet)")
        self._files = []
        try:
            with open(paths[0], "rb") as first:
                self._fingerprint = hashlib.sha256(first.read(4096)).hexdigest()
            for path in paths:
                self._files.append(self._file(path))
        except FileNotFoundError:
            raise ConnectorError(f"{self.name}: no such file") from None
        except (OSError, self._pa.ArrowException) as error:
            raise ConnectorError(f"{self.name}: cannot be read as Parquet: {error}") from error

    def _file(self, path: str) -> Any:
        """Open a file whose texts stay a dictionary where they are one: a text is made once, however often it comes."""
        kinds = self._pa.types
        file = self._pa.parquet.ParquetFile(path)
        texts = [one.name for one in file.schema_arrow if kinds.is_string(one.type) or kinds.is_large_string(one.type)]
        texts = [name for name in texts if self._is_dictionary(file, name)]
        if not texts:
            return file
        with file:
            return self._pa.parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=texts)

    def _is_dictionary(self, file: Any, name: str) -> bool:
        """Whether any row group keeps a column as a dictionary."""
        column = file.metadata.schema.names.index(name)
        groups = (file.metadata.row_group(i).column(column) for i in range(file.num_row_groups))
        return any("DICTIONARY" in encoding for group in groups for encoding in group.encodings)

    def _is_index(self, column: Any) -> bool:
        """Whether a column is what pandas makes of an index of whole numbers that has no name."""
        is_named_so = _INDEX.fullmatch(column.name) is not None and column.name not in self._roles.types
        return is_named_so and bool(self._pa.types.is_integer(column.type))

    def _check_type(self, name: str, kind: Any) -> None:
        types = self._pa.types
        is_time = types.is_timestamp(kind) or types.is_date(kind)
        if self._kind(kind) is None and not (is_time and self._roles.types.get(name) == "time"):
            way = f"ignore= or time=, or say types={name}:time" if is_time else "ignore= or time="
            raise ConnectorError(f"{self.name}: column {name!r} is of type {kind}; name it in {way}")

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
        """Decide the columns of texts, and warn of numbers that count up or stand for missing values."""
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        cells = zip(*(_texts(name, columns[name], {}) for name in self._of_texts), strict=True)
        self._texts.decide(self.name, list(cells), False)
        with self._texts.numbers.notices.together():
            for name in self._features:
                if name not in self._roles.types and self._kind(columns[name].type) == "number":
                    values = self._column(name, columns[name], {})[name]
                    warn_if_counter(name, values, self._texts.numbers.notices)
                    warn_of_sentinels(name, values.tolist(), self._texts.numbers.notices)

    def _others(self) -> Sequence[str | None]:
        return self._roles.label, self._roles.key, self._roles.time

    def _groups_left(self) -> list[tuple[tuple[Any, int], int]]:
        """The row groups not wholly handed out, each with the rows to skip at its start."""
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
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))  # to ask for each by name looks at all names
        for name in self._features:
            table |= self._column(name, columns[name], bad)
        label, keys, times = (None if name is None else columns[name] for name in self._others())
        moments = None if times is None else self._read_times(str(self._roles.time), times, bad)
        batch = Batch(
            table,
            [None] * len(rows) if label is None else self._known(_plain(str(self._roles.label), label, bad)),
            Origins({"file": self.name}, {"row": range(start, self._row)}),
            self._read_position,  # with the units that these times told
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
        kind = self._kind(column.type)
        if kind == "category":
            return self._texts.feature(name, _texts(name, column, bad), bad)
        wanted = self._roles.types.get(name, kind)
        if wanted == "time":
            found = self._milliseconds(column)
            if found is None:
                return dict(self._times.features(name, _plain(name, column, bad), bad, self._roles.missing_numbers))
            return dict(time_features(name, *found))
        if wanted == "category":
            return {name: categories(_texts(name, column, bad), self._roles.missing)}
        # Of other columns a copy, since what pyarrow lends is read-only.
        is_plain = column.type == self._pa.float64()
        values = (
            floats_of(column)
            if is_plain
            else np.array(column.cast(self._pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        )
        return {name: np.where(np.isin(values, self._absent), math.nan, values) if self._absent else values}

    def _read_times(self, name: str, column: Any, bad: Bad) -> NDArray[np.int64]:
        """The times of events."""
        found = self._milliseconds(column)
        if found is None:
            return self._times.milliseconds(name, _plain(name, column, bad), bad)
        times, there = found
        for i in np.flatnonzero(~there).tolist():
            bad.setdefault(i, f"'{name}' is missing, but is the time of the event")
        return times

    def _milliseconds(self, column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        """Times as milliseconds since 1970, and which are there; None for a column of another type."""
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
        """What was warned of."""
        return self._texts.numbers.notices.texts

    @property
    def _read_position(self) -> Position:
        """The number of rows, a fingerprint of the first file, and what is decided of texts and times."""
        return {"row": self._row, "sha256": self._fingerprint} | self._texts.decided

    @property
    def _read_fraction(self) -> float | None:
        return self._row / self._total if self._total else 1.0

    def _go_to(self, position: Position) -> None:
        if position.get("sha256") != self._fingerprint or not 0 <= int(position["row"]) <= self._total:
            raise ConnectorError(f"{self.name}: is not the file that was read before")
        self._row = int(position["row"])
        self._texts.restore({"types": {}, "strays": {}} | position)

    def _let_go(self) -> None:
        for file in self._files:
            file.close()


def _texts(name: str, column: Any, bad: Bad) -> list[str]:
    """Values as cells of text."""
    return ["" if value is None else str(value) for value in _values(name, column, bad)]


def _values(name: str, column: Any, bad: Bad) -> list[Any]:
    """Values as Python's: those of a dictionary are made once. Rows whose text is not UTF-8 are `bad`."""
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
    """Values as Python's, and the places of texts that are not UTF-8, which are None."""
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
    """Values of Python's plain types: decimals as whole numbers where they have no places, else as floats."""
    values = _values(name, column, bad)
    if not str(column.type).startswith("decimal"):
        return values
    kind = float if column.type.scale > 0 else int
    return [None if value is None else kind(value) for value in values]


class ParquetSink(Sink):
    """A directory of parts. Rows are held until a flush or until there are many, then written as one part.

    Where parts begin follows the flushes, so that two runs with the same rows have the same content, but the same
    bytes only if they flushed at the same rows.
    """

    can_rewind = True

    def __init__(self, path: str, options: Options, setting: Setting) -> None:
        resume = setting.resume
        self.name = path
        options.finish()
        self._overwrite = setting.overwrite
        self._pa = _arrow(path)
        self._made = not os.path.exists(path)
        try:
            check_link(path)
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise ConnectorError(f"{path}: cannot be made a directory for parts: {error.strerror}") from error
        self._touched = False
        self._fresh = not resume
        self._parts = self._durable = self._count() if resume else 0
        self._schema = self._last_schema()
        self._columns: dict[str, list[Any]] | None = None

    def _part(self, number: int) -> str:
        return os.path.join(self.name, f"part-{number:06d}.parquet")

    def _count(self) -> int:
        number = 0
        while os.path.exists(self._part(number)):
            number += 1
        return number

    def _last_schema(self) -> Any:
        return self._pa.parquet.read_schema(self._part(self._parts - 1)) if self._parts else None

    def write(self, table: Results) -> None:
        """Take rows."""
        self._touched = True
        if self._columns is None:
            known = list(table) if self._schema is None else self._schema.names
            self._columns = {name: [] for name in known}
        if list(table) != list(self._columns):
            raise ConnectorError(f"{self.name}: has columns {list(self._columns)}, but the rows given {list(table)}")
        for held, column in zip(self._columns.values(), flat_columns(table), strict=True):
            held += column
        if len(next(iter(self._columns.values()), ())) >= _PART_ROWS:
            self._write_part()

    def _write_part(self) -> None:
        self._replace()
        if self._columns is None or not any(self._columns.values()):
            return
        arrays = {name: self._array(name, values) for name, values in self._columns.items()}
        part = self._part(self._parts)
        table = self._pa.table(arrays)
        with writing(part):
            self._retype(table.schema)
            self._write_table(table, part)
        self._parts += 1
        self._schema = table.schema
        self._columns = {name: [] for name in self._columns}

    def _write_table(self, table: Any, path: str) -> None:
        with open(path + ".tmp", "wb") as file:
            self._pa.parquet.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)

    def _retype(self, schema: Any) -> None:
        """Give parts in which a column was empty the type that it has from now on: readers go by that of the first."""
        null = self._pa.null()
        before = [] if self._schema is None else self._schema.types
        typed = [i for i, kind in enumerate(before) if kind == null != schema.types[i]]
        for number in range(self._parts if typed else 0):  # the last one last: where this is cut short, it tells
            table = self._pa.parquet.read_table(self._part(number))
            for i in typed:
                table = table.set_column(i, schema.field(i), table.column(i).cast(schema.types[i]))
            self._write_table(table, self._part(number))

    def _array(self, name: str, values: list[Any]) -> Any:
        """Values in the type of the part before where they fit, else in their own, mixed ones as text."""
        pa = self._pa
        before = pa.null() if self._schema is None else self._schema.field(name).type
        for kind in () if before == pa.string() else (None,) if before == pa.null() else (before, None):
            try:
                return pa.array(values, kind)
            except (pa.ArrowException, OverflowError):
                continue
        return pa.array([None if value is None else str(value) for value in values], pa.string())

    def check_replaced(self) -> None:
        """Refuse to replace parts that do not look like results, unless there is leave to."""
        if self._fresh and not self._overwrite:
            check_replaced(self.name)

    def _replace(self) -> None:
        if self._fresh:
            self._fresh = False
            self._drop(0)

    def _drop(self, first: int) -> None:
        """Remove the parts from a number on, the last one first, and what a killed run left unfinished."""
        for path in sorted(glob.glob(os.path.join(glob.escape(self.name), "part-*.parquet*")), reverse=True):
            if not first or path.endswith(".tmp") or path >= self._part(first):
                os.remove(path)

    def flush(self) -> None:
        """Write what is held as a part."""
        self._touched = True
        self._write_part()
        sync_directory(self._part(0))
        self._durable = self._parts

    @property
    def position(self) -> Position:
        """The number of durable parts."""
        return {"parts": self._durable}

    def rewind(self, position: Position) -> None:
        """Drop the parts written after `position`."""
        parts = int(position["parts"])
        if parts and self._made:
            raise ConnectorError(f"{self.name}: is missing, but {parts} parts were written before")
        if parts > self._count():
            raise ConnectorError(f"{self.name}: has {self._count()} parts, but {parts} were written before")
        self._touched = True
        self._drop(parts)
        sync_directory(self._part(0))
        self._fresh, self._parts, self._durable, self._columns = False, parts, parts, None
        self._schema = self._last_schema()

    def close(self) -> None:
        """Write what is held, if anything was ever written."""
        if self._touched:
            self.flush()
        elif self._made:
            os.rmdir(self.name)
            self._made = False
