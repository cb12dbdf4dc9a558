"""Models of a run, and explanations of their predictions."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from connectors.events import Batch
from streamsvm.decide.reasons import EVALUATIONS, Explains, Reasons, explain
from streamsvm.names import feature
from streamsvm.online.adapters import BatchAdapter, EventAdapter
from streamsvm.run.errors import RunError, SetupError

EVALUATIONS_PER_EVENT = 64  # approximate number of predictions per event with `--explain`
Learner: TypeAlias = BatchAdapter | EventAdapter
"""Interface of the run loop to a model."""


def as_learner(model: Any, *, scored: bool, proba: bool = True) -> Learner:
    """Return the fastest learner for a model and the results that are used.

    Parameters
    ----------
    model
        A River classifier.
    scored, proba
        Whether scores, and probabilities of all classes, are used.
    """
    if not takes_batches(model):
        return EventAdapter(model, with_proba=scored, tolerant=True)
    # Compile or load the kernel before the stream is read; a copy of the model learns this event.
    model.clone().run_batch([{"warm": 1.0}], [0])
    return BatchAdapter(model, proba=proba)


def takes_batches(model: Any) -> bool:
    """Return whether a model takes many events in one call."""
    return hasattr(model, "run_batch")


def check_persistence(model: Any, *, checkpoint: bool, save: bool) -> None:
    """Refuse to save a model whose state is not plain arrays; nothing is pickled."""
    options = " and ".join(name for name, wanted in (("--checkpoint", checkpoint), ("--save", save)) if wanted)
    if options and not hasattr(model, "from_state"):
        what = f"{class_path(model)} cannot be saved without pickle"
        raise SetupError(f"{what}; remove {options}, or use a model of this package", "not kept")
    if options:
        try:
            model.state()
        except TypeError as error:
            raise SetupError(f"{options}: {error}", "not kept") from error


def check_names(model: Any, batch: Batch) -> None:
    """Refuse events without any known feature, and warn if few are known.

    Raises
    ------
    RunError
        If no feature is known.
    """
    from streamsvm.features.mismatches import FeatureMismatchError
    from streamsvm.models.saved import innermost

    try:
        if hasattr(own := innermost(model), "check_names"):
            own.check_names(batch.features or batch.rows())
    except FeatureMismatchError as error:
        raise RunError(str(error)) from error


def class_path(model: Any) -> str:
    """Return the dotted path of a model's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def reasons_for(
    learner: Learner,
    x: dict[Any, Any],
    label: Any = None,
    evaluations: int = EVALUATIONS,
    nearest: int = 0,
    **more: Any,
) -> Reasons | None:
    """Return the contribution of each feature of an event to its probabilities.

    Returns None without probabilities or with one class. With the `nearest` support vectors, if the model has any.

    A model with its own explanations provides them. Other models are explained by their predictions; `more` has options
    of `explain`.
    """
    if isinstance(learner.model, Explains):
        return learner.model.explain_one(x, evaluations, nearest=nearest, label=label)
    if learner.peek([x]) is None:
        return None
    more |= {"label": label, "evaluations": evaluations}
    return explain(lambda rows: np.asarray(learner.peek(rows)), x, list(learner.classes), **more)


def written_reasons(learner: Learner, x: dict[Any, Any], most: int) -> list[dict[str, Any]] | None:
    """Return the top reasons for the prediction of an event as JSON, or None."""
    try:
        reasons = reasons_for(learner, x, evaluations=EVALUATIONS_PER_EVENT)
    except Exception:  # the prediction of this event fails too, and reports the error
        return None
    if reasons is None:
        return None
    return [
        {"feature": feature(one.feature), "value": one.value, "adds": one.adds} for one in reasons.contributions[:most]
    ]
