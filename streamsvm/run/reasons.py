"""Why each event of a run is predicted as it is, by the model that predicts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from connectors.events import Batch, LateLabels
from streamsvm.decide.reasons import EVALUATIONS, Explains, Reasons, explain
from streamsvm.delayed.join import Joined
from streamsvm.names import feature
from streamsvm.run.deciding import together
from streamsvm.run.late import N_ORIGINS, LateLearning
from streamsvm.run.learners import Answers, Learner

# `--explain` costs about as many predictions for each event.
EVALUATIONS_PER_EVENT = 64


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
    return _explained(learner, batch, lambda part: learner.step(part, learn), most)


def late_step_with_reasons(late: LateLearning, batch: Batch, most: int) -> tuple[Answers, Joined]:
    """The same where labels come by themselves: those that come before an event are learned before it is looked at."""
    joined, asked, taken = list[Joined](), list[int](), 0

    def step(part: Batch) -> Answers:
        nonlocal taken
        answers, met = late.step(part)
        joined.append(met)
        asked.extend([taken] * len(late.asked))
        taken += len(answers.batch)
        return answers

    answers = _explained(late.learner, batch, step, most)
    late.asked = np.array(asked, np.int64)
    return answers, Joined.of(joined, N_ORIGINS)


def _explained(learner: Learner, batch: Batch, step: Callable[[Batch], Answers], most: int) -> Answers:
    """Answers to events one by one, over all classes that are known by now, with so many reasons each at most."""
    parts, reasons, bad, rows = list[Answers](), list[list[dict[str, Any]] | None](), dict[int, str](), batch.rows()
    for part, i in _one_by_one(batch):
        found = None if i is None else _looked_at(learner, rows[i])
        answers = step(part)
        if i is not None and answers.batch.rejected:
            bad[i] = answers.batch.rejected[-1].reason
        elif i is not None:
            parts.append(answers)
            reasons.append(None if found is None or answers.codes[0] < 0 else _told(found, most))
    codes, scores = (np.array([getattr(part, name)[0] for part in parts]) for name in ("codes", "scores"))
    names, n_classes = ("proba", "members", "decisions", "alarms"), len(learner.classes)
    others = {name: together([getattr(part, name) for part in parts], n_classes) for name in names}
    known = batch.without(bad), codes.astype(np.int64), scores.astype(np.float64)
    return Answers(*known, **others, reasons=reasons)


def _looked_at(learner: Learner, x: dict[Any, Any]) -> Reasons | None:
    try:
        return reasons_for(learner, x, evaluations=EVALUATIONS_PER_EVENT)
    except Exception:  # an event that the model cannot take is set aside by its step, which says why
        return None


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
