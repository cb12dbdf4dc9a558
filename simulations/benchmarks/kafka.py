"""Throughput of Kafka input and output, and latency of predictions.

`kafka-throughput` measures consuming, decoding, learning and writing predictions; `kafka-latency` measures the time
from producing an event to its prediction, at steady rates. The run starts a broker, as the tests do, unless
`STREAMSVM_KAFKA=host:port` names one. Events are JSON of 20 features, about 300 bytes, on three partitions. Broker,
client and learner share the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows
from simulations.tables import Column, Table, of, part

STARTER = Path(__file__).parents[2] / "tests" / "kafka" / "broker.py"
PACKAGES = ("kafka-python", "crc32c", "orjson", "numpy", "numba")
PARTITIONS = 3
COMMITS = (0.0, 0.01, 0.1, 1.0)
DECODING = "decoding"


def broker_starter() -> Any:
    """Import the module of the tests that starts a broker."""
    spec = importlib.util.spec_from_file_location("streamsvm_broker", STARTER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _broker() -> Iterator[str]:
    if address := os.environ.get("STREAMSVM_KAFKA"):
        yield address
        return
    with contextlib.closing(broker_starter().Broker()) as broker:
        yield broker.address


def _topic(address: str, name: str) -> str:
    name = f"{name}-{uuid.uuid4().hex[:8]}"
    broker_starter().make_topics(address, name, partitions=PARTITIONS)
    return name


def _values(n: int) -> list[bytes]:
    """Generate events of 20 features with two linear classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    y = X @ rng.normal(size=20) + 0.3 * rng.normal(size=n) > 0
    names = [f"f{j}" for j in range(20)]
    parts = ["{" + ",".join(f'"{name}":{x:.5f}' for name, x in zip(names, row, strict=True)) for row in X.tolist()]
    return [f'{part},"y":"{"UP" if up else "DOWN"}"}}'.encode() for part, up in zip(parts, y.tolist(), strict=True)]


def _fill(address: str, topic: str, values: list[bytes]) -> None:
    from kafka import KafkaProducer

    with KafkaProducer(bootstrap_servers=address, linger_ms=20, batch_size=1 << 18) as producer:
        for i, value in enumerate(values):
            producer.send(topic, value, partition=i % PARTITIONS, timestamp_ms=1_750_000_000_000 + i)
        producer.flush()


# Throughput -------------------------------------------------------------------------------------------------------


def _consume(address: str, topic: str, n: int, decode: Callable[[bytes], Any] | None) -> float:
    """Time the poll loop of the client alone, in seconds."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, max_poll_records=4000, metrics_enabled=False
    )
    with contextlib.closing(consumer):
        tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        seen, start = 0, time.perf_counter()
        while seen < n:
            for records in consumer.poll(timeout_ms=1000).values():
                seen += len(records)
                if decode is not None:
                    for record in records:
                        decode(record.value)
        return time.perf_counter() - start


def _learn(address: str, topic: str, out: str | None, commit: float) -> float:
    """Time the loop with a CPM of ten faces, in seconds."""
    from connectors import open_sink, open_source
    from streamsvm import CPMClassifier
    from streamsvm.run.loop import RunLoop

    with contextlib.ExitStack() as stack:
        url = f"kafka://{address}/{topic}?at_end=stop"
        source = stack.enter_context(contextlib.closing(open_source(url, label="y")))
        sinks = {}
        if out is not None:
            url = f"kafka://{address}/{out}?commit_interval={commit}&transactional_id={uuid.uuid4().hex}"
            sinks["out"] = stack.enter_context(contextlib.closing(open_sink(url, source=source)))
            sinks["out"].flush()
        loop = RunLoop(CPMClassifier(n_faces=10), source, sinks=sinks)
        start = time.perf_counter()
        loop.run()
        return time.perf_counter() - start


def throughput(n: int, repeats: int) -> Rows:
    """Time all variants in turns; the minimum of each counts."""
    import orjson

    with _broker() as address:
        topic, out = _topic(address, "events"), _topic(address, "predictions")
        values = _values(n)
        _fill(address, topic, values)
        ways: dict[str, Callable[[], float]] = {
            "bare": lambda: _consume(address, topic, n, None),
            DECODING: lambda: _consume(address, topic, n, orjson.loads),
            "learning": lambda: _learn(address, topic, None, 0.0),
        }
        for commit in COMMITS:
            ways[f"predictions, commit_interval={commit}"] = partial(_learn, address, topic, out, commit)
        _learn(address, topic, None, 0.0)  # loads the compiled steps
        walls: dict[str, list[float]] = {name: [] for name in ways}
        cpus: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                cpu = time.process_time()
                walls[name].append(way())
                cpus[name].append(time.process_time() - cpu)
    load = round(os.getloadavg()[0], 1)
    return {name: _row(n, walls[name], walls[DECODING], cpus[name]) | {"load": load} for name in ways}


def _row(n: int, walls: list[float], decoding: list[float], cpus: list[float]) -> dict[str, float]:
    """Return the rate of a variant, also relative to decoding alone."""
    pairs = [a / b for a, b in zip(decoding, walls, strict=True)]
    row = {
        "events/s": n / min(walls),
        "of decoding": min(decoding) / min(walls),
        "of decoding, median of rounds": statistics.median(pairs),
        "cpu us": min(cpus) / n * 1e6,
    }
    return {key: round(value, 3) for key, value in row.items()}


# Latency ----------------------------------------------------------------------------------------------------------

_WARM_S = 10.0  # warm-up: loading of compiled code, and just-in-time compilation in the broker


def latency(rate: int, commit: float | None, seconds: float) -> dict[str, float]:
    """Measure the latency of the command line at a steady rate.

    Producer, learner and a reader at `read_committed` are separate processes. Without `commit`, measure that of the
    record itself.
    """
    with _broker() as address:
        topic, out = _topic(address, "events"), _topic(address, "predictions")
        _fill(address, topic, _values(60_000))
        _learn(address, topic, out, 0.0)  # warms up the broker, which is several times slower at first
        waits = np.array(_waits(address, rate, seconds, commit)) * 1e3
    p50, p99 = np.percentile(waits, [50, 99])
    return {"p50 ms": round(p50, 1), "p99 ms": round(p99, 1), "n": len(waits), "load": round(os.getloadavg()[0], 1)}


def _produce(address: str, topic: str, rate: int, seconds: float) -> None:
    """Produce events at a steady rate; the key of an event is its time."""
    from kafka import KafkaProducer

    values = _values(int(rate * seconds))
    with KafkaProducer(bootstrap_servers=address) as producer:
        start = time.perf_counter()
        for i, value in enumerate(values):
            if (ahead := start + i / rate - time.perf_counter()) > 0:
                time.sleep(ahead)
            producer.send(topic, value, str(time.time_ns()).encode(), partition=i % PARTITIONS)
        producer.flush()


def _waits(address: str, rate: int, seconds: float, commit: float | None) -> list[float]:
    """Measure the seconds from producing an event to its prediction.

    Without `commit`, measure the seconds until the event itself arrives, without a learner.
    """
    topic, out = _topic(address, "events"), _topic(address, "predictions")
    with contextlib.ExitStack() as stack:
        if commit is not None:
            stack.enter_context(_predicting(address, topic, f"{out}?commit_interval={commit}"))
        producer = multiprocessing.get_context("spawn").Process(
            target=_produce, args=(address, topic, rate, _WARM_S + seconds)
        )
        producer.start()
        n = int(rate * _WARM_S)
        waits = _arrivals(address, topic if commit is None else out, n + int(rate * seconds))[n:]
        producer.join()
    return waits


@contextlib.contextmanager
def _predicting(address: str, topic: str, out: str) -> Iterator[None]:
    command = [sys.executable, "-m", "streamsvm", "run", f"kafka://{address}/{topic}", "--label", "y", "--quiet"]
    kept = ["--model", "cpm", "--out", f"kafka://{address}/{out}", "--checkpoint", "check"]
    environment = {**os.environ, "PYTHONPATH": str(STARTER.parents[2])}
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command + kept, cwd=folder, env=environment)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _arrivals(address: str, topic: str, n: int) -> list[float]:
    """Return the seconds from the time in a record's key to its arrival.

    The n records are in order of their keys.
    """
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, isolation_level="read_committed", metrics_enabled=False
    )
    with contextlib.closing(consumer):
        tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        found: dict[int, float] = {}
        silent = time.monotonic()
        while len(found) < n and time.monotonic() - silent < 60:
            for records in consumer.poll(timeout_ms=200).values():
                silent, now = time.monotonic(), time.time_ns()
                found |= {int(record.key): (now - int(record.key)) / 1e9 for record in records}
    return [found[sent] for sent in sorted(found)]


def throughput_cases(options: argparse.Namespace) -> Iterator[Case]:
    """Measure all variants in one case, in turns."""
    yield Case("throughput", partial(throughput, options.events, options.repeats), several=True)


def throughput_arguments(parser: argparse.ArgumentParser) -> None:
    """Add numbers of events and repetitions."""
    parser.add_argument("--events", type=int, default=150_000)
    parser.add_argument("--repeats", type=int, default=5)


def latency_cases(options: argparse.Namespace) -> Iterator[Case]:
    """List all rates and commit intervals."""
    for commit in (None, *COMMITS):
        for rate in options.rates:
            name = "record itself" if commit is None else f"commit_interval={commit}"
            yield Case(key_of("latency", f"{rate}/s, {name}"), partial(latency, rate, commit, options.seconds))


def latency_arguments(parser: argparse.ArgumentParser) -> None:
    """Add rates and the time of each."""
    parser.add_argument("--rates", type=int, nargs="+", default=[1000, 100])
    parser.add_argument("--seconds", type=float, default=20.0)


THROUGHPUT = Benchmark(
    "kafka-throughput",
    "Throughput of consuming, decoding, learning and writing predictions with Kafka.",
    throughput_cases,
    {
        "kafka_throughput": Table(
            "Kafka",
            part(1),
            [
                Column("events per second", of("events/s"), "{:,.0f}"),
                Column("ratio to decoding", of("of decoding"), "{:.2f}"),
                Column("CPU µs per event", of("cpu us")),
            ],
        )
    },
    others=("bare", "decoding"),
    packages=PACKAGES,
    arguments=throughput_arguments,
)

LATENCY = Benchmark(
    "kafka-latency",
    "Time from producing an event to its prediction with Kafka, at steady rates.",
    latency_cases,
    {
        "kafka_latency": Table(
            "rate, commit interval",
            part(1),
            [Column("median, ms", of("p50 ms"), "{:,.0f}"), Column("99 %, ms", of("p99 ms"), "{:,.0f}")],
        )
    },
    packages=PACKAGES,
    arguments=latency_arguments,
)
