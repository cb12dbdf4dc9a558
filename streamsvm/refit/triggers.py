"""Triggers of refits: counts of labelled events, event time, drift, demand.

A trigger is a hashable value. `begin` returns a `TriggerState`, which takes labelled events in order and stops at the
first event that causes a refit or a cut. The batch size therefore does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.parameters import ParameterError, ParameterTypeError, check_between, check_number
from streamsvm.refit.detectors import DetectorSpec, Seen, SingleTriggerState, TriggerEvent

LONGEST = 1 << 53  # events of an interval


class Trigger:
    """Base of triggers. It fires on demand only."""

    # First interval of labelled events (0 for none), growth factor, and greatest number of events until it is due.
    lengths: tuple[int, float, int] = (0, 1.0, -1)
    period = math.inf  # event time between two refits
    spec: DetectorSpec | None = None
    gathers = 0  # labelled events between a request and the refit

    @property
    def needs_times(self) -> bool:
        """Whether it uses event times."""
        return any(trigger.period < math.inf for trigger in single(self))

    def begin(self) -> TriggerState:
        """Return the state at the start of a stream."""
        return TriggerState(self)


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
    >>> running.update(np.zeros(5), np.zeros(5))
    Seen(n=3, event=<TriggerEvent.REFIT: 'refit'>)
    """

    n: int

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, LONGEST, whole=True)
        object.__setattr__(self, "lengths", (self.n, 1.0, self.n))


@dataclass(frozen=True)
class Growing(Trigger):
    """Fires after intervals of labelled events that grow by a factor.

    The intervals are `first`, f `first`, f² `first` and so on with the factor f. Every refit lengthens the next
    interval, including refits on demand and by other triggers.

    Assume that a refit of n events costs c n and that the window grows with the stream. All refits up to one of N
    events then cost at most c N f / (f - 1). This is 3 times the last refit at f = 1.5, and twice at f = 2. With a
    window of at most w events, set `most` to bound the interval: an event then costs c w / `most`.

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
    >>> [running.update(none, none).n for _ in range(4)]
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
        object.__setattr__(self, "lengths", (self.first, self.factor, self.most or LONGEST))


@dataclass(frozen=True)
class EveryTime(Trigger):
    """Fires when an amount of event time has passed since the last refit.

    The first interval starts at the first event with a time. Time is the latest event time so far: late events and
    events without a time (NaN) do not advance it. A time far in the future delays the next refit until the other events
    catch up. To refit sooner, combine with a count by `FirstOf`.

    Parameters
    ----------
    seconds
        Event time between two refits.

    Examples
    --------
    >>> running = EveryTime(60.0).begin()
    >>> running.update(np.array([30.0, np.nan, 10.0, 95.0, 100.0]), np.zeros(5))
    Seen(n=4, event=<TriggerEvent.REFIT: 'refit'>)
    """

    seconds: float

    def __post_init__(self) -> None:
        check_between("seconds", self.seconds, 0.0, math.inf)
        object.__setattr__(self, "period", float(self.seconds))


@dataclass(frozen=True)
class OnDemand(Trigger):
    """Fires only on request.

    An alarm of a `streamsvm.monitor.FeatureMonitor` can be such a request.

    Parameters
    ----------
    gather
        Labelled events between the last request and the refit.

    Examples
    --------
    >>> running = OnDemand(gather=3).begin()
    >>> running.request()
    >>> running.update(np.zeros(5), np.zeros(5))
    Seen(n=3, event=<TriggerEvent.REFIT: 'refit'>)
    """

    gather: int = 0

    def __post_init__(self) -> None:
        check_number("gather", self.gather, 0, LONGEST, whole=True)
        object.__setattr__(self, "lengths", (0, 1.0, int(self.gather) or -1))
        object.__setattr__(self, "gathers", int(self.gather))


@dataclass(frozen=True)
class OnDrift(Trigger):
    """Cuts the window at a drift alarm, and fires some events later.

    The refit uses `gather` events of the new concept. Another alarm in between cuts the window and restarts the count.
    The detector receives the errors: 1 for a wrong prediction, 0 for a right one. The detectors of `river.drift.binary`
    look for an increase of errors. ADWIN, KSWIN and PageHinkley look for any change, so they also raise an alarm when a
    learner improves.

    Parameters
    ----------
    detector
        A detector of `river.drift` or `river.drift.binary`. Its class and parameters are stored. The trigger runs
        a new detector of that kind, which restarts after each alarm and after 100,000 events at the latest.
    gather
        Labelled events between the last alarm and the refit.

    Examples
    --------
    >>> import numpy as np
    >>> from river import drift
    >>> trigger = OnDrift(drift.ADWIN(delta=0.01), gather=300)
    >>> trigger == OnDrift(drift.ADWIN(delta=0.01), gather=300)
    True
    >>> running = trigger.begin()
    >>> errors = np.repeat([0.0, 1.0], 1000)
    >>> running.update(np.zeros(2000), errors)
    Seen(n=1024, event=<TriggerEvent.CUT: 'cut'>)
    >>> running.update(np.zeros(976), errors[1024:])
    Seen(n=300, event=<TriggerEvent.REFIT: 'refit'>)
    """

    detector: Any
    gather: int = 500

    def __post_init__(self) -> None:
        check_number("gather", self.gather, 1, LONGEST, whole=True)
        spec = self.detector if isinstance(self.detector, DetectorSpec) else DetectorSpec.of(self.detector)
        object.__setattr__(self, "detector", spec)
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "lengths", (0, 1.0, int(self.gather)))


@dataclass(frozen=True, init=False)
class FirstOf(Trigger):
    """Fires when the first of several triggers does.

    All intervals restart at a refit and at a cut. The count of events after a drift alarm continues through refits.

    Parameters
    ----------
    *triggers
        At least one trigger.

    Examples
    --------
    >>> running = FirstOf(Every(1000), EveryTime(60.0)).begin()
    >>> running.update(np.arange(200.0), np.zeros(200))
    Seen(n=61, event=<TriggerEvent.REFIT: 'refit'>)
    """

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        if not triggers:
            raise ParameterError("triggers", "must be at least one")
        for trigger in triggers:
            if not isinstance(trigger, Trigger):
                raise ParameterTypeError(
                    "triggers", f"must be triggers of streamsvm.refit, such as Every(5_000), got {trigger!r}"
                )
        object.__setattr__(self, "triggers", tuple(one for trigger in triggers for one in single(trigger)))


def single(trigger: Trigger) -> tuple[Trigger, ...]:
    """Return the triggers of a `FirstOf`, or the trigger alone."""
    return trigger.triggers if isinstance(trigger, FirstOf) else (trigger,)


class TriggerState:
    """A trigger with its state in a stream, created by `Trigger.begin`."""

    def __init__(self, trigger: Trigger) -> None:
        self._requested, self._parts = False, [SingleTriggerState(one) for one in single(trigger)]
        self._detectors = [part.detector for part in self._parts if part.detector is not None]

    def _due(self, times: NDArray[np.float64]) -> int:
        return 0 if self._requested else min(part.due(times) for part in self._parts)

    def update(self, times: NDArray[np.float64], errors: NDArray[np.float64]) -> Seen:
        """Process labelled events in order up to the first refit or cut.

        Call it again with the rest of the events.

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
        due = self._due(times)
        alarm = self._first_alarm(errors[: due + 1])
        n = min(due if alarm is None else alarm, len(times) - 1) + 1
        for part in self._parts:
            part.advance(times[:n])
        if alarm is None and due >= len(times):
            return Seen(n, TriggerEvent.NOTHING)
        event = TriggerEvent.REFIT if alarm is None else TriggerEvent.CUT
        self._requested = self._requested and event is TriggerEvent.CUT
        for part in self._parts:
            part.restart(event)
        return Seen(n, event)

    def _first_alarm(self, errors: NDArray[np.float64]) -> int | None:
        """Return the index of the first event at which a detector raises an alarm.

        Detectors do not get later events.
        """
        if self._detectors:
            for i, error in enumerate((errors != 0.0).tolist()):
                alarms = [detector.update(error) for detector in self._detectors]
                if any(alarms):
                    return i
        return None

    def due_in(self) -> int:
        """Return the number of labelled events until the trigger fires.

        It is more than `NEVER` if it does not follow from a count of events.
        """
        return self._due(np.empty(0)) + 1

    def request(self) -> None:
        """Fire at the next event, or after the `gather` events of `OnDemand`.

        A drift alarm at the next event postpones the refit by one event.
        """
        gathering = [part for part in self._parts if part.gathers]
        for part in gathering:
            part.left = part.gathers
        self._requested = self._requested or not gathering

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"asked": self._requested, "progress": [part.state() for part in self._parts]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` of a trigger with equal settings.

        No event may have been processed before.

        Raises
        ------
        ArchiveError, LookupError, TypeError, ValueError
            If the state is invalid.
        """
        for part, kept in zip(self._parts, state["progress"], strict=True):
            part.restore(kept)
        if type(state["asked"]) is not bool:
            raise ArchiveError(f"asked for a refit: {state['asked']!r}")
        self._requested = state["asked"]
