"""The loop from source to sink: every event is predicted before it is learned."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from connectors.begun import Begun
from connectors.errors import ConnectorError, UnreachableError
from connectors.events import (
    Acknowledged,
    Advancing,
    Batch,
    Declaring,
    Lagging,
    Noticing,
    Position,
    Rejected,
    Replacing,
    Sink,
    Source,
)
from connectors.joined import JoinedSource
from connectors.notices import Notices
from streamsvm.core.clock import compile_seconds, working_time
from streamsvm.delayed.join import Joined
from streamsvm.labels import stranger_notices, twin_notices
from streamsvm.models.archive import DAMAGED, check_replaced
from streamsvm.run.abilities import Categorical, Insight, Persistent, Refits, notices_of
from streamsvm.run.checkpoint import Checkpoint, Snapshot, writing
from streamsvm.run.deciding import RunDecisions, of_two
from streamsvm.run.errors import RunError, SetupError
from streamsvm.run.history import History
from streamsvm.run.late import LateLearning
from streamsvm.run.learners import Answers, Learner, as_learner, with_gaps
from streamsvm.run.metrics import Metrics
from streamsvm.run.names import ClassNames, meant
from streamsvm.run.reasons import late_step_with_reasons, step_with_reasons
from streamsvm.run.rejects import Rejects
from streamsvm.run.wanted import LateSettings, Wanted

# Of sinks, by their role.
_PURPOSES = {
    "out": "predictions",
    "rejected": "events set aside",
    "joined": "joined results",
    "requests": "requests for labels",
}
_HOPELESS = 100  # so many events refused, and none learned, are a wrong setting and not bad luck
_EXAMPLES = 3
_HALF = 0.5  # of a file, after which sorted labels are no chance
_LOOK = 100  # events from one look at how many are set aside to the next
_WARN_AGAIN_S = 60.0

logger = logging.getLogger("streamsvm.run")


@dataclass(slots=True)
class Report:
    """How a run stands, or ended.

    Parameters
    ----------
    model, source, out, rejected
        Names for messages; None where there is no such sink.
    metrics, history
        All counts, and all samples of the model, those before a resumption included.
    relevance, leaders, autocorrelation
        What the model knows at the end: the relevance of its features, its heads, the leading first, and what label
        autocorrelation does; None where that has no say.
    notices, source_notices
        What the model and the source have warned of, and the source alone.
    refits
        The refits of the model, those before the run included; None where it has none by its kind.
    learned_before
        How many events the model had learned before the run.
    ended
        Why it is over: "end of stream", "max-events", "stopped" or "error"; empty until then.
    resumed
        How many events had been taken when this process went on from a checkpoint; None if it did not.
    events
        Events taken by this process.
    seconds, learner_seconds
        Wall time of the loop, and of it in the model.
    compile_seconds
        Wall time for which this process compiled kernels; the other times are without it.
    first_prediction_s
        Seconds from the start of the process, as told to the runner, to the first prediction.
    examples
        The first few events set aside by this process.
    checkpoint
        Where snapshots are left, None for nowhere.
    lag
        How many events each part of a live source is behind, by its name; None where the source does not know.
    stalls
        How often this process got no event for long although the source was behind.
    learner, answers
        The model as it is driven, and what it answered to the latest batch, for observers.
    rejects
        The events set aside by this process, by reason.
    late
        What is known of labels that come later, where they do.
    """

    model: str
    source: str
    out: str | None
    rejected: str | None
    metrics: Metrics
    history: History = field(default_factory=History)
    relevance: dict[Hashable, float] = field(default_factory=dict)
    leaders: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    source_notices: list[str] = field(default_factory=list)
    autocorrelation: dict[str, float] | None = None
    refits: Refits | None = None
    learned_before: int = 0
    ended: str = ""
    resumed: int | None = None
    events: int = 0
    seconds: float = 0.0
    learner_seconds: float = 0.0
    compile_seconds: float = 0.0
    first_prediction_s: float | None = None
    examples: list[Rejected] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    lag: Mapping[Any, int] | None = None
    stalls: int = 0
    learner: Learner | None = None
    answers: Answers | None = None
    rejects: Rejects = field(default_factory=Rejects)
    late: LateLearning | None = None

    def changes(self, since: int | None = None) -> tuple[int, list[str]]:
        """What changed since so many events had been judged, in words: see `History.changes`.

        Parameters
        ----------
        since
            Judged events; None: those before the accuracy last fell by more than chance, else half of them all.

        Returns
        -------
        since, changes
            The moment that was looked back to, in judged events; and what changed.
        """
        falls = self.metrics.falls.last
        if since is None:
            since = falls[-1].judged if falls else self.metrics.judged // 2
        return since, self.history.changes(since)

    @property
    def mostly_rejected(self) -> bool:
        """Whether more than half of all events were set aside."""
        return self.metrics.rejected > self.metrics.events


class Observer(Protocol):
    """Who is told after every batch, such as a progress bar."""

    def __call__(self, report: Report, fraction: float | None) -> None: ...


def observe_all(observers: Sequence[Observer]) -> Observer | None:
    """Several observers as one; None where there is none."""

    def observe(report: Report, fraction: float | None) -> None:
        for observer in observers:
            observer(report, fraction)

    return observe if observers else None


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
    out, rejected, joined, requests
        Where predictions, events set aside, joined results, and requests for labels go; None for nowhere (they are
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
        rejected: Sink | None = None,
        joined: Sink | None = None,
        requests: Sink | None = None,
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
        self._lagging = source if isinstance(source, Lagging) else None
        roles = (("out", out), ("rejected", rejected), ("joined", joined), ("requests", requests))
        self.sinks = {role: sink for role, sink in roles if sink is not None}
        self._settings, self._wanted = late, wanted or Wanted()
        self._late: LateLearning | None = None
        self.checkpoint, self.save, self.learn = checkpoint, save, learn
        self._proba, self._names = proba and out is not None, ClassNames()
        self.max_events = math.inf if max_events is None else max_events
        self.observer = observer
        check_persistence(model, checkpoint=checkpoint is not None, save=save is not None)
        self._overwrite = overwrite
        if save is not None and not overwrite:
            try:
                check_replaced(save)
            except FileExistsError as error:
                raise SetupError(f"save {save}: {error.strerror}") from error
        if checkpoint is not None:
            _check_rewind(self.sinks.values())
        self._window = window
        self.identity = self._identity(window) | {k: repr(v) for k, v in (identity or {}).items()}
        self.report = Report(
            class_path(model),
            source.name,
            None if out is None else out.name,
            None if rejected is None else rejected.name,
            Metrics(window),
            refits=Refits.of(model),
            learned_before=getattr(model, "n_events_learned", 0),
            checkpoint=checkpoint,
        )
        self._started = time.perf_counter() if started is None else started
        self._position: Position = {}
        self._begun = Begun()
        self._stopping = self._unflushed = False
        self._order_notice = ""
        self._strange_labels = Notices(logger)
        self._is_unknown = True  # whether no event of this stream has come
        self._waits_for = "model"
        self._saved = (0, 0.0)  # events taken and time at the last checkpoint
        self._looked = (0, 0)  # events predicted and set aside at the last look at how many are
        self._warn_at = -math.inf

    def stop(self) -> None:
        """Ask the run to finish the batch in hand and end; may be called from a signal handler or another thread."""
        self._stopping = True
        for sink in self.sinks.values():
            if isinstance(sink, Advancing):
                sink.hurry()

    @property
    def waits_for(self) -> str:
        """What the run is doing now: model, streams, or brokers where these are live; empty once it has ended well."""
        is_live = _is_live(self.source) or any(isinstance(sink, Advancing) for sink in self.sinks.values())
        return "brokers" if is_live and self._waits_for == "streams" else self._waits_for

    def run(self) -> Report:
        """Run to the end of the stream, to `max_events`, or until stopped; where a run was killed, go on from there."""
        self._position = self.source.position
        self._begin()
        self.report.learner = self._learner
        if isinstance(self.source, JoinedSource):
            self.source.most = self.max_events - self.report.metrics.taken
        began = working_time()
        self._saved = (self.report.metrics.taken, time.perf_counter())
        self._looked = (self.report.metrics.events, self.report.metrics.rejected)
        try:
            self._loop(began)
            self._finish()
        except Exception as error:  # whatever it is, what was learned is worth keeping
            self.report.ended, self.report.seconds = "error", working_time() - began
            self._look()
            self._save_after(error)
            raise
        self._look()
        self._save()
        self._waits_for = ""
        return self.report

    def _look(self) -> None:
        """Note what the model has come to."""
        found = Insight.of(self.model)
        self.report.relevance, self.report.leaders = found.relevance, found.leaders
        self.report.autocorrelation = found.autocorrelation
        self.report.notices, self.report.refits = notices_of(self.model), Refits.of(self.model)
        self.report.source_notices = notices_of(self.source)
        self.report.notices += self.report.source_notices
        if not isinstance(self.model, Noticing):
            self.report.notices += twin_notices(self._learner.classes)
        self.report.notices += self._strange_labels.texts
        if self._late is not None and self._late.key_notice:
            self.report.notices.append(self._late.key_notice)
        if self._order_notice and self.report.metrics.order_notice:  # no label has come again since
            self.report.notices.append(self.report.metrics.order_notice)
        metrics = self.report.metrics
        self.report.history.end(self.model, metrics.judged, metrics.labels, metrics.seen.tolist())
        rejected = self.sinks.get("rejected")
        self.report.rejected = None if rejected is None else rejected.name  # it may have had to take another

    def _loop(self, began: float) -> None:
        report = self.report
        if self._over():
            return
        for batch in self._batches():
            self._take(batch)
            report.seconds, report.compile_seconds = working_time() - began, compile_seconds()
            if self._lagging is not None:
                report.lag, report.stalls = self._lagging.lag, self._lagging.stalls
            if self.observer is not None:
                report.refits, report.source_notices = Refits.of(self.model), notices_of(self.source)
                self.observer(report, self.source.fraction)
            self._look_at_order(self.source.fraction or 0.0)
            self._look_at_labels()
            if self._over():
                return
            self._keep(idle=not len(batch))
        report.ended = "max-events" if self._has_all else "end of stream"
        if not self._has_all:
            self._look_at_order(1.0)
        if self._late is not None:
            self._late.warn_of_keys()

    def _look_at_order(self, fraction: float) -> None:
        """Say once that labels come sorted, once half of a file says so, or all of another stream.

        The first events are no evidence: labels that persist have runs, too, but come again.
        """
        if self.learn and not self._order_notice and fraction >= _HALF:
            self._order_notice = self.report.metrics.order_notice
            if self._order_notice:
                logger.warning("%s: %s", self.report.source, self._order_notice)

    def _look_at_labels(self) -> None:
        """Say once of labels that they are no classes of a model that does not learn."""
        labels, classes = self.report.metrics.labels, self._learner.classes
        if classes and not self.learn and len(labels) > len(classes):
            came = [label for label, n in zip(labels, self.report.metrics.seen.tolist(), strict=False) if n]
            self._strange_labels.say(*stranger_notices(came, classes))

    def _batches(self) -> Iterator[Batch]:
        batches = iter(self.source)
        while True:
            with self._in_streams():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @contextlib.contextmanager
    def _in_streams(self, role: str | None = None) -> Iterator[None]:
        """Reading or writing; errors of a sink say what was to be written there."""
        self._waits_for = "streams"
        with contextlib.nullcontext() if role is None else _for(role):
            yield
        self._waits_for = "model"  # not after an error: sources and sinks are then closed

    @property
    def _has_all(self) -> bool:
        return self.report.metrics.taken >= self.max_events

    def _over(self) -> bool:
        if self._has_all and not isinstance(self.source, JoinedSource):  # which ends by itself, with the last labels
            self.report.ended = "max-events"
        elif self._stopping:
            self.report.ended = "stopped"
        return bool(self.report.ended)

    def _take(self, batch: Batch) -> None:
        rest, begun = self._begun.split(batch)
        metrics = self.report.metrics
        most = self.max_events - metrics.taken
        if len(rest) > most:
            # A source cannot be resumed inside a batch: the position stays, and beside it what was taken after it.
            part, self._begun = self._begun.first(rest, int(most))
            self._process_in_parts(part)
            return
        self._process_in_parts(rest)
        self._sample()
        if isinstance(self.source, JoinedSource):
            self.source.most = self.max_events - metrics.taken
        self._position, self._begun = batch.position, begun

    def _process_in_parts(self, batch: Batch) -> None:
        """Process a batch. Where batches are cut by how events come, the model is also looked at within it, as soon as
        that is due: a run that was killed and resumed looks at the same events.
        """
        while _is_cut_by_time(self.source) and batch.reaches_beyond(
            n := self.report.history.due - self.report.metrics.taken
        ):
            head, batch = batch.cut(n)
            self._process(head)
            self._sample()
        self._process(batch)

    def _sample(self) -> None:
        metrics = self.report.metrics
        self.report.history.take(self.model, metrics.taken, metrics.judged, metrics.labels, metrics.seen.tolist())

    def _process(self, batch: Batch) -> None:
        report, metrics = self.report, self.report.metrics
        if self._is_unknown and len(batch):
            self._is_unknown = False
            self._introduce(batch)
        batch_size, batch = len(batch), _with_labels(batch)
        before = working_time()
        if self._late is None:
            answers, joined = self._step(batch), None
            answers, decided = self._decisions.of(answers, self._learner.classes, learn=self.learn)
        else:
            answers, joined = self._late_step(self._late, batch)
        report.learner_seconds += working_time() - before
        report.events += batch_size
        kept, codes = answers.batch, answers.codes
        report.answers = answers
        metrics.taken += batch_size
        metrics.rejected += len(kept.rejected)
        if self._late is None:
            more = {"scores": answers.scores, "proba": answers.proba} | decided
            metrics.update(kept.labels, codes, self._learner.classes, **more)
        else:
            metrics.events += len(kept)
        self._check_hope(kept)
        if len(kept):
            self._write("out", prediction_table(answers, self._learner.classes, self._names if self._proba else None))
            if report.first_prediction_s is None:
                report.first_prediction_s = working_time() - self._started
        if self._late is not None and len(self._late.asked):
            self._write("requests", request_table(answers, self._learner.classes, self._late.asked.tolist()))
        if joined is not None and self._late is not None:
            self._judge(joined, self._late)
        if kept.rejected:
            table = rejection_table if self._late is None else rejection_table_of_two
            self._write("rejected", table(kept.rejected))
            report.examples += kept.rejected[: _EXAMPLES - len(report.examples)]
            report.rejects.add(kept.rejected)
            self._warn_of_rejects(kept.rejected[-1].reason)

    def _introduce(self, batch: Batch) -> None:
        """Let the model know what the stream declares, and compare its first events with those learned before."""
        if isinstance(self.model, Categorical) and isinstance(self.source, Declaring):
            self.model.keep_categories(self.source.categories)
        if self.report.learned_before and self.report.resumed is None:
            check_names(self.model, batch)

    def _step(self, batch: Batch) -> Answers:
        """Test, then train."""
        if self._wanted.reasons:
            return step_with_reasons(self._learner, batch, self.learn, self._wanted.reasons)
        return self._learner.step(batch, self.learn)

    def _late_step(self, late: LateLearning, batch: Batch) -> tuple[Answers, Joined]:
        """Predict events, and learn those whose labels come."""
        if self._wanted.reasons:
            return late_step_with_reasons(late, batch, self._wanted.reasons)
        return late.step(batch)

    def _judge(self, joined: Joined, late: LateLearning) -> None:
        """Take what found its label, and what has waited in vain."""
        if not len(joined):
            return
        came, classes = joined.came, self._learner.classes
        labels = joined.labels.take(came)
        codes, scores = joined.codes[came], joined.scores[came]
        more: dict[str, Any] = {}
        if joined.held:
            more = self._decisions.of_joined(joined, np.flatnonzero(came).tolist(), classes)
        elif len(classes) <= 2:
            more["proba"] = of_two(codes, scores)[:, : len(classes)]
        else:
            self.report.metrics.measures.unrate()
        self.report.metrics.judge(labels, codes, classes, scores=scores, **more)
        if "joined" in self.sinks:
            self._write("joined", late.table(joined))

    def _warn_of_rejects(self, reason: str) -> None:
        """Say so where of late more than half of the events were set aside, now and then."""
        metrics, now = self.report.metrics, time.monotonic()
        predicted, rejected = metrics.events - self._looked[0], metrics.rejected - self._looked[1]
        if predicted + rejected < _LOOK:
            return
        self._looked = (metrics.events, metrics.rejected)
        if rejected > predicted and now >= self._warn_at:
            self._warn_at = now + _WARN_AGAIN_S
            logger.warning(
                "%s: of the last %s events %s were set aside, the last one because: %s",
                *(self.report.source, f"{predicted + rejected:,}", f"{rejected:,}", reason),
            )

    def _check_hope(self, kept: Batch) -> None:
        """Stop where the model could not learn a single one of the first events, rather than set aside the stream."""
        metrics = self.report.metrics
        refused = metrics.taken - metrics.events
        if refused >= _HOPELESS and refused > metrics.events and not metrics.judged + metrics.unanswered:
            reason = kept.rejected[-1].reason
            raise RunError(f"{self.report.model} refused {refused} of the first {metrics.taken} events: {reason}")

    def _write(self, role: str, table: Mapping[str, Sequence[Any]]) -> None:
        sink = self.sinks.get(role)
        if sink is None:
            return
        with self._in_streams(role):
            sink.write(table)
        if sink.can_rewind or isinstance(sink, Advancing):
            self._unflushed = True
        else:
            with self._in_streams(role):
                sink.flush()  # somebody reads along

    def _keep(self, *, idle: bool) -> None:
        """Between two batches: a checkpoint where it is due; while nothing arrives, results are made durable."""
        events, at = self._saved
        if self.checkpoint is not None and self.checkpoint.due(
            self.report.metrics.taken - events, time.perf_counter() - at
        ):
            self._snapshot()
        else:
            self._advance(idle)

    def _advance(self, idle: bool) -> None:
        for role, sink in self.sinks.items():
            with self._in_streams(role):
                if isinstance(sink, Advancing):
                    sink.advance()
                elif idle and self._unflushed:
                    sink.flush()
        self._unflushed &= not idle

    def _flush(self) -> None:
        for role, sink in self.sinks.items():
            with self._in_streams(role):
                sink.flush()
        self._unflushed = False

    def _finish(self) -> None:
        self._flush()
        self._snapshot()
        known = set(self._learner.classes)
        for label, option in self._wanted.named.items():
            if known and meant(label, known) not in known:
                logger.warning("%s speaks of %r, which was the label of no event", option, label)

    def _save(self) -> None:
        if self.save is None:
            return
        try:
            self.model.save(self.save, overwrite=self._overwrite)
        except OSError as error:
            raise RunError(f"the model could not be saved as {self.save}: {error.strerror or error}") from error

    def _save_after(self, error: Exception) -> None:
        try:
            self._save()
        except RunError as another:
            raise RunError(f"{error}; and {another}") from error

    def _snapshot(self) -> None:
        if self.checkpoint is None:
            return
        self._flush()
        sinks = {role: sink.position for role, sink in self.sinks.items()}
        states = self.model.state(), self.report.metrics.state(), self.report.history.state()
        with writing(self.checkpoint.pieces):
            late = None if self._late is None else self._late.state(self.checkpoint.pieces)
        decisions = self._decisions.state()
        self.checkpoint.write(
            Snapshot(
                *(self.identity, self._position, sinks, *states, self._begun.state(), late, decisions),
                ended=self.report.ended,
            )
        )
        if self._late is not None:
            self.checkpoint.keep_pieces(self._late.store.files)
        self._saved = (self.report.metrics.taken, time.perf_counter())
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
            self._check_seek()
        for role, sink in self.sinks.items():
            if isinstance(sink, Replacing):
                try:
                    with _for(role):
                        sink.check_replaced()
                except ConnectorError as error:
                    raise SetupError(str(error)) from error
        if self.checkpoint is not None:
            self.checkpoint.discard()
        if any(isinstance(sink, Advancing) for sink in self.sinks.values()):
            self._snapshot()  # what these commit stays: a crash before the next checkpoint must find one to go back to
        self._flush()

    def _use_model(self) -> None:
        """Drive the model, which is new or was taken up again."""
        scored = self._settings is not None or "out" in self.sinks
        self._decisions = RunDecisions(self._wanted, self.model)
        # Where labels come later probabilities wait with the events, and are kept only if they are wanted.
        proba = self._proba or self._wanted.needs_probabilities or self._settings is None
        self._learner = as_learner(self.model, scored=scored or self._wanted.needs_probabilities, proba=proba)
        if self._settings is not None:
            decisions = self._decisions
            self._late = LateLearning(
                self._learner, self._settings, learn=self.learn, window=self._window, decisions=decisions
            )
            self._late.join.tells_keys = "joined" in self.sinks
            self.report.late = self._late

    def _check_seek(self) -> None:
        """Refuse a stream that could not be resumed, such as a pipe, before there is a need to."""
        try:
            self.source.seek(self._position)
        except ConnectorError as error:
            raise SetupError(f"{error}, or leave out --checkpoint") from error

    def _resume(self, snapshot: Snapshot, checkpoint: Checkpoint) -> None:
        try:
            self.model = type(self.model).from_state(*snapshot.model)
            self.report.metrics = Metrics.from_state(*snapshot.metrics)
            self.report.history = History.from_state(*snapshot.history)
            self._use_model()
            if self._late is not None:
                self._late.restore(snapshot.late or ({}, {}), checkpoint.pieces)
            if snapshot.decisions is not None:
                self._decisions.restore(snapshot.decisions)
            self._begun = Begun.from_state(snapshot.begun) if snapshot.begun else Begun()
            with self._in_streams():
                self.source.seek(snapshot.source)
                for role, sink in self.sinks.items():
                    sink.rewind(snapshot.sinks[role])
        except UnreachableError:
            raise  # nothing is wrong with what is there
        except (ConnectorError, OSError, *DAMAGED) as error:
            raise SetupError(f"cannot go on from the checkpoint in {checkpoint.directory}: {error}") from error
        self._position = snapshot.source
        self.report.resumed = self.report.metrics.taken

    def _identity(self, window: int) -> dict[str, str]:
        """What a checkpoint must agree in, as text: parameters may be of any type."""
        params = self.model._get_params() if self.checkpoint is not None else {}
        return {
            "source": repr(self.source.identity),
            "model": class_path(self.model),
            **{f"parameter {name}": repr(value) for name, value in params.items()},
            **{f"--{role}": repr(sink.identity) for role, sink in self.sinks.items()},
            "learning": repr(self.learn),
            **({"--proba": "True"} if self._proba else {}),
            **self._wanted.identity,
            **({} if self._settings is None else self._settings.identity),
            "--window": repr(window),
        }


def run(model: Any, source: Source, **options: Any) -> Report:
    """Run a model over a source; the options are those of `Runner`."""
    return Runner(model, source, **options).run()


def check_persistence(model: Any, *, checkpoint: bool, save: bool) -> None:
    """Refuse what cannot be kept: only classifiers that give their state as plain arrays are, nothing is pickled."""
    asked = " and ".join(name for name, wanted in (("--checkpoint", checkpoint), ("--save", save)) if wanted)
    if asked and not isinstance(model, Persistent):
        raise SetupError(
            f"{class_path(model)} cannot be kept on disk, as nothing is pickled here; "
            f"leave out {asked}, or use a model of this package such as --model blend"
        )
    if asked:
        try:
            model.state()
        except TypeError as error:
            raise SetupError(f"{asked}: {error}") from error


def check_names(model: Any, batch: Batch) -> None:
    """Refuse events without a single feature that the model has learned; warn where few are known.

    Raises
    ------
    RunError
        Where none is known.
    """
    from streamsvm.features.names import FeatureMismatchError
    from streamsvm.models.saved import innermost

    try:
        getattr(innermost(model), "check_names", _accept)(batch.features or batch.rows())
    except FeatureMismatchError as error:
        raise RunError(str(error)) from error


def _accept(_: Any) -> None:
    """Of a model that does not tell, nothing is refused."""


def class_path(model: Any) -> str:
    """The dotted path of a model's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def prediction_table(
    answers: Answers, classes: Sequence[Any], class_names: ClassNames | None
) -> dict[str, Sequence[Any]]:
    """The records of a batch: where each event stood, its key if it has one, prediction, score, and label if known.

    Where all probabilities are wanted (there are names of classes) they stand in one field, by class: which classes
    there will be nobody knows when the columns are settled. So do sets of labels.
    """
    batch = answers.batch
    names = np.fromiter((*classes, None), object, len(classes) + 1)  # code -1 is the last: none
    keys = {} if batch.keys is None else {"key": batch.keys}
    results: dict[str, Any] = {"prediction": names[answers.codes].tolist(), "score": with_gaps(answers.scores)}
    if batch.late is None:
        results["label"] = batch.labels
    if answers.members is not None:
        results["set"] = _sets_named(answers.members, classes)
    if answers.decisions is not None:
        results["decision"] = names[answers.decisions].tolist()
    if answers.alarms is not None:
        results["alarm"] = answers.alarms.tolist()
    if answers.reasons is not None:
        results["reasons"] = answers.reasons
    if class_names is not None and answers.proba is not None:
        fields, known = class_names.of(classes), (answers.codes >= 0) & ~np.isnan(answers.proba).any(axis=1)
        results["proba"] = [
            {fields[code]: p for code, p in enumerate(row) if p} if is_known else None
            for row, is_known in zip(answers.proba.tolist(), known.tolist(), strict=True)
        ]
    return {**batch.origins.columns, **keys, **results}


def _sets_named(members: NDArray[np.bool_], classes: Sequence[Any]) -> list[list[Any] | None]:
    """Sets by their labels, None for those with none; there are few different ones."""
    bits = np.packbits(members, axis=1)
    words = np.zeros((len(bits), max(-(-bits.shape[1] // 8), 1) * 8), np.uint8)
    words[:, : bits.shape[1]] = bits
    columns = [column.tolist() for column in words.view(np.uint64).T]
    keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    found = {key: list(compress(classes, members[i])) or None for key, i in dict(zip(keys, count())).items()}
    return list(map(found.__getitem__, keys))


def request_table(answers: Answers, classes: Sequence[Any], asked: Sequence[int]) -> dict[str, Sequence[Any]]:
    """The records of events whose labels are asked for: where each stood, its key, what is predicted, and its score."""
    batch, named = answers.batch, [*classes, None]
    places = {name: [column[i] for i in asked] for name, column in batch.origins.columns.items()}
    return places | {
        "key": [(batch.keys or [])[i] for i in asked],
        "prediction": [named[answers.codes[i]] for i in asked],
        "score": with_gaps(answers.scores[asked]),
    }


def rejection_table(rejected: Sequence[Rejected]) -> dict[str, Sequence[Any]]:
    """Events set aside as a table: reason, raw text, and where they stood."""
    origins = {name: [r.origin.get(name) for r in rejected] for name in rejected[0].origin}
    return {"reason": [r.reason for r in rejected], "raw": [r.raw for r in rejected], **origins}


def rejection_table_of_two(rejected: Sequence[Rejected]) -> dict[str, Sequence[Any]]:
    """The same for events and labels, which have their places in streams of different kinds."""
    places = [list(one.origin.values()) for one in rejected]
    return {
        "reason": [one.reason for one in rejected],
        "raw": [one.raw for one in rejected],
        "stream": [str(place[0]) if place else None for place in places],
        "part": [place[1] if len(place) > 2 else None for place in places],
        "number": [place[-1] if place else None for place in places],
    }


PLACES = ("stream", "part", "number", "partition", "offset", "line", "row", "element", "event", "how")
"""The columns of results, of whatever source, that tell them apart: where an event stood, and how it came by its label:
one that waited in vain may have a label all the same, later."""


def _is_live(source: Source) -> bool:
    if isinstance(source, JoinedSource):
        return _is_live(source.events) or _is_live(source.labels)
    return isinstance(source, Lagging)


def _is_cut_by_time(source: Source) -> bool:
    """Whether its batches would be others if it were read again."""
    if isinstance(source, JoinedSource):
        return _is_cut_by_time(source.events) or _is_cut_by_time(source.labels)
    return isinstance(source, Lagging) or source.fraction is None


@contextlib.contextmanager
def _for(role: str) -> Iterator[None]:
    """Errors of a sink say what was to be written there."""
    try:
        yield
    except ConnectorError as error:
        error.args = (f"{_PURPOSES[role]}: {error}",)
        raise


def _check_rewind(sinks: Any) -> None:
    for sink in sinks:
        if not sink.can_rewind:
            raise SetupError(
                f"{sink.name} cannot take back what was written, so results could come twice after a crash; "
                "write to a file, or leave out --checkpoint"
            )


def _with_labels(batch: Batch) -> Batch:
    """The batch without events whose label is none, such as a list in JSON."""
    try:
        set(batch.labels)
    except TypeError:
        labels = enumerate(batch.labels)
        kinds = {i: type(label).__name__ for i, label in labels if not isinstance(label, Hashable)}
        return batch.without({i: f"the label is a {kind}, not one value" for i, kind in kinds.items()})
    return batch
