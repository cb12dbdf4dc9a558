"""Parts of a classifier with refits or costs, and the delegation to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from streamsvm.decide.deciding import DecidingClassifier
from streamsvm.models.saved import public

# Parameters of a classifier that has parts.
PARAMETERS = ("refit", "cost", "class_weight", "abstain")
# Methods and properties by the part that implements them, used only by classifiers with parts.
_BY_TOP = ("learn_one", "learn_many", "predict_one", "predict_many", "test_then_train")
_BY_VOTE = (
    *("predict_proba_one", "predict_proba_many", "predict_set_one", "predict_set_many", "peek_proba_many"),
    *("label_sets", "explain_one", "summary", "spreads", "leaders", "nearest", "autocorrelation_effect"),
    *("keep_categories", "check_names", "proba_array"),
)
_BY_LEARNER = ("memory_bytes",)
_PROPERTIES = {
    "top": ("classes_", "notices"),
    "vote": ("n_events_learned", "n_features_in_", "memory_size", "noise", "relevance"),
    "learner": ("autocorrelation_weight",),
}


class Composition:
    """Parts of a classifier: `top` wraps `vote`, and `vote` wraps `learner`.

    Parameters
    ----------
    top
        A `RefitClassifier`, or a `DecidingClassifier` around one or around the learner.
    """

    def __init__(self, top: Any) -> None:
        self.top = top
        self.decider: DecidingClassifier | None = top if isinstance(top, DecidingClassifier) else None
        self.vote: Any = top if self.decider is None else self.decider.model
        self.refitter: Any = self.vote if hasattr(self.vote, "solver") else None

    @classmethod
    def around(cls, learner: Any, refit: Any, costs: tuple[Any, Any, Any]) -> Composition:
        """Build the parts for the parameter `refit` and the costs around a learner."""
        found = learner
        if refit is not None:
            params = refit if isinstance(refit, dict) else {"solver": refit}
            found = public("RefitClassifier")(learner, **params)
        return cls(DecidingClassifier(found, *costs) if any(cost is not None for cost in costs) else found)

    @property
    def learner(self) -> Any:
        """Current learner."""
        return self.vote if self.refitter is None else self.refitter.model

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the methods of the composed classifier by name."""
        by_name = {_BY_TOP: self.top, _BY_VOTE: self.vote, _BY_LEARNER: self.learner}
        found = {name: getattr(part, name) for names, part in by_name.items() for name in names}
        return found | {"run_batch": self.vote.run_batch if self.decider is None else self.decider.decide_batch}

    def params(self) -> dict[str, Any]:
        """Return the parameters of the composed classifier.

        These are the parameters of the learner, and parameters of other parts that differ from their defaults.
        """
        found: dict[str, Any] = dict(self.learner._get_params())
        if self.decider is not None:
            found |= {name: getattr(self.decider, name) for name in PARAMETERS[1:]}
        if self.refitter is not None:
            plain = type(self.refitter)(self.refitter.learner)._get_params()
            own = {name: value for name, value in self.refitter._get_params().items() if name != "learner"}
            changed = {name: value for name, value in own.items() if value != plain[name]} | {"solver": own["solver"]}
            found["refit"] = changed if len(changed) > 1 else own["solver"]
        return found

    def params_beside(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that a subclass has in addition."""
        return {name: value for name, value in params.items() if name not in self.learner._get_params()}


_Class = TypeVar("_Class", bound=type)


def delegating(cls: _Class) -> _Class:
    """Make the properties of a class delegate to the parts, if there are any."""
    for part, names in _PROPERTIES.items():
        for name in names:
            own = next(vars(kind)[name] for kind in cls.__mro__ if name in vars(kind))
            setattr(cls, name, _delegated(own, part, name))
    return cls


def _delegated(own: property, part: str, name: str) -> property:
    def get(self: Any) -> Any:
        return own.__get__(self) if self._composition is None else getattr(getattr(self._composition, part), name)

    def put(self: Any, value: Any) -> None:
        if self._composition is None:
            own.__set__(self, value)
        else:
            setattr(getattr(self._composition, part), name, value)

    return property(get, None if own.fset is None else put, doc=own.__doc__)
