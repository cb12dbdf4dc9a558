"""A source that reads its next batch by a thread, while what it handed out last is worked on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from connectors.events import Batch, Position, Source

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

LEAST_EVENTS = 256
"""To hand a batch over takes some 30 us, as long as to read so many events: smaller ones are not read ahead."""


class AheadSource(Source):
    """A source that reads ahead by a batch, wherever that `is_apart` from what others do.

    What it hands out, and what it says of that, is as if it did not: position and fraction are those of the last batch
    handed out, an error comes after the batches before it, and a batch that was read and not handed out is the first of
    the next iteration.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._following: Future[Batch | None] | None = None
        self._reading: Iterator[Batch] | None = None
        self._handed: tuple[Position, float | None] = {}, None

    @property
    def is_apart(self) -> bool:
        """Whether most of reading is done without the interpreter."""
        return True

    @abstractmethod
    def _batches(self) -> Iterator[Batch]:
        """What is left to be read."""

    @property
    @abstractmethod
    def _read_position(self) -> Position:
        """Up to where batches have been read."""

    @property
    @abstractmethod
    def _read_fraction(self) -> float | None:
        """The share of the stream that has been read."""

    @abstractmethod
    def _go_to(self, position: Position) -> None:
        """Read on from a position."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close files."""

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
        """The next batch of what is left, None at its end; all iterators share it, and a seek begins it anew."""
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
        """Up to where batches have been handed out."""
        return self._read_position if self._following is None else self._handed[0]

    @property
    def fraction(self) -> float | None:
        """The share of the stream that has been handed out."""
        return self._read_fraction if self._following is None else self._handed[1]

    def seek(self, position: Position) -> None:
        """Resume so that the next event is the first after `position`."""
        self._forget()
        self._reading = None
        self._go_to(position)

    def close(self) -> None:
        """Let go of files, and of the thread."""
        self._forget()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._let_go()

    def _forget(self) -> None:
        """Wait for what is being read, and let it be."""
        if self._following is not None:
            self._following.exception()
            self._following = None
