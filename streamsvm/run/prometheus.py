"""Metrics of a run for Prometheus."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from streamsvm.core.clock import working_time
from streamsvm.run.errors import SetupError
from streamsvm.run.late import QUANTILES, JoinStage
from streamsvm.run.metrics import Metrics
from streamsvm.run.standing import Report
from streamsvm.run.web.messages import FIGURES, Answer, Request, refusal
from streamsvm.run.web.server import HttpServer, Place, Work

_FIGURES = {
    "log_loss": ("log_loss", "Mean of -log p of the label."),
    "brier": ("brier", "Squared distance of probabilities from what came, 0 to 2."),
    "calibration_error": (
        "calibration_error",
        "How far probabilities of predictions are from the share of right ones.",
    ),
    "roc_auc": ("roc_auc", "Area under the ROC curve, of the rarer of two classes."),
    "average_precision": ("average_precision", "Mean precision of alarms, of the rarer of two classes."),
    "coverage": ("coverage", "Share of sets that have the label."),
    "set_size": ("size", "Labels in a set, in the mean."),
    "cost": ("cost", "Of an event, in the mean."),
    "alarms": ("alarms", "Share of events with an alarm."),
    "alarm_precision": ("precision", "Share of alarms that are right."),
    "alarm_recall": ("recall", "Share of the events of their class with an alarm."),
}
"""Gauges: their figure in `Metrics.figures` and their description."""


class Collector:
    """Metrics for Prometheus, computed on request.

    Parameters
    ----------
    collect
        Yields metrics, given the client library's families of counters and gauges.
    option
        Option that requests them, for messages.

    Raises
    ------
    SetupError
        If prometheus-client is not installed.
    """

    def __init__(self, collect: Callable[[Any, Any], Iterator[Any]], option: str = "--set metrics-port") -> None:
        try:
            import prometheus_client
            from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        except ImportError as error:
            raise SetupError(f"{option} needs prometheus-client: pip install 'streamsvm[prometheus]'") from error
        self._counter, self._gauge, self._collect = CounterMetricFamily, GaugeMetricFamily, collect
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(self)
        self._text = functools.partial(prometheus_client.generate_latest, self.registry)

    def collect(self) -> Iterator[Any]:
        """Return metrics for the client library."""
        return self._collect(self._counter, self._gauge)

    def text(self) -> bytes:
        """Return the metrics in Prometheus format."""
        return bytes(self._text())


class Figures(Collector):
    """Metrics of an observed run.

    Parameters
    ----------
    option
        Option that requests them, for messages.
    """

    def __init__(self, option: str = "--set metrics-port") -> None:
        self._report: Report | None = None
        self._before = (working_time(), 0)
        self._rate = 0.0
        super().__init__(self._of_report, option)

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Record the state of the run."""
        self._report = report
        now = working_time()
        at, events = self._before
        if now - at >= 1.0:
            self._rate = (report.events - events) / (now - at)
            self._before = (now, report.events)

    def _of_report(self, *_: Any) -> Iterator[Any]:
        report = self._report
        if report is None:
            return
        metrics = report.metrics
        yield self._counter("streamsvm_events", "Events taken, those before a resumption included.", metrics.taken)
        yield self._counter("streamsvm_judged", "Events that had a label and a prediction.", metrics.judged)
        yield self._counter("streamsvm_rejected", "Events set aside.", metrics.rejected)
        yield self._gauge("streamsvm_events_per_second", "Events a second of late.", self._rate)
        yield self._gauge("streamsvm_accuracy", "Share of right predictions.", metrics.accuracy)
        yield self._gauge("streamsvm_recent_accuracy", "The same over the last events.", metrics.recent_accuracy)
        yield self._counter(
            "streamsvm_compile_seconds", "Seconds in which kernels were compiled.", report.compile_seconds
        )
        yield self._counter("streamsvm_model_seconds", "Seconds spent in the model.", report.learner_seconds)
        yield from self._probabilities(metrics)
        if report.late is not None:
            yield from self._late(report.late)
        if report.refits is not None:
            refits = self._counter("streamsvm_refits", "Refits, by what came of them.", labels=["outcome"])
            for outcome, count in report.refits.outcomes.items():
                refits.add_metric([outcome], count)
            yield refits
            yield self._counter("streamsvm_refit_seconds", "Seconds that refits took.", report.refits.seconds)
            yield self._gauge("streamsvm_refit_share", "Share of the vote of their models.", report.refits.share)
        if report.checkpoint is not None and report.checkpoint.written_at is not None:
            age = time.time() - report.checkpoint.written_at
            yield self._gauge("streamsvm_checkpoint_age_seconds", "Seconds since the last checkpoint.", age)
        if report.lag is not None:
            lag = self._gauge("streamsvm_lag", "Events behind the end, by partition.", labels=["partition"])
            for partition, events in report.lag.items():
                lag.add_metric([str(partition)], events)
            yield lag
            stalls = "Times that no event came for long, 30 s with Kafka, although there was a lag."
            yield self._counter("streamsvm_stalls", stalls, report.stalls)

    def _probabilities(self, metrics: Metrics) -> Iterator[Any]:
        """Yield measures of probabilities, overall and recent, if known."""
        found = {"all": metrics.figures(), "recent": metrics.figures(recent=True)}
        for name, (figure, meaning) in _FIGURES.items():
            if found["all"][figure] == found["all"][figure]:
                gauge = self._gauge(f"streamsvm_{name}", meaning, labels=["over"])
                for over, figures in found.items():
                    gauge.add_metric([over], figures[figure])
                yield gauge
        if found["all"]["roc_auc"] == found["all"]["roc_auc"]:
            recall = self._gauge("streamsvm_recall_at_alarms", "Recall at a share of alarms.", labels=["share", "over"])
            for over, figures in found.items():
                for share, value in figures["recall_at_alarms"].items():
                    recall.add_metric([share, over], value)
            yield recall

    def _late(self, late: JoinStage) -> Iterator[Any]:
        """Yield metrics of delayed labels."""
        totals = late.totals()
        gauges = {"waiting": "Events that wait for their label.", "early": "Labels that wait for their event."}
        labels = self._counter("streamsvm_late", "Events and labels, by what became of them.", labels=["what"])
        for what, count in totals.items():
            if what not in gauges:
                labels.add_metric([what], count)
        yield labels
        for what, meaning in gauges.items():
            yield self._gauge(f"streamsvm_{what}", meaning, totals[what])
        lags = self._gauge("streamsvm_label_lag_seconds", "How late labels were.", labels=["quantile"])
        for name, q in QUANTILES.items():
            lags.add_metric([name], late.lags.quantile(q) / 1000.0)
        yield lags
        yield self._gauge("streamsvm_waiting_bytes", "Memory of what waits, and is known.", late.store.n_bytes)
        now = late.estimate.now
        yield self._gauge("streamsvm_estimated_accuracy", "Of the last events, by their probabilities.", now.accuracy)
        yield self._gauge("streamsvm_estimated_accuracy_error", "How far that may be off, 95 %.", now.error)


class Exporter:
    """Serves metrics over HTTP.

    Parameters
    ----------
    place
        A port of 127.0.0.1, or ADDRESS:PORT; port 0 selects a free one.
    figures
        The metrics; None for those of a run.

    Attributes
    ----------
    port
        The port in use.

    Raises
    ------
    SetupError
        If it cannot listen there, or prometheus-client is not installed.
    """

    def __init__(self, place: str, figures: Collector | None = None) -> None:
        self._figures = figures or Figures()
        self._place = Place(place, "--set metrics-port")
        self._http = HttpServer(self._place, self._route, "metrics")
        self.port = self._http.port

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Record the state of the run."""
        if isinstance(self._figures, Figures):
            self._figures(report, fraction)

    def close(self) -> None:
        """Stop serving."""
        self._http.close()

    def _route(self, request: Request) -> Answer | Work:
        if self._place.local and not self._place.knows(request.headers.get("host", "")):
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, "figures are not served under that name")
        if request.path == "/healthz":
            return Answer(b"running\n")
        if request.path != "/metrics":
            return refusal(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz")
        return Work(lambda _: Answer(self._figures.text(), FIGURES), trusted=False)
