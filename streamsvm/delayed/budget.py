"""Active learning: choose which events to request labels for, within a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.parameters import ParameterError, check_number

# Share of random requests in the budget. The first `_FIRST` requests are all random.
_AT_RANDOM, _FIRST = 0.2, 100
# Step of the log threshold, and its initial, least and greatest value.
_STEP, _MIDDLE, _LEAST, _MOST = 0.05, 0.5, 1e-9, 10.0
# The target rate falls or rises by 1 / `_PACE` for each label ahead of or behind the budget, by at most half.
_PACE = 100.0
_AHEAD = 20


class LabelBudget:
    """Requests labels for the most informative events, within a share of all events.

    The label of an event is requested if its uncertainty times a random factor exceeds a threshold. Uncertainty is one
    minus the probability of the predicted label. The threshold adapts to the budget. A fifth of the requests are
    random, so that drift is also noticed where predictions are certain. The number of requests is at most `share` of
    the events, plus 20.

    Requests depend only on the scores and the seed. Events with requested labels are harder than average, so accuracy
    over them underestimates accuracy over all events.

    Parameters
    ----------
    share
        The budget: share of events to request, more than 0 and at most 1.
    seed
        Seed of the random numbers.

    Attributes
    ----------
    n_seen, n_asked
        Number of events, and number of requested labels.

    Raises
    ------
    TypeError, ValueError
        If the share or the seed is invalid.

    Notes
    -----
    I. Žliobaitė, A. Bifet, B. Pfahringer, G. Holmes, "Active learning with drifting streaming data", IEEE Transactions
    on Neural Networks and Learning Systems 25(1), 2014, algorithms 3 to 5: the variable threshold with randomisation
    and the split of the stream. Here the threshold follows the share of requested labels, not only the last decision,
    and the factor is log-normal.

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
    (104, 1250)
    """

    def __init__(self, share: float, seed: int = 0) -> None:
        check_number("share", share, 0, 1)
        if share == 0:
            raise ParameterError("share", "must be more than 0: use no budget to request no labels")
        check_number("seed", seed, 0, 2**32 - 1, whole=True)
        self.share, self.seed = float(share), seed
        self.n_seen = self.n_asked = 0
        self._threshold = _MIDDLE

    def wants(self, score: float) -> bool:
        """Return whether to request the label of an event.

        Parameters
        ----------
        score
            Probability of the predicted label; 0 or NaN if unknown.
        """
        return bool(self.wants_many(np.array([score]))[0])

    def wants_many(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether to request the label of each of several consecutive events.

        Parameters
        ----------
        scores
            Score of each event, as for `wants`.

        Returns
        -------
        ndarray of shape (n,)
            Equal to calling `wants` for each event in turn.
        """
        n = len(scores)
        # One step of the counter per event makes the result independent of batch size.
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
        """Return the state as JSON values, for `from_state`."""
        own = {"n_seen": self.n_seen, "n_asked": self.n_asked, "threshold": self._threshold}
        return {"share": self.share, "seed": self.seed} | own

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restore a budget from its `state`.

        Parameters
        ----------
        state
            Result of `state`.

        Raises
        ------
        ValueError, LookupError, TypeError
            If the state is invalid.
        """
        self = cls(state["share"], state["seed"])
        self.n_seen, self.n_asked = int(state["n_seen"]), int(state["n_asked"])
        self._threshold = float(state["threshold"])
        if not (0 <= self.n_asked <= self.n_seen and _LEAST <= self._threshold <= _MOST):
            raise ValueError("not the state of a budget")
        return self
