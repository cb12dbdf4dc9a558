"""From records of cells to the figures of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

OURS = "StreamSVM"
# Half a point of accuracy: what counts as behind.
BEHIND = 0.005
# Where at most one event in so many is of the rarest class, average precision says more than accuracy.
RARE = 0.2
# Who has met this share of the streams is ranked beside the others over what all have met; who has met fewer, apart.
ENOUGH = 0.9


@dataclass(frozen=True)
class Standing:
    """How learners stand to each other over the scenarios that all of them have met.

    Parameters
    ----------
    accuracy
        A row a scenario, a column a learner: the mean over the seeds that all have met.
    ranks
        Mean ranks, the best first.
    nemenyi
        p of each pair: Nemenyi's test after Friedman's.
    wilcoxon
        p of each pair: Wilcoxon's signed ranks, with Holm's correction for all pairs.
    friedman
        p of no difference at all.
    """

    accuracy: pd.DataFrame
    ranks: pd.Series
    nemenyi: pd.DataFrame
    wilcoxon: pd.DataFrame
    friedman: float


def frame(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The cells that were done, of each scenario those of the length that most have."""
    cells = pd.DataFrame([record for record in records if "accuracy" in record])
    if not len(cells):
        return cells
    common = cells.groupby("scenario").planned.transform(lambda lengths: lengths.mode().max())
    return cells[cells.planned == common].sort_values(["scenario", "learner", "seed"], ignore_index=True)


def means(cells: pd.DataFrame, column: str, learners: Sequence[str]) -> pd.DataFrame:
    """A row a scenario and a column a learner: means over the seeds that all learners have met there."""
    return _wide(cells, column, learners).groupby(level="scenario").mean()


def common(cells: pd.DataFrame, learners: Sequence[str]) -> pd.MultiIndex:
    """The scenarios and seeds that all learners have met."""
    return _wide(cells, "accuracy", learners).index


def companies(cells: pd.DataFrame, ranked: Sequence[str]) -> list[list[str]]:
    """Who are ranked together: those that have met nearly all streams, then, where there are others, everybody."""
    n_met = cells.groupby("learner").size()
    first = [name for name in ranked if n_met[name] >= ENOUGH * n_met.max()]
    return [first] if len(first) == len(ranked) else [first, list(ranked)]


def _wide(cells: pd.DataFrame, column: str, learners: Sequence[str]) -> pd.DataFrame:
    wide = cells[cells.learner.isin(learners)].pivot_table(column, ["scenario", "seed"], "learner")
    return wide.reindex(columns=list(learners)).dropna()


def standing(cells: pd.DataFrame, learners: Sequence[str]) -> Standing | None:
    """Mean ranks and tests; None below three learners or scenarios that all of these have met."""
    import scikit_posthocs
    from scipy import stats

    table = means(cells, "accuracy", learners)
    if len(table) < 3 or len(learners) < 3:
        return None
    ranks = table.rank(axis=1, ascending=False).mean().sort_values()
    table = table[ranks.index]
    long = table.melt(ignore_index=False, value_name="accuracy", var_name="learner").reset_index()
    return Standing(
        table,
        ranks,
        scikit_posthocs.posthoc_nemenyi_friedman(table.to_numpy()).set_axis(ranks.index).set_axis(ranks.index, axis=1),
        scikit_posthocs.posthoc_wilcoxon(
            long, val_col="accuracy", group_col="learner", p_adjust="holm", zero_method="zsplit", sort=False
        ),
        float(stats.friedmanchisquare(*table.to_numpy().T).pvalue),
    )


def duels(found: Standing, cells: pd.DataFrame) -> pd.DataFrame:
    """Against each learner: wins, losses and ties of ours over scenarios, the mean gain in points, p, and the cost."""
    own, rows = found.accuracy[OURS], {}
    cost = cells.groupby("learner").us.median()
    for name in found.ranks.index.drop(OURS):
        gain = own - found.accuracy[name]
        rows[name] = {
            "wins": int((gain > BEHIND).sum()),
            "ties": int((gain.abs() <= BEHIND).sum()),
            "losses": int((gain < -BEHIND).sum()),
            "mean gain": 100.0 * gain.mean(),
            "median gain": 100.0 * gain.median(),
            "Nemenyi p": found.nemenyi.loc[OURS, name],
            "Wilcoxon p": found.wilcoxon.loc[OURS, name],
            "times the cost": cost[name] / cost[OURS],
        }
    return pd.DataFrame(rows).T


def behind(cells: pd.DataFrame, others: Sequence[str]) -> pd.DataFrame:
    """The scenarios where ours is more than half a point behind another: by how much, and whom. The worst first."""
    rows = []
    for other in others:
        both = means(cells, "accuracy", [OURS, other])
        gain = both[OURS] - both[other]
        rows += [
            {"scenario": name, "behind": other, "points": 100.0 * value}
            for name, value in gain.items()
            if value < -BEHIND
        ]
    found = pd.DataFrame(rows, columns=["scenario", "behind", "points"])
    return found.loc[found.groupby("scenario").points.idxmin()].sort_values("points")


def overview(cells: pd.DataFrame, learners: Sequence[str], ranked: Sequence[str]) -> pd.DataFrame:
    """A row a learner: means over what all ranked ones have met, of others where they have met all that too."""
    wanted = {
        "accuracy": "accuracy",
        "kappa": "kappa",
        "balanced": "balanced accuracy",
        "log_loss": "log loss",
    }
    met = cells.set_index(["scenario", "seed"]).index.isin(common(cells, ranked))
    own = cells[met & cells.learner.isin(learners)]
    complete = own.groupby("learner").size() == own.groupby("learner").size().max()
    shown = own.groupby("learner")[list(wanted)].mean().rename(columns=wanted).where(complete)
    rare = own[own.groupby("scenario").rarest.transform("mean") < RARE]
    shown["average precision"] = rare.groupby("learner").average_precision.mean().where(complete)
    drifted = own[["learner", "recovered"]].explode("recovered").dropna().astype({"recovered": float})
    shown["events until recovered"] = drifted.groupby("learner").recovered.mean().where(complete)
    shown["µs an event"] = own.groupby("learner").us.median()
    shown["MB"] = own.groupby("learner").bytes.median() / 1e6 if "bytes" in own else np.nan
    shown["cells"] = cells.groupby("learner").size()
    return shown.reindex([name for name in learners if name in shown.index])


def curve(cells: pd.DataFrame, scenario: str, learner: str) -> np.ndarray:
    """Accuracy over time, the mean over the seeds."""
    own = cells[(cells.scenario == scenario) & (cells.learner == learner)]
    return np.mean([list(each) for each in own.curve], axis=0) if len(own) else np.zeros(0)
