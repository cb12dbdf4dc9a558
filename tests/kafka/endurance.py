"""A live stream in trouble: brokers and the run itself are killed again and again, and every event has one prediction.

    python -m tests.kafka.endurance kills       ten minutes of 1,000 events/s, 30 kills of the run, two of a broker
    python -m tests.kafka.endurance failover    one broker of three after the other killed, and back; the run as well
    python -m tests.kafka.endurance freezes     one broker of three after the other stands still for 40 to 75 s

A cluster of three brokers is started for it, which keep everything three times. At the end each event that brokers took
must have been predicted once; how long predictions stopped after what was done is said, by the brokers' own clock.
`--seconds` shortens it, `--alone` does it with one broker.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kafka.conftest import read, starter

PARTITIONS = 3
_QUIET_S = 120.0  # for the last predictions to come
Deed = tuple[float, str, Callable[[], None]]
"""Seconds after the start, what is done then, and how."""


class Feeder(threading.Thread):
    """Sends events at a steady rate until told to stop; those that brokers did not take are sent again."""

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


class Subject:
    """The run that is put to the test: `streamsvm run` in a process of its own, started again when it was killed."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        script = "import sys; from streamsvm.cli import main; sys.exit(main())"
        self._command = [sys.executable, "-c", script, "run", *arguments]
        self._folder, self.codes = folder, Counter[int]()
        self.start()

    def start(self) -> None:
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a crash would, and start it again."""
        self._process.kill()
        self.codes[self._process.wait()] += 1
        self.start()

    def check(self) -> None:
        """It has not ended by itself."""
        if (code := self._process.poll()) is not None:
            raise SystemExit(f"the run ended with {code}:\n{self.log[-3000:]}")

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()


@contextlib.contextmanager
def _brokers(alone: bool) -> Iterator[Any]:
    with contextlib.closing(starter.Broker() if alone else starter.Cluster()) as brokers:
        yield brokers


def _kills(brokers: Sequence[Any], subject: Subject, seconds: float) -> Iterator[Deed]:
    for i in range(30):
        yield seconds * (i + 1) / 32, "run killed", subject.kill
    yield from _away(brokers, (seconds * 0.31, seconds * 0.64), min(15.0, seconds / 20))


def _failover(brokers: Sequence[Any], subject: Subject, seconds: float) -> Iterator[Deed]:
    n = 2 * len(brokers)
    yield from _away(brokers, [seconds * (i + 0.2) / n for i in range(n)], seconds / n / 2)
    for i in range(n):
        yield seconds * (i + (0.25 if i % 2 else 0.95)) / n, "run killed", subject.kill


def _away(brokers: Sequence[Any], times: Sequence[float], for_s: float) -> Iterator[Deed]:
    """Each time another broker dies, and comes back after so many seconds."""
    for i, at in enumerate(times):
        number, broker = i % len(brokers) + 1, brokers[i % len(brokers)]
        yield at, f"broker {number} killed", broker.kill
        yield at + for_s, f"broker {number} started", broker.launch


def _freezes(brokers: Sequence[Any], _: Subject, seconds: float) -> Iterator[Deed]:
    for i in range(6):
        number, broker = i % len(brokers) + 1, brokers[i % len(brokers)]
        for_s = seconds / 600 * (40 + 7 * i)
        yield seconds * (i + 0.1) / 6, f"broker {number} frozen", broker.freeze
        yield seconds * (i + 0.1) / 6 + for_s, f"broker {number} thawed", broker.thaw


TRIALS = {"kills": (_kills, 1000), "failover": (_failover, 200), "freezes": (_freezes, 200)}


def trial(name: str, seconds: float, alone: bool, spare: bool, model: str) -> None:
    """Feed, disturb, and see that nothing is missing and nothing there twice."""
    deeds, rate = TRIALS[name]
    with _brokers(alone) as cluster, tempfile.TemporaryDirectory() as folder:
        brokers = [cluster] if alone else cluster.brokers
        configs = {"message.timestamp.type": "LogAppendTime"}
        starter.make_topics(cluster.address, "events", "predictions", copies=len(brokers), partitions=3, **configs)
        url = f"kafka://{cluster.address}"
        arguments = [f"{url}/events", "--label", "y", "--ignore", "id", "--model", model, "--checkpoint", "state"]
        arguments += ["--out", f"{url}/predictions", "--quiet", "--summary", "summary.json"]
        subject, feeder = Subject(arguments, Path(folder)), Feeder(cluster.address, "events", rate)
        feeder.start()
        time.sleep(5)
        begin, wall, done = time.monotonic(), time.time(), []
        planned = [deed for deed in deeds(brokers, subject, seconds) if not (spare and deed[2] == subject.kill)]
        for at, what, deed in sorted(planned, key=lambda deed: deed[0]):
            while time.monotonic() - begin < at:
                subject.check()
                time.sleep(0.05)
            deed()
            done.append((time.time(), what))
            print(f"{time.time() - wall:7.1f} s {what}", flush=True)
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        feeder.stop()
        print(f"{time.time() - wall:7.1f} s the last of {feeder.sent:,} events sent", flush=True)
        taken = [(record.partition, record.offset) for record in read(cluster.address, "events")]
        answers = functools.partial(_answers, cluster.address)
        deadline = time.monotonic() + _QUIET_S
        while len(answers()) < len(taken) and time.monotonic() < deadline:
            subject.check()
            time.sleep(2)
        code = subject.stop()
        print(subject.log)
        _judge(taken, answers(), code)
        _tell_pauses(cluster.address, done)


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
    """How long neither events nor predictions came, after what was done."""
    for topic in ("events", "predictions"):
        times = sorted(record.timestamp / 1000 for record in read(address, topic))
        gaps = sorted(((b - a, a, b) for a, b in itertools.pairwise(times)), reverse=True)[:12]
        print(f"{topic}: the longest pauses")
        for gap, begin, end in gaps:
            before = [f"{begin - at:+.1f} s after {what}" for at, what in done if at <= end + 0.5][-2:]
            print(f"  {gap:6.2f} s, from {'; '.join(before)}")


def main() -> None:
    """Run a trial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--alone", action="store_true", help="one broker")
    parser.add_argument("--spare", action="store_true", help="leave the run alone")
    parser.add_argument("--model", default="cpm")
    args = parser.parse_args()
    trial(args.trial, args.seconds, args.alone, args.spare, args.model)


if __name__ == "__main__":
    main()
