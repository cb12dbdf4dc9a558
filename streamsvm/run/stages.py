"""Stages of the loop; `late_labels` and `decisions` have the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from connectors.events import Batch, Rejected
from connectors.streams import Source
from streamsvm.core.clock import compile_seconds, working_time
from streamsvm.delayed.models import TooManyClasses
from streamsvm.run.errors import RunError
from streamsvm.run.history import History, Refits
from streamsvm.run.learners import Learner, check_names, one_by_one, written_reasons
from streamsvm.run.metrics import Metrics
from streamsvm.run.names import ClassNames
from streamsvm.run.notices import RunNotices
from streamsvm.run.outputs import Outputs, prediction_table, rejection_table
from streamsvm.run.report import Observer, Rate, Report
from streamsvm.run.stage import Judged, Stage, Step

if TYPE_CHECKING:
    from streamsvm.run.late_labels import JoinStage
    from streamsvm.run.monitoring import RunMonitor

_HOPELESS = 100  # this many rejected events, and none learned, indicate a wrong setting


class SampleStage(Stage):
    """Take samples of the model for the history of the run.

    Parameters
    ----------
    history, metrics
        History and counts of the run.
    model
        Model.
    source
        Stream of events. Batches of a stream without a known end are split where a sample is due, so that a resumed run
        takes samples at equal events.
    """

    def __init__(self, history: History, metrics: Metrics, model: Any, source: Source) -> None:
        self._history, self._metrics, self._model, self._source = history, metrics, model, source
        self.parts = {"history": history}

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Split batches where a sample is due."""
        for batch in batches:
            rest = batch
            while self._source.is_open_ended and rest.reaches_beyond(n := self._history.due - self._metrics.taken):
                head, rest = rest.cut(n)
                yield head
                self.end_batch(whole=True)
            yield rest

    def end_batch(self, *, whole: bool) -> None:
        """Take a sample if it is due. Sources do not resume within a batch."""
        metrics = self._metrics
        if whole:
            self._history.take(self._model, metrics.taken, metrics.judged, metrics.labels, metrics.seen.tolist())


class ModelStage(Stage):
    """Base class of stages that use the model; the report has their time.

    Parameters
    ----------
    learner
        The learner.
    report
        Report of the run.
    """

    def __init__(self, learner: Learner, report: Report) -> None:
        self.learner, self.report = learner, report

    def take(self, step: Step) -> None:
        """Use the model, and measure the time."""
        began = working_time()
        try:
            self.use(step)
        except TooManyClasses as error:
            raise RunError(str(error), "two classes") from error
        self.report.learner_seconds += working_time() - began

    def use(self, step: Step) -> None:
        """Process events as `take` does."""
        raise NotImplementedError


class ExplainStage(ModelStage):
    """Find the reasons for each prediction, before the model learns the event.

    Parameters
    ----------
    learner, report
        Arguments of `ModelStage`.
    n_reasons
        Greatest number of reasons.
    """

    def __init__(self, learner: Learner, report: Report, n_reasons: int) -> None:
        super().__init__(learner, report)
        self._n_reasons = n_reasons

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Split batches into single events."""
        return chain.from_iterable(map(one_by_one, batches))

    def use(self, step: Step) -> None:
        """Find the reasons for the prediction of an event."""
        if len(step.batch):
            step.reasons = [written_reasons(self.learner, step.batch.rows()[0], self._n_reasons)]


class DeclareStage(Stage):
    """Declare categories to the model, and compare the first events with known names.

    Parameters
    ----------
    model, source, report
        Model, stream and report of the run.
    """

    def __init__(self, model: Any, source: Source, report: Report) -> None:
        self._model, self._source, self._report = model, source, report
        self._is_declared = False

    def take(self, step: Step) -> None:
        """Declare categories at the first event."""
        if self._is_declared or not len(step.batch):
            return
        self._is_declared = True
        if hasattr(self._model, "keep_categories"):
            self._model.keep_categories(self._source.categories)
        if self._report.learned_before and self._report.resumed is None:
            check_names(self._model, step.batch)


class PredictStage(ModelStage):
    """Test, then train on events whose labels arrive with them.

    Parameters
    ----------
    learner, report
        Arguments of `ModelStage`.
    learn
        Whether to train.
    """

    are_late = False
    """Whether labels arrive later than their events."""

    def __init__(self, learner: Learner, report: Report, *, learn: bool) -> None:
        super().__init__(learner, report)
        self._learn = learn

    def use(self, step: Step) -> None:
        """Test, then train."""
        step.answers = answers = self.learner.step(with_labels(step.batch), self._learn)
        values = {"scores": answers.scores, "proba": answers.probas}
        step.judged.append(Judged(answers.batch.labels, answers.codes, values))

    def note_change(self, at: int) -> None:
        """Features changed at a time in milliseconds; labels show the effect at once."""


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
    """Count events, and judge predictions by their labels.

    Parameters
    ----------
    learner, report
        Learner and report of the run.
    labels_are_late
        Whether labels are of earlier events.
    """

    def __init__(self, learner: Learner, report: Report, *, labels_are_late: bool) -> None:
        self._learner, self._report, self._metrics = learner, report, report.metrics
        self._labels_are_late = labels_are_late
        self.parts = {"metrics": report.metrics}

    def take(self, step: Step) -> None:
        """Measure events and labels."""
        metrics, n = self._metrics, len(step.batch)
        self._report.answers = step.answers
        self._report.events += n
        metrics.taken += n
        metrics.events += len(step.answers.batch)
        step.n_judged = metrics.judged
        for judged in step.judged:
            if judged.clears:
                metrics.measures.clear_probabilities()
            metrics.judge(judged.labels, judged.codes, self._learner.classes, **judged.values)
        drops = metrics.drops.pop_new()
        step.drops = () if self._labels_are_late else drops


class MonitorStage(Stage):
    """Compare features with a reference, and record alarms.

    Parameters
    ----------
    monitor, history
        Monitor and history of the run.
    labels
        The stage that predicts and gets the labels.
    """

    def __init__(self, monitor: RunMonitor, history: History, labels: PredictStage | JoinStage) -> None:
        self._monitor, self._history, self._labels = monitor, history, labels
        self.parts = {"monitor": monitor}

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Add the features of events before they are predicted; split for refits."""
        return self._monitor.watched(batches, self._history, self._labels)

    def take(self, step: Step) -> None:
        """Return the new alarms as records."""
        self._monitor.follow_labels(step.judged_times, step.n_judged)
        if table := self._monitor.records(step.drops, step.answers, step.batch, step.n_judged):
            step.tables["alerts"] = table


class WriteStage(Stage):
    """Write predictions and further records.

    Parameters
    ----------
    outputs
        Sinks.
    learner, report
        Learner and report of the run.
    class_names
        Names of classes for probabilities; None if they are not written.
    started
        Time of the start, as `time.perf_counter`.
    """

    def __init__(
        self, outputs: Outputs, learner: Learner, report: Report, class_names: ClassNames | None, started: float
    ) -> None:
        self._outputs, self._learner, self._report = outputs, learner, report
        self._class_names, self._started = class_names, started

    def take(self, step: Step) -> None:
        """Write the records of events."""
        kept, outputs = step.answers.batch, self._outputs
        outputs.origin = kept.origins.shared or outputs.origin
        if len(kept):
            if "out" in outputs:
                table = prediction_table(step.answers, self._learner.classes, self._class_names, step.reasons)
                outputs.write("out", table, kept.times)
            if self._report.first_prediction_s is None:
                self._report.first_prediction_s = working_time() - self._started
        for role, records in step.tables.items():
            outputs.write(role, records)


class RejectStage(Stage):
    """Count rejected records, and write them to the dead-letter output.

    Parameters
    ----------
    outputs, report, notices
        Sinks, report and notices of the run.
    of_two
        Whether records are of two streams.
    """

    def __init__(self, outputs: Outputs, report: Report, notices: RunNotices, *, of_two: bool) -> None:
        self._outputs, self._report, self._notices, self._of_two = outputs, report, notices, of_two
        outputs.reject = lambda row: self._reject([row])

    def take(self, step: Step) -> None:
        """Take the rejected records; stop if the model rejects all of the first events."""
        metrics, rejected = self._report.metrics, step.answers.batch.rejected
        if rejected:
            self._reject(rejected)
        refused = metrics.taken - metrics.events
        if refused >= _HOPELESS and refused > metrics.events and not metrics.judged + metrics.unanswered:
            what = f"{self._report.model} rejected {refused} of the first {metrics.taken} events"
            raise RunError(f"{what}: {rejected[-1].reason}", "hopeless")

    def _reject(self, rejected: Sequence[Rejected]) -> None:
        self._report.reject(rejected)
        self._outputs.write("dead_letter", rejection_table(rejected, of_two=self._of_two))
        self._notices.count_rejects(rejected[-1])


class ObserveStage(Stage):
    """Warn of what the labels show, and call the observers.

    Parameters
    ----------
    report, learner, source, notices
        Report, learner, stream and notices of the run.
    observers
        Called after every step.
    """

    def __init__(
        self, report: Report, learner: Learner, source: Source, notices: RunNotices, observers: Sequence[Observer]
    ) -> None:
        self._report, self._learner, self._source, self._notices = report, learner, source, notices
        self._observers, self._rate = observers, Rate()
        self.parts = {"notices": notices}

    def take(self, step: Step) -> None:
        """Call the observers."""
        report = self._report
        report.seconds, report.compile_seconds = working_time() - report.began, compile_seconds()
        report.rate = self._rate.at(report.events)
        report.lag, report.stalls = self._source.lag, self._source.stalls
        if self._observers:
            report.refits, report.source_notices = Refits.of(self._learner.model), self._notices.of_source
            for observer in self._observers:
                observer(report, self._source.fraction)

    def end_batch(self, *, whole: bool) -> None:
        """Check the labels so far."""
        self._notices.look(self._learner.classes, self._source.fraction or 0.0)

    def end(self) -> None:
        """Check all labels at the end of the stream."""
        if self._report.ended == "end of stream":
            self._notices.look(self._learner.classes, 1.0)
