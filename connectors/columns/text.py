"""Convert columns of text cells to numbers, categories, labels and keys."""

from __future__ import annotations

import copy
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import APART, CODED, LISTED, MISSING, NUMBERS, Bad, Cells, Labels, Memo, shown
from connectors.columns.counters import is_index, warn_of_numbers
from connectors.columns.number_formats import LONGEST
from connectors.columns.numbers import WAYS, NumberColumns
from connectors.columns.roles import Roles
from connectors.columns.strings import CategoricalColumn, StringColumn
from connectors.columns.times import Times
from connectors.errors import ConnectorError
from connectors.events import Events, Table
from connectors.notices import Notice

_PER_NUMBER = 9
_MOST_STRAYS = 10 * _PER_NUMBER


def categories(cells: Cells, missing: frozenset[str] = MISSING) -> NDArray[np.object_]:
    """Return cells as an object array, with None for missing values."""
    column = np.empty(len(cells), dtype=object)
    column[:] = cells if missing.isdisjoint(cells) else [None if cell in missing else cell for cell in cells]
    return column


@dataclass(frozen=True, slots=True)
class Header:
    """Columns of a file.

    Parameters
    ----------
    names
        Names of all columns, in the order of the cells.
    allowed
        Declared values of nominal columns (ARFF). A declared value is never missing.
    unnamed
        Columns without a name in the file, in order.
    """

    names: Sequence[str]
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unnamed: Sequence[str] = ()


def _present(keys: Sequence[str]) -> Sequence[str | None]:
    """Return keys with None for empty texts."""
    if isinstance(keys, StringColumn) and keys.lengths.all():
        return keys
    return [text or None for text in keys]


def _unnamed(name: str) -> str:
    """Return the column name in the header, empty if it was generated."""
    return "" if name.startswith("Unnamed: ") else name


class TextColumns:
    """Convert rows of text cells to columns, and infer undeclared feature types.

    A text in a numeric column is an error, and its event is rejected. If a numeric column without a declared type
    contains more than about one text in ten, beyond the first ten, it becomes mixed. A mixed column contains numbers
    and texts from that row on. The result does not depend on batch boundaries.

    Parameters
    ----------
    header, roles
        The columns and their roles.
    are_typed
        Whether the source distinguishes numbers from texts.
    """

    def __init__(self, header: Header, roles: Roles, *, are_typed: bool = False) -> None:
        self._roles = roles
        self._values: dict[str, Memo] = {}
        self.times = Times(roles.time_unit, roles.time_format)
        self.types: dict[str, str] = {}
        """Inferred types by column: number, category, mixed, time or ignore."""
        self._name(header)
        self._met, self._absent = set(self._features), set[str]()  # features of all files, and those some file lacks
        self._is_decided = False
        self.numbers = NumberColumns(roles, are_typed)
        self._labels = Labels(self._missing(roles.label), self.numbers.notices)
        self.strays: dict[str, int] = {}
        """Texts in numeric columns; each counts as nine numbers."""

    def _name(self, header: Header) -> None:
        roles = self._roles
        self._index, self._allowed = {name: i for i, name in enumerate(header.names)}, header.allowed
        self._features = roles.features(header.names)
        features = set(self._features)
        self._unnamed = [name for name in header.unnamed if name in features and name not in roles.types]
        self.types = {name: roles.types[name] for name in self._features if name in roles.types} | self.types

    def renamed(self, source: str, header: Header) -> TextColumns:
        """Return the converter of a later file, with all decisions and warnings so far.

        Parameters
        ----------
        source
            Name of the file.
        header
            Its columns.
        """
        other = copy.copy(self)
        other._name(header)
        other._leave_out()
        features = dict.fromkeys(self._roles.features(header.names))
        new = [name for name in features if name not in self._met]
        without = [name for name in self._met if name not in features]
        absent = [name for name in without if name not in self._absent]
        folded = {name.casefold(): name for name in without}
        form = "column {name!r} is not in the files before {source}: it is a new feature from there on{hint}"
        hints = {name: f" (is it {folded[key]!r}?)" for name in new if (key := name.casefold()) in folded}
        with self.numbers.notices.together():
            self.numbers.notices.warn(*(Notice.of(form, n, source=source, hint=hints.get(n, "")) for n in new))
            form = "column {name!r} is not in {source}: its values are missing there, and in other files without it"
            self.numbers.notices.warn(*(Notice.of(form, name, source=source) for name in sorted(absent)))
        self._met.update(new)
        self._absent.update(absent)
        return other

    @property
    def is_settled(self) -> bool:
        """Whether all features have types, so that later files need no inspection."""
        return self._is_decided and all(name in self.types for name in self._features)

    @property
    def categories(self) -> list[str]:
        """Features with declared values."""
        return [name for name in self._features if name in self._allowed]

    @property
    def notices(self) -> list[str]:
        """Warnings so far."""
        return self.numbers.notices.texts

    def _decisions(self) -> dict[str, tuple[Any, str]]:
        """Return object and attribute of each decision, by its name in positions."""
        own = {"types": "types", "strays": "strays", "met": "_untyped", "absent": "_absent"}
        of_numbers = {name: name for name in ("markers", "open", "spellings", "rejected")} | {"sampled": "is_sampled"}
        return (
            {name: (self, attribute) for name, attribute in own.items()}
            | {name: (self.numbers, attribute) for name, attribute in of_numbers.items()}
            | {"units": (self.times, "guesses")}
        )

    @property
    def decided(self) -> dict[str, Any]:
        """Types and formats inferred so far, as JSON; empty ones are left out."""
        found = {name: getattr(owner, attribute) for name, (owner, attribute) in self._decisions().items()}
        return {
            name: sorted(value) if isinstance(value, set) else dict(value) if isinstance(value, dict) else value
            for name, value in found.items()
            if value or name == "types"
        }

    def restore(self, decided: Mapping[str, Any]) -> None:
        """Restore inferred types and formats."""
        for name, (owner, attribute) in self._decisions().items():
            kind = type(getattr(owner, attribute))
            setattr(owner, attribute, kind(decided.get(name, ())))
        self._is_decided |= bool(self.types)
        self._leave_out()

    @property
    def _untyped(self) -> set[str]:
        """Features of all files whose types are not known."""
        return self._met.difference(self.types)

    @_untyped.setter
    def _untyped(self, names: set[str]) -> None:
        self._met.update(self.types, names)

    def _leave_out(self) -> None:
        self._features = [name for name in self._roles.features(self._index) if self.types.get(name) != "ignore"]

    def decide(self, source: str, columns: Mapping[str, Cells | NDArray[Any]], whole: bool) -> None:
        """Infer undeclared types from the first cells, and time units if `whole` is true."""
        is_later, self._is_decided = self._is_decided, True
        with self.numbers.notices.together():
            self._decide_unnamed(source, columns)
            undecided = [name for name in self._features if name not in self.types]
            wanted = [name for name in self._features if self.types.get(name, "number") == "number"]
            # A later file decides only columns without values before.
            chosen = undecided if is_later else wanted
            texts = {name: cells for name in chosen if not isinstance(cells := columns[name], np.ndarray)}
            arrays = dict.fromkeys((name for name in chosen if name not in texts), "number")
            self.types = arrays | self.numbers.decide(source, texts) | self.types
            self.warn_of_counters(undecided, columns)
            times = [name for name in self._features if self.types.get(name) == "time"]
            for name in () if not whole else dict.fromkeys(filter(None, [self._roles.time, *times])):
                self.times.decide(source, name, list(columns[name]))

    def inspect(self, source: str, rows: Sequence[Any], whole: bool) -> None:
        """Infer undeclared types from the first rows; see `decide`."""
        self.decide(source, self.by_name(rows), whole)

    def warn_of_counters(self, names: Iterable[str], columns: Mapping[str, Cells | NDArray[Any]]) -> None:
        """Warn of numeric features that only count up or down, and of sentinel values."""
        features = set(self._features)
        with self.numbers.notices.together():
            for name in names:
                cells = columns[name]
                if isinstance(cells, np.ndarray):
                    warn_of_numbers(name, cells, self.numbers.notices)
                elif name in features and self.types.get(name) == "number":
                    warn_of_numbers(name, self.numbers.read(name, cells, {}), self.numbers.notices, cells)

    def _decide_unnamed(self, source: str, columns: Mapping[str, Any]) -> None:
        """Ignore unnamed columns that are empty or contain the index of a DataFrame."""
        empty, others = list[int](), list[int]()
        for name in self._unnamed:
            if name in self.types:  # decided by an earlier file
                continue
            i, cells = self._index[name], columns[name]
            if not any(map(str.strip, cells)):
                empty.append(i + 1)
            elif i == 0 and is_index(cells):
                what = "column 1 has no name and numbers the rows, like the index of pandas: it is out"
                self.numbers.notices.warn(f"{source}: {what} (--types :number keeps it)")
            else:
                others.append(i + 1)
                continue
            self.types[name] = "ignore"
        if empty:
            left_out = ", ".join(map(str, empty))
            self.numbers.notices.warn(f"{source}: columns without name and values are dropped: {left_out}")
        if len(others) > 1:
            what = f"columns {', '.join(map(str, others))} have values, but no name"
            way = "name them in the header, or use --ignore '' to leave them out"
            raise ConnectorError(f"{source}: {what}: {way}", option="ignore")
        self._leave_out()

    def by_name(self, rows: Sequence[Cells]) -> dict[str, Cells]:
        """Return rows of equal width as columns."""
        cells: Sequence[Cells] = list(zip(*rows, strict=True)) or [()] * len(self._index)
        return {name: cells[i] for name, i in self._index.items()}

    def read(self, rows: Sequence[Cells]) -> Events:
        """Convert rows of equal width."""
        return self.convert(self.by_name(rows), len(rows))

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of all used columns for `ArrowCells`; columns with two uses are text."""
        others = list(filter(None, self._others()))
        uses = Counter([*dict.fromkeys(self._features), *others])
        single_use = {name for name in uses if uses[name] == 1}
        found = dict.fromkeys([*self._features, *others], LISTED)
        found |= {
            name: NUMBERS
            for name in self._features
            if name in single_use and self.types.get(name) == "number" and self.numbers.is_plain(name)
        }
        own = {self._roles.key: APART} | ({} if self._features else {self._roles.label: CODED})
        return found | {name: kind for name, kind in own.items() if name in single_use}

    def _others(self) -> tuple[str | None, ...]:
        return self._roles.label, self._roles.key, self._roles.time

    def convert(self, cells: Mapping[str, Cells | NDArray[Any]], n: int) -> Events:
        """Convert columns of n cells, given by name.

        Columns of numbers (NaN if missing) and of times may already be arrays.
        """
        bad: Bad = {}
        table: Table = {}
        with self.numbers.notices.together():
            for name in self._features:
                table |= self.feature(name, cells[name], bad)
        label, key, time = self._others()
        events = Events(
            table,
            [None] * n if label is None else self._labels_of(label, cells[label], bad),
            None if key is None else self._keys_of(key, cells[key], bad),
            None if time is None else self._times_of(time, cells[time], bad),
            bad,
        )
        self._find_headers(cells, bad)
        return events

    def _labels_of(self, name: str, cells: Any, bad: Bad) -> Sequence[Any]:
        if isinstance(cells, CategoricalColumn):
            return CategoricalColumn(cells.codes, [self._labels[text] for text in cells.values])
        self._check_allowed(name, cells, bad)
        return list(map(self._labels.__getitem__, cells))

    def _keys_of(self, name: str, cells: Any, bad: Bad) -> Sequence[Any]:
        return _present(cells)

    def _times_of(self, name: str, cells: Any, bad: Bad) -> NDArray[np.int64]:
        return self.times.milliseconds(name, cells, bad)

    def _find_headers(self, cells: Mapping[str, Cells | NDArray[Any]], bad: Bad) -> None:
        """Reject rows that repeat the header, as in concatenated files.

        Such a row has a text in a numeric column, or the name of the label column as its label. A header with the same
        names in another order causes a warning, because the rows after it are read by the first header. A row without
        a text in a numeric column is no header, because rows of texts may be rankings of the names.
        """
        if any(isinstance(column, np.ndarray) for column in cells.values()):
            return
        suspects, label = list(bad), self._roles.label
        if label is None or label in self._labels:
            named = label or next(iter(cells), None)
            suspects += [i for i, cell in enumerate(cells.get(str(named), ())) if cell == named]
        for i in suspects:
            if all(column[i].strip() in (name, _unnamed(name)) for name, column in cells.items()):
                bad[i] = "the row repeats the header"
            elif i in bad and sorted(column[i].strip() for column in cells.values()) == sorted(cells):
                bad[i] = "the row is a header with the columns in another order"
                what = "a header with the columns in another order is rejected, and the rows after it are read in the"
                self.numbers.notices.warn(f"{what} order of the first header: write each table to a file of its own")

    def _missing(self, name: str | None) -> frozenset[str]:
        return self._roles.missing - self._allowed.get(name or "", frozenset())

    def feature(self, name: str, cells: Cells | NDArray[np.float64], bad: Bad) -> Table:
        """Convert the cells of a feature column; add reasons for rejection to `bad`."""
        if name not in self.types or name in self.numbers.open:
            decided = self.numbers.decide_late(name, cells)
            if decided is not None:
                self.types.setdefault(name, decided)
        if isinstance(cells, np.ndarray):
            self._first_mixed_row(name, (), len(cells))
            return {name: cells}
        kind = self.types.get(name)
        if kind == "time":
            return self.times.features(name, cells, bad, self._roles.missing_numbers)
        if kind == "mixed":
            return {name: self._mixed(name, cells)}
        if kind != "category":
            return {name: self._read_numbers(name, cells, bad)}
        self._check_allowed(name, cells, bad)
        return {name: categories(cells, self._missing(name))}

    def _mixed(self, name: str, cells: Cells) -> NDArray[np.object_]:
        values = self._values.get(name)
        if values is None:
            missing, convert = self.numbers.missing(name), self.numbers.number_or_text
            values = self._values[name] = Memo(lambda text: None if text in missing else convert(name, text))
        column = np.empty(len(cells), dtype=object)
        column[:] = [values[cell] for cell in cells]
        return column

    def _read_numbers(self, name: str, cells: Cells, bad: Bad) -> NDArray[Any]:
        found: Bad = {}
        column = self.numbers.read(name, cells, found)
        strays = (i for i in found if cells[i].strip() != name)
        turn = None if name in self._roles.types else self._first_mixed_row(name, strays, len(cells))
        for i, reason in found.items():
            if turn is None or i < turn:
                bad.setdefault(i, reason)
                if cells[i].strip() != name:  # a row that repeats the header has its own reason
                    self.numbers.count_text(name, cells[i])
        if turn is None:
            return column
        form = (
            "column {name!r}, so far of numbers, holds texts such as {text}: from there on they are categories; "
            f"--types {{name}}:number rejects their events, {WAYS}"
        )
        text = cells[turn].strip()
        self.numbers.notices.warn(Notice.of(form, name, text=shown(text), marker=shlex.quote(text[:LONGEST])))
        self.types[name] = "mixed"
        before = np.array([None if math.isnan(number) else number for number in column[:turn].tolist()], dtype=object)
        return np.concatenate([before, self._mixed(name, cells[turn:])])

    def _first_mixed_row(self, name: str, strays: Iterable[int], n: int) -> int | None:
        """Return the row from which a column is mixed, given the rows of its texts."""
        level, at = self.strays.pop(name, 0), 0
        for i in strays:
            level = max(0, level - (i - at)) + _PER_NUMBER
            at = i + 1
            if level >= _MOST_STRAYS:
                return i
        level = max(0, level - (n - at))
        if level:
            self.strays[name] = level
        return None

    def _check_allowed(self, name: str, cells: Iterable[Any], bad: Bad) -> None:
        allowed = self._allowed.get(name)
        if allowed is None or allowed.issuperset(cells):
            return
        for i, cell in enumerate(cells):
            if cell not in allowed and cell not in self._roles.missing:
                bad.setdefault(i, f"{shown(cell)} is not among the values declared for '{name}'")
