"""Failing system calls: a clear error or no effect, and equal resumed results."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from connectors import ConnectorError, open_sink
from streamsvm.keyed.topics import Growth
from streamsvm.run.checkpoint import result_lock
from tests.errors import raises
from tests.faults.calls import HOWS, Failure, Trial, every_call
from tests.faults.disk import Disk
from tests.faults.scenarios import SCENARIOS
from tests.faults.test_keyed import Copy, Topic


@pytest.mark.slow
@pytest.mark.parametrize(("name", "step"), [("reset", 14), ("joined", 17)])
def test_system_calls_that_fail(name: str, step: int, tmp_path: Path) -> None:
    trial = Trial(replace(SCENARIOS[name], n_events=30), tmp_path)
    found = list(every_call(trial, itertools.cycle(HOWS), step=step))
    assert len(found) >= len(HOWS)
    assert [(failure, error) for failure, error in found if error is not None] == []


def test_system_calls_of_the_states_of_moved_keys_that_fail(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.growth = Growth(2, {"events": [0, 0]}, 0.0)
    topic.store({(0, b"moved"): b"state"}, {0: 1})
    n_failed = 0
    for n, how in zip(itertools.count(1), itertools.cycle(["EIO", "ENOSPC"])):
        failure = Failure(n, how)
        with Disk(tmp_path, failure), contextlib.suppress(ConnectorError), contextlib.ExitStack() as stack:
            assert Copy(topic, stack).find(1, b"moved", None) == b"state"
        if not failure.at:
            break
        n_failed += 1
        with contextlib.ExitStack() as stack:
            assert Copy(topic, stack).find(1, b"moved", None) == b"state"
    assert n_failed > 2
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_cannot_be_removed_stops_no_run(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, result_lock("--out", str(tmp_path / "out.csv")):
        patch.setattr("os.unlink", Mock(side_effect=PermissionError))
    with result_lock("--out", str(tmp_path / "out.csv")):
        assert list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst", "lz4"])
def test_a_compressed_output_is_closed_after_a_failed_write(suffix: str, tmp_path: Path) -> None:
    failure = Failure(1 << 30, "ENOSPC")
    with Disk(tmp_path, failure), contextlib.closing(open_sink(str(tmp_path / f"out.csv.{suffix}"))) as sink:
        sink.write({"row": [1]})
        failure.n = failure.n_calls + 1
        with raises(ConnectorError, reason="write"):
            sink.flush()
