"""The stages of a run, as its settings and its source require."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.joined import JoinedSource
from streamsvm.run import stages
from streamsvm.run.decisions import DecideStage, RunDecisions
from streamsvm.run.formatting import ClassNames
from streamsvm.run.late_labels import JoinStage
from streamsvm.run.learners import as_learner
from streamsvm.run.stage import Stage

if TYPE_CHECKING:
    from streamsvm.run.runner import Runner


def stages_of(run: Runner) -> list[Stage]:
    """Return the stages of a run, in the order in which events pass them.

    Parameters
    ----------
    run
        The run, with its new or restored model. It gets the learner.
    """
    config, report = run.config, run.report
    of_two, needs_all = isinstance(run.source, JoinedSource), config.needs_probabilities
    class_names = ClassNames() if config.proba and "out" in run.outputs else None
    # With late labels, probabilities are stored with the events, so only if requested.
    run.learner = report.learner = as_learner(
        run.model,
        scored=of_two or "out" in run.outputs or needs_all,
        proba=not of_two or needs_all or class_names is not None,
    )
    decisions = RunDecisions(config, run.model)
    run.parts |= {"metrics": report.metrics, "history": report.history, "decisions": decisions, "notices": run.notices}
    predict = JoinStage(run, decisions) if of_two else stages.PredictStage(run)
    return [
        stages.SampleStage(run),
        *([stages.ExplainStage(run)] if config.explain else []),
        stages.DeclareStage(run),
        predict,
        *([] if of_two else [DecideStage(run, decisions)]),  # the join stores decisions with the events
        stages.MeasureStage(run),
        *([] if report.monitor is None else [stages.MonitorStage(run, report.monitor, predict)]),
        stages.WriteStage(run, class_names),
        stages.RejectStage(run),
        stages.ObserveStage(run),
    ]
