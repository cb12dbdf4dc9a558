"""Optional abilities of models beyond River's interface, as protocols."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from numpy.typing import NDArray

from connectors.events import Batch, Noticing
from streamsvm.decide.changes import Changes, Spread
from streamsvm.models.codec import State
from streamsvm.run.errors import RunError, SetupError


@runtime_checkable
class Persistent(Protocol):
    """A model whose state is plain arrays, which can be saved."""

    def state(self) -> State:
        """Return the state."""

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the result of `state`."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the state as one file; replace a file of another kind only with `overwrite`."""


@runtime_checkable
class Batched(Protocol):
    """A model that takes many events in one call."""

    @property
    def classes_(self) -> Sequence[Any]:
        """All classes so far."""

    def clone(self) -> Self:
        """Return an untrained copy with equal parameters."""

    def run_batch(
        self, features: Any, labels: Sequence[Any], learn: bool = True, proba: bool = False, times: Any = None
    ) -> Any:
        """Predict each event, then learn it; return codes and scores, and with `proba` all probabilities.

        Event times are in seconds.
        """


@runtime_checkable
class Categorical(Protocol):
    """A model that ignores strings that are nearly all new, unless they are declared as categories."""

    def keep_categories(self, names: Sequence[Hashable]) -> None:
        """Treat strings of these features as categories."""


@runtime_checkable
class Peeked(Protocol):
    """A model that predicts probabilities without changing its state."""

    @property
    def classes_(self) -> Sequence[Any]:
        """All classes so far."""

    def peek_proba_many(self, X: Any) -> NDArray[Any]:
        """Return the probabilities for each row, shape (n, n_classes)."""


@runtime_checkable
class Remembering(Protocol):
    """A model that stores examples on which its predictions are based."""

    def nearest(self, x: dict[Any, Any], n: int = 5) -> list[dict[str, Any]]:
        """Return the examples nearest to an event, each with its `similarity`, `label` and `features`."""


@runtime_checkable
class Refitting(Protocol):
    """A model with refits on windows of the stream."""

    @property
    def refits(self) -> Sequence[dict[str, Any]]:
        """The latest refits."""

    def refit_totals(self) -> dict[str, Any] | None:
        """Return numbers by outcome, seconds, and share of the vote of the models; None without refits."""


@dataclass(frozen=True, slots=True)
class Refits:
    """Refits of a model so far.

    Parameters
    ----------
    last
        The latest refits, as in `RefitClassifier.refits`.
    outcomes
        Number of refits by outcome.
    seconds
        Total seconds of all refits.
    share
        Share of the vote of their models.
    """

    last: Sequence[dict[str, Any]]
    outcomes: Mapping[str, int]
    seconds: float
    share: float

    @classmethod
    def of(cls, model: object) -> Refits | None:
        """Return the refits of a model; None if it has no refits."""
        if not isinstance(model, Refitting) or (totals := model.refit_totals()) is None:
            return None
        return cls(model.refits, **totals)

    @property
    def count(self) -> int:
        """Number of refits."""
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True)
class Insight:
    """Relevance, leading members and label autocorrelation of a model at one moment.

    Parameters
    ----------
    relevance
        Relevance of the features in descending order; empty if unknown.
    leaders
        Heads of the model, the leading one first; empty without a vote.
    autocorrelation
        Effect of label autocorrelation; None if it is not used.
    """

    relevance: dict[Hashable, float]
    leaders: list[dict[str, Any]]
    autocorrelation: dict[str, float] | None

    @classmethod
    def of(cls, model: object) -> Insight:
        """Return the insight into a model now."""
        leaders, effect = getattr(model, "leaders", list), getattr(model, "autocorrelation_effect", _none)
        return cls(_relevance(model), leaders(), effect())


def spreads_of(model: object, names: Sequence[Hashable], most: int) -> dict[Hashable, Spread]:
    """Return statistics of the values of the given features, or of the first `most` if none are given."""
    return dict(model.spreads(names or None, most)) if isinstance(model, Changes) else {}


def notices_of(one: object) -> list[str]:
    """Return the notices of a model or a source."""
    return list(one.notices) if isinstance(one, Noticing) else []


def _none() -> None:
    """Return None for models without label autocorrelation."""


def _relevance(model: object) -> dict[Hashable, float]:
    found = getattr(model, "relevance", {})
    if not isinstance(found, Mapping) or len(set(found.values())) < 2:  # foreign models may use this name otherwise
        return {}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def check_persistence(model: Any, *, checkpoint: bool, save: bool) -> None:
    """Refuse to save a model without a state of plain arrays, because nothing is pickled."""
    asked = " and ".join(name for name, wanted in (("--checkpoint", checkpoint), ("--save", save)) if wanted)
    if asked and not isinstance(model, Persistent):
        raise SetupError(
            f"{class_path(model)} cannot be kept on disk, as nothing is pickled here; "
            f"leave out {asked}, or use a model of this package such as --model blend",
            "not kept",
        )
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
        getattr(innermost(model), "check_names", _accept)(batch.features or batch.rows())
    except FeatureMismatchError as error:
        raise RunError(str(error)) from error


def _accept(_: Any) -> None:
    """Accept all names for models without a check."""


def class_path(model: Any) -> str:
    """Return the dotted path of a model's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"
