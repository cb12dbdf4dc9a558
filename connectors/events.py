"""Batches of events.

An *event* is a set of named feature values with an optional label.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from connectors.columns.absent import is_absent
from connectors.columns.strings import CategoricalColumn, StringColumn, gathered

Position: TypeAlias = "dict[str, Any]"
"""A small JSON object: all earlier events were returned, or are durable.

The former is the position of a source, the latter that of a sink.
"""

Table: TypeAlias = "dict[str, NDArray[Any]]"
"""Columns of equal length by name: float64 with NaN, or objects with None.

NaN and None are missing values; other objects are texts. In a row with `ABSENT`, the name of the column is absent.
"""

Results: TypeAlias = "Mapping[str, Sequence[Any]]"
"""Table for sinks: columns of equal length by name."""

Rows: TypeAlias = "slice | list[int] | NDArray[np.int64]"
"""Row indices."""

BATCH_EVENTS, BATCH_BYTES = 4096, 1 << 19
"""Default maximum of a batch of a file, large to reduce the cost per event."""


@dataclass(slots=True)
class SparseRows:
    """Sparse rows in CSR format as in scipy, with integer indices as feature names.

    Parameters
    ----------
    indptr
        Row starts, int64, shape (n + 1,).
    indices
        Feature names as non-negative integers, int64, shape (nnz,), ascending within a row.
    values
        Feature values, float64, shape (nnz,).
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def picked(self, rows: Rows) -> SparseRows:
        """Select rows by index or slice.

        Parameters
        ----------
        rows
            Indices of the rows.
        """
        indptr, entries = gathered(self.indptr, rows)
        return SparseRows(indptr, self.indices[entries], self.values[entries])


Features: TypeAlias = "list[dict[Any, Any]] | Table | SparseRows"


@dataclass(slots=True)
class Origins:
    """Origin of each event of a batch.

    Parameters
    ----------
    shared
        Fields that all events share, such as the file.
    columns
        Fields with one value per event, such as the line.

    Examples
    --------
    >>> origins = Origins({"file": "a.csv"}, {"line": [2, 3]})
    >>> origins[1]
    {'file': 'a.csv', 'line': 3}
    """

    shared: dict[str, Any]
    columns: dict[str, Sequence[Any]]

    def __getitem__(self, i: int) -> dict[str, Any]:
        return self.shared | {name: _plain(column[i]) for name, column in self.columns.items()}


@dataclass(slots=True)
class Rejected:
    """A rejected record.

    Parameters
    ----------
    reason
        Reason for the rejection.
    origin
        Origin of the record, such as file and line.
    raw
        Text of the record, None if not available.
    place
        Position among the events and labels of a batch that contains both.
    """

    reason: str
    origin: dict[str, Any]
    raw: str | None = None
    place: float = 0.0


@dataclass(slots=True)
class LateLabels:
    """Labels that arrive separately, each with the key of its event.

    Parameters
    ----------
    labels, keys, times
        One value per label; times in milliseconds since 1970.
    before
        Number of events of the batch that precede each label.
    """

    labels: Sequence[Any]
    keys: Sequence[Any]
    times: Sequence[int] | NDArray[np.int64]
    before: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def places(self) -> NDArray[np.int64]:
        """Position of each label among events and labels."""
        return np.arange(len(self)) + self.before

    def places_of_events(self, n: int) -> NDArray[np.int64]:
        """Return the position of each of n events among events and labels.

        Parameters
        ----------
        n
            Number of events in the batch.
        """
        return np.arange(n) + np.searchsorted(self.before, np.arange(n), "right")

    def part(self, start: int, end: int, *, n: int) -> LateLabels:
        """Return labels `start` to `end - 1`, with positions relative to event n."""
        span = slice(start, end)
        return LateLabels(self.labels[span], self.keys[span], self.times[span], self.before[span] - n)


@dataclass(slots=True)
class Batch:
    """Consecutive events of a stream.

    Parameters
    ----------
    features
        Rows as dicts, a table of columns, or sparse rows.
    labels
        One per event, None if unknown. Labels that are equal in Python (True, 1 and 1.0) are one class.
    origins
        Origin of each event.
    position
        Position of the source after this batch.
    rejected
        Records rejected since the previous batch, in order.
    raw
        Raw text of each event, if the source has it.
    keys, times, headers
        One per event, if the source has them; times in milliseconds since 1970.
    late
        Late labels among the events.
    """

    features: Features
    labels: Sequence[Any]
    origins: Origins
    position: Position
    rejected: list[Rejected] = field(default_factory=list)
    raw: Sequence[str] | None = None
    keys: Sequence[Any] | None = None
    times: Sequence[int] | NDArray[np.int64] | None = None
    headers: Sequence[Any] | None = None
    late: LateLabels | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self) -> list[dict[Any, Any]]:
        """Return the features as one dict per event, without missing values."""
        return without_missing(rows_of(self.features, len(self)))

    def part(self, start: int, end: int) -> Batch:
        """Return the events from `start` to before `end`, without rejected records.

        Parameters
        ----------
        start, end
            Indices in the batch.
        """
        return self._picked(slice(start, end))

    def _picked(self, rows: Rows) -> Batch:
        """Select events, without rejected records."""
        origins = Origins(self.origins.shared, {name: _picked(c, rows) for name, c in self.origins.columns.items()})
        others = [None if s is None else _picked(s, rows) for s in (self.raw, self.keys, self.times, self.headers)]
        return Batch(picked(self.features, rows), _picked(self.labels, rows), origins, self.position, [], *others)

    def reaches_beyond(self, n: int) -> bool:
        """Return whether any event or late label follows the first n events.

        Parameters
        ----------
        n
            Number of events.
        """
        return len(self) > n or (len(self) == n and self.late is not None and bool((self.late.before == n).any()))

    def cut(self, n: int) -> tuple[Batch, Batch]:
        """Split into the first n events, with all rejected records, and the rest.

        Parameters
        ----------
        n
            Number of events, at most those of the batch.
        """
        head, tail = self.part(0, n), self.part(n, len(self))
        head.rejected = self.rejected
        if self.late is not None:
            at = int(np.searchsorted(self.late.before, n))
            head.late, tail.late = self.late.part(0, at, n=0), self.late.part(at, len(self.late), n=n)
        return head, tail

    def without(self, bad: Mapping[int, str], skipped: Collection[int] = ()) -> Batch:
        """Move some events to `rejected`.

        Parameters
        ----------
        bad
            Reasons by index of the event.
        skipped
            Indices of events to drop.
        """
        if skipped:
            bad = {i: reason for i, reason in bad.items() if i not in skipped}
        if not (bad or skipped):
            return self
        keep = [i for i in range(len(self)) if i not in bad and i not in skipped]
        rejected = self.rejected + [
            Rejected(reason, self.origins[i], None if self.raw is None else self.raw[i])
            for i, reason in sorted(bad.items())
        ]
        late = self.late
        if late is not None:
            places = late.places_of_events(len(self))
            for one, i in zip(rejected[len(self.rejected) :], sorted(bad), strict=True):
                one.place = float(places[i])
            rejected.sort(key=lambda one: one.place)
            late = replace(late, before=np.searchsorted(np.array(keep), late.before))
        return replace(self._picked(keep), rejected=rejected, late=late)


@dataclass(slots=True)
class Events:
    """Events as converted by a format.

    Parameters
    ----------
    features, labels, keys, times
        See `Batch`.
    bad
        Reasons for rejection, by row.
    skipped
        Rows that are not events, such as deletes.
    """

    features: Features
    labels: Sequence[Any]
    keys: Sequence[Any] | None = None
    times: Sequence[int] | NDArray[np.int64] | None = None
    bad: dict[int, str] = field(default_factory=dict)
    skipped: Collection[int] = ()

    def batch(self, origins: Origins, position: Position, **others: Any) -> Batch:
        """Return a batch, which lacks rejected and skipped rows."""
        batch = Batch(self.features, self.labels, origins, position, keys=self.keys, times=self.times, **others)
        return batch.without(self.bad, self.skipped)


def joined(parts: Sequence[Events]) -> Events:
    """Join consecutive events whose features are dicts.

    Parameters
    ----------
    parts
        At least one.
    """
    if len(parts) == 1:
        return parts[0]
    whole = Events(rows := [], labels := list[Any]())
    times = [part.times for part in parts if part.times is not None]
    whole.times = np.concatenate(times) if times else None
    for part in parts:
        n = len(labels)
        rows += rows_of(part.features, len(part.labels))
        labels += part.labels
        whole.keys = None if part.keys is None else [*(whole.keys or ()), *part.keys]
        whole.bad |= {n + i: reason for i, reason in part.bad.items()}
        whole.skipped = {*whole.skipped, *(n + i for i in part.skipped)}
    return whole


def picked(features: Features, rows: Rows) -> Features:
    """Select rows of features.

    Parameters
    ----------
    features
        Rows of any kind.
    rows
        Their indices, or a slice.
    """
    if isinstance(features, dict):
        return {name: column[rows] for name, column in features.items()}
    if isinstance(features, SparseRows):
        return features.picked(rows)
    return features[rows] if isinstance(rows, slice) else [features[i] for i in rows]


def rows_of(features: Features, n: int, *, missing: bool = False) -> list[dict[Any, Any]]:
    """Return features as one dict per event.

    Parameters
    ----------
    features
        Rows of any kind; dicts are returned unchanged.
    n
        Their number.
    missing
        Whether the missing values of tables are included.
    """
    if isinstance(features, list):
        return features
    if isinstance(features, SparseRows):
        names, values, starts = features.indices.tolist(), features.values.tolist(), features.indptr.tolist()
        return [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in pairwise(starts)]
    if not features:
        return [{} for _ in range(n)]
    names, arrays = list(features), list(features.values())
    columns = [array.tolist() for array in arrays]
    rows = zip(*columns, strict=True)
    if any(None in c or (a.dtype.kind == "f" and np.isnan(a).any()) for c, a in zip(columns, arrays, strict=True)):
        is_gone = is_absent if missing else _is_missing
        return [{name: v for name, v in zip(names, row, strict=True) if not is_gone(v)} for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


def without_missing(rows: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    """Return events without the names whose value is None."""
    return [x if None not in x.values() else {k: v for k, v in x.items() if v is not None} for x in rows]


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _picked(sequence: Any, rows: Rows) -> Any:
    if isinstance(rows, slice) or isinstance(sequence, np.ndarray):
        return sequence[rows]
    if isinstance(sequence, StringColumn | CategoricalColumn):
        return sequence.take(np.array(rows, np.int64))
    return [sequence[i] for i in rows]
