"""Object stores through fsspec: S3 by a local server, and a store in memory."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from connectors import ConnectorError, open_sink, open_source
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


def test_events_of_s3_and_their_changes(s3, monkeypatch):
    monkeypatch.setattr("connectors.remote.files.StoreFile.block", 4096)
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


def test_parquet_of_s3(s3):
    pyarrow.parquet.write_table(pyarrow.table({"x": np.arange(N, dtype=float)}), file := io.BytesIO())
    s3.pipe_file("data/a.parquet", file.getvalue())
    assert numbers(open_source("s3://data/a.parquet")) == list(range(N))


def test_several_objects_are_one_stream(s3):
    for name in ("dt=1/part-2.csv", "dt=1/part-10.csv", "dt=2/part-1.csv", "_logs/part-1.csv", "dt=1/.part-1.csv"):
        s3.pipe_file(f"data/a/{name}", f"x,z\n{name[3]},{name[10]}\n".encode())
    read = [f"s3://data/a/{name}" for name in ("dt=1/part-2.csv", "dt=1/part-10.csv", "dt=2/part-1.csv")]
    for url in ("s3://data/a/", "s3://data/a/dt=*/part-*.csv", "s3://data/a/dt=[12]/*.csv"):
        batches = list(open_source(url))
        assert [origin["file"] for batch in batches for origin in batch.origins] == read
        values = [tuple(row.values()) for batch in batches for row in batch.rows()]
        assert values == [(1, 2, 1), (1, 1, 1), (2, 1, 2)]
    assert batches[0].rows() == [{"x": 1, "z": 2, "dt": 1}]
    resumed = open_source(url)
    resumed.seek(batches[0].position)
    assert sum(map(len, resumed)) == 2


def test_a_url_and_a_local_file_are_one_stream(s3, tmp_path):
    s3.pipe_file("data/a.csv", b"x\n1\n")
    (tmp_path / "b.csv").write_bytes(b"x\n2\n")
    assert numbers(open_source(["s3://data/a.csv", str(tmp_path / "b.csv")])) == [1, 2]
    for url in ("s3://data/none/", "s3://data/none*.csv"):
        with raises(ConnectorError, reason="missing"):
            open_source(url)


def test_errors_of_s3_are_reported(s3, monkeypatch):
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


def test_a_store_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with raises(ConnectorError, "pip install gcsfs", reason="no gcsfs"):
        open_source("gs://bucket/a.csv")


def test_new_objects_of_a_store_are_read(memory, monkeypatch):
    monkeypatch.setattr("connectors.files.multiple_files.CHECK_S", 0.01)
    batches = iter(source := open_source("memory://data/?at_end=wait"))
    for i in range(2):
        memory.pipe_file(f"/data/{i}.csv", b"x,z\n%d,2\n" % i)
        assert next(filter(len, batches)).features["x"].tolist() == [i]
    source.close()


def parts(system: Any, path: str) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in system.ls(path, detail=False))


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def tables_of(system: Any, path: str) -> list[Any]:
    names = parts(system, path)
    return [pyarrow.parquet.read_table(io.BytesIO(system.cat_file(f"{path}/{name}"))) for name in names]


def content(system: Any, path: str) -> list[int]:
    return [n for table in tables_of(system, path) for n in table["n"].to_pylist()]


def test_parts_of_s3_are_rewound(s3):
    url = "s3://data/out.parquet"
    sink = open_sink(url)
    sink.write({"n": [0, 1], "s": [None, None]})
    sink.flush()
    position = json.loads(json.dumps(sink.position))
    sink.write({"n": [2, 3], "s": ["x", None]})
    sink.flush()
    sink.write({"n": [4], "s": ["y"]})  # not flushed when the run is killed
    resumed = open_sink(url, resume=True)
    resumed.rewind(position)
    assert content(s3, "data/out.parquet") == [0, 1]
    resumed.write({"n": [2], "s": ["z"]})
    resumed.close()
    assert content(s3, "data/out.parquet") == [0, 1, 2]
    assert parts(s3, "data/out.parquet") == ["part-000000.parquet", "part-000001.parquet"]
    s3.rm_file("data/out.parquet/part-000000.parquet")
    with raises(ConnectorError, url, reason="changed"):
        open_sink(url, resume=True).rewind(position)


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl.gz", "out.parquet"])
def test_results_in_a_store_replace_results_only(memory, name):
    url = f"memory://folder/{name}"
    for value in (1, 2):
        sink = open_sink(url)
        sink.check_replaced()
        sink.write({"line": [value], "prediction": ["up"], "score": [0.5]})
        sink.close()
        sink.close()
    if name.endswith("parquet"):
        assert parts(memory, "/folder/out.parquet") == ["part-000000.parquet"]
        assert [row["line"] for row in rows(f"{url}/")] == [2]
        memory.pipe_file("/folder/out.parquet/part-000000.parquet", b"another")
    else:
        assert [row["line"] for row in rows(url)] == [2]
        memory.pipe_file(f"/folder/{name}", b"x,y\n1,2\n")
    sink = open_sink(url)
    with raises(ConnectorError, "overwrite=true"):
        sink.check_replaced()
    sink.close()
    open_sink(url, overwrite=True).check_replaced()


def test_an_object_appears_at_the_end(memory, monkeypatch):
    sink = open_sink("memory://out.csv")
    sink.write({"n": [1]})
    sink.flush()
    assert not memory.exists("/out.csv")
    sink.write({"n": [2]})
    sink.close()
    assert memory.cat_file("/out.csv") == b"n\n1\n2\n"
    open_sink("memory://unused.csv").close()
    assert not memory.exists("/unused.csv")
    source = open_source("memory://out.csv")
    with raises(ConnectorError, option="--checkpoint", reason="not seekable"):
        open_sink("memory://out.csv", source=source)
    with raises(ConnectorError, reason="no sink"):
        open_sink("https://host/out.csv")
    for name in ("out.csv", "out.parquet"):
        with raises(ConnectorError, reason="unknown", option="partition_by"):
            open_sink(f"memory://{name}", partition_by="date")


def test_results_that_cannot_be_uploaded_are_kept(memory, monkeypatch):
    sink = open_sink("memory://out.csv")
    sink.write({"n": [1]})

    def refused(*_, **__):
        raise PermissionError("no")

    monkeypatch.setattr(type(memory), "put_file", refused)
    with raises(ConnectorError) as caught:
        sink.close()
    kept = Path(str(caught.value).rpartition(" ")[2])
    assert kept.read_bytes() == b"n\n1\n"
    shutil.rmtree(kept.parent)
