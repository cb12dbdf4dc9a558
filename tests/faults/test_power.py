"""Power failures during short runs: each resumed run gives the results of an uninterrupted one."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from connectors import open_sink
from streamsvm.models.archive import read_archive, write_archive
from tests.connectors.streams import rows
from tests.faults.disk import Disk, Mark, write_tree
from tests.faults.power import Trial, every_moment, some_moments
from tests.faults.scenarios import SCENARIOS
from tests.faults.survivors import choices, moments, survivor


@pytest.mark.slow
def test_every_moment_of_a_run(tmp_path: Path) -> None:
    trial = Trial(replace(SCENARIOS["reset"], n_events=50), tmp_path)
    assert every_moment(trial, random.Random(1), 1) > 35


@pytest.mark.slow
def test_some_moments_of_a_run_with_late_labels(tmp_path: Path) -> None:
    trial = Trial(replace(SCENARIOS["joined"], n_events=60), tmp_path)
    some_moments(trial, random.Random(1), 10)


@pytest.mark.parametrize("kind", ["out.csv", "out.csv.gz", "out.parquet"])
def test_rows_that_a_sink_has_flushed_are_durable(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run" / kind
    path.parent.mkdir()
    with contextlib.closing(open_sink(str(path))) as sink:
        sink.write({"n": [-1]})
    with Disk(path.parent) as disk, contextlib.closing(open_sink(str(path))) as sink:
        for n in range(3):
            sink.write({"n": [n]})
            sink.flush()
            disk.mark((n + 1, sink.position))
        sink.rewind(sink.position)
    disk.check()
    for i, (_, durable, pending) in enumerate(moments(disk)):
        known = [change.value for change in disk.history[:i] if isinstance(change, Mark)]
        for choose in choices(pending, random.Random(i), 0):
            place = tmp_path / "left"
            shutil.rmtree(place, ignore_errors=True)
            write_tree(survivor(durable, pending, choose), place)
            if known:
                n_rows, position = known[-1]
                with mock.patch("os.fsync"), contextlib.closing(open_sink(str(place / kind), resume=True)) as resumed:
                    resumed.rewind(position)
                assert [row["n"] for row in rows(str(place / kind))] == list(range(n_rows))


@pytest.mark.parametrize("before", ["", "old"])
def test_an_archive_is_replaced_as_a_whole(before: str, tmp_path: Path) -> None:
    path = tmp_path / "run" / "model"
    path.parent.mkdir()
    if before:
        write_archive(path, {"class": "old"}, {})
    with Disk(path.parent) as disk:
        write_archive(path, {"class": "new"}, {"x": np.arange(2000.0)})
        disk.mark("new")
    disk.check()
    for i, (_, durable, pending) in enumerate(moments(disk)):
        for choose in choices(pending, random.Random(i), 2):
            place = tmp_path / "left"
            shutil.rmtree(place, ignore_errors=True)
            write_tree(survivor(durable, pending, choose), place)
            found = str(read_archive(place / "model")[0]["class"]) if (place / "model").exists() else ""
            assert found in ({"new"} if i == len(disk.history) else {before, "new"})


def test_the_recorder_notices_changes_that_bypass_it(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        (tmp_path / "seen").write_bytes(b"1")
        disk.check()
        descriptor = os.open(tmp_path / "seen", os.O_WRONLY)
        os.write(descriptor, b"2")
        os.close(descriptor)
    with pytest.raises(AssertionError, match="seen"):
        disk.check()
