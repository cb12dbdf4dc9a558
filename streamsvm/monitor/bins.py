"""Bins of a column, chosen from its first values, and counts of values per block."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from connectors.columns.time_texts import formats_of
from connectors.columns.times import is_spelled_out
from streamsvm.features.rows import Floats, Ints
from streamsvm.monitor import positions as pos
from streamsvm.monitor.kernels import BLOCK, compiled
from streamsvm.monitor.profile import ColumnProfile
from streamsvm.monitor.two_sample_tests import Counts

Texts: TypeAlias = "NDArray[Any]"
"""Objects: str, and None for other cells."""

_LONGEST = 256  # longer texts are unseen values
# Quantiles of the values, and of the different values: columns with a few frequent values also have cuts elsewhere.
_LEVELS = (0.002, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 0.99, 0.998)
_LEVELS_OF_DIFFERENT = tuple(i / 12 for i in range(13))
_FEW_CUTS = 24  # continuous columns have more, because the two kinds of levels coincide only at the median
_SPLIT = 0.2  # least share on each side of the cut near the median, and inside and outside of the middle

_SHAPES = str.maketrans(string.digits + string.ascii_letters, "0" * 10 + "a" * 52)

Words: TypeAlias = "NDArray[np.uint64]"
"""Bits of events, one row per block."""
N_EDGES = pos.N_CUTS + 2
MOST_RELATIONS = 320  # ten columns have 300


def fit_bins(name: Any, numbers: Floats, texts: Texts | None) -> ColumnProfile:
    """Choose the bins of a column.

    A column is numeric if it has at least as many numbers as texts.

    Parameters
    ----------
    name
        Name of the column.
    numbers
        The numbers, NaN for other cells.
    texts
        The texts, None for other cells.
    """
    found = numbers[np.isfinite(numbers)]
    strings = [] if texts is None else [text for text in texts.tolist() if text is not None]
    if not strings and not len(found):
        return ColumnProfile(name, "empty", 0)
    if len(strings) > len(found):
        counter = Counter(text for text in strings if len(text) <= _LONGEST)
        top, kind = _by_count(counter), "category"
        if are_times(top[: pos.N_CUTS]):
            top, kind = _by_count(Counter(map(shape_of, strings))), "time"
        return ColumnProfile(name, kind, 0, values=tuple(top[: pos.N_CUTS]), others=frozenset(top[pos.N_CUTS :]))
    different = np.unique(found)
    cuts = different
    if len(different) > pos.N_CUTS:
        levels = (found, _LEVELS), (different, _LEVELS_OF_DIFFERENT)
        cuts = np.unique(np.concatenate([np.quantile(*each, method="inverted_cdf") for each in levels]))
    cuts = np.concatenate([cuts, np.full(pos.N_CUTS - len(cuts), cuts[-1])])
    shares = np.searchsorted(np.sort(found), cuts, side="right") / len(found)
    split = int(np.abs(shares - 0.5).argmin())
    low, high = (int(np.abs(shares - level).argmin()) for level in (0.25, 0.75))
    is_even = _SPLIT <= shares[split] <= 1.0 - _SPLIT
    middle = (low, high) if is_even and _SPLIT <= shares[high] - shares[low] <= 1.0 - _SPLIT else (-1, -1)
    return ColumnProfile(name, "number", 0, cuts=tuple(cuts.tolist()), split=split if is_even else -1, middle=middle)


def _by_count(counter: Counter[str]) -> list[str]:
    return sorted(counter, key=lambda text: (-counter[text], text))


def shape_of(text: str) -> str:
    """Return the format of a time: digits and letters without their values.

    Examples
    --------
    >>> shape_of("2026-11-27"), shape_of("27.11.2026"), shape_of("7.11.2026"), shape_of("28 November 2026 10:00Z")
    ('0000-00-00', '00.00.0000', '00.00.0000', '00 a 0000 00:00a')
    """
    return _shape(text[:_LONGEST].translate(_SHAPES))


@lru_cache(1 << 12)
def _shape(text: str) -> str:
    text = re.sub(r"[^\W\d_]+", "a", text)
    return re.sub(r"(?<!0)0(?!0)", "00", text)


@dataclass(slots=True)
class Bins:
    """Bins of all columns.

    Parameters
    ----------
    edges
        For numbers: the edges of bins and the ends of the range, shape (n_columns, 34); NaN for other columns.
    splits
        Indexes of the edges near the median and the two quartiles, shape (n_columns, 3).
    codes
        For categories: the code of each text, by column. For times: of each format.
    times
        The columns of times.
    """

    edges: Floats = field(default_factory=lambda: np.zeros((0, N_EDGES)))
    splits: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    codes: dict[int, dict[str, int]] = field(default_factory=dict)
    times: set[int] = field(default_factory=set)

    def put(self, c: int, profile: ColumnProfile | None) -> None:
        """Set the bins of a column, or of the next one; None while they are unknown."""
        if c == len(self.edges):
            self.edges = np.concatenate([self.edges, np.full((1, N_EDGES), np.nan)])
            self.splits = np.concatenate([self.splits, np.zeros((1, 3), np.int64)])
        self.edges[c], self.splits[c] = np.nan, 0
        self.codes.pop(c, None)
        self.times.discard(c)
        if profile is not None and profile.kind == "number":
            cuts = np.array(profile.cuts)
            self.edges[c] = np.concatenate([[np.nextafter(cuts[0], -np.inf)], cuts, [np.inf]])
            self.splits[c] = np.array([profile.split, *profile.middle]) + 1
        elif profile is not None:
            codes = {value: i for i, value in enumerate(profile.values)}
            self.codes[c] = dict.fromkeys(profile.others, pos.OTHER) | codes
            self.times |= {c} if profile.kind == "time" else set()


def count_blocks(bins: Bins, numbers: Floats, texts: Mapping[int, Texts], previous: Floats) -> tuple[Counts, Words]:
    """Count the values of columns per block.

    Parameters
    ----------
    bins
        The bins.
    numbers
        Shape (n_columns, n).
    texts
        Texts by column.
    previous
        The number before the first one, by column.

    Returns
    -------
    counts : ndarray of shape (n / BLOCK, n_columns, WIDTH)
    words : ndarray of shape (n / BLOCK, 2 * n_columns + 1)
        One bit per event: for each column whether the number is at most the median, and whether it is between the
        quartiles; and a column of zeros.
    """
    d, n = numbers.shape
    counts, words = np.zeros((n // BLOCK, d, pos.WIDTH), np.float32), np.zeros((n // BLOCK, 2 * d + 1), np.uint64)
    table = counts.reshape(len(counts), d * pos.WIDTH)
    compiled("count_numbers")(np.ascontiguousarray(numbers), previous, bins.edges, bins.splits, table, words)
    others = {c: are_texts(own) for c, own in texts.items() if c not in bins.codes}
    for c, codes in bins.codes.items():
        counts[:, c] = 0.0
        _count_texts(codes, shapes_of(texts.get(c)) if c in bins.times else texts.get(c), counts[:, c])
        others[c] = ~np.isnan(numbers[c])
    for c, other in others.items():
        counts[:, c, pos.TYPE] = other.reshape(-1, BLOCK).sum(axis=1)
        counts[:, c, pos.MISSING] -= counts[:, c, pos.TYPE]
    for c in bins.times:  # another format is another type
        counts[:, c, pos.TYPE] += counts[:, c, pos.UNSEEN]
        counts[:, c, pos.UNSEEN] = 0.0
    return counts, words


def shapes_of(texts: Texts | None) -> Texts | None:
    """Return the formats of times; None remains."""
    if texts is None:
        return None
    return np.fromiter((None if text is None else shape_of(text) for text in texts.tolist()), object, len(texts))


def are_texts(texts: Texts) -> NDArray[np.bool_]:
    """Return whether each cell is a text."""
    return np.fromiter((text is not None for text in texts), bool, len(texts))


def _count_texts(codes: dict[str, int], texts: Texts | None, counts: Counts) -> None:
    if texts is None:
        counts[:, pos.MISSING] = BLOCK
        return
    found = [pos.N_CUTS + 2 if text is None else codes.get(text, pos.N_CUTS) for text in texts.tolist()]
    cells = np.array(found).reshape(-1, BLOCK) + (pos.N_CUTS + 3) * np.arange(len(counts))[:, None]
    cells = np.bincount(cells.ravel(), minlength=len(counts) * (pos.N_CUTS + 3)).reshape(len(counts), -1)
    counts[:, : pos.ABOVE + 1], counts[:, pos.MISSING] = cells[:, : pos.ABOVE + 1], cells[:, pos.ABOVE + 1]


def count_odd(words: Words, relations: Ints) -> Counts:
    """Count events per block with an odd number of set bits per relation.

    The counts have the shape (n_blocks, n_relations, 1).
    """
    counts: Counts = np.empty((len(words), len(relations)), np.float32)
    compiled("count_relations")(words, relations, counts)
    return counts[:, :, None]


def choose_relations(splits: Sequence[int], middles: Collection[int], seed: int) -> Ints:
    """Choose relations of two or three columns, as rows of words, -1 for none.

    The shape is (n_relations, 3).

    At most half of the relations are pairs of medians. The others are triples of medians, pairs of a median and a
    middle, and pairs of middles. Of too many, a random sample is drawn.

    Parameters
    ----------
    splits, middles
        Columns with a median, and those with a middle half.
    seed
        Seed of the choice.
    """
    rng, found = random.Random(seed), dict[tuple[int, ...], None]()
    for shapes, most in ((((2, 0),), MOST_RELATIONS // 2), (((3, 0), (1, 1), (0, 2)), MOST_RELATIONS)):
        for _ in range(20 * MOST_RELATIONS):
            n, k = rng.choice(shapes)
            if len(found) == most or len(splits) < n + k:
                continue
            columns = rng.sample(splits, n + k)
            if all(c in middles for c in columns[n:]):
                bits = sorted(2 * c + (i >= n) for i, c in enumerate(columns))
                found[tuple([*bits, -1][:3])] = None
    return np.array(sorted(found, key=lambda bits: (bits[-1] >= 0, bits)), np.int64).reshape(-1, 3)


# Descriptions ---------------------------------------------------------------------------------------------------------


def summary(profile: ColumnProfile, counts: Floats, n_events: float, beside: Floats | None = None) -> dict[str, Any]:
    """Describe counts of a column: mean and quantiles or frequent values, and shares.

    Frequent values are those of the counts and of others to compare them with, so that both descriptions have the same.
    """
    if profile.kind == "empty":  # there is no type to compare with
        return {"missing": _share(counts[pos.MISSING], n_events)}
    shares = {"missing": _share(counts[pos.MISSING], n_events), "other_type": _share(counts[pos.TYPE], n_events)}
    present = n_events - counts[pos.MISSING] - counts[pos.TYPE]
    found: dict[str, Any] = {}
    if present > 0.0 and profile.kind == "number":
        found = _numbers(profile, counts, present)
    elif present > 0.0:
        found = _texts(profile, counts, present, counts if beside is None else beside)
    return found | {name: share for name, share in shares.items() if share or name == "missing"}


def _share(count: float, n: float) -> float:
    return round(float(count) / float(n), 6)


def _texts(profile: ColumnProfile, counts: Floats, present: float, beside: Floats) -> dict[str, Any]:
    own, others = (
        each[: len(profile.values)] / max(each[: len(profile.values)].sum(), 1.0) for each in (counts, beside)
    )
    order = np.argsort(-np.maximum(own, others), kind="stable")[:5]
    found: dict[str, Any] = {"values": {profile.values[i]: _share(counts[i], present) for i in order}}
    return found | ({"unseen": _share(counts[pos.UNSEEN], present)} if profile.kind == "category" else {})


def _numbers(profile: ColumnProfile, counts: Floats, present: float) -> dict[str, Any]:
    found: dict[str, Any] = {"mean": float(f"{counts[pos.TOTAL] / present:.6g}")}
    shares = counts[: pos.N_CUTS] / present
    for name, level in (("p05", 0.05), ("median", 0.5), ("p95", 0.95)):
        at = int(np.searchsorted(shares, level))
        found[name] = _quantile(profile.cuts, shares, at, level) if at < pos.N_CUTS else f"above {profile.cuts[-1]:.6g}"
        if counts[pos.BELOW] >= level * present:
            found[name] = f"below {profile.cuts[0]:.6g}"
    if counts[pos.BELOW] + counts[pos.ABOVE]:
        found["out_of_range"] = _share(counts[pos.BELOW] + counts[pos.ABOVE], present)
    return found | {"repeats": _share(counts[pos.REPEATS], present)}


def _quantile(cuts: tuple[float, ...], shares: Floats, at: int, level: float) -> float:
    """Return a quantile in the bin that ends at cut `at`, by linear interpolation.

    Whole numbers, and columns of few different values, take the cut itself, because it is one of their values.
    """
    is_discrete = len(set(cuts)) < _FEW_CUTS or all(cut.is_integer() for cut in cuts)
    if at == 0 or is_discrete or shares[at] <= shares[at - 1]:
        return cuts[at]
    part = (level - shares[at - 1]) / (shares[at] - shares[at - 1])
    return float(f"{cuts[at - 1] + part * (cuts[at] - cuts[at - 1]):.6g}")


def with_reference(profile: ColumnProfile, n_events: int, counts: Floats, design: Floats) -> ColumnProfile:
    """Return a profile with counts of a reference.

    Columns that mostly leave the range of the first values, such as counters and identifiers, are marked as dependent:
    the cuts and the first values say nothing about them.
    """
    outside, present = counts[pos.BELOW] + counts[pos.ABOVE], n_events - counts[pos.MISSING] - counts[pos.TYPE]
    if (counts[pos.UNSEEN] if profile.kind == "category" else outside) > 0.5 * present:
        design = design.copy()
        design[:, 0] = np.maximum(design[:, 0], n_events)
    return replace(profile, n_events=n_events, counts=counts, design=design)


def are_times(texts: Sequence[str]) -> bool:
    """Return whether all texts are dates or times, such as the days of partitions."""
    return bool(texts) and (all(map(is_spelled_out, texts)) or bool(formats_of(texts)))
