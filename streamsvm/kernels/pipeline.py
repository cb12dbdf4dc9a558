"""A blend's rows on several threads: while members run over a block, the next is scaled, and the last is voted on.

What is done with a block is a *stage*: the run of each member, scaling, the votes. A stage takes all blocks in order;
different stages are at different blocks, of which two are in hand. A thread takes whatever stage is ready, and never
waits for another thread to take one: one that comes late, or not at all, costs time and nothing else. What a stage
reads is settled when it is ready, so results do not depend on which thread does what, nor when.

A member is ready for a block that is scaled. The votes of the block before may change whether it is dormant: it waits
for these where they may.
"""

from __future__ import annotations

from numba import types

from streamsvm.kernels import call, inlined, kernel
from streamsvm.kernels.access import StateType, address_of
from streamsvm.kernels.atomics import give_way, look, pause, put, take
from streamsvm.kernels.blend import BLEND, DORMANT_CHECK, call_member
from streamsvm.kernels.blocks import BLOCK
from streamsvm.kernels.entries import Entry
from streamsvm.kernels.requests import REQUEST
from streamsvm.kernels.state import Array, Declaration, Part, i64

# Words that threads write to are so far apart that each has a cache line.
LINE = 8
# More blocks than there are, while it is not known how many.
MANY = 1 << 60
# So often in a row a thread looks for a stage in vain before it lets others have the processor each time, and before it
# sleeps each time, for so long (in microseconds): on a busy machine waiting must not take what work could have.
LOOKS, LOOKS_GIVING_WAY, SLEEP = 100, 400, 50
# A thread that came before the first leaves after so many looks: about a tenth of a second.
PATIENCE = 1_500

PIPELINE = Declaration(
    "pipeline",
    {
        "blend": Part(BLEND, "the learner"),
        "request": Part(REQUEST, "what is asked of it"),
        "even": Part(BLOCK, "the first block, and every second after it"),
        "odd": Part(BLOCK, "those between, with the members of the first"),
        "orders": Array(("threads", "stages"), "in which order each thread looks for a stage that is ready", i64),
        "turns": Array(
            ("stages", "line"), "twice how many blocks a stage is through, and one more while it is at another", i64
        ),
        "n_blocks": Array(
            ("line",), "how many blocks there are, as far as is known; 0 until the first thread has come", i64
        ),
    },
)


@inlined
def n_through(pipeline, stage):
    """How many blocks a stage is through."""
    return look(pipeline.turns, (stage, 0)) >> 1


@inlined
def n_blocks(pipeline):
    """How many blocks there are, as far as is known."""
    return look(pipeline.n_blocks, (0,))


@inlined
def others(pipeline):
    """The stages after the members': scaling, and the votes."""
    n_members = pipeline.even.members.size
    return n_members, n_members + 1


@inlined
def block_of(pipeline, b):
    """Where block b is in hand."""
    return pipeline.even if b & 1 == 0 else pipeline.odd


@inlined
def keeps(block, i):
    """Whether the votes before a block change nothing about member i: those of awake ones do at some blocks only."""
    return block.members[i].dormant == 0.0 and int(block.rows[0].seen) % DORMANT_CHECK != 0


@inlined
def is_ready(pipeline, stage, b):
    """Whether a stage may begin with block b: it has all it needs, and nobody needs what it writes over."""
    scaling, voting = others(pipeline)
    if stage == scaling:
        return n_through(pipeline, voting) > b - 2
    if stage == voting:
        return all_through(pipeline, b)
    if n_through(pipeline, scaling) <= b:
        return False
    return n_through(pipeline, voting) >= b or keeps(block_of(pipeline, b), stage)


@inlined
def all_through(pipeline, b):
    """Whether all members are through block b."""
    are_through = True
    for i in range(pipeline.even.members.size):
        are_through &= n_through(pipeline, i) > b
    return are_through


@inlined
def do_stage(pipeline, stage, b):
    """Take block b through a stage."""
    block, (scaling, voting) = block_of(pipeline, b), others(pipeline)
    addresses = address_of(pipeline.blend), address_of(block), address_of(pipeline.request)
    if stage == scaling:
        before = block_of(pipeline, b + 1)
        block.first = before.first + before.n_rows if b > 0 else 0
        call(pipeline.blend.scale, addresses)
        find_end(pipeline, block, b)
    elif stage == voting:
        call(pipeline.blend.vote, addresses)
    else:
        call_member(block, stage, False)


@inlined
def find_end(pipeline, block, b):
    """See whether block b is the last, or none any more: it begins with a row of no use."""
    if block.n_rows < 0:
        put(pipeline.n_blocks, (0,), b)
    elif block.first + block.n_rows == pipeline.request.indptr.size - 1:
        put(pipeline.n_blocks, (0,), b + 1)


@inlined
def take_stage(pipeline, stage):
    """Take the next block through a stage, if it is ready, and no other thread is at it; returns whether it was."""
    turn = look(pipeline.turns, (stage, 0))
    b = turn >> 1
    # What is ready tells how many blocks there are, so that is asked last.
    if turn & 1 == 1 or not is_ready(pipeline, stage, b) or b >= n_blocks(pipeline):
        return False
    if not take(pipeline.turns, (stage, 0), turn, turn + 1):
        return False
    do_stage(pipeline, stage, b)
    put(pipeline.turns, (stage, 0), turn + 2)
    return True


@inlined
def take_any(pipeline, order):
    """Take a stage that is ready, the first in order; returns whether there was one."""
    is_taken = False
    for k in range(order.size):
        is_taken = is_taken or take_stage(pipeline, order[k])
    return is_taken


@inlined
def rest(n_looks):
    """Wait a little, having looked in vain so often."""
    if n_looks > LOOKS_GIVING_WAY:
        pause(SLEEP)
    elif n_looks > LOOKS:
        give_way()


@inlined
def is_over(pipeline, n_looks):
    """Whether all is done, or the first thread has not come for long: then nobody asks for it any more."""
    n = n_blocks(pipeline)
    return n_through(pipeline, others(pipeline)[1]) >= n if n > 0 else n_looks > PATIENCE


@kernel
def run_stages(pipeline, thread):
    """Predict and learn rows, as `blend.run_rows` does, on several threads that each call this.

    Nothing is done before the first, thread 0, is here, and when it returns nothing is left to do. The others need not
    have returned: they do not look at anything but how far stages are.
    """
    if thread == 0:
        pipeline.blend.at_hand = 0
        put(pipeline.n_blocks, (0,), MANY)
    order, n_looks = pipeline.orders[thread], 0
    while not is_over(pipeline, n_looks):
        n_looks = 0 if take_any(pipeline, order) else n_looks + 1
        rest(n_looks)


ENTRIES = {"run_stages": Entry(run_stages, (StateType(PIPELINE.name), types.int64))}
