"""Which events to ask the labels of, where labels cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.parameters import check_number

# This share of what may be asked for is drawn at random, and all of it at first: so many labels.
_AT_RANDOM, _FIRST = 0.2, 100
# The threshold moves by so much in its logarithm, and begins in the middle.
_STEP, _MIDDLE, _LEAST, _MOST = 0.05, 0.5, 1e-9, 10.0
# What is ahead of, or behind, the budget by so many labels doubles or ends the asking, as far as half of it.
_PACE = 100.0
_AHEAD = 20


class LabelBudget:
    """Asks for the labels of those events that teach most, about a share of all.

    An event is worth asking about where its prediction is uncertain: where one minus the probability of the predicted
    label, times a random factor, is above a threshold that follows the budget. The factor spreads what is asked for
    about the threshold, and a fifth of it is drawn at random wherever predictions are sure, so that drift is noticed
    there too. At most `share` of the events are asked about, and 20 more.

    What it asks for follows from the scores and the seed alone. Accuracy over the events asked about is that of hard
    ones, and lower than over all.

    Parameters
    ----------
    share
        The budget: the share of events, more than 0 and at most 1.
    seed
        Settles the chance.

    Attributes
    ----------
    n_seen, n_asked
        How many events there were, and how many were asked about.

    Raises
    ------
    TypeError, ValueError
        For a share or seed that is none.

    Notes
    -----
    I. Žliobaitė, A. Bifet, B. Pfahringer, G. Holmes, "Active learning with drifting streaming data", IEEE Transactions
    on Neural Networks and Learning Systems 25(1), 2014: the variable threshold with randomisation and the split of the
    stream (their algorithms 3 to 5). Here the threshold follows the share that is asked for, not only whether the last
    event was, and the factor is log-normal.

    Examples
    --------
    >>> from river import datasets
    >>> from streamsvm import LabelBudget, StreamSVMClassifier
    >>> model, budget = StreamSVMClassifier(), LabelBudget(0.1)
    >>> for x, y in datasets.Phishing():
    ...     shares = model.predict_proba_one(x)
    ...     if budget.wants(max(shares.values(), default=0.0)):
    ...         model.learn_one(x, y)  # somebody was asked
    >>> budget.n_asked, budget.n_seen
    (103, 1250)
    """

    def __init__(self, share: float, seed: int = 0) -> None:
        check_number("share", share, 0, 1)
        if share == 0:
            raise ValueError("`share` must be more than 0: leave the budget out to ask for nothing")
        check_number("seed", seed, 0, 2**32 - 1, whole=True)
        self.share, self.seed = float(share), seed
        self.n_seen = self.n_asked = 0
        self._threshold = _MIDDLE

    def wants(self, score: float) -> bool:
        """Whether to ask for the label of an event.

        Parameters
        ----------
        score
            The probability of the predicted label; 0 or NaN where nothing is known.
        """
        return bool(self.wants_many(np.array([score]))[0])

    def wants_many(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether to ask for the label of each of several events, one after another.

        Parameters
        ----------
        scores
            Shape (n,): what `wants` takes of each.

        Returns
        -------
        ndarray of shape (n,)
            The same as `wants` of each in turn.
        """
        n = len(scores)
        # A step of the counter for each event, so that it does not matter how many come at once.
        drawn = np.random.Generator(np.random.Philox(key=self.seed, counter=self.n_seen)).random((n, 4))
        events = zip(np.asarray(scores, np.float64).tolist(), drawn.tolist(), strict=True)
        return np.fromiter((self._take(score, chances) for score, chances in events), np.bool_, n)

    def _take(self, score: float, chances: list[float]) -> bool:
        normal = math.sqrt(-2.0 * math.log1p(-chances[0])) * math.cos(2.0 * math.pi * chances[1])
        uncertain = (1.0 - (score if score == score else 0.0)) * math.exp(normal)
        at_random = self.share * max(_AT_RANDOM, 1.0 - self.n_asked / _FIRST)
        ahead = self.n_asked - self.share * self.n_seen
        wanted = (self.share - at_random) / max(1.0 - at_random, 1e-9)
        wanted *= min(max(1.0 - ahead / _PACE, 0.5), 1.5)
        above = uncertain > self._threshold
        self._threshold = min(max(self._threshold * math.exp(_STEP * (above - wanted)), _LEAST), _MOST)
        asks = ahead < _AHEAD and ((above and wanted > 0.0) or chances[2] < at_random)
        self.n_seen += 1
        self.n_asked += asks
        return asks

    def state(self) -> dict[str, Any]:
        """All there is to know, for JSON: `from_state` goes on from it."""
        own = {"n_seen": self.n_seen, "n_asked": self.n_asked, "threshold": self._threshold}
        return {"share": self.share, "seed": self.seed} | own

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The budget whose `state` this is.

        Parameters
        ----------
        state
            What `state` gave.

        Raises
        ------
        ValueError, LookupError, TypeError
            Where it is none.
        """
        self = cls(state["share"], state["seed"])
        self.n_seen, self.n_asked = int(state["n_seen"]), int(state["n_asked"])
        self._threshold = float(state["threshold"])
        if not (0 <= self.n_asked <= self.n_seen and _LEAST <= self._threshold <= _MOST):
            raise ValueError("not the state of a budget")
        return self
