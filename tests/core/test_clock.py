"""A clock that stops during compilation."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from streamsvm import CPMClassifier
from streamsvm.core import clock
from streamsvm.core.cache import cache_folder
from tests.commands import command, completed
from tests.run.conftest import write_stream


def test_the_clock_stands_still_while_kernels_are_compiled():
    began, before, compiled = time.perf_counter(), clock.working_time(), clock.compile_seconds()
    with clock.compiling(), clock.compiling():
        time.sleep(0.05)
        assert clock.compile_seconds() >= compiled + 0.05
        assert clock.working_time() - before <= time.perf_counter() - began - 0.05
    spent = clock.compile_seconds()
    assert spent >= compiled + 0.05
    assert clock.compile_seconds() == spent


def test_garbage_is_collected_rarely_during_compilation_and_as_before_afterwards():
    thresholds = gc.get_threshold()
    with clock.compiling():
        with clock.compiling():
            assert gc.get_threshold() == (5000, *thresholds[1:])
        assert gc.get_threshold()[0] == 5000
    assert gc.get_threshold() == thresholds


def test_threads_that_compile_one_after_the_other_began_count_until_the_last_ends():
    compiled, first_ended = clock.compile_seconds(), threading.Event()

    def compile_longer(began):
        with clock.compiling():
            began.set()
            first_ended.wait()
            time.sleep(0.05)

    began = threading.Event()
    thread = threading.Thread(target=compile_longer, args=(began,))
    with clock.compiling():
        thread.start()
        began.wait()
    at_end_of_first = clock.compile_seconds()
    first_ended.set()
    thread.join()
    assert clock.compile_seconds() >= at_end_of_first + 0.05 >= compiled + 0.05


@pytest.mark.slow
def test_compiling_is_in_no_rate_of_a_first_run(tmp_path: Path):
    write_stream(tmp_path / "in.csv", 300)
    CPMClassifier().run_batch([{"warm": 1.0}], [0])
    folder = tmp_path / "cache" / "streamsvm" / cache_folder().name
    shutil.copytree(cache_folder(), folder, ignore=shutil.ignore_patterns("online.driver.drive-*"))
    folder.parent.chmod(0o700)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    asked = ("run", "in.csv", "--label", "y", "--model", "cpm", "--summary", "s.json")
    cold = subprocess.run(
        command(*asked), cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=280
    )
    first = json.loads((tmp_path / "s.json").read_text())["process"]
    warm = completed(*asked, cwd=tmp_path, check=True)
    second = json.loads((tmp_path / "s.json").read_text())["process"]
    assert first["compile_seconds"] > 1.0
    assert first["seconds"] < first["compile_seconds"]
    assert first["first_prediction_s"] < first["compile_seconds"]
    assert second["compile_seconds"] == 0.0
    assert [run.stderr.count("compiling kernels") for run in (cold, warm)] == [1, 0]
    assert ["kernels compiled in" in run.stdout for run in (cold, warm)] == [True, False]
