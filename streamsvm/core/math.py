"""Single-precision exp, power and log for loops that vectorise."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.jit import inlined, jit_fma

f32, i32 = np.float32, np.int32

# exp(x) = 2^n p(r) with x = n ln 2 + r and |r| <= ln(2) / 2. The polynomial p is that of Cephes' expf. ln 2 is split
# into two parts so that r is exact. Adding and subtracting ROUNDER rounds to an integer. LEAST_EXPONENT keeps products
# with coefficients out of the denormal range, where arithmetic is slow.
ROUNDER = np.float32(12582912.0)
LOG2E = np.float32(1.44269504088896341)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
C0, C1, C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
C3, C4, C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
LEAST_EXPONENT = np.float32(-60.0)
# ln(x) = n ln 2 + ln(1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and the polynomial of Cephes' logf.
L0, L1, L2 = np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1), np.float32(1.1676998740e-1)
L3, L4, L5 = np.float32(-1.2420140846e-1), np.float32(1.4249322787e-1), np.float32(-1.6668057665e-1)
L6, L7, L8 = np.float32(2.0000714765e-1), np.float32(-2.4999993993e-1), np.float32(3.3333331174e-1)
ROOT_OF_HALF = 0x3F3504F3
ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)


@inlined
def times_power_of_two(value, power):
    """Multiply a float32 by 2^n, with n in the lowest bits of the float32 `power`."""
    return i32(f32(value).view(i32) + (f32(power).view(i32) << 23)).view(f32)


@inlined
def power_in(x):
    """Return the exponent n of a positive float32 `2^n (1 + f)`."""
    return f32(i32(f32(x).view(i32) - ROOT_OF_HALF) >> 23)


@inlined
def without_power(x):
    """Return the mantissa `1 + f` of a positive float32 `2^n (1 + f)`."""
    return i32((i32(f32(x).view(i32) - ROOT_OF_HALF) & 0x7FFFFF) + ROOT_OF_HALF).view(f32)


@jit_fma
def exp32(x):
    """Compute exp(x) for float32 x <= 0 with relative error 2e-7.

    Inputs below -60 are clipped to -60. Loops over it vectorise.
    """
    x = x if x > LEAST_EXPONENT else LEAST_EXPONENT
    shifted = x * LOG2E + ROUNDER
    n = shifted - ROUNDER
    r = x - n * LN2_HIGH
    r = r - n * LN2_LOW
    p = ((((C0 * r + C1) * r + C2) * r + C3) * r + C4) * r + C5
    return times_power_of_two((p * (r * r) + r) + ONE, shifted)


@jit_fma
def log32(x):
    """Compute ln(x) for float32 x >= 1e-37.

    The error is 2e-7, relative where `abs(ln(x)) > 1` and absolute elsewhere. Loops over it vectorise.
    """
    n, f = power_in(x), without_power(x) - ONE
    p = ((((((((L0 * f + L1) * f + L2) * f + L3) * f + L4) * f + L5) * f + L6) * f + L7) * f + L8) * f
    square = f * f
    return (f + ((p * square + n * LN2_LOW) - HALF * square)) + n * LN2_HIGH


@inlined
def log_of(x):
    """Compute ln(x) as float64 with the precision of `log32`."""
    return float(log32(f32(x)))


def most_loss(least):
    """Return an upper bound of `-log_of(x)` for `x >= least`, including rounding."""
    return -math.log(least) + 1e-6


@inlined
def logs_of(proba, n, others, least, out):
    """Write the log probabilities of n classes, clipped at `least`, to `out`.

    The last class represents `others` equally likely classes. Its entry is the log probability of one of them.
    """
    for c in range(n):
        out[c] = log_of(max(proba[c] if c < n - 1 else proba[c] / others, least))


@inlined
def times_exp(value, step):
    """Compute `value * exp(step)` by a fourth-order series.

    The relative error is 2e-5 for abs(step) <= 0.3.
    """
    return value * (1.0 + step * (1.0 + step * (1.0 / 2.0 + step * (1.0 / 6.0 + step * (1.0 / 24.0)))))


@inlined
def exp_below(x):
    """Compute exp(x) for x <= 0 as float64 with the precision of `exp32`."""
    return float(exp32(f32(x)))
