"""Our figures beside the published ones of StreamArena."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import numpy as np
import pytest

import simulations
from simulations.benchmarks import arena

FIGURES = {"real/machine": {"Forest": [0.4, 80.0, 100.0], "Tree": [0.5, 90.0, 9.0]}, "real/weather": {}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSVM_DATA", str(tmp_path))
    monkeypatch.setattr("simulations.keeping.RESULTS", tmp_path / "results")
    (tmp_path / arena.FIGURES).write_text(json.dumps(FIGURES))
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f};{'on' if x > 0 else 'off'};{y:.3f}" for x, y in rng.normal(size=(3_000, 2))]
    (tmp_path / "machine.csv").write_text("\n".join(["a;state;b", *rows]))
    return tmp_path


def test_a_stream_stands_beside_the_best_published_learners(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["arena", f"{folder / 'machine.csv'}?delimiter=;&label=state"])
    arena.main()
    row = capsys.readouterr().out.splitlines()[-1].split("|")
    loss, accuracy, _ = (float(text) for text in row[2].split("/"))
    assert loss < 0.1
    assert accuracy > 95.0
    assert row[3].split() == ["Forest:", "0.400", "/", "80.0", "/", "100"]
    assert row[4].split() == ["Tree:", "0.500", "/", "90.0", "/", "9.0"]
    assert arena.table().splitlines()[-1].split("|") == row


@pytest.mark.parametrize("files", [["other.csv"], ["machine=nowhere.csv"]])
def test_files_that_are_no_stream_or_do_not_exist_are_refused(folder, monkeypatch, files):
    monkeypatch.setattr(sys, "argv", ["arena", *files])
    with pytest.raises(SystemExit):
        arena.main()
    assert not (folder / "results").exists()


def test_all_modules_of_the_simulations_are_importable():
    for module in pkgutil.walk_packages(simulations.__path__, "simulations."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
