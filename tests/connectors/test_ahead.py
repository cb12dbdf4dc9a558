"""A source that is read ahead says what it says anyway, in its order, and nothing once nobody asks any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from connectors import ahead, arrow_cells, open_source
from connectors.ahead import LEAST_EVENTS, read_ahead
from connectors.events import Batch, ConnectorError, Origins, Position, Source
from tests.connectors.streams import write


class Counted(Source):
    """Batches of so many events, the last an error where one is given; notes by whom each was read."""

    name = "counted"

    def __init__(self, *sizes: int, apart: bool = True, error: Exception | None = None) -> None:
        self.is_apart, self._sizes, self._error = apart, sizes, error
        self.readers: list[str] = []

    def __iter__(self) -> Iterator[Batch]:
        for i, n in enumerate(self._sizes):
            self.readers.append(threading.current_thread().name)
            yield Batch([{}] * n, [i] * n, Origins({}, {"at": range(n)}), {"batch": i}, [])
        if self._error is not None:
            raise self._error

    @property
    def position(self) -> Position:
        return {"batch": len(self.readers)}

    @property
    def fraction(self) -> float | None:
        return None

    def seek(self, position: Position) -> None: ...

    def close(self) -> None: ...


MANY = LEAST_EVENTS


def in_main(source: Counted) -> list[bool]:
    return [name == threading.main_thread().name for name in source.readers]


def test_batches_come_in_order_each_with_its_own_position() -> None:
    source = Counted(MANY, MANY, 1, MANY, MANY)
    with closing(read_ahead(source)) as batches:
        assert [(batch.position["batch"], len(batch)) for batch in batches] == list(
            enumerate([MANY, MANY, 1, MANY, MANY])
        )
    assert in_main(source) == [True, False, False, True, False]  # after a small batch no thread is worth it


def test_the_next_batch_is_read_meanwhile_and_no_more() -> None:
    source = Counted(*[MANY] * 5)
    with closing(read_ahead(source)) as batches:
        next(batches)
    assert len(source.readers) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("streamsvm-reader")]


@pytest.mark.parametrize("apart", [True, False])
def test_an_error_comes_after_the_batches_before_it(apart: bool) -> None:
    with closing(read_ahead(Counted(MANY, MANY, apart=apart, error=ConnectorError("line 7")))) as batches:
        assert [next(batches).position["batch"], next(batches).position["batch"]] == [0, 1]
        with pytest.raises(ConnectorError, match="line 7"):
            next(batches)


def test_other_sources_are_read_as_they_are() -> None:
    source = Counted(MANY, MANY, MANY, apart=False)
    assert len(list(read_ahead(source))) == 3
    assert in_main(source) == [True] * 3


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_files_are_read_ahead_once_pyarrow_reads_them(tmp_path: Any, monkeypatch: Any, suffix: str) -> None:
    pytest.importorskip("pyarrow")
    for name in ("FIRST_LINES", "FEW_LINES"):
        monkeypatch.setattr(arrow_cells, name, 1)
    lines = [f"{i},{i % 7},{i % 2}" if suffix == "csv" else f'{{"a":{i},"b":{i % 7},"y":{i % 2}}}' for i in range(3000)]
    lines[1234] = "no,event"
    url = write(tmp_path / f"a.{suffix}", "\n".join(["a,b,y"] * (suffix == "csv") + lines))

    def everything(least: int) -> list[Any]:
        monkeypatch.setattr(ahead, "LEAST_EVENTS", least)
        with closing(open_source(url, label="y", batch_size=300)) as source:
            return [
                (batch.rows(), list(batch.labels), batch.position, [one.origin for one in batch.rejected])
                for batch in read_ahead(source)
            ]

    assert everything(1) == everything(10**9)
    with closing(open_source(url, label="y", batch_size=300)) as source:
        next(iter(source))
        assert source.is_apart == (suffix == "csv")
