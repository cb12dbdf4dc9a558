from __future__ import annotations

import errno
import io
import logging
import os

import pytest

from connectors import open_source
from streamsvm import CPMClassifier
from streamsvm.cli.terminal import logged
from streamsvm.run.progress import Progress
from streamsvm.run.prometheus import text_of_report
from streamsvm.run.stages import Rate
from tests.run.conftest import runner_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal():
    terminal = Terminal()
    bar = Progress(terminal)
    runner_of(CPMClassifier(), open_source("synthetic:sea?n=600"), observers=[bar]).run()
    bar.close()
    last = terminal.getvalue().split("\r")[-1]
    assert last.startswith("100%, 600 events, ")
    assert "accuracy 0." in last


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no pseudo-terminals")
def test_the_bar_and_log_messages_fit_a_narrow_terminal_without_escape_sequences(monkeypatch):
    import termios

    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 40))
    found = b""
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        bar = Progress(terminal)
        runner_of(CPMClassifier(), open_source("synthetic:sea?n=600"), observers=[bar]).run()
        with logged(None):
            logging.getLogger("streamsvm").warning("a message")
        bar.close()
        terminal.flush()
        while not found.endswith(b"\n") or b"100%" not in found:
            found += os.read(master, 4096)
    os.close(master)
    lines = found.decode().split("\r")
    assert b"\x1b" not in found
    assert all(len(line) == 39 for line in lines if "events" in line)
    (message,) = [i for i, line in enumerate(lines) if "a message" in line]
    assert lines[message - 1] == 39 * " "


def test_a_terminal_that_closes_does_not_end_the_run():
    class Closed(Terminal):
        def write(self, _):
            raise OSError(errno.EIO, "Input/output error")

    bar = Progress(Closed())
    report = runner_of(CPMClassifier(), open_source("synthetic:sea?n=600"), observers=[bar]).run()
    bar.close()
    assert report.metrics.taken == 600


def test_the_rate_leaves_out_compilation(monkeypatch):
    now = 100.0
    monkeypatch.setattr("streamsvm.run.stages.working_time", lambda: now)
    rate = Rate()
    now += 10.0  # whatever other clocks measured
    assert rate.at(3_000) == 300.0
    now += 0.5
    assert rate.at(5_000) == 300.0


def test_lines_elsewhere(caplog):
    lines = Progress(io.StringIO(), every_s=1e-9)
    with caplog.at_level(logging.INFO, "streamsvm.run"):
        runner_of(CPMClassifier(), open_source("synthetic:sea?n=600&batch_size=200"), observers=[lines]).run()
    first, *_, last = [record.getMessage() for record in caplog.records if record.name == "streamsvm.run"]
    assert first.startswith("33%, 200 events, ")
    assert last.startswith("100%, 600 events, ")
    assert "accuracy 0." in last


def test_lag_and_stalls_of_a_live_stream_are_reported(caplog, monkeypatch):
    source = open_source("synthetic:sea?n=10")
    monkeypatch.setattr(type(source), "lag", {0: 3, 1: 4000})
    source.stalls = 2
    with caplog.at_level(logging.INFO, "streamsvm.run"):
        report = runner_of(CPMClassifier(), source, observers=[Progress(io.StringIO(), every_s=0.0)]).run()
    assert "stalled 2 times" in caplog.messages[-1]
    assert "lag 4,003" in caplog.messages[-1]
    lines = dict(line.rsplit(" ", 1) for line in text_of_report(report).decode().splitlines() if line[0] != "#")
    wanted = {"streamsvm_events_total": "10.0", "streamsvm_stalls_total": "2.0"}
    wanted['streamsvm_lag{partition="1"}'] = "4000.0"
    assert wanted.items() <= lines.items()
