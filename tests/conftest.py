from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import share_forks

# No test needs a plugin. The one of trio would double the time of the import.
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

import hypothesis

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMSVM_DATA", ROOT / ".." / "shared" / "data")).resolve()

# Preloaded by the test processes; contains no tests.
collect_ignore = ["warm.py"]

# Many processes are started: share their bytecode, even if the environment disables it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The tests compile with numba, also where the compiled library was built. `tests/test_compiled.py` tests the library.
os.environ.setdefault("STREAMSVM_CODE", "numba")

# Idle threads of numerical libraries sleep. There are more processes than cores, and spinning threads would block the
# others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Equal examples in each run, and no deadline, because of compilation.
hypothesis.settings.register_profile(
    "streamsvm",
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("streamsvm")


# `warmup` leaves most batch solvers to their first use, which several workers would have at once.
COMPILE = """if True:
    import sys
    from streamsvm.cli import main
    code = main(["warmup", "--all", "--quiet"])
    import numpy as np
    import scipy.sparse
    from streamsvm import IndexedBCD, SampledCuts
    X = np.random.default_rng(0).normal(size=(60, 3))
    for rows in (X, scipy.sparse.csr_matrix(X)):
        for solver in (IndexedBCD(max_iter=2), SampledCuts(max_iter=2)):
            solver.fit(rows, X[:, 0] > 0.0)
    sys.exit(code)
"""
_COMPILING = pytest.StashKey["subprocess.Popen[bytes]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Compile with one process per core while the workers collect tests.

    Otherwise, all of them would compile at once. A fresh checkout translates the tests to bytecode first.
    """
    if getattr(config.option, "numprocesses", None) and not config.option.collectonly:
        quiet: dict[str, Any] = {"cwd": ROOT, "stdout": subprocess.DEVNULL}
        config.stash[_COMPILING] = subprocess.Popen([sys.executable, "-W", "ignore", "-c", COMPILE], **quiet)
        if not any((ROOT / "tests" / "__pycache__").glob("test_*-pytest-*.pyc")):
            command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--collect-only", *config.args]
            subprocess.run(command, check=False, **quiet)
        if sys.version_info < (3, 14):  # later, connections need a key that workers do not have
            share_forks()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Distribute no tests before everything is compiled."""
    if node.config.stash[_COMPILING].wait():
        pytest.exit("the compilation failed", 1)


# These tests mostly wait for brokers, browsers or other processes. Each unit is for one worker.
WAIT = {
    **dict.fromkeys(("tests/kafka/test_run", "tests/kafka/test_late", "tests/kafka/test_tutorial"), "runs"),
    "tests/kafka": "brokers and browsers",
    "tests/page": "brokers and browsers",
    "tests/keyed": "keyed workers",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use two workers more than cores, because three groups of tests wait.

    Each worker costs a collection of all tests. On two cores, four workers take 289 s and five 306 s.
    """
    return 2 + (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Waiting tests start first, one unit per worker; the others compute meanwhile."""
    from xdist.scheduler import LoadFileScheduling

    class WaitingFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((unit for start, unit in WAIT.items() if file.startswith(start)), file)

    return WaitingFirst(config, log) if config.getvalue("dist") == "loadfile" else None


# Files with the longest single tests. They start early, so that no worker computes alone at the end.
LONGEST = (
    *("tests/test_compiled.py", "tests/test_architecture.py", "tests/test_docs.py", "tests/test_release.py"),
    *("tests/refit/", "tests/run/", "tests/simulations/", "tests/faults/"),
)

# Fixtures that make a test slow.
SLOW_FIXTURES = {"started", "mortal", "browser", "released"}


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """Search no module without an example for doctests, which would import it."""
    return [node for node in (yield) if type(node) is pytest.Module or b">>>" in node.path.read_bytes()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with a broker, browser or release as slow; put waiting ones first."""
    for item in items:
        if not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: (not item.nodeid.startswith(tuple(WAIT)), not item.nodeid.startswith(LONGEST)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude modules and tests from garbage collection.

    Some tests run it often, and it would take a sixth of the time of the collection of tests.
    """
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture(scope="session")
def data() -> Path:
    """The directory of data sets. Tests that need it are skipped if there is none."""
    if not DATA.is_dir():
        pytest.skip(f"no data sets in {DATA}: set STREAMSVM_DATA to their folder")
    return DATA


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk; files keep what was written without power failures."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def lasting_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let refits of discarded models end, so that the solver process is reused.

    It starts with the first refit, because many models have none.
    """
    monkeypatch.setattr("streamsvm.refit.jobs.JobHandle.__del__", lambda handle: None)
    monkeypatch.setattr("streamsvm.refit.classifier.get_ready", lambda solver: None)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless browser; without one, the test is skipped, or fails if required."""
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    place, driver = next((path for path in found if path), None), shutil.which("chromedriver")
    if place is None or driver is None:
        lacking = "no Chromium with its chromedriver: apt-get install chromium chromium-driver"
        if os.environ.get("CI") and os.environ.get("STREAMSVM_BROWSER") == "required":
            pytest.fail(lacking)
        pytest.skip(lacking)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = place
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-dev-shm-usage"):
        options.add_argument(f"--{flag}")
    for flag in ("disable-background-networking", "disable-component-update", "disable-sync"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.add_argument("--window-size=1360,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driven = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield driven
    finally:
        driven.quit()
