"""exp and log for float32, so that loops over them vectorise."""

from __future__ import annotations

import math

import numpy as np
from numba import config, types
from numba.extending import intrinsic

from streamsvm.core.jit import inlined, jit_fma

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
# 2^f, |f| <= 1/2: Chebyshev's approximation of the fifth degree to its relative size.
P0, P1, P2 = np.float32(1.0000000710e00), np.float32(6.9314694916e-01), np.float32(2.4022121754e-01)
P3, P4, P5 = np.float32(5.5507426160e-02), np.float32(9.6754597456e-03), np.float32(1.3266970386e-03)
LEAST_POWER = np.float32(-80.0)
# ln(x) = n ln 2 + ln(1 + f), sqrt(1/2) <= 1 + f < sqrt(2); the polynomial is that of Cephes' logf.
L0, L1, L2 = np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1), np.float32(1.1676998740e-1)
L3, L4, L5 = np.float32(-1.2420140846e-1), np.float32(1.4249322787e-1), np.float32(-1.6668057665e-1)
L6, L7, L8 = np.float32(2.0000714765e-1), np.float32(-2.4999993993e-1), np.float32(3.3333331174e-1)
ROOT_OF_HALF = 0x3F3504F3
ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)


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


def _typed_power_in(_, value):
    """n of a float32 value > 0 that is 2^n (1 + f)."""

    def codegen(context, builder, signature, arguments):
        integer = context.get_value_type(types.int32)
        bits = builder.sub(builder.bitcast(arguments[0], integer), integer(ROOT_OF_HALF))
        return builder.sitofp(builder.ashr(bits, integer(23)), context.get_value_type(types.float32))

    return types.float32(types.float32), codegen


def _typed_without_power(_, value):
    """1 + f of it."""

    def codegen(context, builder, signature, arguments):
        integer = context.get_value_type(types.int32)
        bits = builder.sub(builder.bitcast(arguments[0], integer), integer(ROOT_OF_HALF))
        kept = builder.add(builder.and_(bits, integer(0x7FFFFF)), integer(ROOT_OF_HALF))
        return builder.bitcast(kept, context.get_value_type(types.float32))

    return types.float32(types.float32), codegen


def _plain_power_in(value):
    return f32((f32(value).view(np.int32) - np.int32(ROOT_OF_HALF)) >> np.int32(23))


def _plain_without_power(value):
    bits = f32(value).view(np.int32) - np.int32(ROOT_OF_HALF)
    return ((bits & np.int32(0x7FFFFF)) + np.int32(ROOT_OF_HALF)).view(f32)


_power_in = _plain_power_in if config.DISABLE_JIT else intrinsic(_typed_power_in)
_without_power = _plain_without_power if config.DISABLE_JIT else intrinsic(_typed_without_power)
_times_power_of_two = _plain_times_power_of_two if config.DISABLE_JIT else intrinsic(_typed_times_power_of_two)


@jit_fma
def exp32(x):
    """exp(x) for float32 x <= 0, to 2e-7 of its size; exp(-60) for anything less. Loops over it vectorise."""
    x = x if x > LEAST_EXPONENT else LEAST_EXPONENT
    shifted = x * LOG2E + ROUNDER
    n = shifted - ROUNDER
    r = x - n * LN2_HIGH
    r = r - n * LN2_LOW
    p = ((((C0 * r + C1) * r + C2) * r + C3) * r + C4) * r + C5
    return _times_power_of_two((p * (r * r) + r) + ONE, shifted)


@jit_fma
def power32(x):
    """2^x for float32 x below 1, to 3e-7 of its size; 2^-80 for anything less. It takes three quarters of `exp32`."""
    x = x if x > LEAST_POWER else LEAST_POWER
    shifted = x + ROUNDER
    f = x - (shifted - ROUNDER)
    return _times_power_of_two(((((P5 * f + P4) * f + P3) * f + P2) * f + P1) * f + P0, shifted)


@jit_fma
def log32(x):
    """ln(x) for float32 x from 1e-37 on, to 2e-7 of its size where that is more than 1, else of 1. Loops vectorise."""
    n, f = _power_in(x), _without_power(x) - ONE
    p = ((((((((L0 * f + L1) * f + L2) * f + L3) * f + L4) * f + L5) * f + L6) * f + L7) * f + L8) * f
    square = f * f
    return (f + ((p * square + n * LN2_LOW) - HALF * square)) + n * LN2_HIGH


@inlined
def log_of(x):
    """ln(x) as float64, to what `log32` has: where a probability is all that comes of it."""
    return float(log32(f32(x)))


def most_loss(least):
    """The most that -log_of gives of what is taken for no less than this: it rounds, upwards too."""
    return -math.log(least) + 1e-6


@inlined
def logs_of(proba, n, others, least, out):
    """The logarithms of n probabilities, none taken for less; the last is that of so many classes, likely alike."""
    for c in range(n):
        out[c] = log_of(max(proba[c] if c < n - 1 else proba[c] / others, least))


@inlined
def moved(value, step):
    """value * exp(step) for a short step, by the first terms of the series: to 2e-5 of it up to .3."""
    return value * (1.0 + step * (1.0 + step * (1.0 / 2.0 + step * (1.0 / 6.0 + step * (1.0 / 24.0)))))


@inlined
def exp_below(x):
    """exp(x) for x <= 0 as float64, to what `exp32` has: where a probability is all that comes of it."""
    return float(exp32(f32(x)))
