"""Cost of compilation: wall and CPU time of the first and of warm uses of the library.

CPU time includes all processes that compile in parallel.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

from simulations.keeping import ROOT

FIRST = "from streamsvm import {0}; m = {0}(); m.learn_one(dict(a=1.0), 1); m.predict_one(dict(a=1.0))"
COMMANDS = {
    "first prediction": [sys.executable, "-c", FIRST.format("StreamSVMClassifier")],
    "first prediction, CPM": [sys.executable, "-c", FIRST.format("CPMClassifier")],
    "run, 3,000 events": [sys.executable, "-m", "streamsvm", "run", "synthetic:demo?n=3000", "--quiet"],
    "run, 3,000 events, CPM": [*[sys.executable, "-m", "streamsvm", "run"], "synthetic:demo?n=3000", "--model", "cpm"],
    "import": [sys.executable, "-c", "import streamsvm"],
    "import of a learner": [sys.executable, "-c", "from streamsvm import StreamSVMClassifier"],
    "--help": [sys.executable, "-m", "streamsvm", "--help"],
}


def timed(command: list[str], cache: str) -> tuple[float, float]:
    """Return wall and CPU seconds of a process with its children."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the times with an empty cache, then the minimum of warm runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for name, command in COMMANDS.items():
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o700)
            first = timed(command, cache)
            warm = [min(column) for column in zip(*(timed(command, cache) for _ in range(repeats)), strict=True)]
        print(
            f"{name:24} empty {first[0]:6.2f} s, processor {first[1]:6.2f} s"
            f"   warm {warm[0]:5.2f} s, processor {warm[1]:5.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
