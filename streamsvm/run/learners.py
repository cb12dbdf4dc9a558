"""Models of a run, and their results."""

from __future__ import annotations

from typing import Any, TypeAlias

from connectors.events import Batch
from streamsvm.delayed.models import OwnModel, RowModel
from streamsvm.run.errors import RunError, SetupError

Learner: TypeAlias = OwnModel | RowModel
"""Interface of the run loop to a model."""


def as_learner(model: Any, *, scored: bool, proba: bool = True) -> Learner:
    """Return the fastest learner for a model; `scored` and `proba` say which of its answers are used."""
    if not takes_batches(model):
        return RowModel(model, with_proba=scored, tolerant=True)
    # Compile or load the kernel before the stream is read; a copy of the model learns this event.
    model.clone().run_batch([{"warm": 1.0}], [0])
    return OwnModel(model, proba=proba)


def takes_batches(model: Any) -> bool:
    """Return whether a model takes many events in one call."""
    return hasattr(model, "run_batch")


def check_persistence(model: Any, *, checkpoint: bool, save: bool) -> None:
    """Refuse to save a model without a state of plain arrays, because nothing is pickled."""
    asked = " and ".join(name for name, wanted in (("--checkpoint", checkpoint), ("--save", save)) if wanted)
    if asked and not hasattr(model, "from_state"):
        what = f"{class_path(model)} cannot be saved without pickle"
        raise SetupError(f"{what}; remove {asked}, or use a model of this package", "not kept")
    if asked:
        try:
            model.state()
        except TypeError as error:
            raise SetupError(f"{asked}: {error}", "not kept") from error


def check_names(model: Any, batch: Batch) -> None:
    """Refuse events without any feature that the model has learned; warn if few are known.

    Raises
    ------
    RunError
        If no feature is known.
    """
    from streamsvm.features.names import FeatureMismatchError
    from streamsvm.models.saved import innermost

    try:
        if hasattr(own := innermost(model), "check_names"):
            own.check_names(batch.features or batch.rows())
    except FeatureMismatchError as error:
        raise RunError(str(error)) from error


def class_path(model: Any) -> str:
    """Return the dotted path of a model's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"
