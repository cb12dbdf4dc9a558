"""Why each event of a run is predicted as it is, by the model that predicts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from connectors.events import Batch, LateLabels
from streamsvm.decide.reasons import EVALUATIONS, Explains, Reasons, explain
from streamsvm.names import feature
from streamsvm.run.learners import Learner

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


def one_by_one(batch: Batch) -> Iterator[Batch]:
    """The events of a batch, and the labels between two of them, each in a batch of its own."""
    late, n = batch.late or LateLabels([], [], [], np.zeros(0, np.int64)), len(batch)
    ends = np.searchsorted(late.before, np.arange(n + 1), "right").tolist()
    nothing = None if batch.late is None else late.part(0, 0, n=0)
    if batch.rejected and not n:
        yield batch
        return
    for i, (start, end) in enumerate(pairwise([0, *ends])):
        if end > start:
            yield replace(batch.part(0, 0), late=late.part(start, end, n=i))
        if i < n:
            yield replace(batch.part(i, i + 1), late=nothing, rejected=batch.rejected if i == 0 else [])


def written_reasons(learner: Learner, x: dict[Any, Any], most: int) -> list[dict[str, Any]] | None:
    """The first reasons for the prediction of an event, for a field of results; None where there are none."""
    try:
        reasons = reasons_for(learner, x, evaluations=EVALUATIONS_PER_EVENT)
    except Exception:  # the prediction of this event fails as well, and says why
        return None
    return None if reasons is None else _told(reasons, most)


def _told(reasons: Reasons, most: int) -> list[dict[str, Any]]:
    """The first reasons for a field of results."""
    return [
        {"feature": feature(one.feature), "value": one.value, "adds": one.adds} for one in reasons.contributions[:most]
    ]
