"""What there is to see of a run, gathered between batches by the thread that runs it.

Nothing is done per event, and what is done is bounded as a share of the time: whatever looking takes, the next look
comes so much later that all of them take less than a hundredth together.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
import orjson

from connectors.events import Rejected
from streamsvm.core.clock import working_time
from streamsvm.names import feature, shown
from streamsvm.run.abilities import Insight, Refits, notices_of
from streamsvm.run.learners import Answers
from streamsvm.run.measures import COLUMNS as MEASURED
from streamsvm.run.measures import UNIT
from streamsvm.run.metrics import CURVE_LINES, Metrics
from streamsvm.run.names import known
from streamsvm.run.page.events import LastEvents, reasons
from streamsvm.run.page.feed import Feed
from streamsvm.run.page.late import Confusion, calibration
from streamsvm.run.page.series import COLUMNS, N_FEATURES, Series
from streamsvm.run.standing import Report

EVERY_S = 1.0
_IDLE_S = 5.0  # from one look to the next where no event came
# Of the time, at most: for what is published, and for each of what else is looked at.
_PUBLISHING, _LOOKING = 0.003, 0.0005
_LONGEST_REST_S = 15.0
_ANSWERS_SHARE = 0.01
_HISTORY_S = 10.0
_STANDS_STILL_S = 120.0
_MOST_QUESTIONS = 4
_MOST_MARKS, _MOST_LEADERS, _MOST_FEATURES, _MOST_PARTS, _MOST_NEW, _MOST_REFITS = 400, 12, 12, 64, 12, 6
_NEW_AFTER = 1_000  # judged events; a class that comes earlier is none that is new
_LONGEST = 300

logger = logging.getLogger("streamsvm.run")

Question = tuple[int, "Future[bytes]"]


class Busy(Exception):
    """So many questions wait already."""


class Board:
    """An observer of a run that publishes how it stands.

    Parameters
    ----------
    every_s
        Seconds from one message to the next, at least.

    Attributes
    ----------
    feed
        Where messages are published: each the state of the run as JSON.
    report
        What was told last, None before the first batch.
    """

    kind = "run"

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.feed = Feed()
        self.report: Report | None = None
        self._every_s = every_s
        self._run, self._began = uuid.uuid4().hex[:12], time.time()
        self._series, self._confusion = Series(), Confusion()
        self._events, self._marks = LastEvents(), Marks()
        self._history: dict[str, Any] = {}
        self._packing, self._pack_due, self._packed = threading.Lock(), 0.0, b""
        self._questions: deque[Question] = deque()
        self._due = self._answer_due = self._history_due = 0.0
        self._taken, self._broken = -1, False
        self._taken_from: Answers | None = None
        self._rate, self._counted = 0.0, (working_time(), 0)

    # In the thread of the run -----------------------------------------------------------------------------------------

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Take note of how the run stands, as far as it is time to."""
        if self._broken:
            return
        try:
            self._look(report, fraction)
        except Exception as error:  # a page that fails is no matter of the run
            self._broken = True
            logger.warning("the page stands still, and the run goes on: %s: %s", type(error).__name__, error)

    def _look(self, report: Report, fraction: float | None) -> None:
        now = time.perf_counter()
        if self.report is None:
            self._begin(report)
        self.report = report
        if self._questions and now >= self._answer_due:
            self._answer(report)
        self._take(report)
        moved = report.metrics.taken != self._taken
        if now >= self._due and (moved or now >= self._due + _IDLE_S - self._every_s):
            watch = _Stopwatch()
            self._publish(report, fraction)
            self._due = now + watch.rest(self._every_s, _PUBLISHING)

    def _begin(self, report: Report) -> None:
        self._marks.begin(report)

    def _take(self, report: Report) -> None:
        """Take note of the latest batch, unless that was done."""
        answers = report.answers
        if answers is None or report.learner is None or answers is self._taken_from or not len(answers.batch):
            return
        self._taken_from = answers
        self._events.take(answers)

    def _publish(self, report: Report, fraction: float | None = None, *, last: bool = False) -> None:
        now = working_time()
        at, events = self._counted
        if now - at >= 0.5:
            self._rate, self._counted = (report.events - events) / (now - at), (now, report.events)
        self._taken = report.metrics.taken
        if now >= self._history_due:
            watch = _Stopwatch()
            self._history = _history(report)
            self._history_due = now + watch.rest(_HISTORY_S, _LOOKING)
        state = self._state(report, fraction)
        # After the last message nobody is there to be asked.
        self.feed.publish(packed(state | {"series": self._points()} if last else state))

    def _answer(self, report: Report) -> None:
        watch = _Stopwatch()
        number, answer = self._questions.popleft()
        try:
            if report.learner is None:
                raise LookupError("nothing runs yet")
            relevance = Insight.of(report.learner.model).relevance
            answer.set_result(packed(reasons(self._events[number], report.learner, relevance)))
        except Exception as error:  # whatever it is, it is no matter of the run
            answer.set_exception(error)
        self._answer_due = time.perf_counter() + watch.rest(0.0, _ANSWERS_SHARE)

    def close(self) -> None:
        """Publish how the run ended."""
        if self.report is not None and not self._broken:
            self._history_due = 0.0
            with contextlib.suppress(Exception):
                self._publish(self.report, last=True)
        self.feed.close()
        while self._questions:
            self._questions.popleft()[1].cancel()

    # In the threads of those who look on ------------------------------------------------------------------------------

    def series(self) -> bytes:
        """All points over time, and what is known over all events, as JSON; a few seconds old where many ask."""
        with self._packing:
            if time.monotonic() >= self._pack_due:
                began = time.thread_time()
                self._packed = packed(self._points())
                self._pack_due = time.monotonic() + (time.thread_time() - began) / _ANSWERS_SHARE
            return self._packed

    def _points(self) -> dict[str, Any]:
        return {"run": self._run, **self._series.packed(), "history": self._history}

    def ask(self, number: int, timeout: float) -> bytes:
        """Why an event was predicted as it was, as JSON.

        Raises
        ------
        LookupError
            Where the event is not remembered.
        Busy
            Where others have asked.
        TimeoutError
            Where the run came to no answer.
        """
        if len(self._questions) >= _MOST_QUESTIONS:
            raise Busy
        answer: Future[bytes] = Future()
        self._questions.append((number, answer))
        return answer.result(timeout)

    def health(self) -> str:
        """What is wrong, empty where nothing is."""
        if self.report is None:
            return "starting"
        if self.report.ended:
            return f"ended: {self.report.ended}"
        silence = time.monotonic() - self.feed.at
        return f"no batch was done for {silence:.0f} s" if silence > _STANDS_STILL_S else ""

    # The state --------------------------------------------------------------------------------------------------------

    def _state(self, report: Report, fraction: float | None) -> dict[str, Any]:
        metrics, now = report.metrics, time.time()
        model = None if report.learner is None else report.learner.model
        insight = Insight.of(model)
        relevance = [(shown(feature(name)), value) for name, value in list(insight.relevance.items())[:_MOST_FEATURES]]
        leader = insight.leaders[0]["member"] if insight.leaders else ""
        figures = _figures(report, now)
        self._marks.take(report, figures["time"])
        self._series.add(figures, leader, dict(relevance))
        checkpoint = report.checkpoint
        return {
            "run": self._run,
            "now": now,
            "began": self._began,
            "kind": self.kind,
            "ended": report.ended,
            "model": _name(report, model),
            "source": shown(report.source, _LONGEST),
            "out": None if report.out is None else shown(report.out, _LONGEST),
            "fraction": fraction,
            "resumed": report.resumed,
            "events": metrics.taken,
            "judged": metrics.judged,
            "unanswered": metrics.unanswered,
            "rejected": metrics.rejected,
            "window": metrics.window,
            "rate": self._rate,
            "accuracy": known(metrics.accuracy),
            "late": {"events": metrics.n_recent} | {name: known(value) for name, value in metrics.recent.items()},
            "calibration": calibration(metrics.measures),
            "lag": _lag(report.lag),
            "stalls": report.stalls,
            "checkpoint": None if checkpoint is None else {"at": checkpoint.written_at, "every_s": checkpoint.every_s},
            "pending": pending(report),
            "leaders": [_leader(head) for head in insight.leaders[:_MOST_LEADERS]],
            "relevance": relevance,
            "autocorrelation": insight.autocorrelation,
            "refits": None if report.refits is None else _refits(report.refits),
            "confusion": self._confusion.of(metrics),
            "classes": self._marks.classes,
            "latest": [] if report.learner is None else self._events.lines(report.learner.classes),
            "rejects": {
                "reasons": [[shown(reason, _LONGEST), n] for reason, n in report.rejects.reasons.most_common()],
                "last": [_reject(one) for one in reversed(report.rejects.last)],
                "to": None if report.rejected is None else shown(report.rejected, _LONGEST),
            },
            "notices": [shown(notice, _LONGEST) for notice in notices_of(model) + report.source_notices],
            "marks": self._marks.all,
            "point": {
                "figures": [known(figures.get(name, float("nan"))) for name in COLUMNS],
                "leader": leader,
            },
        }


class Marks:
    """What happened to a run and when: detected drift, refits and new classes."""

    def __init__(self) -> None:
        self._marks: deque[dict[str, Any]] = deque(maxlen=_MOST_MARKS)
        self._falls = self._classes = 0
        self._before = self._now = (0.0, 0)  # the moments that are shown: the time, and how many events were judged
        self._refits: dict[int, str] = {}
        self._new: deque[dict[str, Any]] = deque(maxlen=_MOST_NEW)

    def begin(self, report: Report) -> None:
        """What happened before this process began is known by its event alone."""
        if report.resumed is not None:
            self._now = 0.0, report.metrics.judged
            self._look(report, is_now=False)
            self._classes = _n_classes(report.metrics)

    def take(self, report: Report, now: float) -> None:
        """Note what is new at a moment that is shown."""
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
        if len(self._refits) > _MOST_MARKS:
            del self._refits[min(self._refits)]
        name = f"{number} by {refit['solver']}"
        if known is None or outcome.startswith("failed"):
            self._add("refit", event, f"{name} on {refit['events']:,} events: {shown(outcome, _LONGEST)}", is_now)

    def _look_at_classes(self, metrics: Metrics) -> None:
        n = _n_classes(metrics)
        if n > self._classes and self._before[1] >= _NEW_AFTER:
            labels, seen = metrics.labels, metrics.seen
            for code in [c for c in range(self._classes, len(seen)) if seen[c]][-_MOST_NEW:]:
                name = shown(labels[code])
                self._new.append({"name": name, "at": self._now[0], "judged": metrics.judged})
                self._add("class", metrics.judged, name, True)
        self._classes = max(n, self._classes)

    def _add(self, kind: str, judged: int, text: str, is_now: bool) -> None:
        """Note one, at the time by which so many events were judged: in between two moments as if at a steady rate."""
        (time0, judged0), (time1, judged1) = self._before, self._now
        at = time1 - (time1 - time0) * min(max(judged1 - judged, 0) / max(judged1 - judged0, 1), 1.0)
        self._marks.append({"kind": kind, "at": at if is_now else None, "judged": judged, "text": text})

    @property
    def all(self) -> list[dict[str, Any]]:
        """All marks, in order of their coming."""
        return list(self._marks)

    @property
    def classes(self) -> dict[str, Any]:
        """How many classes there are, and which are new."""
        return {"count": self._classes, "new": list(reversed(self._new))}


def _name(report: Report, model: Any) -> str:
    """The name of the learner, and whether it has refits."""
    if report.refits is None:
        return report.model.rpartition(".")[2]
    return f"{type(getattr(model, 'model', model)).__name__} with refits"


def _n_classes(metrics: Metrics) -> int:
    return int(np.count_nonzero(metrics.seen))


def _figures(report: Report, now: float) -> dict[str, float]:
    metrics = report.metrics
    hits = dict(zip(("hits", "no_change", "majority"), metrics.curve.totals().tolist(), strict=True))
    sums = dict(zip(MEASURED, metrics.measures.curve.totals().tolist(), strict=True))
    held = pending(report)
    return {
        "time": round(now, 3),
        "taken": metrics.taken,
        "judged": metrics.judged,
        "rejected": metrics.rejected,
        **hits,
        "loss": sums["log_loss"] / UNIT,
        "scored": sums["rated"],
        "lag": float("nan") if report.lag is None else float(sum(report.lag.values())),
        "pending": float("nan") if held is None else float(held),
    }


def pending(report: Report) -> int | None:
    """How many predictions wait for their labels; None where labels come with their events."""
    return None if report.late is None else int(report.late.store.n_waiting)


def _history(report: Report) -> dict[str, Any]:
    """What is known over all events, those before this process included: as `--plot` draws it."""
    metrics, history = report.metrics, report.history
    ends, shares = metrics.curve.windowed(metrics.window)
    names, relevance = history.relevance(N_FEATURES)
    members, led = history.leaders()
    return {
        "judged": ends.tolist(),
        "over": metrics.curve.width_of(metrics.window),
        "shares": {name: _list(shares[:, k]) for k, name in enumerate(CURVE_LINES)},
        "at": list(history.at),
        "relevance": [[shown(feature(name)), _list(relevance[:, j])] for j, name in enumerate(names)],
        "members": members,
        "leaders": led.tolist(),
    }


def packed(content: Any) -> bytes:
    """As JSON, in which what is no number is null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def _list(values: Any) -> list[float | None]:
    return [known(float(f"{value:.5g}")) for value in values.tolist()]


class _Stopwatch:
    """Measures what a look costs the thread of the run, waiting for the processor or the interpreter included."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def rest(self, least: float, share: float) -> float:
        """How many seconds later the next look may begin, so that looking takes no more than its share."""
        return max(least, min((time.perf_counter() - self._began) / share, _LONGEST_REST_S))


def _lag(lag: Mapping[Any, int] | None) -> dict[str, Any] | None:
    if lag is None:
        return None
    parts = sorted(lag.items(), key=lambda part: -part[1])
    return {"total": sum(lag.values()), "parts": [[str(name), n] for name, n in parts[:_MOST_PARTS]]}


def _leader(head: Mapping[str, Any]) -> dict[str, Any]:
    names = {name: shown(head[name]) for name in ("member", "head")}
    return names | {name: head.get(name) for name in ("accuracy", "weight", "dormant")}


def _refits(refits: Refits) -> dict[str, Any]:
    names = ("number", "event", "events", "solver", "score", "seconds", "share")
    last = [{n: r[n] for n in names} | {"outcome": shown(r["outcome"], _LONGEST)} for r in refits.last[-_MOST_REFITS:]]
    outcomes = {shown(outcome): n for outcome, n in refits.outcomes.items()}
    return {"count": refits.count, "outcomes": outcomes, "seconds": refits.seconds, "share": refits.share, "last": last}


def _reject(one: Rejected) -> dict[str, Any]:
    place = ", ".join(f"{name} {shown(value)}" for name, value in one.origin.items())
    raw = None if one.raw is None else shown(one.raw, _LONGEST)
    return {"reason": shown(one.reason, _LONGEST), "place": place, "raw": raw}
