"""Windows: the events of a stream that a solver is given.

What a window keeps is a setting (`Latest`, `Since`, `Reservoir`, `Adaptive`); `begin` gives the memory for it. Rows are
kept encoded and unscaled, with classes by number.

Where one event has to leave a window that is `balanced`, it leaves from the class that has most, the new event counted;
so of n events a class keeps its last n divided by the number of classes, if so many ever came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.parameters import ParameterTypeError, check_between, check_number
from streamsvm.refit.triggers import seconds_of
from streamsvm.refit.window_memory import MOST_ERRORS, AdaptiveMemory, WindowMemory
from streamsvm.refit.window_order import ByAge, ByTime, Drawn

_MAX_BYTES = 256 << 20
_LEAST_BYTES = 1 << 16
_MOST_EVENTS_HELD = 1 << 31
# What an event takes in the order of events, at most.
_ORDER_BYTES = 160


# Settings ---------------------------------------------------------------------------------------------------------


class Window:
    """What a window keeps; see the kinds."""

    n: int
    balanced: bool
    max_bytes: int

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, _MOST_EVENTS_HELD, whole=True)
        if not isinstance(self.balanced, bool):
            raise ParameterTypeError(f"`balanced` must be True or False, got {self.balanced!r}")
        check_number("max_bytes", self.max_bytes, 0, MOST_EVENTS, whole=True)
        least = 2 * self.order_bytes + _LEAST_BYTES
        if self.max_bytes < least:
            raise ValueError(f"`max_bytes` must be at least {least:,} for n={self.n:,} events, got {self.max_bytes:,}")

    @property
    def order_bytes(self) -> int:
        """What it may take beside rows."""
        return self.n * _ORDER_BYTES

    @property
    def needs_times(self) -> bool:
        """Whether it goes by the times of events."""
        return False

    def begin(self) -> WindowMemory:
        """An empty window of this kind."""
        return WindowMemory(self)

    def order(self) -> ByAge:
        """Who is held, and who leaves."""
        return ByAge(self.n, self.balanced)


@dataclass(frozen=True)
class Latest(Window):
    """The last n events.

    Parameters
    ----------
    n
        How many.
    balanced
        Whether the oldest of the class that has most leaves, in place of the oldest of all.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.space import EncodedRows
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
    """The events of the last t seconds of event time, and at most n.

    An event counts as having come at the newest time known when it came, so times that jump back or are missing do no
    harm.

    Parameters
    ----------
    seconds
        How long an event stays.
    n
        At most so many events.
    balanced
        Whether rare classes are kept: of each class as many events stay, though their time is up, as there are events
        whose time is not up, divided by the classes held, and at least one. Where there are more than n, the oldest of
        the class that has most leaves.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.space import EncodedRows
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

    def order(self) -> ByAge:
        """Who is held, and who leaves."""
        return ByTime(self.n, self.balanced, self.seconds)


@dataclass(frozen=True)
class Reservoir(Window):
    """A sample biased to the recent (Aggarwal, VLDB 2006): that an event is in it falls as exp(-age / n).

    Each event enters: with m events held, with probability m / n in place of one drawn from them, else beside them.

    Parameters
    ----------
    n
        At most so many events, and the mean age of those held once it is full.
    balanced
        Whether the event that leaves is drawn from the class that has most, in place of all.
    seed
        Of the random numbers.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.space import EncodedRows
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

    def order(self) -> ByAge:
        """Who is held, and who leaves."""
        return Drawn(self.n, self.balanced, self.seed)


@dataclass(frozen=True)
class Adaptive(Window):
    """The last n events, or fewer: where a detector finds that errors have become more, the older ones are forgotten.

    The detector is River's `ADWIN`; after its alarm as many events stay as it holds errors. Where it finds that errors
    have become fewer, nothing is forgotten. It begins anew after each alarm, and at the latest after a million errors.

    Parameters
    ----------
    n
        How many.
    balanced
        Whether the oldest of the class that has most leaves, in place of the oldest of all.
    delta
        The probability of a false alarm, see `ADWIN`.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.features.space import EncodedRows
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
        """What it may take beside rows."""
        return super().order_bytes + MOST_ERRORS

    def begin(self) -> WindowMemory:
        """An empty window of this kind."""
        return AdaptiveMemory(self)


_KINDS: dict[str, type[Any]] = {"latest": Latest, "since": Since, "reservoir": Reservoir, "adaptive": Adaptive}
_FORMS = (
    'a number of events ("20000" or "latest:20000"), "since:TIME[:N]" with a time such as "90s", "30m", "12h" or "7d", '
    '"reservoir[:N]" or "adaptive[:N]", each also with "+balanced"'
)


def window_of(text: str) -> Window:
    """Settings from text.

    Raises
    ------
    ValueError
        Naming what may be given.

    Examples
    --------
    >>> window_of("5000") == Latest(5_000), window_of("since:7d+balanced") == Since(604_800.0, balanced=True)
    (True, True)
    """
    parts, *options = text.split("+")
    kind, *values = parts.split(":")
    if kind.isdecimal():
        kind, values = "latest", [kind, *values]
    try:
        if kind not in _KINDS or options not in ([], ["balanced"]):
            raise ValueError("unknown")
        takes: tuple[Callable[[str], Any], ...] = (_seconds, int) if kind == "since" else (int,)
        if len(values) > len(takes):
            raise ValueError(f"{values[len(takes)]!r} is one value too many")
        given = [take(value) for take, value in zip(takes, values, strict=False)]
        window: Window = _KINDS[kind](*given, balanced=bool(options))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is no window ({error}); it may be {_FORMS}") from error
    return window


def _seconds(text: str) -> float:
    seconds = seconds_of(text)
    if seconds is None:
        raise ValueError(f"{text!r} is no time")
    return seconds
