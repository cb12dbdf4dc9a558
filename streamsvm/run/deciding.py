"""What a run does with probabilities: sets of labels, decisions by what they cost, and alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.alarms import Alarms
from streamsvm.decide.costs import Costs
from streamsvm.decide.learner import PredictsSets
from streamsvm.decide.sets import LabelSets
from streamsvm.run.abilities import State
from streamsvm.run.learners import Answers
from streamsvm.run.wanted import Wanted


class Decisions:
    """Decisions and alarms over a run.

    Parameters
    ----------
    wanted
        Which.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.label = wanted.alarm_class
        self._costs = Costs(wanted.cost, wanted.class_weight, wanted.abstain) if wanted.decides else None
        self._alarms = None if wanted.alarms is None else Alarms(*wanted.alarms)

    def of(self, answers: Answers, classes: Sequence[Any], *, learn: bool) -> Answers:
        """Answers with what is decided about each event; labels are taken in turn, where they are to be learned."""
        if answers.proba is None or not (self._costs or self._alarms):
            return answers
        labels, proba = answers.batch.labels, np.nan_to_num(answers.proba)
        if self._costs is not None:
            codes = _codes(labels, classes)
            decisions, costs = self._costs.run(proba, codes, classes, follow=learn)
            answers = replace(answers, decisions=decisions, costs=costs)
        if self._alarms is not None:
            c = classes.index(self.label) if self.label in classes else -1
            p = proba[:, c] if 0 <= c < proba.shape[1] else np.zeros(len(proba))
            known = [-1 if label is None or not learn else int(label == self.label) for label in labels]
            answers = replace(answers, alarms=self._alarms.run(p, np.array(known, np.int64)))
        return answers

    def paid(
        self, proba: NDArray[np.float64], labels: Sequence[Any], classes: Sequence[Any]
    ) -> NDArray[np.float64] | None:
        """What decisions of long ago have cost, by the probabilities then."""
        if self._costs is None:
            return None
        return self._costs.run(np.nan_to_num(proba), _codes(labels, classes), classes, follow=False)[1]

    def watched(self, alarms: NDArray[np.bool_] | None, labels: Sequence[Any]) -> NDArray[np.bool_] | None:
        """Alarms, and whether each event was of their class, to be measured."""
        return None if alarms is None else np.column_stack([alarms, [label == self.label for label in labels]])

    def state(self) -> State:
        """All of it."""
        arrays = {} if self._costs is None else {"counts": self._costs.counts}
        own = {} if self._alarms is None else self._alarms.state()
        return {}, arrays | {f"alarms.{name}": array for name, array in own.items()}

    def restore(self, state: State) -> None:
        """Take over what `state` gave."""
        _, arrays = state
        if self._costs is not None:
            self._costs.counts = arrays["counts"].astype(np.int64)
        if self._alarms is not None:
            under = "alarms."
            self._alarms.restore({name.removeprefix(under): a for name, a in arrays.items() if name.startswith(under)})


def sets_of(wanted: Wanted, model: Any) -> LabelSets | None:
    """The sets that are wanted: those of the model, with which they are kept, where it has any by its kind."""
    if wanted.coverage is None:
        return None
    if isinstance(model, PredictsSets):
        return model.label_sets(wanted.coverage, wanted.by_class)
    return LabelSets(wanted.coverage, wanted.by_class)


def with_sets(answers: Answers, classes: Sequence[Any], sets: LabelSets | None, *, learn: bool) -> Answers:
    """Answers with the set of each event; labels are taken in turn, where they are to be learned."""
    if sets is None or answers.proba is None:
        return answers
    codes = _codes(answers.batch.labels if learn else [None] * len(answers.batch), classes)
    return replace(answers, members=sets.run(np.nan_to_num(answers.proba), codes))


def _codes(labels: Sequence[Any], classes: Sequence[Any]) -> NDArray[np.int64]:
    """Labels by the number of their class, -1 where there is none."""
    number = {label: code for code, label in enumerate(classes)}
    return np.array([-1 if label is None else number.get(label, -1) for label in labels], np.int64)


def of_two(codes: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities of two classes, where that of the predicted one is known; NaN where nothing was predicted.

    Examples
    --------
    >>> of_two(np.array([1, 0, -1]), np.array([0.75, 0.5, np.nan])).tolist()
    [[0.25, 0.75], [0.5, 0.5], [nan, nan]]
    """
    second = np.where(codes == 1, scores, 1.0 - scores)
    return np.column_stack([1.0 - second, second])


def rated(probas: Sequence[NDArray[np.float64]], n_classes: int) -> tuple[Any, Any]:
    """Probabilities that waited with their events, and the sets in them, over all classes; NaN where there are none."""
    proba = np.full((len(probas), n_classes), np.nan)
    for row, held in zip(proba, probas, strict=True):
        if len(held):
            row[:] = 0.0
            row[: len(held)] = held
    return np.abs(proba), np.signbit(proba) & ~np.isnan(proba)
