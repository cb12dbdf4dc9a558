"""Running jobs when a program exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
import os, pathlib, time
from streamsvm.refit.jobs import Job, Refit

class Slow:
    name = "slow"

    def __init__(self, holds_lock, folder):
        self.holds_lock, self.folder = holds_lock, pathlib.Path(folder)

    def solve(self, task):
        (self.folder / "begun.tmp").write_text(str(os.getpid()))
        (self.folder / "begun.tmp").replace(self.folder / "begun")
        time.sleep(600 if self.holds_lock else 0.5)
        (self.folder / "done").touch()

def begin(holds_lock, folder):
    job = Job(Slow(holds_lock, folder), Refit(1, 0, 64), lambda: None)
    while not (job._solver.folder / "begun").exists():
        time.sleep(0.001)
"""


def ended(folder: Path, holds_lock: bool, how: str = "", code: int = 0) -> int:
    """Run a program that exits during a refit. Return its worker process."""
    (folder / "slow.py").write_text(MODULE)
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    program = f"import slow; slow.begin({holds_lock}, {str(folder)!r}); {how}"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | paths, timeout=120, check=False)
    assert done.returncode == code
    return int((folder / "begun").read_text())


@pytest.mark.slow
def test_a_solver_in_a_thread_comes_to_its_end(tmp_path):
    ended(tmp_path, holds_lock=False)
    assert (tmp_path / "done").exists()  # otherwise compiled code is unloaded while in use, and the program aborts


@pytest.mark.slow
def test_a_solver_in_a_process_of_its_own_is_ended(tmp_path):
    number = ended(tmp_path, holds_lock=True)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed like that here")
def test_it_ends_by_itself_when_the_program_is_killed(tmp_path):
    number = ended(tmp_path, holds_lock=True, how="import os; os.kill(os.getpid(), 9)", code=-9)
    with pytest.raises(ProcessLookupError):
        look_for(number)


def look_for(number: int) -> None:
    """Look for a process, for up to ten seconds."""
    for _ in range(1_000):
        os.kill(number, 0)
        time.sleep(0.01)
