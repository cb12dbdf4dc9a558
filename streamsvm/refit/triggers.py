"""Triggers of refits: counts of labelled events, event time, drift, demand.

A trigger is a hashable value. `begin` returns a `TriggerState`, which takes labelled events in order and stops at the
first event that causes a refit or a cut. The batch size therefore does not matter.

- `REFIT`: solve the window. All intervals restart, whichever trigger fired.
- `CUT`: a drift detector raised an alarm, and earlier events leave the window. All intervals restart, growing ones with
  their first length.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED, decode_label, encode_label, real, whole
from streamsvm.parameters import ParameterError, ParameterTypeError, check_between, check_number

if TYPE_CHECKING:
    from streamsvm.refit.detectors import RunningDetector

LONGEST = 1 << 53  # events of an interval
_NEVER = sys.maxsize


class TriggerEvent(Enum):
    """Effect of an event."""

    NOTHING = "nothing"
    CUT = "cut"
    REFIT = "refit"


class Seen(NamedTuple):
    """Number of events processed, and the effect of the last one."""

    n: int
    event: TriggerEvent


@dataclass
class Progress:
    """State of one trigger in a stream."""

    left: int | None = None  # labelled events until it is due; None if it does not count
    interval: float = 0.0  # length of the interval
    begun: float = math.nan  # event time at the start of the interval
    latest: float = math.nan  # latest event time so far
    detector: RunningDetector | None = None
    parts: tuple[Progress, ...] = ()

    def detectors(self) -> list[RunningDetector]:
        """Return the detectors of the trigger and of its parts."""
        own = [] if self.detector is None else [self.detector]
        return own + [detector for part in self.parts for detector in part.detectors()]

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "left": self.left,
            "interval": self.interval,
            "begun": encode_label(self.begun),
            "latest": encode_label(self.latest),
            "detector": None if self.detector is None else self.detector.state(),
            "parts": [part.state() for part in self.parts],
        }

    def restore(self, state: Mapping[str, Any], trigger: Trigger) -> None:
        """Continue from a `state` of this trigger."""
        most = trigger._lengths[-1]
        self.interval = real(state["interval"], self.interval, max(self.interval, most))
        if state["left"] is not None or self.left is not None:
            self.left = whole(state["left"], 0, round(self.interval) or most)
        begun, latest = (float(decode_label(state[name])) for name in ("begun", "latest"))
        if not (-math.inf < begun <= latest < math.inf or (math.isnan(begun) and math.isnan(latest))):
            raise ValueError(f"event time from {begun} to {latest}")
        self.begun, self.latest = begun, latest
        if self.detector is not None:
            self.detector.restore(state["detector"])
        for part, kept, own in zip(self.parts, state["parts"], trigger.triggers, strict=True):
            part.restore(kept, own)


class Trigger:
    """Settings of a trigger. The base class counts events down, and never fires if its first interval is 0."""

    triggers: tuple[Trigger, ...] = ()
    # First interval, growth factor, and most events until the trigger is due.
    _lengths: tuple[int, float, int] = (0, 1.0, -1)

    @property
    def needs_times(self) -> bool:
        """Whether it uses event times."""
        return False

    def begin(self) -> TriggerState:
        """Return the state at the start of a stream."""
        return TriggerState(self)

    def start(self) -> Progress:
        """Return the progress at the start of a stream."""
        at = Progress()
        self._restart(at, TriggerEvent.CUT)
        return at

    def _due(self, at: Progress, times: NDArray[np.float64]) -> int:
        """Return the index of the first event at which the trigger is due; not below the number of events if none."""
        return _NEVER if at.left is None else max(at.left, 1) - 1

    def _advance(self, at: Progress, times: NDArray[np.float64]) -> None:
        """Count events."""
        if at.left is not None:
            at.left = max(at.left - len(times), 0)

    def _restart(self, at: Progress, event: TriggerEvent) -> None:
        """Restart after a refit or a cut at the last event."""
        first, factor, most = self._lengths
        if first:
            at.interval = min(float(first if event is TriggerEvent.CUT else at.interval * factor), float(most))
            at.left = round(at.interval)


@dataclass(frozen=True)
class Every(Trigger):
    """Fires every `n` labelled events.

    Parameters
    ----------
    n
        Labelled events between two refits.

    Examples
    --------
    >>> running = Every(3).begin()
    >>> running.see(np.zeros(5), np.zeros(5))
    Seen(n=3, event=<TriggerEvent.REFIT: 'refit'>)
    """

    n: int

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, LONGEST, whole=True)
        object.__setattr__(self, "_lengths", (self.n, 1.0, self.n))


@dataclass(frozen=True)
class Growing(Trigger):
    """Fires after intervals of labelled events that grow by a factor f: `first`, f `first`, f² `first` …

    Every refit lengthens the next interval, including refits on demand and those of other triggers.

    Assume that a refit of n events costs c n and that the window grows with the stream. All refits up to one of N
    events then cost at most c N f / (f - 1): 3 times the last refit at f = 1.5, twice at f = 2. With a window of at
    most w events, set `most` to bound the interval: an event then costs c w / `most`.

    Parameters
    ----------
    first
        Labelled events before the first refit, and before the first refit after a drift alarm.
    factor
        Growth factor of the interval.
    most
        Longest interval; None for no bound.

    Examples
    --------
    >>> running, none = Growing(first=100, factor=2.0, most=300).begin(), np.zeros(1_000)
    >>> [running.see(none, none).n for _ in range(4)]
    [100, 200, 300, 300]
    """

    first: int = 500
    factor: float = 1.5
    most: int | None = None

    def __post_init__(self) -> None:
        check_number("first", self.first, 1, LONGEST, whole=True)
        check_number("factor", self.factor, 1.0)
        if self.most is not None:
            check_number("most", self.most, self.first, LONGEST, whole=True)
        object.__setattr__(self, "_lengths", (self.first, self.factor, self.most or LONGEST))


@dataclass(frozen=True)
class EveryTime(Trigger):
    """Fires when an amount of event time has passed since the last refit, or since the first event with a time.

    Time is the latest event time so far: late events and events without a time (NaN) do not advance it. A time far in
    the future delays the next refit until the other events catch up. To refit sooner, combine with a count by
    `FirstOf`.

    Parameters
    ----------
    seconds
        Event time between two refits.

    Examples
    --------
    >>> running = EveryTime(60.0).begin()
    >>> running.see(np.array([30.0, np.nan, 10.0, 95.0, 100.0]), np.zeros(5))
    Seen(n=4, event=<TriggerEvent.REFIT: 'refit'>)
    """

    seconds: float

    def __post_init__(self) -> None:
        check_between("seconds", self.seconds, 0.0, math.inf)

    @property
    def needs_times(self) -> bool:
        return True

    def _due(self, at: Progress, times: NDArray[np.float64]) -> int:
        due = self._begun(at, times) + float(self.seconds)
        late = np.flatnonzero((times >= due) & (times < math.inf))
        return 0 if at.latest >= due else int(late[0]) if len(late) else _NEVER

    def _advance(self, at: Progress, times: NDArray[np.float64]) -> None:
        at.begun = self._begun(at, times)
        at.latest = float(np.fmax.reduce(times[np.isfinite(times)], initial=at.latest))

    def _restart(self, at: Progress, event: TriggerEvent) -> None:
        at.begun = at.latest

    @staticmethod
    def _begun(at: Progress, times: NDArray[np.float64]) -> float:
        """Return the start of the interval: the first event time, unless the interval has started."""
        timed = times[np.isfinite(times)]
        return float(timed[0]) if math.isnan(at.begun) and len(timed) else at.begun


@dataclass(frozen=True)
class OnDemand(Trigger):
    """Fires only when asked.

    Examples
    --------
    >>> running = OnDemand().begin()
    >>> running.ask()
    >>> running.see(np.zeros(5), np.zeros(5))
    Seen(n=1, event=<TriggerEvent.REFIT: 'refit'>)
    """


@dataclass(frozen=True, init=False)
class FirstOf(Trigger):
    """Fires when the first of several triggers does.

    All intervals restart at a refit and at a cut. The count of events after a drift alarm continues through refits.

    Parameters
    ----------
    *triggers
        At least one trigger.
    distance
        Least number of labelled events between two refits. A trigger that would fire earlier waits until then; a refit
        on demand does not.

    Examples
    --------
    >>> running = FirstOf(Every(1000), EveryTime(60.0), distance=50).begin()
    >>> running.see(np.arange(200.0), np.zeros(200))
    Seen(n=61, event=<TriggerEvent.REFIT: 'refit'>)
    """

    triggers: tuple[Trigger, ...]
    distance: int = 0

    def __init__(self, *triggers: Trigger, distance: int = 0) -> None:
        if not triggers:
            raise ParameterError("triggers", "must be at least one")
        for trigger in triggers:
            if not isinstance(trigger, Trigger):
                raise ParameterTypeError(
                    "triggers", f"must be triggers of streamsvm.refit, such as Every(5_000), got {trigger!r}"
                )
        check_number("distance", distance, 0, LONGEST, whole=True)
        object.__setattr__(self, "triggers", triggers)
        object.__setattr__(self, "distance", distance)
        object.__setattr__(self, "_lengths", (0, 1.0, int(distance)))

    def __repr__(self) -> str:
        return f"FirstOf({', '.join(map(repr, self.triggers))}, distance={self.distance!r})"

    @property
    def needs_times(self) -> bool:
        return any(trigger.needs_times for trigger in self.triggers)

    def start(self) -> Progress:
        return Progress(left=0, parts=tuple(trigger.start() for trigger in self.triggers))

    def _due(self, at: Progress, times: NDArray[np.float64]) -> int:
        first = min(trigger._due(part, times) for trigger, part in zip(self.triggers, at.parts, strict=True))
        return max(first, super()._due(at, times))

    def _advance(self, at: Progress, times: NDArray[np.float64]) -> None:
        super()._advance(at, times)
        for trigger, part in zip(self.triggers, at.parts, strict=True):
            trigger._advance(part, times)

    def _restart(self, at: Progress, event: TriggerEvent) -> None:
        if event is TriggerEvent.REFIT:
            at.left = int(self.distance)
        for trigger, part in zip(self.triggers, at.parts, strict=True):
            trigger._restart(part, event)


class TriggerState:
    """A trigger with its state in a stream, created by `Trigger.begin`."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger, self._asked = trigger, False
        self._restore(trigger.start())

    def _restore(self, at: Progress) -> None:
        self._at, self._detectors = at, at.detectors()

    def see(self, times: NDArray[np.float64], errors: NDArray[np.float64]) -> Seen:
        """Process labelled events in order up to the first refit or cut. Call again with the rest.

        Parameters
        ----------
        times
            Event times in seconds, NaN for none.
        errors
            1 for a wrong prediction, 0 for a right one.
        """
        if len(times) != len(errors):
            raise ValueError(f"{len(times)} times do not fit {len(errors)} errors")
        if not len(times):
            return Seen(0, TriggerEvent.NOTHING)
        due = 0 if self._asked else self._trigger._due(self._at, times)
        alarm = self._first_alarm(errors[: due + 1])
        n = min(due if alarm is None else alarm, len(times) - 1) + 1
        self._trigger._advance(self._at, times[:n])
        if alarm is None and due >= len(times):
            return Seen(n, TriggerEvent.NOTHING)
        event = TriggerEvent.REFIT if alarm is None else TriggerEvent.CUT
        self._asked = self._asked and event is TriggerEvent.CUT
        self._trigger._restart(self._at, event)
        return Seen(n, event)

    def passes(self) -> bool:
        """Process one event and return True if it only needs counting; otherwise return False without processing it."""
        left = self._at.left
        if left is None or left <= 1 or self._asked or not self._at.interval:
            return False
        self._at.left = left - 1
        return True

    def _first_alarm(self, errors: NDArray[np.float64]) -> int | None:
        """Return the index of the event at which a detector raises an alarm; detectors do not get later events."""
        if self._detectors:
            for i, error in enumerate((errors != 0.0).tolist()):
                alarms = [detector.update(error) for detector in self._detectors]
                if any(alarms):
                    return i
        return None

    def due_in(self) -> int | None:
        """Return the number of labelled events until the trigger fires, unless a drift alarm comes first.

        None if that depends on event times, an alarm, or demand.
        """
        due = 0 if self._asked else self._trigger._due(self._at, np.empty(0))
        return None if due == _NEVER else due + 1

    def ask(self) -> None:
        """Fire at the next event, or at the one after it if that raises a drift alarm."""
        self._asked = True

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"asked": self._asked, "progress": self._at.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state` of a trigger with the same settings.

        Raises
        ------
        ArchiveError
            If the state is invalid.
        """
        at = self._trigger.start()
        try:
            at.restore(state["progress"], self._trigger)
            if type(state["asked"]) is not bool:
                raise ArchiveError(f"asked for a refit: {state['asked']!r}")
        except DAMAGED as error:
            raise ArchiveError(f"not the state of a trigger: {error!r}") from error
        self._asked = state["asked"]
        self._restore(at)
