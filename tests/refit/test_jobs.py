"""Jobs of programs: custom solvers, forks, failing starts, and exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamsvm.refit import jobs, solver_process
from streamsvm.refit.jobs import Job, Refit
from streamsvm.refit.solver_process import NoProcess, SolverProcess
from streamsvm.refit.solvers import solver_of
from tests.commands import wait_for

ROOT = Path(__file__).resolve().parents[2]
OWN = """
import time
from sklearn.tree import DecisionTreeClassifier

class Own(DecisionTreeClassifier):
    is_fitting = False

    def fit(self, X, y):
        Own.is_fitting = True
        time.sleep(0.2)  # so that it is under way when the program goes on
        return super().fit(X, y)

class Failure(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")  # can be pickled, but not unpickled

class Failing(Own):
    def fit(self, X, y):
        raise Failure(3, "few rows")
"""
ENDLESS = """
import os, threading, time

class Slow:
    name = "slow"

    def __init__(self, is_sent, folder):
        self.is_sent, self.folder = is_sent, folder
        self.own = None if is_sent else threading.Lock()  # cannot be sent to another process

    def solve(self, task):
        (self.folder / "begun.tmp").write_text(str(os.getpid()))
        (self.folder / "begun.tmp").replace(self.folder / "begun")
        time.sleep(600 if self.is_sent else 0.5)
        (self.folder / "done").touch()

def begin(is_sent, folder):
    from streamsvm.refit.jobs import Job, Refit
    folder.mkdir()
    job = Job(Slow(is_sent, folder), Refit(1, 0, 64), lambda: None)
    while not (folder / "begun").exists():
        time.sleep(0.001)
"""

# It ends by SIGKILL, during a refit.
KILLED = """
import logging, multiprocessing, os, pathlib, sys
import numpy as np
import own, endless
from streamsvm import CPMClassifier, RefitClassifier
from streamsvm.refit import Every, jobs, solver_process

logging.basicConfig(stream=sys.stdout, format="%(message)s")
jobs.PATIENCE_S = 600.0  # no warning on a slow machine
folder = pathlib.Path(sys.argv[1])
X = np.random.default_rng(0).normal(size=(300, 2))

def begun(solver, n_classes):
    y = [k % n_classes for k in range(300)]
    model = RefitClassifier(CPMClassifier(), solver, trigger=Every(200), delay=64)
    model.learn_many(X[:201], y[:201])
    return model, y

def rest(model, y):
    model.learn_many(X[201:], y[201:])
    return model.predict_proba_many(X), model.refits[0]["outcome"]

RefitClassifier(CPMClassifier(), Own())
assert "streamsvm.batch.threads" in sys.modules  # a process forked during its import in a thread would wait forever
# Solvers defined here and beside the program. Of many classes scikit-learn warns.
models = [begun(Own(), 2), begun(own.Own(), 120)]
context = multiprocessing.get_context("fork")
answers = context.SimpleQueue()
child = context.Process(target=lambda: answers.put([rest(*model) for model in models]))
while not Own.is_fitting:  # otherwise the process may be forked in the middle of an import
    time.sleep(0.001)
child.start()
in_child = answers.get()
here = [rest(*model) for model in models]
print("defined here and beside:", *(outcome for _, outcome in here))
print("equal in a child:", *(np.array_equal(one, other) for (one, _), (other, _) in zip(here, in_child)))
print("outcomes in a child:", *(outcome for _, outcome in in_child))

model, y = begun("newton", 2)
proba, _ = rest(model, y)
model.save(folder / "model")
print("predicted:", model.predict_many(X[:20]).tolist())
processes, python = solver_process._processes[:], sys.executable
solver_process._processes.clear()
for path in ("/nowhere/python", "/bin/false"):  # one does not start, and one ends at once
    sys.executable = path
    print("equal without a process:", np.array_equal(rest(*begun("newton", 2))[0], proba))
    solver_process.refused.clear()
solver_process._processes[:], sys.executable = processes, python
print("a failure and the next refit:", *(rest(*begun(solver, 2))[1] for solver in (own.Failing(), "newton")))
endless.begin(True, folder / "killed")
os.kill(os.getpid(), 9)
"""

# It exits during refits in a thread and in a process.
EXITING = """
import pathlib, sys
import numpy as np
import streamsvm
assert not any(name.startswith("streamsvm.refit") for name in sys.modules)
folder = pathlib.Path(sys.argv[1])
model = streamsvm.load(folder / "model")
X = np.random.default_rng(0).normal(size=(300, 2))
print("predicted:", model.predict_many(X[:20]).tolist())
print("loaded:", type(model).__name__)
import endless
for is_sent in (False, True):
    endless.begin(is_sent, folder / f"ended {is_sent}")
"""


def output_of(program: str, folder: Path, code: int) -> list[str]:
    """Run a program beside `own` and `endless`; return the output of all."""
    (folder / "own.py").write_text(OWN)
    (folder / "endless.py").write_text(ENDLESS)
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-u", str(folder / "program.py"), str(folder)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with (folder / "output").open("w") as output:  # not a pipe, whose end would be awaited
        done = subprocess.run(command, env=env, cwd=ROOT, stdout=output, stderr=output, timeout=280)
    said = (folder / "output").read_text()
    assert done.returncode == code, said
    return [line for line in said.splitlines() if "compiling kernels" not in line]  # said once on a machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def killed(folder: Path) -> list[str]:
    return output_of(OWN + KILLED, folder, -signal.SIGKILL)


@pytest.fixture(scope="module")
def exited(folder: Path, killed: list[str]) -> list[str]:
    return output_of(EXITING, folder, 0)


def is_there(number: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_solver_of_the_program_is_found_in_it_and_beside_it(killed):
    assert killed[0] == "defined here and beside: votes votes"
    assert len(killed) == 10  # and no warning of scikit-learn


@pytest.mark.slow
def test_a_child_process_restarts_running_refits(killed):
    assert killed[1:3] == ["equal in a child: True True", "outcomes in a child: votes votes"]


@pytest.mark.slow
def test_where_no_process_can_be_started_a_thread_finds_the_same(killed):
    warned = [line for line in killed if line.startswith("no process can be started for solvers")]
    assert len(warned) == killed.count("equal without a process: True") == 2


@pytest.mark.slow
def test_an_archive_is_read_without_imports(killed, exited):
    assert exited == [killed[3], "loaded: RefitClassifier"]


@pytest.mark.slow
def test_a_failure_that_cannot_be_sent_is_named_and_later_refits_vote(killed):
    assert killed[-1].startswith("a failure and the next refit: failed: RuntimeError: Failure('3: few rows')")
    assert killed[-1].endswith(" votes")


@pytest.mark.slow
def test_a_solver_ends_by_itself_when_the_program_is_killed(killed, folder):
    number = int((folder / "killed" / "begun").read_text())
    wait_for(lambda: not is_there(number), "its end")


@pytest.mark.slow
def test_at_exit_a_thread_finishes_and_a_process_is_ended(exited, folder):
    assert (folder / "ended False" / "done").exists()  # otherwise compiled code is unloaded while in use
    assert not is_there(int((folder / "ended True" / "begun").read_text()))


def program_of(tmp_path, monkeypatch, code):
    """Replace the interpreter by a shell script."""
    (tmp_path / "python").write_text(f"#!/bin/sh\n{code}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


def test_a_worker_that_does_not_read_yet_is_not_waited_for(tmp_path, monkeypatch):
    program_of(tmp_path, monkeypatch, "exec sleep 1000")
    worker = SolverProcess(bytes(1_000_000))  # more than the capacity of a pipe
    assert worker.is_alive
    assert os.getpgid(worker._process.pid) != os.getpgid(0)  # Ctrl-C does not reach it
    worker.end()
    wait_for(lambda: worker._process.stdin.closed, "its end")  # otherwise Python 3.13 prints an error later


def test_a_worker_skips_foreign_output_and_modules_of_the_working_directory(tmp_path, monkeypatch):
    program_of(tmp_path, monkeypatch, f'printf "hello\\nno end of line"; exec {sys.executable} "$@"')
    (tmp_path / "pickle.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    worker = SolverProcess()
    worker.await_ready()
    worker.end()


def test_a_worker_that_closes_its_output_is_killed(tmp_path, monkeypatch):
    program_of(tmp_path, monkeypatch, "echo ready; exec sleep 1000 >&-")
    with pytest.raises(NoProcess, match="code -9"):
        SolverProcess().await_ready()


def test_a_job_that_is_given_up_does_not_end_the_process_of_the_next_job(monkeypatch):
    solves, may_end, was_free = threading.Event(), threading.Event(), []

    class Process:
        def await_ready(self):
            pass

        def solve(self, solver, task):
            solves.set()
            may_end.wait()

        def end(self):
            may_end.set()  # the job ends at this moment
            was_free.append(jobs.turn.acquire(timeout=0.2))

    monkeypatch.setattr(jobs, "process_for", lambda _: Process())
    monkeypatch.setattr(jobs, "turn", threading.Lock())
    monkeypatch.setattr(solver_process, "refused", threading.Event())
    job = Job(solver_of("newton"), Refit(1, 0, 64), lambda: None)
    solves.wait()
    job.cancel()
    job.wait()
    assert was_free == [False]
