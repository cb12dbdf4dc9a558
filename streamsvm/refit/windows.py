"""Windows: the events of a stream for a solver.

`Latest`, `Since`, `Reservoir` and `Adaptive` are settings; `begin` returns the memory. Rows are stored encoded and
unscaled, with class numbers.

The event that leaves a `balanced` window is of the largest class, counting the new event. In a window of n events with
k classes, each class therefore keeps at least its last n / k events.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.parameters import ParameterError, ParameterTypeError, check_between, check_number
from streamsvm.refit.window_index import LatestIndex, SampleIndex, SinceIndex
from streamsvm.refit.window_memory import MOST_ERRORS, AdaptiveMemory, WindowMemory

_MAX_BYTES = 256 << 20
_LEAST_BYTES = 1 << 16
_MOST_EVENTS_HELD = 1 << 31
# Greatest size of an event in an index, in bytes.
_ORDER_BYTES = 160


# Settings ---------------------------------------------------------------------------------------------------------


class Window:
    """Base of windows."""

    n: int
    balanced: bool
    max_bytes: int

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, _MOST_EVENTS_HELD, whole=True)
        if not isinstance(self.balanced, bool):
            raise ParameterTypeError("balanced", f"must be True or False, got {self.balanced!r}")
        check_number("max_bytes", self.max_bytes, 0, MOST_EVENTS, whole=True)
        least = 2 * self.order_bytes + _LEAST_BYTES
        if self.max_bytes < least:
            raise ParameterError(
                "max_bytes", f"must be at least {least:,} for n={self.n:,} events, got {self.max_bytes:,}"
            )

    @property
    def order_bytes(self) -> int:
        """Greatest number of bytes beside rows."""
        return self.n * _ORDER_BYTES

    @property
    def needs_times(self) -> bool:
        """Whether it uses event times."""
        return False

    def begin(self) -> WindowMemory:
        """Return an empty window."""
        return WindowMemory(self)

    def index(self) -> LatestIndex:
        """Return an empty index."""
        return LatestIndex(self.n, self.balanced)


@dataclass(frozen=True)
class Latest(Window):
    """Latest n events.

    Parameters
    ----------
    n
        Number of events.
    balanced
        Whether the oldest event of the largest class leaves, instead of the oldest of all.
    max_bytes
        Greatest memory of the events; the window has fewer events if they need more.

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
    balanced: bool = False
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
    balanced
        Whether to keep rare classes. Each class then keeps, even if they have expired, as many events as there are
        unexpired events divided by the number of classes, and at least one. Beyond n events the oldest of the largest
        class leaves.
    max_bytes
        Greatest memory of the events; the window has fewer events if they need more.

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
    balanced: bool = False
    max_bytes: int = _MAX_BYTES

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, 0.0)
        super().__post_init__()

    @property
    def needs_times(self) -> bool:
        return True

    def index(self) -> LatestIndex:
        """Return an empty index."""
        return SinceIndex(self.n, self.balanced, self.seconds)


@dataclass(frozen=True)
class Reservoir(Window):
    """Sample biased to recent events (Aggarwal, VLDB 2006): the probability of an event is exp(-age / n).

    Every event enters and, if m of n places are used, replaces a random one with probability m / n.

    Parameters
    ----------
    n
        Greatest number of events, and their mean age once the window is full.
    balanced
        Whether the event that leaves is drawn from the largest class, instead of all.
    seed
        Random seed.
    max_bytes
        Greatest memory of the events; the window has fewer events if they need more.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.rows import EncodedRows
    >>> memory = Reservoir(n=3).begin()
    >>> rows = EncodedRows(np.arange(100.0), np.array([0]), np.arange(101), shared=True)
    >>> memory.add(rows, np.zeros(100, int))
    >>> len(memory)
    3
    """

    n: int = 20_000
    balanced: bool = False
    seed: int = 0
    max_bytes: int = _MAX_BYTES

    def __post_init__(self) -> None:
        check_number("seed", self.seed, 0, 2**63 - 1, whole=True)
        super().__post_init__()

    def index(self) -> LatestIndex:
        """Return an empty index."""
        return SampleIndex(self.n, self.balanced, self.seed)


@dataclass(frozen=True)
class Adaptive(Window):
    """Latest n events, or fewer: older events leave when a detector finds that errors have increased.

    The detector is River's `ADWIN`. After an alarm the window keeps as many events as the detector. A decrease of
    errors has no effect. The detector restarts after each alarm, and after a million errors at the latest.

    Parameters
    ----------
    n
        Number of events.
    balanced
        Whether the oldest event of the largest class leaves, instead of the oldest of all.
    delta
        Probability of a false alarm, see `ADWIN`.
    max_bytes
        Greatest memory of the events; the window has fewer events if they need more.

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
    balanced: bool = False
    delta: float = 0.002
    max_bytes: int = _MAX_BYTES

    def __post_init__(self) -> None:
        check_between("delta", self.delta, 0.0, 1.0)
        super().__post_init__()

    @property
    def order_bytes(self) -> int:
        """Greatest number of bytes beside rows."""
        return super().order_bytes + MOST_ERRORS

    def begin(self) -> WindowMemory:
        """Return an empty window."""
        return AdaptiveMemory(self)
