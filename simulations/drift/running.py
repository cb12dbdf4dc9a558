"""Run cells in parallel, and store each result at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulations.drift.cells import Cell, measure
from simulations.drift.store import Store


def run(cells: Iterable[Cell], store: Store, jobs: int = 1, backend: str = "loky") -> None:
    """Run the missing cells with a progress bar.

    Parameters
    ----------
    cells
        Cells in the order in which they start.
    store
        Store of the records.
    jobs
        Number of parallel jobs.
    backend
        Backend of joblib: processes on this machine, or a registered cluster (``dask``, ``ray``).
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
