"""Why each event of a run is predicted as it is, by the model that predicts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.events import Batch, LateLabels
from streamsvm.decide.decisions import Decided
from streamsvm.decide.reasons import EVALUATIONS, Explains, Reasons, explain
from streamsvm.delayed.join import Joined
from streamsvm.names import feature
from streamsvm.run.deciding import with_decided
from streamsvm.run.late import N_ORIGINS, LateLearning
from streamsvm.run.learners import Answers, BatchLearner, Learner


def reasons_for(
    learner: Learner, x: dict[Any, Any], label: Any = None, evaluations: int = EVALUATIONS, **more: Any
) -> Reasons | None:
    """What each feature of an event adds, by a model as it is; None where it knows no probabilities, or one class.

    A model that explains what it predicts does so; others are asked for predictions, as `explain` does with `more`.
    """
    if isinstance(learner.model, Explains):
        return learner.model.explain_one(x, evaluations, nearest=0, label=label)
    if learner.peek([x]) is None:
        return None
    more |= {"label": label, "evaluations": evaluations}
    return explain(lambda rows: np.asarray(learner.peek(rows)), x, list(learner.classes), **more)


def step_with_reasons(learner: Learner, batch: Batch, learn: bool, most: int) -> Answers:
    """Test, then train, and say of each event what most spoke for its prediction, before it was learned."""
    if isinstance(learner, BatchLearner) and getattr(learner.model, "tells_reasons", False):
        return learner.step(batch, learn, most)
    told = _Told(most)
    for i, x in enumerate(batch.rows()):
        found = _looked_at(learner, x)
        told.add(i, learner.step(batch.part(i, i + 1), learn), found)
    return told.answers(batch, len(learner.classes))


def late_step_with_reasons(late: LateLearning, batch: Batch, most: int) -> tuple[Answers, Joined]:
    """The same where labels come by themselves: those that come before an event are learned before it is looked at."""
    told, joined, asked, rows = _Told(most), list[Joined](), list[int](), batch.rows()
    for part, i in _one_by_one(batch):
        found = None if i is None else _looked_at(late.learner, rows[i])
        answers, met = late.step(part)
        joined.append(met)
        if i is not None:
            asked += [len(told.parts)] * len(late.asked)
            told.add(i, answers, found)
    late.asked = np.array(asked, np.int64)
    return told.answers(batch, len(late.learner.classes)), Joined.of(joined, N_ORIGINS)


def _looked_at(learner: Learner, x: dict[Any, Any]) -> Reasons | None:
    try:
        return reasons_for(learner, x)
    except Exception:  # an event that the model cannot take is set aside by its step, which says why
        return None


class _Told:
    """Answers to single events, with their reasons.

    Parameters
    ----------
    most
        So many reasons each, at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.parts: list[Answers] = []
        self._reasons: list[list[dict[str, Any]] | None] = []
        self._bad: dict[int, str] = {}

    def add(self, i: int, answers: Answers, found: Reasons | None) -> None:
        """Take the answer to event i of the batch, or why there is none."""
        if answers.batch.rejected:
            self._bad[i] = answers.batch.rejected[-1].reason
            return
        self.parts.append(answers)
        self._reasons.append(None if found is None or answers.codes[0] < 0 else _told(found, self._most))

    def answers(self, batch: Batch, n_classes: int) -> Answers:
        """All of them together, over all classes that are known by now."""
        codes, scores = (np.array([getattr(part, name)[0] for part in self.parts]) for name in ("codes", "scores"))
        proba, members = (
            _wide([getattr(part, name) for part in self.parts], n_classes) for name in ("proba", "members")
        )
        decided = Decided(
            None if members is None else members.astype(np.bool_),
            *(_in_turn([getattr(part, name) for part in self.parts]) for name in ("decisions", "alarms")),
        )
        known = codes.astype(np.int64), scores.astype(np.float64), proba
        return with_decided(Answers(batch.without(self._bad), *known, reasons=self._reasons), decided)


def _one_by_one(batch: Batch) -> Iterator[tuple[Batch, int | None]]:
    """The events of a batch, with their numbers, and the labels between two of them, each in a batch of its own."""
    late, n = batch.late or LateLabels([], [], [], np.zeros(0, np.int64)), len(batch)
    ends = np.searchsorted(late.before, np.arange(n + 1), "right").tolist()
    for i, (start, end) in enumerate(pairwise([0, *ends])):
        if end > start:
            yield replace(batch.part(0, 0), late=late.part(start, end, n=i)), None
        if i < n:
            yield batch.part(i, i + 1), i


def _told(reasons: Reasons, most: int) -> list[dict[str, Any]]:
    """The first reasons for a field of results."""
    return [
        {"feature": feature(one.feature), "value": one.value, "adds": one.adds} for one in reasons.contributions[:most]
    ]


def _wide(rows: list[NDArray[np.float64] | None], n_classes: int) -> NDArray[np.float64] | None:
    """Probabilities of single events as rows over all classes that are known by now."""
    if not rows or any(row is None for row in rows):
        return None
    found = np.zeros((len(rows), n_classes))
    for i, row in enumerate(rows):
        if row is not None:
            found[i, : row.shape[1]] = row[0]
    return found


def _in_turn(parts: list[Any]) -> Any:
    """Values of single events as one array; None where there are none."""
    return None if not parts or parts[0] is None else np.concatenate(parts)
