"""Memory and bit operations that numba does not provide."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_VALUE_BYTES = 8


@intrinsic
def move(_, row, to, start, n):
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


@intrinsic
def lowest_bit(_, bits):
    """Return the position of the lowest set bit."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], context.get_value_type(types.boolean)(1))

    return types.uint64(types.uint64), codegen
