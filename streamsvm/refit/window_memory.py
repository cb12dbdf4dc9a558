"""Events of a window: a list of immutable chunks, and an index of the events still in the window.

A snapshot copies the list and the index. Chunks are rewritten without the events that have left, a few at a time.
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
from streamsvm.models.archive import DAMAGED, whole
from streamsvm.refit.detectors import DetectorSpec, RunningDetector
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

# Greatest size of a chunk in bytes, also as a share of all, and in events. A single event may be larger.
CHUNK_BYTES, CHUNK_SHARE, CHUNK_EVENTS = 1 << 18, 16, 1_024
# When memory is full, events leave until the rows take this share of it.
FULL = 7 / 8
# The next chunks are rewritten when there are this many times the events of the window, and one chunk more.
SURPLUS, REWRITTEN = 1.5, 16
# The detector restarts after this many errors.
MOST_ERRORS = 1_000_000


class WindowMemory:
    """Stored events of a window.

    The contents do not depend on the batch size. If rows need more than `max_bytes`, an eighth of the events leave and
    are counted.

    Parameters
    ----------
    settings
        The window.

    Attributes
    ----------
    n_taken
        Number of events so far.
    n_dropped_for_memory
        Number of events that left, or did not enter, because of their size.
    """

    def __init__(self, settings: Window) -> None:
        self.settings = settings
        self.n_taken = self.n_dropped_for_memory = 0
        self._most_bytes = settings.max_bytes - settings.order_bytes
        self._chunk_bytes = min(CHUNK_BYTES, self._most_bytes // CHUNK_SHARE)
        # Bytes of the stored events, and of those that left since memory was full.
        self._n_bytes = 0
        self._index = settings.index()
        self._chunks: list[Chunk] = []
        self._at = 0  # the next chunk to rewrite
        # Chunks and then single events that do not fill a chunk yet. These are stored as columns, because a tuple per
        # event would trigger the garbage collector.
        self._rows: list[Floats] = []
        self._of_rows: tuple[list[int], list[float], list[int]] = [], [], []  # classes, times, numbers
        self._recent: list[Chunk] = []
        self._n_recent = self._recent_bytes = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def n_bytes(self) -> int:
        """Memory of the events; the memory of Python objects is estimated."""
        rows = sum(chunk.n_bytes for chunk in self._chunks) + self._recent_bytes
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
        """Add the events that have a class and a positive weight, in order.

        Parameters
        ----------
        rows
            n rows.
        codes
            Class of each event, negative for none.
        weights
            Weights; None for 1 each.
        times
            Times in seconds, NaN if missing; None without times.
        errors
            Errors, for windows with a detector: 1 for a wrong prediction, 0 for a right one, NaN if unknown. None if
            all are unknown.
        """
        none = np.full(len(rows), np.nan)
        weights = np.ones(len(rows)) if weights is None else weights
        times = none if times is None else np.where(np.isfinite(times), times, np.nan)
        chosen = (codes >= 0) & (weights > 0.0) & (weights < math.inf)
        numbers = self.n_taken - 1 + np.cumsum(chosen)
        chunk = Chunk.of(WindowRows(rows, codes, weights, times, numbers)).chosen(chosen)
        self._take(chunk, (none if errors is None else errors)[chosen])

    def _take(self, chunk: Chunk, errors: Floats) -> None:
        """Add events in parts."""
        self._close_singles()
        self.n_taken += len(chunk.codes)
        ends, at = np.concatenate([[0], np.cumsum(chunk.bytes_of_events)]), 0
        while at < len(chunk.codes):
            n_bytes = int(ends[at + 1] - ends[at])
            if not self._make_room(n_bytes, int(chunk.codes[at])):
                at += 1
                continue
            most = ends[at] + max(min(self._chunk_bytes, self._most_bytes - self._n_bytes), n_bytes)
            end = min(int(np.searchsorted(ends, most, side="right")) - 1, at + CHUNK_EVENTS)
            part, n_bytes = chunk.part(at, end), int(ends[end] - ends[at])
            self._count(len(part.codes), n_bytes)
            self._recent.append(joined([part]))
            self._index.enter_all(part.numbers, part.codes, part.times)
            at = end

    def add_one(self, row: Floats, code: int, time: float, error: float) -> None:
        """Add an event with values in the first columns."""
        n_bytes = BYTES_OF_EVENT + row.nbytes
        number, self.n_taken = self.n_taken, self.n_taken + 1
        time = time if math.isfinite(time) else math.nan
        if self._n_bytes + n_bytes <= self._most_bytes or self._make_room(n_bytes, code):
            self._count(1, n_bytes)
            self._rows.append(row.copy())
            codes, times, numbers = self._of_rows
            codes.append(code)
            times.append(time)
            numbers.append(number)
            self._index.enter(number, code, time)

    def _count(self, n: int, n_bytes: int) -> None:
        """Count new events before they enter; close the recent chunk first if they do not fit."""
        n_recent, recent_bytes = self._n_recent + n, self._recent_bytes + n_bytes
        if n_recent > CHUNK_EVENTS or recent_bytes > self._chunk_bytes:
            self._close()
            n_recent, recent_bytes = n, n_bytes
        self._n_recent, self._recent_bytes = n_recent, recent_bytes
        self._n_bytes += n_bytes

    def _close_singles(self) -> None:
        """Make a chunk of single events."""
        if n := len(self._rows):
            values, lengths = np.concatenate(self._rows), np.array([len(row) for row in self._rows])
            codes, times, numbers = map(np.array, self._of_rows)
            no_columns, listed = np.zeros(0, np.int32), np.zeros(n, bool)
            self._recent.append(Chunk(values, no_columns, lengths, listed, codes, np.ones(n), times, numbers))
            for kept in (self._rows, *self._of_rows):
                kept.clear()

    def _close(self) -> None:
        """Make a chunk of the recent events, and rewrite others if many events have left."""
        self._close_singles()
        if self._recent:
            self._chunks.append(joined(self._recent) if len(self._recent) > 1 else self._recent[0])
            self._recent = []
            self._n_recent = self._recent_bytes = 0
            if sum(len(chunk.codes) for chunk in self._chunks) > SURPLUS * len(self) + CHUNK_EVENTS:
                self._rewrite(REWRITTEN)

    def _rewrite(self, n: int) -> None:
        """Rewrite the next n chunks without the events that have left, and merge small ones."""
        at, holds, rewritten = self._at, self._index.holds(), list[Chunk]()
        old = self._chunks[at : at + n]
        for chunk in old:
            held = chunk.chosen(holds(chunk.numbers, chunk.codes))
            if rewritten and self._is_small(rewritten[-1], held):
                held = joined([rewritten.pop(), held])
            if len(held.codes):
                rewritten.append(held)
        self._chunks[at : at + n] = rewritten
        self._at = at + len(rewritten)
        if self._at >= len(self._chunks):
            self._at = 0
            self._index.forget()

    def _is_small(self, *chunks: Chunk) -> bool:
        n, n_bytes = sum(len(chunk.codes) for chunk in chunks), sum(chunk.n_bytes for chunk in chunks)
        return n <= CHUNK_EVENTS and n_bytes <= self._chunk_bytes

    def _make_room(self, n_bytes: int, code: int) -> bool:
        """Make room for the row of an event; return whether there is room."""
        if self._n_bytes + n_bytes <= self._most_bytes:
            return True
        most = FULL * self._most_bytes
        if n_bytes > most:
            self.n_dropped_for_memory += 1
            return False
        while True:
            self._close()
            self._at = 0
            self._rewrite(len(self._chunks))
            self._n_bytes = sum(int(chunk.bytes_of_events.sum()) for chunk in self._chunks)
            if self._n_bytes + n_bytes <= most:
                return True
            for _ in range(math.ceil(len(self) * (1.0 - FULL))):
                self._index.leave(code, self.n_dropped_for_memory)
                self.n_dropped_for_memory += 1

    def keep_latest(self, n: int) -> None:
        """Remove all but the last n events."""
        self._index.keep_from(self.n_taken - n)

    def held(self) -> Callable[[], WindowRows]:
        """Return a function that copies the events now in the window, in order of arrival."""
        self._close()
        chunks, holds = list(self._chunks), self._index.holds()
        return lambda: joined(chunk.chosen(holds(chunk.numbers, chunk.codes)) for chunk in chunks).window()

    def snapshot(self) -> WindowRows:
        """Return a copy of the events, in order of arrival."""
        return self.held()()

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return JSON header and arrays; `restore` continues from them bit for bit."""
        rows, arrays = window_state(self.snapshot())
        header = {
            "settings": _described(self.settings),
            "n_taken": self.n_taken,
            "n_dropped": self.n_dropped_for_memory,
            "n_bytes": self._n_bytes,
        }
        return header | rows, arrays | self._index.arrays()

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the `state` of a window with these settings.

        Raises
        ------
        ArchiveError
            If the state is invalid; nothing changes then.
        """
        try:
            fresh = type(self)(self.settings)
            fresh._restore(header, arrays)
        except ArchiveError:
            raise
        except DAMAGED as error:
            raise ArchiveError(f"not the state of a window: {error!r}") from error
        self.__dict__.update(fresh.__dict__)

    def _restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        if header["settings"] != _described(self.settings):
            raise ArchiveError(f"the state of a window {header['settings']}, not {_described(self.settings)}")
        window = window_of_state(header, arrays)
        n_taken, chunk = whole(header["n_taken"], 0, int(MOST_EVENTS)), Chunk.of(window)
        if len(window) > self.settings.n or (len(window) and window.numbers[-1] >= n_taken):
            raise ArchiveError(f"{len(window)} of {n_taken} events, in a window of {self.settings.n}")
        least = int(chunk.bytes_of_events.sum())
        n_bytes = whole(header["n_bytes"], least, max(self._most_bytes, least))
        self._index.restore(window.numbers, window.codes, {k: a for k, a in arrays.items() if k not in ROW_ARRAYS})
        starts = range(0, len(window), CHUNK_EVENTS)
        self._chunks = [joined([chunk.part(start, min(start + CHUNK_EVENTS, len(window)))]) for start in starts]
        self.n_taken, self._n_bytes = n_taken, n_bytes
        self.n_dropped_for_memory = whole(header["n_dropped"], 0, int(MOST_EVENTS))


class AdaptiveMemory(WindowMemory):
    """Stored events of an `Adaptive` window, and its detector."""

    def __init__(self, settings: Window) -> None:
        super().__init__(settings)
        spec = DetectorSpec("ADWIN", (("delta", settings.delta),))  # type: ignore[attr-defined]
        self._detector = RunningDetector(spec, MOST_ERRORS)

    def _take(self, chunk: Chunk, errors: Floats) -> None:
        at = 0
        for i in np.flatnonzero(~np.isnan(errors)).tolist():
            if self._is_alarmed_by(float(errors[i])):
                super()._take(chunk.part(at, i + 1), errors)
                self.keep_latest(self._detector.width)
                at = i + 1
        super()._take(chunk.part(at, len(chunk.codes)) if at else chunk, errors)

    def add_one(self, row: Floats, code: int, time: float, error: float) -> None:
        """Add an event with values in the first columns."""
        super().add_one(row, code, time, error)
        if self._is_alarmed_by(error):
            self.keep_latest(self._detector.width)

    def _is_alarmed_by(self, error: float) -> bool:
        """Update the detector; return whether errors have increased."""
        return self._detector.update(error > 0.0) and self._detector.has_increased

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return JSON header and arrays; `restore` continues from them bit for bit."""
        header, arrays = super().state()
        return header | {"detector": self._detector.state()}, arrays

    def _restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        super()._restore(header, arrays)
        self._detector.restore(header["detector"])


def _described(settings: Window) -> dict[str, Any]:
    return {"window": type(settings).__name__, **asdict(settings)}  # type: ignore[call-overload]
