"""River's drift detectors beside a stream, saved as their class, their parameters and the errors they were given."""

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
from streamsvm.parameters import check_number

# Events after which a detector is replaced by a new one at the latest: an archive replays as many when it is loaded.
RENEWED_AFTER = 100_000
# Every detector is tried on so many errors, and as many as fill its windows, so that wrong parameters fail at once.
_TRIAL = 64
# Detectors that raise an alarm where the mean falls, and so are given hits in place of errors.
_OF_HITS = ("FHDDM",)


def _detectors() -> dict[str, Any]:
    """River's drift detectors by name."""
    from river import base, drift

    kinds = (base.DriftDetector, base.BinaryDriftDetector)
    found = [*vars(drift).values(), *vars(drift.binary).values()]
    return {kind.__name__: kind for kind in found if isinstance(kind, type) and issubclass(kind, kinds)}


def detector_named(name: str) -> Any:
    """A detector of that class with its defaults, seeded if it draws numbers."""
    if name not in _detectors():
        raise ValueError(f"{name!r} is none of River's detectors: {', '.join(_detectors())}")
    detector = _detectors()[name]()
    return detector.clone({"seed": 0}) if detector._is_stochastic else detector


@dataclass(frozen=True)
class DetectorSpec:
    """A detector of River by the name of its class and its parameters."""

    name: str
    params: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, detector: Any) -> DetectorSpec:
        """The class and parameters of a detector.

        Raises
        ------
        TypeError, ValueError
            Where it is none of River's, or cannot be made again with equal results.
        """
        name = type(detector).__name__
        if _detectors().get(name) is not type(detector):
            raise TypeError(f"`detector` must be one of river.drift ({', '.join(_detectors())}), got {detector!r}")
        if detector._is_stochastic:
            raise ValueError(f"`detector` {name} draws numbers: give it a `seed`, so that runs repeat")
        params = {k: tuple(v) if isinstance(v, (list, deque)) else v for k, v in detector._get_params().items()}
        spec = cls(name, tuple(params.items()))
        spec.encode()
        return spec._check()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.params)})"

    def make(self) -> Any:
        """A new detector."""
        return _detectors()[self.name](**dict(self.params))

    def _check(self) -> DetectorSpec:
        """Refuse parameters that its class does not take, or that are of no use to a detector that is renewed."""
        counts = [self._check_number(name, value) for name, value in self.params]
        try:
            detector = self.make()
            for n in range(max([_TRIAL, *counts]) + 1):
                detector.update(n % 2)
        except Exception as error:
            raise ValueError(f"`detector` {self} does not work: {error!r}") from error
        return self

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
        """The spec for JSON."""
        return {"class": self.name, "params": {name: encode_label(value) for name, value in self.params}}

    @classmethod
    def decode(cls, content: Any) -> DetectorSpec:
        """The spec that `encode` wrote."""
        return cls(content["class"], tuple((k, decode_label(v)) for k, v in content["params"].items()))._check()


class RunningDetector:
    """A detector beside the stream, and the errors it was given."""

    def __init__(self, spec: DetectorSpec) -> None:
        self._spec = spec
        self.renew()

    def renew(self) -> None:
        """Continue with a new detector."""
        self._detector = self._spec.make()
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
        self._detector.update(int(error != (self._spec.name in _OF_HITS)))

    def state(self) -> dict[str, Any]:
        """The errors since it was renewed, for JSON."""
        packed = np.packbits(np.frombuffer(self._errors, np.uint8))
        return {"n": len(self._errors), "errors": base64.b64encode(packed.tobytes()).decode()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Give a new detector the errors of a state."""
        n = whole(state["n"], 0, RENEWED_AFTER)
        packed = np.frombuffer(base64.b64decode(state["errors"], validate=True), np.uint8)
        if len(packed) != -(-n // 8):
            raise ValueError(f"{len(packed)} bytes do not hold {n} errors")
        self.renew()
        for error in np.unpackbits(packed, count=n).tolist():
            self.update(bool(error))
