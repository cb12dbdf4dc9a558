"""Cost-sensitive decisions: minimum expected cost by the predicted probabilities."""

from __future__ import annotations

import logging
import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import listed
from streamsvm.features.rows import Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.parameters import ParameterError, ParameterTypeError, check_class_weight, check_number

ABSTAINS, UNKNOWN = -1, -2
"""Codes of the decision to abstain, and of a decision that is no longer known."""
MOST_COUNTED = 1 << 53
LARGEST = 1e9
"""Maximum cost, and maximum weight."""
_SHOWN = 5  # maximum number of labels in a message
_FEW = 16  # maximum number of classes for which plain Python is faster
_ALL = [True] * _FEW

logger = logging.getLogger(__name__)


class Costs:
    """Costs of decisions, and the decision of minimum expected cost.

    The expected cost of decision d is sum_y p(y) weight(y) cost(y, d). The probabilities p should be calibrated. Costs
    do not affect learning.

    Parameters
    ----------
    cost
        Cost of each decision for each true label. It is a nested dict `{true: {decided: cost}}`, a pandas frame with
        true labels as rows, or a square matrix. A matrix has a row for each true label and a column for each decision,
        with labels 0, 1, 2, and so on. A missing cost is 0 for the correct decision, and 1 for any other.
    class_weight
        Factors for the costs of the events of each class. It is a dict of weights, with 1 for other labels, or
        "balanced" for weights inversely proportional to the class frequencies so far.
    abstain
        Cost of abstaining, that is, of deciding for no label. If None, the decision is always a label.

    Examples
    --------
    >>> costs = Costs({"fraud": {"fine": 10.0}, "fine": {"fraud": 1.0}}, abstain=0.4)
    >>> proba = np.array([[0.99, 0.01], [0.95, 0.05], [0.3, 0.7]])
    >>> costs.run(proba, np.array([0, 1, 0]), ["fine", "fraud"])
    (array([ 0, -1,  1]), array([0. , 0.4, 1. ]))
    """

    def __init__(
        self, cost: Any = None, class_weight: Mapping[Any, float] | str | None = None, abstain: float | None = None
    ) -> None:
        self._table = check_costs(cost, class_weight, abstain)
        self._weights = class_weight if isinstance(class_weight, Mapping) else {}
        self._abstain, self._is_balanced = np.inf if abstain is None else float(abstain), class_weight == "balanced"
        self._most = min(self._abstain, sys.float_info.max)  # maximum expected cost of a decision
        self._matrix, self._columns, self._counts = np.zeros((0, 0)), list[list[float]](), np.zeros(0, np.int64)
        self._n_known = self._n_seen = 0
        self._is_unchecked = bool(self._table)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.counts = self._counts  # a copy: unpicklers such as joblib's may map arrays read-only

    def _reserve(self, n: int) -> None:
        """Extend the counts to n classes."""
        if n > len(self._counts):
            self._counts = np.append(self._counts, np.zeros(n - len(self._counts), np.int64))

    @property
    def counts(self) -> Ints:
        """Number of events of each class."""
        return self._counts

    @counts.setter
    def counts(self, counts: Ints) -> None:
        if counts.dtype != np.int64 or counts.ndim != 1 or ((counts < 0) | (counts > MOST_COUNTED)).any():
            raise ArchiveError("counts of labels that cannot have been counted")
        self._counts, self._n_seen = counts.copy(), int(np.count_nonzero(counts))
        self._reserve(self._n_known)

    def matrix(self, classes: Sequence[Any]) -> Floats:
        """Return the weighted costs, with true labels as rows.

        "balanced" weights are not included.

        Parameters
        ----------
        classes
            The labels, in order of first arrival. They start with the labels of earlier calls.

        Returns
        -------
        ndarray of float64, shape (n_classes, n_classes)
            The cost of each decision, a column, for each true label.
        """
        n = len(classes)
        if n > self._n_known:
            found = 1.0 - np.eye(n)
            for y, true in enumerate(classes):
                row = self._table.get(true, {})
                found[y] = [row.get(decided, found[y, d]) for d, decided in enumerate(classes)]
                found[y] *= self._weights.get(true, 1.0)
            self._reserve(n)
            self._matrix, self._columns, self._n_known = found, found.T.tolist(), n
            self._check_labels(classes)
        return self._matrix[:n, :n]

    def _check_labels(self, classes: Sequence[Any]) -> None:
        """Warn once if the costs name none of the labels."""
        if self._is_unchecked and len(classes) > 1:
            self._is_unchecked = False
            named = set(self._table).union(*self._table.values())
            if named.isdisjoint(classes):
                logger.warning(
                    "none of the labels so far (%s) has a cost; `cost` has costs of %s. Each error costs 1",
                    listed(classes, _SHOWN),
                    listed(named, _SHOWN),
                )

    def run(self, proba: Floats, codes: Ints, classes: Sequence[Any], *, learn: bool = True) -> tuple[Ints, Floats]:
        """Decide on each row, then count its label.

        Parameters
        ----------
        proba
            Probabilities, shape (n, n_classes), 0 for unknown classes.
        codes
            The class of each event by number, -1 if unknown.
        classes
            The labels, in order of first arrival.
        learn
            Whether to count labels, or to use them only for the costs of the decisions.

        Returns
        -------
        decisions : ndarray of int64, shape (n,)
            The number of the class decided for each row; -1 for abstaining, or if no class is known.
        costs : ndarray of float64, shape (n,)
            The cost of each decision, NaN if unknown.
        """
        decisions, weights = self.decide_rows(proba, codes, classes, np.full(len(codes), learn))
        return decisions, self.paid(decisions, codes, weights, classes[: proba.shape[1]])

    def decide_rows(
        self, proba: Floats, codes: Ints, classes: Sequence[Any], learn: NDArray[np.bool_]
    ) -> tuple[Ints, Floats]:
        """Decide on each row, then count its label.

        `paid` computes the costs later.

        Parameters
        ----------
        proba, codes, classes
            See `run`.
        learn
            The rows with labels that are counted.

        Returns
        -------
        decisions : ndarray of int64, shape (n,)
            See `run`.
        weights : ndarray of float64, shape (n,)
            The "balanced" weight of each row's label, else 1.
        """
        n, k = proba.shape
        matrix, taken = self.matrix(classes[:k]), codes[learn & (codes >= 0) & (codes < k)]
        weights = np.ones(n)
        before = self._counts_before(np.where(learn, codes, -1), k)
        if self._is_balanced:
            weight, known = np.broadcast_to(_balanced(before), proba.shape), np.flatnonzero((codes >= 0) & (codes < k))
            weights[known] = weight[known, codes[known]]
        self._counts[:k] += np.bincount(taken, minlength=k)
        self._n_seen = int(np.count_nonzero(self._counts))
        return self._least(proba, before, matrix), weights

    def _counts_before(self, taken: Ints, k: int) -> Ints:
        """Return the number of events of each of k classes before each row.

        The result has shape (n, k), or (1, k) if the decisions on all rows use the same counts.
        """
        if not self._is_balanced and self._n_seen >= k:
            return self._counts[None, :k].copy()
        came = np.zeros((len(taken) + 1, k), np.int64)
        came[0] = self._counts[:k]
        rows = np.flatnonzero((taken >= 0) & (taken < k))
        came[rows + 1, taken[rows]] = 1
        return came.cumsum(axis=0)[:-1]

    def _least(self, proba: Floats, counts: Ints, matrix: Floats) -> Ints:
        """Return the decision of minimum expected cost for each row."""
        n, k = proba.shape
        if k == 0:
            return np.full(n, ABSTAINS)
        shares = np.fmax(proba * _balanced(counts) if self._is_balanced else proba, 0.0)
        expected = np.zeros((n, k))
        for y in range(k):  # summed in the order of `decide_one`, so that ties are broken alike
            expected += shares[:, y, None] * matrix[y]
        expected[(counts == 0) & ~(proba > 0.0)] = np.inf  # classes without events and probability
        best = expected.argmin(axis=1)
        return np.where(expected[np.arange(n), best] <= self._most, best, ABSTAINS)

    def decide_one(self, proba: Sequence[float]) -> int:
        """Decide on one event with the current counts.

        Parameters
        ----------
        proba
            Probabilities of the labels already passed to `matrix`.

        Returns
        -------
        int
            The number of the class; -1 for abstaining, or if no class is known.
        """
        k = len(proba)
        if k > _FEW:
            return int(self._least(np.array([proba]), self._counts[None, :k], self._matrix[:k, :k])[0])
        # Plain Python is faster than numpy for few numbers.
        shares, known = proba, _ALL
        if self._is_balanced or self._n_seen < k:
            counts = self._counts[:k].tolist()
            known = [share > 0.0 or count > 0 for share, count in zip(shares, counts, strict=True)]
            total, n_seen = sum(counts), k - counts.count(0)
            if self._is_balanced:
                weights = [total / (n_seen * count) if count else 1.0 for count in counts]
                shares = [share * weight for share, weight in zip(shares, weights, strict=True)]
        best, least = ABSTAINS, self._most
        for d in range(k):
            expected = 0.0
            for share, cost in zip(shares, self._columns[d]):  # noqa: B905
                if share > 0.0:
                    expected += share * cost
            if known[d] and (expected < least or (expected == least and best < 0)):
                best, least = d, expected
        return best

    def paid(self, decisions: Ints, codes: Ints, weights: Floats, classes: Sequence[Any]) -> Floats:
        """Return the costs of decisions.

        Parameters
        ----------
        decisions
            The class number decided for each event, -1 for abstaining, -2 if unknown.
        codes
            The class of each event, -1 if unknown.
        weights
            The factor for the cost of each event.
        classes
            The labels, in order of first arrival.

        Returns
        -------
        ndarray of float64, shape (n,)
            The costs, NaN if unknown.
        """
        matrix, abstains = self.matrix(classes), decisions == ABSTAINS
        paid = np.full(len(codes), np.nan)
        known = np.flatnonzero((codes >= 0) & (codes < len(matrix)) & (decisions != UNKNOWN))
        right = np.maximum(decisions[known], 0)
        paid[known] = np.where(abstains[known], self._abstain, matrix[codes[known], right] * weights[known])
        return np.where(np.isinf(paid), np.nan, paid)

    def count_labels(self, code: int, n: int = 1) -> None:
        """Count the label of one or more events.

        Parameters
        ----------
        code
            The number of the class, 0 or more.
        n
            Number of events with this label.
        """
        self._reserve(code + 1)
        self._n_seen += not self._counts[code]
        self._counts[code] += n


def _balanced(counts: Ints) -> Floats:
    """Return class weights inversely proportional to counts; 1 without events."""
    total, n_seen = counts.sum(axis=-1, keepdims=True), np.count_nonzero(counts, axis=-1, keepdims=True)
    return np.where(counts > 0, total / np.maximum(n_seen * counts, 1), 1.0)


def check_costs(cost: Any, class_weight: Any, abstain: Any) -> dict[Hashable, dict[Hashable, float]]:
    """Validate the parameters of `Costs`; return the costs as a nested dict by label.

    Parameters
    ----------
    cost, class_weight, abstain
        See `Costs`.

    Raises
    ------
    TypeError, ValueError
        If a parameter is invalid.
    """
    table = _table(cost)
    check_class_weight(class_weight, LARGEST)
    if abstain is not None:
        check_number("abstain", abstain, 0.0, LARGEST)
    return table


def without_frame(cost: Any) -> Any:
    """Convert costs in a data frame to a nested dict by label."""
    is_frame = all(hasattr(cost, name) for name in ("to_dict", "index", "columns"))
    return cost.to_dict("index") if is_frame else cost


def _table(cost: Any) -> dict[Hashable, dict[Hashable, float]]:
    """Return the costs by true label and decision."""
    if cost is None:
        return {}
    cost = without_frame(cost)
    if isinstance(cost, Mapping):
        table = {true: dict(row) if isinstance(row, Mapping) else row for true, row in cost.items()}
        if not all(isinstance(row, dict) for row in table.values()):
            raise ParameterTypeError(
                "cost", f"must be a table by label, {{true: {{decided: cost}}}}, or a matrix, got {cost!r}"
            )
    else:
        try:
            matrix: NDArray[Any] = np.asarray(cost, float)
        except (TypeError, ValueError) as error:
            raise ParameterTypeError(
                "cost", f"must be a table by label or a matrix of numbers, got {cost!r}"
            ) from error
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ParameterError("cost", f"must be a square matrix, got shape {matrix.shape}")
        table = {y: dict(enumerate(row)) for y, row in enumerate(matrix.tolist())}
    for true, row in table.items():
        for decided, value in row.items():
            check_number(f"cost[{true!r}][{decided!r}]", value, 0.0, LARGEST)
    return table
