"""A blend's rows on several threads: the one that asks, and others that help it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import numpy as np

from streamsvm.features import Floats
from streamsvm.first_use import prepare
from streamsvm.kernels import pipeline as kernels
from streamsvm.kernels.blocks import BLOCK, DORMANT_SAMPLE
from streamsvm.kernels.state import State

# What scaling and the votes cost, as members say what they do: about, in support vectors.
COSTS = (250.0, 300.0)


def run_rows(state: State, request: State, costs: Sequence[float], n_threads: int) -> None:
    """Do what is asked of a blend, as `kernels.blend.run_rows` does, on at most so many threads.

    Where others have something else to do, or cannot be had, this one does it all.

    Parameters
    ----------
    costs
        What each member costs while it is awake.
    """
    entry, others = kernels.ENTRIES["run_stages"], list[Future[None]]()
    prepare([entry])
    entry.compile()
    awake = np.where(state.block.members.dormant > 0.0, 1.0 / DORMANT_SAMPLE, 1.0)
    pipeline = _new_pipeline(state, request, np.append(costs * awake, COSTS), n_threads)
    n_threads = len(pipeline.orders)
    try:
        with contextlib.suppress(RuntimeError):  # the interpreter ends, or the system has no more threads
            for thread in range(1, n_threads):
                others.append(_executor(n_threads - 1).submit(kernels.run_stages, pipeline, thread))
        kernels.run_stages(pipeline, 0)
    finally:
        for other in others:
            other.cancel()


def _new_pipeline(state: State, request: State, costs: Floats, n_threads: int) -> State:
    """What at most so many threads share for a request: more than there are stages are of no use."""
    odd = State(BLOCK, state.block.dims)
    odd.seed = state.block.seed
    odd.lend(members=state.block.members)
    sizes = {"threads": min(n_threads, len(costs)), "stages": len(costs), "line": kernels.LINE}
    parts = {"blend": state, "request": request, "even": state.block, "odd": odd}
    pipeline = State(kernels.PIPELINE, sizes, parts=parts)
    # Every second thread begins with what costs least: stages, and their memory, stay about where they are.
    pipeline.orders[0::2] = order = np.argsort(-costs, kind="stable")
    pipeline.orders[1::2] = order[::-1]
    return pipeline


@cache
def _executor(n_threads: int) -> ThreadPoolExecutor:
    """Threads for all models: nothing a model would have to copy or save, and no more of them than asked for."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="streamsvm")


# A child process has the executor, but not its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executor.cache_clear)
