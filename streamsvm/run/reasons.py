"""Explanations of the predictions of a run."""

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

# Approximate number of predictions per event with `--explain`.
EVALUATIONS_PER_EVENT = 64


def reasons_for(
    learner: Learner, x: dict[Any, Any], label: Any = None, evaluations: int = EVALUATIONS, **more: Any
) -> Reasons | None:
    """Return the contribution of each feature of an event; None without probabilities or with one class.

    A model with its own explanations provides them. Other models are explained by their predictions; `more` has options
    of `explain`.
    """
    if isinstance(learner.model, Explains):
        return learner.model.explain_one(x, evaluations, nearest=0, label=label)
    if learner.peek([x]) is None:
        return None
    more |= {"label": label, "evaluations": evaluations}
    return explain(lambda rows: np.asarray(learner.peek(rows)), x, list(learner.classes), **more)


def one_by_one(batch: Batch) -> Iterator[Batch]:
    """Split a batch into single events and the labels between them."""
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
    """Return the top reasons for the prediction of an event, for a result field; None if there are none."""
    try:
        reasons = reasons_for(learner, x, evaluations=EVALUATIONS_PER_EVENT)
    except Exception:  # the prediction of this event fails too, and reports the error
        return None
    if reasons is None:
        return None
    return [
        {"feature": feature(one.feature), "value": one.value, "adds": one.adds} for one in reasons.contributions[:most]
    ]
