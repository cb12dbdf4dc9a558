"""A live stream whose brokers and run are killed has one prediction per event.

    python -m tests.kafka.endurance kills       ten minutes of 1,000 events/s, 30 kills of the run, two of a broker
    python -m tests.kafka.endurance failover    one broker of three after the other killed, and back; the run as well
    python -m tests.kafka.endurance freezes     one broker of three after the other stands still for 40 to 75 s

The trial starts a cluster of three brokers with three replicas. At the end, each event accepted by the brokers must
have one prediction. The trial reports how long predictions paused after each disturbance, by the brokers' clock.
`--seconds` shortens it, `--spare` does not kill the run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kafka.conftest import read, starter
from tests.keyed.fleet import TEMPORARY, Worker

PARTITIONS = 3
QUIET_S = 400.0  # for the first and the last predictions
RUN_KILLED = "run killed"
Deed = tuple[float, str, Callable[[], None]]
"""Seconds after the start, name and action."""


class Feeder(threading.Thread):
    """Sends events at a constant rate until stopped; repeats rejected ones."""

    def __init__(self, address: str, topic: str, rate: float) -> None:
        super().__init__(daemon=True)
        self._address, self._topic, self._rate, self._over = address, topic, rate, threading.Event()
        self.sent = 0

    def run(self) -> None:
        from kafka import KafkaProducer

        rng, begin = random.Random(1), time.monotonic()
        options = {"linger_ms": 5, "acks": "all", "delivery_timeout_ms": 600_000, "max_block_ms": 600_000}
        options |= {"request_timeout_ms": 5000, "reconnect_backoff_max_ms": 1000}
        with KafkaProducer(bootstrap_servers=self._address.split(","), **options) as producer:
            while not self._over.wait(0.01):
                for _ in range(int((time.monotonic() - begin) * self._rate) - self.sent):
                    x = [rng.gauss(0, 1) for _ in range(5)]
                    values = ",".join(f'"f{j}":{value:.4f}' for j, value in enumerate(x))
                    value = f'{{"id":{self.sent},{values},"y":{int(x[0] * x[1] > 0)}}}'
                    producer.send(self._topic, value.encode(), partition=self.sent % PARTITIONS)
                    self.sent += 1
            producer.flush()

    def stop(self) -> None:
        self._over.set()
        self.join()


class Subject(Worker):
    """The run under test: `streamsvm run` in a separate process."""

    command = "run"

    def restart(self) -> None:
        """Kill the run and start it again."""
        self.kill()
        self.start()

    def check(self) -> None:
        """Check that the run goes on, or restart it after a temporary error."""
        code = self.tend()
        if code not in (None, TEMPORARY):
            raise SystemExit(f"the run ended with {code}:\n{self.log[-3000:]}")


def _kills(cluster: Any, subject: Subject, seconds: float) -> Iterator[Deed]:
    for i in range(30):
        yield seconds * (i + 1) / 32, RUN_KILLED, subject.restart
    yield from _away(cluster, [seconds * 0.31, seconds * 0.64], 15.0)


def _failover(cluster: Any, subject: Subject, seconds: float) -> Iterator[Deed]:
    n = max(1, round(seconds / 40))
    yield from _away(cluster, [seconds * i / n for i in range(n)], seconds / n / 2)
    for i in range(n):
        yield seconds * (i + (0.05 if i % 2 else 0.9)) / n, RUN_KILLED, subject.restart


def _away(cluster: Any, times: Sequence[float], for_s: float) -> Iterator[Deed]:
    """Kill the next broker repeatedly, and restart it after a number of seconds."""
    for i, at in enumerate(times):
        number = i % len(cluster.brokers)
        yield at, f"broker {number + 1} killed", cluster.brokers[number].kill
        yield at + for_s, f"broker {number + 1} back", functools.partial(_bring_back, cluster, number)


def _bring_back(cluster: Any, number: int) -> None:
    cluster.brokers[number].start()
    cluster.settle()


def _freezes(cluster: Any, _: Subject, seconds: float) -> Iterator[Deed]:
    for i in range(6):
        number = i % len(cluster.brokers)
        yield seconds * i / 6, f"broker {number + 1} frozen", cluster.brokers[number].freeze
        for_s = seconds / 600 * (40 + 7 * i)
        yield seconds * i / 6 + for_s, f"broker {number + 1} thawed", functools.partial(_thaw, cluster, number)


def _thaw(cluster: Any, number: int) -> None:
    cluster.brokers[number].thaw()
    cluster.settle()


TRIALS = {"kills": (_kills, 1000), "failover": (_failover, 200), "freezes": (_freezes, 200)}


def trial(name: str, seconds: float, spare: bool, model: str) -> None:
    """Send events with disturbances. Check that each has exactly one prediction."""
    with contextlib.closing(starter.Cluster()) as cluster, tempfile.TemporaryDirectory() as folder:
        configs = {"message.timestamp.type": "LogAppendTime"}
        starter.make_topics(cluster.address, "events", "predictions", copies=3, partitions=PARTITIONS, **configs)
        url = f"kafka://{cluster.address}"
        arguments = [f"{url}/events", "--label", "y", "--ignore", "id", "--model", model, "--checkpoint", "state"]
        arguments += ["--out", f"{url}/predictions", "--quiet", "--summary", "summary.json"]
        deeds, rate = TRIALS[name]
        subject, feeder = Subject(Path(folder), *arguments), Feeder(cluster.address, "events", rate)
        with contextlib.ExitStack() as stack:
            stack.callback(subject.kill)
            feeder.start()
            _wait_for(lambda: bool(_answers(cluster.address)), subject)
            cluster.settle()
            planned = [deed for deed in deeds(cluster, subject, seconds) if not (spare and deed[1] == RUN_KILLED)]
            done = _do(planned, subject, seconds)
            feeder.stop()
            print(f"{feeder.sent:,} events sent", flush=True)
            taken = [(record.partition, record.offset) for record in read(cluster.address, "events")]
            with contextlib.suppress(TimeoutError):
                _wait_for(lambda: len(_answers(cluster.address)) >= len(taken), subject)
            code = subject.leave()
            print(subject.log)
            _tell_pauses(cluster.address, done)
            _judge(taken, _answers(cluster.address), code)


def _do(planned: Sequence[Deed], subject: Subject, seconds: float) -> list[tuple[float, str]]:
    """Run the planned actions at their times; return when they were done.

    An action waits for the previous one.
    """
    begin, first, done = time.time(), time.time(), []
    for at, what, deed in [*sorted(planned, key=lambda deed: deed[0]), (seconds, "end", lambda: None)]:
        while time.time() - begin < at:
            subject.check()
            time.sleep(0.05)
        done.append((time.time(), what))
        deed()
        begin += time.time() - done[-1][0]  # a delay postpones later actions
        print(f"{done[-1][0] - first:7.1f} s {what}", flush=True)
    return done


def _wait_for(condition: Callable[[], bool], subject: Subject) -> None:
    deadline = time.monotonic() + QUIET_S
    while not condition():
        subject.check()
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(2)


def _answers(address: str) -> list[tuple[int, int]]:
    import json

    rows = (json.loads(record.value) for record in read(address, "predictions"))
    return [(row["partition"], row["offset"]) for row in rows]


def _judge(taken: list[tuple[int, int]], predicted: list[tuple[int, int]], code: int) -> None:
    lost, twice = set(taken) - set(predicted), len(predicted) - len(set(predicted))
    print(f"{len(taken):,} events taken, {len(lost):,} without prediction, {twice:,} predictions too many, exit {code}")
    if lost or twice or code != 143:
        sys.exit(1)


def _tell_pauses(address: str, done: Sequence[tuple[float, str]]) -> None:
    """Print the pauses of events and predictions after each action."""
    for topic in ("events", "predictions"):
        times = sorted(record.timestamp / 1000 for record in read(address, topic))
        gaps = [(b - a, b) for a, b in itertools.pairwise(times) if b >= done[0][0]]
        print(f"{topic}: the longest pauses")
        for gap, end in sorted(gaps, reverse=True)[:12]:
            before = [f"{end - gap - at:+.1f} s from {what}" for at, what in done if at <= end][-2:]
            print(f"  {gap:6.2f} s, begun {', '.join(before)}")


def main() -> None:
    """Run a trial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--spare", action="store_true", help="leave the run alone")
    parser.add_argument("--model", default="cpm")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    trial(args.trial, args.seconds, args.spare, args.model)


if __name__ == "__main__":
    main()
