"""Sensor readings of a machine that wears out, for demonstrations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Mean and standard deviation of each sensor.
_SENSORS = {
    "temperature": (70.0, 8.0),
    "vibration": (2.0, 0.5),
    "pressure": (30.0, 4.0),
    "flow": (12.0, 1.5),
    "current": (8.0, 1.0),
    "speed": (1450.0, 30.0),
    "load": (60.0, 15.0),
    "humidity": (45.0, 10.0),
}
# Sensors that tell the state, by the part that wears out, with the sign of their effect.
_FAULTS = (
    (("vibration", 1.0), ("temperature", 1.0)),  # a bearing
    (("pressure", -1.0), ("flow", -1.0)),  # a seal
    (("current", 1.0), ("speed", -1.0)),  # the motor
)
_BLOCK = 1000


class Machine:
    """Readings of eight sensors of a machine, labelled "ok" or "worn".

    Parameters
    ----------
    fault
        The part that wears out: 0 a bearing (vibration and temperature rise), 1 a seal (pressure and flow fall), 2 the
        motor (current rises and speed falls).
    noise
        Share of events with the other label.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> reading, state = next(iter(Machine(seed=1)))
    >>> reading["vibration"], state
    (2.41, 'worn')
    """

    def __init__(self, fault: int = 0, noise: float = 0.01, seed: int = 0) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ValueError(f"`noise` must be a share from 0 to 1, got {noise!r}")
        self.fault, self.noise, self.seed = fault, noise, seed

    def __iter__(self) -> Iterator[tuple[dict[str, float], str]]:
        rng, names = np.random.default_rng(self.seed), list(_SENSORS)
        mean, spread = np.array(list(_SENSORS.values())).T
        (one, sign), (other, other_sign) = _FAULTS[self.fault]
        while True:
            deviations = rng.normal(size=(_BLOCK, len(names)))
            a, b = sign * deviations[:, names.index(one)], other_sign * deviations[:, names.index(other)]
            is_worn = (a + b + a * b > 0.5) ^ (rng.random(_BLOCK) < self.noise)
            readings = np.round(mean + spread * deviations, 2).tolist()
            for reading, worn in zip(readings, is_worn.tolist(), strict=True):
                yield dict(zip(names, reading, strict=True)), "worn" if worn else "ok"
