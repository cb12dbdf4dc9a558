"""Disturbed requests of transactions: one prediction per event, an equal model."""

from __future__ import annotations

import functools
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ran_here
from tests.kafka.conftest import fill, new_topic, read
from tests.kafka.proxy import TRANSACTION, Fault, Proxy
from tests.kafka.test_run import arguments, stream
from tests.kafka.trials import TEMPORARY, Disturbed

N = 300
Around = Callable[[], AbstractContextManager[None]]


class Trial(Disturbed):
    """Runs over a topic with faults, and a run without."""

    def __init__(self, broker: str, topic: Callable[..., str], folder: Path) -> None:
        super().__init__(broker, topic, folder)
        self._source, self._n = topic("events"), 0
        rows = [row for row in stream(N) if len(row[1] or b"") < 100]
        fill(broker, self._source, rows)
        self.whole = self.results()
        n_events = sum(len(self.whole[kind]) for kind in ("out", "dead"))
        assert n_events == len({row[:2] for kind in ("out", "dead") for row in self.whole[kind]}) == len(rows)

    def results(self, *interrupted: Sequence[Fault], around: Around = nullcontext, timeout_s: float = 10.0) -> Any:
        """Return predictions, dead letters and model of runs with faults, then without.

        Parameters
        ----------
        *interrupted
            Faults of each run.
        around
            Context of runs with faults.
        timeout_s
            Their `broker-timeout`.
        """
        self._n += 1
        out, dead, place = self._topic("out"), self._topic("dead", 1), self._folder / str(self._n)
        place.mkdir()
        asked = ["run", *arguments(self.broker, self._source, out, dead, "--at-end", "stop", "--checkpoint-every", 100)]

        def run(proxy: Proxy | None) -> subprocess.CompletedProcess[str]:
            if proxy is None:
                return ran_here(*asked, cwd=place)
            with proxy.redirected(), around():
                return ran_here(*asked, "--set", f"broker-timeout={timeout_s}", cwd=place)

        self._run_all(run, interrupted)
        found: dict[str, Any] = {"model": (place / "model").read_bytes()}
        for kind, name in (("out", out), ("dead", dead)):
            rows = [json.loads(record.value) for record in read(self.broker, name)]
            found[kind] = sorted((row["partition"], row["offset"], json.dumps(row)) for row in rows)
        return found

    def check(self, *interrupted: Sequence[Fault], **how: Any) -> None:
        found = self.results(*interrupted, **how)
        for kind in ("out", "dead"):
            places = [row[:2] for row in found[kind]]
            lost, extra = (len(set(self.whole[kind]) - set(found[kind])), len(set(found[kind]) - set(self.whole[kind])))
            assert (lost, extra, len(places)) == (0, 0, len(set(places))), (kind, lost, extra, len(places))
        assert found["model"] == self.whole["model"], "another model"


@pytest.fixture(scope="module")
def trial(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(broker, functools.partial(new_topic, broker), tmp_path_factory.mktemp("trial"))


@pytest.mark.slow
def test_a_disturbed_request_changes_no_result(trial: Trial) -> None:
    trial.check(faults := [*(Fault(api, "answer") for api in TRANSACTION), Fault("EndTxn", "request", n=4)])
    assert (trial.codes, [fault.n_fired for fault in faults]) == ([0], [1] * len(faults)), faults
    out_of_order, fenced = Fault("Produce", "refused", n=3, code=45), Fault("EndTxn", "error", n=2, code=90)
    trial.check(
        [Fault("EndTxn", "error", code=53)],  # no permission
        [Fault("Produce", "refused"), Fault("TxnOffsetCommit", "slice"), out_of_order, fenced],
    )
    assert (trial.codes, out_of_order.n_fired, fenced.n_fired) == ([1, 0], 1, 1)


@pytest.mark.slow
def test_a_lasting_error_of_fetches_ends_a_run_after_the_timeout(trial: Trial) -> None:
    faults = [Fault("Fetch", "error", code=code, lasting=True) for code in (82, 71)]  # fatal, to retry
    trial.check(*([fault] for fault in faults), [once := Fault("Fetch", "error", code=71)], timeout_s=1.0)
    assert (trial.codes, once.n_fired) == ([TEMPORARY, TEMPORARY, 0], 1)


@contextmanager
def suspended() -> Iterator[None]:
    """Advance the clock that includes suspension by an hour per call."""
    seconds = itertools.count(step=3600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "clock_gettime", lambda clock: float(next(seconds)))
        yield


@contextmanager
def leaping() -> Iterator[None]:
    """Set the wall clock back and the monotonic one forward during a run."""
    n, wall, steady = itertools.count(), time.time, time.monotonic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: steady() + 3600.0 * (next(n) > 2000))
        patch.setattr(time, "time", lambda: wall() - 300.0 * (next(n) > 1000))
        yield


@pytest.mark.slow
def test_a_transaction_that_timed_out_while_the_machine_was_suspended_is_repeated(trial: Trial) -> None:
    trial.check([fault := Fault("Produce", "refused", n=3, code=47)], around=suspended)
    assert (fault.n_fired, trial.codes) == (1, [0])


@pytest.mark.slow
def test_clocks_that_leap_change_no_result(trial: Trial) -> None:
    trial.check([], around=leaping)
    assert trial.codes == [0]
