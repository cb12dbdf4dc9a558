"""Design effects: variance of counts relative to independent events.

Successive values of a sensor are alike, so a window of m values tells less than m independent ones. The effect of a
window is estimated from the reference by batch means: the variance of its counts over the windows of the reference,
divided by the binomial variance. Tests divide sizes and counts by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats

_LEAST_WINDOWS = 8  # fewer windows have no estimate of their own
_LEAST_BLOCKS = 4  # at the smallest scale, so that trends are found in the smallest reference
_CENTRAL = 0.05  # shares nearer to 0 or 1 do not enter the estimate of a group with other counts


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
