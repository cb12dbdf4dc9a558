"""The architecture: import rules, cost of startup, and code quality."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamsvm.core.cache import kernel_sources

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("-c", "from importlinter.cli import lint_imports_command as c; c()"), id="import directions"),
        pytest.param(("-m", "ruff", "check"), id="ruff check"),
        pytest.param(("-m", "ruff", "format", "--check"), id="ruff format"),
    ],
)
def test_the_code_is_clean(command):
    done = run(sys.executable, *command)
    assert done.returncode == 0, done.stdout + done.stderr


TYPED = ("streamsvm", "connectors")
SCRIPT = """
from streamsvm import StreamSVMClassifier, load
from streamsvm.run import Run, RunConfig

event = {"a": 1.0}
model = StreamSVMClassifier(refit="trees", cost={"fraud": {"fine": 10.0}})
model.learn_one(event, "fine", time=0.0)
print(model.predict_one(event), model.explain_one(event), model.refits, model.relevance["a"])
saved = load("model")
print(saved.predict_one(event), saved.classes_)
config = RunConfig(source=["a.csv", "b.csv"], label="y", refit="trees,every=5000", checkpoint_every=1000, page=8080)
print(Run(config).start().metrics.accuracy)
"""
# Garbage collection would take a quarter of the time.
MYPY = "import gc; gc.disable(); gc.enable = int; from mypy.__main__ import console_entry; console_entry()"
WRONG = """
model.predict_won(event)
saved.lern_one(event, "fine")
StreamSVMClassifier(effort="hihg")
"""


@pytest.mark.slow
def test_a_type_checker_finds_mistakes_of_a_script_and_none_in_the_packages(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + WRONG)
    # Without a cache from earlier, do not write one: that takes a quarter of the time.
    cache = () if (ROOT / ".mypy_cache").is_dir() else ("--cache-dir", os.devnull)
    done = run(sys.executable, "-c", MYPY, *cache, *TYPED, str(script))
    n_modules = sum(1 for package in TYPED for _ in (ROOT / package).rglob("*.py"))
    assert f"checked {n_modules + 1} source files" in done.stdout, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "error:" in line]
    assert all(mistake in done.stdout for mistake in ("predict_won", "lern_one", "hihg")), done.stdout
    first = SCRIPT.count("\n") + 2
    # Not the folder: messages of an equal script may come from the cache.
    found = {(Path(line.split(":")[0]).name, line.split(":")[1]) for line in lines}
    assert found == {(script.name, str(first + i)) for i in range(3)}, done.stdout


def loaded(statement: str, *options: str) -> set[str]:
    done = run(sys.executable, *options, "-c", f"{statement}; import sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_numba_is_imported_in_core_alone():
    others = (path for path in (ROOT / "streamsvm").rglob("*.py") if path.parent.name != "core")
    found = [str(path) for path in others if re.search(r"^\s*(from|import) (numba|llvmlite)", path.read_text(), re.M)]
    assert found == []


HEAVY = {"matplotlib", "pyarrow", "pandas", "polars", "sklearn", "kafka", "dask"}


def test_a_learner_imports_nothing_heavy_and_compiles_nothing():
    statement = (
        "import numba.core.dispatcher as d; "
        "d.Dispatcher.compile = lambda *a: (_ for _ in ()).throw(AssertionError('compiled')); "
        "import streamsvm.loading, streamsvm.features.scaler, streamsvm.polytope.kernels, streamsvm.budgeted.kernels; "
        "from streamsvm import CPMClassifier; CPMClassifier()"
    )
    assert not HEAVY & loaded(statement)


def test_the_command_line_starts_and_settings_and_a_file_are_refused_without_learners():
    late = loaded(
        f"import sys, streamsvm.cli, streamsvm.run.checks; assert not {HEAVY | {'river', 'numba'}} & set(sys.modules); "
        "assert streamsvm.cli.main(['run', 'no.csv', '--label', 'y']) == 2"
    )
    assert "streamsvm.online.base" not in late


def test_interrupts_are_handled_before_slow_imports():
    brought = loaded("import streamsvm.__main__", "-S") - loaded("import importlib, signal", "-S")
    assert brought == {"__future__", "streamsvm", "streamsvm.__main__"}  # `typing` takes as long as all of them


def test_connectors_import_nothing_of_the_package():
    assert not (HEAVY | {"river", "numba", "streamsvm"}) & loaded("import connectors")


def test_a_generated_stream_imports_nothing_heavy_and_data_sets_remain_importable():
    heavy = HEAVY | {"river.stream"}
    loaded(
        "import sys; from connectors import open_source; open_source('synthetic:demo'); open_source('synthetic:sea'); "
        f"assert not {heavy} & set(sys.modules); import river.datasets; "
        "assert issubclass(river.datasets.synth.SEA, river.datasets.base.SyntheticDataset) and river.datasets.Phishing"
    )


def test_modules_with_kernels_import_nothing_whose_content_is_not_in_the_key_of_compiled_code():
    sources = kernel_sources()
    for path, source in sources.items():
        if path.parent.name != "core":
            for name in (name for node in ast.walk(ast.parse(source)) for name in imported(node)):
                is_ours = name.startswith(("streamsvm.", "connectors", "simulations"))
                assert not is_ours or ROOT / Path(*name.split(".")).with_suffix(".py") in sources, f"{path}: {name}"
                assert name.partition(".")[0] not in {"river", "scipy", "narwhals", "orjson", "tqdm"}, path


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    whole = ROOT / Path(*str(node.module).split("."))
    return [f"{node.module}.{alias.name}" if whole.is_dir() else str(node.module) for alias in node.names]


PACKAGES = ("streamsvm", "connectors", "simulations", "tests", "docs")


def test_the_first_line_of_a_docstring_has_at_most_79_characters():
    for path in (path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py"))):
        found = re.findall(r'^ *r?"""((?:(?!""").){80,})', path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not found, path


OF_LIBRARIES = {
    *("_multiclass", "_get_params", "_is_stochastic", "_mutable_attributes"),  # of River
    *("_predictors", "_baseline_prediction"),  # of scikit-learn
    *("_TIMED_OUT", "_PARTITION_EOF"),  # of confluent_kafka
    *("_replace", "_exit", "_Compress", "_Decompress", "_SubParsersAction", "_group_actions"),  # of Python
}
OF_NUMBA = {
    *("_cache", "_data_layout", "_getvalue", "_module_pass_manager", "_rebuild", "_reduce"),
    "_get_module_for_linking",
}


def test_private_members_are_used_by_their_own_class_and_module_alone():
    for path in (path for top in ("streamsvm", "connectors") for path in sorted((ROOT / top).rglob("*.py"))):
        libraries = OF_LIBRARIES | (OF_NUMBA if path.parent.name == "core" else set())
        nodes = list(ast.walk(ast.parse(path.read_text())))
        found = [node for node in nodes if isinstance(node, ast.Attribute)]
        private = [node for node in found if node.attr.startswith("_") and not node.attr.startswith("__")]
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        owners = {"self", "cls", "super()", *(node.name for node in classes)}
        own = {node.attr for node in private if owner_of(node) in owners}
        own |= {each.name for node in classes for each in node.body if isinstance(each, ast.FunctionDef)}
        others = {node.attr: node.lineno for node in private if node.attr not in own | libraries}
        assert not others or path in OF_KAFKA, f"{path}: {others}"


def owner_of(node: ast.Attribute) -> str:
    return node.value.id if isinstance(node.value, ast.Name) else ast.unparse(node.value)


# It uses private parts of kafka-python's producer, which have no public interface for this.
OF_KAFKA = {ROOT / "connectors" / "kafka" / "producer.py"}
