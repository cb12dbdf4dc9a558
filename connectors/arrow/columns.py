"""Conversion of Arrow record batches, also nested ones, to events (pyarrow)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import Bad
from connectors.columns.nested import list_notice, nested_options, statistics
from connectors.columns.roles import Roles
from connectors.columns.strings import floats_of
from connectors.columns.times import Times
from connectors.columns.typed import TypedColumns
from connectors.errors import ConnectorError
from connectors.notices import Notice
from connectors.options import Options

_TEXT_STATISTICS = ("length", "first", "last")


class ArrowFlattening:
    """Flatten record batches as `Flattening` does records.

    Parameters
    ----------
    options
        The options `flatten` and `lists`.
    roles
        Roles of the columns. Those that are ignored, the label, the key and the time are never flattened.

    Examples
    --------
    >>> import pyarrow as pa
    >>> flattening = ArrowFlattening(Options("a.parquet", {}), Roles())
    >>> rows = pa.RecordBatch.from_pylist([{"x": 1, "a": {"b": 2, "c": [3, 4]}}, {"x": 5, "a": None}])
    >>> flattening.flat(rows).to_pylist()
    [{'x': 1, 'a.b': 2, 'a.c.length': 2}, {'x': 5, 'a.b': None, 'a.c.length': None}]
    """

    def __init__(self, options: Options, roles: Roles) -> None:
        self._depth, self._statistics = nested_options(options)
        self._kept = frozenset({*roles.unused, roles.label, roles.key, roles.time})

    def schema(self, schema: Any) -> Any:
        """Return the schema of flat rows."""
        return self.flat(_empty(schema)).schema if _has_nested(schema) else schema

    def flat(self, rows: Any) -> Any:
        """Flatten a record batch; it may be returned unchanged."""
        if not _has_nested(rows.schema):
            return rows
        import pyarrow

        leaves = [(name, array) for name, _, array in self._leaves_of(rows)]
        return pyarrow.RecordBatch.from_arrays([array for _, array in leaves], names=[name for name, _ in leaves])

    def paths(self, schema: Any) -> dict[str, str]:
        """Return the column in the file that each flat column comes from."""
        return {name: path for name, path, _ in self._leaves_of(_empty(schema))}

    def notices(self, schema: Any) -> Iterator[Notice]:
        """Yield a warning for each list."""
        names = {path: name for name, path in self.paths(schema).items() if name != path and name.startswith(path)}
        yield from (list_notice(path, self._statistics) for path in names)

    def _leaves_of(self, rows: Any) -> Iterator[tuple[str, str, Any]]:
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            yield from self._leaves(name, column, self._depth)

    def _leaves(self, name: str, column: Any, depth: int) -> Iterator[tuple[str, str, Any]]:
        """Yield name, path and values of the flat columns of a column."""
        import pyarrow

        types, kind = pyarrow.types, column.type
        if depth == 0 or name in self._kept or not is_nested(kind):
            yield name, name, column
        elif types.is_struct(kind):
            fields = [kind.field(i).name for i in range(kind.num_fields)]
            for field, values in zip(fields, column.flatten(), strict=True):
                yield from self._leaves(f"{name}.{field}", values, depth - 1)
        else:
            for statistic, values in self._of_lists(column):
                yield f"{name}.{statistic}", name, values

    def _of_lists(self, column: Any) -> Iterator[tuple[str, Any]]:
        """Yield the statistics of lists, as far as their values have them."""
        import pyarrow
        import pyarrow.compute

        kind, types = column.type.value_type, pyarrow.types
        is_text = types.is_string(kind) or types.is_large_string(kind)
        is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        wanted = [
            name
            for name in self._statistics
            if is_number or types.is_decimal(kind) or name == "length" or (is_text and name in _TEXT_STATISTICS)
        ]
        others, found = [name for name in wanted if name != "length"], []
        if others:
            lists = column.to_pylist()
            found = [{} if each is None else statistics([_plain(item) for item in each], others) for each in lists]
        for name in wanted:
            if name == "length":
                yield name, pyarrow.compute.list_value_length(column)
            else:
                type_ = pyarrow.string() if is_text else pyarrow.float64()
                yield name, pyarrow.array([each.get(name) for each in found], type_)


def _empty(schema: Any) -> Any:
    """Return a record batch without rows."""
    import pyarrow

    return pyarrow.RecordBatch.from_pylist([], schema)


def _has_nested(schema: Any) -> bool:
    return any(is_nested(kind) for kind in schema.types)


def is_nested(kind: Any) -> bool:
    """Return whether a type is a struct or a list.

    Maps are excluded, because their keys are data.
    """
    import pyarrow

    types = pyarrow.types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(types.is_struct(kind) or lists)


def _plain(item: Any) -> Any:
    """Return an element of a list as JSON has it; NaN is missing."""
    if isinstance(item, Decimal):
        return float(item)
    return item if item == item else None


_INDEX = re.compile(r"__index_level_\d+__")


def import_arrow(name: str) -> Any:
    """Import pyarrow with its Parquet module."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        what = "Arrow data and frames need" if name.startswith("arrow:") else "Parquet needs"
        raise ConnectorError(f"{name}: {what} pyarrow: pip install 'streamsvm[parquet]'", "no pyarrow") from error
    return pyarrow


class ArrowColumns(TypedColumns):
    """Convert record batches of one schema.

    Parameters
    ----------
    source, roles
        As for `TypedColumns`.
    schema
        Schema of the batches.
    nested
        Conversion of nested columns.
    before
        Columns of the previous file of the stream, if any.

    Attributes
    ----------
    names_read
        Columns of the file to read.
    """

    def __init__(
        self, source: str, schema: Any, roles: Roles, nested: ArrowFlattening, before: ArrowColumns | None = None
    ) -> None:
        import pyarrow

        self._pa, self._nested, whole = pyarrow, nested, schema
        schema = nested.schema(schema)
        index = [one.name for one in schema if _INDEX.fullmatch(one.name) and pyarrow.types.is_integer(one.type)]
        super().__init__(source, schema.names, roles, index, before)
        self._kinds = {name: self._kind(schema.field(name).type) for name in self.typed}
        for name in self.typed:
            self._check_type(name, schema.field(name).type)
        kind = None if roles.time is None else schema.field(roles.time).type
        if kind is not None and ("binary" in str(kind) or is_nested(kind)):
            what = f"column {roles.time!r} is of type {kind}; choose a column of times, texts or numbers"
            raise ConnectorError(f"{source}: {what}", "type", option="time", column=roles.time)
        self.names_read, self._is_nested = self.used, schema is not whole
        if self._is_nested:
            paths = nested.paths(whole)
            self.names_read = list(dict.fromkeys(paths[name] for name in self.used))
            self.numbers.notices.warn(*nested.notices(whole))

    @property
    def is_open(self) -> bool:
        """Whether the first rows decide the type of a column."""
        return any(self._kinds[name] == "category" and name not in self._roles.types for name in self._features)

    def check_types(self, schema: Any, after: str) -> None:
        """Refuse later rows whose columns are of another kind.

        Parameters
        ----------
        schema
            Their schema, with the names of the first one.
        after
            Their place, for messages.
        """
        schema = self._nested.schema(schema)
        for name in self.typed:
            if schema.get_field_index(name) < 0:
                raise ConnectorError(f"{self.source}: {after}, there is no column {name!r} as before", "columns differ")
            kind = schema.field(name).type
            self._check_type(name, kind)
            before, now = self._kinds[name], self._kind(kind)
            if before != now and not self._pa.types.is_null(kind):
                what = f"{after}, column {name!r} is of type {kind}, which is no {before or 'time'} as before"
                raise ConnectorError(f"{self.source}: {what}", "type", column=name)

    def _check_type(self, name: str, kind: Any) -> None:
        types = self._pa.types
        is_time = types.is_timestamp(kind) or types.is_date(kind)
        if self._kind(kind) is None and not (is_time and self._roles.types.get(name) == "time"):
            way = f"ignore= or time=, or set types={name}:time" if is_time else "ignore="
            way = "ignore=, or flatten it with a larger flatten=" if is_nested(kind) else way
            what = f"column {name!r} is of type {kind}; name it in {way}"
            raise ConnectorError(f"{self.source}: {what}", "type", column=name)

    def _kind(self, kind: Any) -> str | None:
        types = self._pa.types
        kind = kind.value_type if types.is_dictionary(kind) else kind
        numbers = types.is_floating, types.is_integer, types.is_boolean, types.is_decimal, types.is_null
        if any(is_one(kind) for is_one in numbers):
            return "number"
        texts = types.is_string, types.is_large_string, types.is_string_view
        return "category" if any(is_one(kind) for is_one in texts) else None

    def flat(self, rows: Any) -> dict[str, Any]:
        """Return flat columns by name.

        A record batch searches all names on each access by name, so one dictionary is created.
        """
        flat = self._nested.flat(rows) if self._is_nested else rows
        return dict(zip(flat.schema.names, flat.columns, strict=True))

    def cells(self, name: str, column: Any, bad: Bad) -> Any:
        wanted = self.types.get(name)  # also of a column that was a category in an earlier file
        if self._kind(column.type) == "category" or wanted == "category":
            return _texts(name, column, bad)
        if wanted == "time":
            return self.plain(name, column, bad)
        return self._without_absent(floats_of(column.cast(self._pa.float64(), safe=False)))

    def milliseconds(self, column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        kind, types = column.type, self._pa.types
        if types.is_date(kind):
            column = column.cast(self._pa.timestamp("ms"))
        elif not types.is_timestamp(kind):
            return None
        is_valid = np.array(column.is_valid().to_numpy(zero_copy_only=False))
        numbers = np.array(column.cast(self._pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
        return Times(column.type.unit).milliseconds("", numbers, {}), is_valid

    def plain(self, name: str, column: Any, bad: Bad) -> list[Any]:
        """Return values of built-in types.

        Decimals become integers if their scale is 0, and floats otherwise.
        """
        values = _values(name, column, bad)
        if not str(column.type).startswith("decimal"):
            return values
        kind = float if column.type.scale > 0 else int
        return [None if value is None else kind(value) for value in values]


def _texts(name: str, column: Any, bad: Bad) -> list[str]:
    """Return values as text cells."""
    return ["" if value is None else str(value) for value in _values(name, column, bad)]


def _values(name: str, column: Any, bad: Bad) -> list[Any]:
    """Return Python values; add rows that are not valid UTF-8 to `bad`."""
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
    """Return Python values, and the indices of invalid UTF-8, whose values are None."""
    try:
        return column.to_pylist(), set()
    except UnicodeDecodeError:
        values, broken = list[Any](), set[int]()
    for i, item in enumerate(column):
        try:
            values.append(item.as_py())
        except UnicodeDecodeError:
            values.append(None)
            broken.add(i)
    return values, broken
