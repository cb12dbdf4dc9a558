"""The events of a window, in chunks that are not changed once they are full.

Events that leave stay in memory until their chunk is rebuilt, so a snapshot is a list of chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED
from streamsvm.refit.window_rows import (
    BYTES_OF_EVENT,
    ROW_ARRAYS,
    Chunk,
    WindowRows,
    joined,
    window_of_state,
    window_state,
)

if TYPE_CHECKING:
    from streamsvm.refit.windows import Window

# The most bytes of a chunk, as a number and as a share of all, and its most events.
CHUNK_BYTES, CHUNK_SHARE, CHUNK_EVENTS = 1 << 18, 16, 1_024
# When memory is full, events leave until the rows take this share of it.
FULL = 7 / 8
# Chunks are rebuilt when they have this many times the events held, and one chunk more.
SURPLUS = 1.5
# The detector restarts after this many errors.
MOST_ERRORS = 1_000_000


class WindowMemory:
    """The events a window holds.

    The contents do not depend on the batch size. Memory is allocated as needed and stays within `max_bytes`, except for
    chunks that only a snapshot uses. If the rows need more, an eighth of the events leaves and is counted.

    Parameters
    ----------
    settings
        The window.

    Attributes
    ----------
    n_taken
        The number of events so far.
    n_dropped_for_memory
        The number of events that left, or did not enter, because of their size.
    """

    def __init__(self, settings: Window) -> None:
        self.settings = settings
        self.n_taken = self.n_dropped_for_memory = 0
        n_bytes = settings.max_bytes - settings.order_bytes
        self._chunk_bytes = min(CHUNK_BYTES, n_bytes // CHUNK_SHARE)
        # Reserve the open chunk, and one that is being merged.
        self._most_bytes = n_bytes - 2 * self._chunk_bytes
        # Bytes of the rows held, and of those that left since the last rebuild.
        self._n_bytes = 0
        self._order = settings.order()
        self._chunks: list[Chunk] = []
        self._n_rows = 0  # in these chunks
        self._open = Chunk.empty(0, 0)
        self._n_open = 0

    def __len__(self) -> int:
        return len(self._order)

    @property
    def n_bytes(self) -> int:
        """The memory allocated; that of Python objects is estimated."""
        rows = sum(chunk.n_bytes for chunk in (*self._chunks, self._open))
        return rows + self.settings.order_bytes * len(self) // self.settings.n

    # Events ------------------------------------------------------------------------------------------------------

    def add(
        self,
        rows: EncodedRows,
        codes: Ints,
        weights: Floats | None = None,
        times: Floats | None = None,
        errors: Floats | None = None,
    ) -> None:
        """Add the events that have a class and a weight, one after another.

        Parameters
        ----------
        rows
            n rows.
        codes
            The class of each, negative for none.
        weights
            None for 1 each.
        times
            Seconds, NaN for none; None for none at all.
        errors
            For windows with a detector: 1 for a wrong prediction, 0 for a right one, NaN for none; None for none at
            all.
        """
        none = np.full(len(rows), np.nan)
        weights = np.ones(len(rows)) if weights is None else weights
        times = none if times is None else np.where(np.isfinite(times), times, np.nan)
        chosen = (codes >= 0) & (weights > 0.0) & (weights < math.inf)
        numbers = self.n_taken - 1 + np.cumsum(chosen)
        chunk = Chunk.of(rows, codes, weights, times, numbers)
        self._take(chunk if chosen.all() else chunk.chosen(chosen), (none if errors is None else errors)[chosen])

    def _take(self, chunk: Chunk, errors: Floats) -> None:
        """Add events in parts."""
        self.n_taken += chunk.n_events
        if (width := chunk.width) is not None:
            self._fill(chunk, width)
            return
        self._close()
        ends = np.concatenate([[0], np.cumsum(chunk.bytes_of_rows)])
        at = 0
        while at < chunk.n_events:
            n_bytes = int(ends[at + 1] - ends[at])
            if self._make_room(n_bytes, int(chunk.codes[at])):
                most = ends[at] + max(min(self._chunk_bytes, self._most_bytes - self._n_bytes), n_bytes)
                end = min(int(np.searchsorted(ends, most, side="right")) - 1, at + CHUNK_EVENTS)
                part = chunk.part(at, end)
                self._push(joined([part]))
                self._n_bytes += int(ends[end] - ends[at])
                self._order.enter_all(part.numbers, part.codes, part.times)
                self._tidy()
                at = end
            else:
                at += 1

    def _fill(self, chunk: Chunk, width: int) -> None:
        """Write events with values in the first columns to the open chunk, and to new ones."""
        n_bytes, at = BYTES_OF_EVENT + 8 * width, 0
        while at < chunk.n_events:
            if not self._make_room(n_bytes, int(chunk.codes[at])):
                at += 1
                continue
            opened, k = self._opened(width, n_bytes)
            n = min(chunk.n_events - at, opened.n_events - k, (self._most_bytes - self._n_bytes) // n_bytes)
            opened.values[width * k : width * (k + n)] = chunk.values[width * at : width * (at + n)]
            for mine, theirs in zip(opened[4:], chunk[4:], strict=True):  # classes, weights, times, numbers
                mine[k : k + n] = theirs[at : at + n]
            self._n_open = k + n
            self._n_bytes += n * n_bytes
            own = slice(at, at + n)
            self._order.enter_all(chunk.numbers[own], chunk.codes[own], chunk.times[own])
            at += n

    def _opened(self, width: int, n_bytes: int) -> tuple[Chunk, int]:
        """The open chunk with room for an event of this width, and its number of events."""
        opened = self._open
        if self._n_open == len(opened.codes) or len(opened.values) != width * len(opened.codes):
            self._close()
            self._open = Chunk.empty(max(min(self._chunk_bytes // n_bytes, CHUNK_EVENTS), 1), width)
            self._tidy()
        return self._open, self._n_open

    def add_one(self, row: Floats, code: int, time: float, error: float) -> None:
        """Add an event with values in the first columns."""
        n = len(row)
        n_bytes = BYTES_OF_EVENT + 8 * n
        number, self.n_taken = self.n_taken, self.n_taken + 1
        if self._n_bytes + n_bytes > self._most_bytes and not self._make_room(n_bytes, code):
            return
        opened, k = self._opened(n, n_bytes)
        opened.values[n * k : n * k + n] = row
        opened.codes[k], opened.numbers[k] = code, number
        opened.times[k] = time if math.isfinite(time) else math.nan
        self._n_open = k + 1
        self._n_bytes += n_bytes
        self._order.enter(number, code, time)

    def _close(self) -> None:
        """Close the open chunk."""
        if self._n_open:
            opened, self._open = self._open, Chunk.empty(0, 0)
            self._push(opened if self._n_open == opened.n_events else joined([opened.part(0, self._n_open)]))
            self._n_open = 0

    def _push(self, chunk: Chunk) -> None:
        """Append a chunk, merged with the previous ones of at most its size."""
        self._n_rows += chunk.n_events
        chunks = self._chunks
        while chunks and self._go_together(chunks[-1], chunk):
            chunk = joined([chunks.pop(), chunk])
        chunks.append(chunk)

    def _go_together(self, last: Chunk, chunk: Chunk) -> bool:
        n, n_bytes = last.n_events + chunk.n_events, last.n_bytes + chunk.n_bytes
        return last.n_events <= chunk.n_events and n <= CHUNK_EVENTS and n_bytes <= self._chunk_bytes

    def _tidy(self) -> None:
        """Rebuild chunks if many events have left."""
        if self._n_rows > SURPLUS * len(self) + CHUNK_EVENTS:
            self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild chunks without the events that have left."""
        self._close()
        self._order.forget()
        chunks, holds = self._chunks[::-1], self._order.holds()
        self._chunks, self._n_rows = [], 0
        while chunks:
            chunk = chunks.pop()
            held = holds(chunk)
            if held.any():
                self._push(chunk if held.all() else chunk.chosen(held))

    def _make_room(self, n_bytes: int, code: int) -> bool:
        """Make room for the row of an event; return whether there is any."""
        if self._n_bytes + n_bytes <= self._most_bytes:
            return True
        most = FULL * self._most_bytes
        if n_bytes > most:
            self.n_dropped_for_memory += 1
            return False
        while True:
            self._rebuild()
            self._n_bytes = sum(chunk.n_bytes for chunk in self._chunks)
            if self._n_bytes + n_bytes <= most:
                return True
            n_leave = math.ceil(len(self) * (1.0 - FULL))
            self.n_dropped_for_memory += n_leave
            for _ in range(n_leave):
                self._order.leave(code)

    def keep_latest(self, n: int) -> None:
        """Remove all but the last n events."""
        self._order.keep_from(self.n_taken - n)

    def held(self) -> Callable[[], WindowRows]:
        """Return a function that copies the events held now, in order of arrival."""
        opened = [self._open.part(0, self._n_open)] if self._n_open else []
        chunks, holds = self._chunks + opened, self._order.holds()
        return lambda: joined([chunk.chosen(holds(chunk)) for chunk in chunks]).window()

    def snapshot(self) -> WindowRows:
        """A copy of the events held, in order of arrival."""
        return self.held()()

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON header and arrays; `restore` continues from them bit for bit."""
        rows, arrays = window_state(self.snapshot())
        order, own_arrays = self._order.state()
        header = {
            "settings": _described(self.settings),
            "n_taken": self.n_taken,
            "n_dropped": self.n_dropped_for_memory,
            "n_bytes": self._n_bytes,
        }
        return header | rows | order, arrays | own_arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the `state` of a window with these settings.

        Raises
        ------
        ArchiveError
            If it is no such state; nothing changes then.
        """
        try:
            fresh = type(self)(self.settings)
            fresh._restore(header, dict(arrays))
        except ArchiveError:
            raise
        except DAMAGED as error:
            raise ArchiveError(f"not the state of a window: {error!r}") from error
        self.__dict__.update(fresh.__dict__)

    def _restore(self, header: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        if header["settings"] != _described(self.settings):
            raise ArchiveError(f"the state of a window {header['settings']}, not {_described(self.settings)}")
        n_taken = _whole(header, "n_taken", 0, int(MOST_EVENTS))
        window = window_of_state(header, arrays)
        own_arrays = {name: array for name, array in arrays.items() if name not in ROW_ARRAYS}
        if len(window) > self.settings.n:
            raise ArchiveError(f"{len(window)} events in a window of {self.settings.n}")
        if len(window) and window.numbers[-1] >= n_taken:
            raise ArchiveError(f"event {window.numbers[-1]} of {n_taken}")
        chunk = Chunk.of(window.rows, window.codes, window.weights, window.times, window.numbers)
        n_bytes = _whole(header, "n_bytes", 0, self._most_bytes)
        if chunk.n_bytes > n_bytes:
            raise ArchiveError(f"the rows take {chunk.n_bytes} bytes, and not {n_bytes}")
        self._order.restore(window.numbers, window.codes, header, own_arrays)
        for start in range(0, len(window), CHUNK_EVENTS):
            self._push(joined([chunk.part(start, min(start + CHUNK_EVENTS, len(window)))]))
        self.n_taken, self._n_bytes = n_taken, n_bytes
        self.n_dropped_for_memory = _whole(header, "n_dropped", 0, int(MOST_EVENTS))

    def __reduce__(self) -> Any:
        return _resumed, (self.settings, *self.state())


class AdaptiveMemory(WindowMemory):
    """The events of an `Adaptive` window, and its detector.

    Archives hold the errors since the last restart of the detector, which gets them again after loading.
    """

    def __init__(self, settings: Window) -> None:
        super().__init__(settings)
        self._renew()

    def _renew(self) -> None:
        from river.drift import ADWIN  # imports `scipy.stats`, which takes a second

        self._detector = ADWIN(delta=self.settings.delta)  # type: ignore[attr-defined, no-untyped-call]
        self._errors, self._is_spent = bytearray(), False

    def _take(self, chunk: Chunk, errors: Floats) -> None:
        at = 0
        for i in np.flatnonzero(~np.isnan(errors)).tolist():
            if self._is_alarmed_by(float(errors[i])):
                super()._take(chunk.part(at, i + 1), errors)
                self.keep_latest(self._detector.width)
                at = i + 1
        super()._take(chunk.part(at, chunk.n_events) if at else chunk, errors)

    def add_one(self, row: Floats, code: int, time: float, error: float) -> None:
        """Add an event with values in the first columns."""
        super().add_one(row, code, time, error)
        if self._is_alarmed_by(error):
            self.keep_latest(self._detector.width)

    def _is_alarmed_by(self, error: float) -> bool:
        """Update the detector; return whether errors have increased."""
        if self._is_spent or len(self._errors) == MOST_ERRORS:
            self._renew()
        self._errors.append(error > 0.0)
        detector = self._detector
        detector.update(error)  # type: ignore[no-untyped-call]
        self._is_spent = detector.drift_detected
        # Until an alarm the detector contains all errors.
        return self._is_spent and detector.estimation > sum(self._errors) / len(self._errors)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON header and arrays; `restore` continues from them bit for bit."""
        header, arrays = super().state()
        errors = np.frombuffer(bytes(self._errors), np.uint8)
        return header | {"n_errors": len(errors)}, arrays | {"errors": np.packbits(errors)}

    def _restore(self, header: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        n, packed = _whole(header, "n_errors", 0, MOST_ERRORS), arrays.pop("errors")
        if packed.dtype != np.uint8 or packed.shape != (-(-n // 8),):
            raise ArchiveError(f"{n} errors are not in an array of shape {packed.shape} and type {packed.dtype}")
        super()._restore(header, arrays)
        for error in np.unpackbits(packed, count=n).tolist():
            self._is_alarmed_by(error)


def _resumed(settings: Window, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> WindowMemory:
    memory = settings.begin()
    memory.restore(header, arrays)
    return memory


def _described(settings: Window) -> dict[str, Any]:
    return {"window": type(settings).__name__, **asdict(settings)}  # type: ignore[call-overload]


def _whole(header: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = header[name]
    if type(value) is not int or not low <= value <= high:
        raise ArchiveError(f"{name!r} is {value!r}, not an integer between {low} and {high}")
    return value
