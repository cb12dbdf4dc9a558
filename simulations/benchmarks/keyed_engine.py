"""One model per key on Quix Streams: throughput, changelog and restore time.

    python -m simulations.benchmarks.keyed_engine throughput    one worker, the engine alone, and a single model
    python -m simulations.benchmarks.keyed_engine workers       one worker and two
    python -m simulations.benchmarks.keyed_engine restore       restore of the state of many keys from the changelog

The run starts a broker. Events are JSON of 20 numbers, about 400 bytes, on 12 partitions; predictions are written. The
second half of the events is timed, when all keys are known. `through` writes the state of a key at each event. "engine"
is Quix Streams with a stateful function that does nothing. Rounds alternate. Broker and workers share the machine.
Results are stored in `simulations/results`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulations.benchmarks.kafka import STARTER, broker_starter
from simulations.keeping import keep

PACKAGES = ("quixstreams", "confluent-kafka", "kafka-python", "numpy", "numba")
PARTITIONS, COLUMNS, ROUNDS = 12, 20, 3
FIELD, LABEL = "customer", "outcome"
HOT, COLD = 1_000, 20_000
"""Numbers of keys, for many events per key and checkpoint, and for about one."""


def main() -> None:
    """Measure, and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("throughput", "workers", "restore"))
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1_000_000, help="number of keys of `restore` (default %(default)s)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(CHILDREN[args.what](*args.child.split(","))))
        return
    with contextlib.closing(broker_starter().Broker()) as broker, tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        measure = {"throughput": throughput, "workers": workers, "restore": restore}[args.what]
        found = measure(broker, args)
    print(json.dumps(found, indent=1))
    keep(f"keyed-engine-{args.what}", found, PACKAGES)


# What is measured ------------------------------------------------------------------------------------------------


def throughput(broker: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Measure the events per second of one process."""
    found: dict[str, Any] = {}
    for name, n_keys in (("hot", HOT), ("cold", COLD)):
        topic = _filled(broker.address, args.events, n_keys)
        rounds: dict[str, list[dict[str, float]]] = {}
        for _ in range(ROUNDS):
            for kind in ("engine", "keyed", "through", "one"):
                if kind == "through" and name == "cold":
                    continue
                one = _child("throughput", kind, broker.address, topic, args.events)
                rounds.setdefault(kind, []).append(one)
        rates = {kind: statistics.median(one["rate"] for one in ones) for kind, ones in rounds.items()}
        ratio = [b["rate"] / a["rate"] for a, b in zip(rounds["engine"], rounds["keyed"], strict=True)]
        found[name] = {
            "keys": n_keys,
            "events": args.events,
            "rates": rates,
            "keyed_by_engine": statistics.median(ratio),
        }
        found[name] |= {"ratios": ratio, "state_bytes_an_event": rounds["keyed"][-1]["bytes"] / args.events}
    return found


def workers(broker: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Measure the events per second of one worker and of two."""
    topic, rates = _filled(broker.address, args.events, HOT), {1: [], 2: []}
    for _ in range(ROUNDS):
        for n in (1, 2):
            group = uuid.uuid4().hex[:8]
            started = [_start("workers", broker.address, topic, group, args.events) for _ in range(n)]
            ended = [json.loads(one.communicate()[0].splitlines()[-1]) for one in started]
            busy = [one for one in ended if one["events"]]
            seconds = max(one["last"] for one in busy) - min(one["first"] for one in busy)
            rates[n].append(sum(one["events"] for one in ended) / seconds)
    medians = {n: statistics.median(some) for n, some in rates.items()}
    return {"rates": rates, "two_by_one": medians[2] / medians[1]}


def restore(broker: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Measure the time in which a worker without state restores all keys."""
    topic, group = _filled(broker.address, args.keys, args.keys, each=True), uuid.uuid4().hex[:8]
    written = _child("restore", broker.address, topic, group, args.keys)
    return {"keys": args.keys, "state_bytes": written["bytes"]} | _child("restore", broker.address, topic, group, 0)


# Processes of their own ------------------------------------------------------------------------------------------


class Clock:
    """Times of the event after `after` others, and of the last event."""

    def __init__(self, after: int = 0) -> None:
        self.first = self.last = 0.0
        self.n, self._after = 0, after

    def __call__(self, *_: Any) -> None:
        if self.n == self._after:
            self.first = time.time()
        self.n += 1
        self.last = time.time()


def _application(address: str, group: str, clock: Clock) -> Any:
    from streamsvm.keyed.quix import Application

    folder = tempfile.mkdtemp(dir=".")
    return Application(
        address,
        consumer_group=group,
        state_dir=folder,
        loglevel=None,
        on_message_processed=clock,
        topic_create_timeout=120,
    )


def _worker(app: Any, topic: str) -> Any:
    from streamsvm import CPMClassifier
    from streamsvm.keyed import KeyedClassifier
    from streamsvm.keyed.worker import Stream, Worker

    keyed = KeyedClassifier(CPMClassifier(), label=LABEL, ignore=(FIELD, "id"))
    return Worker(app, Stream(topic, FIELD, out=f"{topic}-out"), keyed)


def _throughput(kind: str, address: str, topic: str, n: str) -> dict[str, float]:
    clock, group = Clock(after=int(n) // 2), uuid.uuid4().hex[:8]
    if kind == "one":
        return _one_model(address, topic, int(n))
    app = _application(address, group, clock)
    if kind == "keyed":
        worker = _worker(app, topic)
    else:
        sdf = app.dataframe(app.topic(topic))
        if kind == "through":
            from streamsvm import CPMClassifier
            from streamsvm.keyed import KeyedClassifier

            sdf = sdf.apply(KeyedClassifier(CPMClassifier(), label=LABEL, ignore=(FIELD, "id")), stateful=True)
        else:
            sdf = sdf.apply(_nothing, stateful=True)
        sdf.to_topic(app.topic(f"{topic}-out"))
    app.run(count=int(n), collect=False)
    done = time.time()  # after the last checkpoint
    return {
        "rate": (int(n) - int(n) // 2) / (done - clock.first),
        "bytes": worker.live.saved_bytes if kind == "keyed" else 0,
    }


def _nothing(value: dict[str, Any], state: Any) -> dict[str, Any]:
    return {"prediction": "a", "score": 0.5, "label": value[LABEL]}


def _one_model(address: str, topic: str, n: int) -> dict[str, float]:
    """Run `streamsvm run` with one model for all keys, including predictions."""
    url, summary = f"kafka://{address}/{topic}", Path(f"{uuid.uuid4().hex}.json")
    command = [
        sys.executable,
        "-m",
        "streamsvm",
        "run",
        url,
        "--label",
        LABEL,
        "--ignore",
        f"id,{FIELD}",
        "--model",
        "cpm",
    ]
    command += [
        "--out",
        f"{url}-out?commit_interval=1",
        "--dead-letter",
        "null:",
        "--at-end",
        "stop",
        "--quiet",
        "--summary",
        str(summary),
    ]
    subprocess.run(command, check=True)
    process = json.loads(summary.read_text())["process"]
    return {"rate": n / process["seconds"], "bytes": 0}


def _workers(address: str, topic: str, group: str, n: str) -> dict[str, float]:
    clock = Clock()
    worker = _worker(_application(address, group, clock), topic)
    worker.run(until_end=True)
    return {"events": clock.n, "first": clock.first, "last": clock.last}


def _restore(address: str, topic: str, group: str, n: str) -> dict[str, float]:
    clock, spent = Clock(), []
    app = _application(address, group, clock)
    worker, recover = _worker(app, topic), app._state_manager.do_recovery

    def timed() -> None:
        begin = time.time()
        recover()
        spent.append(time.time() - begin)
        if not int(n):
            app.stop()

    app._state_manager.do_recovery = timed
    begin = time.time()
    app.run(**({"count": int(n), "collect": False} if int(n) else {}))
    return {"bytes": worker.live.saved_bytes} if int(n) else {"restored_s": sum(spent), "whole_s": time.time() - begin}


CHILDREN: dict[str, Callable[..., dict[str, float]]] = {
    "throughput": _throughput,
    "workers": _workers,
    "restore": _restore,
}


def _start(what: str, *given: Any) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(STARTER.parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __spec__.name, what, "--child", ",".join(map(str, given))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def _child(what: str, *given: Any) -> dict[str, float]:
    process = _start(what, *given)
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{what} {given} ended with {process.returncode}")
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    print(what, *given, found, file=sys.stderr, flush=True)
    return found


# The broker ------------------------------------------------------------------------------------------------------


def _filled(address: str, n: int, n_keys: int, each: bool = False) -> str:
    """Create a topic with events, and a topic for predictions."""
    from confluent_kafka import Producer

    topic = f"events-{uuid.uuid4().hex[:8]}"
    broker_starter().make_topics(address, topic, f"{topic}-out", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    rng = random.Random(1)
    for i in range(n):
        key = i if each else rng.randrange(n_keys)
        x = [rng.gauss(0, 1) for _ in range(COLUMNS)]
        event = {"id": i, FIELD: f"c{key}", **{f"f{j}": round(value, 4) for j, value in enumerate(x)}}
        event[LABEL] = "ab"[x[key % COLUMNS] + x[(key + 1) % COLUMNS] > 0]
        producer.produce(topic, json.dumps(event).encode(), f"c{key}".encode(), key % PARTITIONS)
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return topic


if __name__ == "__main__":
    main()
