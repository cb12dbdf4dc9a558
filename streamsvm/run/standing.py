"""How a run stands, or ended, for those who observe it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from connectors.events import Noticing, Rejected, Source
from streamsvm.labels import twin_notices
from streamsvm.run.abilities import Insight, Refits, notices_of
from streamsvm.run.checkpoint import Checkpoint
from streamsvm.run.history import History
from streamsvm.run.late import JoinStage
from streamsvm.run.learners import Answers, Learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.rejects import Rejects


@dataclass(slots=True, repr=False)
class Report:
    """The state of a run, or its result; `str` gives the report that the command line prints.

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
    late: JoinStage | None = None

    def __repr__(self) -> str:
        return (
            f"<Report: {self.metrics.events:,} events, accuracy {self.metrics.accuracy:.4f}, {self.ended or 'running'}>"
        )

    def __str__(self) -> str:
        from streamsvm.run.report import text  # which needs this module

        return text(self)

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

    def look(self, model: Any, source: Source, notes: Sequence[str]) -> None:
        """Note what the model has come to.

        Parameters
        ----------
        model, source
            These at the end.
        notes
            What the run has warned of.
        """
        found, metrics = Insight.of(model), self.metrics
        self.relevance, self.leaders, self.autocorrelation = found.relevance, found.leaders, found.autocorrelation
        self.refits, self.source_notices = Refits.of(model), notices_of(source)
        self.notices = notices_of(model) + self.source_notices
        if not isinstance(model, Noticing) and self.learner is not None:
            self.notices += twin_notices(self.learner.classes)
        self.notices += notes
        if self.late is not None and self.late.key_notice:
            self.notices.append(self.late.key_notice)
        self.history.end(model, metrics.judged, metrics.labels, metrics.seen.tolist())

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
