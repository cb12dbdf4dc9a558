"""Custom solvers, defined anywhere and run from any directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamsvm.refit.jobs import _Worker
from streamsvm.refit.solvers import SOLVERS, Given

ROOT = Path(__file__).resolve().parents[2]
SOLVER = """
from sklearn.neighbors import KNeighborsClassifier

class Own(KNeighborsClassifier):
    pass
"""
PROGRAM = """
import numpy as np
from own import Own as Beside
from streamsvm import CPMClassifier, RefitClassifier
from streamsvm.refit import Every

X = np.random.default_rng(0).normal(size=(300, 2))
for solver, n_classes in ((Own(), 2), (Beside(), 120)):
    model = RefitClassifier(CPMClassifier(), solver, trigger=Every(200), delay=64)
    model.learn_many(X, [k % n_classes for k in range(300)])  # of many classes scikit-learn warns
    print(type(solver).__module__, model.refits[0]["outcome"])
"""


@pytest.mark.slow
def test_a_solver_of_the_program_is_found_in_it_and_beside_it(tmp_path):
    (tmp_path / "own.py").write_text(SOLVER)
    (tmp_path / "program.py").write_text(SOLVER + PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["__main__ votes", "own votes"]
    assert done.stderr == ""


def test_solvers_of_the_package_run_in_a_process():
    assert all(solver.holds_lock for solver in (*SOLVERS.values(), Given))


def test_a_worker_that_does_not_read_yet_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    worker = _Worker(bytes(1_000_000))  # more than the capacity of a pipe
    assert worker.is_alive
    worker.end()


def test_an_interrupt_of_the_program_does_not_reach_its_worker():
    worker = _Worker()
    try:
        assert os.getpgid(worker._process.pid) != os.getpgid(0)
    finally:
        worker.end()


FORKING = """
import multiprocessing, numpy as np
import streamsvm.batch  # a module that a thread is about to import stays half imported in a child
from sklearn.ensemble import RandomForestClassifier
from streamsvm import CPMClassifier, RefitClassifier
from streamsvm.refit import Every

def rest(model):
    model.learn_many(X[250:], y[250:])
    return model.predict_proba_many(X), [refit["outcome"] for refit in model.refits]

X = np.random.default_rng(0).normal(size=(600, 2))
y = (X[:, 0] > 0).tolist()
solvers = (RandomForestClassifier(100, random_state=0), "newton", "trees")
models = [RefitClassifier(CPMClassifier(), solver, trigger=Every(200), delay=100) for solver in solvers]
for model in models:
    model.learn_many(X[:250], y[:250])
context = multiprocessing.get_context("fork")
answers = context.SimpleQueue()
child = context.Process(target=lambda: answers.put([rest(model) for model in models]))
child.start()
for model, (found, outcomes) in zip(models, answers.get(), strict=True):
    own, own_outcomes = rest(model)
    assert np.array_equal(found, own), (found, own)
    print(outcomes == own_outcomes, own_outcomes[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_child_process_solves_anew_what_is_under_way():
    command = [sys.executable, "-c", FORKING]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == 3 * ["True", "votes"], done.stderr


WITHOUT_PROCESSES = """
import logging, sys
import numpy as np
from streamsvm import CPMClassifier, RefitClassifier
from streamsvm.refit import Every

logging.basicConfig(stream=sys.stdout, format="%(message)s")
X = np.random.default_rng(0).normal(size=(600, 2))
y = (X[:, 0] > 0).tolist()

def said():
    model = RefitClassifier(CPMClassifier(), "trees", trigger=Every(200), delay=64)
    model.learn_many(X, y)
    assert {refit["outcome"] for refit in model.refits} == {"votes"}
    return model.predict_proba_many(X)

with_processes = said()
from streamsvm.refit import jobs
jobs._workers.pop().end()
for python in ("/nowhere/python", "/bin/false"):  # none starts, and none is of use
    sys.executable = python
    assert np.array_equal(said(), with_processes)
    for job in list(jobs._jobs):  # the last was only begun
        job.wait()
    jobs._refused.clear()
"""


@pytest.mark.slow
def test_where_no_process_can_be_started_a_thread_finds_the_same():
    command = [sys.executable, "-c", WITHOUT_PROCESSES]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no process can be started for solvers") == 2
