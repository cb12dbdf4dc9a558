"""Alarms for a class: a threshold on its probability that follows the stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.arrays import Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.parameters import check_between, check_choice

KINDS = ("share", "recall", "precision")
"""What may be wanted of alarms."""

# Of wanted precision: bins of the log-odds between these, and how they forget, so many labels at a time.
_STEPS, _WIDEST, _BLOCK, _DECAY, _LEAST = 64, 8.0, 64, 0.99, 5.0


def check_alarms(kind: str, wanted: float) -> None:
    """Refuse what are no alarms.

    Parameters
    ----------
    kind, wanted
        As `Alarms` has them.

    Raises
    ------
    ValueError
        Where there is no such kind, or the share is not between 0 and 1.
    """
    check_choice("kind", kind, KINDS)
    check_between("wanted", wanted, 0.0, 1.0)


class Alarms:
    """Which events to raise an alarm for, by the probability of a class: so many, or so good, as is wanted.

    Parameters
    ----------
    kind
        What is wanted: a `"share"` of all events, the most probable ones, for which no label is needed; a `"recall"`,
        the share of the events of the class that are found; or a `"precision"`, the share of alarms that are right.
    wanted
        How much, between 0 and 1.

    Notes
    -----
    Share and recall are sets of labels, of one label: the same bounds hold, so that alarms (or missed events of the
    class) are as many as were wanted but for 51 counted from the beginning, and 102 over any stretch of the stream. The
    threshold of a precision is the lowest at which alarms would have been so good, over about the last 6,400 labels;
    where none was, there is no alarm.

    Examples
    --------
    >>> p = np.random.default_rng(0).beta(0.2, 5.0, 20_000)
    >>> alarms = Alarms("share", 0.01)
    >>> raised = alarms.run(p, np.full(20_000, -1))
    >>> bool(abs(raised.mean() - 0.01) < 0.001), bool(p[raised][50:].min() > np.quantile(p, 0.97))
    (True, True)
    """

    def __init__(self, kind: str = "share", wanted: float = 0.01) -> None:
        check_alarms(kind, wanted)
        self.kind, self.wanted = kind, float(wanted)
        self._sets = None
        if kind != "precision":
            # Imported here, so that settings are checked without what is compiled.
            from streamsvm.decide.conformal import ConformalSets

            self._sets = ConformalSets(wanted if kind == "recall" else 1.0 - wanted, n_known=1)
        # Of others and of the class: those before the block of labels that has begun, decayed, and those in it.
        self._counts, self._fresh = np.zeros(2 * _STEPS), np.zeros(2 * _STEPS)
        self._n_labels, self._first = 0, _STEPS

    def run(self, p: Floats, is_class: Ints) -> NDArray[np.bool_]:
        """Whether there is an alarm for each event, of which the label is taken before the next.

        Parameters
        ----------
        p
            The probability of the class, shape (n,).
        is_class
            Whether each event is of the class, 1 or 0, or -1 where that is not known.
        """
        p = np.where(p > 0.0, p, 0.0)  # what is no number is no probability
        if self._sets is None:
            return self._precise(p, is_class)
        # For recall the label in question is the class itself, known only of its events. For a share it is another
        # one, of each event, that is the less probable the more the class is. Neither is the most probable label.
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
        """From which bin on alarms are as good as is wanted, by counts as they are when blocks of labels end."""
        above = np.cumsum(held.reshape(-1, 2, _STEPS)[..., ::-1], axis=2)[..., ::-1]
        own, alarms = above[:, 1], above.sum(axis=1)
        good = (own >= self.wanted * alarms) & (alarms >= _LEAST)
        return np.where(good.any(axis=1), good.argmax(axis=1), _STEPS)

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """All that was learned, as arrays."""
        if self._sets is not None:
            return self._sets.state()
        counts = np.stack([self._counts, self._fresh])
        return {"counts": counts, "numbers": np.array([self._n_labels, self._first])}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` gave.

        Parameters
        ----------
        arrays
            What `state` gave.

        Raises
        ------
        ValueError
            Where it is not that of such alarms.
        """
        if self._sets is not None:
            self._sets.restore(arrays)
            return
        counts, (n_labels, first) = arrays["counts"], arrays["numbers"].tolist()
        good = counts.shape == (2, 2 * _STEPS) and np.isfinite(counts).all() and (counts >= 0.0).all()
        if not good or n_labels < 0 or not 0 <= first <= _STEPS:
            raise ArchiveError("alarms of a precision with counts that are none")
        (self._counts, self._fresh), self._n_labels, self._first = counts.copy(), n_labels, first
