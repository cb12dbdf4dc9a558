"""Wall and CPU time of the batch solvers, alone and with four busy processes.

    python -m simulations.benchmarks.busy                          all cells
    python -m simulations.benchmarks.busy newton                   cells of one solver
    python -m simulations.benchmarks.busy --beside ../other        compared with another checkout

BLAS threads wait for each other in a busy loop, which is slow if other processes need the processors.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse

N_BUSY = 4


def sparse(n: int, d: int) -> tuple[Any, Any]:
    """Generate sparse rows with a density of 10 %."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((n, d), density=0.1, rng=rng, format="csr", data_sampler=rng.standard_normal)
    return X, (X @ rng.normal(size=d) + rng.normal(size=n) > 0.0).astype(int)


def dense(n: int, d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=d) + 3.0 * rng.normal(size=n) > 0.0).astype(int)


CELLS = {
    "newton, sparse 50,000 x 300": ("SmoothedNewton", {"l2": 1e-4}, sparse, (50_000, 300)),
    "newton, dense 20,000 x 50": ("SmoothedNewton", {"l2": 1e-4}, dense, (20_000, 50)),
    "newton, dense 20,000 x 400": ("SmoothedNewton", {"l2": 1e-4}, dense, (20_000, 400)),
    "bcd, dense 20,000 x 50": ("IndexedBCD", {"C": 0.1}, dense, (20_000, 50)),
    "cuts, dense 2,000 x 20": ("SampledCuts", {}, dense, (2_000, 20)),
    "cuts, dense 8,000 x 20": ("SampledCuts", {"max_iter": 20}, dense, (8_000, 20)),
}


def once(name: str) -> dict[str, float]:
    """Time a fit, after another one that compiles."""
    from streamsvm import batch

    solver, settings, make, size = CELLS[name]
    X, y = make(*size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in (slice(0, size[0] // 10), slice(None)):
            start = time.perf_counter(), time.process_time()
            found = getattr(batch, solver)(random_state=0, **settings).fit(X[part], y[part])
            seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    return {"s": seconds[0], "processor s": seconds[1], "objective": float(found.objective_)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solver", nargs="?", default="", help="newton, bcd or cuts; else all")
    parser.add_argument("--beside", help="another checkout")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.once:
        print(json.dumps(once(asked.once)))
        return
    from simulations.benchmarks.versions import Load, in_turn
    from simulations.keeping import keep, kept

    result: dict[str, Any] = kept("busy")
    for name in filter(lambda name: name.startswith(asked.solver), CELLS):
        for way, n in (("alone", 0), ("busy", N_BUSY)):
            with Load(n):
                cell = result[f"{name}, {way}"] = in_turn("busy", ["--once", name], asked.beside, asked.repeats)
            line = "   ".join(f"{k} {found['s']:6.2f} s ({found['processor s']:6.2f})" for k, found in cell.items())
            share = f"   {cell['now']['s'] / cell['before']['s']:.2f} of before" if asked.beside else ""
            print(f"{name:30s} {way:6s} {line}{share}", flush=True)
            keep("busy", result, lines=True)


if __name__ == "__main__":
    main()
