"""Tables with typed columns, and sources of their rows (Arrow, databases)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import Bad, Labels
from connectors.columns.roles import NEEDED, ROLES, Roles
from connectors.columns.text import Header, TextColumns
from connectors.columns.time_texts import time_features
from connectors.errors import ConnectorError
from connectors.events import BATCH_BYTES, Batch, Origins, Position, Table
from connectors.notices import Notice
from connectors.streams import PrefetchSource

SAMPLE = 1000
"""Number of rows that decide which texts are numbers."""


class TypedColumns(TextColumns):
    """Convert the columns of a table with types to events.

    Numbers and booleans are numeric columns; times are features if declared.

    Texts are categories, or numbers if their first thousand values are, as in CSV.

    Parameters
    ----------
    source
        Name of the source, for messages.
    names
        Names of all columns.
    roles
        Roles of the columns.
    left_out
        Columns that are the index of a data frame. They are features only if their type is declared.
    before
        Columns of the previous file of the stream, whose decisions and warnings remain.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        roles: Roles,
        left_out: Sequence[str] = (),
        before: TypedColumns | None = None,
    ) -> None:
        roles.check(source, names, ROLES if before is None else NEEDED)
        features = roles.features(names)
        index = [name for name in left_out if name in features and name not in roles.types]
        header = Header([name for name in features if name not in index])
        if before is None:
            super().__init__(header, roles, are_typed=True)
            self._labels = Labels(roles.missing, self.numbers.notices, str)
        else:
            vars(self).update(vars(before.renamed(source, header)))
        counts = Counter(names)
        for name in self.used:
            if counts[name] > 1:
                what = f"{source}: column {name!r} appears twice; name it in ignore="
                raise ConnectorError(what, "twice", column=name)
        form = "column {name!r} is the index of a data frame and is dropped (--types {name}:number keeps it)"
        self.numbers.notices.warn(*(Notice.of(form, name) for name in index))
        self.source, self._missing_values = source, roles.missing_values

    @property
    def used(self) -> list[str]:
        """Names of the features, the label, the key and the time."""
        return list(dict.fromkeys([*self._features, *(name for name in self._others() if name is not None)]))

    @property
    def typed(self) -> list[str]:
        """Names of the features and the label."""
        return list(dict.fromkeys([*self._features, *filter(None, [self._roles.label])]))

    def most_events(self, wanted: int) -> int:
        """Return the number of events in a batch, fewer than wanted for wide tables."""
        return min(wanted, max(1, BATCH_BYTES // (8 * max(len(self._features), 1))))

    @abstractmethod
    def cells(self, name: str, column: Any, bad: Bad) -> Any:
        """Return the values of a feature as an array of numbers, or a list of objects.

        The objects are texts or times.
        """

    @abstractmethod
    def plain(self, name: str, column: Any, bad: Bad) -> list[Any]:
        """Return values of built-in types."""

    def milliseconds(self, column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        """Return times as milliseconds since 1970, and which of them are valid.

        Returns None for a column of another type.
        """
        return None

    def infer_types(self, columns: Mapping[str, Any]) -> None:
        """Infer from the first rows which text columns are numbers; warn of counters."""
        if not self.is_settled:
            self.decide(self.source, {name: self.cells(name, columns[name], {}) for name in self._features}, False)

    def feature(self, name: str, cells: Any, bad: Bad) -> Table:
        """Convert a feature column."""
        if self._roles.types.get(name) == "time" and (found := self.milliseconds(cells)) is not None:
            return dict(time_features(name, *found))
        return super().feature(name, self.cells(name, cells, bad), bad)

    def _keys_of(self, name: str, cells: Any, bad: Bad) -> Sequence[Any]:
        return self.plain(name, cells, bad)

    def _find_headers(self, cells: Mapping[str, Any], bad: Bad) -> None:
        """Do nothing: rows of a table do not repeat its header."""

    def _times_of(self, name: str, cells: Any, bad: Bad) -> NDArray[np.int64]:
        found = self.milliseconds(cells)
        if found is None:
            return self.times.milliseconds(name, self.plain(name, cells, bad), bad)
        times, is_present = found
        for i in np.flatnonzero(~is_present).tolist():
            bad.setdefault(i, f"'{name}' is missing, but is the time of the event")
        return times

    def _labels_of(self, name: str, cells: Any, bad: Bad) -> Sequence[Any]:
        labels = self.plain(name, cells, bad)
        return labels if set(map(type, labels)) == {int} else [self._label(value) for value in labels]

    def _label(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._labels[value]
        return None if value != value else value

    def _without_absent(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return numbers with NaN for those that are declared as missing values."""
        return np.where(np.isin(values, self._missing_values), np.nan, values) if self._missing_values else values


class RowSource(PrefetchSource):
    """Base class of sources that count rows and convert them by `TypedColumns`.

    Attributes
    ----------
    unit
        Name of the source in the origins of events.
    """

    unit: str = "source"
    _columns: TypedColumns
    _batch_size: int

    def __init__(self) -> None:
        super().__init__()
        self._row = 0
        self._total = math.inf  # unknown

    def _next(self, columns: Mapping[str, Any], n: int) -> Batch:
        """Count the next n rows as read, and return their events."""
        start, self._row = self._row, self._row + n
        origins = Origins({self.unit: self.name}, {"row": range(start, self._row)})
        return self._columns.convert(columns, n).batch(origins, self._read_position)

    @property
    @abstractmethod
    def _mark(self) -> Position:
        """What identifies the rows read so far, beside their number."""

    @property
    def _read_position(self) -> Position:
        """Number of rows read, version of the data, and decisions about texts and times."""
        return {"row": self._row} | self._mark | self._columns.decided

    @property
    def _read_fraction(self) -> float | None:
        if self._total == math.inf:
            return None
        return self._row / self._total if self._total else 1.0

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return self._columns.notices
