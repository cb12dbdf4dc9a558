"""Progress of a run: a line redrawn on a terminal, else log lines."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TextIO

from streamsvm.run.estimate import Estimated
from streamsvm.run.formatting import span, width_of
from streamsvm.run.history import RefitSummary
from streamsvm.run.late_labels import JoinStage
from streamsvm.run.report import Report

_DRAW_S = 0.1

logger = logging.getLogger("streamsvm.run")


class Progress:
    """An observer of a run that shows its progress.

    Parameters
    ----------
    stream
        Where to draw; if it is no terminal, lines are logged.
    every_s
        Seconds between two log lines.
    """

    def __init__(self, stream: TextIO, every_s: float = 5.0) -> None:
        self._stream = stream if stream.isatty() else None
        self._every_s = every_s if self._stream is None else _DRAW_S
        self._at = time.monotonic() if self._stream is None else 0.0
        self._last: tuple[Report, float | None] | None = None

    def __call__(self, report: Report, fraction: float | None) -> None:
        self._last = report, fraction
        now = time.monotonic()
        if now - self._at >= self._every_s:
            self._at = now
            if self._stream is None:
                logger.info("%s", _line(report, fraction))
            else:
                self._draw(self._stream, report, fraction)

    def _draw(self, stream: TextIO, report: Report, fraction: float | None, end: str = "") -> None:
        width = width_of(stream)
        with contextlib.suppress(OSError):  # the terminal may be closed
            stream.write(f"\r{_line(report, fraction)[:width].ljust(width)}{end}")
            stream.flush()

    def close(self) -> None:
        """Draw the final state."""
        if self._stream is not None and self._last is not None:
            self._draw(self._stream, *self._last, end="\n")


def _line(report: Report, fraction: float | None) -> str:
    share = "" if fraction is None else f"{fraction:.0%}, "
    left = f", {span(report.seconds * (1.0 / fraction - 1.0))} left" if fraction and fraction < 1.0 else ""
    return f"{share}{report.metrics.taken:,} events, {report.rate:,.0f}/s{left}{_quality(report)}"


def _quality(report: Report) -> str:
    metrics = report.metrics
    parts = []
    if metrics.judged:
        recent = f"recent accuracy {metrics.recent_accuracy:.4f} (last {metrics.measures.n_recent:,})"
        parts.append(f"accuracy {metrics.accuracy:.4f}, {recent}")
    if report.late is not None:
        parts.append(_late(report.late, report.estimated))
    if report.refits is not None and report.refits.last:
        parts.append(_refits(report.refits))
    if report.monitor is not None and (n := report.monitor.counts.total()):
        parts.append(f"{n:,} alarms")
    if metrics.rejected:
        parts.append(f"{metrics.rejected:,} rejected")
    if report.lag is not None:
        parts.append(f"lag {sum(report.lag.values()):,}")
    if report.stalls:
        parts.append(f"stalled {report.stalls:,} times")
    if report.checkpoint is not None and report.checkpoint.age is not None:
        parts.append(f"checkpoint {report.checkpoint.age:.0f} s old")
    return "".join(f", {part}" for part in parts)


def _late(late: JoinStage, now: Estimated) -> str:
    median = late.lags.quantile(0.5)
    estimate = f"estimated now {now.accuracy:.4f} ± {now.error:.4f}, " if now.events else ""
    behind = f", {span(median / 1000.0)} late" if median == median else ""
    n_joined = late.store.counts["answered"]
    return f"{estimate}{n_joined:,} labels joined{behind}, {late.store.n_waiting:,} events wait"


def _refits(refits: RefitSummary) -> str:
    last = refits.last[-1]["outcome"].partition(":")[0]
    return f"{refits.count:,} refits, the last {last}, {refits.share:.0%} of the vote"
