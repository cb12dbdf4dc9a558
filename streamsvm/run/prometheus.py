"""Metrics of a run in the text format of Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from streamsvm.run.estimate import Estimated
from streamsvm.run.history import History
from streamsvm.run.late_labels import JoinStage
from streamsvm.run.metrics import Metrics
from streamsvm.run.monitoring import RunMonitor
from streamsvm.run.report import Report
from streamsvm.run.web import METRICS, HttpServer, ListenAddress, Response

_FIGURES = {
    "log_loss": ("log_loss", "Mean of -log p of the label."),
    "brier": ("brier", "Squared distance between probabilities and label, 0 to 2."),
    "calibration_error": (
        "calibration_error",
        "Mean difference between predicted probability and share of correct predictions.",
    ),
    "roc_auc": ("roc_auc", "Area under the ROC curve, of the rarer of two classes."),
    "average_precision": ("average_precision", "Average precision of alarms, of the rarer of two classes."),
    "coverage": ("coverage", "Share of sets that contain the label."),
    "set_size": ("size", "Mean number of labels in a set."),
    "cost": ("cost", "Mean cost of an event."),
    "alarms": ("alarms", "Share of events with an alarm."),
    "alarm_precision": ("precision", "Precision of alarms."),
    "alarm_recall": ("recall", "Recall of alarms."),
}
"""Gauges: their figure in `Metrics.figures` and their description."""
_MOST_COLUMNS = 20  # with metrics of their own


class Metric(NamedTuple):
    """A metric.

    Parameters
    ----------
    kind
        "counter" or "gauge".
    name, meaning
        Name without prefix and suffix, and description.
    value
        The value, or values by the value of each label (a tuple if there are several labels).
    labels
        Names of labels.
    """

    kind: str
    name: str
    meaning: str
    value: float | Mapping[Any, float]
    labels: tuple[str, ...] = ()


def exposition_text(metrics: Iterable[Metric]) -> bytes:
    """Return metrics in the text format of Prometheus.

    Examples
    --------
    >>> print(exposition_text([Metric("counter", "refits", "Refits.", {"votes": 2}, ("outcome",))]).decode(), end="")
    # HELP streamsvm_refits_total Refits.
    # TYPE streamsvm_refits_total counter
    streamsvm_refits_total{outcome="votes"} 2.0
    """
    lines = []
    for kind, short, meaning, value, labels in metrics:
        name = f"streamsvm_{short}" + ("_total" if kind == "counter" else "")
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        for key, one in value.items() if isinstance(value, Mapping) else [((), value)]:
            values = key if isinstance(key, tuple) else (key,)
            inside = ",".join(f'{label}="{_escaped(v)}"' for label, v in zip(labels, values, strict=True))
            lines.append(f"{name}{{{inside}}} {_number(one)}" if inside else f"{name} {_number(one)}")
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _escaped(value: Any) -> str:
    return str(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")


def text_of_report(report: Report | None) -> bytes:
    """Return the metrics of a run in Prometheus text format; empty at first."""
    return exposition_text([] if report is None else _of_report(report))


def _of_report(report: Report) -> Iterator[Metric]:
    metrics = report.metrics
    yield Metric("counter", "events", "Events read, including those before a restart.", metrics.taken)
    yield Metric("counter", "judged", "Labelled events with a prediction.", metrics.judged)
    yield Metric("counter", "rejected", "Rejected events.", metrics.rejected)
    yield Metric("gauge", "events_per_second", "Recent events per second.", report.rate)
    yield Metric("gauge", "accuracy", "Share of correct predictions.", metrics.accuracy)
    yield Metric("gauge", "recent_accuracy", "Accuracy over the last events.", metrics.recent_accuracy)
    compiling = "Seconds in which kernels were compiled."
    yield Metric("counter", "compile_seconds", compiling, report.compile_seconds)
    yield Metric("counter", "model_seconds", "Seconds spent in the model.", report.learner_seconds)
    yield from _of_probabilities(metrics)
    if report.late is not None:
        yield from _of_late(report.late, report.estimated)
    if report.monitor is not None:
        yield from _of_monitor(report.monitor, report.history)
    if (refits := report.refits) is not None:
        yield Metric("counter", "refits", "Refits, by outcome.", refits.outcomes, ("outcome",))
        yield Metric("counter", "refit_seconds", "Duration of refits in seconds.", refits.seconds)
        yield Metric("gauge", "refit_share", "Share of refitted models in the vote.", refits.share)
    if report.checkpoint is not None and report.checkpoint.age is not None:
        yield Metric("gauge", "checkpoint_age_seconds", "Seconds since the last checkpoint.", report.checkpoint.age)
    if report.lag is not None:
        yield Metric("gauge", "lag", "Events that the run lags behind, by partition.", report.lag, ("partition",))
        stalls = "Times that no event arrived for long, 30 s with Kafka, although there was a lag."
        yield Metric("counter", "stalls", stalls, report.stalls)


def _of_probabilities(metrics: Metrics) -> Iterator[Metric]:
    """Yield measures of probabilities, overall and recent, if known."""
    found = {"all": metrics.figures(), "recent": metrics.figures(recent=True)}
    for name, (figure, meaning) in _FIGURES.items():
        if found["all"][figure] == found["all"][figure]:
            yield Metric("gauge", name, meaning, {over: one[figure] for over, one in found.items()}, ("over",))
    if found["all"]["roc_auc"] == found["all"]["roc_auc"]:
        recalls = {(s, over): recall for over, one in found.items() for s, recall in one["recall_at_alarms"].items()}
        yield Metric("gauge", "recall_at_alarms", "Recall at a share of alarms.", recalls, ("share", "over"))


def _of_late(late: JoinStage, now: Estimated) -> Iterator[Metric]:
    """Yield metrics of delayed labels."""
    totals = late.totals()
    counts = {what: n for what, n in totals.items() if what not in ("waiting", "early")}
    yield Metric("counter", "late", "Events and labels, by outcome.", counts, ("what",))
    yield Metric("gauge", "waiting", "Events that wait for their label.", totals["waiting"])
    yield Metric("gauge", "early", "Labels that wait for their event.", totals["early"])
    yield Metric("gauge", "label_lag_seconds", "Delay of labels.", late.lags.seconds(), ("quantile",))
    yield Metric("gauge", "waiting_bytes", "Memory of waiting and remembered events.", late.store.n_bytes)
    yield Metric("gauge", "estimated_accuracy", "Accuracy estimated from recent probabilities.", now.accuracy)
    yield Metric("gauge", "estimated_accuracy_error", "Half-width of the 95 % interval of the estimate.", now.error)


def _of_monitor(monitor: RunMonitor, history: History) -> Iterator[Metric]:
    """Yield metrics of the features; by column for a bounded number of columns."""
    states = monitor.columns(history.last_relevance)
    yield Metric("counter", "alerts", "Alarms, by kind.", monitor.counts, ("kind",))
    yield Metric("gauge", "monitored_columns", "Columns that are compared with a reference.", len(states))
    n_changed = sum(bool(state.changed) for state in states)
    yield Metric("gauge", "changed_columns", "Columns that differ from their reference now.", n_changed)
    n_relations = len(monitor.changed_relations())
    yield Metric("gauge", "changed_relations", "Relations that differ from their reference now.", n_relations)
    shown = {str(state.name): state for state in states[:_MOST_COLUMNS]}
    changed = {name: float(bool(state.changed)) for name, state in shown.items()}
    yield Metric("gauge", "column_changed", "Whether a column differs from its reference now.", changed, ("column",))
    psi = {name: state.psi for name, state in shown.items()}
    yield Metric("gauge", "column_psi", "Population stability index of a column now.", psi, ("column",))


class Exporter(HttpServer):
    """Serves metrics over HTTP.

    Parameters
    ----------
    place
        A port of 127.0.0.1, or ADDRESS:PORT; port 0 selects a free one.
    text
        Returns the metrics; None for those of an observed run.

    Raises
    ------
    SetupError
        If it cannot listen there.
    """

    def __init__(self, place: str, text: Callable[[], bytes] | None = None) -> None:
        self._report: Report | None = None
        write, where = text or (lambda: text_of_report(self._report)), ListenAddress(place, "--set metrics-port")
        routes = {"/metrics": lambda _: Response(write(), METRICS), "/healthz": lambda _: Response(b"running\n")}
        super().__init__(where, routes, "metrics", any_host=not where.local)

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Record the state of the run."""
        self._report = report
