"""What models tell about themselves: refits, relevance of features, and notices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsvm.decide.changes import Changes, Spread


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
        totals = getattr(model, "refit_totals", _none)()
        return None if totals is None else cls(getattr(model, "refits", ()), **totals)

    @property
    def count(self) -> int:
        """Number of refits."""
        return sum(self.outcomes.values())

    def figures(self) -> dict[str, Any]:
        """Return the figures for JSON, except the seconds in total."""
        return {"count": self.count, "outcomes": dict(self.outcomes), "share": self.share, "last": list(self.last)}


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
        relevance = getattr(model, "relevance", {})
        if not isinstance(relevance, Mapping) or len(set(relevance.values())) < 2:  # foreign models may use this name
            relevance = {}
        relevance = dict(sorted(relevance.items(), key=lambda item: -item[1]))
        return cls(relevance, getattr(model, "leaders", list)(), getattr(model, "autocorrelation_effect", _none)())


def spreads_of(model: object, names: Sequence[Hashable], most: int) -> dict[Hashable, Spread]:
    """Return statistics of the values of the given features, or of the first `most` if none are given."""
    return dict(model.spreads(names or None, most)) if isinstance(model, Changes) else {}


def notices_of(one: object) -> list[str]:
    """Return the notices of a model or a source."""
    return list(getattr(one, "notices", ()))


def _none() -> None:
    """Return None for models without refits or label autocorrelation."""
