"""Report of a run, as text and as plain data."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from connectors.columns import cells
from streamsvm.models.archive import encode_label
from streamsvm.names import feature, listed, shown
from streamsvm.run.alarm_texts import alarm_line, following_drop
from streamsvm.run.formatting import json_number, plain, span
from streamsvm.run.history import RefitSummary
from streamsvm.run.metrics import ClassScore, Metrics, Scores
from streamsvm.run.notices import rejection
from streamsvm.run.report import Report

if TYPE_CHECKING:
    from streamsvm.run.config import RunConfig

_MOST_CLASSES = 20
_MOST_LEADERS, _MOST_DROPS, _MOST_FEATURES, _MOST_REFITS, _MOST_IN_SUMMARY = 3, 5, 8, 3, 100
_BASELINE_MARGIN = 0.001  # difference to a baseline that the report mentions
_LONGEST = 300  # characters of a reason or a place
_ENDED = {"end of stream": "with the stream", "stopped": "on request", "error": "by an error"}


def summary(report: Report) -> dict[str, Any]:
    """Return the figures of a run for JSON.

    Only `process` depends on clocks and interruptions.
    """
    metrics, scores, insight = report.metrics, report.metrics.scores(), report.insight
    effect = insight.autocorrelation
    return {
        "model": report.model,
        "source": report.source,
        "out": report.out,
        "ended": report.ended,
        "events": metrics.taken,
        "predicted": metrics.events,
        "judged": metrics.judged,
        "unanswered": metrics.unanswered,
        "rejected": metrics.rejected,
        "rejected_to": report.rejected,
        "accuracy": json_number(metrics.accuracy),
        "recent_accuracy": json_number(metrics.recent_accuracy),
        "window": metrics.measures.window,
        "balanced_accuracy": json_number(scores.balanced_accuracy) if metrics.judged else None,
        "kappa": json_number(scores.kappa) if metrics.judged else None,
        "baselines": {name: json_number(metrics.baseline(name)) for name in ("no_change", "majority")},
        "probabilities": _probability_figures(metrics),
        "late": None if report.late is None else report.late.summary(report.estimated),
        "classes": [asdict(row) | {"label": encode_label(row.label)} for row in scores.classes],
        "notices": report.notices,
        "changes": dict(zip(("since", "what"), report.changes(), strict=True)),
        "accuracy_drops": [dict(zip(("judged", "before", "after"), drop, strict=True)) for drop in metrics.drops.last],
        "monitor": None if report.monitor is None else report.monitor.summary(),
        "leaders": insight.leaders,
        "refits": None if report.refits is None else _refit_figures(report.refits),
        "autocorrelation_weight": None if effect is None else effect["weight"],
        "autocorrelation_log_loss": None if effect is None else {name: effect[name] for name in ("without", "with")},
        "relevance": [
            {"feature": encode_label(feature(name)), "relevance": value}
            for name, value in list(insight.relevance.items())[:_MOST_IN_SUMMARY]
        ],
        "process": {
            "resumed_at": report.resumed,
            "events": report.events,
            "seconds": report.seconds,
            "model_seconds": report.learner_seconds,
            "first_prediction_s": report.first_prediction_s,
            "compile_seconds": report.compile_seconds,
            "refits": None if report.refits is None else _refit_seconds(report.refits),
        },
    }


def text(report: Report) -> str:
    """Return the report as text."""
    blocks = [_head(report)]
    if report.metrics.judged:
        metrics, scores = report.metrics, report.metrics.scores()
        blocks += [_measures(report, scores), _probabilities(metrics), _class_table(scores.classes)]
    else:
        blocks.append([_nothing(report)])
    blocks += [
        _late(report),
        _monitor(report),
        _knowledge(report),
        _refit_lines(report.refits),
        report.notices,
        _rejected_lines(report),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def warnings(report: Report, config: RunConfig) -> list[str]:
    """Return warnings of a quiet run: nothing was measured, or unexpected rejects."""
    metrics = report.metrics
    lines = [_nothing(report)] if config.label and metrics.taken and not metrics.judged else []
    return lines + _rejected_lines(report)[:1] if config.dead_letter is None else lines


def _head(report: Report) -> list[str]:
    metrics = report.metrics
    ended = _ENDED.get(report.ended, f"by {report.ended}")
    lines = [f"{metrics.taken:,} events of {report.source} by {report.model}, ended {ended}"]
    if report.resumed is not None:
        lines.append(f"resumed after {report.resumed:,} events; times cover the {report.events:,} events since")
    if report.events:
        each, model = (1e6 * s / report.events for s in (report.seconds, report.learner_seconds))
        rate = report.events / report.seconds
        lines.append(f"{rate:,.0f} events/s, {each:,.2f} µs per event, {model:,.2f} µs in the model")
    if report.first_prediction_s is not None:
        lines.append(f"first prediction {report.first_prediction_s:.2f} s after the start")
    if report.compile_seconds > 0.0:
        lines.append(f"kernels compiled in {report.compile_seconds:.1f} s, not included in these times")
    if report.out is not None:
        lines.append(f"predictions in {report.out}")
    return lines


def _nothing(report: Report) -> str:
    """Explain why there is nothing to measure."""
    metrics = report.metrics
    if not metrics.taken:
        return "no events: nothing to measure"
    if report.late is not None and report.late.store.counts["labels"] and not metrics.unanswered:
        return "no label matched an event: nothing to learn or to measure"
    if not metrics.unanswered and report.late is not None:
        return "no label was read: nothing to learn or to measure (does --label name the column of --label-source?)"
    if not metrics.unanswered and not report.learns:
        return "no event had a label: nothing to measure (--label NAME names the column)"
    if not metrics.unanswered:
        return "no event had a label: nothing to learn or to measure (does --label name the right column?)"
    return "no event had both a label and a prediction: nothing to measure"


def _measures(report: Report, scores: Scores) -> list[str]:
    metrics = report.metrics
    no_change, majority = metrics.baseline("no_change"), metrics.baseline("majority")
    lines = [
        f"accuracy           {metrics.accuracy:.4f}   over {metrics.judged:,} labelled events",
        f"  recent           {metrics.recent_accuracy:.4f}   over the last {metrics.measures.n_recent:,}",
        f"  no change        {no_change:.4f}   baseline: always predict the previous label",
        f"  majority         {majority:.4f}   baseline: always predict the most frequent label so far",
        f"balanced accuracy  {scores.balanced_accuracy:.4f}",
        f"Cohen's kappa      {scores.kappa:.4f}",
    ]
    lines += _drop_lines(metrics)
    if metrics.accuracy < max(no_change, majority) - _BASELINE_MARGIN:
        lines.append("the model is less accurate than a baseline that ignores the features")
    return lines


def _probabilities(metrics: Metrics) -> list[str]:
    """Return lines about probabilities and decisions, overall and recent."""
    overall, recent, classes = metrics.figures(), metrics.figures(recent=True), metrics.ranked()
    of = f"of {shown(classes[0][0])}; " if len(classes) == 1 else "mean over classes; "
    lines = []
    for name, title, what in (
        ("log_loss", "log loss", ""),
        ("brier", "Brier score", ""),
        ("calibration_error", "calibration error", ""),
        ("roc_auc", "ROC AUC", of),
        ("average_precision", "average precision", of),
        ("recall_at_alarms", "", ""),
        ("coverage", "coverage", f"mean set size {overall['size']:.2f}; "),
        ("cost", "cost", "mean per event; "),
        ("alarms", "alarms", "share of labelled events; "),
        ("precision", "  precision", ""),
        ("recall", "  recall", ""),
    ):
        value = overall[name]
        if isinstance(value, dict):
            shares = [f"{one:.3f} at {float(share):.0%} of alarms" for share, one in value.items() if one == one]
            lines += [f"  recall           {', '.join(shares)}"] if shares else []
        elif value == value:
            size = f", {recent['size']:.2f}" if name == "coverage" else ""
            lines.append(f"{title:18} {value:.4f}   {what}recent {recent[name]:.4f}{size}")
    return lines


def _probability_figures(metrics: Metrics) -> dict[str, Any] | None:
    """Return figures of probabilities and decisions, None without probabilities."""
    measures, ranking = metrics.measures, metrics.measures.ranking
    if measures.is_empty:
        return None
    classes = metrics.ranked()
    return dict(plain(metrics.figures())) | {
        "recent": plain(metrics.figures(recent=True)),
        "classes": [{"label": encode_label(label), **plain(ranking.figures([code]))} for label, code in classes],
        "reliability": [
            {"probability": p, "right": right, "events": n} for p, right, n in measures.reliability.points()
        ],
    }


def _drop_lines(metrics: Metrics) -> list[str]:
    """Return lines about drops of accuracy."""
    drops = metrics.drops
    if not drops.count:
        return []
    last = [f"{drop.judged:,} ({drop.before:.3f} to {drop.after:.3f})" for drop in drops.last[-_MOST_DROPS:]]
    earlier = f", {drops.count - len(last):,} earlier ones" if drops.count > len(last) else ""
    return [f"drift: significant drop of accuracy, detected after {', '.join(last)}{earlier} labelled events"]


def _class_table(classes: list[ClassScore]) -> list[str]:
    rows = [["class", "events", "predicted", "precision", "recall", "F1"]]
    for row in classes[:_MOST_CLASSES]:
        shares = (f"{share:.4f}" for share in (row.precision, row.recall, row.f1))
        rows.append([shown(row.label), f"{row.events:,}", f"{row.predicted:,}", *shares])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([name.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True))])
        for name, *cells in rows
    ]
    left_out = len(classes) - _MOST_CLASSES
    return [*lines, f"and {left_out:,} rarer classes"] if left_out > 0 else lines


def _late(report: Report) -> list[str]:
    """Return lines about late labels."""
    if report.late is None:
        return []
    n, now = report.late.totals(), report.estimated
    taken = report.metrics.events
    lines = [
        f"late labels: {n['answered']:,} of {taken:,} events got their label in time; {n['waiting']:,} events wait"
    ]
    if n["answered"] + n["late"]:
        times = ", ".join(f"{name} {span(lag)}" for name, lag in report.late.lags.seconds().items())
        lines.append(f"  delay: {times}")
    if (budget := report.late.budget) is not None:
        share = 100.0 * budget.n_asked / max(budget.n_seen, 1)
        lines.append(f"  requested labels of {budget.n_asked:,} events ({share:.1f} %); accuracy covers only these")
    others = {
        "expired events": n["expired"],
        "labels after expiry, not learned": n["late"],
        "labels without an event": n["unmatched"],
        "labels waiting for their event": n["early"],
        "repeated labels": n["repeated"],
        "corrected labels": n["corrected"],
        "events with a duplicate key": n["duplicates"],
        "dropped because memory was full": n["dropped"],
    }
    if any(others.values()):
        lines.append("  " + ", ".join(f"{name} {count:,}" for name, count in others.items() if count))
    if now.events:
        lines.append(
            f"estimated accuracy {now.accuracy:.4f} ± {now.error:.4f}   over the last {now.events:,} predictions, from "
            "their probabilities"
        )
        if now.lowered:
            changed, before = report.changed_shares, now.accuracy + now.lowered
            share, names = min(1.0, sum(changed.values())), listed(changed)
            lines.append(f"  lowered from {before:.4f}: values with {share:.0%} of the relevance changed: {names}")
    return lines


def _monitor(report: Report) -> list[str]:
    """Return lines about changed features, the most relevant first.

    Each tells whether the accuracy dropped afterwards.
    """
    if report.monitor is None:
        return []
    found = report.monitor.summary()
    alarms = [alarm for alarm in found["last"] if alarm["column"] is not None]
    changed = found["changed"] + found["changed_relations"]
    now = f"changed now: {listed(changed)}" if changed else "none is changed now"
    counts = ", ".join(f"{kind} {n:,}" for kind, n in found["counts"].items() if kind != "accuracy")
    lines = [f"monitored features: {found['columns']:,}; alarms: {counts or 'none'}; {now}"]
    # The most relevant first, then the latest.
    first = sorted(alarms, key=lambda alarm: (-(alarm["relevance"] or 0.0), -alarm["events"]))[:_MOST_DROPS]
    lines += [f"  after event {one['events']:,}: {alarm_line(one)}{_followed(one, report.metrics)}" for one in first]
    left_out = sum(found["counts"].values()) - found["counts"].get("accuracy", 0) - len(first)
    lines += [f"  and {left_out:,} more"] if left_out > 0 else []
    if found["dependent"]:
        why = "dates, identifiers, or values that depend on each other for as long as the reference"
        lines.append(f"  values not compared: {listed(found['dependent'])} ({why})")
    return lines


def _followed(alarm: dict[str, Any], metrics: Metrics) -> str:
    if not metrics.judged:
        return ""
    if alarm["labelled"] is None:
        return "; no labels of later events yet"
    drop = following_drop(alarm, metrics.drops.last)
    return "; no drop of accuracy" if drop is None else f"; accuracy {drop.before:.3f} to {drop.after:.3f}"


def _leader(head: dict[str, Any]) -> str:
    name = f"{head['member']} ({head['head']})" if head["head"] else head["member"]
    accuracy = "" if head["accuracy"] is None else f", recent accuracy {head['accuracy']:.4f}"
    return f"{name} with {head['weight']:.0%} of the vote{accuracy}"


def _knowledge(report: Report) -> list[str]:
    """Return lines about the leading members and the relevant features."""
    lines, insight = [], report.insight
    if insight.leaders:
        heads = [_leader(head) for head in insight.leaders[:_MOST_LEADERS]]
        suffix = " by itself" if insight.autocorrelation is not None and insight.autocorrelation["weight"] else ""
        lines.append(f"leading members: {f'{suffix}; '.join(heads)}{suffix}")
    if insight.autocorrelation is not None:
        lines.append(_autocorrelation(insight.autocorrelation))
    if insight.relevance:
        shares = (f"{shown(feature(name))} {value:.2g}" for name, value in insight.relevance.items())
        lines.append(f"most relevant features: {cells.listed(shares, _MOST_FEATURES, str)}")
    since, changes = report.changes()
    if changes:
        lines.append(f"changes since event {since:,}:")
        lines += [f"  {change}" for change in changes]
    return lines


def _autocorrelation(effect: dict[str, float]) -> str:
    """Return a line about the effect of label autocorrelation.

    It compares geometric mean probabilities of the true labels.
    """
    if not effect["weight"]:
        return "label autocorrelation: not used (no gain)"
    without, with_ = (math.exp(-effect[name]) for name in ("without", "with"))
    gain = f"mean probability of the true label {with_:.2f}, {without:.2f} without"
    return f"label autocorrelation: used, weight {effect['weight']:.2f}, recent {gain}"


def _refit_lines(refits: RefitSummary | None) -> list[str]:
    if refits is None:
        return []
    if not refits.count:
        return ["no refits: none was due or completed"]
    outcomes = ", ".join(f"{outcome} {count:,}" for outcome, count in refits.outcomes.items())
    head = f"refits: {refits.count:,} ({outcomes}) in {refits.seconds:.1f} s; share of the vote {refits.share:.0%}"
    return [head, *map(_refit_line, refits.last[-_MOST_REFITS:])]


def _refit_line(refit: dict[str, Any]) -> str:
    settings = "".join(f", {name} {shown(value)}" for name, value in refit["settings"].items())
    score = "" if refit["score"] is None else f", accuracy {refit['score']:.4f} on the newer part"
    what = f"{refit['solver']} on {refit['events']:,} events{settings}{score}, {refit['seconds']:.1f} s"
    share = f" with {refit['share']:.0%}" if refit["outcome"] == "votes" else ""
    return f"  after {refit['event']:,}: {what}: {shown(refit['outcome'], _LONGEST)}{share}"


def _refit_figures(refits: RefitSummary) -> dict[str, Any]:
    """Return figures of refits that depend on the stream alone."""
    last = [{name: value for name, value in refit.items() if name != "seconds"} for refit in refits.last]
    return refits.figures() | {"last": last}


def _refit_seconds(refits: RefitSummary) -> dict[str, Any]:
    return {"seconds": refits.seconds, "last": {str(refit["number"]): refit["seconds"] for refit in refits.last}}


def _rejected_lines(report: Report) -> list[str]:
    count = report.metrics.rejected
    if not count:
        return []
    where = (
        "only counted (--dead-letter FILE writes them)" if report.rejected is None else f"written to {report.rejected}"
    )
    lines = [f"{count:,} event{'s' * (count > 1)} rejected, {where}"]
    return [*lines, *(f"  {rejection(example, _LONGEST)}" for example in report.rejects.first)]
