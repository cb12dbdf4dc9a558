"""River's drift detectors, stored as class, parameters and the errors since the last restart."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np

from streamsvm.models.archive import decode_label, encode_label, whole
from streamsvm.parameters import ParameterError, ParameterTypeError, check_number

# Events after which a detector restarts at the latest, because loading an archive repeats them.
RENEWED_AFTER = 100_000
# Every detector is tried on at least this many errors, so that wrong parameters fail at once.
_TRIAL = 64
# Detectors of a decreasing mean, which get hits instead of errors.
_OF_HITS = ("FHDDM",)


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
        """Refuse a number out of range, which not all detectors check. Return it if it is a count, else 0."""
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
        """Add the error (true or false) of the next prediction; return whether it raises an alarm."""
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
