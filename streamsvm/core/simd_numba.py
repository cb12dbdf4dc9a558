"""SIMD values for kernels: sums over long rows that stay in registers.

The compiler vectorises plain loops, but in a sum over columns for each slot it writes each partial sum to memory and
reads it back. These functions keep LANES partial sums in registers:

    sums = lanes(ZERO)
    for j in range(n):
        sums = times_plus(values[j], lanes_at(vectors, (j, b)), sums)
    put_lanes(sums, out, b)

A value has LANES elements of float32 or DOUBLES elements of float64, depending on the argument types. Values support
addition, subtraction, multiplication and division, with each other and with a scalar, which is broadcast.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

from streamsvm.core.jit import DOUBLES, LANES

_INTEGER = ir.IntType(32)


class _LanesType(types.Type):
    def __init__(self, element, n, vector):
        super().__init__(name=f"Lanes({element}, {n})")
        self.element, self.n, self.vector = element, n, vector


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.vector)


_KINDS = {
    types.float32: _LanesType(types.float32, LANES, ir.VectorType(ir.FloatType(), LANES)),
    types.float64: _LanesType(types.float64, DOUBLES, ir.VectorType(ir.DoubleType(), DOUBLES)),
}


def _spread(builder, value, vector):
    """Broadcast a scalar to all lanes; return a SIMD value unchanged."""
    if isinstance(value.type, ir.VectorType):
        return value
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _INTEGER(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INTEGER, vector.count), None))


def _halved(builder, value, combine):
    """Reduce all lanes to a scalar by combining halves repeatedly."""
    n = value.type.count
    while n > 1:
        n //= 2
        low, high = (
            builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(_INTEGER, n), [*range(at, at + n)]))
            for at in (0, n)
        )
        value = combine(builder, low, high)
    return builder.extract_element(value, _INTEGER(0))


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _place(context, builder, signature, arguments, at):
    """Return a pointer to the lanes of the array argument `at` at the next argument."""
    kind, index_type, index = signature.args[at], signature.args[at + 1], arguments[at + 1]
    indices = cgutils.unpack_tuple(builder, index) if isinstance(index_type, types.BaseTuple) else [index]
    array = context.make_array(kind)(context, builder, arguments[at])
    place = cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=False)
    return builder.bitcast(place, _KINDS[kind.dtype].vector.as_pointer())


# Arithmetic -------------------------------------------------------------------------------------------------------


class _Arithmetic(AbstractTemplate):
    def generic(self, args, kws):
        """Return the type of an operation on SIMD values, or None if there are none."""
        kind = next((kind for kind in args if isinstance(kind, _LanesType)), None)
        return None if kind is None or set(args) - {kind, kind.element} else kind(*args)


def _lower(operation, emit):
    infer_global(operation)(type(f"_Lanes_{operation.__name__}", (_Arithmetic,), {}))

    def lower(context, builder, signature, arguments):
        return emit(builder, *(_spread(builder, value, signature.return_type.vector) for value in arguments))

    for kind in _KINDS.values():
        for operands in ((kind, kind), (kind, kind.element), (kind.element, kind)):
            lower_builtin(operation, *operands)(lower)


_lower(operator.add, lambda builder, a, b: builder.fadd(a, b))
_lower(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_lower(operator.mul, lambda builder, a, b: builder.fmul(a, b))
_lower(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))


# Functions --------------------------------------------------------------------------------------------------------


def _typed_lanes(_, value):
    def codegen(context, builder, signature, arguments):
        return _spread(builder, arguments[0], signature.return_type.vector)

    return _KINDS[value](value), codegen


def _typed_lanes_at(_, array, index):
    def codegen(context, builder, signature, arguments):
        return builder.load(_place(context, builder, signature, arguments, 0), align=array.dtype.bitwidth // 8)

    return _KINDS[array.dtype](array, index), codegen


def _typed_put_lanes(_, value, array, index):
    def codegen(context, builder, signature, arguments):
        place = _place(context, builder, signature, arguments, 1)
        builder.store(arguments[0], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(_KINDS[array.dtype], array, index), codegen


def _typed_times_plus(_, a, b, c):
    kind = next(kind for kind in (a, b, c) if isinstance(kind, _LanesType))

    def codegen(context, builder, signature, arguments):
        vector = kind.vector
        name = f"llvm.fmuladd.v{kind.n}f{kind.element.bitwidth}"
        fused = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(vector, [vector] * 3))
        return builder.call(fused, [_spread(builder, value, vector) for value in arguments])

    return kind(a, b, c), codegen


def _typed_larger(_, a, b):
    def codegen(context, builder, signature, arguments):
        return _larger(builder, *arguments)

    return a(a, a), codegen


def _typed_sum_of(_, value):
    def codegen(context, builder, signature, arguments):
        return _halved(builder, arguments[0], lambda builder, a, b: builder.fadd(a, b))

    return value.element(value), codegen


def _typed_largest_of(_, value):
    def codegen(context, builder, signature, arguments):
        return _halved(builder, arguments[0], _larger)

    return value.element(value), codegen


def _typed_first_equal(_, lanes, value):
    def codegen(context, builder, signature, arguments):
        equal = builder.fcmp_ordered("==", *(_spread(builder, argument, lanes.vector) for argument in arguments))
        bits = builder.bitcast(equal, ir.IntType(lanes.n))
        return builder.zext(builder.cttz(bits, ir.IntType(1)(0)), ir.IntType(64))

    return types.int64(lanes, lanes.element), codegen


# What kernels call ------------------------------------------------------------------------------------------------

# lanes(value): broadcast a number to all lanes.
lanes = intrinsic(_typed_lanes)
# lanes_at(array, index): load consecutive elements of an array, starting at an index or tuple of indices.
lanes_at = intrinsic(_typed_lanes_at)
# put_lanes(value, array, index): store to consecutive elements of an array.
put_lanes = intrinsic(_typed_put_lanes)
# times_plus(a, b, c): a * b + c for SIMD values or numbers, fused if the processor supports it.
times_plus = intrinsic(_typed_times_plus)
# larger(a, b): elementwise maximum.
larger = intrinsic(_typed_larger)
# sum_of(value), largest_of(value): sum and maximum over the lanes.
sum_of = intrinsic(_typed_sum_of)
largest_of = intrinsic(_typed_largest_of)
# first_equal(value, x): index of the first lane equal to x, or the number of lanes.
first_equal = intrinsic(_typed_first_equal)
