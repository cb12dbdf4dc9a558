"""Requests of workers that are disturbed: each event has one prediction, and the states are those of one process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("quixstreams")
pytest.importorskip("kafka")

from tests.commands import completed
from tests.kafka.conftest import Make, fill
from tests.kafka.proxy import Fault, Proxy
from tests.keyed import fleet
from tests.keyed.fleet import TEMPORARY, Expected, Worker, arguments, customers, faults

PARTITIONS, N = 2, 400
_MOST_S = 180.0


def hurried() -> None:
    """Shorten the timeouts of a worker, except that for answers, which a disturbed request may need in full."""
    from streamsvm.keyed import topics

    answer_s = topics.ANSWER_S
    fleet.hurried()
    topics.ANSWER_S = answer_s


class Trial:
    """Workers of one group in turn, with disturbed requests.

    Parameters
    ----------
    broker
        Address of the broker.
    topic
        Creates a topic.
    folder
        Working directory.
    beside
        Whether another worker of the group runs meanwhile, undisturbed.

    Attributes
    ----------
    codes
        Exit codes of the last workers with faults.
    """

    def __init__(self, broker: str, topic: Callable[..., str], folder: Path, *, beside: bool = False) -> None:
        self.broker, self._topic, self._folder, self._beside = broker, topic, folder, beside
        self._events, records = topic("events", PARTITIONS), list(customers(N, 40, PARTITIONS))
        fill(broker, self._events, records)
        self._expected = Expected(records)

    def check(self, *interrupted: Sequence[Fault]) -> None:
        """Run workers with faults, then one without; raise an error if results are not those of one process."""
        out, aside = self._topic("predictions", PARTITIONS), self._topic("aside", PARTITIONS)
        group, self.codes = uuid.uuid4().hex[:12], list[int]()
        folder = self._folder / group
        folder.mkdir()
        asked = (self._events, out, aside, group)
        more = ("--at-end", "stop", "--checkpoint-every", 50)
        other = Worker(folder / "other", *arguments(self.broker, *asked), prepare=hurried) if self._beside else None
        try:
            for run in interrupted:
                with Proxy(self.broker, *run) as proxy:
                    given = arguments(f"127.0.0.1:{proxy.port}", *asked)
                    done = completed("per-key", *given, *more, cwd=folder, prepare=hurried, timeout=_MOST_S)
                self.codes.append(done.returncode)
                assert done.returncode in (0, 1, 2, TEMPORARY), done.stderr
                assert done.returncode == 0 or done.stderr.count("streamsvm: error: ") == 1, done.stderr
        finally:
            if other is not None:
                other.kill()
        given = arguments(self.broker, *asked)
        done = completed("per-key", *given, *more, cwd=folder, prepare=hurried, timeout=_MOST_S)
        assert not done.returncode, f"resumed: {done.stderr}"
        assert not (found := faults(self._expected, self.broker, out, aside, group)), found


@pytest.mark.slow
def test_a_disturbed_request_of_a_worker_changes_no_result(broker: str, topic: Make, tmp_path: Path) -> None:
    trial = Trial(broker, topic, tmp_path)
    trial.check(run := [Fault(api, "answer") for api in ("JoinGroup", "TxnOffsetCommit", "EndTxn")])
    assert [fault.n_fired for fault in run] == [1] * len(run), (run, trial.codes)
