"""Counts of events in windows, with their references, tests and changes.

Every row of a tally has counts per block of `BLOCK` events. A window of scale s covers the last 4^s blocks; it moves by
a quarter of its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats
from streamsvm.models.codec import SavedState, Stateful
from streamsvm.monitor.alarms import Watches
from streamsvm.monitor.kernels import BLOCK, RATIO
from streamsvm.monitor.two_sample_tests import Counts, critical_counts, design_effects

_NEVER = 1 << 60


def window_sizes(n_events: int) -> list[int]:
    """Return window sizes in events, limited so that float counts are exact.

    The largest is at most half of the reference.
    """
    sizes = [BLOCK]
    while sizes[-1] * RATIO * 2 <= min(n_events, 1 << 23):
        sizes.append(sizes[-1] * RATIO)
    return sizes


@dataclass(slots=True)
class ClosedWindows:
    """Windows of one scale that closed.

    Parameters
    ----------
    counts
        Shape (n_rows, n_windows, width).
    first, step
        Number of blocks from the start of the stream to the end of the first window, and between windows.
    n_blocks
        Number of blocks in a window.
    """

    counts: Counts
    first: int
    step: int
    n_blocks: int

    @property
    def ends(self) -> NDArray[np.int64]:
        """Number of blocks from the start of the stream to the end of each window."""
        return np.arange(self.first, self.first + self.step * self.counts.shape[1], self.step)


class ClosingWindows(NamedTuple):
    """Windows that close with some blocks.

    Parameters
    ----------
    windows
        The windows by scale.
    children, last
        New values of these attributes of the tally.
    exceeds
        Whether any count exceeds its limits, those of windows that reach the reference included.
    """

    windows: list[ClosedWindows]
    children: Counts
    last: Counts
    exceeds: bool


class WindowCounts(Stateful):
    """Rows of counts in windows, which learn references and are compared with them.

    Parameters
    ----------
    sizes
        Sizes of windows in events.
    groups
        Group of each count; the counts of a group have one design effect per scale.
    n_ways
        Number of ways in which a row may deviate from its reference.
    kind
        Class of the references.

    Attributes
    ----------
    learn_from, learn_until
        Blocks between which a row learns its reference.
    profiles
        Reference of each row, None while it is unknown.
    watches
        Changes of the rows.
    """

    arrays = ("learn_from", "learn_until", "children", "n_windows", "sums", "squares", "low", "high", "last")
    saved = (*arrays, "n_blocks", "watches")
    signed = frozenset({"sums"})

    def __init__(self, sizes: Sequence[int], groups: Sequence[int], n_ways: int, kind: Any) -> None:
        self.profiles: list[Any] = []
        self._kind = kind
        self.watches = Watches(n_ways)
        self.sizes, self.groups = list(sizes), np.array(groups)
        width, n = len(groups), len(sizes)
        self.learn_from, self.learn_until, self.n_blocks = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
        # Counts have 32 bits: they are below 2^24, and their sizes determine the cost.
        self.children = np.zeros((n - 1, 0, RATIO - 1, width), np.float32)  # the last windows of the next smaller scale
        self.n_windows, self.sums, self.squares = np.zeros((n, 0)), np.zeros((n, 0, width)), np.zeros((n, 0, width))
        # Limits of the counts, and counts of the last closed window.
        self.low, self.high, self.last = (np.zeros((n, 0, width), np.float32) for _ in range(3))

    def __len__(self) -> int:
        return len(self.learn_from)

    def add_rows(self, k: int) -> None:
        """Add rows, which do not learn yet."""
        for name in self.arrays:
            array = getattr(self, name)
            axis = 0 if array.ndim == 1 else 1
            pad = [(0, 0)] * array.ndim
            pad[axis] = (0, k)
            setattr(self, name, np.pad(array, pad))
        self.profiles += [None] * k
        self.watches.add(k)
        self.forget(range(len(self) - k, len(self)))

    def forget(self, rows: Sequence[int]) -> None:
        """Forget references and changes of rows, until `begin` or `use`."""
        self.learn_from[rows] = self.learn_until[rows] = _NEVER
        self.accept_all(rows)
        self.watches.clear(rows)
        for row in rows:
            self.profiles[row] = None

    def use(self, profiles: Sequence[Any]) -> None:
        """Use known references of all rows from the current block on."""
        self.profiles = list(profiles)
        self.learn_from[:] = self.learn_until[:] = self.n_blocks

    def accept_all(self, rows: Any) -> None:
        """Remove the limits of rows."""
        self.low[:, rows], self.high[:, rows] = -math.inf, math.inf

    def begin(self, rows: Any, at: int, n_blocks: int) -> None:
        """Start a new reference of rows between two blocks."""
        self.learn_from[rows], self.learn_until[rows] = at, at + n_blocks
        self.n_windows[:, rows] = self.sums[:, rows] = self.squares[:, rows] = 0.0
        self.accept_all(rows)

    def copy_rows(self, other: WindowCounts, rows: Sequence[int]) -> None:
        """Copy counts and references from another tally of as many rows and blocks."""
        for name in self.arrays:
            array = getattr(self, name)
            at = rows if array.ndim == 1 else (slice(None), rows)
            array[at] = getattr(other, name)[at]
        for row in rows:
            self.profiles[row] = other.profiles[row]

    def next_boundary(self) -> int:
        """Return the next block at which a row begins or ends to learn."""
        bounds = np.concatenate([self.learn_from, self.learn_until])
        return int(bounds[bounds > self.n_blocks].min(initial=_NEVER))

    # Windows ----------------------------------------------------------------------------------------------------------

    def close(self, counts: Counts) -> ClosingWindows:
        """Return the windows that close with these blocks; changes nothing.

        Parameters
        ----------
        counts
            Counts of blocks, shape (n_new_blocks, n_rows, width).
        """
        children, last, closed, exceeds = self.children.copy(), self.last.copy(), list[ClosedWindows](), False
        windows = inputs = counts
        first, step, n_blocks = self.n_blocks + 1, 1, 1
        for s in range(len(self.sizes)):
            if s > 0:
                parts = np.concatenate([children[s - 1].swapaxes(0, 1), inputs])
                windows = parts[:-3] + parts[1:-2]
                windows += parts[2:-1] + parts[3:]
                children[s - 1] = parts[-3:].swapaxes(0, 1)
            closed.append(ClosedWindows(windows.swapaxes(0, 1), first, step, n_blocks))
            if len(windows):
                last[s] = windows[-1]
                exceeds = exceeds or bool((windows > self.high[s]).any() or (windows < self.low[s]).any())
            # Windows whose ends are multiples of their size are the parts of those of the next scale.
            skipped = -first // step % (n_blocks // step)
            inputs = windows[skipped :: n_blocks // step]
            first, step, n_blocks = first + skipped * step, n_blocks, n_blocks * RATIO
        return ClosingWindows(closed, children, last, exceeds)

    def commit(self, closing: ClosingWindows) -> None:
        """Take windows of `close`: learn from those in a reference."""
        self.children, self.last = closing.children, closing.last
        start = self.n_blocks
        learning = np.flatnonzero((self.learn_from <= start) & (start < self.learn_until))
        for s, windows in enumerate(closing.windows if len(learning) else ()):
            aligned = windows.ends % windows.n_blocks == 0
            counts = windows.counts[learning][:, aligned]
            starts = windows.ends[aligned] - windows.n_blocks
            self._learn(s, learning, counts, starts >= self.learn_from[learning, None])
        self.n_blocks += closing.windows[0].counts.shape[1]

    def learn_row(self, row: int, counts: Counts) -> None:
        """Learn from blocks of the reference of a row, shape (n_blocks, width)."""
        for s in range(len(self.sizes)):
            n = len(counts) // RATIO**s
            windows = counts[: n * RATIO**s].reshape(n, RATIO**s, counts.shape[1]).sum(axis=1)[None]
            self._learn(s, np.array([row]), windows, np.ones((1, n), bool))

    def _learn(self, s: int, rows: NDArray[np.int64], windows: Counts, valid: NDArray[np.bool_]) -> None:
        counts = np.where(valid[:, :, None], windows, 0.0).astype(float, order="C")
        self.n_windows[s, rows] += valid.sum(axis=1)
        self.sums[s, rows] += counts.sum(axis=1)
        self.squares[s, rows] += (counts**2).sum(axis=1)

    def reference(self, row: int, n_scales: int | None = None) -> tuple[int, Floats, Floats]:
        """Return number of events, counts, and design effects of a learned row.

        Design effects are by scale, with the whole reference last, and by group. Only the first `n_scales` are used.
        """
        n_blocks, sizes = int(self.n_windows[0, row]), self.sizes[:n_scales]
        n_windows, sums, squares = (array[: len(sizes), row] for array in (self.n_windows, self.sums, self.squares))
        effects = design_effects(sizes, n_windows, sums, squares, self.groups)
        return n_blocks * BLOCK, self.sums[0, row].copy(), effects

    # Tests ------------------------------------------------------------------------------------------------------------

    def known(self, rows: Iterable[int]) -> dict[int, Any]:
        """Return the complete references among those of some rows."""
        return {row: one for row in rows if (one := self.profiles[row]) is not None and one.n_events}

    def set_limits(self, known: Mapping[int, Any], log_levels: Sequence[float]) -> None:
        """Set the accepted counts of rows.

        Parameters
        ----------
        known
            References to compare with, by row.
        log_levels
            Logarithm of the level of a one-sided test, by scale.
        """
        if not known:
            return
        rows, references = list(known), list(known.values())
        n = np.array([[float(one.n_events)] for one in references])
        counts = np.clip(np.stack([one.counts for one in references]), 0.0, n)
        design = np.stack([one.design for one in references])[:, :, self.groups]
        for s, (size, level) in enumerate(zip(self.sizes, log_levels, strict=True)):
            limits = critical_counts(size, counts, n, level, design[:, s], design[:, -1])
            self.low[s, rows], self.high[s, rows] = limits

    def beyond(self, closing: ClosingWindows) -> list[NDArray[np.bool_]]:
        """Return which counts exceed limits, except in windows that reach the reference."""
        found = [np.zeros(windows.counts.shape, bool) for windows in closing.windows]
        for s, windows in enumerate(closing.windows if closing.exceeds else ()):
            found[s] |= (windows.counts > self.high[s][:, None]) | (windows.counts < self.low[s][:, None])
            found[s] &= ((windows.ends - windows.n_blocks) >= self.learn_until[:, None])[:, :, None]
        return found

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""
        header, arrays = super().state()
        return header | {"profiles": [None if one is None else one.as_dict() for one in self.profiles]}, arrays

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""
        self.profiles = [None if one is None else self._kind.from_dict(one) for one in state[0]["profiles"]]
        super().restore(state)

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        shapes = [getattr(self, name).shape for name in self.arrays]
        n_rows = {shape[min(1, len(shape) - 1)] for shape in shapes} | {len(self.watches.scale), len(self.profiles)}
        return len(n_rows) == 1 and self.n_blocks >= 0
