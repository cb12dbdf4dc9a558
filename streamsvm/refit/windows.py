"""Windows: the events of a stream for a solver.

`Latest`, `Since` and `Adaptive` are settings; `begin` returns the memory. The memory is a list of immutable chunks with
encoded and unscaled rows and class numbers. It also has the number of the latest events that it contains. A snapshot
copies the list. The oldest chunk may also contain events that have left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.models import ArchiveError
from streamsvm.models.archive import check_names, real, whole
from streamsvm.parameters import check_between, check_number
from streamsvm.refit.detectors import DetectorSpec, RunningDetector
from streamsvm.refit.window_rows import MOST_COLUMNS, ROW_ARRAYS, WindowRows, joined, without_new_gaps

_MAX_BYTES = 256 << 20
_LEAST_BYTES = 1 << 16
_MOST_EVENTS_HELD = 1 << 31


class Window:
    """Base of windows."""

    n: int
    max_bytes: int
    # Span of event time, None for any.
    seconds: float | None = None

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, _MOST_EVENTS_HELD, whole=True)
        check_number("max_bytes", self.max_bytes, _LEAST_BYTES, MOST_EVENTS, whole=True)

    @property
    def needs_times(self) -> bool:
        """Whether it uses event times."""
        return self.seconds is not None

    @property
    def detector(self) -> DetectorSpec | None:
        """Detector of increased errors, after which older events leave."""
        return None

    def begin(self) -> WindowMemory:
        """Return an empty window."""
        return WindowMemory(self)


@dataclass(frozen=True)
class Latest(Window):
    """Latest n events.

    Parameters
    ----------
    n
        Number of events.
    max_bytes
        Approximate maximum memory of the events. The window has fewer events if they need more.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.rows import EncodedRows
    >>> memory = Latest(n=3).begin()
    >>> rows = EncodedRows(np.array([5.0, 6.0, 7.0, 8.0]), np.array([0]), np.arange(5), shared=True)
    >>> memory.add(rows, np.array([0, 1, 0, 0]))
    >>> memory.snapshot().numbers
    array([1, 2, 3])
    """

    n: int = 20_000
    max_bytes: int = _MAX_BYTES


@dataclass(frozen=True)
class Since(Window):
    """Events of the last t seconds of event time, and at most n.

    The time of an event is the newest time at its arrival, so times may jump back or be missing.

    Parameters
    ----------
    seconds
        How long an event stays in the window.
    n
        Maximum number of events.
    max_bytes
        Approximate maximum memory of the events. The window has fewer events if they need more.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.rows import EncodedRows
    >>> memory = Since(60.0).begin()
    >>> rows = EncodedRows(np.array([5.0, 6.0, 7.0]), np.array([0]), np.arange(4), shared=True)
    >>> memory.add(rows, np.array([0, 1, 0]), times=np.array([0.0, 30.0, 75.0]))
    >>> memory.snapshot().numbers
    array([1, 2])
    """

    seconds: float
    n: int = 100_000
    max_bytes: int = _MAX_BYTES

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, 0.0)
        super().__post_init__()


@dataclass(frozen=True)
class Adaptive(Window):
    """Latest n events, or fewer after an increase of errors.

    Older events leave when a detector finds that errors have increased.

    The detector is River's `ADWIN`. After an alarm the window keeps as many events as the detector. A decrease of
    errors has no effect. The detector restarts after each alarm, and after a million errors at the latest.

    Parameters
    ----------
    n
        Number of events.
    delta
        Probability of a false alarm, see `ADWIN`.
    max_bytes
        Approximate maximum memory of the events. The window has fewer events if they need more.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.rows import EncodedRows
    >>> memory = Adaptive(n=5_000).begin()
    >>> rows = EncodedRows(np.zeros(4_000), np.array([0]), np.arange(4_001), shared=True)
    >>> memory.add(rows, np.zeros(4_000, int), errors=(np.arange(4_000) >= 3_000).astype(float))
    >>> len(memory)
    1016
    """

    n: int = 20_000
    delta: float = 0.002
    max_bytes: int = _MAX_BYTES

    def __post_init__(self) -> None:
        check_between("delta", self.delta, 0.0, 1.0)
        super().__post_init__()

    @property
    def detector(self) -> DetectorSpec | None:
        return DetectorSpec("ADWIN", (("delta", self.delta),))


# Largest chunk in events, and largest size of merged chunks in bytes.
CHUNK_BYTES, CHUNK_EVENTS = 1 << 18, 1_024
# When memory is full, events leave until the rows take this share of it.
FULL = 7 / 8
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
        # Number of the latest events in the window, bytes of the events since memory was full, and newest event time.
        self._n = self._n_bytes = 0
        self._newest = math.nan
        self._n_columns = 0  # up to the last with a value so far
        self._detector = None if settings.detector is None else RunningDetector(settings.detector, MOST_ERRORS)

    def __len__(self) -> int:
        return self._trim()

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
        events, self._n_columns = without_new_gaps(events, self._n_columns)
        errors, at = (none if errors is None or self._detector is None else errors)[chosen], 0
        for i in np.flatnonzero(~np.isnan(errors)).tolist():
            if (n := self._n_left_by(errors[i])) is not None:
                self._take(events.part(at, i + 1))
                self.keep_latest(n)
                at = i + 1
        self._take(events.part(at, len(events)))

    def _take(self, events: WindowRows) -> None:
        """Add events in chunks that fit into the memory."""
        ends, at = np.append(0, np.cumsum(events.event_bytes)), 0
        while at < len(events):
            self._make_room(int(ends[at + 1] - ends[at]))
            most = ends[at] + self.settings.max_bytes - self._n_bytes
            end = max(int(np.searchsorted(ends, most, side="right")) - 1, at + 1)
            end = min(end, at + CHUNK_EVENTS)
            part = joined([events.part(at, end)])
            self._newest = float(part.times[-1])
            self.n_taken += end - at
            self._n += end - at
            self._n_bytes += int(ends[end] - ends[at])
            self._append(part)
            at = end
        self._trim()

    def _append(self, chunk: WindowRows) -> None:
        """Add a chunk, merged with the last ones while all are small."""
        while self._chunks and len(self._chunks[-1]) <= len(chunk) <= CHUNK_EVENTS // 2:
            if self._chunks[-1].rows.values.nbytes + chunk.rows.values.nbytes > CHUNK_BYTES:
                break
            chunk = joined([self._chunks.pop(), chunk])
        self._chunks.append(chunk)

    # Events that leave -------------------------------------------------------------------------------------------

    def _trim(self) -> int:
        """Drop the chunks without events of the window; return the number of its events."""
        self._n, n_stored = min(self._n, self.settings.n), sum(map(len, self._chunks))
        if self.settings.seconds is not None and self._chunks:
            times = np.concatenate([chunk.times for chunk in self._chunks])
            expired = np.flatnonzero(self._newest - times > self.settings.seconds)
            self._n = min(self._n, n_stored - (int(expired[-1]) + 1 if len(expired) else 0))
        while self._chunks and n_stored - len(self._chunks[0]) >= self._n:
            n_stored -= len(self._chunks.pop(0))
        return self._n

    def _make_room(self, n_bytes: int) -> None:
        """Make room for the row of an event."""
        if self._n_bytes + n_bytes <= self.settings.max_bytes:
            return
        self._trim()
        sizes = np.concatenate([np.zeros(0, np.int64), *(chunk.event_bytes for chunk in self._chunks)])
        while True:
            self._n_bytes = int(sizes[len(sizes) - self._n :].sum())
            if self._n_bytes + n_bytes <= FULL * self.settings.max_bytes or not self._n:
                break
            self._n = int(FULL * self._n)
        self._trim()

    def keep_latest(self, n: int) -> None:
        """Remove all but the last n events."""
        self._n = min(self._trim(), n)

    def _n_left_by(self, error: float) -> int | None:
        """Update the detector; return the number of events to keep after an increase."""
        detector = self._detector
        assert detector is not None
        return detector.width if detector.update(bool(error > 0.0)) and detector.has_increased else None

    def held(self) -> Callable[[], WindowRows]:
        """Return a function that copies the current events in order of arrival."""
        n = self._trim()  # drops chunks
        return partial(_latest, list(self._chunks), n)

    def snapshot(self) -> WindowRows:
        """Return a copy of the events, in order of arrival."""
        return self.held()()

    def latest(self, n: int) -> WindowRows:
        """Return a copy of the latest n events, or of all if there are fewer."""
        return _latest(self._chunks, min(n, self._trim()))

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return JSON header and arrays; `restore` continues from them bit for bit."""
        rows, arrays = self.snapshot().state()
        header = {"settings": _described(self.settings), "n_taken": self.n_taken, "n_bytes": self._n_bytes}
        header |= rows | {"n_columns": self._n_columns, "newest": None if math.isnan(self._newest) else self._newest}
        return header | ({} if self._detector is None else {"detector": self._detector.state()}), arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue, in an empty window, from the `state` of a window with these settings.

        Raises
        ------
        ArchiveError, LookupError, TypeError, ValueError
            If the state is invalid.
        """
        if header["settings"] != _described(self.settings):
            raise ArchiveError(f"the state of a window {header['settings']}, not {_described(self.settings)}")
        check_names(arrays, set(ROW_ARRAYS))
        window, n_taken = WindowRows.from_state((header, arrays)), whole(header["n_taken"], 0, int(MOST_EVENTS))
        if len(window) and window.numbers[-1] >= n_taken:
            raise ArchiveError(f"{len(window)} of {n_taken} events, in a window of {self.settings.n}")
        least = int(window.event_bytes.sum())
        self._take(window)
        self.n_taken, self._n_bytes = n_taken, whole(header["n_bytes"], least, max(self.settings.max_bytes, least))
        self._newest = math.nan if header["newest"] is None else real(header["newest"])
        self._n_columns = whole(header["n_columns"], 0, MOST_COLUMNS)
        if self._detector is not None:
            self._detector.restore(header["detector"])


def _latest(chunks: Sequence[WindowRows], n: int) -> WindowRows:
    """Return a copy of the latest n events."""
    parts: list[WindowRows] = []
    for chunk in reversed(chunks):
        if n > 0:
            parts.insert(0, chunk.part(max(len(chunk) - n, 0), len(chunk)))
        n -= len(chunk)
    return joined(parts)


def _described(settings: Window) -> dict[str, Any]:
    return {"window": type(settings).__name__, **asdict(settings)}  # type: ignore[call-overload]
