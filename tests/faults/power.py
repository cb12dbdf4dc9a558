"""Power failures at every moment of a short run; resumed runs must be equal.

python -m tests.faults.power                        every moment of each run, with random states of the disk
python -m tests.faults.power --random --seconds 3600    random moments, with further failures of the resumed runs
python -m tests.faults.power --random --first 4711 --each 1     one of them again
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import logging
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from streamsvm import load
from streamsvm.run.checkpoint import read_snapshot
from tests.faults.contents import Mark, Tree, write_tree
from tests.faults.disk import Disk
from tests.faults.scenarios import SCENARIOS, Scenario, watched
from tests.faults.survivors import choices, moments, survivor


class Trial:
    """A recorded run, and the judge of what a power failure leaves of it.

    Parameters
    ----------
    scenario
        The run.
    folder
        Directory of the trial, created by it.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        self._seen: set[bytes] = set()
        plain, place = folder / "plain", folder / "recorded"
        scenario.prepare(plain)
        shutil.copytree(plain, place, symlinks=True)
        with mock.patch("os.fsync"):
            scenario.run(plain, first=True)
        self.whole = scenario.results(plain)
        self.disk = recorded(scenario, place, first=True)
        assert scenario.results(place) == self.whole

    def is_new(self, tree: Tree) -> bool:
        """Return whether a disk is new, ignoring the content of temporary files."""
        found = {name: content for name, content in tree.items() if not name.endswith(".lock")}
        found |= {name: b"" for name in found if name.endswith(".tmp")}
        digest = hashlib.blake2b(repr(found).encode()).digest()
        is_new = digest not in self._seen
        self._seen.add(digest)
        return is_new

    @contextlib.contextmanager
    def left(self, disk: Disk, n: int, tree: Tree) -> Iterator[Path]:
        """Check what the disk must hold after n changes; yield its directory."""
        place = self.folder / "left"
        shutil.rmtree(place, ignore_errors=True)
        write_tree(tree, place)
        if check_durable(disk, n, place):
            assert self.scenario.results(place) == self.whole
        if not (place / "state" / "check" / "checkpoint.safetensors").exists():
            self._check_unchanged(tree)
        if (place / "model").exists():
            load(place / "model")  # old or new, but whole
        yield place

    def _check_unchanged(self, tree: Tree) -> None:
        """Check that no result was written or removed before the first checkpoint."""
        before = self.disk.start.tree()
        for name in self.scenario.outputs:
            for path in {*tree, *before}:
                if (path == name or path.startswith(f"{name}/")) and tree.get(path):
                    assert tree[path] == before.get(path), f"{path} was written before the first checkpoint"

    def judge(self, n: int, tree: Tree) -> None:
        """Resume from a disk after n changes; compare with the uninterrupted run."""
        with self.left(self.disk, n, tree) as place, mock.patch("os.fsync"):
            self.scenario.run(place)
            assert self.scenario.results(place) == self.whole


def recorded(scenario: Scenario, place: Path, **how: Any) -> Disk:
    """Record a run, with a mark after each checkpoint and at the end."""
    with Disk(place) as disk, watched(disk.mark):
        scenario.run(place, **how)
    disk.mark("end")
    disk.check()
    return disk


def check_durable(disk: Disk, n: int, place: Path) -> bool:
    """Check that a disk has the last written checkpoint or the next one.

    Returns whether the run has ended.
    """
    marks = [change.value for change in disk.history if isinstance(change, Mark)]
    known = sum(isinstance(change, Mark) for change in disk.history[:n])
    is_over = known == len(marks)
    if known:
        path = place / "state" / "check" / "checkpoint.safetensors"
        assert path.exists(), f"checkpoint {known} is lost"
        found, expected = read_snapshot(path).source, marks[-2:] if is_over else marks[known - 1 : known + 1]
        assert found in expected, f"{found} is not {expected}"
    return is_over


def every_moment(trial: Trial, rng: random.Random, n_random: int) -> int:
    """Judge the disks after each change. Return the number of different disks."""
    n_judged = 0
    for n, durable, pending in moments(trial.disk):
        for choose in choices(pending, rng, n_random):
            if trial.is_new(tree := survivor(durable, pending, choose)):
                trial.judge(n, tree)
                n_judged += 1
    return n_judged


def some_moments(trial: Trial, rng: random.Random, n_trials: int) -> None:
    """Let the power of the run and of up to two resumed runs fail at random moments."""
    varied = all(name.endswith((".csv", ".jsonl")) for name in trial.scenario.outputs)  # others depend on flushes
    for _ in range(n_trials):
        disk = trial.disk
        for depth in range(rng.randint(1, 3)):
            n, durable, pending = rng.choice(list(moments(disk)))
            tree = survivor(durable, pending, rng.choice(list(choices(pending, rng, 3))))
            every = rng.randint(5, 100) if varied else None
            with trial.left(disk, n, tree) as place:
                disk = recorded(trial.scenario, place, every=every)
                assert trial.scenario.results(place) == trial.whole, f"after {depth + 1} failures"


def main() -> None:
    """Run the trials of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="run to try; all by default")
    parser.add_argument("--random", action="store_true", help="random moments, also of resumed runs")
    parser.add_argument("--seconds", type=float, default=600.0, help="duration of a random trial")
    parser.add_argument("--first", type=int, default=0, help="seed of the first random trial")
    parser.add_argument("--each", type=int, default=0, help="number of random trials; 0 for the given seconds")
    given = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        if given.random:
            _random(Path(folder), given)
        else:
            for name in given.only or SCENARIOS:
                n = every_moment(Trial(SCENARIOS[name], Path(folder, name)), random.Random(1), 3)
                print(f"{name}: resumed from {n} disks", flush=True)


def _random(folder: Path, given: argparse.Namespace) -> None:
    end = time.monotonic() + given.seconds
    for seed in itertools.count(given.first):
        if time.monotonic() > end or (given.each and seed == given.first + given.each):
            break
        rng = random.Random(seed)
        name = rng.choice(given.only or list(SCENARIOS))
        print(f"{seed}: {name}", flush=True)
        trial = Trial(replace(SCENARIOS[name], n_events=rng.randint(40, 400)), folder / str(seed))
        some_moments(trial, rng, 10)
        shutil.rmtree(trial.folder)


if __name__ == "__main__":
    main()
