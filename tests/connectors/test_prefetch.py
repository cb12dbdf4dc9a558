"""A prefetching source returns equal events in order, and loses none of them."""

from __future__ import annotations

import gc
import gzip
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from connectors import open_source, streams
from connectors.errors import ConnectorError
from connectors.events import Batch, Origins, Position
from connectors.streams import LEAST_EVENTS, PrefetchSource
from connectors.text import arrow_cells
from tests.connectors.streams import table, write
from tests.errors import raises

MANY = LEAST_EVENTS


class Counted(PrefetchSource):
    """Batches of given sizes, then an optional error; records the reading threads."""

    name = "counted"

    def __init__(self, *sizes: int, error: Exception | None = None) -> None:
        super().__init__()
        self._sizes, self._error = sizes, error
        self.readers: list[str] = []
        self.at = 0

    def _batches(self) -> Iterator[Batch]:
        while self.at < len(self._sizes):
            n = self._sizes[self.at]
            self.readers.append(threading.current_thread().name)
            self.at += 1
            yield Batch([{}] * n, [self.at] * n, Origins({}, {"at": range(n)}), self._read_position, [])
        if self._error is not None:
            raise self._error

    @property
    def _read_position(self) -> Position:
        return {"batch": self.at}

    @property
    def _read_fraction(self) -> float | None:
        return self.at / len(self._sizes)

    def _seek(self, position: Position) -> None:
        self.at = position["batch"]

    def _close_files(self) -> None: ...


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("streamsvm-reader")}


def test_position_and_fraction_are_those_of_the_last_returned_batch():
    before = threads()  # sources of other tests in this process may be waiting for their collection
    sizes = [MANY, MANY, 1, MANY, MANY]
    with closing(Counted(*sizes)) as source:
        found = [(len(batch), batch.position, source.position, source.fraction) for batch in source]
        assert found == [(n, {"batch": i}, {"batch": i}, i / 5) for i, n in enumerate(sizes, 1)]
        here = threading.main_thread().name
        assert [name == here for name in source.readers] == [True, False, False, True, False]
        assert (source.position, source.fraction) == ({"batch": 5}, 1.0)
    assert threads() <= before


def test_an_error_is_raised_after_earlier_batches():
    before = threads()
    with closing(Counted(MANY, MANY, error=ConnectorError("line 7"))) as source:
        batches = iter(source)
        assert [next(batches).labels[0], next(batches).labels[0]] == [1, 2]
        with raises(ConnectorError, named="line 7"):
            next(batches)
    with closing(Counted(MANY, error=ConnectorError("line 7"))) as source:
        next(iter(source))  # closed before the next event is requested
    assert threads() <= before


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "jsonl"])
def test_files_are_read_ahead_where_pyarrow_reads_them(tmp_path, monkeypatch, suffix):
    for name in ("FIRST_LINES", "FEW_LINES"):
        monkeypatch.setattr(arrow_cells, name, 1)
    path = tmp_path / f"a.{suffix.removesuffix('.gz')}"
    url = table(path, a=list(range(1500)), y=[i % 2 for i in range(1500)])
    if suffix != "parquet":
        lines = path.read_text().splitlines()
        lines[735] = "no,event,here"
        text = "\n".join(lines).encode()
        url = write(tmp_path / f"a.{suffix}", gzip.compress(text) if suffix == "csv.gz" else text)

    def everything(least):
        """Read a stream that is left, continued and rewound."""
        monkeypatch.setattr(streams, "LEAST_EVENTS", least)
        with closing(open_source(url, label="y", batch_size=150)) as source:
            end = list(source)[-1].position
        found: list[Any] = []
        with closing(open_source(url, label="y", batch_size=150)) as source:

            def note(batch):
                rejected = [one.origin for one in batch.rejected]
                found.append((batch.rows(), list(batch.labels), batch.position, rejected))
                found.append((source.position, source.fraction))

            for batch in source:
                note(batch)
                if len(found) == 8:
                    break
            note(next(iter(source)))
            source.seek(found[2][2])
            batches = iter(source)
            while found[-2][2] != end:
                note(next(batches))
            source.seek(found[2][2])  # the same iterator continues there
            note(next(batches))
            note(next(iter(source)))
        return found

    assert everything(1) == everything(10**9)
    with closing(open_source(url, label="y", batch_size=150)) as source:
        next(iter(source))
        assert source.is_apart == (suffix != "jsonl")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a list of open files")
@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_unreferenced_sources_are_closed(tmp_path, suffix):
    text = b"a,y\n1,0\n2,1\n"
    url = write(tmp_path / f"a.{suffix}", gzip.compress(text) if suffix == "csv.gz" else text)
    before = set(os.listdir("/proc/self/fd"))
    source = open_source(url, label="y")
    assert next(iter(source)).labels == [0, 1]
    del source
    gc.collect()
    assert not set(os.listdir("/proc/self/fd")) - before  # leftovers of other tests may be closed meanwhile
