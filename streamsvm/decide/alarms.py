"""Alarms for a class by an adaptive threshold on its probability."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats, Ints
from streamsvm.models.codec import Stateful
from streamsvm.parameters import check_between, check_choice

KINDS = ("share", "recall", "precision")
"""The quantities that alarms can control."""

# For precision: number of bins and range of the log-odds, labels per block, decay of the counts per block, and minimum
# decayed number of alarms.
_STEPS, _WIDEST, _BLOCK, _DECAY, _LEAST = 64, 8.0, 64, 0.99, 5.0


def check_alarms(kind: str, wanted: float) -> None:
    """Validate the parameters of `Alarms`.

    Parameters
    ----------
    kind, wanted
        See `Alarms`.

    Raises
    ------
    ValueError
        If the kind is unknown, or the target is not between 0 and 1.
    """
    check_choice("kind", kind, KINDS)
    check_between("wanted", wanted, 0.0, 1.0)


class Alarms(Stateful):
    """Raise alarms for a class at a given rate, recall or precision.

    Parameters
    ----------
    kind
        The quantity to control. `"share"` is the share of all events that raise an alarm, and needs no labels.
        `"recall"` is the share of the events of the class that raise an alarm. `"precision"` is the share of alarms
        that are correct.
    wanted
        The target, between 0 and 1.

    Notes
    -----
    Share and recall use `ConformalSets` with a single label and have its guarantee. The number of alarms (or of missed
    events of the class) differs from the target by at most 51 from the start of the stream. Over any part of it, it
    differs by at most 102. The threshold for a precision is the lowest one that reached it over about the last 6,400
    labels. If no threshold did, no alarm is raised.

    Examples
    --------
    >>> p = np.random.default_rng(0).beta(0.2, 5.0, 20_000)
    >>> alarms = Alarms("share", 0.01)
    >>> raised = alarms.run(p, np.full(20_000, -1))
    >>> bool(abs(raised.mean() - 0.01) < 0.001), bool(p[raised][50:].min() > np.quantile(p, 0.97))
    (True, True)
    """

    saved = ("_sets", "_counts", "_fresh", "_n_labels", "_first")

    def __init__(self, kind: str = "share", wanted: float = 0.01) -> None:
        check_alarms(kind, wanted)
        self.kind, self.wanted = kind, float(wanted)
        self._sets = None
        if kind != "precision":
            # Imported here, so that validating the settings does not import the kernels.
            from streamsvm.decide.conformal import ConformalSets

            self._sets = ConformalSets(wanted if kind == "recall" else 1.0 - wanted, n_known=1)
        # Counts of labels per bin, first for the other classes, then for the class. `_counts` has the decayed counts of
        # complete blocks of labels, `_fresh` the counts of the current block.
        self._counts, self._fresh = np.zeros(2 * _STEPS), np.zeros(2 * _STEPS)
        self._n_labels, self._first = 0, _STEPS

    def run(self, p: Floats, is_class: Ints) -> NDArray[np.bool_]:
        """Decide for each event whether to raise an alarm, then learn from its label.

        Parameters
        ----------
        p
            The probability of the class, shape (n,).
        is_class
            1 if the event is of the class, 0 if it is not, -1 if unknown.
        """
        p = np.where(p > 0.0, p, 0.0)  # NaN counts as 0
        if self._sets is None:
            return self._precise(p, is_class)
        # For recall, the covered label is the class itself, and only its events have a label. For a share, every event
        # has an auxiliary label, which is less probable if the class is more probable. The second column, 2, ensures
        # that neither is the most probable label, which is always in the set.
        if self.kind == "recall":
            own, codes = p, np.where(is_class == 1, 0, -1)
        else:
            least = math.exp(-self._sets.most)
            own, codes = least / np.maximum(p, least), np.zeros(len(p), np.int64)
        is_in = self._sets.run(np.column_stack([own, np.full(len(p), 2.0)]), codes)[:, 0]
        return is_in if self.kind == "recall" else ~is_in

    def _precise(self, p: Floats, is_class: Ints) -> NDArray[np.bool_]:
        likely = np.clip(p, 1e-300, 1.0 - 1e-15)
        odds = np.log(likely / (1.0 - likely))
        steps = np.clip((odds + _WIDEST) * (_STEPS / (2.0 * _WIDEST)), 0, _STEPS - 1).astype(np.int64)
        labelled = np.flatnonzero(is_class >= 0)
        n_before = self._n_labels % _BLOCK
        n_ended, n_bins = (n_before + len(labelled)) // _BLOCK, 2 * _STEPS
        blocks = np.arange(n_before, n_before + len(labelled)) // _BLOCK
        bins = (blocks * 2 + is_class[labelled]) * _STEPS + steps[labelled]
        fresh = np.bincount(bins, minlength=(n_ended + 1) * n_bins).reshape(-1, n_bins).astype(float)
        fresh[0] += self._fresh
        held = np.empty((n_ended, n_bins))
        for counts, added in zip(held, fresh, strict=False):
            np.add(self._counts, added, counts)
            np.multiply(counts, _DECAY, self._counts)
        firsts = [self._first, *self._thresholds(held).tolist()]
        ends = labelled[np.arange(1, n_ended + 1) * _BLOCK - n_before - 1] + 1
        self._fresh, self._first, self._n_labels = fresh[n_ended], firsts[-1], self._n_labels + len(labelled)
        return np.asarray(steps >= np.repeat(firsts, np.diff(ends, prepend=0, append=len(p))))

    def _thresholds(self, held: Floats) -> Ints:
        """Return the lowest bin with sufficient precision at the end of each block."""
        above = np.cumsum(held.reshape(-1, 2, _STEPS)[..., ::-1], axis=2)[..., ::-1]
        own, alarms = above[:, 1], above.sum(axis=1)
        good = (own >= self.wanted * alarms) & (alarms >= _LEAST)
        return np.where(good.any(axis=1), good.argmax(axis=1), _STEPS)

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        is_counted = bool(np.isfinite(self._counts).all() and np.isfinite(self._fresh).all())
        return is_counted and self._n_labels >= 0 and 0 <= self._first <= _STEPS
