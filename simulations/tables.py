"""Tables of results in Markdown: declarations of columns, and updates of pages."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simulations.storage import DOCS, RESULTS, RESULTS_LAST_CHANGED_AT, SEPARATOR, Results, Rows

PAGES = DOCS / "benchmarks"
OLDER = "†"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    title
        Title of the column.
    value
        Function of the results of a row of the table that returns a number, a text, or None for an empty cell.
    format
        Format of a number.
    best
        ``max`` or ``min``: the best of these columns in a row is in bold.
    """

    title: str
    value: Callable[[Rows], Any]
    format: str = "{:.1f}"
    best: Callable[[Iterable[float]], float] | None = None


@dataclass(frozen=True)
class Table:
    """A table of results.

    Parameters
    ----------
    title
        Title of the first column.
    row
        Function of the parts of a result's name that returns the row of the table, or None to leave the result out.
    columns
        The other columns.
    last
        Title of a last row of all results; empty for none.
    """

    title: str
    row: Callable[[Sequence[str]], str | None]
    columns: Sequence[Column]
    last: str = ""

    def markdown(self, rows: Rows, older: Container[str] = ()) -> str:
        """Format the results, empty without any; rows with older results are marked."""
        grouped: dict[str, Rows] = {}
        for key, measured in rows.items():
            name = self.row(key.split(SEPARATOR))
            if name is not None:
                grouped.setdefault(name, {})[key] = measured
        if not grouped:
            return ""
        lines = [[self.title, *(column.title for column in self.columns)]]
        for name, own in grouped.items():
            mark = f" {OLDER}" if any(key in older for key in own) else ""
            lines.append([name + mark, *self._cells([column.value(own) for column in self.columns])])
        if self.last:
            lines.append([self.last, *self._cells([column.value(rows) for column in self.columns])])
        return markdown(lines)

    def _cells(self, values: Sequence[Any]) -> list[str]:
        compared = [
            float(column.format.format(value).replace(",", ""))
            for column, value in zip(self.columns, values, strict=True)
            if column.best and value is not None
        ]
        best = next((column.best(compared) for column in self.columns if column.best and compared), None)
        cells = []
        for column, value in zip(self.columns, values, strict=True):
            text = value or "" if value is None or isinstance(value, str) else column.format.format(value)
            is_best = bool(column.best and text) and float(text.replace(",", "")) == best
            cells.append(f"**{text}**" if is_best else text)
        return cells


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as a table; the first line has the titles."""
    shown = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([shown[0], "|---" * len(lines[0]) + "|", *shown[1:]])


def part(index: int) -> Callable[[Sequence[str]], str]:
    """Return a function for `Table.row`: a part of the name of a result is the row."""
    return lambda parts: parts[index]


def pick(rows: Rows, *parts: object) -> Rows:
    """Select the results whose names have all of these parts."""
    wanted = {str(each) for each in parts}
    return {key: row for key, row in rows.items() if wanted <= set(key.split(SEPARATOR))}


def of(measure: str, *parts: object, how: Callable[[list[float]], float] | None = None) -> Callable[[Rows], Any]:
    """Return a `Column.value`: the mean or another statistic of a measure."""

    def value(rows: Rows) -> float | None:
        found = [row[measure] for row in pick(rows, *parts).values() if measure in row]
        return (how or mean)(found) if found else None

    return value


def mean(values: Iterable[Any]) -> Any:
    """Return the mean of numbers; None if there are none."""
    numbers = [value for value in values if isinstance(value, int | float)]
    return statistics.fmean(numbers) if numbers else None


def slashed(
    values: Sequence[float | None], form: str = "{:.1f}", best: Callable[[list[str]], str] | None = None
) -> str:
    """Format several numbers in a cell, the best one in bold; empty without numbers."""
    shown = [form.format(value) for value in values if value is not None]
    top = best(shown, key=float) if best and shown else ""  # type: ignore[call-arg]
    return " / ".join(f"**{text}**" if text == top else text for text in shown)


# Sources --------------------------------------------------------------------------------------------------------------


# Parts of a command that choose results, or how many are measured at once.
_CHOICE = re.compile(r" --(?:again|multivariate|jobs \d+)| --(?:only|learners)(?: '[^']*'| [^-\s]\S*)+")


def sources(results: Results, marked: str = "") -> str:
    """Describe how results were measured, and the mark of older results."""
    is_ours = results.path.parent == RESULTS
    name = results.path.name
    link = f"[Raw results](../../simulations/results/{name})." if is_ours else f"Raw results: {results.path}."
    return " ".join([described(results.runs), *([older(marked)] if marked else []), link])


def described(runs: Iterable[Mapping[str, Any]]) -> str:
    """Describe measurements in sentences, merged if only the commit differs.

    Commands are compared without their choice of rows.
    """
    commits: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    others = {f"{run['source']}.": None for run in runs if "source" in run}
    for run in runs:
        if "source" not in run:
            command = _CHOICE.sub("", run["command"])
            own = commits.setdefault((command, _conditions(run)), {})
            own.setdefault(f" of {day(run['date'])}" if run["date"] else "", {})[run["commit"]] = None
    made = [
        f"Measured with `{command}` at commit {', '.join(_listed(names) + of for of, names in own.items())} ({how})."
        for (command, how), own in commits.items()
    ]
    return " ".join([*made, *others])


def _listed(commits: Iterable[str]) -> str:
    """List commits, or the first of them and the number of the others."""
    first, *others = commits
    return ", ".join([first, *others]) if len(others) < 3 else f"{first} and {len(others)} others"


def _conditions(run: Mapping[str, Any]) -> str:
    machine = run.get("machine")
    where = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}" if machine else ""
    return ", ".join([where or "machine not recorded", *(f"{name} {v}" for name, v in run["versions"].items())])


def older(subject: str) -> str:
    """Explain the mark of older results."""
    commit, date = RESULTS_LAST_CHANGED_AT[subject]
    return f"{OLDER} Measured before {commit} of {day(date)}, the last commit that changed our results of {subject}."


def day(date: str) -> str:
    """Format the day of a date."""
    when = datetime.fromisoformat(date)
    return f"{when.day} {when:%B %Y}"


# Pages ----------------------------------------------------------------------------------------------------------------


def named(text: str) -> list[str]:
    """Return the names of the generated tables of a page, in their order."""
    return re.findall(r"<!-- (\w+): made by", text)


def renewed(text: str, made: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with its tables generated from the stored results."""
    for name in named(text):
        begin = f"<!-- {name}: made by python -m simulations tables -->"
        head, _, rest = text.partition(begin)
        _, end, tail = rest.partition(f"<!-- end of {name} -->")
        if not end or name not in made:
            raise SystemExit(f"table {name} has no end marker, or no benchmark declares it")
        text = f"{head}{begin}\n\n{made[name]()}\n\n{end}{tail}"
    return text


def stored(name: str) -> Results:
    """Return the results of a benchmark that are in the repository."""
    return Results(RESULTS / f"{name}.json")
