"""Progress of a stream, also within a batch; sources resume only between batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from connectors.events import Batch, Origins, Position


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Progress of a stream.

    Parameters
    ----------
    at
        Position of the source before the first batch that is not complete.
    count
        Number of events taken after that position, including rejected ones.
    ends
        Number of the first event not taken, for each part of the stream with its own count, such as a partition.
    """

    at: Position
    count: int = 0
    ends: Mapping[tuple[Any, ...], float] = field(default_factory=dict)

    def take(self, batch: Batch, most: float) -> tuple[Batch, BatchProgress]:
        """Return the next events of a stream, and the progress after them.

        Parameters
        ----------
        batch
            Batch after `at`.
        most
            Greatest number of events.
        """
        rest, after = self.rest(batch)
        return (rest, after) if len(rest) <= most else self.first(rest, int(most))

    def rest(self, batch: Batch) -> tuple[Batch, BatchProgress]:
        """Return the rest of the next batch, and the progress after it.

        Parameters
        ----------
        batch
            Batch after `at`.
        """
        if not self.count:
            return batch, BatchProgress(batch.position)
        done = [i for i in range(len(batch)) if _precedes(batch.origins, batch.origins[i], self.ends, -math.inf)]
        rejected = [one for one in batch.rejected if not _precedes(batch.origins, one.origin, self.ends, -math.inf)]
        count = self.count - len(done) - len(batch.rejected) + len(rejected)
        rest = replace(batch.without(dict.fromkeys(done, "")), rejected=rejected)
        # Removed events, as by retention or compaction, remain in the count. Numbers ascend within a part.
        passed = _last(list(rest.origins.columns.values()))
        ends = {part: end for part, end in self.ends.items() if part not in passed}
        return rest, BatchProgress(batch.position, count, ends) if count > 0 and ends else BatchProgress(batch.position)

    def first(self, batch: Batch, n: int) -> tuple[Batch, BatchProgress]:
        """Return the first n events of a rest, and the progress after them.

        Parameters
        ----------
        batch
            Result of `rest`.
        n
            Number of events, fewer than it has.
        """
        columns = list(batch.origins.columns.values())
        ends = _last([column[n:][::-1] for column in columns])
        rejected = [one for one in batch.rejected if _precedes(batch.origins, one.origin, ends, math.inf)]
        # The numbers of a part ascend, so only the last of each is needed.
        last = _last([column[:n] for column in columns])
        for part, number in (*last.items(), *(place_of(batch.origins, one.origin) for one in rejected)):
            ends[part] = max(ends.get(part, -math.inf), number + 1)
        head = replace(batch.part(0, n), rejected=rejected)
        return head, BatchProgress(self.at, self.count + n + len(rejected), {**self.ends, **ends})

    def state(self) -> dict[str, Any]:
        """Return the progress as a small JSON object."""
        return {"at": self.at, "count": self.count, "ends": [[list(part), end] for part, end in self.ends.items()]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BatchProgress:
        """Restore progress from its `state`.

        Raises
        ------
        KeyError, TypeError, ValueError
            If it is invalid.
        """
        count, ends = state["count"], {tuple(part): end for part, end in state["ends"]}
        if any(type(number) not in (int, float) for number in (count, *ends.values())):
            raise TypeError(f"positions of events that are not numbers: {count!r}, {ends!r}")
        return cls(state["at"], int(count), ends)


def _last(columns: Sequence[Any]) -> dict[tuple[Any, ...], float]:
    """Return the last number of each part."""
    if len(columns) == 1:
        return {(): int(columns[0][-1])} if len(columns[0]) else {}
    *parts, numbers = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns)
    return dict(zip(zip(*parts, strict=True), numbers, strict=True))


def place_of(origins: Origins, origin: Mapping[str, Any]) -> tuple[tuple[Any, ...], float]:
    """Return the part of the stream of an event, and its number there."""
    *part, number = origins.columns
    return tuple(origin[name] for name in part), origin[number]


def _precedes(
    origins: Origins, origin: Mapping[str, Any], ends: Mapping[tuple[Any, ...], float], default: float
) -> bool:
    """Return whether an event precedes the end of its part; parts may have none."""
    part, number = place_of(origins, origin)
    return number < ends.get(part, default)
