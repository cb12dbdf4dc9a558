"""Cells in parallel, each kept as it comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulations.drift.cells import Cell, measure
from simulations.drift.store import Store


def run(cells: Iterable[Cell], store: Store, jobs: int = 1, backend: str = "loky") -> None:
    """Do what is missing, and show how far it is.

    Parameters
    ----------
    cells
        In the order in which they are to be begun.
    store
        Where the records go.
    jobs
        How many at once.
    backend
        Of joblib: processes of this machine, or a cluster's where one is registered (``dask``, ``ray``).
    """
    import joblib
    from tqdm import tqdm

    todo = {cell.key: cell for cell in cells if cell.key not in store}
    seconds = sum(cell.seconds for cell in todo.values())
    layout = "{desc}: {percentage:3.0f} %|{bar}| {elapsed} gone, {remaining} left{postfix}"
    with (
        joblib.parallel_config(backend=backend, n_jobs=jobs),
        tqdm(total=seconds, desc=f"{len(todo)} cells", bar_format=layout) as bar,
    ):
        tasks = (joblib.delayed(measure)(cell) for cell in todo.values())
        for record in joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")(tasks):
            store.add(record)
            bar.update(todo[record["key"]].seconds)
            bar.set_postfix_str(f", {_shown(record)}", refresh=False)
            if "error" in record:
                bar.write(f"{record['scenario']} #{record['seed']}, {record['learner']}: {record['error']}")


def _shown(record: dict[str, Any]) -> str:
    reached = f" {100 * record['accuracy']:.1f} %" if "accuracy" in record else ""
    return f"{record['scenario']}, {record['learner']}{reached}"
