"""Merge a stream of events with a stream of their late labels by time."""

from __future__ import annotations

import bisect
import contextlib
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import CategoricalColumn, StringColumn
from connectors.errors import ConnectorError
from connectors.events import Batch, LateLabels, Origins, Position
from connectors.notices import Notices
from connectors.progress import BatchProgress, place_of
from connectors.streams import Source

_SOUND = frozenset({str, int, bool})  # types whose values are never missing
# Records are reported as unsorted if they are earlier than those before by more than this share of their time range in
# the mean. Sensors that overlap a little are not. Only the first batch of a file counts, so that resumed runs agree.
_MOST_DISORDER, _FEWEST = 0.1, 100


class JoinedSource(Source):
    """Merge events and labels by time.

    The record with the smaller time comes first. At equal times the event comes first, so that no prediction uses a
    label of that moment. Each stream keeps its order: out-of-order records count with the latest time seen so far in
    their stream.

    The source waits for a stream that has more data. It does not wait for a live stream at its end, and merges later
    records when they arrive. The position includes the progress of both streams.

    Events and labels need keys and times; labels also need a label. Records without them are rejected.

    Parameters
    ----------
    events, labels
        The two streams. The features of labels are ignored.

    Examples
    --------
    >>> import os, tempfile
    >>> from connectors import open_source
    >>> folder = tempfile.mkdtemp()
    >>> def write(name, text):
    ...     with open(os.path.join(folder, name), "w") as file:
    ...         _ = file.write(text)
    ...     return os.path.join(folder, name)
    >>> events = write("events.csv", "id,t,x\\na,1,0.5\\nb,2,0.7\\nc,9,0.9\\n")
    >>> labels = write("labels.csv", "id,t,y\\nb,3,no\\na,12,yes\\n")
    >>> joined = JoinedSource(
    ...     open_source(events, key="id", time="t"), open_source(labels, key="id", time="t", label="y")
    ... )
    >>> for batch in joined:
    ...     print(batch.keys, batch.late.keys, batch.late.labels, batch.late.before)
    ['a', 'b', 'c'] ['b'] ['no'] [2]
    [] ['a'] ['yes'] [0]
    """

    def __init__(self, events: Source, labels: Source) -> None:
        self.events, self.labels = events, labels
        self.name, self.is_live = events.name, events.is_live or labels.is_live
        self._most: float = math.inf
        self._sides = (_Side(events), _Side(labels, labelled=True))

    @property
    def identity(self) -> str:
        """Identity of both streams."""
        return f"{self.events.identity} with labels of {self.labels.identity}"

    @property
    def position(self) -> Position:
        """Position and latest time of each stream, also within a batch."""
        return {name: side.position for name, side in zip(("events", "labels"), self._sides, strict=True)}

    @property
    def fraction(self) -> float | None:
        """Share of the events returned so far."""
        return self.events.fraction

    @property
    def is_open_ended(self) -> bool:
        """Whether events or labels may still be added."""
        return self.events.is_open_ended or self.labels.is_open_ended

    def limit(self, n_events: float) -> bool:
        """Set the greatest number of further events.

        Iteration ends after the last one and the labels before the next event.

        Parameters
        ----------
        n_events
            Number of events.
        """
        self._most = n_events
        return True

    @property
    def notices(self) -> list[str]:
        """Warnings of both streams."""
        own = (text for side in self._sides for text in side.notices.texts)
        return [*self.events.notices, *self.labels.notices, *own]

    @property
    def categories(self) -> Sequence[str]:
        """Categorical features of the events."""
        return self.events.categories

    @property
    def stalls(self) -> int:  # type: ignore[override]
        """How often a stream returned nothing for a long time although it had data."""
        return self.events.stalls + self.labels.stalls

    @property
    def lag(self) -> Mapping[Any, int] | None:
        """Number of events and labels that each part lags behind."""
        events, labels = self.events.lag, self.labels.lag
        if events is None and labels is None:
            return None
        return {**(events or {}), **{f"labels {part}": n for part, n in (labels or {}).items()}}

    def seek(self, position: Position) -> None:
        """Resume after `position`."""
        try:
            for side, at in zip(self._sides, (position["events"], position["labels"]), strict=True):
                side.seek(at)
        except (KeyError, TypeError) as error:
            what = f"not a position of events and their labels: {position!r}"
            raise ConnectorError(f"{self.name}: {what}", "position") from error

    def acknowledge(self, position: Position) -> None:
        """Report that a checkpoint contains this position."""
        self.events.acknowledge(position["events"]["at"])
        self.labels.acknowledge(position["labels"]["at"])

    def __iter__(self) -> Iterator[Batch]:
        events, labels = self._sides
        while True:
            for side in self._sides:
                side.fill()
            if events.ended and labels.ended and not len(events) + len(labels):
                return
            batch = self._next()
            is_nothing = not (len(batch) or batch.late or batch.rejected)
            if self._most <= 0 and is_nothing and all(len(side) or not side.is_awaited for side in self._sides):
                return
            yield batch

    def _next(self) -> Batch:
        """Return the records of both streams whose order is final."""
        events, labels = self._sides
        n = int(np.searchsorted(events.times, labels.known, "right"))
        m = int(np.searchsorted(labels.times, events.known, "left"))
        if n > self._most:
            n = int(self._most)
            m = min(m, int(np.searchsorted(labels.times, events.times[n], "left")))
        before = np.searchsorted(events.times[:n], labels.times[:m], "right")
        taken, of_labels = events.take(n), labels.take(m)
        keys = [] if of_labels.keys is None else of_labels.keys
        times = [] if of_labels.times is None else of_labels.times
        late = LateLabels(of_labels.labels, keys, times, before.astype(np.int64))
        _place(taken, late.places_of_events(n))
        _place(of_labels, late.places)
        return replace(
            taken,
            labels=[None] * n,
            keys=[] if taken.keys is None else taken.keys,
            times=[] if taken.times is None else taken.times,
            position=self.position,
            rejected=sorted(taken.rejected + of_labels.rejected, key=lambda one: one.place),
            late=late,
        )

    def close(self) -> None:
        """Close both streams."""
        self.events.close()
        self.labels.close()


class _Side:
    """One of the two streams: its current batch and how much of it was taken.

    Parameters
    ----------
    source
        The stream.
    labelled
        Whether each record needs a label.
    """

    def __init__(self, source: Source, *, labelled: bool = False) -> None:
        self._source, self._labelled, self.notices = source, labelled, Notices()
        self._begin(BatchProgress(source.position), None)

    def _begin(self, progress: BatchProgress, clock: int | None) -> None:
        """Start at a position of the stream."""
        self._progress = self._after = self._at = progress  # before and after the current batch, and now
        self._clock = clock
        self._batches: Iterator[Batch] | None = None
        self.ended = self._is_idle = False
        self._take_in(None)

    def __len__(self) -> int:
        return len(self._all_times) - self._taken

    @property
    def times(self) -> NDArray[np.int64]:
        """Running maximum of the times of the remaining records."""
        return self._all_times[self._taken :]

    @property
    def is_awaited(self) -> bool:
        """Whether the stream may still have records that precede those of the other."""
        return not (self.ended or self._is_idle)

    @property
    def known(self) -> float | np.int64:
        """Time up to which all records that the other stream waits for have arrived."""
        if len(self):
            last: np.int64 = self._all_times[-1]
            return last
        return -math.inf if self.is_awaited else math.inf

    @property
    def position(self) -> Position:
        """Position in the stream and latest time."""
        return self._at.state() | {"clock": self._clock}

    def seek(self, position: Position) -> None:
        """Resume at a position."""
        if not (position["clock"] is None or type(position["clock"]) is int):
            raise TypeError("the clock is not a time")
        progress = BatchProgress.from_state(position)
        self._source.seek(progress.at)
        self._begin(progress, position["clock"])

    def fill(self) -> None:
        """Fetch a batch if the current one is used up."""
        if len(self) or self.ended:
            return
        self._progress = self._after
        if self._batches is None:
            self._batches = iter(self._source)
        batch = next(self._batches, None)
        if batch is None:
            self.ended = True
            return
        at_end = self._source.is_at_end
        self._is_idle = not len(batch) and not batch.rejected and at_end
        rest, self._after = self._progress.rest(batch)
        self._take_in(rest.without(self._unjoinable(rest)))

    def _take_in(self, batch: Batch | None) -> None:
        self._batch, self._taken = batch, 0
        self._reported: set[int] = set()
        times = np.asarray([] if batch is None or batch.times is None else batch.times, np.int64)
        if self._clock is not None:
            times = np.maximum(times, self._clock)
        self._all_times = np.maximum.accumulate(times)
        if self._clock is None and len(times) >= _FEWEST and not self._source.is_live:
            behind = np.mean(self._all_times.astype(np.float64) - times)
            if behind > _MOST_DISORDER * (float(times.max()) - float(times.min())):
                what = "the times are not in order, but events and labels are merged by time: sort the records by time"
                self.notices.warn(f"{self._source.name}: {what}")

    def _unjoinable(self, batch: Batch) -> dict[int, str]:
        """Return why records cannot be joined, by row."""
        keys, bad = [None] * len(batch) if batch.keys is None else batch.keys, {}
        if _are_sound(keys) and (not self._labelled or _are_sound(batch.labels)):
            return {}
        for i, (key, label) in enumerate(zip(keys, batch.labels, strict=True)):
            if key is None or not isinstance(key, Hashable):
                bad[i] = "the key is missing" if key is None else f"the key is a {type(key).__name__}, not one value"
            elif self._labelled and (label is None or label != label):
                bad[i] = "the label is missing"
            elif self._labelled and not isinstance(label, Hashable):
                bad[i] = f"the label is a {type(label).__name__}, not one value"
        return bad

    def take(self, n: int) -> Batch:
        """Take the next n records and the records rejected up to there."""
        batch = self._batch
        if batch is None:
            return Batch([], [], Origins({}, {}), self._at.at)
        end = self._taken + n
        part = batch.part(self._taken, end)
        head, self._at = (batch, self._after) if end == len(batch) else self._progress.first(batch, end)
        part.rejected = [one for one in head.rejected if id(one) not in self._reported]
        self._reported |= {id(one) for one in part.rejected}
        if n:
            self._clock = int(self._all_times[end - 1])
        self._taken = end
        return part


def _place(batch: Batch, places: NDArray[np.int64]) -> None:
    """Sort rejected records after the preceding record of their stream and part."""
    if not batch.rejected:
        return
    numbers: dict[tuple[Any, ...], list[tuple[float, int]]] = {}
    for i in range(len(batch)):
        part, number = place_of(batch.origins, batch.origins[i])
        numbers.setdefault(part, []).append((number, int(places[i])))
    for one in batch.rejected:
        part, number = place_of(batch.origins, one.origin)
        before = numbers.get(part, [])
        at = bisect.bisect_left(before, number, key=lambda pair: pair[0])
        one.place = before[at - 1][1] + 0.5 if at else -0.5
    batch.rejected.sort(key=lambda one: (one.place, place_of(batch.origins, one.origin)[1]))


def _are_sound(values: Sequence[Any]) -> bool:
    """Return whether all values are hashable and not missing."""
    if isinstance(values, StringColumn):
        return True
    with contextlib.suppress(TypeError):  # unhashable values are nested
        distinct = {*(values.values if isinstance(values, CategoricalColumn) else values)}
        return set(map(type, distinct)) <= _SOUND or (
            None not in distinct and all(value == value for value in distinct)
        )
    return False
