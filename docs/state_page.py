"""Write docs/state.md, the page of the memory of learners, from their schemas."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm.budgeted import expansion
from streamsvm.core.schema import Array, Number, Schema, SchemaEntry
from streamsvm.decide import conformal_kernels as sets
from streamsvm.delayed import label_join as pending
from streamsvm.ensemble import blend, codes, combined_vote, forest, linear, naive_bayes, trees
from streamsvm.ensemble import label_autocorrelation as autocorrelation
from streamsvm.features import scaler as rows
from streamsvm.online import batch, calibration
from streamsvm.online import batch as blocks
from streamsvm.polytope import kernels as polytope
from streamsvm.refit import frozen_models, vote_kernels

PAGE = Path(__file__).with_name("state.md")
TABLES = {
    rows.SCALER: "Current row and running scaling, in every learner (`features/scaler.py`)",
    polytope.CPM: "Convex polytope machine (`polytope/kernels.py`)",
    expansion.BSGD: "Budgeted kernel machine (`budgeted/expansion.py`)",
    linear.LINEAR: "Linear member of an ensemble (`ensemble/linear.py`)",
    trees.TREES_STATE: "Trees as a member of an ensemble (`ensemble/trees.py`)",
    forest.FOREST_STATE: "Forest as a member of an ensemble (`ensemble/forest.py`)",
    naive_bayes.NAIVE_BAYES: "Naive Bayes member of an ensemble (`ensemble/naive_bayes.py`)",
    blend.BLEND: "Ensemble (`ensemble/vote.py`)",
    blocks.MINIBATCH: "Minibatch of scaled rows for the members of an ensemble (`online/batch.py`)",
    combined_vote.COMBINATION: "Combined vote (`ensemble/combined_vote.py`)",
    codes.CODES: "Codes (`ensemble/codes.py`)",
    autocorrelation.AUTOCORRELATION: "Label autocorrelation (`ensemble/label_autocorrelation.py`)",
    calibration.CALIBRATION: "Calibration with label noise (`online/calibration.py`)",
    vote_kernels.MODEL_VOTE: "Vote of a learner and its refitted models (`refit/vote_kernels.py`)",
    vote_kernels.VOTES: "Rows to vote on (`refit/vote_kernels.py`)",
    frozen_models.PLANES: "Refitted linear model (`refit/frozen_models.py`)",
    frozen_models.EXPANSION: "Refitted kernel machine (`refit/frozen_models.py`)",
    frozen_models.TREES: "Refitted trees (`refit/frozen_models.py`)",
    frozen_models.QUERY: "Rows that refitted models are evaluated on (`refit/frozen_models.py`)",
    sets.SETS: "Prediction sets of one coverage (`decide/conformal_kernels.py`)",
    sets.COVERING: "Events with prediction sets (`decide/conformal_kernels.py`)",
    pending.JOIN_TABLE: "Events and labels to be joined (`delayed/label_join.py`)",
    batch.BATCH: "Batch of rows (`online/batch.py`)",
}

HEAD = """# State of learners

This page is generated from the schemas of the kernels by `python docs/state_page.py`. *Saved* fields are learned.
Archives and checkpoints contain them under their name, prefixed with the names of substates: `1.rows.seen` belongs to
the first member. All other fields follow from settings or hold the current event. Array dimensions are named;
dimensions joined by `*` are a single one in compiled code.
"""


def page() -> str:
    """The page as Markdown."""
    return "\n".join([HEAD, *(table(schema, title) for schema, title in TABLES.items())])


def table(schema: Schema, title: str) -> str:
    """One schema."""
    lines = [f"## {title}", "", "| name | shape | type | saved | bounds | meaning |", "|---|---|---|---|---|---|"]
    for name, entry in schema.entries.items():
        lines.append(row(name, entry))
        if isinstance(entry, Array):
            lines += [row(f"{name}.{key}", number) for key, number in (entry.fields or {}).items()]
    return "\n".join([*lines, ""])


def row(name: str, entry: SchemaEntry) -> str:
    """One entry."""
    if isinstance(entry, Number):
        cells = ["", np.dtype(entry.dtype).name, _saved(entry), _bounds(entry)]
    elif isinstance(entry, Array):
        kind = "records" if entry.fields else np.dtype(entry.dtype).name
        cells = [" x ".join(map(str, entry.dims)), kind, _saved(entry), _bounds(entry)]
    else:
        cells = ["", f"a state of `{entry.schema.name}`", "", ""]
    return f"| `{name}` | {' | '.join(cells)} | {entry.meaning} |"


def _saved(entry: Number | Array) -> str:
    return "yes" if entry.saved else ""


def _bounds(entry: Number | Array) -> str:
    low, high = entry.bounds
    return f"{low:g} to {high:g}" if entry.saved and (low, high) != (-np.inf, np.inf) else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
