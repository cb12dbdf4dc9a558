"""Plot of a run: accuracy over time with baselines, and the history of the model."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import replacing
from streamsvm.names import feature, shown
from streamsvm.run.errors import SetupError
from streamsvm.run.measures import CURVE_LINES

if TYPE_CHECKING:
    from streamsvm.run.report import Report

_STYLES = {
    "model": {"color": "#1f5fa8", "linewidth": 1.8, "zorder": 3},
    "no_change": {"color": "#d1701f", "linewidth": 1.1, "zorder": 2},
    "majority": {"color": "#8a8a8a", "linewidth": 1.1, "zorder": 1},
}
# Eight distinguishable line colours (Okabe and Ito 2008, with a darker yellow).
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#a89a00")
_MOST_FEATURES = len(_COLORS)
# Marks of refits by outcome; the last is for all others.
_REFITS = {"votes": ("^", "#009e73"), "failed": ("x", "#b02020"), "": ("|", "#8a8a8a")}
_PANELS = {
    "Log loss and Brier score": {"log_loss": "log loss {:.3f}", "brier": "Brier score {:.3f}"},
    "Prediction sets": {"coverage": "coverage {:.1%}", "size": "mean set size {:.2f}"},
    "Cost": {"cost": "mean per event {:.3g}"},
    "Alarms": {"alarms": "share of events {:.2%}"},
}
"""Panels of measures over time, with overall values in the legend."""
_LONGEST_NAME = 24
_DIAGRAM = (1.2, 0.12, 0.3, 0.42)  # place and size of the calibration diagram, relative to the panel of accuracy
_FORMATS = (".png", ".svg", ".pdf")
_MADE_BY = "streamsvm"
# Metadata of PNG, SVG and PDF as matplotlib writes them.
_IN_PICTURES = (f"Software\0{_MADE_BY}", f"<dc:title>{_MADE_BY}</dc:title>", f"/Creator ({_MADE_BY})")


def check_plot(path: str | os.PathLike[str]) -> None:
    """Refuse a plot that cannot be drawn at the end."""
    if Path(path).suffix.lower() not in _FORMATS:
        raise SetupError(f"--plot {path}: the name must end in one of {', '.join(_FORMATS)}")
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except Exception as error:  # a broken installation may raise anything
        raise SetupError(f"--plot needs matplotlib: pip install 'streamsvm[plot]' ({error})") from error


def is_picture(path: str) -> bool:
    """Return whether a file is a plot of a run, according to its metadata."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return False
    return any(mark.encode() in data for mark in _IN_PICTURES)


def plot(report: Report, path: str | os.PathLike[str]) -> None:
    """Plot accuracy over a sliding window, with two baselines.

    These always predict the previous label and the most frequent one.

    Dashed lines mark accuracy drops, and marks at the bottom the starts of refits. Further panels, if known, show
    losses of probabilities, coverage and size of prediction sets, costs, and relevance of features. A small diagram
    shows calibration.
    """
    from matplotlib import rc_context

    # A dollar sign in a name does not start a formula.
    with rc_context({"text.parse_math": False, "text.usetex": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a box is drawn instead
        _draw(report, path)


def _draw(report: Report, path: str | os.PathLike[str]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    history = report.history
    names, relevance = history.relevance(_MOST_FEATURES)
    overall = report.metrics.measures.overall
    timed = [title for title, lines in _PANELS.items() if not math.isnan(overall[next(iter(lines))])]
    heights = {"accuracy": 3.6} | dict.fromkeys(timed, 1.4)
    heights |= {"relevance": 2.6} if names else {}
    figure = Figure(figsize=(7.4, 0.9 + 1.05 * sum(heights.values())), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplot_mosaic([[name] for name in heights], height_ratios=list(heights.values()), sharex=True)
    _draw_accuracy(panels["accuracy"], report)
    reliability = report.metrics.measures.reliability
    if points := reliability.points():
        _draw_reliability(panels["accuracy"].inset_axes(_DIAGRAM), points, reliability.error)
    for title in timed:
        _draw_timed(panels[title], title, report)
    if names:
        _draw_relevance(panels["relevance"], history.at, names, relevance)
    last = panels[list(heights)[-1]]
    last.set_xlabel("labelled events")
    last.set_xlim(0, max(report.metrics.judged, 1))
    most = 5 if report.metrics.judged < 1_000_000 else 3  # numbers with more digits are wider
    last.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=True))
    last.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    with replacing(path) as file:
        kind = Path(path).suffix[1:].lower()
        figure.savefig(file, dpi=150, format=kind, metadata={"Software" if kind == "png" else "Creator": _MADE_BY})


def _draw_accuracy(axes: Any, report: Report) -> None:
    from matplotlib.ticker import PercentFormatter

    metrics = report.metrics
    # At most a tenth of the stream, because the curve of a short stream would be a line.
    window = min(metrics.measures.window, max(1, metrics.judged // 10))
    ends, shares = metrics.measures.curve.windowed(window)
    names = {"model": report.model.rpartition(".")[2], "no_change": "previous label", "majority": "most frequent label"}
    far_below = _cut_gap(axes, shares) if len(shares) else []
    for line, name in enumerate(CURVE_LINES):
        overall = f"{names[name]} {100.0 * metrics.baseline(name):.1f} %" + " (below)" * (line in far_below)
        axes.plot(ends, shares[:, line], label=overall, **_STYLES[name])
    for i, drop in enumerate(metrics.drops.last):
        label = "accuracy fell" if i == 0 else None
        axes.axvline(drop.judged, label=label, color="#b02020", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    _mark_refits(axes, report)
    axes.set_title(f"Prequential accuracy on {shown(os.path.basename(report.source))}", loc="left", fontsize=11)
    axes.set_ylabel(f"accuracy over the last {metrics.measures.curve.width_of(window):,}")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    _decorate(axes)


def _cut_gap(axes: Any, shares: NDArray[np.float64]) -> list[int]:
    """Exclude baselines that would leave half of the axis empty, and return them."""
    low, high = shares[:, 0].min(), shares[:, 0].max()
    baselines = sorted(range(1, shares.shape[1]), key=lambda line: -shares[:, line].max())
    for i, line in enumerate(baselines):
        if 2.0 * (low - shares[:, line].max()) > high - shares[:, line].min():
            axes.set_ylim(bottom=low - max(0.1 * (high - low), 0.005))
            return baselines[i:]
        low = min(low, shares[:, line].min())
    return []


def _draw_timed(axes: Any, title: str, report: Report) -> None:
    """Plot means over a sliding window; the legend shows overall means."""
    measures = report.metrics.measures
    for (name, label), color in zip(_PANELS[title].items(), _COLORS, strict=False):
        label = label.format(measures.overall[name])
        axes.plot(*measures.windowed(name), label=label, color=color, linewidth=1.4)
    axes.set_title(title, loc="left", fontsize=11)
    _decorate(axes)


def _draw_reliability(axes: Any, points: list[tuple[float, float, int]], error: float) -> None:
    """Plot accuracy by predicted probability, and the line of perfect calibration.

    Marks grow with the number of predictions.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    predicted, right, n = np.array(points).T
    axes.plot([0, 1], [0, 1], color="#8a8a8a", linewidth=1.0, linestyle=(0, (4, 3)))
    axes.plot(predicted, right, color=_COLORS[0], linewidth=1.0)
    axes.scatter(predicted, right, 5.0 + 40.0 * n / n.max(), color=_COLORS[0], zorder=3, clip_on=False)
    axes.set_title(f"Calibration error {error:.3f}", loc="left", fontsize=9)
    axes.set_xlabel("predicted probability", fontsize=9)
    axes.set_ylabel("accuracy", fontsize=9, labelpad=1)
    for axis, values in ((axes.xaxis, predicted), (axes.yaxis, right)):
        axis.set_view_interval(min(0.5, values.min()) - 0.03, 1.03, ignore=True)
        axis.set_major_locator(MaxNLocator(3))
        axis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _mark_refits(axes: Any, report: Report) -> None:
    """Mark each refit of the run at the bottom, by outcome."""
    marks: dict[str, list[int]] = {}
    for refit in report.refits.last if report.refits is not None else []:
        at = refit["event"] - report.learned_before
        if 0 < at <= report.metrics.taken:
            marks.setdefault(refit["outcome"].partition(":")[0], []).append(at)
    for outcome, events in marks.items():
        marker, color = _REFITS.get(outcome, _REFITS[""])
        axes.plot(
            *(events, [0.02] * len(events), marker),
            transform=axes.get_xaxis_transform(),
            label=f"refit {outcome}",
            color=color,
            markersize=5,
            zorder=4,
        )


def _draw_relevance(axes: Any, at: list[int], names: list[Hashable], values: NDArray[np.float64]) -> None:
    """Plot relevance on a logarithmic scale, because ratios matter."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for j in range(len(names)):
        axes.plot(at, values[:, j], label=f"feature {j}", color=_COLORS[j], linewidth=1.4)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 4.0 * low:  # too narrow for decades or their parts
        axes.yaxis.set_major_locator(MaxNLocator(5))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_title("Feature relevance", loc="left", fontsize=11)
    axes.set_ylabel("relevance")
    # Set later, because matplotlib omits labels that begin with an underscore from legends.
    for text, name in zip(_decorate(axes).get_texts(), names, strict=True):
        text.set_text(shown(feature(name), _LONGEST_NAME))


def _decorate(axes: Any) -> Any:
    """Add the grid and the legend, which is returned."""
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.04), frameon=False, fontsize=10, handlelength=1.4)
