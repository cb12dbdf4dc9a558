"""Files of web servers: ranges, faults, changes and secrets."""

from __future__ import annotations

import gzip
import io
import logging
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from connectors import ConnectorError, UnreachableError, open_source
from connectors.errors import without_secrets
from tests.choices import each_choice
from tests.connectors.streams import rows
from tests.connectors.web import Web, cut, reset, serving, status
from tests.errors import raises

N = 60_000
DATA = b"x,z\n" + b"".join(b"%d,%d\n" % (i, i * 7919 % 100_003) for i in range(N))
WHOLE = list(range(N))
CHUNK = 1 << 18


@pytest.fixture(scope="module")
def _server() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.fixture
def web(_server: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    monkeypatch.setattr("connectors.remote.files.PAUSE_S", 0.01)
    monkeypatch.setattr("connectors.remote.files.RETRY_S", 30.0)
    monkeypatch.setattr("connectors.remote.files.WARNED_FILES", set())
    _server.__init__(_server.port)  # type: ignore[misc]
    return _server


def numbers(source: Any) -> list[float]:
    return [x for batch in source for x in batch.features["x"].tolist()]


@each_choice(
    ("ranges", [True, False]),
    ("faults", [[cut(CHUNK // 2)], [cut(0), cut(CHUNK * 3 // 2), status(500)], [status(503), reset], [cut(CHUNK + 7)]]),
)
def test_faults_of_a_connection_are_repaired(web, ranges, faults):
    web.ranges, web.faults = ranges, list(faults)
    url = web.put("/a.csv", DATA)
    source = open_source(url)
    assert numbers(source) == WHOLE
    source.close()
    assert len(web.requests) == 1 + len(faults)
    assert not web.faults


def test_a_file_is_read_by_one_request(web):
    assert numbers(open_source(web.put("/a.csv", DATA))) == WHOLE
    assert [each["Range"] for each in web.requests] == ["bytes=0-"]


def test_several_files_are_read_by_two_requests_each(web):
    urls = [web.put(f"/{i}.csv", b"x,z\n%d,1\n" % i) for i in range(10)]
    source = open_source(urls)
    source.seek(source.position)
    assert numbers(source) == list(range(10))
    assert len(web.requests) <= 2 * len(urls) + 1  # whether it is there, and its content
    with raises(ConnectorError, reason="missing", named="/absent.csv"):
        open_source([*urls, f"{urls[0].rpartition('/')[0]}/absent.csv"])


def zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", data)
    return file.getvalue()


@each_choice(
    (("suffix", "pack"), [("csv", bytes), ("csv.gz", gzip.compress), ("txt", gzip.compress), ("csv.zip", zipped)]),
    ("ranges", [True, False]),
)
def test_resumed_at_an_offset(web, suffix, pack, ranges):
    web.ranges = ranges
    url = web.put(f"/a.{suffix}", pack(DATA)) + "#format=csv"
    source = open_source(url)
    batches = iter(source)
    seen = [x for _ in range(11) for x in next(batches).features["x"].tolist()]
    position = source.position
    source.close()
    resumed = open_source(url)
    resumed.seek(position)
    assert seen + numbers(resumed) == WHOLE
    if suffix == "csv" and ranges:
        assert int(web.requests[-1]["Range"][6:-1]) > CHUNK


@pytest.mark.parametrize("etag", [True, False])
def test_a_file_that_changed_is_refused(web, etag):
    web.etag = etag
    source = open_source(url := web.put("/a.csv", DATA))
    next(iter(source))
    position = source.position
    source.close()
    web.put("/a.csv", DATA)
    resumed = open_source(url)
    with raises(ConnectorError, reason="changed", option="--reset"):
        resumed.seek(position)
    web.faults = [cut(CHUNK * 3 // 2)]
    source = open_source(url)
    web.put("/a.csv", DATA)  # while it is read
    with raises(ConnectorError, reason="changed"):
        numbers(source)


@pytest.mark.parametrize(
    ("code", "reason"), [(404, "missing"), (410, "missing"), (401, "credentials"), (403, "credentials"), (400, "http")]
)
def test_errors_are_not_repeated(web, code, reason):
    web.faults = [status(code)]
    with raises(ConnectorError, reason=reason):
        open_source(web.put("/a.csv", DATA))
    assert len(web.requests) == 1


def test_a_server_that_remains_down_is_unreachable(web, monkeypatch, caplog):
    monkeypatch.setattr("connectors.remote.files.RETRY_S", 0.1)
    web.faults = [status(503)] * 100
    with raises(UnreachableError):
        open_source(web.put("/a.csv", DATA))
    assert 0 < len(web.requests) < 100
    assert len(caplog.messages) == 1


def test_an_unknown_host_is_not_retried():
    with raises(ConnectorError, reason="missing"):
        open_source("http://no-such-host.invalid/a.csv")


def test_a_stalled_request_is_repeated(web, monkeypatch):
    monkeypatch.setattr("connectors.remote.web.TIMEOUT_S", 0.05)

    def stalled(handler, body):
        handler.connection.recv(1)

    web.faults = [stalled]
    assert numbers(open_source(web.put("/a.csv", DATA))) == WHOLE


def test_the_size_may_be_unknown(web):
    web.ranges = web.sized = False
    assert numbers(open_source(web.put("/a.csv", DATA))) == WHOLE
    web.kind = "application/octet-stream"
    with raises(ConnectorError, reason="no size"):
        open_source(web.put("/a.parquet", b"PAR1"))


def test_empty_files_and_web_pages(web):
    assert rows(web.put("/a.jsonl", b"")) == []
    web.kind = "text/html; charset=utf-8"
    with raises(ConnectorError, reason="web page"):
        open_source(web.put("/a.csv", b"<html>\n</html>"))


def test_parquet_of_a_web_server(web):
    table = pyarrow.table({"x": np.arange(N, dtype=float), "s": ["a", "b"] * (N // 2)})
    pyarrow.parquet.write_table(table, file := io.BytesIO(), row_group_size=10_000)
    source = open_source(url := web.put("/a.parquet", file.getvalue()))
    next(iter(source))
    position = source.position
    rest = [x for batch in source for x in batch.features["x"].tolist()]
    resumed = open_source(url)
    resumed.seek(position)
    web.faults = [status(503)]
    assert numbers(resumed) == rest == WHOLE[-len(rest) :]
    web.put("/a.parquet", file.getvalue())
    with raises(ConnectorError, reason="another"):
        open_source(url).seek(position)


def test_growing_files_and_unknown_schemes_are_refused(web):
    with raises(ConnectorError, option="at_end"):
        open_source(web.put("/a.csv", DATA), at_end="wait")
    with raises(ConnectorError, reason="scheme"):
        open_source("gopher://host/a.csv")


def test_credentials_are_sent_and_not_shown(web, caplog):
    caplog.set_level(logging.DEBUG)
    url = web.put("/a.csv", DATA).replace("//", "//me:hunter2@") + "?X-Amz-Signature=hunter2#label=z"
    web.faults = [status(503), cut(10)]
    source = open_source(url)
    batch = next(iter(source))
    assert web.requests[0]["Authorization"].startswith("Basic ")
    web.faults = [status(403)]
    with raises(ConnectorError) as caught:
        open_source(url)
    for text in (source.name, str(source.position), str(batch.origins), str(caught.value), caplog.text):
        assert "hunter2" not in text
    assert "hunter2" not in without_secrets(f"cannot open {url}")


@pytest.mark.parametrize("host", ["me:hun/ter2@127.0.0.1", "me:hun?ter2@127.0.0.1", "127.0.0.1:80555", "[::1"])
def test_invalid_addresses_are_refused_at_once_without_the_password(host):
    with raises(ConnectorError, reason="value") as caught:
        open_source(f"http://{host}/a.csv", label="y")
    assert "hun" not in str(caught.value)
