"""Passwords in URLs never appear in output, logs or pages."""

from __future__ import annotations

import contextlib
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.choices import each_choice
from tests.kafka.conftest import LOGINS, Make, Run, fill, read
from tests.kafka.test_run import stream
from tests.page.looking import free_port, wait_for

PAGES = ("/", "/healthz", "/events", "/state.json", "/series.json", "/event.json?n=1", "/metrics")
OURS, WRONG = LOGINS["me"], "hunter9wrong"


def url(address: str, topic: str, password: str = OURS, **options: str) -> str:
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "me"} | options
    query = "&".join(f"{name}={value}" for name, value in {**given, "sasl_plain_password": password}.items())
    return f"kafka://{address}/{topic}?{query}"


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


def told(port: int, *paths: str) -> Iterator[tuple[str, bytes]]:
    """Yield responses of a server of the run, or the first update of a stream."""
    for path in paths:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10.0) as found,
        ):
            yield path, found.read1(1 << 20)


def test_a_password_is_nowhere(listeners: Any, broker: str, topic: Make, tmp_path: Path) -> None:
    source, out, dead, page, metrics = topic("events"), topic("out"), topic("dead", 1), free_port(), free_port()
    fill(broker, source, stream(600))
    sinks = ("--out", url(listeners.password, out), "--dead-letter", url(listeners.password, dead))
    sinks += ("--checkpoint", "check", "--save", "model")
    kept = ("--summary", "summary.json", "--page", page, "--set", f"metrics-port={metrics}", "--plot", "plot.svg")
    seen: dict[str, bytes] = {}
    with Run(url(listeners.password, source), "--label", "y", "--model", "cpm", *sinks, *kept, cwd=tmp_path) as run:
        wait_for(lambda: b"streamsvm_" in dict(told(metrics, "/metrics")).get("/metrics", b""), "metrics")
        wait_for(lambda: (tmp_path / "check" / "checkpoint.safetensors").exists(), "a checkpoint")
        wait_for(lambda: len(read(broker, out)) > 100, "predictions")
        seen |= {f"metrics{name}": held for name, held in told(metrics, "/metrics")} | dict(told(page, *PAGES))
        run.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.log
    seen |= dict(files(tmp_path)) | {name: repr(read(broker, name)).encode() for name in (out, dead)}
    written = {"model", "summary.json", "plot.svg", "check/checkpoint.safetensors"}
    assert {"metrics/metrics", *PAGES[:5], *written} <= seen.keys()
    assert [name for name, content in seen.items() if OURS.encode() in content] == []


@each_choice(
    (
        "bad",
        [
            lambda address, name: url(address, name, WRONG),
            lambda address, name: url(address, name, WRONG, sasl_plain_pasword=WRONG),
            lambda address, name: f"kafka://me:{WRONG}@{address}/{name}",
            lambda address, name: url("nowhere.invalid:9", name, WRONG),
        ],
    ),
    ("role", ["source", "out"]),
)
def test_no_error_repeats_a_password(bad: Any, role: str, listeners: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,y\n1,2\n")
    given = bad(listeners.password, "events")
    source, more = (given, []) if role == "source" else ("in.csv", ["--out", given])
    with Run(source, "--label", "y", "--quiet", "--set", "broker-timeout=2s", *more, cwd=tmp_path) as run:
        assert run.wait() not in (0, None), run.log
        assert "streamsvm: error: " in run.log
        assert WRONG not in run.log
