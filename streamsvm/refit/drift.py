"""Trigger of refits by a drift detector."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamsvm.parameters import check_number
from streamsvm.refit.detectors import DetectorSpec, RunningDetector
from streamsvm.refit.triggers import LONGEST, Progress, Trigger, TriggerEvent


@dataclass(frozen=True)
class OnDrift(Trigger):
    """Cuts the window at a drift alarm, and fires after a number of events of the new concept.

    Another alarm in between cuts the window and restarts the count. The detector receives the errors: 1 for a wrong
    prediction, 0 for a right one. The detectors of `river.drift.binary` look for an increase of errors. ADWIN, KSWIN
    and PageHinkley look for any change, so they also raise an alarm when a learner improves.

    Parameters
    ----------
    detector
        A detector of `river.drift` or `river.drift.binary`. Only its parameters are used. The trigger runs a new
        detector of that kind, which restarts after each alarm and after 100,000 events at the latest.
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
    >>> running.see(np.zeros(2000), errors)
    Seen(n=1024, event=<TriggerEvent.CUT: 'cut'>)
    >>> running.see(np.zeros(976), errors[1024:])
    Seen(n=300, event=<TriggerEvent.REFIT: 'refit'>)
    """

    detector: Any = field(compare=False)
    gather: int = 500
    _spec: DetectorSpec = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("gather", self.gather, 1, LONGEST, whole=True)
        object.__setattr__(self, "_spec", DetectorSpec.of(self.detector))
        object.__setattr__(self, "_lengths", (0, 1.0, int(self.gather)))

    def __repr__(self) -> str:
        return f"OnDrift({self._spec}, gather={self.gather!r})"

    def start(self) -> Progress:
        return Progress(detector=RunningDetector(self._spec))

    def _restart(self, at: Progress, event: TriggerEvent) -> None:
        (detector,) = at.detectors()
        if event is TriggerEvent.REFIT:
            at.left = at.left or None  # 0 if it was due itself
        elif detector.alarmed or at.left is not None:
            at.left = int(self.gather)
