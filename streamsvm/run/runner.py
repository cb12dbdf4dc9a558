"""The loop from source to sink: every event is predicted before it is learned."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from connectors.begun import Begun
from connectors.errors import ConnectorError, UnreachableError
from connectors.events import Acknowledged, Batch, Declaring, Lagging, Position, Sink, Source
from connectors.joined import JoinedSource
from streamsvm.core.clock import compile_seconds, working_time
from streamsvm.models.archive import DAMAGED, check_replaced
from streamsvm.run.abilities import Categorical, Refits, check_names, check_persistence, class_path, notices_of
from streamsvm.run.checkpoint import Checkpoint, Snapshot, writing
from streamsvm.run.deciding import RunDecisions
from streamsvm.run.errors import RunError, SetupError, refusing
from streamsvm.run.history import History
from streamsvm.run.late import LateLearning
from streamsvm.run.learners import as_learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.names import ClassNames
from streamsvm.run.notes import Notes
from streamsvm.run.outputs import Outputs, prediction_table
from streamsvm.run.standing import Observer, Report
from streamsvm.run.steps import LateStep, PlainStep, with_labels
from streamsvm.run.wanted import LateSettings, Wanted

_HOPELESS = 100  # so many events refused, and none learned, are a wrong setting and not bad luck
_EXAMPLES = 3


class Runner:
    """Predict and learn a stream, event by event, with results, measures and checkpoints.

    The caller opens and closes source, sinks and checkpoint. A checkpoint is of one moment: model, source position,
    sink positions and metrics. Whatever the sinks hold is durable before the checkpoint that counts on it. Nothing of
    the results depends on when checkpoints are taken or how the stream is cut into batches (only packed members and
    parts of files begin where results were made durable: their content is the same). Until `run` has found all in
    order nothing is replaced.

    Parameters
    ----------
    model
        A River classifier. Those with `run_batch` get whole batches, the others one event at a time.
    source
        Where events come from.
    out, dead_letter, label_output, query_output
        Where predictions, rejected events, joined events, and label queries go; None for nowhere (they are
        counted all the same).
    checkpoint
        Where to leave snapshots, and to go on from the last one.
    save
        A file for the model at the end, also where that is an error.
    overwrite
        Whether that may replace a file which holds no model.
    learn
        False only predicts.
    proba
        Whether predictions come with the probabilities of all classes.
    max_events
        Stop after so many events of the stream, those before a resumption included.
    window
        How many events the recent accuracy looks back on.
    late
        How labels are joined, where the source is one of events and labels that come later.
    wanted
        What is wanted beside predictions, such as sets of labels.
    identity
        More settings that must be the same for a run to go on from a checkpoint, by name.
    observer
        Told after every batch.
    started
        The `time.perf_counter()` from which the time to the first prediction counts.

    Examples
    --------
    >>> from river.naive_bayes import GaussianNB
    >>> from connectors import open_source
    >>> report = Runner(GaussianNB(), open_source("synthetic:sea?seed=1"), max_events=500).run()
    >>> report.metrics.events, report.metrics.accuracy > 0.8
    (500, True)
    """

    def __init__(
        self,
        model: Any,
        source: Source,
        *,
        out: Sink | None = None,
        dead_letter: Sink | None = None,
        label_output: Sink | None = None,
        query_output: Sink | None = None,
        late: LateSettings | None = None,
        wanted: Wanted | None = None,
        checkpoint: Checkpoint | None = None,
        save: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        learn: bool = True,
        proba: bool = False,
        max_events: int | None = None,
        window: int = 1000,
        identity: Mapping[str, Any] | None = None,
        observer: Observer | None = None,
        started: float | None = None,
    ) -> None:
        self.model, self.source = model, source
        self._joined = source if isinstance(source, JoinedSource) else None
        self._parts = [source] if self._joined is None else [self._joined.events, self._joined.labels]
        sinks = {"out": out, "dead_letter": dead_letter, "label_output": label_output, "query_output": query_output}
        self._outputs = Outputs(sinks, self._in_streams)
        self.sinks = self._outputs.sinks
        self._settings, self._wanted = late, wanted or Wanted()
        self.checkpoint, self.save, self.learn = checkpoint, save, learn
        self._proba, self._names = proba and out is not None, ClassNames()
        self.max_events = math.inf if max_events is None else max_events
        self.observer, self._overwrite, self._window = observer, overwrite, window
        check_persistence(model, checkpoint=checkpoint is not None, save=save is not None)
        if save is not None and not overwrite:
            try:
                check_replaced(save)
            except FileExistsError as error:
                raise SetupError(f"save {save}: {error.strerror}") from error
        if checkpoint is not None:
            self._outputs.check_rewind()
        self.identity = self._identity(window) | {k: repr(v) for k, v in (identity or {}).items()}
        self.report = Report(
            class_path(model),
            source.name,
            self._outputs.name_of("out"),
            self._outputs.name_of("dead_letter"),
            Metrics(window),
            refits=Refits.of(model),
            learned_before=getattr(model, "n_events_learned", 0),
            checkpoint=checkpoint,
        )
        self._started = time.perf_counter() if started is None else started
        self._position: Position = {}
        self._begun = Begun()
        self._stopping, self._waits_for = False, "model"
        self._is_unknown = True  # whether no event of this stream has come
        self._saved = (0, 0.0)  # events taken and time at the last checkpoint

    def stop(self) -> None:
        """Ask the run to finish the current batch and end; may be called from a signal handler or another thread."""
        self._stopping = True
        self._outputs.hurry()

    @property
    def waits_for(self) -> str:
        """What the run is doing now: model, streams, or brokers where these are live; empty once it has ended well."""
        is_live = self._outputs.is_live or any(isinstance(part, Lagging) for part in self._parts)
        return "brokers" if is_live and self._waits_for == "streams" else self._waits_for

    def run(self) -> Report:
        """Run to the end of the stream, to `max_events`, or until stopped; where a run was killed, go on from there."""
        report = self.report
        self._position = self.source.position
        self._begin()
        self._notes = Notes(report.source, report.metrics, learns=self.learn)
        report.learner, report.late = self._learner, self._step.late
        began = working_time()
        self._saved = (report.metrics.taken, time.perf_counter())
        try:
            self._loop(began)
            self._outputs.flush()
            self._snapshot()
        except Exception as error:  # whatever it is, what was learned is worth keeping
            report.ended, report.seconds = "error", working_time() - began
            self._look()
            self._save(error)
            raise
        self._wanted.warn_of_unknown(self._learner.classes)
        self._look()
        self._save()
        self._waits_for = ""
        return report

    # The loop -----------------------------------------------------------------------------------------------------

    def _loop(self, began: float) -> None:
        report = self.report
        self._limit_source()
        if self._over():
            return
        batches = iter(self.source)
        while (batch := self._next(batches)) is not None:
            self._take(batch)
            report.seconds, report.compile_seconds = working_time() - began, compile_seconds()
            if isinstance(self.source, Lagging):
                report.lag, report.stalls = self.source.lag, self.source.stalls
            if self.observer is not None:
                report.refits, report.source_notices = Refits.of(self.model), notices_of(self.source)
                self.observer(report, self.source.fraction)
            self._notes.look(self._learner.classes, self.source.fraction or 0.0)
            if self._over():
                return
            self._keep(idle=not len(batch))
        report.ended = "max-events" if self._has_all else "end of stream"
        if not self._has_all:
            self._notes.look(self._learner.classes, 1.0)
        if report.late is not None:
            report.late.warn_of_keys()

    def _next(self, batches: Iterator[Batch]) -> Batch | None:
        with self._in_streams():
            return next(batches, None)

    @contextlib.contextmanager
    def _in_streams(self) -> Iterator[None]:
        self._waits_for = "streams"
        yield
        self._waits_for = "model"  # not after an error: sources and sinks are then closed

    @property
    def _has_all(self) -> bool:
        return self.report.metrics.taken >= self.max_events

    def _over(self) -> bool:
        if self._has_all and self._joined is None:  # which ends by itself, with the last labels
            self.report.ended = "max-events"
        elif self._stopping:
            self.report.ended = "stopped"
        return bool(self.report.ended)

    def _limit_source(self) -> None:
        if self._joined is not None:
            self._joined.most = self.max_events - self.report.metrics.taken

    def _take(self, batch: Batch) -> None:
        rest, begun = self._begun.split(batch)
        most = self.max_events - self.report.metrics.taken
        if len(rest) > most:
            # A source cannot be resumed inside a batch: the position stays, and beside it what was taken after it.
            part, self._begun = self._begun.first(rest, int(most))
            self._process_in_parts(part)
            return
        self._process_in_parts(rest)
        self._sample()
        self._limit_source()
        self._position, self._begun = batch.position, begun

    def _process_in_parts(self, batch: Batch) -> None:
        """Process a batch. Where batches are cut by how events come, the model is also looked at within it, as soon as
        that is due: a run that was killed and resumed looks at the same events.
        """
        while any(isinstance(part, Lagging) or part.fraction is None for part in self._parts):
            n = self.report.history.due - self.report.metrics.taken
            if not batch.reaches_beyond(n):
                break
            head, batch = batch.cut(n)
            self._process(head)
            self._sample()
        self._process(batch)

    def _sample(self) -> None:
        metrics = self.report.metrics
        self.report.history.take(self.model, metrics.taken, metrics.judged, metrics.labels, metrics.seen.tolist())

    def _process(self, batch: Batch) -> None:
        """Predict and learn a batch, decide, measure, and write."""
        report, metrics = self.report, self.report.metrics
        if self._is_unknown and len(batch):
            self._is_unknown = False
            self._introduce(batch)
        size, before = len(batch), working_time()
        answers = report.answers = self._step.take(with_labels(batch))
        report.learner_seconds += working_time() - before
        kept = answers.batch
        report.events += size
        metrics.taken += size
        metrics.rejected += len(kept.rejected)
        self._step.measure(metrics)
        self._check_hope(kept)
        if len(kept):
            names = self._names if self._proba else None
            self._outputs.write("out", prediction_table(answers, self._learner.classes, names))
            if report.first_prediction_s is None:
                report.first_prediction_s = working_time() - self._started
        self._step.write(self._outputs)
        if kept.rejected:
            self._outputs.write("dead_letter", self._step.rejected(kept.rejected))
            report.examples += kept.rejected[: _EXAMPLES - len(report.examples)]
            report.rejects.add(kept.rejected)
            self._notes.count_rejects(kept.rejected[-1].reason)

    def _introduce(self, batch: Batch) -> None:
        """Let the model know what the stream declares, and compare its first events with those learned before."""
        if isinstance(self.model, Categorical) and isinstance(self.source, Declaring):
            self.model.keep_categories(self.source.categories)
        if self.report.learned_before and self.report.resumed is None:
            check_names(self.model, batch)

    def _check_hope(self, kept: Batch) -> None:
        """Stop where the model could not learn a single one of the first events, rather than reject the stream."""
        metrics = self.report.metrics
        refused = metrics.taken - metrics.events
        if refused >= _HOPELESS and refused > metrics.events and not metrics.judged + metrics.unanswered:
            reason = kept.rejected[-1].reason
            raise RunError(f"{self.report.model} refused {refused} of the first {metrics.taken} events: {reason}")

    def _look(self) -> None:
        """Note what the model has come to."""
        self.report.rejected = self._outputs.name_of("dead_letter")  # it may have had to take another
        self.report.look(self.model, self.source, self._notes.texts)

    # Checkpoints --------------------------------------------------------------------------------------------------

    def _keep(self, *, idle: bool) -> None:
        """Between two batches: a checkpoint where it is due; while nothing arrives, results are made durable."""
        events, at = self._saved
        events, seconds = self.report.metrics.taken - events, time.perf_counter() - at
        if self.checkpoint is not None and self.checkpoint.due(events, seconds):
            self._snapshot()
        else:
            self._outputs.advance(idle=idle)

    def _snapshot(self) -> None:
        if self.checkpoint is None:
            return
        report = self.report
        self._outputs.flush()
        stages = {"model": self.model, "metrics": report.metrics, "history": report.history}
        states = {name: stage.state() for name, stage in stages.items()}
        with writing(self.checkpoint.pieces):
            states |= self._step.state()
        sinks = self._outputs.state()
        self.checkpoint.write(
            Snapshot(self.identity, self._position, sinks, states, self._begun.state(), ended=report.ended)
        )
        if report.late is not None:
            self.checkpoint.keep_pieces(report.late.store.files)
        self._saved = (report.metrics.taken, time.perf_counter())
        if isinstance(self.source, Acknowledged):
            self.source.acknowledge(self._position)

    def _begin(self) -> None:
        """Where a run was killed, go back there; else start over, which replaces what an earlier run left."""
        snapshot = None if self.checkpoint is None else self.checkpoint.read(self.identity)
        if self.checkpoint is not None and snapshot is not None:
            self._resume(snapshot, self.checkpoint)
            return
        self._use_model()
        if self.checkpoint is not None:
            with refusing(after=", or leave out --checkpoint"):  # such as a pipe, before there is a need to resume
                self.source.seek(self._position)
        self._outputs.check_replaced()
        if self.checkpoint is not None:
            self.checkpoint.discard()
        if self._outputs.is_live:
            self._snapshot()  # what these commit stays: a crash before the next checkpoint must find one to go back to
        self._outputs.flush()

    def _use_model(self) -> None:
        """Drive the model, which is new or was taken up again."""
        wanted, settings = self._wanted, self._settings
        scored = settings is not None or "out" in self._outputs or wanted.needs_probabilities
        # Where labels come later probabilities wait with the events, and are kept only if they are wanted.
        proba = self._proba or wanted.needs_probabilities or settings is None
        self._learner = as_learner(self.model, scored=scored, proba=proba)
        decisions = RunDecisions(wanted, self.model)
        if settings is None:
            self._step: PlainStep | LateStep = PlainStep(
                self._learner, decisions, learn=self.learn, reasons=wanted.reasons
            )
            return
        folder = None if self.checkpoint is None else self.checkpoint.pieces
        late = LateLearning(
            self._learner, settings, learn=self.learn, window=self._window, decisions=decisions, pieces=folder
        )
        late.join.tells_keys = "label_output" in self._outputs
        self._step = LateStep(late, decisions, reasons=wanted.reasons)

    def _resume(self, snapshot: Snapshot, checkpoint: Checkpoint) -> None:
        states = snapshot.states
        try:
            self.model = type(self.model).from_state(*states["model"])
            self.report.metrics = Metrics.from_state(*states["metrics"])
            self.report.history = History.from_state(*states["history"])
            self._use_model()
            self._step.restore(states)
            self._begun = Begun.from_state(snapshot.begun) if snapshot.begun else Begun()
            with self._in_streams():
                self.source.seek(snapshot.source)
                self._outputs.restore(snapshot.sinks)
        except UnreachableError:
            raise  # nothing is wrong with what is there
        except (ConnectorError, OSError, *DAMAGED) as error:
            raise SetupError(f"cannot go on from the checkpoint in {checkpoint.directory}: {error}") from error
        self._position = snapshot.source
        self.report.resumed = self.report.metrics.taken

    def _save(self, after: Exception | None = None) -> None:
        """Save the model, if that was asked for, also after an error."""
        if self.save is None:
            return
        try:
            self.model.save(self.save, overwrite=self._overwrite)
        except OSError as error:
            message = f"the model could not be saved as {self.save}: {error.strerror or error}"
            raise RunError(message if after is None else f"{after}; and {message}") from after or error

    def _identity(self, window: int) -> dict[str, str]:
        """What a checkpoint must agree in, as text: parameters may be of any type."""
        params = self.model._get_params() if self.checkpoint is not None else {}
        return {
            "source": repr(self.source.identity),
            "model": class_path(self.model),
            **{f"parameter {name}": repr(value) for name, value in params.items()},
            **{f"--{role.replace('_', '-')}": repr(sink.identity) for role, sink in self.sinks.items()},
            "learning": repr(self.learn),
            **({"--set proba": "True"} if self._proba else {}),
            **self._wanted.identity,
            **({} if self._settings is None else self._settings.identity),
            "--set window": repr(window),
        }


def run(model: Any, source: Source, **options: Any) -> Report:
    """Run a model over a source; the options are those of `Runner`."""
    return Runner(model, source, **options).run()
