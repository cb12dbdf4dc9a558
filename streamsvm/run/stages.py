"""Stages of the loop, except those of late labels and monitoring."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from connectors.events import Batch, Rejected, Results
from streamsvm.core.clock import compile_seconds, working_time
from streamsvm.decide.decisions import DecisionRows
from streamsvm.features.rows import Ints
from streamsvm.models.codec import SavedState
from streamsvm.online.adapters import Predictions, TooManyClasses
from streamsvm.run.accuracy_drops import AccuracyDrop
from streamsvm.run.errors import RunError
from streamsvm.run.formatting import ClassNames
from streamsvm.run.history import RefitSummary
from streamsvm.run.learners import check_names, written_reasons
from streamsvm.run.outputs import prediction_table, rejection_table

if TYPE_CHECKING:
    from streamsvm.run.decisions import RunDecisions
    from streamsvm.run.loop import RunLoop

_HOPELESS = 100  # this many rejected events, and none learned, indicate a wrong setting


@dataclass(slots=True)
class Judged:
    """Labels of events with their predictions.

    Parameters
    ----------
    labels, codes
        Labels, None if unknown, and predictions by class number, -1 for none.
    values
        Further results of the predictions, as for `Metrics.judge`.
    clears
        Whether earlier losses are discarded, because probabilities are unknown from now on.
    """

    labels: Sequence[Any]
    codes: Ints
    values: dict[str, Any]
    clears: bool = False


@dataclass(slots=True)
class Step:
    """Events on their way through the stages, each of which adds its results.

    Parameters
    ----------
    batch
        The events. Their rejected records are those of the source.
    predictions
        Predictions. Their batch has the events that were predicted, and all rejected records.
    reasons
        Reasons for the prediction of each event, if requested.
    judged
        Labels that arrived with these events or now, with the predictions.
    n_judged
        Number of judged events before.
    judged_times
        Times of the events whose late labels arrived.
    drops
        Drops of the accuracy within these events.
    tables
        Records to write beside the predictions, by role of their sink.
    """

    batch: Batch
    predictions: Predictions = field(init=False)
    reasons: Sequence[list[dict[str, Any]] | None] | None = None
    judged: list[Judged] = field(default_factory=list)
    n_judged: int = 0
    judged_times: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    drops: Sequence[AccuracyDrop] = ()
    tables: dict[str, Results] = field(default_factory=dict)


class Checkpointed(Protocol):
    """A part of a run whose state is saved in checkpoints."""

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""


class Stage:
    """A stage of the loop. Its methods do nothing; a stage overrides those it needs.

    Parameters
    ----------
    run
        The run, with what its stages share: settings, streams, learner and report.
    """

    def __init__(self, run: RunLoop) -> None:
        self.run = run

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Split batches where this stage has to act between two events.

        The code after a `yield` runs when all stages have processed the events.

        Parameters
        ----------
        batches
            The events.
        """
        return batches

    def process(self, step: Step) -> None:
        """Process events.

        Parameters
        ----------
        step
            Events, and results of the stages before.
        """

    def end_batch(self, *, whole: bool) -> None:
        """Act after all events of a batch of the source, or of a part if not `whole`."""

    def end(self) -> None:
        """Act after the last event, except if the run was stopped."""


class SampleStage(Stage):
    """Take samples of the model for the history of the run."""

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Split batches of a stream without a known end where a sample is due.

        A resumed run takes samples at equal events, although its batches differ. Batches of files are not split,
        because a part of a batch with late labels takes 2 to 3 ms; there, samples depend on the batch size.
        """
        history, metrics = self.run.report.history, self.run.report.metrics
        for batch in batches:
            rest = batch
            while self.run.source.is_open_ended and rest.reaches_beyond(n := history.due - metrics.taken):
                head, rest = rest.cut(n)
                yield head
                self.end_batch(whole=True)
            yield rest

    def end_batch(self, *, whole: bool) -> None:
        """Take a sample if it is due. Sources do not resume within a batch."""
        if whole:
            history, metrics = self.run.report.history, self.run.report.metrics
            history.sample(self.run.model, metrics.taken, metrics.judged, metrics.labels, metrics.seen.tolist())


class ModelStage(Stage):
    """Base class of stages that use the model; the report has their time."""

    def process(self, step: Step) -> None:
        """Use the model, and measure the time."""
        began = working_time()
        try:
            self.run_model(step)
        except TooManyClasses as error:
            raise RunError(str(error), "two classes") from error
        self.run.report.learner_seconds += working_time() - began

    def run_model(self, step: Step) -> None:
        """Process events as `process` does."""
        raise NotImplementedError


class ExplainStage(ModelStage):
    """Find the reasons for each prediction, before the model learns the event."""

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Split batches into single events and the labels between them."""
        for rest in batches:
            while len(rest):
                event, rest = rest.cut(1)
                if event.late is not None and len(event.late):
                    yield replace(event.part(0, 0), late=event.late)
                    event.late = event.late.part(0, 0, n=0)
                yield event
            if rest.rejected or (rest.late is not None and len(rest.late)):
                yield rest

    def run_model(self, step: Step) -> None:
        """Find the reasons for the prediction of an event."""
        if len(step.batch):
            step.reasons = [written_reasons(self.run.learner, step.batch.rows()[0], self.run.config.explain or 0)]


class DeclareStage(Stage):
    """Declare categories to the model, and compare the first events with known names."""

    _is_declared = False

    def process(self, step: Step) -> None:
        """Declare categories at the first event."""
        if self._is_declared or not len(step.batch):
            return
        self._is_declared = True
        model, report = self.run.model, self.run.report
        if hasattr(model, "keep_categories"):
            model.keep_categories(self.run.source.categories)
        if report.learned_before and report.resumed is None:
            check_names(model, step.batch)


class PredictStage(ModelStage):
    """Test, then train on events with their labels, and decide about them.

    Parameters
    ----------
    run, decisions
        The run and its decisions.
    """

    def __init__(self, run: RunLoop, decisions: RunDecisions) -> None:
        super().__init__(run)
        self._decisions = decisions

    def run_model(self, step: Step) -> None:
        """Test, then train; update the decisions with the labels."""
        learner, learns = self.run.learner, self.run.config.learn
        step.predictions = predictions = learner.step(with_labels(step.batch), learns)
        labels, probas = predictions.batch.labels, predictions.probas
        values = {"scores": predictions.scores, "proba": probas}
        if probas is not None and self._decisions:
            rows = DecisionRows.with_labels(probas, labels, learn=learns)
            predictions.decided = self._decisions.run(rows, learner.classes)
            values |= self._decisions.judged(predictions.decided, labels, learner.classes)
        step.judged.append(Judged(labels, predictions.codes, values))


def with_labels(batch: Batch) -> Batch:
    """Reject events with a label that is not a single value, such as a JSON list."""
    try:
        set(batch.labels)
    except TypeError:
        labels = enumerate(batch.labels)
        kinds = {i: type(label).__name__ for i, label in labels if not isinstance(label, Hashable)}
        return batch.without({i: f"the label is a {kind}, not one value" for i, kind in kinds.items()})
    return batch


class MeasureStage(Stage):
    """Count events, and judge predictions by their labels."""

    def process(self, step: Step) -> None:
        """Measure events and labels."""
        report, metrics, n = self.run.report, self.run.report.metrics, len(step.batch)
        report.predictions = step.predictions
        report.events += n
        metrics.taken += n
        metrics.events += len(step.predictions.batch)
        step.n_judged = metrics.judged
        for judged in step.judged:
            if judged.clears:
                metrics.measures.clear_probabilities()
            metrics.judge(judged.labels, judged.codes, self.run.learner.classes, **judged.values)
        step.drops = metrics.drops.pop_new()


class WriteStage(Stage):
    """Write predictions, rejected records and further records.

    Parameters
    ----------
    run
        The run.
    class_names
        Names of classes for probabilities; None if they are not written.
    """

    def __init__(self, run: RunLoop, class_names: ClassNames | None) -> None:
        super().__init__(run)
        self._class_names = class_names
        run.outputs.reject = lambda row: self._reject([row])  # a row that is too large

    def process(self, step: Step) -> None:
        """Write the records of events; stop if the model rejects all of the first ones."""
        kept, outputs, report = step.predictions.batch, self.run.outputs, self.run.report
        outputs.origin = kept.origins.shared or outputs.origin
        if len(kept):
            if "out" in outputs:
                table = prediction_table(step.predictions, self.run.learner.classes, self._class_names, step.reasons)
                outputs.write("out", table, kept.times)
            if report.first_prediction_s is None:
                report.first_prediction_s = working_time() - self.run.started
        for role, records in step.tables.items():
            outputs.write(role, records)
        if kept.rejected:
            self._reject(kept.rejected)
        metrics = report.metrics
        refused = metrics.taken - metrics.events
        if refused >= _HOPELESS and refused > metrics.events and not metrics.judged + metrics.unanswered:
            what = f"{report.model} rejected {refused} of the first {metrics.taken} events"
            raise RunError(f"{what}: {kept.rejected[-1].reason}", "hopeless")

    def _reject(self, rejected: Sequence[Rejected]) -> None:
        """Count rejected records, and write them to the dead-letter output."""
        report = self.run.report
        report.metrics.rejected += len(rejected)
        report.rejects.add(rejected)
        table = rejection_table(rejected, joined=report.late is not None)
        self.run.outputs.write("dead_letter", table)
        self.run.notices.count_rejects(rejected[-1])


class Rate:
    """Events per second, over at least the last second."""

    def __init__(self) -> None:
        self._before, self._value = (working_time(), 0), 0.0

    def at(self, events: int) -> float:
        """Return the rate, given the number of events so far."""
        (then, before), now = self._before, working_time()
        if now - then >= 1.0 or (not before and now > then):
            self._value, self._before = (events - before) / (now - then), (now, events)
        return self._value


class ObserveStage(Stage):
    """Warn of what the labels show, and call the observers."""

    def __init__(self, run: RunLoop) -> None:
        super().__init__(run)
        self._rate = Rate()

    def process(self, step: Step) -> None:
        """Call the observers."""
        report, source = self.run.report, self.run.source
        report.seconds, report.compile_seconds = working_time() - report.began, compile_seconds()
        report.rate = self._rate.at(report.events)
        report.lag, report.stalls = source.lag, source.stalls
        if self.run.observers:
            report.refits, report.source_notices = RefitSummary.of(self.run.model), self.run.notices.of_source
            for observer in self.run.observers:
                observer(report, source.fraction)

    def end_batch(self, *, whole: bool) -> None:
        """Check the labels so far."""
        self.run.notices.check_labels(self.run.learner.classes, self.run.source.fraction or 0.0)

    def end(self) -> None:
        """Check all labels at the end of the stream."""
        if self.run.report.ended == "end of stream":
            self.run.notices.check_labels(self.run.learner.classes, 1.0)
            self.run.notices.look_at_last()
