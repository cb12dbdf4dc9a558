"""Solvers of a program's own, wherever they are defined and wherever the program is run from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOLVER = """
from sklearn.naive_bayes import GaussianNB

class Own(GaussianNB):
    pass
"""
PROGRAM = """
import numpy as np
from streamsvm import CPMClassifier, RefitClassifier
from streamsvm.refit import Every

X = np.random.default_rng(0).normal(size=(300, 2))
model = RefitClassifier(CPMClassifier(), Own(), trigger=Every(200), delay=64)
model.learn_many(X, (X[:, 0] > 0).tolist())
print(model.refits[0]["outcome"])
"""


@pytest.mark.parametrize(
    "program", [SOLVER + PROGRAM, "from own import Own\n" + PROGRAM], ids=["in the program", "beside it"]
)
def test_a_solver_of_the_program_is_found(tmp_path, program):
    (tmp_path / "own.py").write_text(SOLVER)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "program.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "votes"
    assert done.stderr == ""
