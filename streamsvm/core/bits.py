"""Memory and bit operations that numba does not provide."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

_VALUE_BYTES = 8


def _typed_mask_below(_, a, b):
    """Return -1 if a < b, else 0, from the sign bit of the difference.

    A comparison would compile to a branch. If both are zeros, b must be -0.0.
    """

    def codegen(context, builder, signature, arguments):
        integer = context.get_value_type(types.int64)
        bits = builder.bitcast(builder.fsub(*arguments), integer)
        return builder.ashr(bits, integer(63))

    return types.int64(types.float64, types.float64), codegen


def _plain_mask_below(a, b):
    return -int(a < b)


def _typed_move(_, row, to, start, n):
    """Copy `row[start : start + n]` to `row[to : to + n]`; the ranges may overlap."""

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


def _typed_lowest_bit(_, bits):
    """Return the position of the lowest set bit."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], context.get_value_type(types.boolean)(1))

    return types.uint64(types.uint64), codegen


def _plain_lowest_bit(bits):
    return np.uint64((int(bits) & -int(bits)).bit_length() - 1)


mask_below = _plain_mask_below if config.DISABLE_JIT else intrinsic(_typed_mask_below)
move = _plain_move if config.DISABLE_JIT else intrinsic(_typed_move)
lowest_bit = _plain_lowest_bit if config.DISABLE_JIT else intrinsic(_typed_lowest_bit)
