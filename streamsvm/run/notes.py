"""Warnings during a run: sorted labels, labels unlike classes, and many rejected events."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any

from connectors.notices import Notices
from streamsvm.labels import stranger_notices
from streamsvm.run.metrics import Metrics

_HALF = 0.5  # share of a file after which sorted labels are reported
_LOOK = 100  # events between two checks of the rejected ones
_WARN_AGAIN_S = 60.0

logger = logging.getLogger("streamsvm.run")


class Notes:
    """Warnings during a run.

    Parameters
    ----------
    source
        Name of the stream.
    metrics
        The counts so far.
    learns
        Whether the model learns.
    """

    def __init__(self, source: str, metrics: Metrics, *, learns: bool) -> None:
        self._source, self._metrics, self._learns = source, metrics, learns
        self._is_sorted = False
        self._strange = Notices(logger)
        self._looked = (metrics.events, metrics.rejected)
        self._warn_at = -math.inf

    @property
    def texts(self) -> list[str]:
        """Warnings that still apply."""
        order = self._metrics.order_notice if self._is_sorted else ""  # empty once an earlier label returns
        return [*self._strange.texts, *([order] if order else [])]

    def look(self, classes: Sequence[Any], fraction: float) -> None:
        """Check the labels so far, after a batch.

        Sorted labels are reported once, after half of a file, or at the end of another stream. The first events are no
        evidence, because persistent labels come in runs but return.
        """
        metrics = self._metrics
        if self._learns and not self._is_sorted and fraction >= _HALF and (notice := metrics.order_notice):
            self._is_sorted = True
            logger.warning("%s: %s", self._source, notice)
        if classes and not self._learns and len(metrics.labels) > len(classes):
            came = [label for label, n in zip(metrics.labels, metrics.seen.tolist(), strict=False) if n]
            self._strange.say(*stranger_notices(came, classes))

    def count_rejects(self, reason: str) -> None:
        """Warn, at most once a minute, if more than half of the recent events were rejected."""
        metrics, now = self._metrics, time.monotonic()
        predicted, rejected = metrics.events - self._looked[0], metrics.rejected - self._looked[1]
        if predicted + rejected < _LOOK:
            return
        self._looked = (metrics.events, metrics.rejected)
        if rejected > predicted and now >= self._warn_at:
            self._warn_at = now + _WARN_AGAIN_S
            logger.warning(
                "%s: of the last %s events %s were rejected, the last one: %s",
                *(self._source, f"{predicted + rejected:,}", f"{rejected:,}", reason),
            )
