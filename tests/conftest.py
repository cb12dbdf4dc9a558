from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMSVM_DATA", ROOT / ".." / "shared" / "data")).resolve()

# The same examples in every run, and no clock: compiling may take its time.
hypothesis.settings.register_profile(
    "streamsvm", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("streamsvm")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of data sets; tests that need it are skipped where there is none."""
    if not DATA.is_dir():
        pytest.skip(f"no data sets in {DATA}: set STREAMSVM_DATA to their folder")
    return DATA
