"""``python docs/state_page.py``: writes docs/state.md, the page of what learners hold, from their declarations."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm.kernels import (
    autocorrelation,
    blend,
    blocks,
    calibration,
    costs,
    expansion,
    experts,
    linear,
    panel,
    pending,
    polytope,
    requests,
    rows,
    sets,
    stacking,
    windows,
)
from streamsvm.kernels.state import Array, Declaration, Entry, Number

PAGE = Path(__file__).with_name("state.md")
TABLES = {
    rows.ROWS: "Rows on their way to a learner, and running scaling: part of every learner (`kernels/rows.py`)",
    polytope.CPM: "The convex polytope machine (`kernels/polytope.py`)",
    expansion.BSGD: "The budgeted kernel machine (`kernels/expansion.py`)",
    linear.LINEAR: "The linear member of the blend (`kernels/linear.py`)",
    blend.BLEND: "The blend (`kernels/blend.py`)",
    blocks.BLOCK: "Rows that the members of a blend see (`kernels/blocks.py`)",
    stacking.STACK: "The second vote (`kernels/stacking.py`)",
    autocorrelation.AUTOCORRELATION: "Label autocorrelation (`kernels/autocorrelation.py`)",
    calibration.CALIBRATION: "What probabilities are worth where labels are noisy (`kernels/calibration.py`)",
    windows.WINDOW: "A window of a stream (`kernels/windows.py`)",
    panel.PANEL: "The vote of a learner and the models of its refits (`kernels/panel.py`)",
    panel.BALLOT: "What that vote is asked (`kernels/panel.py`)",
    experts.PLANES: "A linear model of a refit (`kernels/experts.py`)",
    experts.EXPANSION: "A kernel machine of a refit (`kernels/experts.py`)",
    experts.TREES: "The trees of a refit (`kernels/experts.py`)",
    experts.MASKED_TREES: "Such trees by masks of their leaves (`kernels/experts.py`)",
    experts.QUESTION: "Rows that models of refits are asked about (`kernels/experts.py`)",
    sets.SETS: "Sets of labels of one coverage (`kernels/sets.py`)",
    sets.COVERING: "Events for which there are to be sets (`kernels/sets.py`)",
    costs.COSTS: "What decisions cost (`kernels/costs.py`)",
    costs.DECIDING: "Events for which there are to be decisions (`kernels/costs.py`)",
    pending.LEDGER: "Events and labels that wait for each other (`kernels/pending.py`)",
    requests.REQUEST: "What is asked of many rows (`kernels/requests.py`)",
}

HEAD = """# What learners hold

Made from the declarations in `streamsvm/kernels` by `python docs/state_page.py`; a test says when it is behind. What is
*saved* is learned, and stands in archives and checkpoints under the name given, behind the names of the parts it is in
(`1.rows.seen` is the first member's); all else follows from the settings, or passes with the event in hand. An array's
dimensions are named; those with `*` between are one for compiled code.
"""


def page() -> str:
    """The page as Markdown."""
    return "\n".join([HEAD, *(table(declaration, title) for declaration, title in TABLES.items())])


def table(declaration: Declaration, title: str) -> str:
    """One declaration."""
    lines = [f"## {title}", "", "| name | shape | type | saved | bounds | meaning |", "|---|---|---|---|---|---|"]
    for name, entry in declaration.entries.items():
        lines.append(row(name, entry))
        if isinstance(entry, Array):
            lines += [row(f"{name}.{key}", number) for key, number in (entry.fields or {}).items()]
    return "\n".join([*lines, ""])


def row(name: str, entry: Entry) -> str:
    """One entry."""
    if isinstance(entry, Number):
        cells = ["", np.dtype(entry.dtype).name, _saved(entry), _bounds(entry)]
    elif isinstance(entry, Array):
        kind = "records" if entry.fields else np.dtype(entry.dtype).name
        cells = [" x ".join(entry.dims), kind, _saved(entry), _bounds(entry)]
    else:
        cells = ["", f"a state of `{entry.declaration.name}`", "", ""]
    return f"| `{name}` | {' | '.join(cells)} | {entry.meaning} |"


def _saved(entry: Number | Array) -> str:
    return "yes" if entry.saved else ""


def _bounds(entry: Number | Array) -> str:
    low, high = entry.within
    return f"{low:g} to {high:g}" if entry.saved and (low, high) != (-np.inf, np.inf) else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
