"""The stages of a run, as its settings and its source require."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.joined import JoinedSource
from streamsvm.run.decisions import DecideStage, RunDecisions
from streamsvm.run.late_labels import JoinStage
from streamsvm.run.learners import as_learner
from streamsvm.run.names import ClassNames
from streamsvm.run.stage import Stage
from streamsvm.run.stages import (
    DeclareStage,
    ExplainStage,
    MeasureStage,
    MonitorStage,
    ObserveStage,
    PredictStage,
    RejectStage,
    SampleStage,
    WriteStage,
)

if TYPE_CHECKING:
    from streamsvm.run.runner import Runner


def stages_of(run: Runner) -> list[Stage]:
    """Return the stages of a run, in the order in which events pass them.

    The report gets the learner.

    Parameters
    ----------
    run
        The run, with its new or restored model.
    """
    model, source, config, report, outputs = run.model, run.source, run.config, run.report, run.outputs
    of_two, needs_all = isinstance(source, JoinedSource), config.needs_probabilities
    class_names = ClassNames() if config.proba and "out" in outputs else None
    # With late labels, probabilities are stored with the events, so only if requested.
    learner = report.learner = as_learner(
        model,
        scored=of_two or "out" in outputs or needs_all,
        proba=not of_two or needs_all or class_names is not None,
    )
    decisions = RunDecisions(config, model)
    predict: PredictStage | JoinStage
    if of_two:
        predict = JoinStage(learner, report, decisions, config, run.checkpoint, outputs)
        stages: list[Stage] = [predict]
    else:
        predict = PredictStage(learner, report, learn=config.learn)
        stages = [predict, DecideStage(decisions, learner, learn=config.learn)]
    stages.insert(0, DeclareStage(model, source, report))
    if config.explain:
        stages.insert(0, ExplainStage(learner, report, config.explain))
    stages.append(MeasureStage(learner, report, labels_are_late=of_two))
    if report.monitor is not None:
        stages.append(MonitorStage(report.monitor, report.history, predict))
    return [
        SampleStage(report.history, report.metrics, model, source),
        *stages,
        WriteStage(outputs, learner, report, class_names, run.started),
        RejectStage(outputs, report, run.notices, of_two=of_two),
        ObserveStage(report, learner, source, run.notices, run.observers),
    ]
