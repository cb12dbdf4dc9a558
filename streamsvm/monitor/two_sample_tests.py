"""Two-sample tests of counts by exact conditional tail bounds.

If a window and the reference are exchangeable, the count in the window, given the total of both, is hypergeometric. The
hypergeometric distribution is log-concave, so a tail is at most its first term times a geometric series. The bound
holds for every share, without knowledge of it.

Successive values of a sensor are alike, so a window of m values tells less than m independent ones. Its design effect
is estimated from the reference by batch means: the variance of its counts over the windows of the reference, divided by
the binomial variance. Tests divide sizes and counts by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats

Counts: TypeAlias = "NDArray[np.float32]"

_LEAST_WINDOWS = 8  # fewer windows have no estimate of their own
_LEAST_BLOCKS = 4  # at the smallest scale, so that trends are found in the smallest reference
_CENTRAL = 0.05  # shares nearer to 0 or 1 do not enter the estimate of a group with other counts


def log_tail(k: Floats, m: Floats, r: Floats, n: Floats) -> Floats:
    """Return the logarithm of a bound on the probability of a count as extreme as k.

    The side of the tail is that on which k lies. Counts and sizes may be fractions, for effective sample sizes.

    Parameters
    ----------
    k, m
        Count in the window, and size of the window.
    r, n
        Count in the reference, and size of the reference.

    Examples
    --------
    >>> p = np.exp(log_tail(np.array([3.0, 8.0]), np.array(10.0), np.array(30.0), np.array(100.0)))
    >>> p.round(4)  # the exact probabilities are EXACT
    array([1.    , 0.0029])
    """
    k, m, r, n = np.broadcast_arrays(k, m, r, n)
    is_low = k * n < r * m
    return _log_upper(np.where(is_low, m - k, k), m, np.where(is_low, n - r, r), n)


def _log_upper(k: Floats, m: Floats, r: Floats, n: Floats) -> Floats:
    """Bound the logarithm of the probability of at least k."""
    from scipy.special import gammaln  # imported late: it takes 0.1 s

    first = gammaln(r + k + 1.0) - gammaln(k + 1.0) - gammaln(r + 1.0)
    second = gammaln(n - r + m - k + 1.0) - gammaln(m - k + 1.0) - gammaln(n - r + 1.0)
    whole = gammaln(n + m + 1.0) - gammaln(n + 1.0) - gammaln(m + 1.0)
    ratio = r * (m - k) / ((k + 1.0) * (n - r + 1.0))
    falls = ratio < 1.0
    series = np.log1p(-np.where(falls, ratio, 0.0))
    return np.where(falls, np.minimum(first + second - whole - series, 0.0), 0.0)


def critical_counts(
    m: int, r: Floats, n: Floats, log_level: float, design: Floats, design_reference: Floats
) -> tuple[Floats, Floats]:
    """Return the smallest and the largest count of a window that the test accepts.

    Parameters
    ----------
    m
        Size of the window.
    r, n
        Counts in the reference, and its size.
    log_level
        Logarithm of the level of each one-sided test.
    design, design_reference
        Design effects: ratios of the variance of a count to that of independent events, for the window and the
        reference. Sizes and counts are divided by them.

    Examples
    --------
    >>> one = np.ones(2)
    >>> critical_counts(64, np.array([0.0, 500.0]), 1000 * one, math.log(1e-6), one, one)
    (array([ 0., 13.]), array([ 4., 51.]))
    """
    m_own, r_own, n_own = m / design, r / design_reference, n / design_reference

    def largest(reference: Floats) -> Floats:
        low, high = np.floor(m * (reference / n_own)), np.full(r.shape, float(m))
        for _ in range(math.ceil(math.log2(m + 2)) + 1):
            middle = np.ceil((low + high) / 2.0)
            accepted = _log_upper(middle / design, m_own, reference, n_own) > log_level
            low, high = np.where(accepted, middle, low), np.where(accepted, high, np.maximum(middle - 1.0, low))
        return low

    return m - largest(n_own - r_own), largest(r_own)


def design_effects(
    sizes: Sequence[int], n_windows: Floats, sums: Floats, squares: Floats, groups: NDArray[np.int64]
) -> Floats:
    """Return the design effects by scale and group, those of the reference last.

    Estimates are raised by one standard error, and do not fall with the scale. Scales with fewer than eight windows
    continue the growth of the scales before; four suffice at the first scale.

    Parameters
    ----------
    sizes
        Window sizes.
    n_windows
        Number of windows by scale.
    sums, squares
        Sums of counts and of their squares over these windows, shape (n_scales, n_counts).
    groups
        Group of each count.
    """
    n_groups = int(groups.max()) + 1
    found = np.ones((len(sizes) + 1, n_groups))
    n_events = max(float(n_windows[0]) * sizes[0], 1.0)
    for group in range(n_groups):
        own = groups == group
        shares = sums[0, own] / n_events
        central = (shares > _CENTRAL) & (shares < 1.0 - _CENTRAL)
        used = np.flatnonzero(own)[central if central.any() else (shares > 0.0) & (shares < 1.0)]
        if len(used):
            p = sums[0, used] / n_events
            found[:, group] = _by_scale(sizes, n_windows, sums[:, used], squares[:, used], float((p * (1.0 - p)).sum()))
    return found


def _by_scale(sizes: Sequence[int], n_windows: Floats, sums: Floats, squares: Floats, binomial: float) -> Floats:
    found: list[float] = []
    before = growth = 1.0
    for s, size in enumerate(sizes):
        k = float(n_windows[s])
        if k < (_LEAST_WINDOWS if s else _LEAST_BLOCKS):
            found.append(max(1.0, found[-1] * growth if found else 1.0))
            continue
        variance = float((squares[s] - sums[s] ** 2 / k).sum()) / (k - 1.0)
        own, error = variance / (size * binomial), math.sqrt(2.0 / k)
        # Growth is noise unless it is two standard errors.
        if not found or own > before * (1.0 + 2.0 * error):
            growth = 1.0 if not found else min(own / before, size / sizes[s - 1])
            found.append(max(1.0, own * (1.0 + error), found[-1] if found else 1.0))
            before = max(own, 1.0)
        else:
            growth = 1.0
            found.append(found[-1])
    steps = math.log(max(float(n_windows[0]) * sizes[0] / sizes[-1], 1.0), 4.0)
    return np.array([*found, found[-1] * growth**steps])
