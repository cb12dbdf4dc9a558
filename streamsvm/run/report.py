"""State or result of a run, for observers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from streamsvm.labels import twin_notices
from streamsvm.online.adapters import Predictions
from streamsvm.run.checkpoint import Checkpoint
from streamsvm.run.estimate import Estimated
from streamsvm.run.history import History, Insight, RefitSummary, notices_of
from streamsvm.run.learners import Learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.monitoring import RunMonitor
from streamsvm.run.notices import Rejects, RunNotices

if TYPE_CHECKING:
    from streamsvm.run.late_labels import JoinStage


@dataclass(slots=True, repr=False)
class Report:
    """State or result of a run; `str` gives the text printed by the command line.

    Parameters
    ----------
    model, source, out, rejected
        Names for messages; None if there is no such sink.
    metrics, history
        All counts and all samples of the model, including those before a resume.
    insight
        Final relevance of features, leading heads and label autocorrelation of the model.
    notices, source_notices
        Notices of the model and the source, and of the source alone.
    refits
        Refits of the model, including those before the run; None for models without refits.
    learned_before
        Number of events that the model had learned before the run.
    learns
        Whether the model learns.
    ended
        Reason for the end: "end of stream", "max-events", "stopped" or "error"; empty while running.
    resumed
        Number of events at the checkpoint from which this process resumed; None if it did not resume.
    events
        Number of events of this process.
    rate
        Recent events per second of this process.
    began, seconds, learner_seconds
        Start of the loop as `working_time`, wall time of the loop, and of the model within it.
    compile_seconds
        Wall time of compiling kernels in this process, which other times exclude.
    first_prediction_s
        Seconds from the start of the process to the first prediction.
    checkpoint
        Checkpoint with snapshots, None for no checkpoint.
    lag
        Number of events that each part of a live source is behind, by name; None if unknown.
    stalls
        How often this process received no events for a long time although the source was behind.
    predictions
        The latest predictions, for observers.
    rejects
        Rejected events of this process, by reason.
    late
        State of delayed labels, if used.
    monitor
        Monitor of the features, if used.

    Attributes
    ----------
    learner
        The learner of the run, for observers.
    """

    model: str
    source: str
    out: str | None
    rejected: str | None
    metrics: Metrics
    history: History = field(default_factory=History)
    insight: Insight = field(default_factory=Insight)
    notices: list[str] = field(default_factory=list)
    source_notices: list[str] = field(default_factory=list)
    refits: RefitSummary | None = None
    learned_before: int = 0
    learns: bool = True
    ended: str = ""
    resumed: int | None = None
    events: int = 0
    rate: float = 0.0
    began: float = 0.0
    seconds: float = 0.0
    learner_seconds: float = 0.0
    compile_seconds: float = 0.0
    first_prediction_s: float | None = None
    checkpoint: Checkpoint | None = None
    lag: Mapping[Any, int] | None = None
    stalls: int = 0
    learner: Learner = field(init=False)
    predictions: Predictions | None = None
    rejects: Rejects = field(default_factory=Rejects)
    late: JoinStage | None = None
    monitor: RunMonitor | None = None

    def __repr__(self) -> str:
        return (
            f"<Report: {self.metrics.events:,} events, accuracy {self.metrics.accuracy:.4f}, {self.ended or 'running'}>"
        )

    def __str__(self) -> str:
        from streamsvm.run.report_text import text  # circular import

        return text(self)

    def changes(self) -> tuple[int, list[str]]:
        """Describe changes since the last accuracy drop, else since half of all events.

        Returns
        -------
        since, changes
            Number of judged events compared with, and the changes; see `History.changes`.
        """
        drops = self.metrics.drops.last
        since = drops[-1].judged if drops else self.metrics.judged // 2
        return since, self.history.changes(since)

    @property
    def changed_shares(self) -> dict[Hashable, float]:
        """Share of each changed feature in the relevance, weighted by its change."""
        return {} if self.monitor is None else self.monitor.changed_shares(self.history)

    @property
    def estimated(self) -> Estimated:
        """Accuracy of the latest events, estimated before their labels arrive.

        It is lowered while features are changed.
        """
        if self.late is None:
            return Estimated(0, math.nan, math.nan)
        shares = self.metrics.seen / max(float(self.metrics.seen.sum()), 1.0)
        return self.late.estimate.now(min(1.0, sum(self.changed_shares.values())), float((shares**2).sum()))

    def record_model(self, model: Any, notices: RunNotices) -> None:
        """Record the final state of the model.

        Parameters
        ----------
        model
            Model at the end.
        notices
            Warnings of the run and its source.
        """
        metrics, self.insight = self.metrics, Insight.of(model)
        self.refits, self.source_notices = RefitSummary.of(model), notices.of_source
        self.notices = notices_of(model) + self.source_notices
        if not hasattr(model, "notices"):
            self.notices += twin_notices(self.learner.classes)
        self.notices += notices.of_labels
        if self.late is not None and self.late.key_notice:
            self.notices.append(self.late.key_notice)
        if self.monitor is not None:
            self.notices += self.monitor.final_notices()
        self.history.end(model, metrics.judged, metrics.labels, metrics.seen.tolist())


class Observer(Protocol):
    """A callback after every batch, such as a progress bar."""

    def __call__(self, report: Report, fraction: float | None) -> None: ...
