"""Power failures during short runs; resumed runs give uninterrupted results."""

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

from connectors import open_sink, open_source
from streamsvm.models.archive import read_archive, write_archive
from tests.connectors.streams import rows
from tests.errors import raises
from tests.faults.contents import Mark, write_tree
from tests.faults.disk import Disk
from tests.faults.power import Trial, every_moment, some_moments
from tests.faults.scenarios import SCENARIOS
from tests.faults.survivors import choices, moments, survivor


@pytest.mark.slow
def test_every_moment_of_a_run(tmp_path: Path) -> None:
    trial = Trial(replace(SCENARIOS["reset"], n_events=30), tmp_path)
    assert every_moment(trial, random.Random(1), 1) > 25


@pytest.mark.slow
def test_some_moments_of_a_run_with_late_labels(tmp_path: Path) -> None:
    trial = Trial(replace(SCENARIOS["joined"], n_events=60), tmp_path)
    some_moments(trial, random.Random(1), 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["folders", "sqlite"])
def test_results_without_checkpoints_are_durable_at_the_end_of_a_run(name: str, tmp_path: Path) -> None:
    more = {"checkpoint": None, "checkpoint_every": None}
    given = SCENARIOS[name]
    run = replace(given, options=given.options | more, earlier=None, first={}, n_events=70)
    run.prepare(tmp_path / "run")
    with Disk(tmp_path / "run") as disk:
        run.run(tmp_path / "run")
    whole = run.results(tmp_path / "run")
    *_, (_, durable, pending) = moments(disk)
    for i, choose in enumerate(choices(pending, random.Random(1), 0)):
        write_tree(survivor(durable, pending, choose), tmp_path / str(i))
        assert run.results(tmp_path / str(i)) == whole


SINKS = ["{}/out.csv", "{}/out.csv.gz", "{}/out.parquet", "sqlite:///{}/out.db?table=a"]
SINKS += ["{}/out?format=csv&rotate_bytes=8", "{}/out?format=csv&partition_by=date"]
SINKS += ["{}/out.parquet?rotate_bytes=1000", "{}/out.parquet?partition_by=date"]


@pytest.mark.slow
@pytest.mark.parametrize("url", SINKS)
def test_rows_that_a_sink_has_flushed_are_durable(url: str, tmp_path: Path) -> None:
    run, left, source = tmp_path / "run", tmp_path / "left", open_source("synthetic:sea?n=1")
    run.mkdir()
    with contextlib.closing(open_sink(url.format(run), source=source)) as sink:  # these rows are replaced
        sink.write_at({"n": [-3, -2, -1]}, [0, 0, 0])
    with Disk(run) as disk:
        with contextlib.closing(open_sink(url.format(run), source=source)) as sink:
            for n in range(2):
                sink.write_at({"n": [n]}, [86_400_000 * (n + 1)])
                sink.flush()
                disk.mark(sink.position)
        disk.mark("end")
    disk.check()
    seen = set()
    for i, (_, durable, pending) in enumerate(moments(disk)):
        known = [change.value for change in disk.history[:i] if isinstance(change, Mark)]
        for choose in choices(pending, random.Random(i), 0) if known else ():
            tree = survivor(durable, pending, choose)
            if (len(known), repr(tree)) in seen:
                continue
            seen.add((len(known), repr(tree)))
            shutil.rmtree(left, ignore_errors=True)
            write_tree(tree, left)
            if known[-1] != "end":
                with mock.patch("os.fsync"), contextlib.closing(open_sink(url.format(left), resume=True)) as resumed:
                    resumed.rewind(known[-1])
            found = rows(url.format(left) if "table" in url else url.format(left).partition("?")[0])
            assert sorted(int(row["n"]) for row in found) == list(range(min(2, len(known))))


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
    with raises(AssertionError, named="seen"):
        disk.check()
