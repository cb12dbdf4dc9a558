"""Prediction sets, cost-sensitive decisions and alarms of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.alarms import Alarms
from streamsvm.decide.conformal import ConformalSets
from streamsvm.decide.costs import Costs
from streamsvm.decide.deciding import decider_of
from streamsvm.decide.decisions import Decided, DecisionRows, Decisions
from streamsvm.decide.prediction_sets import PredictsSets
from streamsvm.delayed.protocol import Matches
from streamsvm.models.codec import SavedState, nested, part_of
from streamsvm.run.config import RunConfig
from streamsvm.run.errors import SetupError
from streamsvm.run.formatting import meanings, meant
from streamsvm.run.options import option_of

logger = logging.getLogger("streamsvm.run")


class RunDecisions(Decisions):
    """Decisions of a run.

    Parameters
    ----------
    config
        Settings.
    model
        The model. Its own prediction sets are used if it has them, because they are saved with it.
    """

    def __init__(self, config: RunConfig, model: Any) -> None:
        if config.needs_probabilities and decider_of(model) is not None:
            raise SetupError("the model already decides by costs: remove its parameters cost, class_weight and abstain")
        self._config = config
        cost, weight = (_spelled(given) for given in (config.cost, config.class_weight))
        super().__init__(
            _sets_of(config, model),
            Costs(cost, weight, config.abstain) if config.decides else None,
            None if config.alarms is None else Alarms(config.alarms.kind, config.alarms.share),
            None if config.alarms is None else config.alarms.label,
        )

    def run(self, rows: DecisionRows, classes: Sequence[Any]) -> Decided:
        """Decide about rows, with the class of the alarms among the known classes.

        Parameters
        ----------
        rows, classes
            As for `Decisions`.
        """
        if self._config.alarms is not None:
            self.label = meant(self._config.alarms.label, classes)
        return super().run(rows, classes)

    def of_joined(self, joined: Matches, which: Sequence[int], classes: Sequence[Any]) -> dict[str, Any]:
        """Return measured values of joined events, by stored predictions and decisions."""
        proba, decided = self.unpacked([joined.stored[i] for i in which], len(classes))
        decided.weights = joined.weights[which]
        return {"proba": proba} | self.judged(decided, [joined.labels[i] for i in which], classes)

    def judged(self, decided: Decided, labels: Sequence[Any], classes: Sequence[Any]) -> dict[str, Any]:
        """Return values of decisions to measure, given the labels."""
        found: dict[str, Any] = {} if decided.members is None else {"members": decided.members}
        if self.costs is not None and decided.decisions is not None and decided.weights is not None:
            codes = self.codes(labels, classes) if decided.codes is None else decided.codes
            found["costs"] = self.costs.paid(decided.decisions, codes, decided.weights, classes)
        if decided.alarms is not None:
            own = self.is_alarmed_for(labels) if decided.own is None else decided.own
            found["watched"] = np.column_stack([decided.alarms, own == 1])
        return found

    def state(self) -> SavedState:
        """Return the state except sets, which are saved with the model."""
        header, arrays = nested({} if self.alarms is None else {"alarms": self.alarms.state()})
        return header, arrays if self.costs is None else arrays | {"counts": self.costs.counts}

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""
        if self.costs is not None:
            self.costs.counts = state[1]["counts"]
        if self.alarms is not None:
            self.alarms.restore(part_of(state, "alarms"))


def _spelled(given: Any) -> Any:
    """Expand a table by label to all meanings of its labels."""
    if not isinstance(given, Mapping):
        return given
    return {meaning: _spelled(held) for label, held in given.items() for meaning in meanings(label)}


def _sets_of(config: RunConfig, model: Any) -> ConformalSets | None:
    if config.coverage is None:
        return None
    if isinstance(model, PredictsSets):
        return model.label_sets(config.coverage, config.coverage_by_class)
    return ConformalSets(config.coverage, config.coverage_by_class)


def warn_of_unknown_labels(config: RunConfig, classes: Iterable[Any]) -> None:
    """Warn of labels in options that no event had."""
    named: dict[Any, str] = {} if config.alarms is None else {config.alarms.label: "alarms"}
    if isinstance(config.class_weight, Mapping):
        named |= dict.fromkeys(config.class_weight, "class_weight")
    if isinstance(config.cost, Mapping):
        named |= {label: "cost" for true, costs in config.cost.items() for label in (true, *costs)}
    known = set(classes)
    for label, name in named.items():
        if known and meant(label, known) not in known:
            logger.warning("%s contains %r, which was not the label of any event", option_of(name), label)


def binary_proba(codes: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities of two classes from that of the predicted one.

    They are NaN without a prediction.

    Examples
    --------
    >>> binary_proba(np.array([1, 0, -1]), np.array([0.75, 0.5, np.nan])).tolist()
    [[0.25, 0.75], [0.5, 0.5], [nan, nan]]
    """
    second = np.where(codes == 1, scores, 1.0 - scores)
    return np.column_stack([1.0 - second, second])
