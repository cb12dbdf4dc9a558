"""Decisions by what they cost: the one of least expected cost, from any probabilities."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.decide import cost_kernels as kernels
from streamsvm.decide.arrays import Floats, Ints
from streamsvm.decide.checks import check_costs
from streamsvm.models import ArchiveError

ABSTAINS, UNKNOWN = -1, -2
"""The decision to leave an event to somebody else, and one that is not known any more."""
_NO_WEIGHTS = np.zeros(0)
MOST_COUNTED = 1 << 53
_SHOWN = 5  # labels in a message

logger = logging.getLogger(__name__)


class Costs:
    """What decisions cost, and which one costs the least.

    Probabilities are taken as they are, so they should be calibrated; learning is not touched. The decision d costs
    sum_y p(y) weight(y) cost(y, d) by what is to be expected.

    Parameters
    ----------
    cost
        What it costs to decide for one label where another is true: a table by label, `{true: {decided: cost}}`, or a
        pandas frame of that (rows are true), or a square matrix with a row for each true label and a column for each
        decision, whose labels are 0, 1, 2, and so on. What is not there costs 0 where it is right, else 1.
    class_weight
        What the costs of events of a class are multiplied by: a dict of weights, 1 for other labels; or "balanced", by
        which each is inverse to how often the class came so far.
    abstain
        What it costs to decide for none; None: that cannot be.

    Examples
    --------
    >>> costs = Costs({"fraud": {"fine": 10.0}, "fine": {"fraud": 1.0}}, abstain=0.4)
    >>> proba = np.array([[0.99, 0.01], [0.95, 0.05], [0.3, 0.7]])
    >>> costs.run(proba, np.array([0, 1, 0]), ["fine", "fraud"])
    (array([ 0, -1,  1]), array([0. , 0.4, 1. ]))
    """

    def __init__(
        self,
        cost: Any = None,
        class_weight: Mapping[Any, float] | str | None = None,
        abstain: float | None = None,
    ) -> None:
        self._table = check_costs(cost, class_weight, abstain)
        prepare(list(kernels.ENTRIES.values()))
        self._weights = class_weight if isinstance(class_weight, Mapping) else {}
        self._abstain, self._is_balanced = np.inf if abstain is None else float(abstain), class_weight == "balanced"
        self._use(self._new_state(2))
        self._rows = State(kernels.DECIDING)
        self._n_known = self._n_counted = 0
        self._doubts = bool(self._table)

    def _new_state(self, n: int) -> State:
        state = State(kernels.COSTS, {"classes": n, "decisions": n})
        state.abstain, state.balanced = self._abstain, self._is_balanced
        return state

    def _reserve(self, n: int) -> None:
        """See that there is room for so many classes."""
        if n > len(self._state.counts):
            state = self._new_state(1 << (n - 1).bit_length())
            state.take(self._state)
            self._use(state)

    def _use(self, state: State) -> None:
        # A view, whose elements are read many times faster than an array's.
        self._state, self._tally, self._address = state, state.counts.data, state.address

    @property
    def counts(self) -> Ints:
        """How often each class came."""
        found: Ints = self._state.counts[: self._n_counted]
        return found

    @counts.setter
    def counts(self, counts: Ints) -> None:
        if counts.dtype != np.int64 or counts.ndim != 1 or ((counts < 0) | (counts > MOST_COUNTED)).any():
            raise ArchiveError("counts of labels that cannot have been counted")
        self._reserve(len(counts))
        self._n_counted = len(counts)
        self._state.counts[: len(counts)] = counts

    def matrix(self, classes: Sequence[Any]) -> Floats:
        """The costs with the weights of a dict, shape (n_classes, n_classes): true labels by decisions.

        Parameters
        ----------
        classes
            The labels, in order of first arrival: those of earlier calls come first.
        """
        n = len(classes)
        if n > self._n_known:
            found = 1.0 - np.eye(n)
            for y, true in enumerate(classes):
                row = self._table.get(true, {})
                found[y] = [row.get(decided, found[y, d]) for d, decided in enumerate(classes)]
                found[y] *= self._weights.get(true, 1.0)
            self._reserve(n)
            self._state.matrix[:n, :n], self._n_known = found, n
            self._doubt_labels(classes)
        matrix: Floats = self._state.matrix[:n, :n]
        return matrix

    def _doubt_labels(self, classes: Sequence[Any]) -> None:
        """Say so, once, where labels come and costs are those of others."""
        if self._doubts and len(classes) > 1:
            self._doubts = False
            named = set(self._table).union(*self._table.values())
            if named.isdisjoint(classes):
                logger.warning(
                    "no label that came (%s) has a cost: `cost` has those of %s, so each mistake costs 1",
                    ", ".join(map(repr, classes[:_SHOWN])),
                    ", ".join(map(repr, [*named][:_SHOWN])),
                )

    def run(self, proba: Floats, codes: Ints, classes: Sequence[Any], *, follow: bool = True) -> tuple[Ints, Floats]:
        """The decision for each row, of which the label is taken (where it is not -1) before the next.

        Parameters
        ----------
        proba
            Probabilities, shape (n, n_classes), 0 for classes that are not known.
        codes
            The class of each event by number, -1 where it is not known.
        classes
            The labels.
        follow
            Whether labels are taken, rather than looked at only for what decisions have cost.

        Returns
        -------
        decisions, costs
            By the number of the class, -1 where it is to abstain or nothing is known; and what each has cost, NaN
            where that is not known.
        """
        decisions, weights = self.decide_rows(proba, codes, classes, np.full(len(codes), follow))
        return decisions, self.paid(decisions, codes, weights, classes[: proba.shape[1]])

    def decide_rows(
        self, proba: Floats, codes: Ints, classes: Sequence[Any], follow: NDArray[np.bool_]
    ) -> tuple[Ints, Floats]:
        """As `run`, where what decisions cost is seen later.

        Parameters
        ----------
        proba, codes, classes
            As for `run`.
        follow
            Which labels are taken.

        Returns
        -------
        decisions, weights
            By the number of the class; and what costs are multiplied by where the label is that of the row.
        """
        weights = np.empty(len(codes))
        decisions = self._decide_rows(proba, codes, np.where(follow, codes, -1), classes, weights)
        if follow.any():
            self._n_counted = max(self._n_counted, proba.shape[1])
        return decisions, weights

    def decide_many(self, proba: Floats, codes: Ints, classes: Sequence[Any]) -> Ints:
        """As `run`, all labels taken, where nobody asks what decisions cost.

        Parameters
        ----------
        proba, codes, classes
            As for `run`.
        """
        self._n_counted = max(self._n_counted, proba.shape[1])
        return self._decide_rows(proba, codes, codes, classes, _NO_WEIGHTS)

    def _decide_rows(self, proba: Floats, codes: Ints, taken: Ints, classes: Sequence[Any], weights: Floats) -> Ints:
        n, k = proba.shape
        self.matrix(classes[:k])
        decisions = np.empty(n, np.int64)
        _lend(self._rows, proba, codes, taken, decisions, weights)
        _step()(self._state.address, self._rows.address)
        return decisions

    def paid(self, decisions: Ints, codes: Ints, weights: Floats, classes: Sequence[Any]) -> Floats:
        """What decisions have cost.

        Parameters
        ----------
        decisions
            By the number of the class, -1 for none, -2 where that is not known.
        codes
            The class of each event, -1 where it is not known.
        weights
            What the cost of each event is multiplied by.
        classes
            The labels.

        Returns
        -------
        array, shape (n,)
            NaN where that is not known.
        """
        matrix, abstains = self.matrix(classes), decisions == ABSTAINS
        paid = np.full(len(codes), np.nan)
        known = np.flatnonzero((codes >= 0) & (codes < len(matrix)) & (decisions != UNKNOWN))
        right = np.maximum(decisions[known], 0)
        paid[known] = np.where(abstains[known], self._abstain, matrix[codes[known], right] * weights[known])
        return np.where(np.isinf(paid), np.nan, paid)

    def come(self, code: int, n: int = 1) -> None:
        """Take the label of an event, or of several.

        Parameters
        ----------
        code
            The number of its class, 0 or more.
        n
            How many events have it.
        """
        if code >= self._n_counted:
            self._reserve(code + 1)
            self._n_counted = code + 1
        self._tally[code] += n

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_tally"], state["_rows"], state["_address"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._rows = State(kernels.DECIDING)
        self._use(self._state)


class LiveCosts:
    """Decisions for single events, one after the other, whose probabilities come to stand in an array.

    Parameters
    ----------
    costs
        What decisions cost.
    proba
        That array, shape (1, n_classes), contiguous.
    classes
        The labels.
    """

    def __init__(self, costs: Costs, proba: Floats, classes: Sequence[Any]) -> None:
        self.n_classes = proba.shape[1]
        costs.matrix(classes[: self.n_classes])
        none, decision = np.full(1, -1), np.empty(1, np.int64)
        self._costs, self._call = costs, _step()
        self._asking, self._decision = State(kernels.DECIDING), decision.data
        _lend(self._asking, proba, none, none, decision, _NO_WEIGHTS)
        self._address = self._asking.address

    def decide(self) -> int:
        """The decision by the probabilities that stand there: the number of the class, -1 for none."""
        self._call(self._costs._address, self._address)
        return self._decision[0]


@cache
def _step() -> Any:
    """The compiled step, which is called without the look at the types of its arguments that a dispatcher takes."""
    return kernels.ENTRIES["run_costs"].compile()


def _lend(deciding: State, proba: Floats, labels: Ints, taken: Ints, decisions: Ints, weights: Floats) -> None:
    """Give rows to the kernel."""
    labels = np.ascontiguousarray(labels, np.int64)
    deciding.lend(
        proba=np.ascontiguousarray(proba, np.float64),
        labels=labels,
        taken=labels if taken is labels else np.ascontiguousarray(taken, np.int64),
        decisions=decisions,
        weights=weights,
    )
