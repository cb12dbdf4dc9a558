"""Decisions by what they cost: the one of least expected cost, from any probabilities."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.arrays import Floats, Ints
from streamsvm.parameters import check_class_weight, check_number

LARGEST = 1e9
_FEW = 8  # classes that one decision is worked out for without arrays
ABSTAINS, UNKNOWN = -1, -2
"""The decision to leave an event to somebody else, and one that is not known any more."""


class Costs:
    """What decisions cost, and which one costs the least.

    Probabilities are taken as they are, so they should be calibrated; learning is not touched. The decision d costs
    sum_y p(y) weight(y) cost(y, d) by what is to be expected.

    Parameters
    ----------
    cost
        What it costs to decide for one label where another is true: a table by label, `{true: {decided: cost}}`, or a
        square matrix with a row for each true label and a column for each decision, whose labels are 0, 1, 2, and so
        on. What is not there costs 0 where it is right, else 1.
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
        self._table = _table(cost)
        check_class_weight(class_weight, LARGEST)
        if abstain is not None:
            check_number("abstain", abstain, 0.0, LARGEST)
        self._weights, self._is_balanced = class_weight, class_weight == "balanced"
        self._abstain = np.inf if abstain is None else float(abstain)
        self.counts = np.zeros(0, np.int64)
        """How often each class came."""
        self._matrix = np.zeros((0, 0))
        self._columns: list[list[float]] = []

    def matrix(self, classes: Sequence[Any]) -> Floats:
        """The costs with the weights of a dict, shape (n_classes, n_classes): true labels by decisions.

        Parameters
        ----------
        classes
            The labels, in order of first arrival: those of earlier calls come first.
        """
        n = len(classes)
        if n > len(self._matrix):
            found = 1.0 - np.eye(n)
            for y, true in enumerate(classes):
                row = self._table.get(true, {})
                found[y] = [row.get(decided, found[y, d]) for d, decided in enumerate(classes)]
                if isinstance(self._weights, Mapping):
                    found[y] *= self._weights.get(true, 1.0)
            self._matrix = found
        return self._matrix[:n, :n]

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
        n, k = proba.shape
        matrix = self.matrix(classes[:k])
        counts = np.zeros(k, np.int64)
        counts[: min(len(self.counts), k)] = self.counts[:k]
        came = (np.where(follow, codes, -1)[:, None] == np.arange(k)).astype(np.int64)
        before = counts + np.cumsum(came, axis=0) - came
        weights = self._balanced(before)
        expected = np.zeros((n, k))
        for y in range(k):  # one after the other: how many rows there are changes no bit
            expected += (proba[:, y] * weights[:, y])[:, None] * matrix[y]
        expected[(proba <= 0.0) & (before == 0)] = np.inf
        decisions = expected.argmin(axis=1) if k else np.zeros(n, np.int64)
        least = expected[np.arange(n), decisions] if k else np.full(n, np.inf)
        decisions = np.where((least <= self._abstain) & np.isfinite(least), decisions, ABSTAINS)
        if follow.any():
            self.counts = counts + came.sum(axis=0)
        known = (codes >= 0) & (codes < k)
        own = np.ones(n)
        own[known] = weights[known, codes[known]]
        return decisions, own

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

    def decide(self, proba: Sequence[float], classes: Sequence[Any]) -> int:
        """The decision for one event, as `run` has it, of which no label is taken.

        Parameters
        ----------
        proba
            Probabilities, 0 for classes that are not known.
        classes
            The labels.
        """
        k = len(proba)
        if k > _FEW:
            [decision], _ = self.run(np.array([proba]), np.full(1, -1), classes, follow=False)
            return int(decision)
        if len(self._columns) != k:
            self._columns = self.matrix(classes[:k]).T.tolist()
        counts = self._counted(k) if self._is_balanced or 0.0 in proba else None
        if self._is_balanced and counts is not None:
            proba = [*map(mul, proba, self._weights_by(counts))]
        least, best = self._abstain, ABSTAINS
        for d, column in enumerate(self._columns):
            if counts is not None and proba[d] <= 0.0 and counts[d] == 0:
                continue
            expected = 0.0  # one after the other, as `run` adds them: `sum` may round otherwise
            for p, cost in zip(proba, column, strict=True):
                expected += p * cost
            if expected < least or (expected == least and best == ABSTAINS):
                least, best = expected, d
        return best

    def _counted(self, k: int) -> list[int]:
        """How often each of so many classes came."""
        counts: list[int] = self.counts[:k].tolist()
        return counts + [0] * (k - len(counts))

    def _weights_by(self, counts: list[int]) -> list[float]:
        """As `_balanced`, for one event."""
        if not self._is_balanced:
            return [1.0] * len(counts)
        total, n_seen = sum(counts), sum(map(bool, counts))
        return [total / (n_seen * count) if count else 1.0 for count in counts]

    def come(self, code: int) -> None:
        """Take the label of an event.

        Parameters
        ----------
        code
            The number of its class, 0 or more.
        """
        if code >= len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(code + 1 - len(self.counts), np.int64)])
        self.counts[code] += 1

    def _balanced(self, counts: Ints) -> Floats:
        """The weight of each class for each row, by how often it had come."""
        if not self._is_balanced:
            return np.ones(counts.shape)
        total, n_seen = counts.sum(axis=1, keepdims=True), (counts > 0).sum(axis=1, keepdims=True)
        return np.where(counts > 0, total / np.maximum(n_seen * counts, 1), 1.0)


def _table(cost: Any) -> dict[Hashable, dict[Hashable, float]]:
    """Costs by label and decision, checked."""
    if cost is None:
        return {}
    if isinstance(cost, Mapping):
        table = {true: dict(row) if isinstance(row, Mapping) else row for true, row in cost.items()}
        if not all(isinstance(row, dict) for row in table.values()):
            raise TypeError(f"`cost` must be a table by label, {{true: {{decided: cost}}}}, or a matrix, got {cost!r}")
    else:
        try:
            matrix: NDArray[Any] = np.asarray(cost, float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"`cost` must be a table by label or a matrix of numbers, got {cost!r}") from error
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"`cost` must be a square matrix, got shape {matrix.shape}")
        table = {y: dict(enumerate(row)) for y, row in enumerate(matrix.tolist())}
    for true, row in table.items():
        for decided, value in row.items():
            check_number(f"cost[{true!r}][{decided!r}]", value, 0.0, LARGEST)
    return table
