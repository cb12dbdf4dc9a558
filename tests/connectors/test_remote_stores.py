"""Object stores through fsspec: S3 by a server in this process, and a store in memory."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from connectors import ConnectorError, open_source
from tests.connectors.streams import rows
from tests.errors import raises

fsspec = pytest.importorskip("fsspec")
N = 2000
DATA = b"x,z\n" + b"".join(b"%d,%d\n" % (i, i * 7919 % 1003) for i in range(N))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system with an empty bucket `data`."""
    for name, value in (("ENDPOINT_URL", endpoint), ("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "hunter2")):
        monkeypatch.setenv(f"AWS_{name}", value)
    system = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
    system.mkdir("data")
    yield system
    system.rm("data", recursive=True)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def numbers(source: Any) -> list[float]:
    return [x for batch in source for x in batch.features["x"].tolist()]


def test_events_of_s3_and_their_changes(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.remote_store.StoreFile.block", 4096)
    s3.pipe_file("data/a.csv", DATA)
    source = open_source("s3://data/a.csv?batch_size=500")
    batches = iter(source)
    seen = next(batches).features["x"].tolist()
    position = json.loads(json.dumps(source.position))
    assert seen + [x for batch in batches for x in batch.features["x"].tolist()] == list(range(N))
    resumed = open_source("s3://data/a.csv?batch_size=500")
    resumed.seek(position)
    assert seen + numbers(resumed) == list(range(N))
    source = open_source("s3://data/a.csv?batch_size=500")
    s3.pipe_file("data/a.csv", DATA.replace(b"7,", b"8,"))
    with raises(ConnectorError, reason="changed"):
        numbers(source)
    with raises(ConnectorError, reason="changed", option="--reset"):
        open_source("s3://data/a.csv").seek(position)


def test_parquet_of_s3(s3: Any) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": np.arange(N, dtype=float)}), file := io.BytesIO())
    s3.pipe_file("data/a.parquet", file.getvalue())
    assert numbers(open_source("s3://data/a.parquet")) == list(range(N))


def test_what_is_wrong_with_s3_is_said(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("s3://data/none.csv", "s3://other/a.csv", "s3://data/none.parquet"):
        with raises(ConnectorError, url, reason="missing"):
            open_source(url)
    s3.pipe_file("data/a.csv/part-1", DATA)
    with raises(ConnectorError, reason="directory"):
        open_source("s3://data/a.csv")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with raises(ConnectorError, reason="credentials"):
        open_source("s3://data/a.csv/part-1?format=csv")


def test_a_store_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with raises(ConnectorError, "pip install gcsfs", reason="no gcsfs"):
        open_source("gs://bucket/a.csv")


def test_a_store_in_memory() -> None:
    system = fsspec.filesystem("memory")
    system.pipe_file("/a.csv.gz", gzip.compress(b"x\n1\n"))
    assert rows("memory://a.csv.gz") == [{"x": 1.0}]
