"""Parts of a classifier with refits or costs, which answer in its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from streamsvm.decide.deciding import DecidingClassifier
from streamsvm.models.saved import public

# Parameters of a classifier that has parts.
PARAMETERS = ("refit", "cost", "class_weight", "abstain")
# No event is on the fast path of a classifier with parts, see `EventLearner.fast_path`.
NO_FAST_PATH = (-1, None, None, None)
# Methods and properties that the parts answer, beside those of single events with a fast path.
_ANSWERED = (
    *("learn_many", "predict_many", "predict_proba_many", "predict_set_one", "predict_set_many", "peek_proba_many"),
    *("proba_array", "label_sets", "test_then_train", "run_batch", "keep_categories", "check_names", "memory_bytes"),
    *("explain_one", "summary", "spreads", "leaders", "nearest", "autocorrelation_effect", "autocorrelation_weight"),
    *("classes_", "notices", "n_events_learned", "n_features_in_", "memory_size", "noise", "relevance"),
)


class Parts:
    """Parts of a classifier, one around the other.

    A `decider`, if there are costs, is around a `refitter`, if there are refits, and this is around the `learner`.

    Parameters
    ----------
    top
        The outermost part.
    """

    def __init__(self, top: Any) -> None:
        self.top = top
        self.decider: DecidingClassifier | None = top if isinstance(top, DecidingClassifier) else None
        self._inner: Any = top if self.decider is None else self.decider.model
        self.refitter: Any = self._inner if hasattr(self._inner, "solver") else None

    @classmethod
    def around(cls, learner: Any, refit: Any, costs: tuple[Any, Any, Any]) -> Parts:
        """Build the parts for the parameter `refit` and the costs around a learner."""
        found = learner
        if refit is not None:
            params = refit if isinstance(refit, dict) else {"solver": refit}
            found = public("RefitClassifier")(learner, **params)
        return cls(DecidingClassifier(found, *costs) if any(cost is not None for cost in costs) else found)

    @property
    def learner(self) -> Any:
        """Current learner."""
        return self._inner if self.refitter is None else self.refitter.model

    def that_has(self, name: str) -> Any:
        """Return the outermost part with a method or property."""
        for part in (self.decider, self.refitter):
            if hasattr(type(part), name):
                return part
        return self.learner

    def answer(self, name: str) -> Any:
        """Return a method, or the value of a property, of the part that has it."""
        if name == "run_batch" and self.decider is not None:
            return self.decider.decide_batch
        return getattr(self.that_has(name), name)

    def params(self) -> dict[str, Any]:
        """Return the parameters of the classifier.

        These are the parameters of the learner, and parameters of other parts that differ from their defaults.
        """
        found: dict[str, Any] = dict(self.learner._get_params())
        if self.decider is not None:
            found |= {name: getattr(self.decider, name) for name in PARAMETERS[1:]}
        if self.refitter is not None:
            defaults = {name: one.default for name, one in signature(type(self.refitter)).parameters.items()}
            own = {name: getattr(self.refitter, name) for name in defaults if name != "learner"}
            changed = {name: value for name, value in own.items() if name == "solver" or value != defaults[name]}
            found["refit"] = changed if len(changed) > 1 else own["solver"]
        return found


_Class = TypeVar("_Class", bound=type)


def answered_by_parts(cls: _Class) -> _Class:
    """Let the `parts` of a classifier answer in its place, if it has any."""
    for name in _ANSWERED:
        own = next(vars(kind)[name] for kind in cls.__mro__ if name in vars(kind))
        setattr(cls, name, (_property if isinstance(own, property) else _method)(own, name))
    return cls


def _method(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(own)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return own(self, *args, **kwargs) if self.parts is None else self.parts.answer(name)(*args, **kwargs)

    return call


def _property(own: property, name: str) -> property:
    def get(self: Any) -> Any:
        return own.__get__(self) if self.parts is None else self.parts.answer(name)

    def put(self: Any, value: Any) -> None:
        if self.parts is None:
            own.__set__(self, value)
        else:
            setattr(self.parts.that_has(name), name, value)

    return property(get, None if own.fset is None else put, doc=own.__doc__)
