"""ARFF, dense and sparse, as written by Weka and MOA.

Special cases: a ``%`` outside quotes starts a comment, and a row may end in a comma. Commas separate values, so
``New York`` needs no quotes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.columns.roles import Roles
from connectors.columns.text import Header, TextColumns
from connectors.errors import ConnectorError
from connectors.options import Options
from connectors.text.formats import Records, TextFormat, line_records
from connectors.text.source import TextSource

_QUOTED = r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+(?:{_QUOTED}|([^\s{{]+))(?:\s*\{{(.*)\}}|\s+(\w+).*)\s*$", re.IGNORECASE)
_CELL = re.compile(rf"\s*(?:{_QUOTED}|([^,'\"]*?))\s*(,|$)")
_PAIR = re.compile(rf"\s*(\d+)\s+(?:{_QUOTED}|([^\s,'\"]+))(?:\s*(?:,|$)|\s+)")
_BEFORE_COMMENT = re.compile(rf"((?:{_QUOTED}|[^'\"%]+)*+)%")
_NUMBERS = ("numeric", "real", "integer")
MOST_CELLS = 1 << 21


class ArffFormat(TextFormat):
    """Attributes with declared types; the last is the label unless one is named."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._label_is_last = not options.has("label")
        self._roles = Roles.of(options)
        self.columns = TextColumns(Header([]), self._roles)

    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """Parse the declarations up to ``@data``."""
        attributes: dict[str, str | list[str]] = {}
        for i, line in enumerate(lines):
            line = _without_comment(line)
            word = line.lower()
            if word.startswith("@data"):
                self._declare(attributes)
                return i + 1
            if word.startswith("@attribute"):
                self._attribute(line, i + 1, attributes)
            elif word and not word.startswith("@relation"):
                raise ConnectorError(f"{self._source}: line {i + 1} is not an ARFF declaration: {line[:80]!r}")
        if last:
            raise ConnectorError(f"{self._source}: the ARFF header has no @data line")
        return None

    def _attribute(self, line: str, number: int, attributes: dict[str, str | list[str]]) -> None:
        match = _ATTRIBUTE.match(line)
        if match is None:
            raise ConnectorError(f"{self._source}: line {number} is not an attribute declaration: {line[:80]!r}")
        name = _text(match, 1)
        if name in attributes:
            raise ConnectorError(f"{self._source}: attribute {name!r} is declared twice")
        try:
            attributes[name] = match[5].lower() if match[4] is None else _cells(match[4])
        except ValueError as error:
            raise ConnectorError(f"{self._source}: line {number}: {error}") from None

    def _declare(self, attributes: dict[str, str | list[str]]) -> None:
        if not attributes:
            raise ConnectorError(f"{self._source}: the ARFF header declares no attributes")
        roles = self._roles
        if self.is_first:
            roles.label = next(reversed(attributes)) if self._label_is_last else roles.label
            roles.check(self._source, attributes)
        for name, kind in attributes.items():
            known = kind in (*_NUMBERS, "string") or (kind == "date" and roles.types.get(name) == "time")
            if isinstance(kind, str) and not known and name in roles.features(attributes):
                way = f"ignore=, or set types={name}:time" if kind == "date" else "ignore="
                raise ConnectorError(f"{self._source}: attribute {name!r} is of type {kind}; name it in {way}")
        # Omitted values of a sparse row are zero, or the first declared value of a nominal attribute.
        self._defaults = [
            "0" if kind in _NUMBERS else kind[0] if isinstance(kind, list) else "?" for kind in attributes.values()
        ]
        # The first values determine the type of string attributes, as in CSV.
        declared = {
            name: "number" if kind in _NUMBERS else "category" for name, kind in attributes.items() if kind != "string"
        }
        self._undeclared = [name for name in declared if name not in roles.types]
        roles.types = declared | roles.types
        nominal = {
            name: frozenset(kind)
            for name, kind in attributes.items()
            if isinstance(kind, list) and roles.types[name] == "category"
        }
        self._take_header(Header(list(attributes), nominal), are_typed=True)

    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """Parse one event per line, in smaller batches if there are many columns."""
        limit = min(limit, max(1, MOST_CELLS // len(self._defaults)))
        return line_records(lines, bad, limit, map(self._row, lines), skip=("%",))

    def _row(self, line: str) -> list[str] | ValueError:
        line = _without_comment(line)
        try:
            return self._sparse_row(line) if line.startswith("{") else self._dense_row(line)
        except ValueError as error:
            return error

    def _dense_row(self, line: str) -> list[str]:
        row, width = _cells(line), len(self._defaults)
        if len(row) == width + 1 and not row[-1]:
            row.pop()  # MOA writes a trailing comma
        if len(row) != width:
            raise ValueError(f"{len(row)} values instead of {width}")
        return row

    def _sparse_row(self, line: str) -> list[str]:
        if not line.endswith("}"):
            raise ValueError("a sparse row must end in }")
        row, content = self._defaults.copy(), line[1:-1].strip()
        seen, at = -1, 0
        while at < len(content):
            match = _PAIR.match(content, at)
            if match is None:
                raise ValueError(f"not a pair of index and value: {content[at : at + 80]!r}")
            index = int(match[1])
            if not seen < index < len(row):
                raise ValueError(f"index {index} must be above {seen} and below {len(row)}")
            row[index] = _text(match, 2)
            seen, at = index, match.end()
        return row

    def inspect(self, rows: Sequence[Any], whole: bool) -> None:
        """Decide the types of string attributes, and the units of times."""
        super().inspect(rows, whole)
        self.columns.warn_of_counters(self._undeclared, self.columns.by_name(rows))


def _without_comment(line: str) -> str:
    """Return a line without surrounding white space and trailing comment."""
    match = _BEFORE_COMMENT.match(line) if "%" in line else None
    return (match[1] if match else line).strip()


def _cells(line: str) -> list[str]:
    """Split at commas and resolve quotes and escapes."""
    if not any(mark in line for mark in "'\"\\"):
        return [cell.strip() for cell in line.split(",")] if " " in line or "\t" in line else line.split(",")
    cells, at = [], 0
    while True:
        match = _CELL.match(line, at)
        if match is None:
            raise ValueError(f"a quote is not closed or not separated: {line[at : at + 80]!r}")
        cells.append(_text(match, 1))
        at = match.end()
        if not match[4]:
            return cells


def _text(match: re.Match[str], first: int) -> str:
    """Return the unquoted text of a match; its groups start at number `first`.

    They are the single-quoted, the double-quoted and the plain text.
    """
    quoted = match[first] if match[first] is not None else match[first + 1]
    return match[first + 2] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)


open_arff = functools.partial(TextSource, make=ArffFormat)
