"""The loop from source to sinks: every event is predicted before it is learned."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from connectors.joined import JoinedSource
from connectors.progress import BatchProgress
from connectors.streams import Sink, Source
from streamsvm.core.clock import working_time
from streamsvm.run import stages
from streamsvm.run.checkpoint import Checkpoint, Snapshot, identity_of
from streamsvm.run.config import RunConfig
from streamsvm.run.decisions import RunDecisions, warn_of_unknown_labels
from streamsvm.run.errors import RunError, refusing
from streamsvm.run.formatting import ClassNames
from streamsvm.run.history import RefitSummary
from streamsvm.run.late_labels import JoinStage
from streamsvm.run.learners import Learner, as_learner, check_persistence, class_path
from streamsvm.run.metrics import Metrics
from streamsvm.run.monitoring import MonitorStage, RunMonitor
from streamsvm.run.notices import RunNotices
from streamsvm.run.outputs import Outputs
from streamsvm.run.report import Observer, Report
from streamsvm.run.stages import Checkpointed, Stage, Step


class RunLoop:
    """Predict and learn a stream with outputs, measures and checkpoints.

    Each batch passes the stages of `_create_stages`. The caller opens and closes source, sinks and checkpoint. A
    checkpoint contains model, source position, sink positions and the state of each stage at one moment. Sinks are
    flushed before each checkpoint. Results do not depend on the times of checkpoints or on the batch size. `run` checks
    all settings before it replaces any file.

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
    >>> report = RunLoop(GaussianNB(), open_source("synthetic:sea?seed=1"), config).run()
    >>> report.metrics.events, report.metrics.accuracy > 0.8
    (500, True)
    """

    learner: Learner

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
        config = config or RunConfig()
        self.model, self.source, self.config = model, source, config
        self.checkpoint, self.observers = checkpoint, observers
        self.outputs = outputs = Outputs(sinks or {}, self._in_streams, source.name)
        check_persistence(model, checkpoint=checkpoint is not None, save=config.save is not None)
        if checkpoint is not None:
            outputs.check_rewind()
            self._identity = identity_of(model, source, outputs.sinks, config.identity)
        self.report = Report(
            class_path(model),
            source.name,
            outputs.name_of("out"),
            outputs.name_of("dead_letter"),
            Metrics(config.window),
            refits=RefitSummary.of(model),
            learned_before=getattr(model, "n_events_learned", 0),
            learns=config.learn,
            checkpoint=checkpoint,
            monitor=RunMonitor(config) if config.monitors else None,
        )
        self.notices = RunNotices(source, self.report.metrics, learns=config.learn)
        self.started = time.perf_counter() if started is None else started
        self._stopping, self._waits_for, self._stages = False, "model", list[Stage]()
        self.parts: dict[str, Checkpointed] = {}  # what a checkpoint contains besides the model
        self._saved = (0, 0.0)  # events taken and time at the last checkpoint

    def stop(self) -> None:
        """Request that the run ends after the current batch; safe in signal handlers.

        Other threads may call it, too.
        """
        self._stopping = True
        self.outputs.hurry()

    @property
    def waits_for(self) -> str:
        """What the run waits for: model, streams or brokers; empty after success."""
        is_live = self.outputs.is_live or self.source.is_live
        return "brokers" if is_live and self._waits_for == "streams" else self._waits_for

    def run(self) -> Report:
        """Run to the end of the stream, to `max_events`, or until stopped.

        A run with a checkpoint is resumed.
        """
        report = self.report
        self._progress = BatchProgress(self.source.position)
        self._begin()
        report.began = working_time()
        self._saved = (report.metrics.taken, time.perf_counter())
        try:
            self._loop()
            self.outputs.flush()
            self._snapshot()
        except Exception as error:  # save what was learned after any error
            report.ended, report.seconds = "error", working_time() - report.began
            self._finish(error)
            raise
        warn_of_unknown_labels(self.config, self.learner.classes)
        self._finish()
        self._waits_for = ""
        return report

    def close(self) -> None:
        """Release the memory and the files of pending events."""
        if self.report.late is not None:
            self.report.late.close()

    def _create_stages(self) -> list[Stage]:
        """Return the stages for the new or restored model, in the order of the loop."""
        config, report, outputs = self.config, self.report, self.outputs
        are_late, needs_all = isinstance(self.source, JoinedSource), config.needs_probabilities
        class_names = ClassNames() if config.proba and "out" in outputs else None
        self.learner = report.learner = as_learner(
            self.model,
            scored=are_late or "out" in outputs or needs_all,
            # With late labels, probabilities are stored with the events, so only if requested.
            proba=not are_late or needs_all or class_names is not None,
        )
        decisions = RunDecisions(config, self.model)
        self.parts = {"metrics": report.metrics, "history": report.history, "decisions": decisions}
        self.parts["notices"] = self.notices
        return [
            stages.SampleStage(self),
            *([stages.ExplainStage(self)] if config.explain else []),
            stages.DeclareStage(self),
            (JoinStage if are_late else stages.PredictStage)(self, decisions),
            stages.MeasureStage(self),
            *([] if report.monitor is None else [MonitorStage(self, report.monitor)]),
            stages.WriteStage(self, class_names),
            stages.ObserveStage(self),
        ]

    # The loop -----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        report, batches = self.report, iter(self.source)
        while not self._is_over():
            with self._in_streams():
                batch = next(batches, None)
            if batch is None:
                break
            events, after = self._progress.take(batch, self._n_left)
            pieces = iter([events])
            for stage in self._stages:
                pieces = stage.split(pieces)
            for piece in pieces:
                step = Step(piece)
                for stage in self._stages:
                    stage.process(step)
            for stage in self._stages:
                stage.end_batch(whole=not after.count)
            self._progress = after
            if not self._is_over():
                self._save_if_due(idle=not len(batch))
        report.ended = report.ended or ("end of stream" if self._n_left else "max-events")
        if report.ended != "stopped":
            for stage in self._stages:
                stage.end()

    @property
    def _n_left(self) -> float:
        """Return how many more events may be taken."""
        return (self.config.max_events or math.inf) - self.report.metrics.taken

    def _is_over(self) -> bool:
        if not self.source.limit(self._n_left):
            self.report.ended = "max-events"
        elif self._stopping:
            self.report.ended = "stopped"
        return bool(self.report.ended)

    @contextlib.contextmanager
    def _in_streams(self) -> Iterator[None]:
        self._waits_for = "streams"
        yield
        self._waits_for = "model"  # not after an error: sources and sinks are then closed

    def _finish(self, after: Exception | None = None) -> None:
        """Record the state of the model, and save it if requested, also after an error."""
        self.report.record_model(self.model, self.notices)
        if (path := self.config.save) is None:
            return
        try:
            self.model.save(path, overwrite=self.config.overwrite)
        except OSError as error:
            message = f"the model could not be saved as {path}: {error.strerror or error}"
            raise RunError(message if after is None else f"{after}; and {message}") from after or error

    # Checkpoints --------------------------------------------------------------------------------------------------

    def _save_if_due(self, *, idle: bool) -> None:
        """Write a due checkpoint, or else flush results while no events arrive."""
        events, at = self.report.metrics.taken - self._saved[0], self._saved[1]
        if self.checkpoint is not None and self.checkpoint.due(events, time.perf_counter() - at):
            self._snapshot()
        else:
            self.outputs.advance(idle=idle)

    def _snapshot(self) -> None:
        if self.checkpoint is None:
            return
        self.outputs.flush()
        states = {"model": self.model.state()} | {name: part.state() for name, part in self.parts.items()}
        progress = self._progress.state()
        self.checkpoint.write(Snapshot(self._identity, progress, self.outputs.state(), states, self.report.ended))
        self.checkpoint.keep_pieces(frozenset() if self.report.late is None else self.report.late.store.files)
        self._saved = (self.report.metrics.taken, time.perf_counter())
        self.source.acknowledge(self._progress.at)

    def _begin(self) -> None:
        """Resume from a checkpoint, or start over and replace earlier results."""
        checkpoint = self.checkpoint
        if checkpoint is not None and (snapshot := checkpoint.read(self._identity)) is not None:
            self._resume(snapshot, checkpoint)
            return
        self._stages = self._create_stages()
        if checkpoint is not None:
            with refusing(after=", or remove --checkpoint"):  # refuse a pipe before a resume is necessary
                self.source.seek(self._progress.at)
        self.outputs.check_replaced()
        if checkpoint is not None:
            checkpoint.discard()
        # Before all results: live sinks commit between checkpoints, and a power failure may leave unreadable results.
        self._snapshot()
        self.outputs.flush()

    def _resume(self, snapshot: Snapshot, checkpoint: Checkpoint) -> None:
        with checkpoint.resuming():
            self.model = type(self.model).from_state(*snapshot.states["model"])
            self._stages = self._create_stages()
            for name, part in self.parts.items():
                part.restore(snapshot.states[name])
            self._progress = BatchProgress.from_state(snapshot.source)
            with self._in_streams():
                self.source.seek(self._progress.at)
                self.outputs.restore(snapshot.sinks)
        self.report.resumed = self.report.metrics.taken
