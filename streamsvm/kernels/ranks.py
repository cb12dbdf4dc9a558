"""Recent values of a column in order: where a value stands among them, and how one takes the place of another.

Random values are no use to a processor that guesses which way a comparison goes: the search has no branches, and what
makes room moves as a block.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamsvm.kernels import inlined, kernel

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
    """`count_below` and `count_upto`, for a look at them."""
    below = count_below(values, x, held)
    return below, count_upto(values, x, held, below)
