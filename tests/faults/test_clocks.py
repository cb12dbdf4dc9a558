"""Clocks that jump or stop during runs: results depend on event times alone."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamsvm.keyed import new_partitions
from streamsvm.keyed.topics import Growth
from streamsvm.models.archive import read_archive
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.test_keyed import Copy, Topic

DAY = 86_400.0


def leaps(clock: Callable[[], float], seconds: float, each: int = 20) -> Callable[[], float]:
    """Return a clock that leaps at every `each`-th call."""
    n = itertools.count()
    return lambda: clock() + seconds * (next(n) // each)


def swings(clock: Callable[[], float]) -> Callable[[], float]:
    """Return a clock that is set a day ahead and back."""
    n = itertools.count()
    return lambda: clock() + DAY * (next(n) // 3 % 2)


def frozen(clock: Callable[[], float]) -> Callable[[], float]:
    """Return a clock that stands still."""
    now = clock()
    return lambda: now


CLOCKS = {
    "the system clock is set to and fro": (swings, lambda clock: clock),
    "the system clock is set back by minutes": (lambda clock: leaps(clock, -300.0), lambda clock: clock),
    "the machine sleeps for days": (lambda clock: leaps(clock, DAY), lambda clock: leaps(clock, DAY)),
    "clocks stand still": (frozen, frozen),
}


@contextlib.contextmanager
def clocks(name: str) -> Iterator[None]:
    """Replace the clocks."""
    wall, steady = CLOCKS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", wall(time.time))
        for clock in ("monotonic", "perf_counter"):
            patch.setattr(time, clock, steady(getattr(time, clock)))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("unsynced", "lasting_process")
@pytest.mark.parametrize("run", [SCENARIOS["joined"], SCENARIOS["refits"]], ids=["joined", "refits"])
def test_results_do_not_depend_on_clocks(run: Scenario, tmp_path: Path) -> None:
    found = []
    for i, name in enumerate([None, *CLOCKS]):
        place = tmp_path / str(i)
        run.prepare(place)
        with contextlib.nullcontext() if name is None else clocks(name):
            run.run(place, every="1s", max_events=40)
            run.run(place, every="1s")
        arrays = {name: array.tobytes() for name, array in read_archive(place / "model")[1].items()}
        found.append({"model": arrays} | {name: (place / name).read_bytes() for name in run.outputs})
    for name, results in zip(CLOCKS, found[1:], strict=True):
        assert results == found[0], name


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_moved_keys_are_found_at_any_time(ahead: float, tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.growth = Growth(2, {"events": [0, 0]}, time.time())
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(new_partitions, "EACH_S", 0.0)
        patch.setattr(time, "time", lambda clock=time.time: clock() + ahead)
        copy = Copy(topic, stack)
        topic.store({(0, b"key"): b"state"}, {0: 1})
        assert copy.find(1, b"key", None) == b"state"
