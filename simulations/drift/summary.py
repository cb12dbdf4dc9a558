"""Summary statistics of the report, from records of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

OURS = "StreamSVM"
# Difference in accuracy that counts as a win or loss: half a percentage point.
BEHIND = 0.005
# Maximum share of the rarest class for average precision to be reported.
RARE = 0.2
# Minimum share of the streams for a learner to be in the first ranking.
ENOUGH = 0.9


@dataclass(frozen=True)
class Standing:
    """Comparison of learners over the scenarios that all of them have in common.

    Parameters
    ----------
    accuracy
        Mean accuracy over the common seeds: a row per scenario, a column per learner.
    ranks
        Mean ranks, in ascending order.
    nemenyi
        p value of each pair: Nemenyi's test after Friedman's.
    wilcoxon
        p value of each pair: Wilcoxon's signed-rank test, with Holm's correction for all pairs.
    friedman
        p value of Friedman's test.
    """

    accuracy: pd.DataFrame
    ranks: pd.Series
    nemenyi: pd.DataFrame
    wilcoxon: pd.DataFrame
    friedman: float


def frame(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the completed cells, of each scenario those of the most common length."""
    cells = pd.DataFrame([record for record in records if "accuracy" in record])
    if not len(cells):
        return cells
    common = cells.groupby("scenario").planned.transform(lambda lengths: lengths.mode().max())
    return cells[cells.planned == common].sort_values(["scenario", "learner", "seed"], ignore_index=True)


def means(cells: pd.DataFrame, learners: Sequence[str]) -> pd.DataFrame:
    """Return means over the common seeds: a row per scenario, a column per learner."""
    return _wide(cells, learners).groupby(level="scenario").mean()


def common(cells: pd.DataFrame, learners: Sequence[str]) -> pd.MultiIndex:
    """Return the scenarios and seeds that all learners have in common."""
    return _wide(cells, learners).index


def companies(cells: pd.DataFrame, ranked: Sequence[str]) -> list[list[str]]:
    """Return the groups of learners to rank.

    The first group has nearly all streams. If there are other learners, a second group has all of them.
    """
    n_met = cells.groupby("learner").size()
    first = [name for name in ranked if n_met[name] >= ENOUGH * n_met.max()]
    return [first] if len(first) == len(ranked) else [first, list(ranked)]


def _wide(cells: pd.DataFrame, learners: Sequence[str]) -> pd.DataFrame:
    wide = cells[cells.learner.isin(learners)].pivot_table("accuracy", ["scenario", "seed"], "learner")
    return wide.reindex(columns=list(learners)).dropna()


def standing(cells: pd.DataFrame, learners: Sequence[str]) -> Standing | None:
    """Compute mean ranks and tests.

    None if there are fewer than three learners, or fewer than three common scenarios.
    """
    import scikit_posthocs
    from scipy import stats

    table = means(cells, learners)
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
    """Compare StreamSVM with each learner.

    Columns are wins, ties and losses over scenarios, the mean and median gain in percentage points, p values, and the
    ratio of the costs.
    """
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
            "relative cost": cost[name] / cost[OURS],
        }
    return pd.DataFrame(rows).T


def behind(cells: pd.DataFrame, others: Sequence[str]) -> pd.DataFrame:
    """Return the scenarios where StreamSVM is behind, and the best learner there.

    The largest difference comes first.
    """
    rows = []
    for other in others:
        both = means(cells, [OURS, other])
        gain = both[OURS] - both[other]
        rows += [
            {"scenario": name, "behind": other, "points": 100.0 * value}
            for name, value in gain.items()
            if value < -BEHIND
        ]
    found = pd.DataFrame(rows, columns=["scenario", "behind", "points"])
    return found.loc[found.groupby("scenario").points.idxmin()].sort_values("points")


def overview(cells: pd.DataFrame, learners: Sequence[str], ranked: Sequence[str]) -> pd.DataFrame:
    """Return mean measures of each learner over the streams of all ranked learners.

    Learners that lack some of these streams have no means.
    """
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
    shown["µs per event"] = own.groupby("learner").us.median()
    shown["MB"] = own.groupby("learner").bytes.median() / 1e6 if "bytes" in own else np.nan
    shown["cells"] = cells.groupby("learner").size()
    return shown.reindex([name for name in learners if name in shown.index])


def curve(cells: pd.DataFrame, scenario: str, learner: str) -> np.ndarray:
    """Return accuracy over time, the mean over the seeds."""
    own = cells[(cells.scenario == scenario) & (cells.learner == learner)]
    return np.mean([list(each) for each in own.curve], axis=0) if len(own) else np.zeros(0)
