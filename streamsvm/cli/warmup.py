"""``streamsvm warmup``: compile kernels before their first use."""

from __future__ import annotations

import importlib.util
import logging
import time

from streamsvm.cli.commands import Warmup

_GONE_S = 86_400.0  # age after which unused compiled code of other versions is removed


def main(options: Warmup, _started: float) -> int:
    """Compile kernels, print the cache folder, and return the exit code."""
    from streamsvm.core.cache import is_kept, n_bytes, remove_unused
    from streamsvm.loading import warmup

    began = time.perf_counter()
    folder = warmup(options.jobs, options.all)
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
