"""Plots of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from connectors.synthetic import Scenario
from simulations.drift.summary import OURS, Standing, curve
from simulations.plots import WIDTH, plain, png, pyplot

COLOURS = {
    OURS: "#0b62c4",
    "ARF": "#d1701f",
    "SRP": "#7a5195",
    "LB": "#9c755f",
    "KNN": "#c23b75",
    "HAT": "#4d9a52",
    "LR": "#8a8a8a",
}
# Window of the moving average of a curve, in points.
SMOOTH = 5


def curves(cells: pd.DataFrame, scenarios: Sequence[Scenario], learners: Sequence[str]) -> bytes:
    """Plot accuracy over time with the true drift points, one panel per scenario."""
    rows = -(-len(scenarios) // 2)
    figure, axes = pyplot().subplots(rows, 2, figsize=(WIDTH, 2.1 * rows), squeeze=False)
    for axis in axes.flat[len(scenarios) :]:
        axis.set_axis_off()
    for axis, scenario in zip(axes.flat, scenarios, strict=False):
        _panel(axis, cells, scenario, learners)
    for axis in axes[:, 0]:
        axis.set_ylabel("accuracy (%)")
    for axis in axes.flat[max(len(scenarios) - 2, 0) : len(scenarios)]:
        axis.set_xlabel("events")
    handles = {name: axes.flat[0].plot([], [], **_style(name))[0] for name in learners}
    handles["true drift"] = axes.flat[0].plot([], [], color="0.45", linewidth=1.0, linestyle=(0, (3, 2)))[0]
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="lower center",
        ncols=len(handles),
        frameon=False,
        bbox_to_anchor=(0.5, 1.0),
        handlelength=1.2,
        columnspacing=1.0,
    )
    figure.tight_layout(h_pad=1.2)
    return png(figure)


def _style(learner: str) -> dict[str, Any]:
    own = learner == OURS
    return {"color": COLOURS.get(learner, "0.6"), "linewidth": 2.0 if own else 1.1, "zorder": 3 if own else 2}


def _panel(axis: Any, cells: pd.DataFrame, scenario: Scenario, learners: Sequence[str]) -> None:
    for drift in scenario.drifts:
        axis.axvline(drift.at, color="0.45", linewidth=1.0, linestyle=(0, (3, 2)), zorder=1)
        if drift.width:
            axis.axvspan(drift.at - drift.width / 2, drift.at + drift.width / 2, color="0.9", linewidth=0, zorder=0)
    for learner in learners:
        found = curve(cells, scenario.name, learner)
        if len(found):
            smooth = np.convolve(found, np.ones(SMOOTH) / SMOOTH, "valid")
            at = (np.arange(len(smooth)) + (SMOOTH + 1) / 2) * scenario.events / len(found)
            axis.plot(at, 100.0 * smooth, **_style(learner))
    axis.set_title(scenario.name, fontsize=10, loc="left", fontweight="bold")
    axis.set_xlim(0, scenario.events)
    axis.xaxis.set_major_locator(pyplot().MaxNLocator(4, integer=True))
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axis.yaxis.set_major_locator(pyplot().MaxNLocator(4, integer=True))
    axis.grid(axis="y", alpha=0.25)


def ranks(found: Standing) -> bytes:
    """Plot Demšar's critical difference diagram of mean ranks.

    Bars join learners without a significant difference.
    """
    import scikit_posthocs

    figure, axis = pyplot().subplots(figsize=(WIDTH, 0.5 + 0.27 * len(found.ranks)))
    scikit_posthocs.critical_difference_diagram(
        found.ranks,
        found.nemenyi,
        ax=axis,
        label_fmt_left="{label}  {rank:.1f}  ",
        label_fmt_right="  {rank:.1f}  {label}",
        color_palette={name: COLOURS.get(name, "0.35") for name in found.ranks.index},
        label_props={"fontsize": 10},
        crossbar_props={"color": "0.25", "linewidth": 2.5},
        text_h_margin=0.02,
    )
    axis.set_title(
        f"mean rank by accuracy over {len(found.accuracy)} scenarios;\nbars join learners that Nemenyi's test (5 %)"
        " does not tell apart",
    )
    return png(figure)


def cost(cells: pd.DataFrame, table: pd.DataFrame) -> bytes:
    """Plot mean accuracy against the time per event."""
    figure, axis = pyplot().subplots(figsize=(WIDTH, 4.4))
    whose = cells.groupby("learner").of.first()
    points = {
        str(name): (row["µs per event"], 100.0 * row["accuracy"])
        for name, row in table.dropna(subset=["accuracy"]).iterrows()
        if name != "StreamSVM no autocorrelation"  # at the point of the default, as generated labels do not persist
    }
    colours = {name: COLOURS[OURS] if whose[name] == "streamsvm" else "0.4" for name in points}
    for name, point in points.items():
        axis.scatter(*point, s=46, color=colours[name], zorder=3)
    axis.set(
        xscale="log",
        xlabel="time per event, µs (median)",
        ylabel="accuracy, mean over scenarios (%)",
    )
    plain(axis.xaxis)
    axis.margins(x=0.16, y=0.14)
    axis.grid(alpha=0.25)
    _label(axis, points, colours)
    return png(figure)


def _label(axis: Any, points: dict[str, tuple[float, float]], colours: dict[str, str]) -> None:
    """Label each point at the first free place around it."""
    places = [(x, dy, side) for dy in (0, 9, -9) for x, side in ((7, "left"), (-7, "right"))]
    places += [(7, dy, "left") for dy in (18, -18, 27, -27, 36, -36)]
    axis.figure.canvas.draw()
    pixels = axis.transData.transform(list(points.values()))
    taken: list[Any] = []
    for name, point in points.items():
        for dx, dy, side in places:
            text = axis.annotate(
                name,
                point,
                xytext=(dx, dy),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=9,
                color=colours[name],
            )
            box = text.get_window_extent()
            inside = axis.bbox.contains(box.x0, box.y0) and axis.bbox.contains(box.x1, box.y1)
            covers = any(box.overlaps(other) for other in taken) or any(box.contains(*at) for at in pixels)
            if inside and not covers:
                break
            text.remove()
        else:
            continue
        taken.append(box)
