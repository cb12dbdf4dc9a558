"""Alarms of a run in words, for its report and its dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamsvm.names import shown
from streamsvm.run.accuracy_drops import AccuracyDrop

_SHARES = {
    "unseen": ("unseen", "share of unseen values"),
    "missing": ("missing", "share missing"),
    "type": ("other_type", "share of another type"),
    "stuck": ("repeats", "share equal to the previous value"),
}
"""Field and title of the share that an alarm reports, by kind."""
_FOLLOWS = 10_000  # labelled events within which a drop of accuracy follows an alarm
# The mean is named, unless a quantile moved more than twice as far.
_WEIGHTS = {"mean": 2.0, "median": 1.0, "p05": 1.0, "p95": 1.0, "correlation": 1.0, "odd_share": 1.0, "accuracy": 1.0}


def change_text(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the figure that changed most, before and after.

    Parameters
    ----------
    kind, before, after
        As in an alarm.

    Examples
    --------
    >>> change_text("distribution", {"mean": 20.0, "p05": 16.0, "p95": 24.0}, {"mean": 35.12345, "p05": 31, "p95": 39})
    'mean 20 to 35.12'
    >>> change_text("distribution", {"mean": 0.0, "p05": -1.6, "p95": 1.6}, {"mean": 0.1, "p05": -3.2, "p95": 3.3})
    'p95 1.6 to 3.3'
    >>> change_text("distribution", {"values": {"web": 0.7, "app": 0.3}}, {"values": {"web": 0.2, "app": 0.5}})
    'share of web 70.0 % to 20.0 %'
    >>> change_text("type", {"missing": 0.0}, {"other_type": 0.31, "missing": 0.0, "examples": ["n/a"]})
    'share of another type 0.0 % to 31.0 %, such as n/a'
    >>> change_text("distribution", {"mean": 1767226.0}, {"mean": 1767321.0})
    'mean 1767226 to 1767321'
    >>> change_text("missing", {"missing": 0.0}, {"missing": 0.31})
    'share missing 0.0 % to 31.0 %'
    """
    if kind == "range":
        return f"{change_text('', before, after)}, {_percent(after.get('out_of_range'))} outside the range"
    if kind in _SHARES:
        name, title = _SHARES[kind]
        some = ", ".join(shown(str(value)) for value in after.get("examples", ()))
        return f"{title} {_percent(before.get(name))} to {_percent(after.get(name))}{some and f', such as {some}'}"
    if "values" in before and "values" in after:
        old, new = before["values"], after["values"]
        value = max([*old, *new], key=lambda name: abs(new.get(name, 0.0) - old.get(name, 0.0)))
        return f"share of {shown(value)} {_percent(old.get(value))} to {_percent(new.get(value))}"
    names = [name for name in before if name in after]
    if not names:
        return "values are absent"
    name = max(names, key=lambda name: _WEIGHTS.get(name, 0.0) * _distance(before[name], after[name]))
    return f"{name} {' to '.join(_figures(before[name], after[name]))}"


def _distance(before: Any, after: Any) -> float:
    """Return how far a figure moved; 0 for texts, such as "above 40"."""
    are_numbers = isinstance(before, int | float) and isinstance(after, int | float)
    return abs(float(after) - float(before)) if are_numbers else 0.0


def _percent(share: Any) -> str:
    return f"{100.0 * float(share or 0.0):.1f} %"


def _figures(*values: Any) -> list[str]:
    """Return figures with four digits, or with more if they would look equal."""
    for digits in (4, 7, 9):
        found = [f"{value:.{digits}g}" if isinstance(value, int | float) else shown(value) for value in values]
        if len(set(found)) == len(found):
            break
    return found


def alarm_line(alarm: Mapping[str, Any]) -> str:
    """Return an alarm in words, without the time.

    Parameters
    ----------
    alarm
        An alarm of `RunMonitor.alarms`.
    """
    what = change_text(alarm["kind"], alarm["before"], alarm["after"])
    relevance = "" if alarm["relevance"] is None else f", relevance {alarm['relevance']:.0%}"
    return what if alarm["column"] is None else f"{shown(alarm['column'])}: {what} ({alarm['kind']}{relevance})"


def following_drop(alarm: Mapping[str, Any], drops: Sequence[AccuracyDrop]) -> AccuracyDrop | None:
    """Return the first accuracy drop within 10,000 labels after a change, else None.

    Parameters
    ----------
    alarm
        An alarm of `RunMonitor.alarms`.
    drops
        Drops of the accuracy.
    """
    if alarm["labelled"] is None:
        return None
    began = alarm["labelled"] - (alarm["events"] - alarm["since"])
    return next((drop for drop in drops if began <= drop.judged <= alarm["labelled"] + _FOLLOWS), None)
