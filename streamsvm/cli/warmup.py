"""``streamsvm warmup``: compile kernels before their first use."""

from __future__ import annotations

import importlib.util
import logging
import time
from typing import Any

from streamsvm.cli.terminal import logged
from streamsvm.run.values import converted

_GONE_S = 86_400.0  # age after which unused compiled code of other versions is removed


def main(given: dict[str, Any], _started: float) -> int:
    """Compile kernels, print the cache folder, and return the exit code."""
    with logged(given.get("quiet", False)):
        return _compile(given)


def _compile(given: dict[str, Any]) -> int:
    from streamsvm.core.cache import is_kept, n_bytes, remove_unused
    from streamsvm.loading import warmup

    began = time.perf_counter()
    jobs = given.get("jobs")
    folder = warmup(None if jobs is None else converted("--jobs", "int", jobs), given.get("all", False))
    if importlib.util.find_spec("sklearn") is not None:
        from streamsvm.batch import warmup as warm_solver

        warm_solver()
    removed = remove_unused(folder, _GONE_S)
    logging.getLogger("streamsvm").info(
        "compiled code of %.1f MB is ready after %.1f s%s",
        n_bytes(folder) / 1e6,
        time.perf_counter() - began,
        f"; removed that of {len(removed)} other versions, unused for a day" if removed else "",
    )
    print(folder)
    return 0 if is_kept() else 1
