"""Base classes of sources and sinks.

Sources return events in batches, each with a resume position and the rejected records. Sinks accept tables of results
and can discard what was written after a given position. This module does not depend on models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.addresses import printable
from connectors.errors import ConnectorError
from connectors.events import Batch, Position, Results

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

LEAST_EVENTS = 256
"""Fewest events of a batch to prefetch.

Passing a batch to another thread takes about 30 us.
"""


class Source(ABC):
    """Stream of events.

    Iteration yields batches in order. While nothing arrives, a live source (growing file, pipe or topic) yields
    an empty batch at least once per second, so that the reader can stop.

    Configuration errors, such as a missing file or label column, raise ConnectorError in the constructor or in `seek`,
    before any event. Malformed events are added to `Batch.rejected`.

    Attributes
    ----------
    name
        The URL or path, without secrets, for messages.
    is_live
        Whether brokers serve the stream.
    stalls
        How often no event arrived for a long time although there was a lag.
    is_labelled
        Whether events have labels without a label option.
    """

    name: str
    is_labelled: bool = False
    is_live: bool = False
    stalls: int = 0

    @property
    def identity(self) -> str:
        """Identity that a resumed run must match; the name by default."""
        return self.name

    @property
    @abstractmethod
    def position(self) -> Position:
        """Position after the last returned event, as a JSON object for `seek`."""

    @property
    def fraction(self) -> float | None:
        """Fraction of the stream returned so far, None if the end is unknown."""
        return None

    @property
    def is_open_ended(self) -> bool:
        """Whether events may still be added to the stream."""
        return self.is_live or self.fraction is None

    def limit(self, n_events: float) -> bool:
        """Set the greatest number of further events; return whether to read on.

        Parameters
        ----------
        n_events
            Number of events that the reader still takes. The next batch may have more.
        """
        return n_events > 0

    @abstractmethod
    def seek(self, position: Position) -> None:
        """Resume so that the next event is the first after `position`.

        Parameters
        ----------
        position
            Earlier value of `Source.position` or `Batch.position`.

        Raises
        ------
        ConnectorError
            If the stream cannot resume there, for example a pipe.
        """

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]: ...

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; iteration is no longer possible."""

    def acknowledge(self, position: Position) -> None:  # noqa: B027 - optional
        """Notify the source that a checkpoint contains this position.

        Parameters
        ----------
        position
            Position in the checkpoint.
        """

    @property
    def lag(self) -> Mapping[Any, int] | None:
        """Number of events that each partition is behind; None unless the source is live.

        Contains only partitions whose lag is known.
        """
        return None

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return ()

    @property
    def categories(self) -> Sequence[str]:
        """Names of declared categorical features, as far as the header was read."""
        return ()

    @property
    def is_at_end(self) -> bool:
        """Whether no events were available at the last check."""
        return True


class Sink(ABC):
    """Output for tables of predictions or rejected records.

    Attributes
    ----------
    name
        The URL or path, without secrets, for messages.
    can_rewind
        Whether `rewind` works. Standard output cannot be rewound and is rejected with a checkpoint.
    is_live
        Whether results become durable in the background between batches, by `advance`.
    reject
        Function that receives the reason and the JSON text of a row that is too large; without it, `write` raises an
        error.
    """

    name: str
    can_rewind: bool
    is_live: bool = False
    reject: Callable[[str, str], None] | None = None

    @property
    def identity(self) -> str:
        """Identity that a resumed run must match."""
        return self.name

    @abstractmethod
    def write(self, table: Results) -> None:
        """Write rows.

        Parameters
        ----------
        table
            Columns of equal length by name. The first call fixes the names.

        Raises
        ------
        ConnectorError
            If they cannot be written, or the names differ.
        """

    def write_at(self, table: Results, times: Sequence[int] | NDArray[np.int64]) -> None:
        """Write rows of events with their times. By default the times are not used.

        Parameters
        ----------
        table
            As for `write`.
        times
            Time of each row in milliseconds since 1970.
        """
        self.write(table)

    @abstractmethod
    def flush(self) -> None:
        """Make all written rows durable (on disk after fsync, or committed)."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """Position up to which results are durable."""

    def rewind(self, position: Position) -> None:
        """Discard everything written after `position`.

        The default raises an error that the sink cannot do so.

        Parameters
        ----------
        position
            Earlier value of `Sink.position`.

        Raises
        ------
        ConnectorError
            If the earlier content no longer exists.
        """
        raise ConnectorError(f"{self.name}: cannot undo writes: write to a local file, or Parquet", "not seekable")

    @abstractmethod
    def close(self) -> None:
        """Flush, and close files and connections."""

    def check_replaced(self) -> None:  # noqa: B027 - optional
        """Raise an error if the sink would replace something other than results.

        Raises
        ------
        ConnectorError
            If it would.
        """

    def advance(self) -> None:  # noqa: B027 - optional
        """Start making pending results durable if they have waited long enough."""

    def hurry(self) -> None:  # noqa: B027 - optional
        """Fail soon instead of waiting for brokers, because the run is ending."""


class PrefetchSource(Source):
    """Base class of sources that prefetch a batch in a thread if `is_apart` is true.

    Prefetching is invisible to the caller. `position` and `fraction` refer to the last batch that was returned. An
    error is raised after the batches before it. A prefetched batch that was not returned is the first batch of the next
    iteration.

    Attributes
    ----------
    prefetches
        Whether to prefetch at all. False for a source within another one that prefetches.
    """

    prefetches = True

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._following: Future[Batch | None] | None = None
        self._reading: Iterator[Batch] | None = None
        self._handed: tuple[Position, float | None] = {}, None

    @property
    def is_apart(self) -> bool:
        """Whether reading mostly runs without the GIL."""
        return True

    @abstractmethod
    def _batches(self) -> Iterator[Batch]:
        """Iterate over the remaining batches."""

    @property
    @abstractmethod
    def _read_position(self) -> Position:
        """Position after the last batch read."""

    @property
    @abstractmethod
    def _read_fraction(self) -> float | None:
        """Fraction of the stream read so far."""

    @abstractmethod
    def _seek(self, position: Position) -> None:
        """Continue reading at a position."""

    @abstractmethod
    def _close_files(self) -> None:
        """Close all files."""

    def __iter__(self) -> Iterator[Batch]:
        while (batch := self._next_batch()) is not None:
            if self.prefetches and self.is_apart and len(batch) >= LEAST_EVENTS:
                self._read_ahead()
            yield batch

    def _next_batch(self) -> Batch | None:
        if self._following is None:
            return self._read()
        following, self._following = self._following, None
        return following.result()

    def _read(self) -> Batch | None:
        """Read the next batch, None at the end. All iterators share one reader."""
        if self._reading is None:
            self._reading = self._batches()
        try:
            return next(self._reading, None)
        except BaseException:
            self._reading = None
            raise

    def _read_ahead(self) -> None:
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1, thread_name_prefix="streamsvm-reader")
        self._handed = self._read_position, self._read_fraction
        self._following = self._thread.submit(self._read)

    @property
    def position(self) -> Position:
        """Position after the last batch returned."""
        return self._read_position if self._following is None else self._handed[0]

    @property
    def fraction(self) -> float | None:
        """Fraction of the stream returned so far."""
        return self._read_fraction if self._following is None else self._handed[1]

    def seek(self, position: Position) -> None:
        """Move to a position, so that the next event is the first one after it."""
        self._discard_prefetched()
        self._reading = None
        try:
            self._seek(position)
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectorError(f"{self.name}: not a position of this source: {position!r}", "position") from error

    def next_file(self, path: str) -> None:
        """Continue with the start of another file of the stream, with the types so far.

        Parameters
        ----------
        path
            Path of the file.

        Raises
        ------
        ConnectorError
            If the file does not suit, or the source reads one file only.
        """
        self._discard_prefetched()
        self._reading = None
        self._close_files()
        self.name = printable(path)
        self._open_next(path)

    def _open_next(self, path: str) -> None:
        raise ConnectorError(f"{self.name}: such files are read one at a time: give one SOURCE", "several")

    def recall(self, position: Position) -> None:
        """Restore the types of columns at a position in another file, without moving.

        Parameters
        ----------
        position
            Position in a file that precedes the next one.
        """

    def close(self) -> None:
        """Close the files and stop the thread."""
        self._discard_prefetched()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._close_files()

    def _discard_prefetched(self) -> None:
        """Wait for the prefetched batch and discard it."""
        if self._following is not None:
            self._following.exception()
            self._following = None
