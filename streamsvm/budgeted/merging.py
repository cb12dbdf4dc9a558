"""Merging of two support vectors at the point that loses least.

Vector b with coefficients of norm r and vector i with coefficients of norm 1 become z = h v_b + (1 - h) v_i. Let c be
the cosine of the angle between the coefficients and L = ln k(v_b, v_i). The squared norm of the projection onto z is

    r^2 e^(2 L (1 - h)^2) + e^(2 L h^2) + 2 r c e^(L ((1 - h)^2 + h^2)).

For r >= 1 its maximum lies at some h in [1/2, 1]. A table gives the maximum for c = 1; the search is exact.

Sources: Wang, Crammer, Vucetic, "Breaking the curse of kernelization", JMLR 13, 2012; Glasmachers and Qaadan, "Speeding
up budgeted stochastic gradient descent SVM training with precomputed golden section search", 2018.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.cache import cache_folder, write_atomically
from streamsvm.core.jit import inlined, jit_fma, kernel, uint
from streamsvm.core.library import library
from streamsvm.core.math import ONE, TWO, ZERO, exp_below

# Number of grid points along m in [1/2, 1] and along kappa in [0, 1].
GRID = 400
LARGEST_RATIO = 1e6
# Beyond MOST_FAR a merge loses the smaller vector; beyond MOST_RATIO that vector is negligible. The limits keep
# products within float32.
MOST_FAR, MOST_RATIO = np.float32(1e6), np.float32(1e6)


@inlined
def ratio_of(larger, smaller):
    """Return `larger / smaller`, at most LARGEST_RATIO."""
    return min(larger / smaller, LARGEST_RATIO) if smaller > 0.0 else LARGEST_RATIO


@inlined
def norm_at(h, ratio, cosine, log_kappa):
    """Return the squared norm that merging at h preserves."""
    large, small = math.exp(log_kappa * (1.0 - h) * (1.0 - h)), math.exp(log_kappa * h * h)
    return ratio * ratio * large * large + small * small + 2.0 * ratio * cosine * large * small


@inlined
def nearly_kept(h, ratio, cosine, log_kappa):
    """Compute `norm_at` in single precision.

    Returns
    -------
    large, small, norm : float
        The factors `|r e^(L (1 - h)^2)|` and `e^(L h^2)`, and the squared norm that merging at h preserves.
    """
    g = 1.0 - h
    large, small = ratio * exp_below(log_kappa * g * g), exp_below(log_kappa * h * h)
    return large, small, large * large + small * small + 2.0 * cosine * large * small


@jit_fma
def near_loss(square, product, far):
    """Return a cheap ranking criterion for candidate pairs, in float32.

    For the criterion q, q / (1 + q) is 0.8 to 1.3 times the smallest loss |r phi(v_b) + phi(v_i)|^2 minus `norm_at`. To
    second order in `far` the loss is 2 far r^2 (1 - c^2 + far) / (r^2 + 1 + 2 r c). Loops over it vectorise.

    Parameters
    ----------
    square
        The squared ratio r^2.
    product
        The product r c.
    far
        The value -log_kappa.
    """
    far, product = far if far < MOST_FAR else MOST_FAR, product if product < MOST_RATIO else MOST_RATIO
    square = square if square < MOST_RATIO * MOST_RATIO else MOST_RATIO * MOST_RATIO
    turned = square - product * product
    turned = turned if turned > ZERO else ZERO
    return TWO * far * (turned + far * square) / (square + ONE + TWO * product)


@kernel
def golden_section(ratio, cosine, log_kappa):
    """Maximise `norm_at` over h in [1/2, 1] by golden section search.

    The first bracket surrounds the best of nine grid points.
    """
    best = 8
    for i in range(8):
        if norm_at(0.5 + i / 16.0, ratio, cosine, log_kappa) > norm_at(0.5 + best / 16.0, ratio, cosine, log_kappa):
            best = i
    low, high = max(0.5, 0.5 + (best - 1) / 16.0), min(1.0, 0.5 + (best + 1) / 16.0)
    share = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = norm_at(left, ratio, cosine, log_kappa), norm_at(right, ratio, cosine, log_kappa)
    while high - low > 1e-8:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = norm_at(left, ratio, cosine, log_kappa)
        else:
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = norm_at(right, ratio, cosine, log_kappa)
    h = 0.5 * (low + high)
    # No bracket contains a maximum at the end of the range.
    return 1.0 if norm_at(1.0, ratio, cosine, log_kappa) > norm_at(h, ratio, cosine, log_kappa) else h


@kernel
def refine(h, ratio, cosine, log_kappa):
    """Improve h by up to three Newton steps from the best of five starting points.

    The given h is optimal for cosine 1.
    """
    first, k = h, log_kappa
    large, small, best = nearly_kept(h, ratio, cosine, k)
    for i in range(1, 5):
        start = first + 0.25 * i * (1.0 - first)
        at_large, at_small, value = nearly_kept(start, ratio, cosine, k)
        if value > best:
            h, large, small, best = start, at_large, at_small, value
    for _ in range(3):
        g, cross, turn = 1.0 - h, 2.0 * cosine * large * small, k * (4.0 * h - 2.0)
        large, small = large * large, small * small
        slope = -4.0 * k * g * large + 4.0 * k * h * small + turn * cross
        curve = large * (16.0 * k * k * g * g + 4.0 * k) + small * (16.0 * k * k * h * h + 4.0 * k)
        curve += cross * (turn * turn + 4.0 * k)
        if not curve < 0.0:
            break
        after = min(max(h - slope / curve, 0.5), 1.0)
        large, small, value = nearly_kept(after, ratio, cosine, k)
        if not value > best:
            break
        h, best = after, value
    return h


@kernel
def fill_table(table):
    """Fill the table of optimal h for cosine 1, shape (GRID, GRID).

    Row i has m = r / (1 + r) = 1/2 + i / 2 / (GRID - 1). Column j has kappa = j / (GRID - 1).
    """
    for i in range(GRID):
        share = 0.5 + 0.5 * i / (GRID - 1)
        for j in range(GRID):
            kappa = max(j / (GRID - 1), 1e-30)
            if i == GRID - 1:
                table[i, j] = 1.0
            elif j == GRID - 1:
                table[i, j] = share  # the loss is 0 for every h; this is the limit of the optimum
            else:
                table[i, j] = golden_section(share / (1.0 - share), 1.0, math.log(kappa))


@inlined
def look_up(table, share, kappa):
    """Interpolate the optimal h bilinearly, for m in [1/2, 1] and kappa in [0, 1]."""
    # The comparisons are false for NaN, which therefore cannot index outside the table.
    share, kappa = (share if 0.5 <= share <= 1.0 else 1.0), (kappa if 0.0 <= kappa <= 1.0 else 1.0)
    x, y = (2.0 * share - 1.0) * (GRID - 1), kappa * (GRID - 1.0)
    i, j = min(int(x), GRID - 2), min(int(y), GRID - 2)
    x, y = x - i, y - j
    i, j = uint(i), uint(j)
    low = table[i, j] + y * (table[i, j + uint(1)] - table[i, j])
    high = table[i + uint(1), j] + y * (table[i + uint(1), j + uint(1)] - table[i + uint(1), j])
    return low + x * (high - low)


def _read(path: Path) -> NDArray[np.float32] | None:
    """Return the table in a file, or None if there is none."""
    with contextlib.suppress(OSError, ValueError, EOFError):
        found: NDArray[np.float32] = np.load(path, allow_pickle=False)
        if found.shape == (GRID, GRID) and found.dtype == np.float32:
            found.flags.writeable = False
            return found
    return None


@functools.cache
def table() -> NDArray[np.float32]:
    """Return the table of optimal h, which all learners share.

    It is a part of the compiled library. Without the library it is computed once and cached on disk.
    """
    used = library()
    found = None if used is None else _read(used.merging)
    if found is not None:
        return found
    path = cache_folder() / "merging.npy"
    found = _read(path)
    if found is not None:
        return found
    computed = np.zeros((GRID, GRID), np.float32)
    fill_table(computed)
    content = io.BytesIO()
    np.save(content, computed)
    with contextlib.suppress(OSError):  # the next process computes it again
        write_atomically(path, content.getvalue())
    computed.flags.writeable = False
    return computed
