"""Jumps of clocks of workers or the broker: one prediction per event.

    python -m tests.keyed.clocks                    jumps of the clocks of a worker, beside another with the right time
    python -m tests.keyed.clocks --broker           jumps of the system clock of the broker

In the middle of the events the clocks jump, and later they are right again. This needs libfaketime
(`apt-get install faketime`).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

os.environ.setdefault("STREAMSVM_CODE", "numba")

from tests.commands import ROOT, command
from tests.kafka.conftest import fill, new_topic, starter
from tests.keyed.fleet import TEMPORARY, Expected, Record, Worker, arguments, customers, faults, predicted

PARTITIONS, N = 3, 3000
JUMPS = {"+5 minutes": "+300s", "+2 days": "+172800s", "-1 day": "-86400s"}
_DISTURBED_S, _MOST_S = 25.0, 120.0
"""Time with wrong clocks, above the timeout of transactions, and total time."""


class Clock:
    """A file that sets the clocks of processes.

    Parameters
    ----------
    path
        The file.
    is_suspended
        Whether monotonic clocks jump, too, as those that go on while a machine is suspended.
    """

    def __init__(self, path: Path, is_suspended: bool) -> None:
        self._path = path
        self.set("+0")
        found = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
        assert found is not None, "needs libfaketime: apt-get install faketime"
        self.environment = {
            "LD_PRELOAD": str(found),
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # with it, Java hardly starts
        }
        self.environment |= {} if is_suspended else {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def set(self, offset: str) -> None:
        """Let the clocks differ by an offset."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.replace(self._path)


class ClockedWorker(Worker):
    """A worker whose clocks may jump."""

    def __init__(self, clock: Clock | None, folder: Path, *arguments: str) -> None:
        self._clock = clock
        super().__init__(folder, *arguments)

    def start(self) -> None:
        self.starts += 1
        more = {} if self._clock is None else self._clock.environment
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                command("per-key", *self._arguments),
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)} | more,
                stdout=log,
                stderr=log,
            )


def trial(broker: str, records: Sequence[Record], clock: Clock, of_worker: Clock | None, jump: str) -> list[str]:
    """Let a clock jump while two workers process events; return what is wrong."""
    group, expected, codes = uuid.uuid4().hex[:8], Expected(records), list[int]()
    topics = [new_topic(broker, name, PARTITIONS) for name in ("events", "predictions", "aside")]
    given = arguments(broker, *topics, group)
    third = len(records) // 3

    def wait(seconds: float, is_done: object = lambda: False) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_done():
            codes.extend(code for worker in workers if (code := worker.tend()) is not None)
            time.sleep(0.5)
        return is_done()

    with tempfile.TemporaryDirectory() as folder:
        workers = [ClockedWorker(each, Path(folder, name), *given) for each, name in ((of_worker, "a"), (None, "b"))]
        try:
            fill(broker, topics[0], records[:third])
            if not wait(_MOST_S, lambda: predicted(broker, topics[1]) >= third // 2):
                return ["no predictions before the jump"]
            clock.set(jump)
            fill(broker, topics[0], records[third : 2 * third])
            wait(_DISTURBED_S)
            clock.set("+0")
            fill(broker, topics[0], records[2 * third :])
            wait(_MOST_S, lambda: not faults(expected, broker, *topics[1:], group))
            wrong = faults(expected, broker, *topics[1:], group)
            other = [code for code in codes if code != TEMPORARY]
            wrong += [f"workers ended with {other}"] * bool(other)
            said = [
                line for worker in workers for line in worker.log.splitlines() if "error" in line or "Trace" in line
            ]
            print(f"   workers ended with {codes}", *dict.fromkeys(said), sep="\n   ", flush=True)
            return wrong
        finally:
            for worker in workers:
                worker.kill()


def main() -> int:
    """Run the trials of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--broker", action="store_true", help="jumps of the system clock of the broker; Java does not start with others"
    )
    parser.add_argument("--only", choices=JUMPS, action="append", help="jumps to try; all by default")
    given = parser.parse_args()
    records, n_wrong = list(customers(N, 300, PARTITIONS)), 0
    for jump, is_suspended in itertools.product(given.only or JUMPS, (False,) if given.broker else (False, True)):
        with contextlib.ExitStack() as stack:
            clock = Clock(Path(stack.enter_context(tempfile.TemporaryDirectory()), "clock"), is_suspended)
            with mock.patch.dict(os.environ, clock.environment if given.broker else {}):
                broker = stack.enter_context(contextlib.closing(starter.Broker(brief=True)))
            began = time.monotonic()
            wrong = trial(broker.address, records, clock, None if given.broker else clock, JUMPS[jump])
        name = f"{jump}, {'all clocks' if is_suspended else 'system clock'}, {time.monotonic() - began:.0f} s"
        print(f"{name}: {'; '.join(wrong) or 'as without'}", flush=True)
        n_wrong += bool(wrong)
    return n_wrong > 0


if __name__ == "__main__":
    sys.exit(main())
