"""Progress of a single trigger in a stream."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import decode_label, encode_label, real, whole
from streamsvm.refit.detectors import RunningDetector

if TYPE_CHECKING:
    from streamsvm.refit.triggers import Trigger

NEVER = sys.maxsize
"""Number of events until a trigger is due that something else decides."""


class TriggerEvent(Enum):
    """Effect of an event. All intervals restart at a cut and at a refit, whichever trigger fired."""

    NOTHING = "nothing"
    CUT = "cut"  # a detector raised an alarm: earlier events leave the window, and growing intervals are short again
    REFIT = "refit"  # solve the window


class Seen(NamedTuple):
    """Number of events processed, and the effect of the last one."""

    n: int
    event: TriggerEvent


class Progress:
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
        """Return the index of the first event at which the trigger is due; not below the number of events if none."""
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
        """Return the start of the interval: the first event time, unless the interval has started."""
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
