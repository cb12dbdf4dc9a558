"""The n-th system call fails, for each n; the run ends or goes on, and resumes.

python -m tests.faults.calls                    each call of each run, with each failure: an hour or more
python -m tests.faults.calls --resumed          each call of runs that resume after half of the events
python -m tests.faults.calls --only joined --first 17 --each 1      one call again
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from tests.faults.disk import Disk
from tests.faults.scenarios import SCENARIOS, Scenario

_NEEDS_SPACE = {"open", "write", "mkdir", "fsync", "fdatasync"}


@dataclass
class Failure:
    """The n-th system call below a directory fails.

    Parameters
    ----------
    n
        Number of the call, from 1.
    how
        Name of an `errno`, or "memory", or "short" for a write of less than all bytes.
    lasting
        Whether later calls fail, too.
    """

    n: int
    how: str
    lasting: bool = False
    n_calls: int = 0
    at: str = ""

    def __call__(self, call: str, path: str) -> int | None:
        self.n_calls += 1
        if self.n_calls != self.n and not (self.lasting and self.at):
            return None
        if self.how == "ENOSPC" and call not in _NEEDS_SPACE:
            self.n += not self.at  # the next call that needs space
            return None
        self.at = self.at or f"{call} {os.path.basename(path)}"
        if self.how == "short":
            return 1 if call == "write" else None
        if self.how == "memory":
            raise MemoryError
        number = getattr(errno, self.how)
        raise OSError(number, os.strerror(number), path)


HOWS = (
    *(("EIO", False), ("EIO", True), ("ENOSPC", False), ("ENOSPC", True)),
    *(("EINTR", False), ("short", False), ("short", True), ("memory", False)),
)


class Trial:
    """A run whose system calls fail.

    Parameters
    ----------
    scenario
        The run.
    folder
        Directory of the trial, created by it.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        scenario.prepare(folder / "prepared")
        place = self._place()
        with Disk(place) as disk:
            scenario.run(place, first=True)
        disk.check()
        self.whole = scenario.results(place)

    def _place(self) -> Path:
        place = self.folder / "run"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder / "prepared", place, symlinks=True)
        return place

    def fails(self, failure: Failure) -> bool:
        """Run with a failure, then resume without. Return whether it happened."""
        place = self._place()
        with Disk(place, failure):
            done = self.scenario.command(place, first=True)
        if not failure.at:
            return False
        if still_open(place):
            gc.collect()  # the traceback of an error may refer to memory-mapped arrays
        assert (left := still_open(place)) == [], f"not closed: {left}"
        said = [line for line in done.stderr.splitlines() if line.startswith("streamsvm: error: ")]
        assert done.returncode in ((1, 2) if said else (0,)), f"{done.returncode}, {done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        if not done.returncode:
            assert self.scenario.results(place) == self.whole
        with mock.patch("os.fsync"):
            again = self.scenario.command(place)
        assert not again.returncode, f"resumed: {again.stderr}\nbefore: {done.stderr}"
        assert self.scenario.results(place) == self.whole, f"resumed, before: {done.stderr}"
        return True


def resumed(run: Scenario) -> Scenario:
    """Return a run that resumes after half of the events."""
    return replace(run, earlier={"max_events": run.n_events // 2}, first={})


def still_open(folder: Path) -> list[str]:
    """Return files below a directory that this process has open or mapped."""
    found = [line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()]
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the directory itself
            found.append(os.readlink(descriptor))
    return [path for path in found if path.startswith(f"{folder}/")]


def every_call(trial: Trial, hows: Any, first: int = 1, step: int = 1) -> Iterator[tuple[Failure, Exception | None]]:
    """Let each system call fail, in each way in turn; yield failure and fault."""
    for n, (how, lasting) in zip(itertools.count(first, step), hows):
        failure, wrong = Failure(n, how, lasting), None
        try:
            happened = trial.fails(failure)
        except Exception as error:
            happened, wrong = True, error
        if not happened:
            return
        yield failure, wrong


def main() -> None:
    """Run the trials of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="run to try; all by default")
    parser.add_argument("--first", type=int, default=1, help="number of the first call")
    parser.add_argument("--each", type=int, default=1 << 30, help="number of calls")
    parser.add_argument("--resumed", action="store_true", help="let calls of a resumed run fail")
    given = parser.parse_args()
    n_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only or SCENARIOS:
            run = replace(SCENARIOS[name], n_events=40)
            trial = Trial(resumed(run) if given.resumed else run, Path(folder, name))
            for how in HOWS:
                found = every_call(trial, itertools.repeat(how, given.each), given.first)
                wrong = [(failure, error) for failure, error in found if error is not None]
                print(
                    f"{name}, {how[0]}{' for good' if how[1] else ''}: {len(wrong)} wrong", *wrong, sep="\n", flush=True
                )
                n_wrong += len(wrong)
    raise SystemExit(n_wrong > 0)


if __name__ == "__main__":
    main()
