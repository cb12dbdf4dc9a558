"""A picture of a run: accuracy over time, beside the baselines."""

from __future__ import annotations

import os
from pathlib import Path

from streamsvm.run.errors import SetupError
from streamsvm.run.metrics import CURVE_LINES
from streamsvm.run.runner import Report

_STYLES = {
    "model": {"color": "#1f5fa8", "linewidth": 1.8, "zorder": 3},
    "no_change": {"color": "#d1701f", "linewidth": 1.1, "zorder": 2},
    "majority": {"color": "#8a8a8a", "linewidth": 1.1, "zorder": 1},
}
_FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: str | os.PathLike[str]) -> None:
    """Refuse beforehand a picture that could not be drawn at the end."""
    if Path(path).suffix.lower() not in _FORMATS:
        raise SetupError(f"--plot {path}: the name must end in one of {', '.join(_FORMATS)}")
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except Exception as error:  # nobody knows how an installation is broken
        raise SetupError(f"--plot needs matplotlib: pip install 'streamsvm[plot]' ({error})") from error


def plot(report: Report, path: str | os.PathLike[str]) -> None:
    """Draw the accuracy over a sliding window, the model's beside "no change" and "majority" over the same windows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter, StrMethodFormatter

    metrics = report.metrics
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    # A window of at most a tenth of the stream: a short stream would be one straight line otherwise.
    window = min(metrics.window, max(1, metrics.judged // 10))
    ends, shares = metrics.curve.windowed(window)
    names = {"model": report.model.rpartition(".")[2], "no_change": "no change", "majority": "majority"}
    for line, name in enumerate(CURVE_LINES):
        overall = f"{names[name]}: {metrics.baseline(name):.1%} overall"
        axes.plot(ends, shares[:, line], label=overall, **_STYLES[name])  # type: ignore[arg-type]
    axes.set_title(f"Prequential accuracy on {os.path.basename(report.source)}", loc="left", fontsize=11)
    axes.set_xlabel("events with a label")
    axes.set_ylabel(f"accuracy over the last {window:,} events")
    axes.set_xlim(0, max(metrics.judged, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)
    figure.savefig(path, dpi=150)
