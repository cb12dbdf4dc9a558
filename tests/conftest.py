from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMSVM_DATA", ROOT / ".." / "shared" / "data")).resolve()

# What processes of the tests begin with; there is nothing to be found in it.
collect_ignore = ["warm.py"]

# Many processes are started: what Python compiled for one is there for the others, also where no bytecode is wanted.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Threads of numerical libraries that have nothing to do sleep: there are more processes than cores, and while one looks
# whether there is work, another that has some waits.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# The same examples in every run, and no clock: compiling may take its time.
hypothesis.settings.register_profile(
    "streamsvm", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("streamsvm")


def pytest_configure(config: pytest.Config) -> None:
    """Compile in as many processes as there are cores; workers that look for tests already would compile the same."""
    if getattr(config.option, "numprocesses", None) and not config.option.collectonly:
        command = [sys.executable, "-m", "streamsvm", "warmup", "--all", "--quiet"]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


# Tests of these mostly wait: for brokers, browsers, or other processes.
WAIT = {"tests/kafka": "brokers", "tests/keyed": "workers and browsers", "tests/page": "workers and browsers"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Beside those that wait, as many as there are cores."""
    return len(set(WAIT.values())) + (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Those that wait come first, each unit on a worker of its own; the others compute meanwhile."""
    from xdist.scheduler import LoadFileScheduling

    class WaitingFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((unit for folder, unit in WAIT.items() if file.startswith(folder)), file)

    return WaitingFirst(config, log) if config.getvalue("dist") == "loadfile" else None


# What takes its time wherever it is used.
SLOW_FIXTURES = {"started", "mortal", "browser", "released"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what starts a broker or a browser, or builds a release; first comes what waits."""
    for item in items:
        if not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: not item.nodeid.startswith(tuple(WAIT)))


def pytest_collection_finish() -> None:
    """Leave modules and tests to themselves: garbage, which some tests look for often, is among the rest alone."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of data sets; tests that need it are skipped where there is none."""
    if not DATA.is_dir():
        pytest.skip(f"no data sets in {DATA}: set STREAMSVM_DATA to their folder")
    return DATA


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks are not waited for: where nothing loses its power, a file is what was written to it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real browser without a window; where there is none the test is skipped, and fails where there has to be one."""
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
