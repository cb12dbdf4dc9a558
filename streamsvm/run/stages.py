"""Stage of the loop that predicts, learns and decides, for labels that arrive with their events.

`late.JoinStage` implements this interface for delayed labels.
"""

from __future__ import annotations

from collections.abc import Hashable

from connectors.events import Batch
from streamsvm.delayed.protocol import Answer
from streamsvm.run.config import RunConfig
from streamsvm.run.deciding import RunDecisions
from streamsvm.run.learners import Learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.outputs import Outputs


class PredictStage:
    """Predict and learn events whose labels arrive with them.

    Parameters
    ----------
    learner
        Learner.
    decisions
        Decisions about events.
    config
        Settings of the run.
    """

    def __init__(self, learner: Learner, decisions: RunDecisions, config: RunConfig) -> None:
        self._learner, self._decisions, self._learn = learner, decisions, config.learn

    def take(self, batch: Batch) -> Answer:
        """Test, then train, and decide."""
        answers = self._learner.step(batch, self._learn)
        self._answers, self._more = self._decisions.of(answers, self._learner.classes, learn=self._learn)
        return self._answers

    def measure(self, metrics: Metrics) -> None:
        """Measure the events of the last `take`."""
        answers = self._answers
        more = {"scores": answers.scores, "proba": answers.probas} | self._more
        metrics.update(answers.batch.labels, answers.codes, self._learner.classes, **more)

    def write(self, outputs: Outputs) -> None:
        """Write nothing: predictions are the only output."""


def with_labels(batch: Batch) -> Batch:
    """Reject events whose label is not a single value, such as a list in JSON; return the others."""
    try:
        set(batch.labels)
    except TypeError:
        labels = enumerate(batch.labels)
        kinds = {i: type(label).__name__ for i, label in labels if not isinstance(label, Hashable)}
        return batch.without({i: f"the label is a {kind}, not one value" for i, kind in kinds.items()})
    return batch
