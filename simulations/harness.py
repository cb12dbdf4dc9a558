"""Harness of all benchmarks, which declare cases and tables.

`run` measures the cases and stores the results.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulations.storage import SEPARATOR, Results, Rows, provenance
from simulations.tables import Table

PACKAGES = ("river", "numpy", "numba")
SOLVER_PACKAGES = ("scikit-learn", "numpy", "numba", "scipy")


@dataclass(frozen=True)
class Case:
    """A measurement.

    Parameters
    ----------
    key
        Name of the result.
    measure
        Function that returns the measures by name.
    several
        Whether it returns several results instead, by the rest of their names.
    seconds
        Estimate of the time that it takes.
    what
        Data that are measured, if the key does not tell: a stored result of other data is measured again.
    """

    key: str
    measure: Callable[[], dict[str, Any]]
    several: bool = False
    seconds: float = 1.0
    what: str = ""


def key_of(*parts: object) -> str:
    """Join the parts of the name of a result."""
    return SEPARATOR.join(map(str, parts))


def on_one_core(measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Measure a batch solver with one thread, without convergence warnings."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return measure(*arguments)


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Parameters
    ----------
    name
        Name of the benchmark, and of its file in `simulations/results`.
    about
        What it measures, and how.
    cases
        Function of the command line's options that lists the measurements.
    tables
        Tables of the results, by name.
    draw
        Function that plots the results.
    subject
        What the results depend on: a key of `RESULTS_LAST_CHANGED_AT`.
    others
        Parts of the names of results that do not depend on it, such as other people's learners.
    packages
        Packages whose versions are stored.
    arguments
        Function that adds arguments of the command line.
    is_of_the_user
        Whether results are stored in the current directory by default, as those of the user's own files.
    """

    name: str
    about: str
    cases: Callable[[argparse.Namespace], Iterable[Case]]
    tables: Mapping[str, Table] = field(default_factory=dict)
    draw: Callable[[Rows], None] | None = None
    subject: str = "learners"
    others: Collection[str] = ()
    packages: tuple[str, ...] = PACKAGES
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    is_of_the_user: bool = False


class Store(Protocol):
    """A store of results."""

    def __contains__(self, key: str) -> bool:
        """Return whether a result is stored."""

    def add(self, rows: Rows, run: dict[str, Any]) -> None:
        """Store results."""


def run(cases: Iterable[Case], store: Store, how: dict[str, Any], jobs: int = 1, backend: str = "loky") -> int:
    """Measure cases with a progress bar, and store each result at once.

    Parameters
    ----------
    cases
        Cases in the order in which they start.
    store
        Store of the results.
    how
        Description of the measurement that is stored with the results.
    jobs
        Number of parallel jobs; 1 for reliable times.
    backend
        Backend of joblib: processes on this machine, or a registered cluster (``dask``, ``ray``).

    Returns
    -------
    int
        Number of cases that failed.
    """
    import joblib
    from tqdm import tqdm

    todo = {case.key: case for case in cases}
    layout = "{desc}: {percentage:3.0f} %|{bar}| {elapsed} gone, {remaining} left"
    failed = 0
    with (
        joblib.parallel_config(backend=backend, n_jobs=jobs),
        tqdm(total=sum(case.seconds for case in todo.values()), desc=f"{len(todo)} cases", bar_format=layout) as bar,
    ):
        tasks = (joblib.delayed(_measured)(case) for case in todo.values())
        for key, rows, error in joblib.Parallel(return_as="generator_unordered", batch_size=1)(tasks):
            failed += bool(error)
            if rows:
                store.add(rows, how)
            bar.update(todo[key].seconds)
            bar.write(f"{key}: {error}" if error else "\n".join(_line(name, row) for name, row in rows.items()))
    return failed


def _measured(case: Case) -> tuple[str, Rows, str]:
    """Measure a case; returns its key, its results, and the error if it fails."""
    start = time.perf_counter()
    try:
        found = case.measure()
    except Exception as error:  # a failing case must not stop the others
        return case.key, {}, f"{type(error).__name__}: {error}".splitlines()[0]
    if case.several:
        return case.key, {key_of(case.key, name): measured for name, measured in found.items()}, ""
    about = {"what": case.what} if case.what else {}
    return case.key, {case.key: found | {"took": round(time.perf_counter() - start, 2)} | about}, ""


def _line(key: str, row: Mapping[str, Any]) -> str:
    numbers = [f"{name} {value:.5g}" for name, value in row.items() if isinstance(value, int | float)]
    return f"{key}: {', '.join(numbers)}"


def measure(benchmark: Benchmark, options: argparse.Namespace, results: Results) -> int:
    """Measure the chosen cases without results; return the number of failures."""
    cases = [case for case in benchmark.cases(options) if all(text in case.key for text in options.only)]
    if not cases:
        raise SystemExit(
            f"--only {' '.join(options.only)}: no result of {benchmark.name} has such a name; --list shows all"
        )
    missing = unmeasured(cases, results)
    todo = [case for case in cases if options.again or case.key in missing]
    if options.list:
        print(*(f"{case.key}: {'' if case in todo else 'measured'}" for case in cases), sep="\n")
        return 0
    return run(todo, results, provenance(benchmark.packages), options.jobs)


def unmeasured(cases: Iterable[Case], results: Results) -> list[str]:
    """Return the names of the cases without a stored result of the same data."""
    rows = results.rows
    return [
        each.key
        for each in cases
        if each.key not in results or rows.get(each.key, {}).get("what", each.what) != each.what
    ]
