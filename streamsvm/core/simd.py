"""Several numbers side by side that stay in registers: sums over long rows that touch memory once.

The compiler vectorises plain loops by itself; but where there is a sum over columns for each slot, it writes each
partial sum to memory and reads it back. Here a kernel holds LANES of these sums by hand:

    sums = lanes(ZERO)
    for j in range(n):
        sums = times_plus(values[j], lanes_at(vectors, (j, b)), sums)
    put_lanes(sums, out, b)

There are LANES of float32, DOUBLES of float64: what a call takes or gives is told by the type of its arguments. Lanes
are added, subtracted and multiplied with one another, and with one number, which stands in all of them.
"""

from __future__ import annotations

import operator

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, register_model

# Indices are unsigned: numba then leaves out its handling of negative ones, and loops over them vectorise.
uint = np.uint64
# So many are side by side: of float32 two or four registers, since a processor begins on the next sum before the last
# is there; of float64, of which there are fewer, one or two.
LANES, DOUBLES = 32, 8

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
    """A scalar in all lanes; lanes stay as they are."""
    if isinstance(value.type, ir.VectorType):
        return value
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _INTEGER(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INTEGER, vector.count), None))


def _halved(builder, value, combine):
    """All lanes combined to one value: the lower half with the upper, again and again."""
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
    """A pointer to the lanes of an array, argument `at`, from an index or tuple of indices on, the next one."""
    kind, index_type, index = signature.args[at], signature.args[at + 1], arguments[at + 1]
    indices = cgutils.unpack_tuple(builder, index) if isinstance(index_type, types.BaseTuple) else [index]
    array = context.make_array(kind)(context, builder, arguments[at])
    place = cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=False)
    return builder.bitcast(place, _KINDS[kind.dtype].vector.as_pointer())


def _either(typed, plain):
    """What compiled code calls, or what does without the compiler."""
    return plain if config.DISABLE_JIT else intrinsic(typed)


# Arithmetic -------------------------------------------------------------------------------------------------------


class _Arithmetic(AbstractTemplate):
    def generic(self, args, kws):
        """The type of an operation on lanes, None where there are none."""
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


# Without the compiler ---------------------------------------------------------------------------------------------


def _n_lanes(element):
    return LANES if element == np.float32 else DOUBLES


def _slice(array, index):
    *before, at = index if isinstance(index, tuple) else (index,)
    return array[(*before, slice(int(at), int(at) + _n_lanes(array.dtype)))]


def _plain_put_lanes(value, array, index):
    _slice(array, index)[:] = value


def _plain_sum_of(value):
    while len(value) > 1:
        value = value[: len(value) // 2] + value[len(value) // 2 :]
    return value[0]


def _plain_first_equal(value, x):
    return int(np.append(np.flatnonzero(value == x), len(value))[0])


# What kernels call ------------------------------------------------------------------------------------------------

# lanes(value): a number in all lanes.
lanes = _either(_typed_lanes, lambda value: np.full(_n_lanes(np.asarray(value).dtype), value))
# lanes_at(array, index): the values of an array from an index, or a tuple of indices, on.
lanes_at = _either(_typed_lanes_at, lambda array, index: _slice(array, index).copy())
# put_lanes(value, array, index): write lanes there.
put_lanes = _either(_typed_put_lanes, _plain_put_lanes)
# times_plus(a, b, c): a * b + c, of lanes or numbers, rounded once where the processor can.
times_plus = _either(_typed_times_plus, lambda a, b, c: a * b + c)
# larger(a, b): the larger of two in each lane.
larger = _either(_typed_larger, lambda a, b: np.where(a > b, a, b))
# sum_of(value), largest_of(value): of all lanes.
sum_of = _either(_typed_sum_of, _plain_sum_of)
largest_of = _either(_typed_largest_of, lambda value: value.max())
# first_equal(value, x): the first lane that is equal to x, their number if there is none.
first_equal = _either(_typed_first_equal, _plain_first_equal)
