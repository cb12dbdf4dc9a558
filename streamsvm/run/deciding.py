"""What a run does with probabilities: sets of labels that cover the true one as often as is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.learner import PredictsSets
from streamsvm.decide.sets import LabelSets
from streamsvm.run.learners import Answers


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted beside predictions.

    Parameters
    ----------
    coverage
        How often sets of labels are to hold the true one; None for no sets.
    by_class
        Whether that is to hold for each class.
    """

    coverage: float | None = None
    by_class: bool = False

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint must agree in."""
        if self.coverage is None:
            return {}
        return {"--coverage": repr(self.coverage), "--coverage-by-class": repr(self.by_class)}

    def sets(self, model: Any) -> LabelSets | None:
        """The sets that are wanted: those of the model, with which they are kept, where it has any by its kind."""
        if self.coverage is None:
            return None
        if isinstance(model, PredictsSets):
            return model.label_sets(self.coverage, self.by_class)
        return LabelSets(self.coverage, self.by_class)


def with_sets(answers: Answers, classes: Sequence[Any], sets: LabelSets | None, *, learn: bool) -> Answers:
    """Answers with the set of each event; labels are taken in turn, where they are to be learned."""
    if sets is None or answers.proba is None:
        return answers
    number = {label: code for code, label in enumerate(classes)}
    labels = answers.batch.labels if learn else [None] * len(answers.batch)
    codes = np.array([-1 if label is None else number.get(label, -1) for label in labels], np.int64)
    return replace(answers, members=sets.run(np.nan_to_num(answers.proba), codes))


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
