"""``python docs/state_page.py``: writes docs/state.md, the page of what learners hold, from their schemas."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm.budgeted import expansion
from streamsvm.core.schema import Array, Number, Schema, SchemaEntry
from streamsvm.decide import conformal_kernels as sets
from streamsvm.delayed import label_join as pending
from streamsvm.ensemble import blend, linear
from streamsvm.ensemble import label_autocorrelation as autocorrelation
from streamsvm.ensemble import stacked_vote as stacking
from streamsvm.features import scaler as rows
from streamsvm.online import batch, calibration
from streamsvm.online import minibatch as blocks
from streamsvm.polytope import kernels as polytope
from streamsvm.refit import expert_vote, frozen_models

PAGE = Path(__file__).with_name("state.md")
TABLES = {
    rows.SCALER: "Rows on their way to a learner, and running scaling: part of every learner (`features/scaler.py`)",
    polytope.CPM: "The convex polytope machine (`polytope/kernels.py`)",
    expansion.BSGD: "The budgeted kernel machine (`budgeted/expansion.py`)",
    linear.LINEAR: "The linear member of the blend (`ensemble/linear.py`)",
    blend.BLEND: "The blend (`ensemble/vote.py`)",
    blocks.MINIBATCH: "Rows that the members of a blend see (`online/minibatch.py`)",
    stacking.STACK: "The second vote (`ensemble/stacked_vote.py`)",
    autocorrelation.AUTOCORRELATION: "Label autocorrelation (`ensemble/label_autocorrelation.py`)",
    calibration.CALIBRATION: "What probabilities are worth where labels are noisy (`online/calibration.py`)",
    expert_vote.EXPERT_VOTE: "The vote of a learner and the models of its refits (`refit/expert_vote.py`)",
    expert_vote.VOTES: "Rows to vote on (`refit/expert_vote.py`)",
    frozen_models.PLANES: "A linear model of a refit (`refit/frozen_models.py`)",
    frozen_models.EXPANSION: "A kernel machine of a refit (`refit/frozen_models.py`)",
    frozen_models.TREES: "The trees of a refit (`refit/frozen_models.py`)",
    frozen_models.MASKED_TREES: "Such trees by masks of their leaves (`refit/frozen_models.py`)",
    frozen_models.QUERY: "Rows that refitted models are evaluated on (`refit/frozen_models.py`)",
    sets.SETS: "Sets of labels of one coverage (`decide/conformal_kernels.py`)",
    sets.COVERING: "Events for which there are to be sets (`decide/conformal_kernels.py`)",
    pending.LEDGER: "Events and labels that wait for each other (`delayed/label_join.py`)",
    batch.BATCH: "What is asked of many rows (`online/batch.py`)",
}

HEAD = """# What learners hold

Made from the schemas beside the kernels by `python docs/state_page.py`; a test says when it is behind. What is
*saved* is learned, and stands in archives and checkpoints under the name given, behind the names of the parts it is in
(`1.rows.seen` is the first member's); all else follows from the settings, or passes with the event in hand. An array's
dimensions are named; those with `*` between are one for compiled code.
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
        cells = [" x ".join(entry.dims), kind, _saved(entry), _bounds(entry)]
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
