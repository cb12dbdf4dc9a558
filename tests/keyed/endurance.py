"""Workers are killed, join or leave, and a broker is down: no event is lost.

    python -m tests.keyed.endurance             12 partitions, 100,000 keys, four workers, five minutes

Each event must have one prediction for readers at read_committed, equal to that of a single process with the events of
its key. The state of each key must equal that of a single process, byte for byte. A worker that exits with a code that
allows a restart, for example because the broker is down, is restarted, as a supervisor would do.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kafka.conftest import starter
from tests.keyed.fleet import TEMPORARY, Expected, Record, Worker, arguments, customers, faults, predicted

PARTITIONS, GROUP = 12, "endurance"
QUIET_S = 45.0  # without a prediction, after all events were sent
TERMINATED = 128 + 15


class Feeder(threading.Thread):
    """Sends events at a constant rate, once and in order, despite broker failures."""

    def __init__(self, address: str, topic: str, records: Sequence[Record], seconds: float) -> None:
        super().__init__(daemon=True)
        self._address, self._topic, self._records, self._seconds = address, topic, records, seconds

    def run(self) -> None:
        from confluent_kafka import Producer

        options = {"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 20}
        producer = Producer(options | {"delivery.timeout.ms": 600_000, "queue.buffering.max.messages": 1_000_000})
        begin, rate = time.monotonic(), len(self._records) / self._seconds
        for i, (partition, key, value, at) in enumerate(self._records):
            producer.produce(self._topic, value, key, partition, timestamp=at)
            if i % 100 == 0:
                producer.poll(0)
                time.sleep(max(0.0, begin + i / rate - time.monotonic()))
        while producer.flush(10):
            pass


def main() -> int:
    """Run the trial. Return 0 if it passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=300.0, help="for which events come (default %(default)s)")
    parser.add_argument("--kills", type=int, default=12, help="of workers (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    records = list(customers(args.events, args.keys, PARTITIONS, args.seed))
    began = time.monotonic()
    expected = Expected(records)
    took = time.monotonic() - began
    say(f"one process takes {took:.0f} s for {args.events:,} events of {len(expected.states):,} keys")
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(starter.Broker()) as broker:
        topics = ["events", "predictions", "aside"]
        starter.make_topics(broker.address, *topics, partitions=PARTITIONS)
        given = arguments(broker.address, *topics, GROUP)
        workers = [Worker(Path(folder, f"worker{i}"), *given) for i in range(args.workers)]
        try:
            codes = _trial(args, broker, topics, records, workers, given, Path(folder))
            found = _settled(expected, broker.address, topics, workers, codes)
        finally:
            for worker in workers:
                worker.kill()
    for line in found:
        say(line)
    say(f"{len(codes)} workers ended, but for those that were killed")
    say(
        "FAILED"
        if found
        else f"each of {len(expected.answers):,} events predicted once, {len(expected.rejected):,} set "
        f"aside, {len(expected.states):,} keys as by one process"
    )
    return bool(found)


def _trial(
    args: argparse.Namespace,
    broker: starter.Broker,
    topics: Sequence[str],
    records: Sequence[Record],
    workers: list[Worker],
    given: Sequence[str],
    folder: Path,
) -> list[int]:
    """Send events and disturb workers and broker. Return the exit codes of workers."""
    rng, codes = random.Random(args.seed), list[int]()

    def kill() -> None:
        worker = rng.choice(workers)
        say(f"{worker.folder.name} killed")
        worker.kill()
        time.sleep(rng.uniform(0.0, 5.0))
        worker.start()

    def add() -> None:
        workers.append(Worker(folder / "added", *given))
        say("a worker added")

    def leave() -> None:
        codes.append(workers[0].leave())
        say(f"{workers.pop(0).folder.name} left with exit code {codes[-1]}")

    def restart() -> None:
        broker.kill()
        say("broker killed")
        time.sleep(5.0)
        broker.start()
        say("broker back")

    deeds: list[tuple[float, Callable[[], None]]] = [(0.4, add), (0.6, leave), (0.5, restart)]
    deeds += [(rng.uniform(0.05, 1.0), kill) for _ in range(args.kills)]
    feeder, begin = Feeder(broker.address, topics[0], records, args.seconds), time.monotonic()
    feeder.start()
    for share, do in sorted(deeds, key=lambda deed: deed[0]):
        while time.monotonic() < begin + share * args.seconds:
            codes += _tended(workers)
            time.sleep(0.2)
        say(f"after {time.monotonic() - begin:.0f} s:", end=" ")
        do()
    while feeder.is_alive():
        codes += _tended(workers)
        time.sleep(0.2)
    say(f"all sent after {time.monotonic() - begin:.0f} s")
    return codes


def _tended(workers: Sequence[Worker]) -> list[int]:
    """Restart workers that have exited. Return their exit codes."""
    codes = []
    for worker in workers:
        code = worker.tend()
        if code is not None:
            codes.append(code)
            if code != TEMPORARY:
                say(f"{worker.folder.name} ended with {code}:\n{worker.log[-2000:]}")
    return codes


def _settled(
    expected: Expected, address: str, topics: Sequence[str], workers: Sequence[Worker], codes: list[int]
) -> list[str]:
    """Return the errors after the last event."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        codes += _tended(workers)
        now = predicted(address, topics[1])
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(1.0)
    other = [code for code in codes if code not in (TEMPORARY, TERMINATED, -signal.SIGTERM)]  # even during its start
    return [f"workers ended with {other}"] * bool(other) + faults(expected, address, topics[1], topics[2], GROUP)


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
