"""Batch solvers in a new process: what they compile, and the memory they use."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from streamsvm.batch import MetricForest

PROGRAM = """
import os
import sys
from pathlib import Path
import numpy as np
import scipy.sparse
from streamsvm import IndexedBCD, SmoothedNewton
from streamsvm.batch import MetricForest, warmup
from streamsvm.batch.indexed_bcd import newton
from streamsvm.batch.smoothed_newton import kernels

def n_compiled():
    return sum(len(f.signatures) for f in vars(kernels).values() if hasattr(f, "signatures"))

def held(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) << 10

class Small(IndexedBCD):
    n_pilot = 100

def warm():
    for s in (1.0, np.inf):
        Small(s=s, max_iter=1).fit(MetricForest.open(sys.argv[1] + ".small"))

warmup()
print(n_compiled())
X = np.random.default_rng(0).normal(size=(50, 4))
for l1 in (0.0, 1e-2):
    for view in (X, scipy.sparse.csr_matrix(X.astype(np.float32))):
        SmoothedNewton(1e-2, l1).fit(view, X[:, 0] > 0.3)
print(n_compiled())

X = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32)
MetricForest.from_batches(sys.argv[1] + ".small", [(X, X[:, 0] > 0)])
warm()  # all is imported and compiled
for shrink in (1.0, 100.0):
    newton.SHRINK = shrink
    if os.fork() == 0:
        warm()  # and mapped
        Path("/proc/self/clear_refs").write_text("5")
        before = held("VmRSS")
        IndexedBCD(max_iter=1).fit(MetricForest.open(sys.argv[1], memory=int(sys.argv[2])))
        print(held("VmHWM") - before, flush=True)
        os._exit(0)
    os.wait()
"""
BOUND = 5 << 20


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return the numbers printed by the program. Its index has 9.6 MB of rows."""

    def stream():
        rng = np.random.default_rng(0)
        w = rng.normal(size=200)
        for _ in range(8):
            X = rng.normal(size=(1500, 200)).astype(np.float32)
            yield X, X @ w + rng.normal(size=1500) > 0.0

    path = tmp_path_factory.mktemp("forest") / "index"
    MetricForest.from_batches(path, stream(), memory=4 << 20)
    command = [sys.executable, "-u", "-W", "ignore", "-c", PROGRAM, str(path), str(BOUND)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.slow
def test_a_warmup_compiles_everything(printed):
    assert printed[0] == printed[1] > 0


@pytest.mark.slow
def test_the_memory_of_a_fit_is_bounded_as_the_system_counts(printed):
    assert len(printed) == 4
    assert max(printed[2:]) <= BOUND
