"""Plots: one style, legible on a small screen, and small files."""

from __future__ import annotations

import io
from typing import Any

from simulations.storage import PICTURES, replace

WIDTH = 6.8
"""Width of a figure in inches: on a screen of 390 pixels, its font has 8 pixels."""


def pyplot() -> Any:
    """Import pyplot without a display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style = {"font.size": 10, "axes.titlesize": 10, "axes.labelsize": 10, "legend.fontsize": 10}
    pyplot.rcParams |= style | {"axes.spines.top": False, "axes.spines.right": False}
    return pyplot


def png(figure: Any) -> bytes:
    """Format a figure as PNG with few colours, and close it."""
    from PIL import Image

    drawn, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=110, bbox_inches="tight")
    pyplot().close(figure)
    Image.open(drawn).convert("RGB").quantize(128).save(packed, "png", optimize=True)
    return packed.getvalue()


def save(figure: Any, name: str) -> None:
    """Save a figure with the pictures of the documentation."""
    replace(PICTURES / f"{name}.png", png(figure))


def plain(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 3.0)))
    axis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x >= 10_000 else f"{x:,.10g}")
    axis.set_minor_formatter(ticker.NullFormatter())
