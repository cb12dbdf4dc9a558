"""When a window is solved again: after counts of labelled events, after event time, on drift, on demand.

A trigger is a value: hashable, comparable, and written to an archive by `encode`. Its `begin` gives a `TriggerState`,
which takes labelled events in order and stops at the first one at which something happens, so that the same happens at
the same events in batches of any size:

- `REFIT`: the window is to be solved. All intervals restart, whichever trigger fired.
- `CUT`: a drift detector raised an alarm. Events before this one are to leave the window. All intervals restart, and
  growing ones with their first length.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED, decode_label, encode_label
from streamsvm.parameters import check_between, check_number
from streamsvm.refit.detectors import DetectorSpec, RunningDetector, detector_named

_LONGEST = 1 << 53  # events of an interval
_NEVER = sys.maxsize


class TriggerEvent(Enum):
    """What happens at an event."""

    NOTHING = "nothing"
    CUT = "cut"
    REFIT = "refit"


class Seen(NamedTuple):
    """How many events were consumed, and what happened at the last of them."""

    n: int
    event: TriggerEvent


@dataclass
class _Progress:
    """What one trigger remembers of a stream."""

    left: int | None = None  # labelled events until it is due; None where it counts none
    interval: float = 0.0  # how many there were when the interval began
    begun: float = math.nan  # event time at which the interval began
    latest: float = math.nan  # the latest event time so far
    detector: RunningDetector | None = None
    parts: tuple[_Progress, ...] = ()

    def detectors(self) -> list[RunningDetector]:
        """Its own detector and those of its parts."""
        own = [] if self.detector is None else [self.detector]
        return own + [detector for part in self.parts for detector in part.detectors()]

    def state(self) -> dict[str, Any]:
        return {
            "left": self.left,
            "interval": self.interval,
            "begun": encode_label(self.begun),
            "latest": encode_label(self.latest),
            "detector": None if self.detector is None else self.detector.state(),
            "parts": [part.state() for part in self.parts],
        }

    def restore(self, state: Mapping[str, Any], trigger: Trigger) -> None:
        """Continue a new progress of this trigger from a state."""
        most = trigger._lengths[-1]
        self.interval = _checked(state["interval"], float, self.interval, max(self.interval, most))
        if state["left"] is not None or self.left is not None:
            self.left = _checked(state["left"], int, 0, round(self.interval) or most)
        begun, latest = (float(decode_label(state[name])) for name in ("begun", "latest"))
        if not (-math.inf < begun <= latest < math.inf or (math.isnan(begun) and math.isnan(latest))):
            raise ValueError(f"event time from {begun} to {latest}")
        self.begun, self.latest = begun, latest
        if self.detector is not None:
            self.detector.restore(state["detector"])
        for part, kept, own in zip(self.parts, state["parts"], trigger.triggers, strict=True):
            part.restore(kept, own)


def _checked(value: Any, kind: type, low: float, high: float) -> Any:
    """A value of a state, of its type and within its bounds."""
    is_kind = type(value) is kind
    if not is_kind or not low <= value <= high:
        raise ValueError(f"{value!r} is no {kind.__name__} from {low} to {high}")
    return value


class Trigger:
    """Settings of a trigger. The base counts down what is `left`, and never fires where that is None."""

    triggers: tuple[Trigger, ...] = ()
    # The first interval, the factor by which it grows, and the most events that may be left.
    _lengths: tuple[int, float, int] = (0, 1.0, -1)

    @property
    def needs_times(self) -> bool:
        """Whether it uses event times."""
        return False

    def begin(self) -> TriggerState:
        """Start at the beginning of a stream."""
        return TriggerState(self)

    def _start(self) -> _Progress:
        return _Progress()

    def _due(self, at: _Progress, times: NDArray[np.float64]) -> int:
        """The index of the event at which it is due, beyond the events if at none; it stays due until a refit."""
        return _NEVER if at.left is None else max(at.left, 1) - 1

    def _advance(self, at: _Progress, times: NDArray[np.float64]) -> None:
        """Take events."""
        if at.left is not None:
            at.left = max(at.left - len(times), 0)

    def _restart(self, at: _Progress, event: TriggerEvent) -> None:
        """A refit or a cut happened at the last event."""


class _Interval(Trigger):
    """Counts intervals that grow by a factor, up to a length."""

    def _start(self) -> _Progress:
        at = _Progress()
        self._restart(at, TriggerEvent.CUT)
        return at

    def _restart(self, at: _Progress, event: TriggerEvent) -> None:
        first, factor, most = self._lengths
        at.interval = min(float(first if event is TriggerEvent.CUT else at.interval * factor), float(most))
        at.left = round(at.interval)


@dataclass(frozen=True)
class Every(_Interval):
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
    >>> running.see(np.zeros(2), np.zeros(2))
    Seen(n=2, event=<TriggerEvent.NOTHING: 'nothing'>)
    >>> running.due_in()
    1
    """

    n: int

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, _LONGEST, whole=True)
        object.__setattr__(self, "_lengths", (self.n, 1.0, self.n))


@dataclass(frozen=True)
class Growing(_Interval):
    """Fires after intervals of labelled events that grow by a factor f: `first`, f `first`, f² `first` …

    Each refit lengthens the next interval, also one that was asked for or that another trigger fired.

    Where a refit of n events costs c n, and the window grows with the stream, all refits up to the last one, of N
    events, cost c N (1 + 1/f + 1/f² + …) < c N f / (f - 1): every event is paid for 3 times in all at f = 1.5 and twice
    at f = 2, however long the stream. (A cost of c n^p gives c N^p f^p / (f^p - 1), a like multiple of the last refit.)
    A window of at most w events rather wants intervals of at most `most`: from there on an event costs c w / `most`.

    Parameters
    ----------
    first
        Labelled events before the first refit, and before the first one after a drift alarm.
    factor
        By which an interval is longer than the one before.
    most
        The longest interval; None for no bound.

    Examples
    --------
    >>> running, at, refits = Growing(first=100, factor=2.0, most=300).begin(), 0, []
    >>> while at < 1000:
    ...     n, event = running.see(np.zeros(1000 - at), np.zeros(1000 - at))
    ...     at += n
    ...     refits += [at] * (event is TriggerEvent.REFIT)
    >>> refits
    [100, 300, 600, 900]
    """

    first: int = 500
    factor: float = 1.5
    most: int | None = None

    def __post_init__(self) -> None:
        check_number("first", self.first, 1, _LONGEST, whole=True)
        check_number("factor", self.factor, 1.0)
        if self.most is not None:
            check_number("most", self.most, self.first, _LONGEST, whole=True)
        object.__setattr__(self, "_lengths", (self.first, self.factor, self.most or _LONGEST))


@dataclass(frozen=True)
class EveryTime(Trigger):
    """Fires when so much event time has passed since the last refit, or since the first event that has a time.

    Time is the latest event time so far: an event that is late, or has no time (NaN), does not advance it. An event
    with a time far in the future delays the next refit until the others have caught up; combine it with a count by
    `FirstOf` to refit meanwhile.

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

    def _due(self, at: _Progress, times: NDArray[np.float64]) -> int:
        due = _begun(at, times) + float(self.seconds)
        late = np.flatnonzero((times >= due) & (times < math.inf))
        return 0 if at.latest >= due else int(late[0]) if len(late) else _NEVER

    def _advance(self, at: _Progress, times: NDArray[np.float64]) -> None:
        at.begun = _begun(at, times)
        at.latest = float(np.fmax.reduce(times[np.isfinite(times)], initial=at.latest))

    def _restart(self, at: _Progress, event: TriggerEvent) -> None:
        at.begun = at.latest


def _begun(at: _Progress, times: NDArray[np.float64]) -> float:
    """When the interval began: at the first event with a time, where it has not."""
    timed = times[np.isfinite(times)]
    return float(timed[0]) if math.isnan(at.begun) and len(timed) else at.begun


@dataclass(frozen=True)
class OnDrift(Trigger):
    """Cuts the window at a drift alarm, and fires when it has gathered events of the new concept.

    A further alarm meanwhile cuts again, and the gathering restarts. The detector is given the errors: 1 where the
    prediction was wrong, 0 where it was right. Those of `river.drift.binary` look for errors that become more frequent;
    ADWIN, KSWIN and PageHinkley look for any change, and so raise an alarm also where a learner becomes much better.

    Parameters
    ----------
    detector
        A detector of `river.drift` or `river.drift.binary`. Only its parameters are used: the trigger runs a new
        detector of that kind, replaced after each alarm and after 100,000 events at the latest.
    gather
        Labelled events between the last alarm and the refit.

    Examples
    --------
    >>> from river import drift
    >>> trigger = OnDrift(drift.ADWIN(delta=0.01), gather=300)
    >>> trigger == OnDrift(drift.ADWIN(delta=0.01), gather=300)
    True
    >>> running = trigger.begin()
    >>> errors = np.repeat([0.0, 1.0], 1000)
    >>> running.see(np.zeros(2000), errors)
    Seen(n=1024, event=<TriggerEvent.CUT: 'cut'>)
    >>> running.see(np.zeros(976), errors[1024:])
    Seen(n=300, event=<TriggerEvent.REFIT: 'refit'>)
    """

    detector: Any = field(compare=False)
    gather: int = 500
    _spec: DetectorSpec = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("gather", self.gather, 1, _LONGEST, whole=True)
        object.__setattr__(self, "_spec", DetectorSpec.of(self.detector))
        object.__setattr__(self, "_lengths", (0, 1.0, int(self.gather)))

    def __repr__(self) -> str:
        return f"OnDrift({self._spec}, gather={self.gather!r})"

    def _start(self) -> _Progress:
        return _Progress(detector=RunningDetector(self._spec))

    def _restart(self, at: _Progress, event: TriggerEvent) -> None:
        (detector,) = at.detectors()
        if event is TriggerEvent.REFIT:
            at.left = at.left or None  # where it was due itself
        elif detector.alarmed or at.left is not None:
            at.left = int(self.gather)
            if detector.alarmed:
                detector.renew()


@dataclass(frozen=True)
class OnDemand(Trigger):
    """Fires only when asked.

    Examples
    --------
    >>> running = OnDemand().begin()
    >>> running.see(np.zeros(5), np.zeros(5)).event
    <TriggerEvent.NOTHING: 'nothing'>
    >>> running.ask()
    >>> running.see(np.zeros(5), np.zeros(5))
    Seen(n=1, event=<TriggerEvent.REFIT: 'refit'>)
    """


@dataclass(frozen=True, init=False)
class FirstOf(Trigger):
    """Fires when the first of several triggers does.

    All intervals restart at a refit and at a cut; the gathering of events after a drift alarm goes on through refits.

    Parameters
    ----------
    *triggers
        At least one.
    distance
        The fewest labelled events between two refits. A trigger that would fire earlier waits until then; a refit on
        demand does not.

    Examples
    --------
    >>> running = FirstOf(Every(1000), EveryTime(60.0), distance=50).begin()
    >>> running.see(np.arange(200.0), np.zeros(200))
    Seen(n=61, event=<TriggerEvent.REFIT: 'refit'>)
    >>> running.see(np.arange(200.0) * 10, np.zeros(200))
    Seen(n=50, event=<TriggerEvent.REFIT: 'refit'>)
    """

    triggers: tuple[Trigger, ...]
    distance: int = 0

    def __init__(self, *triggers: Trigger, distance: int = 0) -> None:
        if not triggers:
            raise ValueError("`FirstOf` needs at least one trigger")
        for trigger in triggers:
            if not isinstance(trigger, Trigger):
                raise TypeError(f"`FirstOf` takes triggers ({', '.join(_KINDS)}), got {trigger!r}")
        check_number("distance", distance, 0, _LONGEST, whole=True)
        object.__setattr__(self, "triggers", triggers)
        object.__setattr__(self, "distance", distance)
        object.__setattr__(self, "_lengths", (0, 1.0, int(distance)))

    def __repr__(self) -> str:
        return f"FirstOf({', '.join(map(repr, self.triggers))}, distance={self.distance!r})"

    @property
    def needs_times(self) -> bool:
        return any(trigger.needs_times for trigger in self.triggers)

    def _start(self) -> _Progress:
        return _Progress(left=0, parts=tuple(trigger._start() for trigger in self.triggers))

    def _due(self, at: _Progress, times: NDArray[np.float64]) -> int:
        first = min(trigger._due(part, times) for trigger, part in zip(self.triggers, at.parts, strict=True))
        return max(first, super()._due(at, times))

    def _advance(self, at: _Progress, times: NDArray[np.float64]) -> None:
        super()._advance(at, times)
        for trigger, part in zip(self.triggers, at.parts, strict=True):
            trigger._advance(part, times)

    def _restart(self, at: _Progress, event: TriggerEvent) -> None:
        if event is TriggerEvent.REFIT:
            at.left = int(self.distance)
        for trigger, part in zip(self.triggers, at.parts, strict=True):
            trigger._restart(part, event)


_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Every, Growing, EveryTime, OnDrift, OnDemand, FirstOf)}


class TriggerState:
    """A trigger that runs along a stream; made by `Trigger.begin`."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger, self._asked = trigger, False
        self._restore(trigger._start())

    def _restore(self, at: _Progress) -> None:
        self._at, self._detectors = at, at.detectors()

    def see(self, times: NDArray[np.float64], errors: NDArray[np.float64]) -> Seen:
        """Take labelled events in order, up to the first at which something happens; to be called again with the rest.

        Parameters
        ----------
        times
            Event times in seconds, NaN where there is none.
        errors
            1 where the prediction was wrong, 0 where it was right.
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
        """Take the next labelled event, if counts alone say that nothing happens at it; else `see` it."""
        left = self._at.left
        if left is None or left <= 1 or self._asked or not self._at.interval:
            return False
        self._at.left = left - 1
        return True

    def _first_alarm(self, errors: NDArray[np.float64]) -> int | None:
        """The event at which a detector raises an alarm; none of them sees what comes after it."""
        if self._detectors:
            for i, error in enumerate((errors != 0.0).tolist()):
                for detector in self._detectors:
                    detector.update(error)
                if any(detector.alarmed for detector in self._detectors):
                    return i
        return None

    def due_in(self) -> int | None:
        """After how many further labelled events it fires at the latest, unless a drift alarm comes first.

        None where that depends on event times, on an alarm, or on demand.
        """
        due = 0 if self._asked else self._trigger._due(self._at, np.empty(0))
        return None if due == _NEVER else due + 1

    def ask(self) -> None:
        """Fire at the next event, whatever the trigger; at the one after it, where that one raises a drift alarm."""
        self._asked = True

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"asked": self._asked, "progress": self._at.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave, of a trigger of the same settings.

        Raises
        ------
        ArchiveError
            Where it is no such state.
        """
        at = self._trigger._start()
        try:
            self._asked = _checked(state["asked"], bool, False, True)
            at.restore(state["progress"], self._trigger)
        except DAMAGED as error:
            raise ArchiveError(f"not the state of a trigger: {error!r}") from error
        self._restore(at)


def encode(settings: Trigger) -> dict[str, Any]:
    """Settings as JSON can have them.

    Examples
    --------
    >>> encode(FirstOf(Every(100), OnDemand()))
    {'class': 'FirstOf', 'triggers': [{'class': 'Every', 'n': 100}, {'class': 'OnDemand'}], 'distance': 0}
    >>> decode(encode(Growing(first=100)))
    Growing(first=100, factor=1.5, most=None)
    """
    content: dict[str, Any] = {"class": type(settings).__name__}
    for own in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, own.name)
        if own.name == "triggers":
            content[own.name] = [encode(trigger) for trigger in value]
        elif own.name == "_spec":
            content["detector"] = value.encode()
        elif own.name != "detector":
            content[own.name] = encode_label(value)
    return content


def decode(content: Any) -> Trigger:
    """The settings that `encode` was given; only triggers and River's drift detectors are made.

    Raises
    ------
    ArchiveError
        Where it holds anything else.
    """
    try:
        params = dict(content)
        kind = _KINDS[params.pop("class")]
        triggers = [decode(part) for part in params.pop("triggers")] if kind is FirstOf else []
        detector = {"detector": DetectorSpec.decode(params.pop("detector")).make()} if kind is OnDrift else {}
        settings: Trigger = kind(*triggers, **detector, **{name: decode_label(v) for name, v in params.items()})
        return settings
    except ArchiveError:
        raise
    except DAMAGED as error:
        raise ArchiveError(f"not the settings of a trigger: {error!r}") from error


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_FORMS = """a number of labelled events ("5000" or "every:5000"), "growing[:FIRST[:FACTOR[:MOST]]]" \
("growing:500:1.5"), event time ("90s", "30m", "12h" or "1d"), "drift[:DETECTOR[:GATHER]]" ("drift:HDDMA:500"), \
"demand", or several of these joined by "+\""""
# By the name in a text: the kind of trigger, and the types of its values.
_BY_NAME: dict[str, tuple[Any, ...]] = {
    "every": (Every, int),
    "growing": (Growing, int, float, int),
    "time": (EveryTime, float),
    "drift": (OnDrift, detector_named, int),
    "demand": (OnDemand,),
}


def trigger_of(text: str) -> Trigger:
    """Settings from text.

    "drift" alone is HDDMA, which as a rule finds a rise of errors about as soon as ADWIN, and is silent at a fall.

    Raises
    ------
    ValueError
        Naming what may be given.

    Examples
    --------
    >>> trigger_of("5000"), trigger_of("growing:500:1.5"), trigger_of("1d")
    (Every(n=5000), Growing(first=500, factor=1.5, most=None), EveryTime(seconds=86400.0))
    >>> trigger_of("growing:1000+drift:HDDMA") == FirstOf(Growing(1000), trigger_of("drift"))
    True
    """
    try:
        triggers = [_single(*part.strip().split(":")) for part in text.split("+")]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is no trigger ({error}); it may be {_FORMS}") from error
    return triggers[0] if len(triggers) == 1 else FirstOf(*triggers)


def _single(name: str, *values: Any) -> Trigger:
    if (seconds := seconds_of(name)) is not None:
        name, values = "time", (seconds, *values)
    elif name == "time" or name not in _BY_NAME:
        name, values = "every", (name, *values)
    kind, *types = _BY_NAME[name]
    if name == "drift":
        values = values or ("HDDMA",)
    if len(values) > len(types):
        raise ValueError(f"{values[len(types)]!r} is one value too many")
    settings: Trigger = kind(*(own(value) for own, value in zip(types, values, strict=False)))
    return settings


def seconds_of(text: str) -> float | None:
    """A duration such as "90s", "30m", "12h" or "1d" in seconds; None where the text is none.

    Examples
    --------
    >>> seconds_of("1.5h"), seconds_of("1.5")
    (5400.0, None)
    """
    found = _DURATION.fullmatch(text)
    return float(found[1]) * _SECONDS[found[2]] if found else None
