"""Detect sentinels such as -9999 that mark missing values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from connectors.notices import Notice, Notices

# Minimum number and share of cells with a sentinel.
_LEAST_SENTINELS, _SENTINEL_SHARE = 5, 0.01
# Minimum distance from the other values, in units of their range. It is smaller for negative sentinels, because prices
# and shares are not negative.
_FAR, _FAR_BELOW = 3.0, 0.5
_SENTINEL = re.compile(
    r"-?9{3,}(\.[09]*)?|-1(\.0*)?[eE]\+?30|-(32768|2147483648)(\.0*)?|-?(3\.4028|1\.7014)\d*[eE]\+?38"
)


def sentinels(values: Sequence[float], cells: Sequence[str] | None = None) -> dict[str, float]:
    """Return sentinels such as -9999, by their digits and their distance from other values.

    Parameters
    ----------
    values, cells
        First numbers of a column, NaN where missing, and their texts, if any.

    Returns
    -------
    dict
        Share of each sentinel.

    Examples
    --------
    >>> sentinels([1.0, 2.0, 3.0, -9999.0] * 5)
    {'-9999': 0.25}
    """
    found = {}
    counts = Counter(value for value in values if math.isfinite(value))
    if cells is None:
        texts = {value: repr(value).removesuffix(".0") for value in counts}
    else:
        texts = {value: cell.strip() for cell, value in zip(cells, values, strict=True)}
    candidates = {value for value in counts if _SENTINEL.fullmatch(texts[value])}
    rest = counts.keys() - candidates
    for value in sorted(candidates) if rest else ():
        share, distance = counts[value] / counts.total(), max(min(rest) - value, value - max(rest))
        is_frequent = counts[value] >= _LEAST_SENTINELS and share >= _SENTINEL_SHARE
        far = _FAR_BELOW if value < 0 else _FAR
        if is_frequent and distance > far * (max(rest) - min(rest)):
            found[texts[value]] = share
    return found


def warn_of_sentinels(name: str, values: Sequence[float], notices: Notices, cells: Sequence[str] | None = None) -> None:
    """Warn of sentinels in a column."""
    for text, share in sentinels(values, cells).items():
        form = (
            f"column {{name!r}}: {text} in {{share:.0f}} % of its first cells looks like a missing value, and is "
            f"learned as a number: --set missing={text} declares it (with other markers, if there are: it replaces "
            "the default ones)"
        )
        notices.say(Notice.of(form, name, share=100.0 * share))
