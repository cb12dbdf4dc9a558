"""Counts of events in windows of several sizes, their moments in the reference, and the limits of the tests.

Every row of a tally has counts per block of `BLOCK` events. A window of scale s covers the last 4^s blocks; it moves by
a quarter of its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.monitor.bounds import Counts, Floats, critical_counts
from streamsvm.monitor.design import design_effects

BLOCK = 64
"""Number of events in a block, the smallest window."""
RATIO = 4
_NEVER = 1 << 60


def window_sizes(n_events: int) -> list[int]:
    """Return the sizes of windows in events, at most half of the reference and 2^22, so that counts are exact."""
    sizes = [BLOCK]
    while sizes[-1] * RATIO * 2 <= min(n_events, 1 << 23):
        sizes.append(sizes[-1] * RATIO)
    return sizes


@dataclass(slots=True)
class Closed:
    """Windows of one scale that closed.

    Parameters
    ----------
    counts
        Shape (n_rows, n_windows, width).
    ends
        Number of blocks from the start of the stream to the end of each window.
    n_blocks
        Number of blocks in a window.
    """

    counts: Counts
    ends: NDArray[np.int64]
    n_blocks: int


class Tally:
    """Windows over rows of counts.

    Parameters
    ----------
    sizes
        Sizes of windows in events.
    groups
        Group of each count; the counts of a group have one design effect per scale.

    Attributes
    ----------
    learn_from, learn_until
        Blocks between which a row learns its reference.
    """

    def __init__(self, sizes: Sequence[int], groups: Sequence[int]) -> None:
        self.sizes, self.groups = list(sizes), np.array(groups)
        width, n = len(groups), len(sizes)
        self.learn_from = np.zeros(0, np.int64)
        self.learn_until = np.zeros(0, np.int64)
        self.n_blocks = 0
        # Counts have 32 bits: they are below 2^24, and their sizes determine the cost.
        self.children = np.zeros((n - 1, 0, RATIO - 1, width), np.float32)  # the last windows of the next smaller scale
        self.n_windows = np.zeros((n, 0))
        self.sums = np.zeros((n, 0, width))
        self.squares = np.zeros((n, 0, width))
        self.low = np.zeros((n, 0, width), np.float32)
        self.high = np.zeros((n, 0, width), np.float32)
        self.last = np.zeros((n, 0, width), np.float32)  # the last closed window

    arrays = ("learn_from", "learn_until", "children", "n_windows", "sums", "squares", "low", "high", "last")

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
        self.learn_from[-k:] = self.learn_until[-k:] = _NEVER
        self.accept_all(slice(len(self) - k, None))

    def accept_all(self, rows: Any) -> None:
        """Remove the limits of rows."""
        self.low[:, rows], self.high[:, rows] = -math.inf, math.inf

    def begin(self, rows: Any, at: int, n_blocks: int) -> None:
        """Learn the reference of rows anew between two blocks."""
        self.learn_from[rows], self.learn_until[rows] = at, at + n_blocks
        self.n_windows[:, rows] = self.sums[:, rows] = self.squares[:, rows] = 0.0
        self.accept_all(rows)

    def copy_rows(self, other: Tally, rows: Sequence[int]) -> None:
        """Copy rows of another tally of as many rows and blocks."""
        for name in self.arrays:
            array = getattr(self, name)
            at = rows if array.ndim == 1 else (slice(None), rows)
            array[at] = getattr(other, name)[at]

    def next_boundary(self) -> int:
        """Return the next block at which a row begins or ends to learn."""
        bounds = np.concatenate([self.learn_from, self.learn_until])
        return int(bounds[bounds > self.n_blocks].min(initial=_NEVER))

    # Windows ----------------------------------------------------------------------------------------------------------

    def close(self, counts: Counts) -> tuple[list[Closed], Counts]:
        """Return the windows that close with these blocks, and the new state of `children`; changes nothing.

        Parameters
        ----------
        counts
            Counts of blocks, shape (n_rows, n_new_blocks, width).
        """
        start, k = self.n_blocks, counts.shape[1]
        closed = [Closed(counts, np.arange(start + 1, start + k + 1), 1)]
        children = self.children.copy()
        new, ends = counts, closed[0].ends
        for s in range(len(self.sizes) - 1):
            both, n_blocks = np.concatenate([self.children[s], new], axis=1), RATIO ** (s + 1)
            children[s] = both[:, both.shape[1] - (RATIO - 1) :]
            twos = both[:, 1:] + both[:, :-1]
            sums = twos[:, 2:] + twos[:, :-2]
            closed.append(Closed(sums, ends, n_blocks))
            aligned = slice((-ends[0] // (n_blocks // RATIO)) % RATIO if len(ends) else 0, None, RATIO)
            new, ends = sums[:, aligned], ends[aligned]
        return closed, children

    def commit(self, closed: Sequence[Closed], children: Counts) -> None:
        """Take windows of `close`: learn from those in a reference."""
        self.children = children
        start = self.n_blocks
        learning = np.flatnonzero((self.learn_from <= start) & (start < self.learn_until))
        for s, windows in enumerate(closed):
            if not len(windows.ends):
                continue
            self.last[s] = windows.counts[:, -1]
            if len(learning):
                aligned = windows.ends % windows.n_blocks == 0
                counts = windows.counts[learning][:, aligned]
                starts = windows.ends[aligned] - windows.n_blocks
                self._learn(s, learning, counts, starts >= self.learn_from[learning, None])
        self.n_blocks += closed[0].counts.shape[1]

    def learn_row(self, row: int, counts: Counts) -> None:
        """Learn from blocks of the reference of a row, shape (n_blocks, width)."""
        for s in range(len(self.sizes)):
            n = len(counts) // RATIO**s
            windows = counts[: n * RATIO**s].reshape(n, RATIO**s, counts.shape[1]).sum(axis=1)[None]
            self._learn(s, np.array([row]), windows, np.ones((1, n), bool))

    def _learn(self, s: int, rows: NDArray[np.int64], windows: Counts, valid: NDArray[np.bool_]) -> None:
        counts = np.where(valid[:, :, None], windows, 0.0).astype(float)
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

    def set_limits(self, rows: Sequence[int], references: Sequence[Any], log_levels: Sequence[float]) -> None:
        """Set the accepted counts of rows for their references.

        Parameters
        ----------
        rows
            The rows.
        references
            Their profiles.
        log_levels
            Logarithm of the level of a one-sided test, by scale.
        """
        if not rows:
            return
        n = np.array([[float(one.n_events)] for one in references])
        counts = np.clip(np.stack([one.counts for one in references]), 0.0, n)
        design = np.stack([one.design for one in references])[:, :, self.groups]
        for s, (size, level) in enumerate(zip(self.sizes, log_levels, strict=True)):
            limits = critical_counts(size, counts, n, level, design[:, s], design[:, -1])
            self.low[s, rows], self.high[s, rows] = limits

    def beyond(self, closed: Closed, s: int) -> NDArray[np.bool_]:
        """Return which counts of windows exceed the limits of their rows, without windows that reach the reference."""
        found: NDArray[np.bool_] = closed.counts > self.high[s][:, None]
        found |= closed.counts < self.low[s][:, None]
        if found.any():
            found &= ((closed.ends - closed.n_blocks) >= self.learn_until[:, None])[:, :, None]
        return found
