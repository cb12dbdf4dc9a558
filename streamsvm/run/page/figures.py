"""What a page shows of a run, and its counts over time in bounded memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.names import feature, listed, shown
from streamsvm.run.alarm_texts import alarm_line, change_text
from streamsvm.run.formatting import json_number
from streamsvm.run.measures import COLUMNS as MEASURED
from streamsvm.run.measures import CURVE_LINES, UNIT, Measures
from streamsvm.run.metrics import Metrics
from streamsvm.run.notices import place_text
from streamsvm.run.report import Report

_MOST_CLASSES, _MOST_ANNOTATIONS, _MOST_COLUMNS, _MOST_ALARMS = 12, 400, 20, 50
_NEW_AFTER = 1_000  # labels; an earlier class is not new
_LONGEST = 300
_MOST_LINES, _MOST_PARTS, _MOST_REFITS = 8, 64, 6

COLUMNS = (
    *("time", "taken", "judged", "rejected", "hits", "no_change", "majority"),  # counts, except the time in seconds
    *("loss", "scored"),  # the summed log loss, and the number of events
    *("lag", "pending"),
)
_FINENESS = 500.0  # age of a point over the distance to its neighbours, at most
_MOST = 2_048  # points between two reductions


class Series:
    """Points in time, spaced from 1 s to 1/500 of their age (2,000 points per day).

    Examples
    --------
    >>> series = Series()
    >>> for second in range(10_000):
    ...     series.add({"time": float(second), "judged": 10.0 * second})
    >>> columns = series.columns()
    >>> len(columns["time"]) < 3_000, float(columns["time"][0]), float(columns["time"][-1])
    (True, 0.0, 9999.0)
    """

    def __init__(self) -> None:
        self._table, self._new = np.zeros((0, len(COLUMNS))), list[list[float]]()
        self._lock = threading.Lock()

    def add(self, figures: Mapping[str, float]) -> None:
        """Add a point: values of `COLUMNS`."""
        with self._lock:
            self._new.append([figures.get(name, np.nan) for name in COLUMNS])
            if len(self._new) >= _MOST:
                self._table, self._new = _thinned(self._all()), []

    def _all(self) -> NDArray[np.float64]:
        return np.concatenate([self._table, np.array(self._new).reshape(-1, len(COLUMNS))])

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Return all points by column, the oldest first, and always with the newest."""
        with self._lock:
            table = _thinned(self._all())
        return dict(zip(COLUMNS, table.T, strict=True))


def _thinned(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keep the first point per interval; interval lengths double with age."""
    if not len(table):
        return table
    time = table[:, 0]
    length = 2.0 ** np.floor(np.log2(np.maximum((time[-1] - time) / _FINENESS, 1.0)))
    interval = np.floor(time / length)
    is_first = (np.diff(interval, prepend=np.nan) != 0) | (np.diff(length, prepend=np.nan) != 0)
    is_first[-1] = True
    kept: NDArray[np.float64] = table[is_first]
    return kept


def rounded(values: NDArray[np.float64]) -> list[float | None]:
    """Return the values with few digits, to shorten JSON; None unless finite."""
    return [
        None if not math.isfinite(v) else int(v) if v == int(v) else float(f"{v:.6g}" if abs(v) < 1e6 else f"{v:.3f}")
        for v in values.tolist()
    ]


def state_of(report: Report) -> dict[str, Any]:
    """Return source, sinks, pending work, counts and the quality of predictions."""
    checkpoint, refits, lag, metrics = report.checkpoint, report.refits, report.lag, report.metrics
    parts = sorted((lag or {}).items(), key=lambda part: -part[1])
    return {
        "ended": report.ended,
        "source": report.source,
        "out": report.out,
        "resumed": report.resumed,
        "rate": report.rate,
        "lag": None if lag is None else {"total": sum(lag.values()), "parts": parts[:_MOST_PARTS]},
        "stalls": report.stalls,
        "checkpoint": None if checkpoint is None else {"at": checkpoint.written_at, "every_s": checkpoint.every_s},
        "pending": pending(report),
        "refits": None if refits is None else refits.figures() | {"last": list(refits.last[-_MOST_REFITS:])},
        "rejects": {
            "reasons": report.rejects.reasons.most_common(),
            "last": [
                {"reason": one.reason, "place": place_text(one), "raw": one.raw}
                for one in reversed(report.rejects.last)
            ],
            "to": report.rejected,
        },
        "events": metrics.taken,
        "judged": metrics.judged,
        "unanswered": metrics.unanswered,
        "rejected": metrics.rejected,
        "window": metrics.measures.window,
        "accuracy": metrics.accuracy,
        "late": {"events": metrics.measures.n_recent} | metrics.measures.recent_hits,
        "estimated": estimated(report),
        "calibration": calibration(metrics.measures),
        "confusion": confusion(metrics),
        "classes": len(metrics.arrivals),
        "marks": annotations_of(report),
    }


def name_of(report: Report, model: Any) -> str:
    """Return the name of a model."""
    if report.refits is None:
        return report.model.rpartition(".")[2]
    return f"{type(getattr(model, 'model', model)).__name__} with refits"


def point_of(report: Report, now: float) -> dict[str, float]:
    """Return the values of `COLUMNS` now."""
    metrics = report.metrics
    sums = dict(zip(MEASURED, metrics.measures.curve.totals().tolist(), strict=True))
    held = pending(report)
    return {
        "time": round(now, 3),
        "taken": metrics.taken,
        "judged": metrics.judged,
        "rejected": metrics.rejected,
        "hits": sums["model"],
        "no_change": sums["no_change"],
        "majority": sums["majority"],
        "loss": sums["log_loss"] / UNIT,
        "scored": sums["rated"],
        "lag": float("nan") if report.lag is None else float(sum(report.lag.values())),
        "pending": float("nan") if held is None else float(held),
    }


def pending(report: Report) -> int | None:
    """Return the number of events waiting for labels, None without late labels."""
    return None if report.late is None else int(report.late.store.n_waiting)


def history_of(report: Report) -> dict[str, Any]:
    """Return the curves over all events, including earlier processes, as in `--plot`."""
    metrics, history = report.metrics, report.history
    ends, shares = metrics.measures.curve.windowed(metrics.measures.window)
    names, relevance = history.relevance(_MOST_LINES)
    members, led = history.leaders()
    return {
        "judged": ends.tolist(),
        "over": metrics.measures.curve.width_of(metrics.measures.window),
        "shares": {name: rounded(shares[:, k]) for k, name in enumerate(CURVE_LINES)},
        "at": list(history.at),
        "relevance": [[shown(feature(name)), rounded(relevance[:, j])] for j, name in enumerate(names)],
        "members": members,
        "leaders": led.tolist(),
    }


def confusion(metrics: Metrics) -> dict[str, Any]:
    """Return the recent confusion matrix of the most frequent classes.

    It has a row per label and a column per prediction.
    """
    labels, guesses, counts = metrics.measures.recent_pairs()
    names = metrics.labels
    weights = np.bincount(np.concatenate([labels, guesses]), np.tile(counts, 2), len(names))
    chosen = [code for code in np.argsort(-weights, kind="stable")[:_MOST_CLASSES].tolist() if weights[code]]
    pairs = dict(zip(zip(labels.tolist(), guesses.tolist(), strict=True), counts.tolist(), strict=True))
    return {
        "classes": [shown(names[code]) for code in chosen],
        "counts": [[pairs.get((label, guess), 0) for guess in chosen] for label in chosen],
        "left_out": int((weights > 0).sum()) - len(chosen),
        "events": metrics.measures.n_recent,
    }


def calibration(measures: Measures) -> dict[str, Any] | None:
    """Return log loss and calibration error with bins, None without probabilities."""
    recent = measures.recent_reliability
    if not recent.counts[0].any():
        return None
    return {
        "events": int(recent.counts[0].sum()),
        "loss": json_number(measures.recent["log_loss"]),
        "error": recent.error,
        "bins": [{"said": p, "right": right, "events": n} for p, right, n in recent.points()],
    }


def estimated(report: Report) -> dict[str, Any] | None:
    """Return the estimated accuracy and the features that lower it, or None."""
    now = report.estimated
    if not now.events:
        return None
    changed = report.changed_shares if now.lowered else {}
    return asdict(now) | {"share": min(1.0, sum(changed.values())), "features": listed(changed)}


def features(report: Report, relevance: Mapping[Hashable, float]) -> dict[str, Any] | None:
    """Return the states of monitored features, or None without a monitor.

    Changed features come first, then the most relevant ones.

    Parameters
    ----------
    report
        State of the run.
    relevance
        Relevance of the features.
    """
    if report.monitor is None:
        return None
    states = report.monitor.columns(relevance)
    return {
        "columns": len(states),
        "changed": sum(bool(state.changed) for state in states),
        "relations": report.monitor.changed_relations(),
        "alarms": sum(report.monitor.counts.values()),
        "rows": [
            {
                "name": state.name,
                "kind": state.kind,
                "status": state.status,
                "changed": list(state.changed),
                "since": state.since,
                "psi": state.psi if state.recent else None,
                "reference": state.reference,
                "recent": state.recent,
                "text": change_text((state.changed or ("values",))[0], state.reference, state.recent)
                if state.recent
                else "",
            }
            for state in states[:_MOST_COLUMNS]
        ],
    }


def annotations_of(report: Report) -> list[dict[str, Any]]:
    """Return accuracy drops, refits, new classes and changed features, in order."""
    found = [
        ("drift", drop.judged, f"accuracy fell from {drop.before:.3f} to {drop.after:.3f}")
        for drop in report.metrics.drops.last
    ]
    for refit in report.refits.last if report.refits is not None else []:
        what, outcome = f"{refit['events']:,} events", shown(refit["outcome"], _LONGEST)
        text = f"{refit['number']} by {refit['solver']} on {what}: {outcome}"
        found.append(("refit", refit["entered"] - report.learned_before, text))
    found += [("class", n, shown(label)) for label, n in report.metrics.arrivals if n >= _NEW_AFTER]
    alarms = [] if report.monitor is None else report.monitor.alarms[-_MOST_ALARMS:]
    found += [("feature", alarm["judged"], alarm_line(alarm)) for alarm in alarms if alarm["column"] is not None]
    found = sorted((one for one in found if one[1] > 0), key=lambda one: one[1])
    return [{"kind": kind, "judged": judged, "text": text} for kind, judged, text in found[-_MOST_ANNOTATIONS:]]
