"""How a run stands, for Prometheus to fetch."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from streamsvm.core.clock import working_time
from streamsvm.run.errors import SetupError
from streamsvm.run.late import QUANTILES, LateLearning
from streamsvm.run.measures import Ranked
from streamsvm.run.metrics import Metrics
from streamsvm.run.standing import Report
from streamsvm.run.web.messages import FIGURES, Answer, Request, refusal
from streamsvm.run.web.server import HttpServer, Place, Work


class Figures:
    """The figures of a run as the client library collects them, computed when they are asked for.

    Raises
    ------
    SetupError
        Where prometheus-client is missing; `option` asked for it.
    """

    def __init__(self, option: str = "--metrics-port") -> None:
        self._library, self._counter, self._gauge = _library(option)
        self._report: Report | None = None
        self._before = (working_time(), 0)
        self._rate = 0.0
        self.registry = self._library.CollectorRegistry()
        self.registry.register(self)

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Take note of how the run stands."""
        self._report = report
        now = working_time()
        at, events = self._before
        if now - at >= 1.0:
            self._rate = (report.events - events) / (now - at)
            self._before = (now, report.events)

    def text(self) -> bytes:
        """The figures as Prometheus reads them."""
        shown: bytes = self._library.generate_latest(self.registry)
        return shown

    def collect(self) -> Iterator[Any]:
        """The figures, as the client library wants them."""
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
        """How good probabilities are, over all and of late, as far as they are known."""
        measures, codes = metrics.measures, [code for _, code in metrics.ranked()]
        overall, late = measures.overall, measures.of_late
        ranking = measures.ranking
        ranked = Ranked.of(ranking, codes), Ranked.of(ranking, codes, ranking.of_late())
        found: dict[str, tuple[Any, ...]] = {
            "log_loss": ("Mean of -log p of the label.", overall.log_loss, late.log_loss),
            "brier": ("Squared distance of probabilities from what came, 0 to 2.", overall.brier, late.brier),
            "calibration_error": (
                "How far probabilities of predictions are from the share of right ones.",
                measures.reliability.error,
                measures.recent_reliability.error,
            ),
            "roc_auc": ("Area under the ROC curve, of the rarer of two classes.", *(one.roc_auc for one in ranked)),
            "average_precision": (
                "Mean precision of alarms, of the rarer of two classes.",
                *(one.average_precision for one in ranked),
            ),
            "coverage": ("Share of sets that have the label.", overall.coverage, late.coverage),
            "set_size": ("Labels in a set, in the mean.", overall.size, late.size),
            "cost": ("Of an event, in the mean.", overall.cost, late.cost),
            "alarms": ("Share of events with an alarm.", overall.alarms, late.alarms),
            "alarm_precision": ("Share of alarms that are right.", overall.precision, late.precision),
            "alarm_recall": ("Share of the events of their class with an alarm.", overall.recall, late.recall),
        }
        for name, (meaning, *values) in found.items():
            if values[0] == values[0]:
                gauge = self._gauge(f"streamsvm_{name}", meaning, labels=["over"])
                for over, value in zip(("all", "recent"), values, strict=True):
                    gauge.add_metric([over], value)
                yield gauge
        if ranked[0].roc_auc == ranked[0].roc_auc:
            recall = self._gauge("streamsvm_recall_at_alarms", "Recall at a share of alarms.", labels=["share", "over"])
            for over, one in zip(("all", "recent"), ranked, strict=True):
                for share, value in one.recall.items():
                    recall.add_metric([f"{share:g}", over], value)
            yield recall

    def _late(self, late: LateLearning) -> Iterator[Any]:
        """Of labels that come later."""
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
    """Serves the figures of a run over HTTP.

    Parameters
    ----------
    place
        A port, or ADDRESS:PORT to listen elsewhere than on 127.0.0.1; port 0 takes any that is free.

    Raises
    ------
    SetupError
        Where it cannot listen there, or prometheus-client is missing.
    """

    def __init__(self, place: str) -> None:
        self._figures = Figures()
        self._server = _Server(place, self._figures.text)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Take note of how the run stands."""
        self._figures(report, fraction)

    def close(self) -> None:
        """Stop serving."""
        self._server.close()


@contextlib.contextmanager
def serving(place: str, collect: Callable[[Any, Any], Iterator[Any]]) -> Iterator[None]:
    """Serve figures over HTTP.

    Parameters
    ----------
    place
        Where to listen, as an `Exporter` has it.
    collect
        Gives the figures when they are asked for, from the client library's families of counters and gauges.

    Raises
    ------
    SetupError
        As of an `Exporter`.
    """
    library, *families = _library("--metrics-port")
    registry = library.CollectorRegistry()
    registry.register(_Collector(functools.partial(collect, *families)))
    with contextlib.closing(_Server(place, functools.partial(library.generate_latest, registry))):
        yield


@dataclass(frozen=True, slots=True)
class _Collector:
    """What the client library asks for figures."""

    collect: Callable[[], Iterator[Any]]


def _library(option: str) -> tuple[Any, Any, Any]:
    """The client library, and its families of counters and gauges."""
    try:
        import prometheus_client
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as error:
        raise SetupError(f"{option} needs prometheus-client: pip install 'streamsvm[prometheus]'") from error
    return prometheus_client, CounterMetricFamily, GaugeMetricFamily


class _Server:
    """Serves figures to whoever reaches it."""

    def __init__(self, place: str, text: Callable[[], bytes]) -> None:
        self._place, self._text = Place(place, "--metrics-port"), text
        self._http = HttpServer(self._place, self._route, "metrics")
        self.port, self.close = self._http.port, self._http.close

    def _route(self, request: Request) -> Answer | Work:
        if self._place.local and not self._place.knows(request.headers.get("host", "")):
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, "figures are not served under that name")
        if request.path == "/healthz":
            return Answer(b"running\n")
        if request.path != "/metrics":
            return refusal(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz")
        return Work(lambda _: Answer(self._text(), FIGURES), trusted=False)
