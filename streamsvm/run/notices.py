"""Warnings about labels, and rejected events by reason, in bounded memory."""

from __future__ import annotations

import logging
import math
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from connectors.events import Rejected
from connectors.notices import CountNotice, Notice, Notices, grouped, separated
from connectors.streams import Source
from streamsvm.labels import stranger_notices
from streamsvm.models.codec import SavedState
from streamsvm.names import shown
from streamsvm.run.history import notices_of
from streamsvm.run.metrics import Metrics

_HALF = 0.5  # share of a file after which sorted labels are reported
# A class that occurs only in the last event is reported among this many classes and labels.
_FEWEST, _MANY = 3, 50
_CHECK_EVENTS = 100  # events between two checks of the rejected ones
_WARN_AGAIN_S = 60.0
_VALUES = re.compile(r"(?<=: )('[^']*'|\"[^\"]*\")|\d[\d.,]*")  # values that differ between events with a common reason
_MOST_REASONS, _MOST_FIRST, _MOST_LAST = 20, 3, 5
_OTHERS = "other reasons"

logger = logging.getLogger("streamsvm.run")


def rejection(one: Rejected, longest: int = 300) -> str:
    """Return the place and the reason of a rejected record on one line.

    Examples
    --------
    >>> rejection(Rejected("the label is missing", {"stream": "labels", "offset": 7}))
    'stream labels, offset 7: the label is missing'
    """
    return f"{place_text(one, longest)}: {shown(one.reason, longest)}"


def place_text(one: Rejected, longest: int = 40) -> str:
    """Return the place of a rejected record on one line."""
    return ", ".join(f"{name} {shown(value, longest)}" for name, value in one.origin.items())


class RunNotices:
    """Warnings during a run, and those of its source, also from before a resumption.

    Parameters
    ----------
    source
        The stream.
    metrics
        The counts so far.
    learns
        Whether the model learns.
    """

    def __init__(self, source: Source, metrics: Metrics, *, learns: bool) -> None:
        self._source, self._metrics, self._learns = source, metrics, learns
        self._before: list[Notice] = []
        self._is_sorted, self._last = False, ""
        self._strange = Notices(logger)
        self._checked = (0, 0)
        self._warn_at = -math.inf

    @property
    def of_source(self) -> list[str]:
        """Warnings of the source, each once."""
        return grouped(self._notices)

    @property
    def _notices(self) -> list[Notice]:
        return separated([*self._before, *notices_of(self._source)])

    @property
    def of_labels(self) -> list[str]:
        """Warnings about labels that still apply."""
        metrics = self._metrics
        order = metrics.order.notice(metrics.labels) if self._is_sorted else ""  # empty once an earlier label returns
        return [*self._strange.texts, *([order] if order else []), *([self._last] if self._last else [])]

    def check_labels(self, classes: Sequence[Any], fraction: float) -> None:
        """Check the labels so far, after a batch.

        Sorted labels are reported once, after half of a file, or at the end of another stream. The first events are no
        evidence, because persistent labels come in runs but return.
        """
        metrics = self._metrics
        is_open = self._learns and not self._is_sorted and fraction >= _HALF
        if is_open and (notice := metrics.order.notice(metrics.labels)):
            self._is_sorted = True
            logger.warning("%s: %s", self._source.name, notice)
        if classes and not self._learns and len(metrics.labels) > len(classes):
            arrived = [label for label, n in zip(metrics.labels, metrics.seen.tolist(), strict=False) if n]
            self._strange.warn(*stranger_notices(arrived, classes))

    def look_at_last(self) -> None:
        """Check the last label of a stream: rows below a table often summarise it."""
        metrics, seen = self._metrics, self._metrics.seen
        if not self._learns or (seen > 0).sum() < _FEWEST or seen.sum() < _MANY or (seen == 1).sum() != 1:
            return
        if seen[metrics.last] == 1:
            label = shown(repr(metrics.labels[metrics.last]))
            self._last = f"class {label} occurs only in the last event: remove the row if it summarises the others"
            logger.warning("%s: %s", self._source.name, self._last)

    def count_rejects(self, last: Rejected) -> None:
        """Warn, at most once a minute, if most recent events were rejected."""
        metrics, now = self._metrics, time.monotonic()
        predicted, rejected = metrics.events - self._checked[0], metrics.rejected - self._checked[1]
        if predicted + rejected < _CHECK_EVENTS:
            return
        self._checked = (metrics.events, metrics.rejected)
        if rejected > predicted and now >= self._warn_at:
            self._warn_at = now + _WARN_AGAIN_S
            logger.warning(
                "%s: of the last %s events %s were rejected, the last one: %s",
                *(self._source.name, f"{predicted + rejected:,}", f"{rejected:,}", rejection(last)),
            )

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays, without what the source restores."""
        return {
            "of_source": [(one, one.kind, one.name) for one in self._notices if not isinstance(one, CountNotice)]
        }, {}

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`, after the metrics."""
        self._before = [Notice(*one) for one in state[0].get("of_source", ())]
        self._checked = (self._metrics.events, self._metrics.rejected)


class Rejects:
    """Counts of rejected events by reason, and the first and last events.

    Attributes
    ----------
    reasons
        Number of events by reason, without values; after 20 reasons, others are counted together.
    first, last
        The first three events, and the last five.

    Examples
    --------
    >>> rejects = Rejects()
    >>> rejects.add([Rejected(f"'x' is not a number: {text!r}", {"line": 3}) for text in ("oops", "?!")])
    >>> rejects.reasons
    Counter({"'x' is not a number: …": 2})
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.first: list[Rejected] = []
        self.last: deque[Rejected] = deque(maxlen=_MOST_LAST)

    def add(self, rejected: Iterable[Rejected]) -> None:
        """Add rejected events."""
        for one in rejected:
            reason = _VALUES.sub("…", one.reason[:300])
            known = reason in self.reasons or len(self.reasons) < _MOST_REASONS
            self.reasons[reason if known else _OTHERS] += 1
            self.first += [one] if len(self.first) < _MOST_FIRST else []
            self.last.append(one)
