"""Cost of compilation: first and warm use of the library, and compiler passes.

    python -m simulations.benchmarks.compiling                     first and warm use: wall and CPU time
    python -m simulations.benchmarks.compiling --beside ../other   compared with another checkout
    python -m simulations.benchmarks.compiling --profile           the passes of numba, in one process

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
from collections import Counter
from pathlib import Path
from typing import Any

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
PASSES = {"nopython_type_inference": "typing", "exported_lowering": "lowering", "internal_lowering": "lowering"}


def timed(command: list[str], checkout: Path, cache: str) -> tuple[float, float]:
    """Return wall and CPU seconds of a process with its children."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(checkout)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(checkouts: list[Path], repeats: int) -> None:
    """Print the times with an empty cache, then the minimum of warm runs."""
    for name, command in COMMANDS.items():
        for checkout in checkouts:
            with tempfile.TemporaryDirectory() as cache:
                os.chmod(cache, 0o700)
                first = timed(command, checkout, cache)
                warm = [
                    min(column)
                    for column in zip(*(timed(command, checkout, cache) for _ in range(repeats)), strict=True)
                ]
            print(f"{name:24} {checkout.name:12} empty {first[0]:6.2f} s, processor {first[1]:6.2f} s"
                  f"   warm {warm[0]:5.2f} s, processor {warm[1]:5.2f} s", flush=True)  # fmt: skip


class Profile:
    """CPU seconds by step, excluding nested steps, and by function."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self._open: list[list[Any]] = []  # name, function, start, seconds of nested steps

    def start(self, name: str, function: str = "") -> None:
        """Start a step."""
        self._open.append([name, function or (self._open[-1][1] if self._open else ""), time.process_time(), 0.0])

    def end(self) -> None:
        """End the current step."""
        name, function, began, within = self._open.pop()
        whole = time.process_time() - began
        self.steps[name] += whole - within
        self.functions[function] += whole - within
        if self._open:
            self._open[-1][3] += whole

    def watch(self, kind: Any, method: str, name: str) -> None:
        """Record the calls of a method as a step."""
        inner = getattr(kind, method)

        def outer(*arguments: Any, **options: Any) -> Any:
            self.start(name)
            try:
                return inner(*arguments, **options)
            finally:
                self.end()

        setattr(kind, method, outer)


def profile() -> None:
    """Compile the code for the first event of `StreamSVMClassifier`, in this process."""
    from numba.core import event

    from streamsvm import StreamSVMClassifier
    from streamsvm.core import linkage
    from streamsvm.core.cache import CodeCache

    found = Profile()

    class Steps(event.Listener):
        def on_start(self, event: Any) -> None:
            found.start(
                PASSES.get(event.data["name"].partition(" ")[0], event.data["name"].partition(" ")[0]),
                event.data["qualname"],
            )

        def on_end(self, event: Any) -> None:
            found.end()

    library: Any = linkage._Library
    for method, name in {
        "add_ir_module": "parsing and printing IR",
        "_optimize_functions": "optimising functions",
        "_optimize_final_module": "optimising modules",
        "_finalize_final_module": "machine code",
    }.items():
        found.watch(library, method, name)
    found.watch(CodeCache, "save_overload", "saving")
    start = time.process_time()
    with event.install_listener("numba:run_pass", Steps()):
        model = StreamSVMClassifier()
        model.learn_one({"a": 1.0}, 1)
        model.predict_one({"a": 1.0})
    whole = time.process_time() - start
    found.steps["between steps"] = whole - sum(found.steps.values())
    for title, counts in (("steps", found.steps), ("functions", found.functions)):
        print(f"\n{title}, of {whole:.1f} s")
        for name, seconds in counts.most_common(30):
            print(f"  {seconds:6.2f} s  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    if args.profile:
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o700)
            os.environ |= {"NUMBA_CACHE_DIR": cache, "STREAMSVM_JOBS": "1"}
            profile()
        return
    here = Path(__file__).resolve().parents[2]
    compare([here] if args.beside is None else [args.beside.resolve(), here], args.repeats)


if __name__ == "__main__":
    main()
