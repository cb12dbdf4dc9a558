"""Base classes of sources and sinks.

Sources return events in batches, each with a resume position and the rejected records. Sinks accept tables of results
and can discard what was written after a given position. This module does not depend on models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from connectors.events import Batch, Position, Results


class Source(ABC):
    """Stream of events.

    Iteration yields batches in order. A live source (growing file, pipe or topic) yields an empty batch at least once
    per second while nothing arrives, so that the reader can stop. Configuration errors, such as a missing file or label
    column, raise ConnectorError in the constructor or in `seek`, before any event. Malformed events are added to
    `Batch.rejected`.

    Attributes
    ----------
    name
        The URL or path, without secrets, for messages.
    is_live
        Whether brokers serve the stream.
    stalls
        How often no event arrived for a long time although there was a lag.
    """

    name: str
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
        """Number of events that each part of the stream is behind, as far as known; None unless it is live."""
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

    @abstractmethod
    def flush(self) -> None:
        """Make all written rows durable (on disk after fsync, or committed)."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """Position up to which results are durable."""

    @abstractmethod
    def rewind(self, position: Position) -> None:
        """Discard everything written after `position`.

        Parameters
        ----------
        position
            Earlier value of `Sink.position`.

        Raises
        ------
        ConnectorError
            If the earlier content no longer exists.
        """

    @abstractmethod
    def close(self) -> None:
        """Flush, and close files and connections."""

    def check_replaced(self) -> None:  # noqa: B027 - optional
        """Raise an error if the sink would replace a file that does not look like results.

        Raises
        ------
        ConnectorError
            If it would.
        """

    def advance(self) -> None:  # noqa: B027 - optional
        """Start making pending results durable if they have waited long enough."""

    def hurry(self) -> None:  # noqa: B027 - optional
        """Raise ConnectorError soon instead of waiting for brokers, because the run is ending."""
