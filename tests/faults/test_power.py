"""Power failures during short runs: each resumed run gives the results of an uninterrupted one."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.disk import Disk
from tests.faults.power import Trial, every_moment, some_moments
from tests.faults.scenarios import SCENARIOS


@pytest.mark.slow
def test_every_moment_of_a_run(tmp_path: Path) -> None:
    trial = Trial(replace(SCENARIOS["reset"], n_events=50), tmp_path)
    assert every_moment(trial, random.Random(1), 1) > 35


@pytest.mark.slow
def test_some_moments_of_a_run_with_late_labels(tmp_path: Path) -> None:
    trial = Trial(replace(SCENARIOS["joined"], n_events=60), tmp_path)
    some_moments(trial, random.Random(1), 10)


def test_the_recorder_notices_changes_that_bypass_it(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        (tmp_path / "seen").write_bytes(b"1")
        disk.check()
        descriptor = os.open(tmp_path / "seen", os.O_WRONLY)
        os.write(descriptor, b"2")
        os.close(descriptor)
    with pytest.raises(AssertionError, match="seen"):
        disk.check()
