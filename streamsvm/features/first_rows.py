"""Checks of the first learned rows: placeholders of missing values, and counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from connectors.columns.counters import direction, form_of_dates, sentinels
from connectors.columns.time_texts import is_of_time
from connectors.notices import Notice
from streamsvm.features.rows import EncodedRows, Floats, Ints

# Rows are examined at FIRST_LOOK rows and each time their number doubles, up to MOST_ROWS rows or MOST_VALUES values.
FIRST_LOOK, MOST_ROWS, MOST_VALUES = 64, 1024, 1 << 17
# Counters need this many rows, or all that are examined: a cycle, such as the wear of a tool, counts up at first.
FIRST_LOOK_AT_COUNTERS = 256


class FirstRows:
    """Collector of the first rows that reports each suspicious feature once.

    Examples
    --------
    >>> from streamsvm.features.space import FeatureSpace
    >>> space, first = FeatureSpace(max_features=10), FirstRows()
    >>> for notice in first.add_rows(space.encode([{"id": i} for i in range(256)], learn=[True] * 256), space.names):
    ...     print(notice[:27])
    feature 'id' only counts up
    """

    def __init__(self) -> None:
        self._n = self._n_values = 0
        self._due = FIRST_LOOK
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._packed: list[bytes] = []  # rows after these
        self._reported: set[tuple[str, int]] = set()

    @property
    def is_full(self) -> bool:
        """Whether no more rows are examined."""
        return self._n >= MOST_ROWS or self._n_values >= MOST_VALUES

    def add_event(self, columns: Ints, values: Floats) -> bool:
        """Add a row; return False without adding it if the rows are due for `add_rows`.

        The arrays are stored and must not change.
        """
        if not self._has_counted(len(values)):
            return False
        self._unpack()
        self._columns.append(columns)
        self._values.append(values)
        return True

    def add_packed(self, packed: bytes) -> bool:
        """Add the packed values of a row of the first columns; see `add_event`."""
        if not self._has_counted(len(packed) // 8):
            return False
        self._packed.append(packed)
        return True

    def _has_counted(self, n_values: int) -> bool:
        """Count a row, unless the rows are then due to be examined."""
        n, n_values = self._n + 1, self._n_values + n_values
        if n >= min(self._due, MOST_ROWS) or n_values >= MOST_VALUES:
            return False
        self._n, self._n_values = n, n_values
        return True

    def _unpack(self) -> None:
        """Move the packed rows to the other rows."""
        packed, self._packed = self._packed, []
        if not packed:
            return
        sizes = np.array([len(row) // 8 for row in packed], np.int64)
        self._columns.append(np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes))
        self._values.append(np.frombuffer(b"".join(packed)))

    def add_rows(self, rows: EncodedRows, names: Sequence[Any]) -> list[Notice]:
        """Add rows and return the new notices.

        Parameters
        ----------
        rows
            The next rows.
        names
            Name of each column. Indicator columns raise no notice, because their value is always 1.
        """
        room = max(1, min(MOST_ROWS - self._n, (MOST_VALUES - self._n_values) * len(rows) // max(len(rows.values), 1)))
        rows = rows.part(0, min(len(rows), room))
        self._unpack()
        columns = np.tile(rows.columns, len(rows)) if rows.shared else rows.columns.copy()
        self._n += len(rows)
        self._n_values += len(rows.values)
        self._columns.append(columns)
        self._values.append(rows.values.copy())
        if self._n < self._due and not (self.is_full and self._n >= FIRST_LOOK):
            return []
        self._due = 2 * self._n
        return [each for column, values in self._by_column() for each in self._notices(column, values, names[column])]

    def _by_column(self) -> Iterator[tuple[int, Floats]]:
        """Yield column and values, in row order, of columns that may be suspicious."""
        columns, values = np.concatenate(self._columns), np.concatenate(self._values)
        columns, values = columns[is_present := ~np.isnan(values)], values[is_present]
        order = np.argsort(columns, kind="stable")
        columns, values = columns[order], values[order]
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        if not len(starts):
            return
        steps = np.diff(values, append=values[-1:])
        steps[starts[1:] - 1] = 0.0  # differences across columns
        is_ordered = (np.minimum.reduceat(steps, starts) >= 0.0) | (np.maximum.reduceat(steps, starts) <= 0.0)
        least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        is_far = np.maximum(np.abs(least), np.abs(most)) >= 99.0
        ends = [*starts[1:].tolist(), len(values)]
        for k in np.flatnonzero((least < most) & (is_ordered | is_far)).tolist():
            yield int(columns[starts[k]]), values[starts[k] : ends[k]]

    def _time_pattern(self, values: Floats) -> str:
        if form := form_of_dates(values):
            return f"has dates written as numbers, such as {values[0]:.0f} ({form})"
        way = direction(values) if self._n >= FIRST_LOOK_AT_COUNTERS or self.is_full else ""
        return f"only counts {way} in the first {self._n} events, like a row number or a time" if way else ""

    def _notices(self, column: int, values: Floats, name: Any) -> Iterator[Notice]:
        if is_of_time(name):
            return
        if ("counter", column) not in self._reported and (pattern := self._time_pattern(values)):
            self._reported.add(("counter", column))
            yield Notice.of(f"feature {{name!r}} {pattern}: drop it, or pass a datetime if it is a time", name)
        for text, share in sentinels(values.tolist()).items():
            if (text, column) not in self._reported:
                self._reported.add((text, column))
                missing = (
                    f"feature {{name!r}}: {text} in {{share:.0f}} % of its first values looks like a missing value and "
                    "is learned as a number: use None or NaN instead"
                )
                yield Notice.of(missing, name, share=100.0 * share)
