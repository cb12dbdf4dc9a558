"""``streamsvm warmup``: compile kernels before their first use."""

from __future__ import annotations

import importlib.util
import logging
import time

from streamsvm.cli.commands import WarmupCommand

_GONE_S = 86_400.0  # age after which unused compiled code of other versions is removed


def main(options: WarmupCommand, _started: float) -> int:
    """Compile kernels, print where the code is, and return the exit code."""
    from streamsvm.core.cache import cache_folder, is_kept, n_bytes, remove_unused
    from streamsvm.core.library import code_in_use, library
    from streamsvm.loading import warmup

    began, say = time.perf_counter(), logging.getLogger("streamsvm").info
    place = warmup(options.jobs, options.all)
    say("kernels of online learners: %s", code_in_use())
    has_solver = importlib.util.find_spec("sklearn") is not None
    if has_solver:
        from streamsvm.batch import warmup as warm_solver

        warm_solver()
    print(place)
    if library() is not None and not has_solver:
        return 0
    folder = cache_folder()
    removed = remove_unused(folder, _GONE_S)
    say(
        "compiled code of %.1f MB is ready after %.1f s%s",
        n_bytes(folder) / 1e6,
        time.perf_counter() - began,
        f"; removed that of {len(removed)} other versions, unused for a day" if removed else "",
    )
    return 0 if is_kept() else 1
