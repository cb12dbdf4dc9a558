"""Blocks of rows that several members of a blend see: what each looks like, and what scores come of it.

A family of learners that may be a member exports `run_member(state, block, i, at_hand)`, of two addresses, a number and
a flag, to be compiled apart: it scores the rows of the block, and learns those with a label.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined
from streamsvm.core.schema import Array, Number, Schema, address, i64, records
from streamsvm.core.simd import uint
from streamsvm.features.scaler import current_row

MINIBATCH = Schema(
    "block",
    {
        "first": Number("the first of the rows, among all that are asked for", i64),
        "n_rows": Number("how many there are; negative where the first cannot be used", i64),
        "rows": records(
            ("block",),
            "the rows",
            start=Number("where its pairs begin", i64),
            n_pairs=Number("how many are standardised", i64),
            in_order=Number("whether these are of the first weight rows one after the other", i64),
            n_ranked=Number("how many are ranked", i64),
            seen=Number("the events learned before it"),
            key=Number("what tells it from other rows, see `autocorrelation`"),
            label=Number("its class, -1 where it is not learned", i64),
            weight=Number("how much its step weighs"),
            late=Number("whether its label comes late: it was predicted before others were learned", i64),
        ),
        "weight_rows": Array(("ways", "pairs"), "the weight rows of all pairs: standardised, ranked", i64),
        "scaled": Array(("ways", "pairs"), "their scaled values"),
        "scores": Array(("block", "experts*classes"), "the scores of all experts for each row"),
        "members": records(
            ("members",),
            "the members",
            state=address("its state"),
            run=address("its `run_member`"),
            way=Number("0 where it sees standardised values, 1 where it sees ranks", i64),
            first=Number("its first expert", i64),
            n_heads=Number("how many experts are its heads", i64),
        ),
    },
)


@inlined
def keep_pairs(block, way, at, rows, m):
    """Keep the current event, m pairs, among those of the block."""
    event_rows, values = current_row(rows)
    kept_rows, kept = block.weight_rows, block.scaled
    for i in range(m):
        kept[way, uint(at + i)] = values[uint(i)]
    if not rows.in_order:
        for i in range(m):
            kept_rows[way, uint(at + i)] = event_rows[uint(i)]


@inlined
def load_cached_row(block, k, way, rows):
    """Make the k-th row of the block a member's current event: as many pairs, which it returns, as it can hold."""
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
    """Keep the scores of member i for the k-th row of the block, those of one head after those of another."""
    member = block.members[i]
    kept = block.scores
    at = member.first * (scores.size // member.n_heads)
    for c in range(scores.size):
        kept[k, uint(at + c)] = scores[uint(c)]
