"""Minibatch of scaled rows that the members of an ensemble share.

It also has the scores of the members.

The kernels of a member export `run_member(state, block, i, cached)`, compiled separately; `state` and `block` are
addresses. It scores the rows of the block unless they are cached, and learns the rows with a label.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined
from streamsvm.core.schema import Array, Number, Schema, address, i64, records
from streamsvm.core.simd import uint
from streamsvm.features.scaler import current_row

MINIBATCH = Schema(
    "block",
    {
        "first": Number("position of the first row in the batch", i64),
        "n_rows": Number("number of rows; -1 - i if value i of the first row cannot be used", i64),
        "rows": records(
            ("block",),
            "the rows",
            start=Number("position of its first pair", i64),
            n_pairs=Number("number of standardised pairs", i64),
            in_order=Number("whether the standardised pairs are of weight rows 0, 1, 2, ...", i64),
            n_ranked=Number("number of ranked pairs", i64),
            n_codes=Number("number of codes, from slot `start` on", i64),
            seen=Number("number of events learned before"),
            key=Number("hash of the row, see `notes.row_key`"),
            label=Number("class, or -1 if the row is not learned", i64),
            weight=Number("sample weight"),
            late=Number("whether other events were learned between its prediction and its label", i64),
        ),
        "weight_rows": Array(("ways", "pairs"), "weight rows of standardised and ranked pairs", i64),
        "scaled": Array(("ways", "pairs"), "scaled value of each pair"),
        "slots": Array(("pairs",), "slots of the codes, see `ensemble.codes`", i64),
        "scores": Array(("block", "experts*classes"), "scores of all experts for each row"),
        "members": records(
            ("members",),
            "the members",
            state=address("state of the member"),
            run=address("address of `run_member`"),
            way=Number("0 for standardised values, 1 for ranks", i64),
            first=Number("number of its first head among all heads", i64),
            n_heads=Number("number of heads", i64),
        ),
    },
)


@inlined
def keep_pairs(block, way, at, rows, m):
    """Copy the m pairs of the current row into the block, from position `at` on."""
    event_rows, values = current_row(rows)
    kept_rows, kept = block.weight_rows, block.scaled
    for i in range(m):
        kept[way, uint(at + i)] = values[uint(i)]
    if not rows.in_order:
        for i in range(m):
            kept_rows[way, uint(at + i)] = event_rows[uint(i)]


@inlined
def load_cached_row(block, k, way, rows):
    """Make row k of the block a member's current row; returns the number of pairs.

    Pairs of columns beyond the member's memory are dropped.
    """
    row = block.rows[k]
    kept_rows, kept = block.weight_rows, block.scaled
    taken, taken_rows = rows.scaled, rows.own_rows
    at, m = row.start, row.n_ranked if way else row.n_pairs
    if row.in_order and not way:
        rows.in_order, m = 1, min(m, taken.size)
    else:
        rows.in_order = 0
        while m > 0 and kept_rows[way, at + m - 1] >= taken.size:
            m -= 1
        for i in range(m):
            taken_rows[uint(i)] = kept_rows[way, uint(at + i)]
    for i in range(m):
        taken[uint(i)] = kept[way, uint(at + i)]
    rows.n_pairs = m
    return m


@inlined
def keep_scores(block, k, i, scores):
    """Copy the scores of member i for row k into the block, one head after another."""
    member = block.members[i]
    kept = block.scores
    at = member.first * (scores.size // member.n_heads)
    for c in range(scores.size):
        kept[k, uint(at + c)] = scores[uint(c)]
