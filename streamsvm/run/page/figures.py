"""Confusion matrix, calibration and annotations of a run for its page."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from streamsvm.names import listed, shown
from streamsvm.run.alarm_texts import alarm_line, change_text
from streamsvm.run.formatting import json_number
from streamsvm.run.measures import Measures
from streamsvm.run.metrics import Metrics
from streamsvm.run.report import Report

_MOST_CLASSES, _MOST_ANNOTATIONS, _MOST_COLUMNS, _MOST_ALARMS = 12, 400, 20, 50
_NEW_AFTER = 1_000  # labels; an earlier class is not new
_LONGEST = 300


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
