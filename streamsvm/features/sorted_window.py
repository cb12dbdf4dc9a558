"""Recent values of a column in order: where a value stands among them, and how one takes the place of another.

Random values are no use to a processor that guesses which way a comparison goes: the search has no branches, several
columns are searched at a time, and what makes room moves as a block.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamsvm.core.jit import inlined, kernel

u = np.uint64

_VALUE_BYTES = 8


def _typed_mask_below(_, a, b):
    """-1 where a < b, else 0, by the sign of the difference: a comparison would become a branch.

    Of zeros, b must be the negative one.
    """

    def codegen(context, builder, signature, arguments):
        integer = context.get_value_type(types.int64)
        bits = builder.bitcast(builder.fsub(*arguments), integer)
        return builder.ashr(bits, integer(63))

    return types.int64(types.float64, types.float64), codegen


def _plain_mask_below(a, b):
    return -int(a < b)


def _typed_move(_, row, to, start, n):
    """row[to : to + n] = row[start : start + n], which may overlap."""

    def codegen(context, builder, signature, arguments):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        target, source = (
            cgutils.get_item_pointer(context, builder, kind, array, [at], wraparound=False) for at in arguments[1:3]
        )
        cgutils.raw_memmove(builder, target, source, arguments[3], ir.Constant(ir.IntType(64), _VALUE_BYTES))
        return context.get_dummy_value()

    return types.void(row, types.uint64, types.uint64, types.int64), codegen


def _plain_move(row, to, start, n):
    row[int(to) : int(to) + n] = row[int(start) : int(start) + n].copy()


mask_below = _plain_mask_below if config.DISABLE_JIT else intrinsic(_typed_mask_below)
move = _plain_move if config.DISABLE_JIT else intrinsic(_typed_move)


@inlined
def count_below(values, x, held):
    """How many of the first `held` sorted values are smaller than x."""
    if held == 0 or values[0] >= x:
        return 0
    x = -(0.0 - x)
    low, n = 0, held
    while n > 1:
        half = n >> 1
        low += half & mask_below(values[u(low + half - 1)], x)
        n -= half
    return low - mask_below(values[u(low)], x)


@inlined
def count_below_in_four(ranks, columns, sought, k, found):
    """found[j] = `count_below` in column j, which is full, for columns[k] to columns[k + 3] and what is sought there.

    Each step of a search waits for the one before. Four searches at a time wait together.
    """
    a, b, c, d = u(columns[u(k)]), u(columns[u(k + 1)]), u(columns[u(k + 2)]), u(columns[u(k + 3)])
    of_a, of_b = -(0.0 - sought[u(k)]), -(0.0 - sought[u(k + 1)])
    of_c, of_d = -(0.0 - sought[u(k + 2)]), -(0.0 - sought[u(k + 3)])
    in_a = in_b = in_c = in_d = 0
    n = ranks.shape[1]
    while n > 1:
        half = n >> 1
        in_a += half & mask_below(ranks[a, u(in_a + half - 1)], of_a)
        in_b += half & mask_below(ranks[b, u(in_b + half - 1)], of_b)
        in_c += half & mask_below(ranks[c, u(in_c + half - 1)], of_c)
        in_d += half & mask_below(ranks[d, u(in_d + half - 1)], of_d)
        n -= half
    found[a] = in_a - mask_below(ranks[a, u(in_a)], of_a)
    found[b] = in_b - mask_below(ranks[b, u(in_b)], of_b)
    found[c] = in_c - mask_below(ranks[c, u(in_c)], of_c)
    found[d] = in_d - mask_below(ranks[d, u(in_d)], of_d)


@inlined
def is_below(values, x, held, below):
    """Whether so many of the first `held` sorted values are smaller than x."""
    if not 0 <= below <= held:
        return False
    return (below == 0 or values[u(below - 1)] < x) and (below == held or values[u(below)] >= x)


@inlined
def guess_below(values, x, held, first, second):
    """`count_below` where that is none, all, or one of two guesses; else -1."""
    if values[0] >= x:
        return 0
    if values[u(held - 1)] < x:
        return held
    if is_below(values, x, held, first):
        return first
    return second if is_below(values, x, held, second) else -1


@inlined
def count_upto(values, x, held, below):
    """How many are not larger, given how many are smaller."""
    if below == held or values[u(below)] != x:
        return below
    if values[u(held - 1)] == x:
        return held
    low, n = below, held - below
    while n > 1:
        half = n >> 1
        low += half & ~mask_below(x, -(0.0 - values[u(low + half - 1)]))
        n -= half
    return low + 1 + mask_below(x, -(0.0 - values[u(low)]))


@inlined
def next_above(x):
    """The smallest number that is larger than x, by a sum that rounds to it; within 1e-307 of 0 perhaps the second."""
    return x + (abs(x) * 1.2e-16 + 5e-324)


@inlined
def replace(values, at, stop, x):
    """Take out the value at `at`, and put x before what stands at `stop`."""
    if at > stop:
        move(values, u(stop + 1), u(stop), at - stop)
        at = stop
    elif at < stop - 1:
        move(values, u(at), u(at + 1), stop - 1 - at)
        at = stop - 1
    values[u(at)] = x


@kernel
def look_up_rank(values, x, held):
    """`count_below` and `count_upto`, and the latter as those below the next number, for a look at them."""
    below = count_below(values, x, held)
    return below, count_upto(values, x, held, below), count_below(values, next_above(x), held)
