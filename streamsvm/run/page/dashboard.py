"""State of a run for its page, collected between batches by the run's thread.

No work is done per event. Each update measures its cost and delays the next one, so that all updates together take less
than 1 % of the time.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from typing import Any

import orjson

from streamsvm.names import feature, shown
from streamsvm.online.adapters import Predictions
from streamsvm.run.formatting import plain
from streamsvm.run.history import Insight, notices_of
from streamsvm.run.page.events import LastEvents, reasons
from streamsvm.run.page.figures import COLUMNS, Series, features, history_of, name_of, point_of, rounded, state_of
from streamsvm.run.prometheus import text_of_report
from streamsvm.run.report import Report

EVERY_S = 1.0
_IDLE_S = 5.0  # seconds between updates without events
# Greatest shares of the time: for messages, the history, and answers.
_PUBLISHING, _LOOKING, _ANSWERING = 0.003, 0.0005, 0.01
_LONGEST_REST_S = 15.0
_HISTORY_S = 10.0
_STANDS_STILL_S = 120.0
_MOST_QUESTIONS = 4
_MOST_LEADERS, _MOST_FEATURES = 12, 12

logger = logging.getLogger("streamsvm.run")


class Busy(Exception):
    """Too many questions are waiting."""


class Broadcaster:
    """The latest of a sequence of messages; a slow viewer misses those in between.

    Examples
    --------
    >>> broadcaster = Broadcaster()
    >>> broadcaster.publish(b"first")
    >>> broadcaster.publish(b"second")
    >>> broadcaster.after(0, timeout=1.0)
    (2, b'second')
    >>> broadcaster.after(2, timeout=0.0)
    (2, None)
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._number, self._message = 0, b""
        self.at = -float("inf")
        self.closed = False

    def publish(self, message: bytes) -> None:
        """Publish a message."""
        with self._condition:
            self._number, self._message, self.at = self._number + 1, message, time.monotonic()
            self._condition.notify_all()

    def close(self) -> None:
        """Stop publishing."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()

    def wait_closed(self, seconds: float) -> bool:
        """Wait for the end of publishing; return whether it has come."""
        with self._condition:
            return self._condition.wait_for(lambda: self.closed, seconds)

    @property
    def latest(self) -> bytes:
        """The latest message; empty before the first."""
        return self._message

    def after(self, number: int, timeout: float) -> tuple[int, bytes | None]:
        """Wait for a message with a higher number; None after `timeout` seconds."""
        with self._condition:
            self._condition.wait_for(lambda: self._number > number or self.closed, timeout)
            return self._number, self._message if self._number > number else None


class DashboardState:
    """An observer of a run that publishes its state.

    Parameters
    ----------
    every_s
        Least number of seconds between two messages.

    Attributes
    ----------
    feed
        Publishes messages, each with the state of the run as JSON.
    report
        The latest report; None before the first batch.
    """

    kind = "run"

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.feed = Broadcaster()
        self.report: Report | None = None
        self._every_s = every_s
        self._run, self._began = uuid.uuid4().hex[:12], time.time()
        self._series, self._events = Series(), LastEvents()
        self._history: dict[str, Any] = {}
        self._packing, self._pack_due, self._packed = threading.Lock(), 0.0, b""
        self._questions: deque[tuple[int, Future[bytes]]] = deque()
        self._due = self._answer_due = self._history_due = 0.0
        self._taken, self._broken = -1, False
        self._taken_from: Predictions | None = None

    # In the thread of the run -----------------------------------------------------------------------------------------

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Publish the state of the run if it is due."""
        self.report = report
        if self._broken:
            return
        try:
            self._look(report, fraction)
        except Exception as error:  # an error of the page must not stop the run
            self._broken = True
            logger.warning("the dashboard has stopped, the run continues: %s: %s", type(error).__name__, error)

    def _look(self, report: Report, fraction: float | None) -> None:
        now = time.perf_counter()
        if self._questions and now >= self._answer_due:
            self._answer(report)
        self._take(report)
        moved = report.metrics.taken != self._taken
        if now >= self._due and (moved or now >= self._due + _IDLE_S - self._every_s):
            watch = Stopwatch()
            self._publish(report, fraction)
            self._due = now + watch.rest(self._every_s, _PUBLISHING)

    def _take(self, report: Report) -> None:
        """Store the events of the latest batch, once."""
        latest = report.predictions
        if latest is None or latest is self._taken_from or not len(latest.batch):
            return
        self._taken_from = latest
        self._events.add(latest)

    def _publish(self, report: Report, fraction: float | None = None, *, last: bool = False) -> None:
        now = time.perf_counter()
        self._taken = report.metrics.taken
        if now >= self._history_due:
            watch = Stopwatch()
            self._history = history_of(report)
            self._history_due = now + watch.rest(_HISTORY_S, _LOOKING)
        state = self._state(report, fraction)
        # Questions are not answered after the last message.
        self.feed.publish(packed(state | {"series": self._points()} if last else state))

    def _answer(self, report: Report) -> None:
        watch = Stopwatch()
        number, answer = self._questions.popleft()
        try:
            relevance = Insight.of(report.learner.model).relevance
            answer.set_result(packed(reasons(self._events[number], report.learner, relevance)))
        except Exception as error:  # an error of an answer must not stop the run
            answer.set_exception(error)
        self._answer_due = time.perf_counter() + watch.rest(0.0, _ANSWERING)

    def close(self) -> None:
        """Publish the end of the run."""
        if self.report is not None and not self._broken:
            self._history_due = 0.0
            with contextlib.suppress(Exception):
                self._publish(self.report, last=True)
        self.feed.close()
        while self._questions:
            self._questions.popleft()[1].cancel()

    # In the threads of viewers ----------------------------------------------------------------------------------------

    def series(self) -> bytes:
        """Return all points over time and the history over events as JSON.

        It is cached for a few seconds if there are many viewers.
        """
        with self._packing:
            if time.monotonic() >= self._pack_due:
                began = time.thread_time()
                self._packed = packed(self._points())
                self._pack_due = time.monotonic() + (time.thread_time() - began) / _ANSWERING
            return self._packed

    def _points(self) -> dict[str, Any]:
        columns = {name: rounded(values) for name, values in self._series.columns().items()}
        return {"run": self._run, "columns": columns, "history": self._history}

    def explain(self, number: int, timeout: float) -> bytes:
        """Return the reasons of a prediction as JSON.

        Parameters
        ----------
        number
            Number of the event.
        timeout
            Seconds to wait for the run.

        Raises
        ------
        LookupError
            If the event is no longer stored.
        Busy
            If too many questions are waiting.
        TimeoutError
            If the run did not answer in time.
        """
        if len(self._questions) >= _MOST_QUESTIONS:
            raise Busy
        answer: Future[bytes] = Future()
        self._questions.append((number, answer))
        return answer.result(timeout)

    def health(self) -> str:
        """Return the problem of the run; empty if there is none."""
        if self.report is None:
            return "starting"
        if self.report.ended:
            return f"ended: {self.report.ended}"
        silence = time.monotonic() - self.feed.at
        return f"no batch was processed for {silence:.0f} s" if silence > _STANDS_STILL_S else ""

    def metrics(self) -> bytes:
        """Return the metrics for Prometheus."""
        return text_of_report(self.report)

    # The state --------------------------------------------------------------------------------------------------------

    def _state(self, report: Report, fraction: float | None) -> dict[str, Any]:
        model = report.learner.model
        insight, now = Insight.of(model), time.time()
        figures = point_of(report, now)
        self._series.add(figures)
        state = {
            "run": self._run,
            "now": now,
            "began": self._began,
            "kind": self.kind,
            "model": name_of(report, model),
            "fraction": fraction,
            "leaders": insight.leaders[:_MOST_LEADERS],
            "relevance": [
                (shown(feature(name)), value) for name, value in list(insight.relevance.items())[:_MOST_FEATURES]
            ],
            "autocorrelation": insight.autocorrelation,
            "features": features(report, insight.relevance),
            "latest": self._events.lines(report.learner.classes),
            "notices": notices_of(model) + report.source_notices,
            "point": {
                "figures": [figures[name] for name in COLUMNS],
                "leader": insight.leaders[0]["member"] if insight.leaders else "",
            },
        }
        return dict(plain(state | state_of(report)))


def packed(content: Any) -> bytes:
    """Return content as JSON; NaN becomes null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


class Stopwatch:
    """Measures the cost of an update for the thread of the run.

    It includes waits for a CPU and for the interpreter lock.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def rest(self, least: float, share: float) -> float:
        """Return the seconds to wait so that updates take at most `share` of the time."""
        return max(least, min((time.perf_counter() - self._began) / share, _LONGEST_REST_S))
