"""Annotations of the curves of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamsvm.names import shown
from streamsvm.run.metrics import Metrics
from streamsvm.run.standing import Report

_MOST, _MOST_NEW = 400, 12
_NEW_AFTER = 1_000  # judged events; an earlier class is not new
_LONGEST = 300


class Annotations:
    """Annotations of the curves with their times: detected drift, refits and new classes."""

    def __init__(self) -> None:
        self._all: deque[dict[str, Any]] = deque(maxlen=_MOST)
        self._falls = self._classes = 0
        self._before = self._now = (0.0, 0)  # the last two points: time and judged events
        self._refits: dict[int, str] = {}
        self._new: deque[dict[str, Any]] = deque(maxlen=_MOST_NEW)

    def begin(self, report: Report) -> None:
        """Add events before this process, whose times are unknown."""
        if report.resumed is not None:
            self._now = 0.0, report.metrics.judged
            self._look(report, is_now=False)
            self._classes = int(np.count_nonzero(report.metrics.seen))

    def take(self, report: Report, now: float) -> None:
        """Add new annotations.

        Parameters
        ----------
        report
            The run.
        now
            Time of the next point.
        """
        self._before = self._now[0] or now, self._now[1]
        self._now = now, report.metrics.judged
        self._look(report, is_now=True)
        self._look_at_classes(report.metrics)

    def _look(self, report: Report, *, is_now: bool) -> None:
        falls = report.metrics.falls
        for fall in falls.last[-(falls.count - self._falls) :] if falls.count > self._falls else []:
            self._add("drift", fall.judged, f"accuracy fell from {fall.before:.3f} to {fall.after:.3f}", is_now)
        self._falls = falls.count
        for refit in report.refits.last if report.refits is not None else []:
            self._take_refit(refit, report, is_now)

    def _take_refit(self, refit: Mapping[str, Any], report: Report, is_now: bool) -> None:
        outcome, number = str(refit["outcome"]), int(refit["number"])
        known = self._refits.get(number)
        event = int(refit["entered"]) - report.learned_before
        if event <= 0 or known == outcome:
            return
        self._refits[number] = outcome
        if len(self._refits) > _MOST:
            del self._refits[min(self._refits)]
        name = f"{number} by {refit['solver']}"
        if known is None or outcome.startswith("failed"):
            self._add("refit", event, f"{name} on {refit['events']:,} events: {shown(outcome, _LONGEST)}", is_now)

    def _look_at_classes(self, metrics: Metrics) -> None:
        n = int(np.count_nonzero(metrics.seen))
        if n > self._classes and self._before[1] >= _NEW_AFTER:
            labels, seen = metrics.labels, metrics.seen
            for code in [c for c in range(self._classes, len(seen)) if seen[c]][-_MOST_NEW:]:
                name = shown(labels[code])
                self._new.append({"name": name, "at": self._now[0], "judged": metrics.judged})
                self._add("class", metrics.judged, name, True)
        self._classes = max(n, self._classes)

    def _add(self, kind: str, judged: int, text: str, is_now: bool) -> None:
        """Add an annotation, at a time interpolated between the last two points by the number of judged events."""
        (time0, judged0), (time1, judged1) = self._before, self._now
        at = time1 - (time1 - time0) * min(max(judged1 - judged, 0) / max(judged1 - judged0, 1), 1.0)
        self._all.append({"kind": kind, "at": at if is_now else None, "judged": judged, "text": text})

    @property
    def all(self) -> list[dict[str, Any]]:
        """All annotations, oldest first."""
        return list(self._all)

    @property
    def classes(self) -> dict[str, Any]:
        """Number of classes, and the new classes."""
        return {"count": self._classes, "new": list(reversed(self._new))}
