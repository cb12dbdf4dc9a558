"""The report of the drift simulations, as Markdown and as a single HTML file."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replaced
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from connectors.synthetic import Scenario, find, names
from simulations import tables
from simulations.drift import pictures, summary
from simulations.drift.store import Store
from simulations.drift.summary import OURS
from simulations.learners import Learner
from simulations.learners import table as known_learners
from simulations.storage import PICTURES, RESULTS, is_older, replace
from simulations.tables import OLDER, described, older

# Scenarios of the plot at the top of the report, one of each kind.
SHOWN = ("sea-sudden", "agrawal-sudden", "mixed-gradual", "rbf-incremental", "stagger-recurring", "hyperplane-scale")
_WHERE = "../../simulations/pictures/"
FACES = (OURS, "ARF", "SRP", "HAT", "LR")


def write(store: Store, scenarios: Sequence[Scenario], learners: Mapping[str, Learner], out: Path) -> str:
    """Write the report of the stored results; returns where it is."""
    cells = _cells(store, scenarios)
    if not len(cells):
        return "nothing is kept of these scenarios yet"
    own = out == RESULTS
    page, images = (tables.PAGES / "drift.md", PICTURES) if own else (out / "drift.md", out)
    sections = _sections(cells, scenarios, learners)
    drawn = draw(cells, scenarios, learners)
    for name, image in drawn.items():
        replace(images / f"{name}.png", image)
    replace(page, markdown(sections, _WHERE if own else ""))
    replace(out / "drift.html", page_of(sections, drawn))
    return f"{page} and {out / 'drift.html'}"


def documented() -> str:
    """Return the page of the documentation for the stored results."""
    scenarios = [find(name) for name in names() if name != "demo"]
    return markdown(_sections(_cells(Store(RESULTS), scenarios), scenarios, known_learners()), _WHERE)


def _cells(store: Store, scenarios: Sequence[Scenario]) -> pd.DataFrame:
    names = {scenario.name for scenario in scenarios}
    return summary.frame(record for record in store.records.values() if record["scenario"] in names)


def present(cells: pd.DataFrame, learners: Mapping[str, Learner], ranked: bool | None = None) -> list[str]:
    """Return the learners that have results, in their order."""
    there = set(cells.learner)
    known = [name for name, each in learners.items() if name in there and ranked in (None, each.ranked)]
    return known if ranked is False else known + sorted(there - set(learners))


def draw(cells: pd.DataFrame, scenarios: Sequence[Scenario], learners: Mapping[str, Learner]) -> dict[str, bytes]:
    """Draw all plots as PNG, by name."""
    lengths = cells.groupby("scenario").planned.first().to_dict()
    met = [_of_length(scenario, lengths[scenario.name]) for scenario in scenarios if scenario.name in lengths]
    chosen = [scenario for scenario in met if scenario.name in SHOWN] or met[:6]
    faces = [name for name in FACES if name in set(cells.learner)] or sorted(set(cells.learner))[:5]
    ranked = summary.companies(cells, present(cells, learners, True))[0]
    found = summary.standing(cells, ranked) if OURS in ranked else None
    drawn = {"drift-front": pictures.curves(cells, chosen, faces)}
    if found is not None:
        drawn["drift-ranks"] = pictures.ranks(found)
    drawn["drift-cost"] = pictures.cost(cells, summary.overview(cells, present(cells, learners), ranked))
    drawn["drift-curves"] = pictures.curves(cells, met, faces)
    return drawn


def _of_length(scenario: Scenario, n: int) -> Scenario:
    """Return a scenario of n events; disturbances of a stream stay where they are."""
    return replaced(scenario, events=n) if scenario.source else scenario.stretched(n)


# Tables ---------------------------------------------------------------------------------------------------------------

Section = tuple[str, str, "pd.DataFrame | None", str]
"""Title, text, table, and the name of a plot."""


def _sections(cells: pd.DataFrame, scenarios: Sequence[Scenario], learners: Mapping[str, Learner]) -> list[Section]:
    every, companies = present(cells, learners), summary.companies(cells, present(cells, learners, True))
    ranked = companies[0]
    found = summary.standing(cells, ranked) if OURS in ranked else None
    sections: list[Section] = [("", _opening(cells), None, "drift-front")]
    if found is not None:
        text = f"Friedman's test of no difference: p = {found.friedman:.1e}."
        sections.append(("Mean ranks", text, None, "drift-ranks"))
        text = (
            "Wins and losses are scenarios with a difference of more than half a percentage point. p values are of "
            "Nemenyi's test, and of Wilcoxon's signed-rank test with Holm's correction. Relative costs are "
            "ratios of median times per event."
        )
        sections.append((f"{OURS} against each", text, _duels(summary.duels(found, cells)), ""))
        sections += [_guests(cells, everybody, ranked) for everybody in companies[1:]]
    if OURS in every:
        sections.append(_behind(cells, companies[-1]))
    table = summary.overview(cells, every, ranked or every)
    text = (
        "Means over the scenarios and seeds that all ranked learners have in common. Average precision is that of the "
        f"rarest class, over scenarios where it is at most {summary.RARE:.0%} of the events. Events until recovered "
        "are means over all drifts at least 200 events from the next (`simulations.drift.cells.recovered`). Time and "
        "memory are medians over runs."
    )
    shown = _overview(table).set_axis(_marked(cells, table.index))
    sections.append(("Learners", text, shown, "drift-cost"))
    sections.append(
        (
            "Accuracy by scenario",
            "In %, means over the seeds.",
            _accuracies(cells, scenarios, every),
            "",
        )
    )
    sections.append(("Accuracy over time", "", None, "drift-curves"))
    sections.append(("How it was measured", _made(cells), None, ""))
    return sections


def _opening(cells: pd.DataFrame) -> str:
    seeds = cells.groupby("learner").seed.nunique()
    by_seeds = [f"{_counted(n, 'seed')}: {', '.join(seeds[seeds == n].index)}" for n in sorted(set(seeds))]
    lengths = sorted(set(cells.planned))
    stopped = int((cells.events < cells.planned).sum())
    n_events = " to ".join(f"{n:,}" for n in dict.fromkeys((lengths[0], lengths[-1])))
    n_learners, n_scenarios = cells.learner.nunique(), cells.scenario.nunique()
    return (
        f"{_counted(n_scenarios, 'scenario')} of {n_events} events, {_counted(n_learners, 'learner')}, "
        f"{_counted(len(cells), 'run')} "
        f"({'; '.join(by_seeds)}). "
        "Every event is predicted before it is learned, through River's interface, with the settings of "
        f"`simulations/learners.toml`. {_counted(stopped, 'run')} stopped at a time limit."
    )


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s'[: n != 1]}"


def _made(cells: pd.DataFrame) -> str:
    """Describe how the results were measured."""
    runs = [json.loads(run) for run in cells.run.unique()]
    note = [older("learners")] if _older(cells).any() else []
    raw = "[Raw results](../../simulations/results/drift.parquet)."
    return " ".join([described(sorted(runs, key=lambda run: run["date"])), *note, raw])


def _marked(cells: pd.DataFrame, learners: Iterable[str]) -> list[str]:
    """Mark our learners with results that are older than the last change."""
    older = set(cells.learner[_older(cells)])
    return [f"{name} {OLDER}" if name in older else name for name in learners]


def _older(cells: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which cells are older results of our learners."""
    runs = {run: is_older(json.loads(run)["date"], "learners") for run in cells.run.unique()}
    return np.array(cells["of"] == "streamsvm") & np.array(cells.run.map(runs), bool)


def _guests(cells: pd.DataFrame, everybody: Sequence[str], hosts: Sequence[str]) -> Section:
    """Compare StreamSVM with learners that ran on fewer streams."""
    title, found = f"{OURS} against learners with fewer streams", summary.standing(cells, everybody)
    if found is None:
        return (title, "Fewer than three scenarios have results of all learners.", None, "")
    n_met = len(summary.common(cells, everybody))
    ranks = ", ".join(f"{name} {rank:.1f}" for name, rank in found.ranks.items())
    text = f"{len(found.accuracy)} scenarios, {n_met} streams in all. All learners have them. Mean ranks: {ranks}."
    return title, text, _duels(summary.duels(found, cells).drop(index=hosts, errors="ignore")), ""


def _behind(cells: pd.DataFrame, ranked: Sequence[str]) -> Section:
    found = summary.behind(cells, [name for name in ranked if name != OURS])
    table = found.assign(points=[f"{p:.1f}" for p in found.points]).set_index("scenario")
    if not len(table):
        return f"Where {OURS} is behind", "No other learner is more accurate by over half a percentage point.", None, ""
    text = "Scenarios where another learner is more accurate by over half a percentage point, and the best such one."
    return (f"Where {OURS} is behind", text, table, "")


def _duels(found: pd.DataFrame) -> pd.DataFrame:
    return _formatted(
        found,
        {
            **dict.fromkeys(("wins", "ties", "losses"), "{:.0f}".format),
            **dict.fromkeys(("mean gain", "median gain"), "{:+.1f}".format),
            **dict.fromkeys(("Nemenyi p", "Wilcoxon p"), "{:.1g}".format),
            "relative cost": "{:,.1f}".format,
        },
    )


def _overview(found: pd.DataFrame) -> pd.DataFrame:
    percent = "{:.1%}".format
    return _formatted(
        found,
        {
            **dict.fromkeys(("accuracy", "kappa", "balanced accuracy", "average precision"), percent),
            "log loss": "{:.3f}".format,
            "events until recovered": "{:,.0f}".format,
            "µs per event": "{:,.0f}".format,
            "MB": "{:.2f}".format,
            "cells": "{:,.0f}".format,
        },
    )


def _formatted(table: pd.DataFrame, how: Mapping[str, Callable[[float], str]]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: ["" if np.isnan(value) else how[name](value) for value in table[name].astype(float)] for name in table},
        index=table.index,
    )


def _accuracies(cells: pd.DataFrame, scenarios: Sequence[Scenario], learners: Sequence[str]) -> pd.DataFrame:
    wide = 100.0 * cells.pivot_table("accuracy", "scenario", "learner").reindex(columns=list(learners))
    kinds = {scenario.name: scenario.kind for scenario in scenarios}
    wide = wide.loc[sorted(wide.index, key=lambda name: (list(dict.fromkeys(kinds.values())).index(kinds[name]), name))]
    texts = wide.map(lambda value: "" if np.isnan(value) else f"{value:.1f}")
    best = texts.replace("", "nan").astype(float).max(axis=1)
    shown = texts.apply(
        lambda row: [f"**{text}**" if text == f"{best[row.name]:.1f}" else text for text in row], axis=1
    )
    shown = pd.DataFrame(shown.tolist(), index=wide.index, columns=wide.columns)
    shown.insert(0, "kind", [kinds[name] for name in shown.index])
    return shown


# Pages ----------------------------------------------------------------------------------------------------------------

TITLE = "Drift scenarios"
CAPTIONS = {
    "drift-front": "Accuracy over time on some scenarios; dashed lines mark true drifts",
    "drift-ranks": "Critical difference diagram of mean ranks",
    "drift-cost": "Accuracy against microseconds per event",
    "drift-curves": "Accuracy over time on every scenario",
}


def markdown(sections: Sequence[Section], where: str) -> str:
    """Format the report as Markdown, with its plots in a folder."""
    parts = [*(["---\nhide: [toc]\n---"] if where else []), f"# {TITLE}"]  # makes room for the wide table
    for title, text, table, picture in sections:
        parts += [f"## {title}"] if title else []
        parts += [text] if text else []
        parts += [markdown_table(table)] if table is not None else []
        parts += [f"![{CAPTIONS[picture]}]({where}{picture}.png)"] if picture else []
    return "\n\n".join(parts) + "\n"


def markdown_table(table: pd.DataFrame) -> str:
    """Format a table of texts as Markdown."""
    lines = [[table.index.name or "", *table.columns]]
    lines += [[name, *row] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return tables.markdown([list(map(str, line)) for line in lines])


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1c1c; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
img { max-width: 100%; margin: .6rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .55rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
thead th { border-bottom: 2px solid #999; vertical-align: bottom; white-space: normal; }
tbody tr:hover td { background: #f2f6fc; }
b { font-weight: 700; color: #0b62c4; }
"""


def page_of(sections: Sequence[Section], drawn: Mapping[str, bytes]) -> str:
    """Format the report as one HTML file that includes its plots."""
    parts = []
    for title, text, table, picture in sections:
        parts += [f"<h2>{html.escape(title)}</h2>"] if title else []
        parts += [f"<p>{html.escape(text)}</p>"] if text else []
        shown = re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", table.to_html(border=0)) if table is not None else ""
        parts += [f'<div class="wide">{shown}</div>'] if shown else []
        if picture in drawn:
            data = base64.b64encode(drawn[picture]).decode()
            parts.append(f'<img alt="{html.escape(CAPTIONS[picture])}" src="data:image/png;base64,{data}">')
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{TITLE}</title><style>{STYLE}</style>'
        f"<h1>{TITLE}</h1>" + "\n".join(parts) + "</html>\n"
    )
