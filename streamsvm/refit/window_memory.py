"""Events of a window: a list of immutable chunks, and the number of the latest events of each class that it has.

A snapshot copies the list. Chunks may also contain events that have left. They are rewritten without these from time to
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED, check_names, real, whole
from streamsvm.refit.detectors import RunningDetector
from streamsvm.refit.window_rows import EVENT_BYTES, ROW_ARRAYS, WindowRows, joined, window_of_state, window_state

if TYPE_CHECKING:
    from streamsvm.refit.windows import Window

# Chunks are merged up to this size in bytes and events.
CHUNK_BYTES, CHUNK_EVENTS = 1 << 18, 1_024
# When memory is full, events leave until the rows take this share of it.
FULL = 7 / 8
# Chunks are rewritten when they have this many times the events of the window, and one chunk more.
SURPLUS = 1.5
# The detector restarts after this many errors.
MOST_ERRORS = 1_000_000


class WindowMemory:
    """Stored events of a window.

    The contents do not depend on the batch size. If rows need more than `max_bytes`, an eighth of the events leave.

    Parameters
    ----------
    settings
        The window.

    Attributes
    ----------
    n_taken
        Number of events so far.
    """

    def __init__(self, settings: Window) -> None:
        self.settings, self.n_taken = settings, 0
        self._chunks: list[WindowRows] = []
        # Single events that are not in a chunk yet: rows, classes and times. A tuple per event would trigger the
        # garbage collector.
        self._singles: tuple[list[Floats], list[int], list[float]] = [], [], []
        # Events in chunks, and bytes of the events since memory was full.
        self._n_stored = self._n_bytes = 0
        # Number of events of each class that may be in the window, and the newest event time.
        self._counts, self._newest = np.zeros(1, np.int64), math.nan
        self._detector = None if settings.detector is None else RunningDetector(settings.detector, MOST_ERRORS)

    def __len__(self) -> int:
        return int(self._kept().sum())

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
        chosen = (codes >= 0) & (weights > 0.0) & (weights < math.inf)
        times = none if times is None else np.where(np.isfinite(times) & chosen, times, np.nan)
        newest = np.fmax.accumulate(np.append(self._newest, times))[1:]
        events = WindowRows(rows, codes, weights, newest, self.n_taken - 1 + np.cumsum(chosen)).chosen(chosen)
        errors, at = (none if errors is None or self._detector is None else errors)[chosen], 0
        for i in np.flatnonzero(~np.isnan(errors)).tolist():
            if (n := self._n_left_by(errors[i])) is not None:
                self._take(events.part(at, i + 1))
                self.keep_latest(n)
                at = i + 1
        self._take(events.part(at, len(events)))

    def _take(self, events: WindowRows) -> None:
        """Add events in parts that fit into the memory."""
        self._close()
        ends, at = np.append(0, np.cumsum(events.event_bytes)), 0
        while at < len(events):
            self._make_room(int(ends[at + 1] - ends[at]))
            most = ends[at] + self.settings.max_bytes - self._n_bytes
            end = max(int(np.searchsorted(ends, most, side="right")) - 1, at + 1)
            part = joined([events.part(at, end)])
            counts = np.bincount(_classes(part.codes, self.settings.balanced), minlength=len(self._counts))
            counts[: len(self._counts)] += self._counts
            self._counts, self._newest = counts, float(part.times[-1])
            self.n_taken += end - at
            self._n_bytes += int(ends[end] - ends[at])
            self._append(part)
            at = end
        self._tidy()

    def add_one(self, row: Floats, code: int, time: float, error: float) -> None:
        """Add an event with values in the first columns."""
        n_bytes, place = EVENT_BYTES + row.nbytes, code if self.settings.balanced else 0
        self._make_room(n_bytes)
        rows, codes, times = self._singles
        if rows and (len(rows) == CHUNK_EVENTS or len(rows) * row.nbytes > CHUNK_BYTES or len(rows[0]) != len(row)):
            self._tidy()
        if math.isfinite(time) and not time <= self._newest:
            self._newest = time
        rows.append(row.copy())
        codes.append(code)
        times.append(self._newest)
        if place >= len(self._counts):
            self._counts = np.append(self._counts, np.zeros(place + 1 - len(self._counts), np.int64))
        self._counts[place] += 1
        self.n_taken += 1
        self._n_bytes += n_bytes
        if self._detector is not None and (n := self._n_left_by(error)) is not None:
            self.keep_latest(n)

    def _close(self) -> None:
        """Make a chunk of the single events."""
        rows, codes, times = self._singles
        if n := len(rows):
            encoded = EncodedRows(np.concatenate(rows), np.arange(len(rows[0])), np.arange(n + 1) * len(rows[0]), True)
            numbers = np.arange(self.n_taken - n, self.n_taken)
            self._append(WindowRows(encoded, np.array(codes), np.ones(n), np.array(times), numbers))
            for kept in self._singles:
                kept.clear()

    def _append(self, chunk: WindowRows) -> None:
        """Add a chunk, merged with the last ones while these are smaller and the result is small."""
        self._n_stored += len(chunk)
        while self._chunks and len(self._chunks[-1]) <= len(chunk) <= CHUNK_EVENTS // 2:
            if self._chunks[-1].rows.values.nbytes + chunk.rows.values.nbytes > CHUNK_BYTES:
                break
            chunk = joined([self._chunks.pop(), chunk])
        self._chunks.append(chunk)

    # Events that leave -------------------------------------------------------------------------------------------

    def _kept(self) -> Ints:
        """Return the number of latest events of each class that are in the window."""
        self._close()
        if self.settings.seconds is not None and self._chunks:
            times = np.concatenate([chunk.times for chunk in self._chunks])
            expired = np.flatnonzero(self._newest - times > self.settings.seconds)
            n_current = len(times) - (int(expired[-1]) + 1 if len(expired) else 0)
            self._counts = np.minimum(self._counts, n_current)
        return _at_most(self._counts, max(self.settings.n, int(np.count_nonzero(self._counts))))

    def _tidy(self) -> None:
        """Rewrite the chunks if many events have left."""
        kept = self._kept()
        if self._n_stored > SURPLUS * kept.sum() + CHUNK_EVENTS:
            self._rewrite(kept)

    def _rewrite(self, kept: Ints) -> None:
        """Keep the latest events of each class."""
        old, self._chunks = self._chunks, []
        self._n_stored, self._counts = 0, kept
        for chunk in _latest(old, kept, self.settings.balanced):
            self._append(chunk)

    def _make_room(self, n_bytes: int) -> None:
        """Make room for the row of an event."""
        if self._n_bytes + n_bytes <= self.settings.max_bytes:
            return
        kept = self._kept()
        while True:
            self._rewrite(kept)
            self._n_bytes = sum(int(chunk.event_bytes.sum()) for chunk in self._chunks)
            if self._n_bytes + n_bytes <= FULL * self.settings.max_bytes or not self._chunks:
                return
            kept = _at_most(kept, int(FULL * kept.sum()))

    def keep_latest(self, n: int) -> None:
        """Remove all but the last n events."""
        kept, codes = self._kept(), [chunk.codes[chunk.numbers >= self.n_taken - n] for chunk in self._chunks]
        later = _classes(np.concatenate([np.zeros(0, np.int64), *codes]), self.settings.balanced)
        self._counts = np.minimum(kept, np.bincount(later, minlength=len(kept)))

    def _n_left_by(self, error: float) -> int | None:
        """Update the detector; return the number of events to keep if errors have increased."""
        detector = self._detector
        assert detector is not None
        return detector.width if detector.update(bool(error > 0.0)) and detector.has_increased else None

    def held(self) -> Callable[[], WindowRows]:
        """Return a function that copies the events now in the window, in order of arrival."""
        kept, chunks, balanced = self._kept(), list(self._chunks), self.settings.balanced
        return lambda: joined(_latest(chunks, kept, balanced))

    def snapshot(self) -> WindowRows:
        """Return a copy of the events, in order of arrival."""
        return self.held()()

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return JSON header and arrays; `restore` continues from them bit for bit."""
        rows, arrays = window_state(self.snapshot())
        header = {"settings": _described(self.settings), "n_taken": self.n_taken, "n_bytes": self._n_bytes}
        header |= rows | {"newest": None if math.isnan(self._newest) else self._newest}
        return header | ({} if self._detector is None else {"detector": self._detector.state()}), arrays

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
        check_names(arrays, set(ROW_ARRAYS))
        window, n_taken = window_of_state(header, arrays), whole(header["n_taken"], 0, int(MOST_EVENTS))
        if len(window) and window.numbers[-1] >= n_taken:
            raise ArchiveError(f"{len(window)} of {n_taken} events, in a window of {self.settings.n}")
        least = int(window.event_bytes.sum())
        self._take(window)
        self.n_taken, self._n_bytes = n_taken, whole(header["n_bytes"], least, max(self.settings.max_bytes, least))
        self._newest = math.nan if header["newest"] is None else real(header["newest"])
        if self._detector is not None:
            self._detector.restore(header["detector"])


def _classes(codes: Ints, balanced: bool) -> Ints:
    """Return the classes that are counted separately: a single one unless the window is balanced."""
    return codes if balanced else np.zeros_like(codes)


def _at_most(counts: Ints, n: int) -> Ints:
    """Return a copy of counts of classes, the largest reduced to a common number, so that their sum is at most n."""
    if counts.sum() <= n:
        return counts.copy()
    ordered, n_classes = np.sort(counts), np.arange(len(counts), 0, -1)
    left = n - np.append(0, np.cumsum(ordered))[:-1]  # without the smaller classes
    first = (left <= ordered * n_classes).argmax()
    return np.minimum(counts, int(left[first] // n_classes[first]))


def _latest(chunks: Sequence[WindowRows], counts: Ints, balanced: bool) -> list[WindowRows]:
    """Return the latest events of each class, by the number of each."""
    if not chunks:
        return []
    classes = _classes(np.concatenate([chunk.codes for chunk in chunks]), balanced)
    order, ends = np.argsort(classes, kind="stable"), np.cumsum(np.bincount(classes, minlength=len(counts)))
    is_latest = np.empty(len(classes), bool)
    is_latest[order] = np.arange(len(classes)) >= (ends - counts)[classes[order]]
    parts = np.split(is_latest, np.cumsum([len(chunk) for chunk in chunks])[:-1])
    return [chunk.chosen(part) for chunk, part in zip(chunks, parts, strict=True) if part.any()]


def _described(settings: Window) -> dict[str, Any]:
    return {"window": type(settings).__name__, **asdict(settings)}  # type: ignore[call-overload]
