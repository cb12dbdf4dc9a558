"""Long tests: a topic of a million records.

Run them with `python -m pytest -s tests/kafka/at_size.py`.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kafka.conftest import Run, fill
from tests.kafka.test_run import MODEL, marked, nothing_left_to_ask  # noqa: F401 - a fixture

N = 1_000_000
KILLS = 20
PARTITIONS = 3
CHUNK = 100_000

pytestmark = pytest.mark.timeout(7200)


def events(n: int) -> list[bytes]:
    """Events of three features whose concept changes halfway."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 3)).round(4)
    y = np.where(np.arange(n) < n / 2, x[:, 0] > 0, x[:, 1] > 0.3)
    return [
        b'{"a":%.4f,"b":%.4f,"c":%.4f,"y":"%s"}' % (*row, b"UP" if up else b"DOWN")
        for row, up in zip(x.tolist(), y.tolist(), strict=True)
    ]


def answers(broker: str, topic: str, ends: list[int]) -> list[np.ndarray]:
    """Return a checksum of predictions by partition and offset, each of one event."""
    from kafka import KafkaConsumer, TopicPartition

    found = [np.full(end, -1) for end in ends]
    settings: dict[str, Any] = {"isolation_level": "read_committed", "enable_auto_commit": False}
    with contextlib.closing(KafkaConsumer(bootstrap_servers=broker, **settings)) as consumer:
        tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        until = consumer.end_offsets(tps)
        while any(consumer.position(tp) < until[tp] for tp in tps):
            for records in consumer.poll(timeout_ms=200, max_records=10_000).values():
                for record in records:
                    row = json.loads(record.value)
                    assert found[row["partition"]][row["offset"]] == -1, f"came twice: {row}"
                    found[row["partition"]][row["offset"]] = zlib.crc32(record.value)
    return found


def peak_memory(run: Run) -> int:
    """Return the peak memory of a process in MiB, or 0 if it has exited."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{run.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024
    return 0


def test_a_filled_topic_of_a_million_records(broker, topic, tmp_path):
    """Read a topic in time order, with and without kills, and compare with a file."""
    values, dice = events(N), random.Random(1)
    placed = [dice.randrange(PARTITIONS) for _ in range(N)]
    source = topic("events", PARTITIONS)
    for i in range(0, N, CHUNK):
        rows = zip(placed[i : i + CHUNK], values[i : i + CHUNK], range(i, i + CHUNK), strict=True)
        fill(broker, source, [(p, None, value, 1_750_000_000_000 + t) for p, value, t in rows])
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(values) + b"\n")
    ends = [placed.count(p) for p in range(PARTITIONS)]
    asked = ["--label", "y", "--quiet", *MODEL, "--save", "model", "--summary", "summary.json"]
    folders = {name: tmp_path / name for name in ("file", "whole", "killed")}
    for folder in folders.values():
        folder.mkdir()

    with Run(tmp_path / "events.jsonl", *asked, cwd=folders["file"]) as run:
        assert run.wait(3600) == 0, run.log
    outs = {name: topic("out", PARTITIONS) for name in ("whole", "killed")}
    kafka = [f"kafka://{broker}/{source}", *asked, "--at-end", "stop", "--checkpoint", "check"]

    began, peak = time.monotonic(), 0
    with Run(*kafka, "--out", f"kafka://{broker}/{outs['whole']}", cwd=folders["whole"]) as run:
        while not run.over:
            peak = max(peak, peak_memory(run))
            time.sleep(0.2)
        assert run.wait() == 0, run.log
    whole = time.monotonic() - began

    began, kills = time.monotonic(), 0
    arguments = [*kafka, "--out", f"kafka://{broker}/{outs['killed']}"]
    for share in sorted(dice.uniform(0.02, 0.95) for _ in range(KILLS)):
        with Run(*arguments, cwd=folders["killed"]) as run:
            kills += run.killed_when(lambda share=share: marked(broker, source, outs["killed"]) >= share * N)
    with Run(*arguments, cwd=folders["killed"]) as run:
        assert run.wait(3600) == 0, run.log
    killed = time.monotonic() - began

    summaries = {name: json.loads((folder / "summary.json").read_text()) for name, folder in folders.items()}
    rate = N / summaries["whole"]["process"]["seconds"]
    accuracy = summaries["whole"]["accuracy"]
    print(f"\n{N:,} events, accuracy {accuracy:.4f}: whole {whole:.0f} s ({rate:,.0f}/s), peak {peak} MiB; ", end="")
    print(f"killed {kills} times {killed:.0f} s")
    assert kills == KILLS
    models = {name: (folder / "model").read_bytes() for name, folder in folders.items()}
    assert models["whole"] == models["file"]
    assert models["killed"] == models["file"]
    for found, again in zip(*(answers(broker, out, ends) for out in outs.values()), strict=True):
        assert (found >= 0).all()
        assert (found == again).all()
