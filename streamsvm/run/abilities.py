"""What a model may be able to do beyond River's interface: a run asks for each ability by its protocol."""

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
    """Its state is plain arrays, so that it can be kept on disk."""

    def state(self) -> State:
        """All of it."""

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `state` gave."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the state as one file, in the place of one of something else only with `overwrite`."""


@runtime_checkable
class Batched(Protocol):
    """It takes many events by one call."""

    @property
    def classes_(self) -> Sequence[Any]:
        """All classes so far."""

    def clone(self) -> Self:
        """The same model before its first event."""

    def run_batch(
        self, features: Any, labels: Sequence[Any], learn: bool = True, proba: bool = False, times: Any = None
    ) -> Any:
        """Predict each event, then learn from it: codes and scores, and with `proba` all probabilities.

        Event times are in seconds.
        """


@runtime_checkable
class Categorical(Protocol):
    """It leaves out texts that nearly all are new, unless it is told that they are categories."""

    def keep_categories(self, names: Sequence[Hashable]) -> None:
        """Never leave these out."""


@runtime_checkable
class Peeked(Protocol):
    """It may be asked for probabilities without taking note of it."""

    @property
    def classes_(self) -> Sequence[Any]:
        """All classes so far."""

    def peek_proba_many(self, X: Any) -> NDArray[Any]:
        """Those of each row, shape (n, n_classes)."""


@runtime_checkable
class Remembering(Protocol):
    """It has examples that its predictions rest on."""

    def nearest(self, x: dict[Any, Any], n: int = 5) -> list[dict[str, Any]]:
        """Those most like an event, each with its `similarity`, `label` and `features`."""


@runtime_checkable
class Refitting(Protocol):
    """Windows of the stream are solved again beside it."""

    @property
    def refits(self) -> Sequence[dict[str, Any]]:
        """The last ones."""

    def refit_totals(self) -> dict[str, Any] | None:
        """How many by outcome, their seconds, and the share of the vote of their models; None without refits."""


@dataclass(frozen=True, slots=True)
class Refits:
    """The refits of a model up to a moment.

    Parameters
    ----------
    last
        The last ones, as `RefitClassifier.refits` has them.
    outcomes
        How many of all there were had which.
    seconds
        Of all.
    share
        Of the vote, that their models have.
    """

    last: Sequence[dict[str, Any]]
    outcomes: Mapping[str, int]
    seconds: float
    share: float

    @classmethod
    def of(cls, model: object) -> Refits | None:
        """Those of a model; None where it makes none."""
        if not isinstance(model, Refitting) or (totals := model.refit_totals()) is None:
            return None
        return cls(model.refits, **totals)

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True)
class Insight:
    """What a model knows at a moment.

    Parameters
    ----------
    relevance
        That of its features, the largest first; empty where it tells none apart.
    leaders
        Its heads, the leading first; empty where none vote.
    autocorrelation
        What label autocorrelation does; None where that has no say.
    """

    relevance: dict[Hashable, float]
    leaders: list[dict[str, Any]]
    autocorrelation: dict[str, float] | None

    @classmethod
    def of(cls, model: object) -> Insight:
        """What this model knows now."""
        leaders, effect = getattr(model, "leaders", list), getattr(model, "autocorrelation_effect", _none)
        return cls(_relevance(model), leaders(), effect())


def spreads_of(model: object, names: Sequence[Hashable], most: int) -> dict[Hashable, Spread]:
    """What a model knows of the values of features: of these, or where there are none of its first ones, so many."""
    return dict(model.spreads(names or None, most)) if isinstance(model, Changes) else {}


def notices_of(one: object) -> list[str]:
    """What a model or a source has warned of."""
    return list(one.notices) if isinstance(one, Noticing) else []


def _none() -> None:
    """Nothing is known."""


def _relevance(model: object) -> dict[Hashable, float]:
    found = getattr(model, "relevance", {})
    if not isinstance(found, Mapping) or len(set(found.values())) < 2:  # foreign models may mean something else by it
        return {}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def check_persistence(model: Any, *, checkpoint: bool, save: bool) -> None:
    """Refuse what cannot be kept: only classifiers that give their state as plain arrays are, nothing is pickled."""
    asked = " and ".join(name for name, wanted in (("--checkpoint", checkpoint), ("--save", save)) if wanted)
    if asked and not isinstance(model, Persistent):
        raise SetupError(
            f"{class_path(model)} cannot be kept on disk, as nothing is pickled here; "
            f"leave out {asked}, or use a model of this package such as --model blend"
        )
    if asked:
        try:
            model.state()
        except TypeError as error:
            raise SetupError(f"{asked}: {error}") from error


def check_names(model: Any, batch: Batch) -> None:
    """Refuse events without a single feature that the model has learned; warn where few are known.

    Raises
    ------
    RunError
        Where none is known.
    """
    from streamsvm.features.names import FeatureMismatchError
    from streamsvm.models.saved import innermost

    try:
        getattr(innermost(model), "check_names", _accept)(batch.features or batch.rows())
    except FeatureMismatchError as error:
        raise RunError(str(error)) from error


def _accept(_: Any) -> None:
    """Of a model that does not tell, nothing is refused."""


def class_path(model: Any) -> str:
    """The dotted path of a model's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"
