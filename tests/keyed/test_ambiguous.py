"""Disturbed requests of workers: one prediction per event, and equal states."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("quixstreams")
pytest.importorskip("kafka")

from tests.commands import completed
from tests.kafka.conftest import Make, fill
from tests.kafka.proxy import Fault, Proxy
from tests.kafka.trials import Disturbed
from tests.keyed.fleet import Expected, Worker, arguments, customers, faults, hurried

PARTITIONS, N = 2, 400
_MOST_S = 180.0


class Trial(Disturbed):
    """Workers of one group in turn, with disturbed requests.

    Attributes
    ----------
    beside
        Whether another worker of the group runs meanwhile, undisturbed.
    """

    beside = False

    def __init__(self, broker: str, topic: Callable[..., str], folder: Path) -> None:
        super().__init__(broker, topic, folder)
        self._events, records = topic("events", PARTITIONS), list(customers(N, 40, PARTITIONS))
        fill(broker, self._events, records)
        self._expected = Expected(records)

    def check(self, *interrupted: Sequence[Fault]) -> None:
        out, aside = self._topic("predictions", PARTITIONS), self._topic("aside", PARTITIONS)
        group = uuid.uuid4().hex[:12]
        folder = self._folder / group
        folder.mkdir()
        asked = (self._events, out, aside, group)
        with contextlib.ExitStack() as others:

            def run(proxy: Proxy | None) -> subprocess.CompletedProcess[str]:
                if proxy is None:
                    others.close()
                given = arguments(self.broker if proxy is None else f"127.0.0.1:{proxy.port}", *asked)
                given += ["--at-end", "stop", "--checkpoint-every", "50"]
                return completed("per-key", *given, cwd=folder, prepare=hurried, timeout=_MOST_S)

            if self.beside:
                other = Worker(folder / "other", *arguments(self.broker, *asked), prepare=hurried)
                others.callback(other.kill)
            self._run_all(run, interrupted)
        assert not (found := faults(self._expected, self.broker, out, aside, group)), found


@pytest.mark.slow
def test_a_disturbed_request_of_a_worker_changes_no_result(broker: str, topic: Make, tmp_path: Path) -> None:
    trial = Trial(broker, topic, tmp_path)
    trial.check(run := [Fault(api, "answer") for api in ("JoinGroup", "TxnOffsetCommit", "EndTxn")])
    assert [fault.n_fired for fault in run] == [1] * len(run), (run, trial.codes)
