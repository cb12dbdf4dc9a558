"""Annotations of the curves of a run."""

from __future__ import annotations

from typing import Any

from streamsvm.names import shown
from streamsvm.run.standing import Report

_MOST = 400
_NEW_AFTER = 1_000  # labels; an earlier class is not new
_LONGEST = 300


def annotations_of(report: Report) -> list[dict[str, Any]]:
    """Return detected drift, refits and new classes, in order of the stream."""
    found = [
        ("drift", drop.judged, f"accuracy fell from {drop.before:.3f} to {drop.after:.3f}")
        for drop in report.metrics.drops.last
    ]
    for refit in report.refits.last if report.refits is not None else []:
        what, outcome = f"{refit['events']:,} events", shown(refit["outcome"], _LONGEST)
        text = f"{refit['number']} by {refit['solver']} on {what}: {outcome}"
        found.append(("refit", refit["entered"] - report.learned_before, text))
    found += [("class", n, shown(label)) for label, n in report.metrics.arrivals if n >= _NEW_AFTER]
    found = sorted((one for one in found if one[1] > 0), key=lambda one: one[1])
    return [{"kind": kind, "judged": judged, "text": text} for kind, judged, text in found[-_MOST:]]
