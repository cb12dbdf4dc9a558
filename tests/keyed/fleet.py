"""Workers under test, their events, and the expected results."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson

from streamsvm import CPMClassifier
from streamsvm.keyed import KeyedClassifier
from tests.commands import Command
from tests.kafka.conftest import read
from tests.kafka.trials import TEMPORARY

LABEL, FIELD = "outcome", "customer"
Record = tuple[int, bytes, bytes, int]
"""Partition, key, value and timestamp of an event."""


def customers(n: int, n_keys: int, partitions: int, seed: int = 1) -> Iterator[Record]:
    """Events of customers, some malformed or with the key of another customer."""
    rng, n_features = random.Random(seed), 5
    for i in range(n):
        key = rng.randrange(n_keys)
        x = [rng.gauss(0, 1) for _ in range(n_features)]
        y = "ab"[x[key % n_features] + x[(key + 1) % n_features] > 0]
        event = {FIELD: f"c{key}", **{f"f{j}": round(value, 4) for j, value in enumerate(x)}, LABEL: y}
        if i % 1000 == 501:
            event[FIELD] = "another"
        value = b"{" if i % 1000 == 500 else orjson.dumps(event)
        yield key % partitions, f"c{key}".encode(), value, 1_700_000_000_000 + i


def nested(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Return events with features in an object, and flat ones with its columns."""
    inner, flat = [], []
    for partition, key, value, time_ms in records:
        both = value, value
        if value != b"{":
            event = orjson.loads(value)
            own = {name: event.pop(name) for name in (FIELD, LABEL)}
            both = tuple(map(orjson.dumps, (own | {"of": event}, own | {f"of.{name}": event[name] for name in event})))
        for some, one in zip((inner, flat), both, strict=True):
            some.append((partition, key, one, time_ms))
    return inner, flat


class Expected:
    """Results of a single process: an answer per event, and the state of each key.

    Parameters
    ----------
    records
        Partition, key, value and timestamp of each, in order.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        keyed = KeyedClassifier(CPMClassifier(), label=LABEL, ignore=(FIELD,))
        offsets: Counter[int] = Counter()
        of_key: dict[bytes, list[tuple[tuple[int, int], Any]]] = defaultdict(list)
        self.rejected: set[tuple[int, int]] = set()
        for partition, key, value, _ in records:
            place = partition, offsets[partition]
            offsets[partition] += 1
            event = None if value == b"{" else orjson.loads(value)
            if event is None or event[FIELD].encode() != key:
                self.rejected.add(place)
            else:
                of_key[key].append((place, event))
        self.answers: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.states: dict[bytes, bytes] = {}
        for key, events in of_key.items():
            answers, self.states[key] = keyed.step(None, [event for _, event in events])
            for (place, _), answer in zip(events, answers, strict=True):
                self.answers[place] = answer["prediction"], answer["score"]


def faults(expected: Expected, address: str, out: str, rejected: str, group: str) -> list[str]:
    """Return the differences from a single process."""
    found: list[str] = []
    records = [json.loads(record.value) for record in read(address, out)]
    places = Counter((record["partition"], record["offset"]) for record in records)
    twice, missing = sum(n > 1 for n in places.values()), len(expected.answers.keys() - places.keys())
    found += [f"{twice} events predicted twice"] * bool(twice) + [f"{missing} events not predicted"] * bool(missing)
    answers = {(r["partition"], r["offset"]): (r["prediction"], r["score"]) for r in records}
    other = sum(expected.answers.get(place) != answer for place, answer in answers.items())
    found += [f"{other} other predictions than of one process"] * bool(other)
    aside = [
        (r["partition"], r["offset"]) for r in map(json.loads, (record.value for record in read(address, rejected)))
    ]
    if sorted(aside) != sorted(expected.rejected):
        found.append(f"{len(aside)} events set aside, not {len(expected.rejected)}")
    kept = states(address, group)
    wrong = sum(kept.get(key) != state for key, state in expected.states.items())
    found += [f"{wrong} keys with another state than of one process"] * bool(wrong or len(kept) != len(expected.states))
    return found


def states(address: str, group: str) -> dict[bytes, bytes]:
    """Return the state of each key in the changelog, which a worker restores."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=address.split(","))
    [topic] = [name for name in consumer.topics() if name.startswith(f"changelog__{group}--")]
    consumer.close()
    newest: dict[tuple[bytes, int], Any] = {}
    for record in read(address, topic):
        if ("__column_family__", b"default") in record.headers:  # others are internal to the engine
            newest[record.key.partition(b"|")[0], record.partition] = record
    moved = sorted(newest.items(), key=lambda item: item[1].timestamp)  # a key may have moved
    kept = {key: record.value for (key, _), record in moved}
    return {key: value for key, value in kept.items() if value is not None}


def brief() -> None:
    """Shorten the pauses of a worker."""
    from quixstreams.models.topics import admin

    from streamsvm.cli import per_key
    from streamsvm.keyed import topics

    per_key.EVERY_S = 0.2
    topics.CHECK_S = 0.1
    pause = lambda seconds: time.sleep(seconds / 20)  # noqa: E731
    admin.time = SimpleNamespace(time=time.time, sleep=pause)  # type: ignore[assignment]  # after creating a topic


def hurried() -> None:
    """Shorten the pauses and timeouts of a worker."""
    from streamsvm.keyed import consumer_timeouts, quix

    brief()
    quix.PRODUCER["transaction.timeout.ms"] = 4000
    quix.CONSUMER |= {"session.timeout.ms": 2500, "heartbeat.interval.ms": 300}
    quix.CONSUMER["topic.metadata.refresh.interval.ms"] = 300
    consumer_timeouts.CLOSE_S = 3.0


def dying() -> None:
    """Exit at the first commit and leave its transaction open."""
    from quixstreams.internal_producer import InternalProducer

    from streamsvm.keyed import quix

    hurried()
    quix.PRODUCER["transaction.timeout.ms"] = 1500
    quix.CONSUMER["session.timeout.ms"] = 1500
    InternalProducer.commit_transaction = lambda *_, **__: os._exit(9)


class Worker:
    """A worker in its own process, with its own state, restarted when it exits.

    Parameters
    ----------
    folder
        Working directory.
    arguments
        Arguments of the command line.
    prepare
        See `Command`.
    """

    command = "per-key"

    def __init__(self, folder: Path, *arguments: str, prepare: Callable[[], object] | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self._arguments, self._prepare = folder, arguments, prepare
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        log = self.folder / "log"
        files = {"stdout": log, "stderr": log}
        self._process = Command(self.command, *self._arguments, cwd=self.folder, prepare=self._prepare, **files)

    def tend(self) -> int | None:
        """Restart the worker if it has exited. Return its exit code, or None."""
        code = self._process.poll()
        if code is not None:
            self.start()
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def leave(self, number: int = signal.SIGTERM) -> int:
        """Stop the worker after the current event. Return its exit code."""
        self._process.send_signal(number)
        return self._process.wait(timeout=60)

    def stand_still(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def arguments(address: str, source: str, out: str, rejected: str, group: str) -> list[str]:
    """Return the arguments of workers."""
    url = f"kafka://{address}/"
    given = [url + source, "--field", FIELD, "--consumer-group", group, "--label", LABEL, "--model", "cpm", "--quiet"]
    return [*given, "--out", url + out, "--dead-letter", url + rejected, "--checkpoint", "state"]


def predicted(address: str, *topics: str) -> int:
    """Return the end offsets at read_committed, including transaction markers."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address.split(","), isolation_level="read_committed")
    try:
        tps = [TopicPartition(topic, p) for topic in topics for p in consumer.partitions_for_topic(topic)]
        return sum(consumer.end_offsets(tps).values())
    finally:
        consumer.close()


def wait_for(what: Any, seconds: float = 120.0, every: float = 0.3, tended: Sequence[Worker] = ()) -> None:
    """Wait until a condition holds. Workers that exit meanwhile are restarted."""
    deadline = time.monotonic() + seconds
    while not what():
        for worker in tended:
            code = worker.tend()
            assert code in (None, TEMPORARY, -signal.SIGKILL), worker.log[-3000:]
        assert time.monotonic() < deadline, "\n".join(worker.log[-2000:] for worker in tended)
        time.sleep(every)
