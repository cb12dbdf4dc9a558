"""Vote of a learner and its refitted models, with its state in archives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.state import State
from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.online.memory import capacity_for
from streamsvm.refit import frozen_models
from streamsvm.refit import vote_kernels as kernels
from streamsvm.refit.refitted_model import RefittedModel, compiled, fill


class ModelVote:
    """Vote of a learner and at most n models.

    Attributes
    ----------
    members
        The models, None for each free place.
    """

    def __init__(self, n_members: int) -> None:
        self.members: list[RefittedModel | None] = [None] * n_members
        self._models = np.zeros(1 + n_members, kernels.MODEL)
        self._classes = 2
        self._foreign: list[tuple[int, RefittedModel]] = []
        self._use(self._new_state())
        learner = self._state.members[0]
        learner.present, learner.active, learner.weight = 1, 1, 1.0

    def _new_state(self) -> State:
        return State(kernels.MODEL_VOTE, {"members": 1 + len(self.members), "classes": self._classes})

    def _use(self, state: State) -> None:
        self._state, self._advantage = state, state.number("advantage").data
        self._single: _Batch | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no models."""
        return not any(self.members)

    @property
    def is_used(self) -> bool:
        """Whether the vote predicts, rather than the learner alone."""
        return bool(self._advantage[()] > kernels.MARGIN)

    def add(self, member: RefittedModel, n_classes: int) -> None:
        """Add a model.

        Without a free place, it replaces the model with the smallest recent weight.

        Parameters
        ----------
        member
            The model.
        n_classes
            Number of classes of the learner.
        """
        self._grow(n_classes)
        k = compiled("add_member")(self._state, n_classes)
        self.members[k - 1] = member
        self._members_changed()

    def _members_changed(self) -> None:
        present = [(k, member) for k, member in enumerate(self.members, start=1) if member is not None]
        for k, member in present:
            self._models[k] = member.addresses
        self._foreign = [(k, member) for k, member in present if not member.has_arrays]
        self._single = None

    def vote(self, rows: EncodedRows, labels: Ints, learner: Floats) -> tuple[Ints, Floats, Floats, Floats]:
        """Predict rows and learn from their labels.

        Parameters
        ----------
        rows
            n rows.
        labels
            Class numbers, -1 if unknown.
        learner
            Probabilities of the learner, shape (n, n_classes).

        Returns
        -------
        codes, scores, probabilities, errors
        """
        self._grow(learner.shape[1])
        batch = _Batch(rows, labels, learner.shape[1], self._models)
        batch.answers[0] = learner
        first = 0
        while first < len(rows):
            end = compiled("evaluate_models")(self._state, batch.votes, first)
            self._evaluate_foreign(batch, first, end)
            compiled("vote_on_rows")(self._state, batch.votes, first, end)
            first = end
        codes, proba = batch.codes, batch.proba
        scores = np.where(codes >= 0, proba[np.arange(len(rows)), codes], np.nan)
        return codes, scores, proba, (codes != labels).astype(float)

    def vote_on_one(self, row: Floats, learner: Floats, label: int) -> tuple[int, Floats]:
        """Predict one row with a value in each column, and learn from its label.

        Parameters
        ----------
        row
            The values.
        learner
            Probabilities of the learner.
        label
            Class number, -1 if unknown.

        Returns
        -------
        code, probabilities
        """
        self._grow(len(learner))
        batch = self._single
        if batch is None or len(batch.rows.values) != len(row):
            d = len(row)
            rows = EncodedRows(np.full(d, np.nan), np.arange(d), np.array([0, d]), True)
            batch = self._single = _Batch(rows, np.zeros(1, np.int64), self._classes, self._models)
        compiled("begin_row")(self._state, batch.votes, row, learner, label)
        self._evaluate_foreign(batch, 0, 1)
        code = compiled("vote_on_row")(self._state, batch.votes)
        return code, batch.proba[0, : len(learner)]

    def _evaluate_foreign(self, batch: _Batch, first: int, end: int) -> None:
        """Evaluate the models that are not compiled."""
        for k, member in self._foreign:
            if compiled("mark_rows")(self._state, batch.votes, k, first, end):
                part = slice(first, end)
                member.evaluate(batch.rows.part(first, end), batch.asked[k, part], batch.answers[k, part])

    def _grow(self, n_classes: int) -> None:
        if n_classes > self._classes:
            self._classes = capacity_for(n_classes)
            state = self._new_state()
            state.take(self._state)
            self._use(state)

    def standing(self) -> list[dict[str, Any]]:
        """Return accuracy, weight and activity of the learner and of each model.

        The learner is first. Accuracies are recent. The accuracy of the learner is None until the first vote.
        """
        state, places = self._state, self._state.members
        weights = np.where(places.active > 0, places.weight, 0.0)
        if state.advantage <= kernels.MARGIN:
            weights = np.eye(1, len(places))[0]
        weights = weights / weights.sum()
        return [
            {
                "member": member,
                "accuracy": float(places.accuracy[k]) if state.seen else None,
                "weight": float(weights[k]),
                "inactive": not places.active[k],
            }
            for k, member in enumerate([None, *self.members])
            if k == 0 or member is not None
        ]

    # Saving ------------------------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        return _restored, (len(self.members), self.state(), self.members, self._classes)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state of the vote as arrays."""
        return self._state.saved()

    def restore(self, arrays: Mapping[str, NDArray[Any]], members: list[RefittedModel | None], n_classes: int) -> None:
        """Continue from `state` with the given models."""
        self.members = members
        self._members_changed()
        self._grow(n_classes)
        state = self._state
        state.restore(arrays)
        present = [True, *(member is not None for member in members)]
        if (state.members.present > 0).tolist() != present or not 0 <= state.n_classes <= n_classes:
            raise ArchiveError("the vote has other members or classes")
        if not state.members.active[0] or not state.members.weight[0] > 0.0:
            raise ArchiveError("the learner is marked as inactive, which only refitted models can be")


class _Batch:
    """Rows to vote on, with memory for the results.

    Parameters
    ----------
    rows, labels
        n rows, and their classes.
    n_classes
        The number of classes.
    models
        Addresses of the models.
    """

    def __init__(self, rows: EncodedRows, labels: Ints, n_classes: int, models: NDArray[Any]) -> None:
        n = len(rows)
        self.rows, self.asked = rows, np.zeros((len(models), n), np.int64)
        self.answers = np.zeros((len(models), n, n_classes))
        self.codes, self.proba = np.full(n, -1), np.zeros((n, n_classes))
        self.votes = State(kernels.VOTES, parts={"query": State(frozen_models.QUERY)})
        fill(self.votes.parts["query"], rows, self.asked, self.answers)
        self.votes.bind(labels=labels, codes=self.codes, proba=self.proba, models=models)


def _restored(
    n: int, arrays: dict[str, NDArray[Any]], members: list[RefittedModel | None], n_classes: int
) -> ModelVote:
    vote = ModelVote(n)
    vote.restore(arrays, members, n_classes)
    return vote
