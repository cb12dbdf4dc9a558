"""Labels from a separate topic, with a Kafka broker."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.kafka.conftest import Run, fill, ran, read
from tests.kafka.test_run import marked, nothing_left_to_ask  # noqa: F401 - a fixture

N, KILLS = 900, 2
MODEL = ("--model", "cpm", "--param", "n_faces=3", "--quiet")
START = 1_750_000_000_000

Rows = list[tuple[int, Any, Any, int]]


def streams(n: int) -> tuple[Rows, Rows]:
    """Events on three partitions and labels on two; some late, lost or malformed.

    Some are duplicated.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3)).round(5)
    y = np.where((np.arange(n) < n / 2) == (X[:, 0] > 0), "UP", "DOWN")
    events: Rows = []
    labels: Rows = []
    for i in range(n):
        value = b"{oops" if i % 397 == 5 else json.dumps(dict(zip("abc", X[i].tolist(), strict=True))).encode()
        events.append((int(rng.integers(3)), b"k%d" % i, value, START + 10 * i + int(rng.integers(30))))
        for _ in range(int(rng.choice([0, 1, 1, 1, 1, 1, 1, 2]))):
            late = START + 10 * i + int(rng.exponential(4000)) - 20
            labels.append((int(rng.integers(2)), b"k%d" % i, json.dumps({"y": y[i]}).encode(), late))
    labels.sort(key=lambda row: row[3])
    return events, labels


def arguments(broker: str, source: str, labels: str, sinks: Sequence[str], *more: Any) -> list[str]:
    url = f"kafka://{broker}/{source}?batch_size=50&max_poll_records=400"
    late = ("--label-source", f"kafka://{broker}/{labels}?batch_size=70", "--label", "y", "--label-timeout", "6s")
    out, joined, dead, asked = (f"kafka://{broker}/{name}" for name in sinks)
    results = ("--out", f"{out}?commit_interval=0.02", "--label-output", joined, "--dead-letter", dead)
    results += ("--set", "label-budget=0.2", "--query-output", asked)
    kept = ("--checkpoint", "check", "--save", "model", "--summary", "summary.json", "--at-end", "stop")
    return [url, *late, *MODEL, *kept, *results, *map(str, more)]


def results(folder: Path, broker: str, sinks: Sequence[str]) -> dict[str, Any]:
    """Return the results of a run; each row occurs once."""
    summary = json.loads((folder / "summary.json").read_text())
    for name in ("out", "rejected_to", "process"):
        summary.pop(name)
    kept: dict[str, Any] = {"summary": summary, "model": (folder / "model").read_bytes()}
    place = ("partition", "offset")
    for topic, places in zip(sinks, (place, (*place, "how"), ("stream", "part", "number"), place), strict=True):
        rows = [json.loads(record.value) for record in read(broker, topic)]
        named = {tuple(row[name] for name in places): row for row in rows}
        assert len(named) == len(rows), f"{len(rows) - len(named)} of {len(rows)} came twice"
        kept[topic.partition("-")[0]] = named
    return kept


def test_killed_and_resumed_with_labels_on_a_topic_of_their_own(broker: Any, topic: Any, tmp_path: Path) -> None:
    source, label_topic = topic("events"), topic("labels", 2)
    events, labels = streams(N)
    fill(broker, source, events)
    fill(broker, label_topic, labels)
    sinks = [(topic("out"), topic("joined", 2), topic("dead", 1), topic("asked", 2)) for _ in range(2)]
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.mkdir()
    broken.mkdir()
    ran(*arguments(broker, source, label_topic, sinks[0], "--checkpoint-every", N), cwd=plain)
    whole = results(plain, broker, sinks[0])
    assert len(whole["out"]) == N - sum(value == b"{oops" for _, _, value, _ in events)
    assert len(whole["dead"]) == N - len(whole["out"])
    late = whole["summary"]["late"]
    assert len(whole["joined"]) == late["answered"] + late["late"]
    assert len(whole["asked"]) == late["asked"] > 0.1 * N
    dice = random.Random(5)
    kills = 0
    for share in sorted(dice.uniform(0.05, 0.9) for _ in range(KILLS)):
        asked = arguments(broker, source, label_topic, sinks[1], "--checkpoint-every", dice.randint(100, 1000))
        with Run(*asked, cwd=broken) as run:
            kills += run.killed_when(lambda share=share: marked(broker, source, sinks[1][0]) >= share * N)
    assert kills == KILLS, "the process was too quick to be killed"
    ran(*arguments(broker, source, label_topic, sinks[1], "--checkpoint-every", 5000), cwd=broken)
    resumed = results(broken, broker, sinks[1])
    assert resumed.pop("summary") == whole.pop("summary")
    assert {name for name, kept in resumed.items() if kept != whole[name]} == set()


def test_events_on_a_topic_and_labels_in_a_file(broker: Any, topic: Any, tmp_path: Path) -> None:
    source, n = topic("events"), 500
    events, labels = streams(n)
    fill(broker, source, events)
    lines = [f"{key.decode()},{time},{json.loads(value)['y']}" for _, key, value, time in labels]
    (tmp_path / "labels.csv").write_text("\n".join(["id,t,y", *lines]) + "\n")
    shared = (f"kafka://{broker}/{source}", "--label", "y", "--at-end", "stop", *MODEL)
    ran(*shared, "--label-source", "labels.csv?time=t&key=id", "--label-output", "joined.jsonl", cwd=tmp_path)
    joined = [json.loads(line) for line in (tmp_path / "joined.jsonl").read_text().splitlines()]
    assert {row["key"] for row in joined} <= {key.decode() for _, key, _, _ in events}
    assert len(joined) == len({row["key"] for row in joined}) > 0.8 * n


def test_an_idle_topic_delays_nothing(broker: Any, topic: Any, tmp_path: Path) -> None:
    """Live topics: one topic continues although the other is idle."""
    source, label_topic = topic("events", 2), topic("labels", 1)
    events, labels = ([row for row in rows if row[2] != b"{oops"] for rows in streams(60))
    fill(broker, source, [(p % 2, *row) for p, *row in events])
    asked = (f"kafka://{broker}/{source}", "--label-source", f"kafka://{broker}/{label_topic}", "--label", "y", *MODEL)
    asked += ("--out", "out.jsonl", "--label-output", "joined.jsonl", "--checkpoint", "check")
    with Run(*asked, cwd=tmp_path) as run:
        run.until(lambda: has_lines(tmp_path / "out.jsonl", len(events)))
        fill(broker, label_topic, [(0, *row) for _, *row in labels])
        n = len({key for _, key, _, _ in labels} & {key for _, key, _, _ in events})
        run.until(lambda: has_lines(tmp_path / "joined.jsonl", n))
        run.send_signal(signal.SIGTERM)
        assert run.wait() == 143


def has_lines(path: Path, n: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= n
