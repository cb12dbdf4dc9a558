"""What the loop does with a batch: one step for labels that come with their events, one for labels that come later.

Both have the same methods: `take` predicts, learns and decides, `measure` counts, `write` and `rejected` make records
of what is beside predictions, `state` and `restore` are for checkpoints.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from connectors.events import Batch, Rejected
from streamsvm.run.abilities import State
from streamsvm.run.deciding import RunDecisions, of_two
from streamsvm.run.late import LateLearning
from streamsvm.run.learners import Answers, Learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.outputs import Outputs, rejection_table, rejection_table_of_two, request_table
from streamsvm.run.reasons import late_step_with_reasons, step_with_reasons


class PlainStep:
    """Labels that come with their events.

    Parameters
    ----------
    learner
        The model.
    decisions
        What is decided about events.
    learn
        Whether the model learns.
    reasons
        How many reasons are written of each prediction.
    """

    late: LateLearning | None = None

    def __init__(self, learner: Learner, decisions: RunDecisions, *, learn: bool, reasons: int) -> None:
        self._learner, self._decisions, self._learn, self._reasons = learner, decisions, learn, reasons

    def take(self, batch: Batch) -> Answers:
        """Test, then train, and decide."""
        learner = self._learner
        if self._reasons:
            answers = step_with_reasons(learner, batch, self._learn, self._reasons)
        else:
            answers = learner.step(batch, self._learn)
        self._answers, self._more = self._decisions.of(answers, learner.classes, learn=self._learn)
        return self._answers

    def measure(self, metrics: Metrics) -> None:
        """Count the events taken last."""
        answers = self._answers
        more = {"scores": answers.scores, "proba": answers.proba} | self._more
        metrics.update(answers.batch.labels, answers.codes, self._learner.classes, **more)

    def write(self, outputs: Outputs) -> None:
        """There is nothing else."""

    def rejected(self, rejected: Sequence[Rejected]) -> Mapping[str, Sequence[Any]]:
        """Rejected events as records."""
        return rejection_table(rejected)

    def state(self) -> dict[str, State]:
        """What decisions rest on."""
        return {"decisions": self._decisions.state()}

    def restore(self, states: Mapping[str, State]) -> None:
        """Take over what `state` gave."""
        self._decisions.restore(states["decisions"])


class LateStep:
    """Labels that come later.

    Parameters
    ----------
    late
        The model, with the events that wait.
    decisions
        What is decided about events.
    reasons
        How many reasons are written of each prediction.
    """

    def __init__(self, late: LateLearning, decisions: RunDecisions, *, reasons: int) -> None:
        self.late, self._decisions, self._reasons = late, decisions, reasons

    def take(self, batch: Batch) -> Answers:
        """Predict events, and learn those whose labels come."""
        late = self.late
        taken = late_step_with_reasons(late, batch, self._reasons) if self._reasons else late.step(batch)
        self._answers, self._joined = taken
        return self._answers

    def measure(self, metrics: Metrics) -> None:
        """Count the events taken last, and measure those that found their labels."""
        metrics.events += len(self._answers.batch)
        joined, classes = self._joined, self.late.learner.classes
        if not len(joined):
            return
        came = joined.came
        labels, codes, scores = joined.labels.take(came), joined.codes[came], joined.scores[came]
        more: dict[str, Any] = {}
        if joined.held:
            more = self._decisions.of_joined(joined, np.flatnonzero(came).tolist(), classes)
        elif len(classes) <= 2:
            more["proba"] = of_two(codes, scores)[:, : len(classes)]
        else:
            metrics.measures.unrate()
        metrics.judge(labels, codes, classes, scores=scores, **more)

    def write(self, outputs: Outputs) -> None:
        """Write requests for labels, and what found its label."""
        late, joined = self.late, self._joined
        if len(late.asked):
            outputs.write("query_output", request_table(self._answers, late.learner.classes, late.asked.tolist()))
        if len(joined) and "label_output" in outputs:
            outputs.write("label_output", late.table(joined))

    def rejected(self, rejected: Sequence[Rejected]) -> Mapping[str, Sequence[Any]]:
        """Rejected events and labels as records."""
        return rejection_table_of_two(rejected)

    def state(self) -> dict[str, State]:
        """What waits, and what decisions rest on."""
        return {"late": self.late.state(), "decisions": self._decisions.state()}

    def restore(self, states: Mapping[str, State]) -> None:
        """Take over what `state` gave."""
        self.late.restore(states["late"])
        self._decisions.restore(states["decisions"])


def with_labels(batch: Batch) -> Batch:
    """The batch without events whose label is none, such as a list in JSON."""
    try:
        set(batch.labels)
    except TypeError:
        labels = enumerate(batch.labels)
        kinds = {i: type(label).__name__ for i, label in labels if not isinstance(label, Hashable)}
        return batch.without({i: f"the label is a {kind}, not one value" for i, kind in kinds.items()})
    return batch
