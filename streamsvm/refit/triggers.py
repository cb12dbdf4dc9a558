"""When a window is solved again: after counts of labelled events, after event time, on drift, on demand.

Settings are values: hashable, comparable, and written to an archive by `encode`. `begin` makes what runs along a
stream, a `TriggerState`. It is given labelled events in order and stops at the first one at which something happens, so
that the same happens at the same events whatever the batches:

- `REFIT`: the window is to be solved. All intervals begin anew, whichever trigger fired, so that refits come singly.
- `CUT`: a drift detector raised an alarm. What came before this event is to leave the window, whose concept is gone;
  all intervals begin anew, and growing ones with their first length.
"""

from __future__ import annotations

import base64
import math
import re
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED, decode_label, encode_label
from streamsvm.parameters import check_between, check_number

# Events after which a detector is replaced by a fresh one at the latest: what is replayed when a run is resumed.
RENEWED_AFTER = 100_000

_LONGEST = 1 << 53  # events of an interval
_NEVER = sys.maxsize
# Errors that every detector is tried with, and as many as fill its windows: wrong parameters show themselves at once.
_TRIAL = 64
# Detectors that alarm where the mean falls, and so are given what was predicted right; the others are given errors.
_OF_HITS = ("FHDDM",)


class TriggerEvent(Enum):
    """What happens at an event."""

    NOTHING = "nothing"
    CUT = "cut"
    REFIT = "refit"


class Seen(NamedTuple):
    """How many events were consumed, and what happened at the last of them."""

    n: int
    event: TriggerEvent


class Trigger(ABC):
    """Settings of a trigger."""

    @property
    def needs_times(self) -> bool:
        """Whether it goes by the times of events."""
        return False

    def begin(self) -> TriggerState:
        """One that has seen nothing yet."""
        return TriggerState(self._clock())

    @abstractmethod
    def _clock(self) -> _Clock:
        """What runs along the stream."""


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
    >>> running.see(np.zeros(2), np.zeros(2))
    Seen(n=2, event=<TriggerEvent.NOTHING: 'nothing'>)
    >>> running.due_in()
    1
    """

    n: int

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, _LONGEST, whole=True)

    def _clock(self) -> _Clock:
        return _Interval(self.n, 1.0, self.n)


@dataclass(frozen=True)
class Growing(Trigger):
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

    def _clock(self) -> _Clock:
        return _Interval(self.first, self.factor, self.most or _LONGEST)


@dataclass(frozen=True)
class EveryTime(Trigger):
    """Fires when so much event time has passed since the last refit, or since the first event that has a time.

    Time is the latest met so far: an event that is late, or has no time (NaN), is no progress. One that is stamped far
    ahead holds the trigger until the others have caught up; `FirstOf` with a count goes on there.

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

    def _clock(self) -> _Clock:
        return _Timer(self.seconds)


@dataclass(frozen=True)
class OnDrift(Trigger):
    """Cuts the window at a drift alarm, and fires when it has gathered events of the new concept.

    A further alarm meanwhile cuts again, and the gathering starts anew. The detector is fed with the errors: 1 where
    the prediction was wrong, 0 where it was right. Those of `river.drift.binary` look for errors that become more;
    ADWIN, KSWIN and PageHinkley look for any change, and so raise an alarm also where a learner becomes much better.

    Parameters
    ----------
    detector
        A detector of `river.drift` or `river.drift.binary`. Its parameters count alone: it is left as it is, and fresh
        ones of its kind are fed, a new one after each alarm and after 100,000 events at the latest.
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
    _kind: _DetectorKind = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("gather", self.gather, 1, _LONGEST, whole=True)
        object.__setattr__(self, "_kind", _DetectorKind.of(self.detector))

    def __repr__(self) -> str:
        return f"OnDrift({self._kind}, gather={self.gather!r})"

    def _clock(self) -> _Clock:
        return _Gathering(self.gather, _Watch(self._kind))


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

    def _clock(self) -> _Clock:
        return _Clock()


@dataclass(frozen=True, init=False)
class FirstOf(Trigger):
    """Fires when the first of several triggers does.

    Intervals begin anew for all of them, at a refit and at a cut; the gathering of events after a drift alarm goes on
    through refits.

    Parameters
    ----------
    *triggers
        At least one.
    distance
        Labelled events between two refits at the least. A trigger that would fire earlier waits until then; a refit on
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

    def __repr__(self) -> str:
        return f"FirstOf({', '.join(map(repr, self.triggers))}, distance={self.distance!r})"

    @property
    def needs_times(self) -> bool:
        return any(trigger.needs_times for trigger in self.triggers)

    def _clock(self) -> _Clock:
        return _Earliest([trigger._clock() for trigger in self.triggers], self.distance)


_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Every, Growing, EveryTime, OnDrift, OnDemand, FirstOf)}


class TriggerState:
    """Where a trigger stands in a stream; made by `begin` of its settings."""

    def __init__(self, clock: _Clock) -> None:
        self._clock, self._watches = clock, clock.watches()
        self._asked = False

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
        due = 0 if self._asked else self._clock.first(times)
        alarm = self._first_alarm(errors[: due + 1])
        n = min(due if alarm is None else alarm, len(times) - 1) + 1
        self._clock.skip(times[:n])
        if alarm is not None:
            self._clock.cut()
            return Seen(n, TriggerEvent.CUT)
        if due < len(times):
            self._asked = False
            self._clock.refitted()
            return Seen(n, TriggerEvent.REFIT)
        return Seen(n, TriggerEvent.NOTHING)

    def passes(self) -> bool:
        """Take the next labelled event, if counts alone say that nothing happens at it; else `see` it."""
        return not self._asked and self._clock.passes()

    def _first_alarm(self, errors: NDArray[np.float64]) -> int | None:
        """The event at which a detector raises an alarm; none of them sees what comes after it."""
        if not self._watches:
            return None
        for i, error in enumerate((errors != 0.0).tolist()):
            for watch in self._watches:
                watch.update(error)
            if any(watch.alarmed for watch in self._watches):
                return i
        return None

    def due_in(self) -> int | None:
        """After how many further labelled events it fires at the latest, unless a drift alarm comes first.

        None where that depends on event times, on an alarm, or on demand.
        """
        return 1 if self._asked else self._clock.due_in()

    def ask(self) -> None:
        """Fire at the next event, whatever the trigger; at the one after it, where that one raises a drift alarm."""
        self._asked = True

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"asked": self._asked, "clock": self._clock.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave, of a trigger of the same settings.

        Raises
        ------
        ArchiveError
            Where it is no such state.
        """
        try:
            self._asked = _checked(state["asked"], bool)
            self._clock.restore(state["clock"])
        except DAMAGED as error:
            raise ArchiveError(f"not the state of a trigger: {error!r}") from error


class _Clock:
    """What of a trigger runs along the stream; this one never fires."""

    def first(self, times: NDArray[np.float64]) -> int:
        """At which of these events it is due; anything beyond them if at none. What is due stays so until a refit."""
        return _NEVER

    def skip(self, times: NDArray[np.float64]) -> None:
        """Take these events."""

    def passes(self) -> bool:
        """Take an event, where it is plain that nothing happens at it."""
        return False

    def refitted(self) -> None:
        """A refit was begun at the last event."""

    def cut(self) -> None:
        """The last event raised a drift alarm."""

    def due_in(self) -> int | None:
        return None

    def watches(self) -> list[_Watch]:
        """The detectors it listens to."""
        return []

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""


class _Interval(_Clock):
    """Counts down intervals that grow."""

    def __init__(self, first: int, factor: float, most: int) -> None:
        self._first, self._factor, self._most = float(first), float(factor), float(most)
        self.cut()

    def _begin(self, interval: float) -> None:
        self._interval = min(interval, self._most)
        self._left = round(self._interval)

    def first(self, times: NDArray[np.float64]) -> int:
        return max(self._left, 1) - 1

    def skip(self, times: NDArray[np.float64]) -> None:
        self._left = max(self._left - len(times), 0)

    def passes(self) -> bool:
        if self._left > 1:
            self._left -= 1
            return True
        return False

    def refitted(self) -> None:
        self._begin(self._interval * self._factor)

    def cut(self) -> None:
        self._begin(self._first)

    def due_in(self) -> int | None:
        return max(self._left, 1)

    def state(self) -> dict[str, Any]:
        return {"interval": self._interval, "left": self._left}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._interval = _checked(state["interval"], float, self._first, self._most)
        self._left = _checked(state["left"], int, 0, round(self._interval))


class _Timer(_Clock):
    """Waits for event time to pass."""

    def __init__(self, seconds: float) -> None:
        self._seconds = float(seconds)
        self._begun = self._latest = math.nan

    def first(self, times: NDArray[np.float64]) -> int:
        begun = self._begun
        if math.isnan(begun):
            timed = times[np.isfinite(times)]
            begun = timed[0] if len(timed) else math.nan
        if self._latest >= begun + self._seconds:
            return 0
        late = (times >= begun + self._seconds) & (times < math.inf)
        return int(late.argmax()) if late.any() else _NEVER

    def skip(self, times: NDArray[np.float64]) -> None:
        timed = times[np.isfinite(times)]
        if len(timed):
            if math.isnan(self._begun):
                self._begun = float(timed[0])
            self._latest = float(np.fmax(self._latest, timed.max()))

    def refitted(self) -> None:
        self._begun = self._latest

    cut = refitted

    def state(self) -> dict[str, Any]:
        return {"begun": encode_label(self._begun), "latest": encode_label(self._latest)}

    def restore(self, state: Mapping[str, Any]) -> None:
        begun, latest = (_checked(decode_label(state[name]), float) for name in ("begun", "latest"))
        if not (begun <= latest < math.inf or (math.isnan(begun) and math.isnan(latest))):
            raise ValueError(f"event time from {begun} to {latest}")
        self._begun, self._latest = begun, latest


class _Gathering(_Clock):
    """Counts down events after a drift alarm."""

    def __init__(self, gather: int, watch: _Watch) -> None:
        self._gather, self._watch = int(gather), watch
        self._left: int | None = None

    def first(self, times: NDArray[np.float64]) -> int:
        return _NEVER if self._left is None else max(self._left, 1) - 1

    def skip(self, times: NDArray[np.float64]) -> None:
        if self._left is not None:
            self._left = max(self._left - len(times), 0)

    def refitted(self) -> None:
        if self._left == 0:
            self._left = None

    def cut(self) -> None:
        if self._watch.alarmed:
            self._watch.renew()
            self._left = self._gather
        elif self._left is not None:
            self._left = self._gather

    def due_in(self) -> int | None:
        return None if self._left is None else max(self._left, 1)

    def watches(self) -> list[_Watch]:
        return [self._watch]

    def state(self) -> dict[str, Any]:
        return {"left": self._left, "watch": self._watch.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        left = state["left"]
        self._left = None if left is None else _checked(left, int, 0, self._gather)
        self._watch.restore(state["watch"])


class _Earliest(_Clock):
    """Is due when the first of its parts is, and so many events after the last refit."""

    def __init__(self, parts: list[_Clock], distance: int) -> None:
        self._parts, self._distance = parts, int(distance)
        self._left = 0

    def first(self, times: NDArray[np.float64]) -> int:
        return max(min(part.first(times) for part in self._parts), self._left - 1)

    def skip(self, times: NDArray[np.float64]) -> None:
        self._left = max(self._left - len(times), 0)
        for part in self._parts:
            part.skip(times)

    def refitted(self) -> None:
        self._left = self._distance
        for part in self._parts:
            part.refitted()

    def cut(self) -> None:
        for part in self._parts:
            part.cut()

    def due_in(self) -> int | None:
        known = [n for part in self._parts if (n := part.due_in()) is not None]
        return max(min(known), self._left) if known else None

    def watches(self) -> list[_Watch]:
        return [watch for part in self._parts for watch in part.watches()]

    def state(self) -> dict[str, Any]:
        return {"left": self._left, "parts": [part.state() for part in self._parts]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._left = _checked(state["left"], int, 0, self._distance)
        for part, kept in zip(self._parts, state["parts"], strict=True):
            part.restore(kept)


def _checked(value: Any, kind: type, low: float = -math.inf, high: float = math.inf) -> Any:
    """A value of a state, of its type and within its bounds."""
    fits = type(value) is kind
    if not fits or value < low or value > high:
        raise ValueError(f"{value!r} is no {kind.__name__} from {low} to {high}")
    return value


@dataclass(frozen=True)
class _DetectorKind:
    """A detector of River by the name of its class and its parameters: what is compared, saved, and made anew."""

    name: str
    params: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, detector: Any) -> _DetectorKind:
        """Of a detector.

        Raises
        ------
        TypeError, ValueError
            Where it is none of River's, or cannot be made anew as it was.
        """
        name = type(detector).__name__
        if _detectors().get(name) is not type(detector):
            raise TypeError(f"`detector` must be one of river.drift ({', '.join(_detectors())}), got {detector!r}")
        if detector._is_stochastic:
            raise ValueError(f"`detector` {name} draws numbers: give it a `seed`, so that runs repeat")
        params = {k: tuple(v) if isinstance(v, (list, deque)) else v for k, v in detector._get_params().items()}
        kind = cls(name, tuple(params.items()))
        kind.encode()
        kind.check()
        return kind

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.params)})"

    def make(self) -> Any:
        """A fresh detector."""
        return _detectors()[self.name](**dict(self.params))

    def check(self) -> None:
        """Refuse parameters that its class does not take, or that are of no use to a detector that is renewed."""
        counts = [self._check_number(name, value) for name, value in self.params]
        try:
            detector = self.make()
            for n in range(max([_TRIAL, *counts]) + 1):
                detector.update(n % 2)
        except Exception as error:
            raise ValueError(f"`detector` {self} does not work: {error!r}") from error

    def _check_number(self, name: str, value: Any) -> int:
        """Refuse a number out of its range: not all detectors look before they divide by it or reserve its memory.

        Returns
        -------
        int
            The number, where it is a count.
        """
        own = signature(_detectors()[self.name]).parameters.get(name)
        if own is None or name == "seed" or isinstance(value, bool) or not isinstance(value, Real):
            return 0
        is_count = type(own.default) is int and own.default > 0
        check_number(f"{self.name}.{name}", value, int(is_count), RENEWED_AFTER, whole=is_count)
        return int(float(value)) if is_count else 0

    def encode(self) -> dict[str, Any]:
        return {"class": self.name, "params": {name: encode_label(value) for name, value in self.params}}

    @classmethod
    def decode(cls, content: Any) -> _DetectorKind:
        """What `encode` gave."""
        kind = cls(content["class"], tuple((name, decode_label(v)) for name, v in content["params"].items()))
        kind.check()
        return kind


def _detectors() -> dict[str, Any]:
    """River's drift detectors by name."""
    from river import base, drift

    kinds = (base.DriftDetector, base.BinaryDriftDetector)
    found = [*vars(drift).values(), *vars(drift.binary).values()]
    return {kind.__name__: kind for kind in found if isinstance(kind, type) and issubclass(kind, kinds)}


class _Watch:
    """A detector beside the stream, and the errors it was given, by which it is made again from an archive."""

    def __init__(self, kind: _DetectorKind) -> None:
        self._kind = kind
        self.renew()

    def renew(self) -> None:
        """Go on with a fresh detector."""
        self._detector = self._kind.make()
        self._errors = bytearray()

    @property
    def alarmed(self) -> bool:
        """Whether the last error raised an alarm."""
        return bool(self._detector.drift_detected)

    def update(self, error: bool) -> None:
        """Take whether the next prediction was wrong."""
        if len(self._errors) == RENEWED_AFTER:
            self.renew()
        self._errors.append(error)
        self._feed(error)

    def _feed(self, error: int) -> None:
        self._detector.update(int(error != (self._kind.name in _OF_HITS)))

    def state(self) -> dict[str, Any]:
        packed = np.packbits(np.frombuffer(self._errors, np.uint8))
        return {"n": len(self._errors), "errors": base64.b64encode(packed.tobytes()).decode()}

    def restore(self, state: Mapping[str, Any]) -> None:
        n = _checked(state["n"], int, 0, RENEWED_AFTER)
        packed = np.frombuffer(base64.b64decode(state["errors"], validate=True), np.uint8)
        if len(packed) != -(-n // 8):
            raise ValueError(f"{len(packed)} bytes do not hold {n} errors")
        self.renew()
        self._errors.extend(np.unpackbits(packed, count=n).tobytes())
        for error in self._errors:
            self._feed(error)


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
        if own.init:
            content[own.name] = _encode_field(own.name, settings)
    return content


def _encode_field(name: str, settings: Any) -> Any:
    if name == "triggers":
        return [encode(trigger) for trigger in settings.triggers]
    if name == "detector":
        return settings._kind.encode()
    return encode_label(getattr(settings, name))


def decode(content: Any) -> Trigger:
    """The settings that `encode` was given; of classes, only triggers and River's drift detectors are made.

    Raises
    ------
    ArchiveError
        Where it holds anything else.
    """
    try:
        kind, params = _KINDS[content["class"]], {k: v for k, v in content.items() if k != "class"}
        triggers = [decode(part) for part in params.pop("triggers")] if kind is FirstOf else []
        if kind is OnDrift:
            params["detector"] = _DetectorKind.decode(params["detector"]).make()
        settings: Trigger = kind(*triggers, **{k: decode_label(v) if k != "detector" else v for k, v in params.items()})
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
    parts = text.split("+")
    try:
        triggers = [_single(*part.strip().split(":")) for part in parts]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is no trigger ({error}); it may be {_FORMS}") from error
    return triggers[0] if len(triggers) == 1 else FirstOf(*triggers)


def seconds_of(text: str) -> float | None:
    """A duration such as "90s", "30m", "12h" or "1d" in seconds; None where the text is none.

    Examples
    --------
    >>> seconds_of("1.5h"), seconds_of("1.5")
    (5400.0, None)
    """
    found = _DURATION.fullmatch(text)
    return float(found[1]) * _SECONDS[found[2]] if found else None


def _single(name: str, *values: str) -> Trigger:
    if (seconds := seconds_of(name)) is not None:
        _take(values, ())
        return EveryTime(seconds)
    if name == "growing":
        return Growing(*_take(values, (int, float, int)))
    if name == "drift":
        return OnDrift(*_take(values or ("HDDMA",), (_detector_of, int)))
    if name == "demand":
        return OnDemand(*_take(values, ()))
    return Every(*_take(values if name == "every" else (name, *values), (int,)))


def _take(values: tuple[str, ...], kinds: tuple[Any, ...]) -> list[Any]:
    """Values of these types, at most as many."""
    if len(values) > len(kinds):
        raise ValueError(f"{values[len(kinds)]!r} is one value too many")
    return [kind(value) for kind, value in zip(kinds, values, strict=False)]


def _detector_of(name: str) -> Any:
    """A detector of that class with its defaults, seeded if it draws numbers."""
    if name not in _detectors():
        raise ValueError(f"{name!r} is none of River's detectors: {', '.join(_detectors())}")
    detector = _detectors()[name]()
    return detector.clone({"seed": 0}) if detector._is_stochastic else detector
