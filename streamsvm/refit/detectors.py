"""Progress of single triggers in a stream, and settings of drift detectors."""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from inspect import signature
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import decode_label, encode_label, real, whole
from streamsvm.parameters import ParameterError, ParameterTypeError, check_number

if TYPE_CHECKING:
    from streamsvm.refit.triggers import Trigger

# Events after which a detector restarts at the latest, because loading an archive repeats them.
RENEWED_AFTER = 100_000
# Every detector is tried on at least this many errors, so that wrong parameters fail before the stream starts.
_TRIAL = 64
# Detectors of a decreasing mean, which get hits instead of errors.
_OF_HITS = ("FHDDM",)
NEVER = 1 << 62
"""Number of events until a trigger that does not count events is due."""


def _detectors() -> dict[str, Any]:
    """Return River's drift detectors by name."""
    from river import base, drift

    kinds = (base.DriftDetector, base.BinaryDriftDetector)
    found = [*vars(drift).values(), *vars(drift.binary).values()]
    return {kind.__name__: kind for kind in found if isinstance(kind, type) and issubclass(kind, kinds)}


def detector_named(name: str) -> Any:
    """Return a detector with default parameters, seeded if it is random."""
    if name not in _detectors():
        raise ValueError(f"{name!r} is not a detector of River: {', '.join(_detectors())}")
    detector = _detectors()[name]()
    return detector.clone({"seed": 0}) if detector._is_stochastic else detector


@dataclass(frozen=True)
class DetectorSpec:
    """A River detector as class name and parameters."""

    name: str
    params: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, detector: Any) -> DetectorSpec:
        """Return the class and parameters of a detector.

        Raises
        ------
        TypeError, ValueError
            If it is not a detector of River, or random without a seed.
        """
        name = type(detector).__name__
        if _detectors().get(name) is not type(detector):
            raise ParameterTypeError(
                "detector", f"must be one of river.drift ({', '.join(_detectors())}), got {detector!r}"
            )
        params = {k: tuple(v) if isinstance(v, (list, deque)) else v for k, v in detector._get_params().items()}
        spec = cls(name, tuple(params.items()))
        spec.encode()
        return spec.checked()

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.params)})"

    def make(self) -> Any:
        """Return a new detector."""
        return _detectors()[self.name](**dict(self.params))

    def checked(self) -> DetectorSpec:
        """Refuse parameters that do not work."""
        counts = [self._check_number(name, value) for name, value in self.params]
        try:
            detector = self.make()
            for n in range(max([_TRIAL, *counts]) + 1):
                detector.update(n % 2)
        except Exception as error:
            raise ParameterError("detector", f"{self} does not work: {error!r}") from error
        if detector._is_stochastic:
            raise ParameterError("detector", f"{self.name} is random: set its `seed` for reproducible runs")
        return self

    def _check_number(self, name: str, value: Any) -> int:
        """Refuse a number out of range, and return it if it is a count, else 0.

        Not all detectors of River check their parameters.
        """
        own = signature(_detectors()[self.name]).parameters.get(name)
        if own is None or name == "seed" or isinstance(value, bool) or not isinstance(value, Real):
            return 0
        is_count = type(own.default) is int and own.default > 0
        check_number(f"{self.name}.{name}", value, int(is_count), RENEWED_AFTER, whole=is_count)
        return int(float(value)) if is_count else 0

    def encode(self) -> dict[str, Any]:
        """Return the spec as JSON values."""
        return {"class": self.name, "params": {name: encode_label(value) for name, value in self.params}}

    @classmethod
    def decode(cls, content: Any) -> DetectorSpec:
        """Return the spec from `encode`."""
        return cls(content["class"], tuple((k, decode_label(v)) for k, v in content["params"].items())).checked()


class RunningDetector:
    """A detector and the errors since its last restart. It restarts after an alarm.

    Parameters
    ----------
    spec
        The detector.
    most
        It restarts after this many errors; None for `RENEWED_AFTER`.

    Attributes
    ----------
    alarmed
        Whether the last error raised an alarm.
    """

    def __init__(self, spec: DetectorSpec, most: int | None = None) -> None:
        self._spec, self._most, self._takes_hits = spec, most or RENEWED_AFTER, spec.name in _OF_HITS
        self._restart()

    def _restart(self) -> None:
        self._detector = self._spec.make()
        self._errors, self.alarmed = bytearray(), False

    @property
    def has_increased(self) -> bool:
        """After an alarm, whether errors have increased."""
        return bool(self._detector.estimation > sum(self._errors) / len(self._errors))

    @property
    def width(self) -> int:
        """Number of errors in the detector's window."""
        return int(self._detector.width)

    def update(self, error: bool) -> bool:
        """Add the error of the next prediction, and return whether it raises an alarm."""
        if self.alarmed or len(self._errors) == self._most:
            self._restart()
        self._errors.append(error)
        self._detector.update(int(error != self._takes_hits))
        self.alarmed = bool(self._detector.drift_detected)
        return self.alarmed

    def state(self) -> dict[str, Any]:
        """Return the errors since the last restart as JSON values."""
        packed = np.packbits(np.frombuffer(self._errors, np.uint8))
        return {"n": len(self._errors), "errors": base64.b64encode(packed.tobytes()).decode()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restart the detector and repeat the errors of a state."""
        n = whole(state["n"], 0, self._most)
        packed = np.frombuffer(base64.b64decode(state["errors"], validate=True), np.uint8)
        if len(packed) != -(-n // 8):
            raise ValueError(f"{len(packed)} bytes do not contain {n} errors")
        self._restart()
        for error in np.unpackbits(packed, count=n).tolist():
            self.update(bool(error))


class TriggerEvent(Enum):
    """Effect of an event.

    All intervals restart at a cut and at a refit, whichever trigger fired.
    """

    NOTHING = "nothing"
    CUT = "cut"  # a detector raised an alarm: earlier events leave the window, and growing intervals are short again
    REFIT = "refit"  # solve the window


class Seen(NamedTuple):
    """Number of events processed, and the effect of the last one."""

    n: int
    event: TriggerEvent


class SingleTriggerState:
    """State of a single trigger in a stream."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self.left: int | None = None  # labelled events until it is due; None if it does not count
        self.interval = 0.0
        self.begun = self.latest = math.nan  # event time at the start of the interval, and the latest one so far
        self.gathers = trigger.gathers
        self.detector = None if trigger.spec is None else RunningDetector(trigger.spec)
        self.restart(TriggerEvent.CUT)

    def due(self, times: NDArray[np.float64]) -> int:
        """Return the index of the first event at which the trigger is due.

        Without such an event, the index is at least the number of events.
        """
        if self.left is not None:
            return max(self.left, 1) - 1
        if self._trigger.period == math.inf:
            return NEVER
        due = self._start(times) + self._trigger.period
        if self.latest >= due:
            return 0
        late = np.flatnonzero((times >= due) & (times < math.inf))
        return int(late[0]) if len(late) else NEVER

    def advance(self, times: NDArray[np.float64]) -> None:
        """Process events up to the next refit or cut."""
        if self.left is not None:
            self.left = max(self.left - len(times), 0)
        if self._trigger.period < math.inf:
            self.begun = self._start(times)
            self.latest = float(np.fmax.reduce(times[np.isfinite(times)], initial=self.latest))

    def _start(self, times: NDArray[np.float64]) -> float:
        """Return the start of the interval, which may be the first of these times."""
        timed = times[np.isfinite(times)]
        return float(timed[0]) if math.isnan(self.begun) and len(timed) else self.begun

    def restart(self, event: TriggerEvent) -> None:
        """Restart after a refit or a cut at the last event."""
        first, factor, most = self._trigger.lengths
        self.begun = self.latest
        if first:
            self.interval = min(float(first if event is TriggerEvent.CUT else self.interval * factor), float(most))
            self.left = round(self.interval)
        elif event is TriggerEvent.REFIT:
            self.left = self.left or None  # 0 if it was due itself
        elif self.left is not None or (self.detector is not None and self.detector.alarmed):
            self.left = most

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "left": self.left,
            "interval": self.interval,
            "begun": encode_label(self.begun),
            "latest": encode_label(self.latest),
            "detector": None if self.detector is None else self.detector.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state` of this trigger."""
        most = self._trigger.lengths[-1]
        self.interval = real(state["interval"], self.interval, max(self.interval, most))
        if state["left"] is not None or self.left is not None:
            self.left = whole(state["left"], 0, round(self.interval) or most)
        begun, latest = (float(decode_label(state[name])) for name in ("begun", "latest"))
        if not (-math.inf < begun <= latest < math.inf or (math.isnan(begun) and math.isnan(latest))):
            raise ValueError(f"event time from {begun} to {latest}")
        self.begun, self.latest = begun, latest
        if self.detector is not None:
            self.detector.restore(state["detector"])
