"""What flows between a stream and its consumer: batches of events, and the protocols of source and sink.

An *event* is one set of named feature values with, perhaps, a label. Sources hand events out in batches, each with the
position to resume from and the events that could not be read. Sinks take tables of results and can take back what was
written after a given position. This module knows nothing of learners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from connectors.held import Coded, Texts

Position: TypeAlias = "dict[str, Any]"
"""A small JSON object: everything before it has been handed out (source) or is durable (sink)."""

Table: TypeAlias = "dict[str, NDArray[Any]]"
"""Equally long columns by name: float64 with NaN where missing, or objects (str, None where missing)."""

Results: TypeAlias = "Mapping[str, Sequence[Any]]"
"""What sinks take: equally long columns by name."""

Rows: TypeAlias = "slice | list[int]"
"""Rows by number."""

BATCH_EVENTS, BATCH_BYTES = 4096, 1 << 19
"""What a batch of a file has at most, unless more is asked for: enough that what a batch costs is shared by many."""


@dataclass(slots=True)
class SparseRows:
    """Rows of which only the stored entries are present, as in scipy's CSR; feature names are the integer indices.

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
        """Some rows, by number or slice."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        entries = np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return SparseRows(indptr, self.indices[entries], self.values[entries])


Features: TypeAlias = "list[dict[Any, Any]] | Table | SparseRows"


@dataclass(slots=True)
class Origins:
    """Where each event of a batch came from: what all share, and a column for what differs.

    Parameters
    ----------
    shared
        Such as the file.
    columns
        One value an event, such as the lines.

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
    """An event set aside.

    Parameters
    ----------
    reason
        Why.
    origin
        Where it stood, such as file and line.
    raw
        Its text; None where there is none.
    place
        Where it stood among the events and labels of a batch that has both.
    """

    reason: str
    origin: dict[str, Any]
    raw: str | None = None
    place: float = 0.0


@dataclass(slots=True)
class LateLabels:
    """Labels that come by themselves, each with the key of its event.

    Parameters
    ----------
    labels, keys, times
        One each; times in milliseconds since 1970.
    before
        How many events of the batch come before each.
    """

    labels: Sequence[Any]
    keys: Sequence[Any]
    times: Sequence[int] | NDArray[np.int64]
    before: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def places(self) -> NDArray[np.int64]:
        """Where each stands among events and labels."""
        return np.arange(len(self)) + self.before

    def places_of_events(self, n: int) -> NDArray[np.int64]:
        """Where each of the n events stands among events and labels.

        Parameters
        ----------
        n
            How many events the batch has.
        """
        return np.arange(n) + np.searchsorted(self.before, np.arange(n), "right")

    def part(self, start: int, end: int, *, n: int) -> LateLabels:
        """The labels from `start` to before `end`, among the events of the batch from number n on."""
        here = slice(start, end)
        return LateLabels(self.labels[here], self.keys[here], self.times[here], self.before[here] - n)


@dataclass(slots=True)
class Batch:
    """Consecutive events of a stream.

    Parameters
    ----------
    features
        Rows as dicts, a table of columns, or sparse rows.
    labels
        One per event, None where unknown. Labels that Python holds equal (True, 1 and 1.0) are one class.
    origins
        Where each event came from.
    position
        The source's position after this batch.
    rejected
        What could not be read since the batch before, in order.
    raw
        The raw text of each event, where the source has it.
    keys, times, headers
        One per event, where the source has them; times in milliseconds since 1970.
    late
        Labels that come between the events, where they come by themselves.
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
        """The features as one dict an event, missing values left out."""
        return rows_of(self.features, len(self))

    def part(self, start: int, end: int) -> Batch:
        """The events from `start` to before `end`, without what was rejected.

        Parameters
        ----------
        start, end
            Numbers of events within the batch, from 0.
        """
        return self._picked(slice(start, end))

    def _picked(self, rows: Rows) -> Batch:
        """Some events, without what was rejected."""
        features: Features
        if isinstance(self.features, SparseRows):
            features = self.features.picked(rows)
        elif isinstance(self.features, list):
            features = _picked(self.features, rows)
        else:
            features = {name: column[rows] for name, column in self.features.items()}
        origins = Origins(self.origins.shared, {name: _picked(c, rows) for name, c in self.origins.columns.items()})
        others = [None if s is None else _picked(s, rows) for s in (self.raw, self.keys, self.times, self.headers)]
        return Batch(features, _picked(self.labels, rows), origins, self.position, [], *others)

    def reaches_beyond(self, n: int) -> bool:
        """Whether anything, an event or a label that comes by itself, follows the first n events.

        Parameters
        ----------
        n
            How many.
        """
        return len(self) > n or (len(self) == n and self.late is not None and bool((self.late.before == n).any()))

    def cut(self, n: int) -> tuple[Batch, Batch]:
        """The first n events, with what was rejected; and all that comes after the last of them.

        Parameters
        ----------
        n
            How many, at most those of the batch.
        """
        head, tail = self.part(0, n), self.part(n, len(self))
        head.rejected = self.rejected
        if self.late is not None:
            here = int(np.searchsorted(self.late.before, n))
            head.late, tail.late = self.late.part(0, here, n=0), self.late.part(here, len(self.late), n=n)
        return head, tail

    def without(self, bad: Mapping[int, str]) -> Batch:
        """This batch without some events, which join `rejected`.

        Parameters
        ----------
        bad
            Why, by the number of the event within the batch, from 0.
        """
        if not bad:
            return self
        keep = [i for i in range(len(self)) if i not in bad]
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


@runtime_checkable
class Source(Protocol):
    """A stream of events.

    Iterating yields batches in order. A live source (followed file, pipe, topic) yields an empty batch at least once a
    second while nothing arrives, so that its reader can stop. What is wrong with the configuration (a missing file, an
    absent label column) raises ConnectorError from the constructor or from `seek`, before any event is handed out;
    what is wrong with an event puts it among `Batch.rejected`.
    """

    name: str
    """The URL or path, without secrets, for messages."""

    @property
    def identity(self) -> str:
        """What must be the same for a run to go on: the name, unless that says more, such as the hosts to ask."""
        return self.name

    @property
    def position(self) -> Position:
        """Up to where events have been handed out; a small JSON object for `seek`."""

    @property
    def fraction(self) -> float | None:
        """The share of the stream handed out so far, 0 to 1; None where the end is not known."""

    def seek(self, position: Position) -> None:
        """Resume so that the next event is the first after `position`.

        Parameters
        ----------
        position
            What `Source.position`, or that of a batch, was before.

        Raises
        ------
        ConnectorError
            Where the stream cannot be read from there, as a pipe cannot.
        """

    def __iter__(self) -> Iterator[Batch]: ...

    def close(self) -> None:
        """Let go of files and connections; iterating is over."""


@runtime_checkable
class Sink(Protocol):
    """Where results go: predictions and rejected events alike, as tables of equally long columns."""

    name: str

    @property
    def identity(self) -> str:
        """What must be the same for a run to go on, as of a source."""
        return self.name

    can_rewind: bool
    """Whether `rewind` works; standard output cannot, and is refused together with a checkpoint."""

    def write(self, table: Results) -> None:
        """Take rows.

        Parameters
        ----------
        table
            Equally long columns by name; the first call fixes the names.

        Raises
        ------
        ConnectorError
            Where they cannot be written, or the names are others.
        """

    def flush(self) -> None:
        """Make all that was written durable (on disk after fsync, or committed)."""

    @property
    def position(self) -> Position:
        """What is durable."""

    def rewind(self, position: Position) -> None:
        """Drop whatever was written after `position`.

        Parameters
        ----------
        position
            What `Sink.position` was before.

        Raises
        ------
        ConnectorError
            Where that cannot be, as what was there is gone.
        """

    def close(self) -> None:
        """Make durable what was written, and let go of files and connections."""


@runtime_checkable
class Acknowledged(Protocol):
    """A source that is told which of its positions have been kept."""

    def acknowledge(self, position: Position) -> None:
        """A checkpoint holds this position."""


@runtime_checkable
class Lagging(Protocol):
    """A live source that knows how far it is behind."""

    stalls: int
    """How often it got no event for long although there were some."""

    @property
    def lag(self) -> Mapping[Any, int]:
        """How many events each of its parts is behind, as far as known."""


@runtime_checkable
class Noticing(Protocol):
    """Something that notices what is strange about its events."""

    @property
    def notices(self) -> Sequence[str]:
        """What it has warned of."""


@runtime_checkable
class Declaring(Protocol):
    """A source that declares which of its features are categories."""

    @property
    def categories(self) -> Sequence[str]:
        """Their names, as far as its header was read."""


@runtime_checkable
class Ending(Protocol):
    """A live source that knows whether it has reached what is its end for now."""

    @property
    def is_at_end(self) -> bool:
        """Whether nothing was to come when it was last looked at."""


@runtime_checkable
class Replacing(Protocol):
    """A sink that may take the place of what is there."""

    def check_replaced(self) -> None:
        """Refuse to replace what does not look like results.

        Raises
        ------
        ConnectorError
            Where there is something else.
        """


@runtime_checkable
class Advancing(Protocol):
    """A sink that makes results durable by itself, between two batches, without being waited for."""

    def advance(self) -> None:
        """Begin to make durable what has waited for long enough."""

    def hurry(self) -> None:
        """The run is to end: raise ConnectorError soon rather than wait for what may never come."""


def rows_of(features: Features, n: int) -> list[dict[Any, Any]]:
    """The features of n events as one dict an event, missing values left out."""
    if isinstance(features, list):
        return features
    if isinstance(features, SparseRows):
        names, values, starts = features.indices.tolist(), features.values.tolist(), features.indptr.tolist()
        return [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in pairwise(starts)]
    return _table_rows(features, n)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _picked(sequence: Any, rows: Rows) -> Any:
    if isinstance(rows, slice) or isinstance(sequence, np.ndarray):
        return sequence[rows]
    if isinstance(sequence, Texts | Coded):
        return sequence.take(np.array(rows, np.int64))
    return [sequence[i] for i in rows]


def _table_rows(table: Table, n: int) -> list[dict[Any, Any]]:
    if not table:
        return [{} for _ in range(n)]
    names = list(table)
    columns = [column.tolist() for column in table.values()]
    if any(
        None in c or (t.dtype.kind == "f" and np.isnan(t).any()) for c, t in zip(columns, table.values(), strict=True)
    ):
        return [
            {name: v for name, v in zip(names, row, strict=True) if v is not None and v == v}
            for row in zip(*columns, strict=True)
        ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
