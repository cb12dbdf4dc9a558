"""Source that reads the next batch in a thread while the caller uses the last."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from connectors.events import Batch, Position
from connectors.streams import Source

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

LEAST_EVENTS = 256
"""To hand a batch over takes some 30 us, as long as to read so many events: smaller ones are not read ahead."""


class PrefetchSource(Source):
    """Base class of sources that prefetch one batch in a thread if `is_apart` is true.

    Prefetching is invisible to the caller. `position` and `fraction` refer to the last batch that was returned. An
    error is raised after the batches before it. A prefetched batch that was not returned is the first batch of the next
    iteration.
    """

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
    def _go_to(self, position: Position) -> None:
        """Continue reading at a position."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close all files."""

    def __iter__(self) -> Iterator[Batch]:
        while (batch := self._next_batch()) is not None:
            if self.is_apart and len(batch) >= LEAST_EVENTS:
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
        self._forget()
        self._reading = None
        self._go_to(position)

    def close(self) -> None:
        """Close the files and stop the thread."""
        self._forget()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._let_go()

    def _forget(self) -> None:
        """Wait for the prefetched batch and discard it."""
        if self._following is not None:
            self._following.exception()
            self._following = None
