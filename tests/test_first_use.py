"""First use: what is compiled in several processes is on disk for all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import streamsvm.online
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier, cli, first_use
from streamsvm.kernels import (
    blend,
    budgeted,
    cache_folder,
    compiler,
    costs,
    experts,
    linear,
    maintenance,
    panel,
    pending,
    polytope,
    reasons,
    sets,
    windows,
)
from streamsvm.kernels.entries import Entry

ROOT = Path(__file__).resolve().parents[1]
PREPARE = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s")
from streamsvm import first_use
from streamsvm.kernels import costs, linear
first_use._LEAST_SHARE = 1  # two processes for as little as this
entries = [linear.ENTRIES["run_member"], costs.ENTRIES["run_costs"]]
cold = [entry.name for entry in entries if not entry.is_compiled]
first_use.prepare(entries, jobs=2)
print(cold, [entry.is_compiled for entry in entries])
entries[0].compile()
"""


def prepare(folder: Path) -> tuple[str, str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", PREPARE], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.slow
def test_what_several_processes_compiled_is_kept(tmp_path):
    found, said = prepare(tmp_path)
    assert found == "['linear.run_member', 'costs.run_costs'] [True, True]"
    assert said.count("compiling") == 1
    assert str(tmp_path) in said
    assert prepare(tmp_path) == ("[] [True, True]", "")


def halved(x):
    return x / 2.0


def doubled(x):
    return x * 2.0


def test_what_is_kept_is_loaded_from_where_nothing_can_be_written(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(compiler, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(compiler._Keeping, "failed", False)
    assert compiler.kernel(halved)(4.0) == 2.0
    before = set(tmp_path.rglob("*"))
    monkeypatch.setattr("os.access", lambda place, mode: not mode & os.W_OK)
    monkeypatch.setattr("tempfile.TemporaryFile", Mock(side_effect=PermissionError))  # by which numba tries
    kept, other = compiler.kernel(halved), compiler.kernel(doubled)
    assert (kept(4.0), sum(kept.stats.cache_hits.values())) == (2.0, 1)
    assert caplog.text == ""
    assert (other(4.0), other(4)) == (8.0, 8.0)
    assert not compiler.is_kept()
    assert caplog.text.count(f"cannot be kept in {tmp_path}: it cannot be written to") == 1
    assert set(tmp_path.rglob("*")) == before


def test_shares_are_about_equal_and_whole():
    entries = [
        entry for module in (blend, budgeted, maintenance, linear, polytope) for entry in module.ENTRIES.values()
    ]
    for jobs in (1, 2, 8, 100):
        shares = first_use._shares(entries, jobs)
        assert 1 <= len(shares) <= jobs
        assert sorted(entry.name for share in shares for entry in share) == sorted(entry.name for entry in entries)
    first, second = first_use._shares(entries, 2)
    sizes = [len(set().union(*(entry.reached() for entry in share))) for share in (first, second)]
    assert max(sizes) < 2 * min(sizes)


@pytest.mark.parametrize(("asked", "jobs"), [("3", 3), ("0", 1)])
def test_the_environment_says_in_how_many_processes(monkeypatch, asked, jobs):
    monkeypatch.setenv(first_use.JOBS, asked)
    assert first_use._jobs() == jobs


def test_warmup_compiles_all_that_is_called_first(monkeypatch):
    monkeypatch.setattr(first_use, "_ready", set())
    for learner in (StreamSVMClassifier(), BSGDClassifier(), CPMClassifier()):
        RefitClassifier(learner).run_batch([{"warm": 1.0}], [0])
    needed = {entry.name for module in (windows, panel, experts) for entry in module.ENTRIES.values()}
    assert needed < first_use._ready  # before there is a model to ask
    warmed: list[Entry] = []
    monkeypatch.setattr(streamsvm.online, "prepare", lambda entries, jobs: warmed.extend(entries))
    streamsvm.warmup()
    assert first_use._ready <= {entry.name for entry in warmed}
    streamsvm.warmup(everything=True)
    asked_for = {entry.name for module in (sets, costs, reasons, pending) for entry in module.ENTRIES.values()}
    assert asked_for <= {entry.name for entry in warmed}


def test_warmup_says_where_compiled_code_is_kept(monkeypatch, capsys):
    monkeypatch.setattr(streamsvm.online, "_KERNELS", ("linear",))
    find = cli.importlib.util.find_spec
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == "sklearn" else find(name))
    assert cli.main(["warmup", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.strip() == str(cache_folder())
    monkeypatch.setattr(compiler._Keeping, "failed", True)
    assert cli.main(["warmup", "--jobs", "1"]) == 1
