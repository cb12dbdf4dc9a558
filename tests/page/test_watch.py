"""The page of a remote run."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from connectors import open_source
from streamsvm import CPMClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.models.archive import read_archive, write_archive
from streamsvm.refit import Every
from streamsvm.run.checkpoint import Checkpoint
from streamsvm.run.errors import SetupError
from streamsvm.run.loop import Report
from streamsvm.run.page.server import Server
from streamsvm.run.page.watch import CheckpointView, RemoteView, follow
from tests.errors import raises
from tests.page.looking import Running, get, wait_for
from tests.run.conftest import runner_of

STREAM = "synthetic:demo?n=3000&drift=2000&width=0"


def run(directory: Path, model: Any, n: int) -> Report:
    with Checkpoint(directory, every_events=1_000) as checkpoint:
        return runner_of(model, open_source(STREAM), checkpoint=checkpoint, max_events=n).run()


@contextlib.contextmanager
def running(shown: Any) -> Iterator[None]:
    thread = threading.Thread(target=follow, args=(shown,))
    thread.start()
    try:
        yield
    finally:
        shown.feed.close()
        thread.join()


def seen(view: CheckpointView, n: int) -> dict[str, Any]:
    """Return the state if the run has ended after n events, else an empty one."""
    state = json.loads(view.feed.latest or b"{}")
    return state if state.get("events") == n and state["ended"] else {}


def test_a_directory_is_read_as_it_is_renewed(tmp_path):
    view = CheckpointView(tmp_path)
    assert view.health() == "no checkpoint yet"
    with running(view):
        report = run(tmp_path, StreamSVMClassifier(effort="low"), 1_500)
        state = wait_for(lambda: seen(view, 1_500), "the checkpoint")
        assert (state["kind"], state["ended"]) == ("checkpoint", "max-events")
        assert state["source"] == "synthetic:demo"
        assert state["model"] == "StreamSVMClassifier"
        assert state["accuracy"] == report.metrics.accuracy
        assert state["leaders"][0]["weight"] == report.insight.leaders[0]["weight"]
        assert json.loads(view.series())["history"]["at"] == report.history.at[:-1]  # the last one is from the end
        report = run(tmp_path, StreamSVMClassifier(effort="low"), 3_000)  # no lock blocks it
        state = wait_for(lambda: seen(view, 3_000), "the next one")
    assert [mark["judged"] for mark in state["marks"]] == [drop.judged for drop in report.metrics.drops.last]
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.safetensors", "lock"}


def test_a_window_that_is_being_solved_is_left_to_the_run(tmp_path):
    model = RefitClassifier(CPMClassifier(), "newton", trigger=Every(500), delay=450)
    run(tmp_path, model, 2_750)
    assert model.state()[0]["job"] is not None
    before = set(threading.enumerate())
    view = CheckpointView(tmp_path)
    view.refresh()
    state = json.loads(view.feed.latest)
    assert state["model"] == "CPMClassifier with refits"
    assert state["refits"]["count"] == len(model.refits)
    assert set(threading.enumerate()) - before == set()


def test_a_damaged_checkpoint_is_reported_and_skipped(tmp_path, caplog):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"what is this")
    view = CheckpointView(tmp_path)
    view.refresh()
    assert "cannot be read" in caplog.text
    assert view.feed.latest == b""


def test_a_checkpoint_of_another_version_is_named(tmp_path, caplog):
    run(tmp_path, CPMClassifier(), 1_000)
    path = tmp_path / "checkpoint.safetensors"
    header, arrays = read_archive(path)
    write_archive(path, header, {name: values for name, values in arrays.items() if not name.startswith("history.")})
    view = CheckpointView(tmp_path)
    view.refresh()
    assert "version that wrote it" in caplog.text
    assert view.feed.latest == b""


@pytest.mark.parametrize("place", ["http://", "http://[::1", "http://a:b"])
def test_addresses_that_are_none(place):
    with raises(SetupError, reason="address", named=place):
        RemoteView(place, None)


def test_the_page_of_another_page(tmp_path):
    view = CheckpointView(tmp_path)
    run(tmp_path, CPMClassifier(), 1_000)
    view.refresh()
    view.report.ended = ""  # as in a run that continues
    view.close()  # publishes the state
    server = Server(view, "0", "the-token-of-it")
    other = RemoteView(server.url, "the-token-of-it")
    with running(other):
        assert wait_for(lambda: other.feed.latest, "the state") == view.feed.latest
        state, series = json.loads(view.feed.latest), json.loads(other.series())
        assert (series["run"], series["columns"]["judged"]) == (state["run"], [state["judged"]])
        assert other.health() == ""
        with raises(SetupError, reason="no metrics", named=server.url):
            other.metrics()
        with pytest.raises(LookupError):
            other.explain(1, 5.0)
        server.close()
        wait_for(lambda: json.loads(other.feed.latest).get("lost"), "that it is lost")
        assert other.health().endswith("does not respond")


def test_a_page_with_an_unknown_token(tmp_path, caplog):
    view = CheckpointView(tmp_path)
    with contextlib.closing(Server(view, "0", "the-token-of-it")) as server:
        other = RemoteView(server.url, None)
        with running(other):
            wait_for(lambda: "a token is required" in caplog.text, "the refusal")
        assert "the-token-of-it" not in caplog.text


def test_an_address_without_a_page_of_a_run_ends_the_command(streamsvm, tmp_path):
    with contextlib.closing(Server(CheckpointView(tmp_path), "0", "the-token-of-it")) as server:
        assert f"{server.url}: status 401" in streamsvm("watch", server.url, "--page", "0", code=2).stderr
    said = streamsvm("watch", "http://127.0.0.1:1", "--page", "0", code=75).stderr
    assert "http://127.0.0.1:1: does not respond" in said
    assert said.count("\n") == 1


def test_a_page_of_another_server_is_not_shown():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with raises(SetupError, reason="refused", named=url) as found:
            RemoteView(url, None).check()
    assert "<" not in str(found.value)


def test_from_the_command_line(tmp_path):
    run(tmp_path / "state", CPMClassifier(), 1_000)
    with Running("state", cwd=tmp_path, what="watch", STREAMSVM_PAGE_TOKEN="known-to-both") as first:
        token = {"Authorization": "Bearer known-to-both"}
        assert get(first.port, "/state.json")[0] == 401
        wait_for(lambda: get(first.port, "/state.json", token)[0] == 200, "the checkpoint")
        state = json.loads(get(first.port, "/state.json", token)[1])
        assert state["events"] == 1_000
        assert b"streamsvm_events_total 1000.0" in get(first.port, "/metrics", token)[1]
        with Running(first.url, cwd=tmp_path, what="watch", STREAMSVM_PAGE_TOKEN="known-to-both") as second:
            wait_for(lambda: get(second.port, "/state.json", token)[0] == 200, "the page")
            assert json.loads(get(second.port, "/state.json", token)[1]) == state
        assert first.stop() == 130
        assert "known-to-both" not in first.log.read_text()


KAFKA = "kafka://127.0.0.1:1/nobody-answers"


@pytest.mark.parametrize("option", ["--page=", "--set=metrics-port="])
def test_a_port_in_use_is_refused_before_any_request(refused, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused("run", KAFKA, "--label", "y", f"{option}{taken.getsockname()[1]}")
    assert "cannot listen there" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("watch", "nowhere"), "watch nowhere: must be a directory of checkpoints"),
        (("watch", ".", "--page", "0.0.0.0:0"), "--page 0.0.0.0:0: access from other machines"),
        (("run", "--page", "x"), "--page x: must be a port"),
        (("run", "--set", "page-token-file=token"), "page-token-file needs --page"),
        (("run", KAFKA, "--page", "0", "--set", "page-token-file=token"), "token of the page must have at least 8"),
        (("watch", ".", "--page", "0", "--page-token-file", "none"), "--page-token-file none: cannot be read"),
        (("run", "--page-token", "short"), "STREAMSVM_PAGE_TOKEN or page-token-file"),
    ],
)
def test_settings_that_do_not_fit(refused, tmp_path, arguments, message):
    (tmp_path / "token").write_text("short\n")
    said = refused(*arguments)
    assert message in said
    assert "short" not in said
