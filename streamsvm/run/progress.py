"""Progress of a run: a bar on a terminal, else a log line every few seconds."""

from __future__ import annotations

import logging
import time
from typing import Any, TextIO

from streamsvm.core.clock import working_time
from streamsvm.run.abilities import Refits
from streamsvm.run.late import JoinStage
from streamsvm.run.names import span
from streamsvm.run.standing import Report

logger = logging.getLogger("streamsvm.run")


class Lines:
    """A log line every few seconds.

    Parameters
    ----------
    every_s
        Seconds between two lines.
    """

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s = every_s
        self._at = working_time()
        self._events = 0

    def __call__(self, report: Report, fraction: float | None) -> None:
        now = working_time()
        if now - self._at < self._every_s:
            return
        rate = (report.events - self._events) / (now - self._at)
        self._at, self._events = now, report.events
        logger.info(
            "%s", "".join([_share(fraction), f"{report.metrics.taken:,} events, {rate:,.0f}/s", _quality(report)])
        )

    def close(self) -> None:
        """Do nothing: no resource is open."""


class Bar:
    """A progress bar; the total number of events is estimated from the share read."""

    def __init__(self, stream: TextIO) -> None:
        from tqdm import tqdm

        # Nothing is drawn before the first batch, after compilation and its messages.
        settings = {"unit": " events", "unit_scale": True, "dynamic_ncols": True, "smoothing": 0.1, "delay": 1e-3}
        self._bar: Any = tqdm(file=stream, **settings)
        self._bar._time = working_time  # like all other times, its rate and remaining time exclude compilation
        self._bar.start_t = self._bar.last_print_t = working_time()
        self._at = 0.0
        self._last: tuple[Report, float | None] | None = None

    def __call__(self, report: Report, fraction: float | None) -> None:
        self._last = report, fraction
        now = time.perf_counter()
        if now - self._at >= self._bar.mininterval:
            self._at = now
            self._draw(report, fraction)

    def _draw(self, report: Report, fraction: float | None) -> None:
        taken = report.metrics.taken
        if fraction:
            self._bar.total = round(taken / fraction)
        self._bar.set_postfix_str(_quality(report).removeprefix(", "), refresh=False)
        self._bar.update(taken - self._bar.n)

    def close(self) -> None:
        """Draw the final state and close the bar."""
        if self._last is not None:
            self._draw(*self._last)
        self._bar.close()


def progress(stream: TextIO, every_s: float = 5.0) -> Bar | Lines:
    """Return a bar for a terminal, else log lines."""
    return Bar(stream) if stream.isatty() else Lines(every_s)


def _quality(report: Report) -> str:
    metrics = report.metrics
    parts = []
    if metrics.judged:
        parts.append(f"accuracy {metrics.accuracy:.4f}, of the last {metrics.n_recent:,} {metrics.recent_accuracy:.4f}")
    if report.late is not None:
        parts.append(_late(report.late))
    if report.refits is not None and report.refits.last:
        parts.append(_refits(report.refits))
    if metrics.rejected:
        parts.append(f"{metrics.rejected:,} set aside")
    if report.lag is not None:
        parts.append(f"lag {sum(report.lag.values()):,}")
    if report.stalls:
        parts.append(f"stalled {report.stalls:,} times")
    if report.checkpoint is not None and report.checkpoint.written_at is not None:
        parts.append(f"checkpoint {time.time() - report.checkpoint.written_at:.0f} s old")
    return "".join(f", {part}" for part in parts)


def _late(late: JoinStage) -> str:
    now, median = late.estimate.now, late.lags.quantile(0.5)
    estimate = f"estimated now {now.accuracy:.4f} ± {now.error:.4f}, " if now.events else ""
    behind = f", {span(median / 1000.0)} late" if median == median else ""
    return f"{estimate}{late.join.counts.answered:,} labels joined{behind}, {late.store.n_waiting:,} events wait"


def _refits(refits: Refits) -> str:
    last = refits.last[-1]["outcome"].partition(":")[0]
    return f"{refits.count:,} refits, the last {last}, {refits.share:.0%} of the vote"


def _share(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.0%}, "
