"""exp for float32, so that loops over it vectorise."""

from __future__ import annotations

import numpy as np
from numba import config, types
from numba.extending import intrinsic

from streamsvm.kernels import fused, inlined, kernel

f32 = np.float32

# exp(x) = 2^n p(r) with x = n ln 2 + r, |r| <= ln(2) / 2; ln 2 is split in two parts so that r is exact, and adding
# and subtracting ROUNDER rounds to an integer. The polynomial is that of Cephes' expf. Exponents end where products
# with coefficients are not yet so small that the processor has trouble with them.
ROUNDER = np.float32(12582912.0)
LOG2E = np.float32(1.44269504088896341)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
C0, C1, C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
C3, C4, C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
LEAST_EXPONENT = np.float32(-60.0)
ONE = np.float32(1.0)


def _typed_times_power_of_two(_, value, power):
    """value * 2^n for float32, n in the lowest bits of `power`."""

    def codegen(context, builder, signature, arguments):
        integer = context.get_value_type(types.int32)
        value, power = (builder.bitcast(argument, integer) for argument in arguments)
        shifted = builder.shl(power, integer(23))
        return builder.bitcast(builder.add(value, shifted), context.get_value_type(types.float32))

    return types.float32(types.float32, types.float32), codegen


def _plain_times_power_of_two(value, power):
    return (value.view(np.int32) + (power.view(np.int32) << np.int32(23))).view(f32)


_times_power_of_two = _plain_times_power_of_two if config.DISABLE_JIT else intrinsic(_typed_times_power_of_two)


@fused
def exp32(x):
    """exp(x) for float32 x <= 0, to 2e-7 of its size; exp(-60) for anything less. Loops over it vectorise."""
    x = x if x > LEAST_EXPONENT else LEAST_EXPONENT
    shifted = x * LOG2E + ROUNDER
    n = shifted - ROUNDER
    r = x - n * LN2_HIGH
    r = r - n * LN2_LOW
    p = ((((C0 * r + C1) * r + C2) * r + C3) * r + C4) * r + C5
    return _times_power_of_two((p * (r * r) + r) + ONE, shifted)


@inlined
def exp_below(x):
    """exp(x) for x <= 0 as float64, to what `exp32` has: where a probability is all that comes of it."""
    return float(exp32(f32(x)))


@kernel
def exp_all(x, out):
    """out = exp32(x), for a look at it."""
    for i in range(x.size):
        out[i] = exp32(x[i])
