"""The number of BLAS threads depends on the problem size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from streamsvm.batch import IndexedBCD, SampledCuts, SmoothedNewton
from streamsvm.batch.threads import OneThread

rng = np.random.default_rng(0)
X, y = rng.normal(size=(120, 3)), np.arange(120) % 2


def n_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("solver", [SmoothedNewton, IndexedBCD, SampledCuts])
def test_small_problems_are_solved_on_one_thread_and_others_find_what_there_was(solver: Any) -> None:
    inside: list[int] = []
    with threadpool_limits(2, "blas"):
        before = n_threads()
        solver(callback=lambda *_: inside.extend(n_threads())).fit(X, y)
        assert n_threads() == before
    assert set(inside) == {1}


def test_a_fit_that_fails_gives_the_threads_back() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError

    with threadpool_limits(2, "blas"):
        before = n_threads()
        with pytest.raises(RuntimeError):
            SmoothedNewton(callback=fail).fit(X, y)
        assert n_threads() == before


def test_solvers_side_by_side_leave_the_threads_of_others_as_they_were() -> None:
    with threadpool_limits(2, "blas"):
        before = n_threads()
        first, second = OneThread(), OneThread()
        first.__enter__()
        second.__enter__()
        first.__exit__()
        assert set(n_threads()) <= {1}
        second.__exit__()
        assert n_threads() == before
