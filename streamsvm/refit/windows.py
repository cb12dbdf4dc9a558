"""Windows: the events of a stream for a solver.

`Latest`, `Since` and `Adaptive` are settings; `begin` returns the memory. Rows are stored encoded and unscaled, with
class numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.parameters import check_between, check_number
from streamsvm.refit.detectors import DetectorSpec
from streamsvm.refit.window_memory import WindowMemory

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
        Greatest memory of the events, about; the window has fewer events if they need more.

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
        How long an event stays.
    n
        Greatest number of events.
    max_bytes
        Greatest memory of the events, about; the window has fewer events if they need more.

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
    """Latest n events, or fewer: older events leave when a detector finds that errors have increased.

    The detector is River's `ADWIN`. After an alarm the window keeps as many events as the detector. A decrease of
    errors has no effect. The detector restarts after each alarm, and after a million errors at the latest.

    Parameters
    ----------
    n
        Number of events.
    delta
        Probability of a false alarm, see `ADWIN`.
    max_bytes
        Greatest memory of the events, about; the window has fewer events if they need more.

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
