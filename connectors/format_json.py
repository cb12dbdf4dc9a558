"""JSON lines: one flat object an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

import orjson

from connectors.columns import Bad, Events, shown, times_of
from connectors.formats import Records, line_records
from connectors.options import Options, Roles

_NESTED = frozenset({dict, list})
_CONVERT: dict[str, Callable[[Any], Any]] = {"number": float, "category": str}


class JsonFormat:
    """One JSON object a line; names may differ from line to line, null is missing, nested values are refused."""

    def __init__(self, options: Options) -> None:
        self._source = options.name
        self._roles = Roles.of(options)
        self._convert = {name: kind for name, kind in self._roles.types.items() if kind in _CONVERT}

    @property
    def types(self) -> dict[str, str]:
        """Nothing to decide: JSON has types."""
        return {}

    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """There is none."""
        return 0

    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """One object a line."""
        return line_records(lines, bad, limit, map(_parsed, lines))

    def decide(self, rows: Sequence[Any], whole: bool) -> None:
        """Miss the label, key or time that none of a file's first events has."""
        if whole:
            names = dict.fromkeys(name for row in rows for name in row)
            Roles(self._roles.label, self._roles.key, self._roles.time).check(self._source, names)

    def events(self, rows: Sequence[Any]) -> Events:
        """The objects without their label, key, time and ignored fields."""
        bad: Bad = {}
        roles = self._roles
        rows = list(map(dict, rows))  # the caller's stay as they are
        label, key, time = (
            None if name is None else [row.pop(name, None) for row in rows]
            for name in (roles.label, roles.key, roles.time)
        )
        for i, value in enumerate(label or ()):
            if type(value) in _NESTED:
                bad.setdefault(i, f"the label '{roles.label}' is nested: {shown(value)}")
        times = None if time is None else times_of(str(roles.time), time, bad)
        return Events(list(self._features(rows, bad)), label or [None] * len(rows), key, times, bad)

    def _features(self, rows: Sequence[dict[str, Any]], bad: Bad) -> Iterator[dict[str, Any]]:
        for i, row in enumerate(rows):
            for name in self._roles.ignore:
                row.pop(name, None)
            kinds = set(map(type, row.values()))
            if not kinds.isdisjoint(_NESTED):
                name = next(name for name, value in row.items() if type(value) in _NESTED)
                bad.setdefault(i, f"field '{name}' is nested: {shown(row[name])}")
            if NoneType in kinds:
                row = {name: value for name, value in row.items() if value is not None}
            for name, kind in self._convert.items():
                self._convert_one(row, name, kind, i, bad)
            yield row

    def _convert_one(self, row: dict[str, Any], name: str, kind: str, i: int, bad: Bad) -> None:
        try:
            if name in row:
                row[name] = _CONVERT[kind](row[name])
        except (TypeError, ValueError):
            bad.setdefault(i, f"'{name}' is not a {kind}: {shown(row[name])}")


def _parsed(line: str) -> dict[str, Any] | ValueError:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return ValueError(f"not JSON: {error}")
    return value if isinstance(value, dict) else ValueError(f"not a JSON object: {shown(value)}")
