"""Nested columns of Arrow data: structs and lists become flat columns."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from connectors.columns.nested import list_notice, nested_options, statistics
from connectors.columns.roles import Roles
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
