"""The house as planned: who may import whom, what starting up costs, and the state of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("-c", "from importlinter.cli import lint_imports_command as c; c()"), id="import directions"),
        pytest.param(("-m", "ruff", "check"), id="ruff check"),
        pytest.param(("-m", "ruff", "format", "--check"), id="ruff format"),
        pytest.param(("-m", "mypy"), id="mypy", marks=pytest.mark.slow),
    ],
)
def test_the_code_is_clean(command):
    done = run(sys.executable, *command)
    assert done.returncode == 0, done.stdout + done.stderr


def loaded(statement: str, *options: str) -> set[str]:
    done = run(sys.executable, *options, "-c", f"{statement}; import sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


HEAVY = {"matplotlib", "pyarrow", "pandas", "polars", "sklearn", "kafka", "dask"}


def test_a_learner_brings_nothing_heavy():
    assert not HEAVY & loaded("from streamsvm import CPMClassifier; CPMClassifier()")


def test_the_command_line_starts_without_learners():
    assert not (HEAVY | {"river", "numba"}) & loaded("import streamsvm.cli")


def test_settings_are_refused_without_learners():
    assert not (HEAVY | {"river", "numba"}) & loaded("import streamsvm.run.settings")


def test_a_file_is_refused_without_learners():
    run_ = "import streamsvm.cli; assert streamsvm.cli.main(['run', 'no.csv', '--label', 'y']) == 2"
    assert "streamsvm.online" not in loaded(run_)


def test_interrupts_are_taken_care_of_before_anything_that_takes_time():
    brought = loaded("import streamsvm.__main__", "-S") - loaded("import importlib, signal", "-S")
    assert brought == {"__future__", "streamsvm", "streamsvm.__main__"}  # `typing` takes as long as all of them


def test_connectors_stand_alone():
    assert not (HEAVY | {"river", "numba", "streamsvm"}) & loaded("import connectors")


def test_a_generated_stream_brings_nothing_heavy():
    found = loaded("from connectors import open_source; open_source('synthetic:demo')")
    assert not (HEAVY | {"river.stream"}) & found


def test_the_rest_of_the_data_sets_stays_to_be_had():
    loaded(
        "from connectors import open_source; open_source('synthetic:sea'); import river.datasets; "
        "assert issubclass(river.datasets.synth.SEA, river.datasets.base.SyntheticDataset) and river.datasets.Phishing"
    )


def test_nothing_is_compiled_at_import():
    statement = (
        "import numba.core.dispatcher as d; "
        "d.Dispatcher.compile = lambda *a: (_ for _ in ()).throw(AssertionError('compiled')); "
        "import streamsvm.online, streamsvm.kernels.rows, streamsvm.kernels.polytope, streamsvm.kernels.budgeted"
    )
    loaded(statement)
