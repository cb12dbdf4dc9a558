"""The loop from source to sinks: every event is predicted before it is learned."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from connectors.errors import ConnectorError, FencedError, UnreachableError
from connectors.events import Batch, Rejected
from connectors.joined import JoinedSource
from connectors.progress import BatchProgress
from connectors.streams import Sink, Source
from streamsvm.core.clock import compile_seconds, working_time
from streamsvm.delayed.models import TooManyClasses
from streamsvm.delayed.protocol import Answer
from streamsvm.models.archive import CORRUPT_ERRORS
from streamsvm.run.checkpoint import Checkpoint, Snapshot, identity_of
from streamsvm.run.config import RunConfig
from streamsvm.run.deciding import RunDecisions, warn_of_unknown_labels
from streamsvm.run.errors import RunError, SetupError, refusing
from streamsvm.run.history import Refits
from streamsvm.run.learners import as_learner, check_names, check_persistence, class_path, one_by_one, written_reasons
from streamsvm.run.metrics import Metrics
from streamsvm.run.monitoring import RunMonitor
from streamsvm.run.names import ClassNames
from streamsvm.run.notes import Notes, SourceNotices
from streamsvm.run.outputs import Outputs, prediction_table, rejection_table
from streamsvm.run.stages import JoinStage, PredictStage, with_labels
from streamsvm.run.standing import Observer, Rate, Report

_HOPELESS = 100  # this many rejected events, and none learned, indicate a wrong setting


class Runner:
    """Predict and learn a stream with outputs, measures and checkpoints.

    The caller opens and closes source, sinks and checkpoint. A checkpoint contains model, source position, sink
    positions and measures of one moment. Sinks are flushed before each checkpoint. Results do not depend on the times
    of checkpoints or on the batch size. `run` checks all settings before it replaces any file.

    Parameters
    ----------
    model
        A River classifier. Those with `run_batch` get whole batches, others one event at a time.
    source
        The stream of events, or of events and their labels as a `JoinedSource`.
    config
        Settings. Those of streams and of the model are ignored.
    sinks
        The sinks by role: out, dead_letter, label_output, query_output.
    checkpoint
        Directory of snapshots; the run resumes from the last one.
    observers
        Called after every batch.
    started
        Value of `time.perf_counter()` at the start, for the time to the first prediction.

    Examples
    --------
    >>> from river.naive_bayes import GaussianNB
    >>> from connectors import open_source
    >>> from streamsvm.run import RunConfig
    >>> config = RunConfig(max_events=500)
    >>> report = Runner(GaussianNB(), open_source("synthetic:sea?seed=1"), config).run()
    >>> report.metrics.events, report.metrics.accuracy > 0.8
    (500, True)
    """

    def __init__(
        self,
        model: Any,
        source: Source,
        config: RunConfig | None = None,
        sinks: Mapping[str, Sink] | None = None,
        checkpoint: Checkpoint | None = None,
        observers: Sequence[Observer] = (),
        started: float | None = None,
    ) -> None:
        self.model, self.source, self.config = model, source, config = model, source, config or RunConfig()
        self.checkpoint, self.observers, self._rate = checkpoint, observers, Rate()
        self._joined = source if isinstance(source, JoinedSource) else None
        self._parts = [source] if self._joined is None else [self._joined.events, self._joined.labels]
        self._outputs = Outputs(sinks or {}, self._in_streams, source.name, lambda one: self._reject([one]))
        self._class_names = ClassNames() if config.proba and "out" in self._outputs else None
        check_persistence(model, checkpoint=checkpoint is not None, save=config.save is not None)
        if checkpoint is not None:
            self._outputs.check_rewind()
            self._identity = identity_of(model, source, self._outputs.sinks, config.identity)
        self.report = Report(
            class_path(model),
            source.name,
            self._outputs.name_of("out"),
            self._outputs.name_of("dead_letter"),
            Metrics(config.window),
            refits=Refits.of(model),
            learned_before=getattr(model, "n_events_learned", 0),
            checkpoint=checkpoint,
            monitor=RunMonitor(config) if config.monitors else None,
        )
        self._said = SourceNotices(source)
        self._started = time.perf_counter() if started is None else started
        self._stopping, self._waits_for = False, "model"
        self._is_unknown = True  # whether no event of this stream has arrived
        self._saved = (0, 0.0)  # events taken and time at the last checkpoint

    def stop(self) -> None:
        """Request that the run ends after the current batch; safe in signal handlers.

        Other threads may call it, too.
        """
        self._stopping = True
        self._outputs.hurry()

    @property
    def waits_for(self) -> str:
        """What the run waits for: model, streams or brokers; empty after success."""
        is_live = self._outputs.is_live or self.source.is_live
        return "brokers" if is_live and self._waits_for == "streams" else self._waits_for

    def run(self) -> Report:
        """Run to the end of the stream, to `max_events`, or until stopped.

        A run with a checkpoint is resumed.
        """
        report = self.report
        self._progress = BatchProgress(self.source.position)
        self._begin()
        self._notes = Notes(report.source, report.metrics, learns=self.config.learn)
        report.learner = self._learner
        began = working_time()
        self._saved = (report.metrics.taken, time.perf_counter())
        try:
            self._loop(began)
            self._outputs.flush()
            self._snapshot()
        except Exception as error:  # save what was learned after any error
            report.ended, report.seconds = "error", working_time() - began
            self._finish(error)
            raise
        warn_of_unknown_labels(self.config, self._learner.classes)
        self._finish()
        self._waits_for = ""
        return report

    # The loop -----------------------------------------------------------------------------------------------------

    def _loop(self, began: float) -> None:
        report, batches = self.report, iter(self.source)
        while not self._over() and (batch := self._next(batches)) is not None:
            rest, after = self._progress.rest(batch)
            is_whole = len(rest) <= self._n_left
            if not is_whole:  # a source resumes between batches only; `progress` records the position within a batch
                rest, after = self._progress.first(rest, int(self._n_left))
            for part in self._monitored(self._cut(rest)):
                self._process(part)
                self._observe(began)
            self._notes.look(self._learner.classes, self.source.fraction or 0.0)
            if is_whole:
                self._sample()
            self._progress = after
            if not self._over():
                self._save_if_due(idle=not len(batch))
        if not report.ended:
            report.ended = "end of stream" if self._n_left else "max-events"
            if self._n_left:
                self._notes.look(self._learner.classes, 1.0)
            if report.late is not None:
                report.late.warn_of_keys()

    @property
    def _n_left(self) -> float:
        """Return how many more events may be taken."""
        return (self.config.max_events or math.inf) - self.report.metrics.taken

    def _next(self, batches: Iterator[Batch]) -> Batch | None:
        if self._joined is not None:
            self._joined.most = self._n_left
        with self._in_streams():
            return next(batches, None)

    @contextlib.contextmanager
    def _in_streams(self) -> Iterator[None]:
        self._waits_for = "streams"
        yield
        self._waits_for = "model"  # not after an error: sources and sinks are then closed

    def _over(self) -> bool:
        if self._n_left <= 0 and self._joined is None:  # a joined source ends with its last labels
            self.report.ended = "max-events"
        elif self._stopping:
            self.report.ended = "stopped"
        return bool(self.report.ended)

    def _cut(self, batch: Batch) -> Iterator[Batch]:
        """Split a batch into parts that are processed at once.

        Batches of live streams are also split where a sample of the model is due, so that a resumed run takes samples
        at equal events.
        """
        if self.config.explain:
            yield from one_by_one(batch)
            return
        while self.source.is_live or any(part.fraction is None for part in self._parts):
            n = self.report.history.due - self.report.metrics.taken
            if not batch.reaches_beyond(n):
                break
            head, batch = batch.cut(n)
            yield head
            self._sample()
        yield batch

    def _monitored(self, parts: Iterator[Batch]) -> Iterator[Batch]:
        """Add the features of events to the monitor before they are processed."""
        report = self.report
        if report.monitor is None:
            return parts
        estimate = None if report.late is None else report.late.estimate
        return report.monitor.parts(parts, report.history, self.model, estimate)

    def _sample(self) -> None:
        metrics = self.report.metrics
        self.report.history.take(self.model, metrics.taken, metrics.judged, metrics.labels, metrics.seen.tolist())

    def _process(self, batch: Batch) -> None:
        """Predict and learn a batch, decide, measure, and write."""
        report, metrics = self.report, self.report.metrics
        if self._is_unknown and len(batch):
            self._is_unknown = False
            self._declare_stream(batch)
        before, n_judged = working_time(), metrics.judged
        answers = report.answers = self._take(with_labels(batch))
        report.learner_seconds += working_time() - before
        kept = answers.batch
        self._outputs.origin = kept.origins.shared or self._outputs.origin
        report.events += len(batch)
        metrics.taken += len(batch)
        self._stage.measure(metrics)
        if len(kept):
            self._outputs.write("out", prediction_table(answers, self._learner.classes, self._class_names), kept.times)
            if report.first_prediction_s is None:
                report.first_prediction_s = working_time() - self._started
        self._stage.write(self._outputs)
        if report.monitor is not None:
            drops = [] if report.late else metrics.drops.pop_new()
            if report.late is not None:
                report.monitor.follow_labels(report.late.judged_times, n_judged)
            if table := report.monitor.records(drops, answers, batch, n_judged):
                self._outputs.write("alerts", table)
        if kept.rejected:
            self._reject(kept.rejected)
        self._check_first_rejections(kept)

    def _reject(self, rejected: Sequence[Rejected]) -> None:
        """Count rejected records, and write them to the dead-letter output."""
        self.report.reject(rejected)
        self._outputs.write("dead_letter", rejection_table(rejected, of_two=self._joined is not None))
        self._notes.count_rejects(rejected[-1].reason)

    def _take(self, batch: Batch) -> Answer:
        """Predict and learn a batch; with reasons it has a single event."""
        n_reasons = (self.config.explain or 0) if len(batch) else 0
        reasons = written_reasons(self._learner, batch.rows()[0], n_reasons) if n_reasons else None
        try:
            answers = self._stage.take(batch)
        except TooManyClasses as error:
            raise RunError(str(error), "two classes") from error
        if n_reasons:
            answers.reasons = [reasons if code >= 0 else None for code in answers.codes.tolist()]
        return answers

    def _declare_stream(self, batch: Batch) -> None:
        """Declare categories to the model, and compare the first events with known names."""
        if hasattr(self.model, "keep_categories"):
            self.model.keep_categories(self.source.categories)
        if self.report.learned_before and self.report.resumed is None:
            check_names(self.model, batch)

    def _check_first_rejections(self, kept: Batch) -> None:
        """Stop if the model rejects all of the first events."""
        metrics = self.report.metrics
        refused = metrics.taken - metrics.events
        if refused >= _HOPELESS and refused > metrics.events and not metrics.judged + metrics.unanswered:
            reason = kept.rejected[-1].reason
            what = f"{self.report.model} rejected {refused} of the first {metrics.taken} events: {reason}"
            raise RunError(what, "hopeless")

    def _observe(self, began: float) -> None:
        """Call the observers."""
        report = self.report
        report.seconds, report.compile_seconds = working_time() - began, compile_seconds()
        report.rate = self._rate.at(report.events)
        report.lag, report.stalls = self.source.lag, self.source.stalls
        if self.observers:
            report.refits, report.source_notices = Refits.of(self.model), self._said.texts
            for observer in self.observers:
                observer(report, self.source.fraction)

    # Checkpoints --------------------------------------------------------------------------------------------------

    def _save_if_due(self, *, idle: bool) -> None:
        """Write a due checkpoint, or else flush results while no events arrive."""
        events, at = self.report.metrics.taken - self._saved[0], self._saved[1]
        if self.checkpoint is not None and self.checkpoint.due(events, time.perf_counter() - at):
            self._snapshot()
        else:
            self._outputs.advance(idle=idle)

    def _snapshot(self) -> None:
        if self.checkpoint is None:
            return
        report = self.report
        self._outputs.flush()
        states = {"model": self.model.state()} | {name: part.state() for name, part in self._stateful.items()}
        progress = self._progress.state()
        self.checkpoint.write(Snapshot(self._identity, progress, self._outputs.state(), states, ended=report.ended))
        if report.late is not None:
            self.checkpoint.keep_pieces(report.late.store.files)
        self._saved = (report.metrics.taken, time.perf_counter())
        self.source.acknowledge(self._progress.at)

    def _begin(self) -> None:
        """Resume from a checkpoint, or start over and replace earlier results."""
        checkpoint = self.checkpoint
        if checkpoint is not None and (snapshot := checkpoint.read(self._identity)) is not None:
            self._resume(snapshot, checkpoint)
            return
        self._use_model()
        if checkpoint is not None:
            with refusing(after=", or remove --checkpoint"):  # refuse a pipe before a resume is necessary
                self.source.seek(self._progress.at)
        self._outputs.check_replaced()
        if checkpoint is not None:
            checkpoint.discard()
        # Before all results: live sinks commit between checkpoints, and a power failure may leave unreadable results.
        self._snapshot()
        self._outputs.flush()

    def _use_model(self) -> None:
        """Use a new or restored model."""
        config, is_late, needs_all = self.config, self._joined is not None, self.config.needs_probabilities
        # With delayed labels, probabilities are stored with the events, so only if requested.
        self._learner = learner = as_learner(
            self.model,
            scored=is_late or "out" in self._outputs or needs_all,
            proba=not is_late or needs_all or self._class_names is not None,
        )
        decisions = RunDecisions(config, self.model)
        self._stateful: dict[str, Any] = {
            "metrics": self.report.metrics,
            "history": self.report.history,
            "decisions": decisions,
            "notices": self._said,
        } | ({} if self.report.monitor is None else {"monitor": self.report.monitor})
        pieces = None if self.checkpoint is None else self.checkpoint.pieces
        self._stage: PredictStage | JoinStage = (
            JoinStage(learner, decisions, config, pieces) if is_late else PredictStage(learner, decisions, config)
        )
        self._stateful |= {"late": self._stage} if is_late else {}
        self.report.late = self._stage if isinstance(self._stage, JoinStage) else None

    def _resume(self, snapshot: Snapshot, checkpoint: Checkpoint) -> None:
        states = snapshot.states
        try:
            self.model = type(self.model).from_state(*states["model"])
            self._use_model()
            for name, part in self._stateful.items():
                part.restore(states[name])
            self._progress = BatchProgress.from_state(snapshot.source)
            with self._in_streams():
                self.source.seek(self._progress.at)
                self._outputs.restore(snapshot.sinks)
        except (UnreachableError, FencedError):
            raise  # the checkpoint is valid
        except (ConnectorError, OSError) as error:
            what = f"cannot resume from the checkpoint in {checkpoint.directory}: {error}"
            raise SetupError(what, "checkpoint") from error
        except CORRUPT_ERRORS as error:  # its checksum was right, so that it is hardly damaged
            what = f"the checkpoint in {checkpoint.directory} does not fit this version of streamsvm: {error}"
            hint = "Resume it with the version that wrote it, or use --reset to start over"
            raise SetupError(f"cannot resume: {what}. {hint}", "checkpoint", option="--reset") from error
        self.report.resumed = self.report.metrics.taken

    def _finish(self, after: Exception | None = None) -> None:
        """Record the state of the model, and save it if requested, also after an error."""
        self.report.look(self.model, self._said.texts, self._notes.texts)
        if (path := self.config.save) is None:
            return
        try:
            self.model.save(path, overwrite=self.config.overwrite)
        except OSError as error:
            message = f"the model could not be saved as {path}: {error.strerror or error}"
            raise RunError(message if after is None else f"{after}; and {message}") from after or error
