"""Complete runs with a Kafka broker: crashes, outages, and errors of users."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.commands import ran_here
from tests.kafka.conftest import Run, fill, ran, read, start_broker, starter
from tests.run.test_kill import is_refitting, timeless

N = 1_500
MODEL = ("--model", "cpm", "--param", "n_faces=3")


def stream(n: int, *, broken: bool = True, moved: bool = False) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Events of three partitions, whose concept (and c if `moved`) changes halfway.

    Some are malformed, and times are not ordered.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 3))
    x[n // 2 :, 2] += 2.0 * moved
    y = np.where(np.arange(n) < n / 2, x[:, 0] > 0, x[:, 1] > 0.3)
    rows = []
    for i, partition in enumerate(rng.integers(0, 3, n).tolist()):
        event: dict[str, Any] = dict(zip("abc", x[i].round(5).tolist(), strict=True))
        if i % 41 != 7:
            event["y"] = "UP" if y[i] else "DOWN"
        value: bytes | None = json.dumps(event).encode()
        if broken and i % 397 == 5:
            value = random.Random(i).choice([None, b"{oops", b"\xff", b'{"a":{"b":1},"a.b":1}'])
        key = b"k" * 5000 if i % 397 == 9 else b"k%d" % (i % 50)
        rows.append((partition, key, value, 1_750_000_000_000 + 10 * i + int(rng.integers(0, 50))))
    return rows


def arguments(broker: str, source: str, out: str, dead: str, *more: Any) -> list[str]:
    # Small batches and transactions give more points to be killed at.
    url = f"kafka://{broker}/{source}?batch_size=50&max_poll_records=400"
    kept = ("--checkpoint", "check", "--save", "model", "--summary", "summary.json")
    sinks = ("--out", f"kafka://{broker}/{out}?commit_interval=0.02", "--dead-letter", f"kafka://{broker}/{dead}")
    return [url, "--label", "y", "--quiet", *MODEL, *kept, *sinks, *map(str, more)]


_asking: dict[str, Any] = {}


def asking(broker: str) -> Any:
    """A client for queries, created once per test."""
    from kafka import KafkaAdminClient

    if broker not in _asking:
        _asking[broker] = KafkaAdminClient(bootstrap_servers=broker)
    return _asking[broker]


@pytest.fixture(autouse=True)
def nothing_left_to_ask() -> Iterator[None]:
    """Close those clients."""
    yield
    while _asking:
        _asking.popitem()[1].close()


def marked(broker: str, source: str, out: str) -> int:
    """Return the number of committed predictions, or 0 if the broker is not ready."""
    from kafka.errors import KafkaError

    group = f"streamsvm.{source}.{out}"
    with contextlib.suppress(KafkaError):
        found = asking(broker).list_group_offsets({group: None})[group]
        return sum(max(0, each.offset) for each in found.values())
    return 0


def results(folder: Path, broker: str, out: str, dead: str, n: int | None = None) -> dict[str, Any]:
    """Return the results of a run (of n events), without names and clock times."""
    summary = json.loads((folder / "summary.json").read_text())
    for name in ("out", "rejected_to"):
        summary.pop(name)
    kept = {"process": summary.pop("process"), "summary": summary, "model": (folder / "model").read_bytes()}
    for topic in (out, dead):
        found = [json.loads(record.value) for record in read(broker, topic)]
        places = [(row["partition"], row["offset"]) for row in found]
        assert len(places) == len(set(places)), f"{len(places) - len(set(places))} of {len(places)} came twice"
        kept["out" if topic == out else "dead"] = dict(zip(places, found, strict=True))
    assert n in (None, len(kept["out"]) + len(kept["dead"]))
    too_large = sum("too large" in letter["reason"] for letter in kept["dead"].values())  # these are predicted
    assert summary["events"] == len(kept["out"]) + too_large
    return kept


def test_killed_in_the_midst_of_refits_and_resumed(broker, topic, tmp_path):
    source = topic("events")
    fill(broker, source, stream(N, moved=True))
    outs = [topic("out", **{"max.message.bytes": "3000"}) for _ in range(2)]  # less than some keys
    alerts = [topic("alerts") for _ in range(2)]
    deads = [topic("dead", 1) for _ in range(2)]
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.mkdir()
    broken.mkdir()
    # A refit starts every 250 events, every 5 s of event time and after alarms. Its model is added 250 events later.
    end = ("--refit", "newton,every=250+5s+alarm:40,window=500", "--at-end", "stop", "--checkpoint-every")
    to = [("--reference", "512", "--alerts", f"kafka://{broker}/{alert}") for alert in alerts]
    ran_here("run", *arguments(broker, source, outs[0], deads[0], *to[0], *end, N), cwd=plain, check=True)
    with Run(*arguments(broker, source, outs[1], deads[1], *to[1], *end, 100), cwd=broken) as run:
        is_due = run.killed_when(lambda: is_refitting(broken) and marked(broker, source, outs[1]) >= 0.4 * N)
        assert is_due, "the process was too quick to be killed"
    assert is_refitting(broken), "no window was being solved"
    ran_here("run", *arguments(broker, source, outs[1], deads[1], *to[1], *end, 5000), cwd=broken, check=True)
    found = [[json.loads(record.value) for record in read(broker, alert)] for alert in alerts]
    assert found[0] == found[1]
    assert {alarm["column"] for alarm in found[0]} >= {"c"}
    whole, resumed = results(plain, broker, outs[0], deads[0], N), results(broken, broker, outs[1], deads[1], N)
    for kept, folder in ((whole, plain), (resumed, broken)):
        kept["model"] = timeless(folder / "model")
    assert sum("too large" in letter["reason"] for letter in whole["dead"].values()) == len(range(9, N, 397))
    assert whole["summary"]["rejected"] == len(whole["dead"])
    assert {tuple(row) for row in whole["out"].values()} == {("partition", "offset", "prediction", "score", "label")}
    assert None in [row["prediction"] for row in whole["out"].values()]  # the first prediction, before any label
    assert whole["summary"]["refits"]["count"] >= 4
    assert resumed.pop("process")["resumed_at"] > 0
    assert whole.pop("process")["resumed_at"] is None
    assert resumed == whole


@pytest.mark.slow
def test_a_suspended_run_ends_and_its_successor_continues(broker, topic, tmp_path):
    source, out, dead = topic("events"), topic("out"), topic("dead", 1)
    rows, n = stream(3000), 0
    asked = arguments(broker, source, out, dead, "--checkpoint-every", "0.3s")
    asked[asked.index("--out") + 1] += "&transaction_timeout_ms=1000"
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    def more_until(what: Any, run: Run) -> None:
        nonlocal n
        for _ in range(50):
            fill(broker, source, rows[n : n + 20])
            n += 20
            if what():
                return
        raise AssertionError(run.log)

    with Run(*asked, cwd=first) as old:
        old.until((first / "check" / "checkpoint.safetensors").exists)
        more_until(lambda: marked(broker, source, out) > 200, old)
        old.send_signal(signal.SIGSTOP)
        shutil.copytree(first / "check", second / "check")
        with Run(*asked, cwd=second) as new:
            reached = marked(broker, source, out)
            more_until(lambda: marked(broker, source, out) > reached + 100, new)
            old.send_signal(signal.SIGCONT)
            more_until(lambda: old.over, new)
            assert old.wait() == 1, old.log
            assert "fenced off" in old.log
            new.until(lambda: marked(broker, source, out) >= n)
            new.send_signal(signal.SIGTERM)
            assert new.wait() == 143, new.log
    results(second, broker, out, dead, n)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Any]:
    """A broker that a test may kill."""
    pytest.importorskip("kafka")
    with contextlib.closing(start_broker()) as broker:
        yield broker


@pytest.fixture(scope="module")
def outage(mortal: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three runs with a restarted broker: one waits, one is stopped, one waits 3 s."""
    names, address, rows = ("waits", "asked", "patient"), mortal.address, stream(N)
    folders = {name: tmp_path_factory.mktemp(name) for name in names}
    for name in names:
        starter.make_topics(address, *topics_of(name))
    kept = ("--checkpoint-every", 300)
    given = {name: arguments(address, *topics_of(name), *kept) for name in names}
    given["waits"][-2:] = ["--checkpoint-every", "0.5s"]
    fill(address, "waits-in", rows[: N // 2])
    for name in ("asked", "patient"):
        fill(address, f"{name}-in", rows)
    with contextlib.ExitStack() as stack:
        runs = {}
        for name in names:
            more = ("--set", "broker-timeout=3") if name == "patient" else ()
            runs[name] = stack.enter_context(Run(*given[name], *more, cwd=folders[name]))
        for name, run in runs.items():
            run.until(lambda name=name: marked(address, *topics_of(name)[:2]) > 500)
        mortal.kill()
        runs["asked"].send_signal(signal.SIGTERM)
        codes = {name: runs[name].wait() for name in ("asked", "patient")}
        runs["waits"].until(lambda: "no broker available" in runs["waits"].log)  # a warning, despite --quiet
        mortal.start()
        yield SimpleNamespace(broker=mortal, rows=rows, folders=folders, given=given, runs=runs, codes=codes)


def topics_of(name: str) -> list[str]:
    return [f"{name}-{end}" for end in ("in", "out", "dead")]


def test_a_broker_that_dies_and_restarts(outage):
    address, run = outage.broker.address, outage.runs["waits"]
    fill(address, "waits-in", outage.rows[N // 2 :])
    run.until(lambda: marked(address, "waits-in", "waits-out") >= N)
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 143, run.log
    assert "Traceback" not in run.log
    results(outage.folders["waits"], address, "waits-out", "waits-dead", N)


def test_sigterm_while_the_broker_is_away(outage):
    code, log = outage.codes["asked"], outage.runs["asked"].log
    assert code in (75, 143), log  # 143 if everything was committed before
    assert code == 143 or "no broker responded, and the run was stopped" in log
    assert "Traceback" not in log
    ran(*outage.given["asked"], "--at-end", "stop", cwd=outage.folders["asked"])
    kept = results(outage.folders["asked"], outage.broker.address, "asked-out", "asked-dead", N)
    assert kept["process"]["resumed_at"] > 0


@pytest.mark.slow
def test_sigterm_while_the_broker_stands_still(mortal, tmp_path):
    rows = stream(3000)
    runs: dict[str, Run] = {}
    with contextlib.ExitStack() as stack:
        for name, n in (("reads", 500), ("writes", 3000)):
            topics = [f"still-{each}" for each in topics_of(name)]
            starter.make_topics(mortal.address, *topics)
            fill(mortal.address, topics[0], rows[:n])
            (tmp_path / name).mkdir()
            # One run has no events left; the other always has an open transaction.
            asked = arguments(mortal.address, *topics, "--checkpoint-every", "0.1s" if n == 3000 else "1000")
            runs[name] = stack.enter_context(Run(*asked, cwd=tmp_path / name))
        still = [f"still-{each}" for each in topics_of("reads")]
        runs["reads"].until(lambda: marked(mortal.address, *still[:2]) == 500)
        runs["writes"].until(lambda: marked(mortal.address, "still-writes-in", "still-writes-out") > 100)
        mortal.freeze()
        try:
            time.sleep(1.0)
            runs["reads"].send_signal(signal.SIGINT)
            runs["writes"].send_signal(signal.SIGTERM)
            codes = {name: run.wait(30) for name, run in runs.items()}  # ends after 10 s
        finally:
            mortal.thaw()
    assert codes["reads"] in (75, 130), runs["reads"].log
    assert codes["writes"] in (75, 143), runs["writes"].log
    for name, run in runs.items():
        assert "Traceback" not in run.log
        topics = [f"still-{each}" for each in topics_of(name)]
        ran(*arguments(mortal.address, *topics, "--at-end", "stop"), cwd=tmp_path / name)
        results(tmp_path / name, mortal.address, *topics[1:], 500 if name == "reads" else 3000)


def test_brokers_that_are_unavailable_beyond_the_timeout(outage):
    assert outage.codes["patient"] == 75, outage.runs["patient"].log
    assert "Traceback" not in outage.runs["patient"].log
    ran(*outage.given["patient"], "--at-end", "stop", cwd=outage.folders["patient"])
    results(outage.folders["patient"], outage.broker.address, "patient-out", "patient-dead", N)


def test_a_run_killed_before_its_first_checkpoint_resumes(broker, topic, tmp_path):
    source, out, dead = topic("events"), topic("out"), topic("dead", 1)
    fill(broker, source, stream(500))
    asked = arguments(broker, source, out, dead, "--checkpoint-every", "1000000")
    with Run(*asked, cwd=tmp_path) as run:
        run.until(lambda: marked(broker, source, out) == 500)
    ran(*asked, "--at-end", "stop", cwd=tmp_path)
    results(tmp_path, broker, out, dead, 500)


def test_a_lost_checkpoint_stops_the_run(broker, topic, tmp_path):
    source, out, dead = topic("events"), topic("out"), topic("dead", 1)
    fill(broker, source, stream(500))
    asked = arguments(broker, source, out, dead, "--at-end", "stop")
    ran(*asked, cwd=tmp_path)
    whole = results(tmp_path, broker, out, dead, 500)
    (tmp_path / "check" / "checkpoint.safetensors").unlink()
    assert "the checkpoint is missing" in ran(*asked, cwd=tmp_path, code=2)
    asked[asked.index("--out") + 1] += "&mark=trust"
    ran(*asked, cwd=tmp_path)
    again = results(tmp_path, broker, out, dead, 500)
    again.pop("process"), whole.pop("process")
    assert again == whole
    asked[asked.index("--out") + 1] = asked[asked.index("--out") + 1].replace("trust", "check")
    ran(*asked, "--reset", cwd=tmp_path)
    assert len(read(broker, out)) == 2 * len(whole["out"])


def test_events_to_a_file_and_a_file_to_a_topic(broker, topic, run, tmp_path):
    source, out = topic("events"), topic("out")
    fill(broker, source, stream(300))
    done = run(f"kafka://{broker}/{source}", "--at-end", "stop", "--label", "y", *MODEL, "--out", "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert set(lines[0]) == {"partition", "offset", "key", "prediction", "score", "label"}
    done = run("out.jsonl", "--label", "label", "--set", "key=key", *MODEL, "--out", f"kafka://{broker}/{out}")
    assert len(read(broker, out)) == len(lines)
    done = run("out.jsonl", "--label", "label", *MODEL, "--out", f"kafka://{broker}/{out}", "--checkpoint", "c", code=2)
    assert "cannot undo writes" in done.stderr


def test_max_events_and_then_more(broker, topic, tmp_path):
    source, outs, deads = topic("events"), [topic("out"), topic("out")], [topic("dead", 1), topic("dead", 1)]
    rows = stream(1000)
    rows[340::9] = [(p, k, b"{oops", t) for p, k, _, t in rows[340::9]]  # also after the last event of its batch
    fill(broker, source, rows)
    found = []
    for out, dead, limits in zip(outs, deads, ([900], [333, 620, 900]), strict=True):
        (tmp_path / out).mkdir()
        for limit in limits:
            ran(*arguments(broker, source, out, dead, "--max-events", limit), cwd=tmp_path / out)
        found.append(results(tmp_path / out, broker, out, dead))
    first, second = found
    assert len(first["out"]) == 900
    assert first["out"] == second["out"]
    assert first["dead"] == second["dead"]
    assert first["model"] == second["model"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("kafka://{broker}/nowhere", "there is no topic 'nowhere'"),
        ("kafka://{broker}/nowhere?lable=y", "unknown option `lable`"),
        ("kafka://{broker}/nowhere?order=random", "`order` must be one of timestamp, arrival"),
        ("kafka://{broker}/nowhere?format=xml", "`format` must be one of"),
        ("kafka://me:hunter2@{broker}/t", "sasl_plain_username and sasl_plain_password, best in a file"),
    ],
)
def test_inconsistent_options_are_refused_at_once(broker, tmp_path, url, message):
    said = ran(url.format(broker=broker), *MODEL, cwd=tmp_path, code=2)
    assert message in said
    assert "hunter2" not in said


def test_brokers_that_are_away_at_the_start_are_no_wrong_setting(tmp_path):
    pytest.importorskip("kafka")
    said = ran("kafka://127.0.0.1:1/t", "--set", "broker-timeout=0.5", *MODEL, cwd=tmp_path, code=75)
    assert "no broker responded within 0.5 s" in said
