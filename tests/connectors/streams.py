"""Helpers of the connector tests: events as plain values, in all representations."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from connectors import Batch, Source, open_sink, open_source


def write(path: Path, text: str | bytes) -> str:
    """Write a file and return its path."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def table(path: Path, delimiter: str = ",", **columns: Any) -> str:
    """Write columns in the format of the suffix, None if missing; return the path."""
    rows = list(zip(*columns.values(), strict=True))
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    elif path.suffix == ".arff":
        texts = {name for name, cells in columns.items() if any(isinstance(cell, str) for cell in cells)}
        lines = [f"@attribute {name} {'string' if name in texts else 'real'}" for name in columns]
        lines += ["@data", *(",".join("?" if x is None else repr(x) for x in row) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([list(columns), *rows])
    return str(path)


def put(url: str | Path, *tables: dict[str, Any], **options: Any) -> None:
    """Write tables to a sink and close it."""
    with contextlib.closing(open_sink(str(url), **options)) as sink:
        for table in tables:
            sink.write(table)


def events(batches: Any) -> list[tuple[Any, ...]]:
    """Return features, label and origin of each event."""
    return [
        (row, label, batch.origins[i])
        for batch in batches
        for i, (row, label) in enumerate(zip(batch.rows(), batch.labels, strict=True))
    ]


def rejects(batches: list[Batch]) -> list[tuple[int, str, str | None]]:
    """Return line, reason and raw text of each rejected event."""
    return [(r.origin["line"], r.reason, r.raw) for batch in batches for r in batch.rejected]


def read(url: str, **options: Any) -> tuple[list[tuple[Any, ...]], list[tuple[int, str, str | None]]]:
    """Return all events and rejected events of a stream."""
    source: Source = open_source(url, **options)
    batches = list(source)
    source.close()
    return events(batches), rejects(batches)


def rows(url: str, **options: Any) -> list[dict[Any, Any]]:
    """Return the features of all events."""
    return [event[0] for event in read(url, **options)[0]]


def labels(url: str, **options: Any) -> list[Any]:
    """Return the labels of all events."""
    return [event[1] for event in read(url, **options)[0]]


def resumed_everywhere(source: Any, *sizes: int, step: int = 1, **options: Any) -> list[Batch]:
    """Return the batches of a stream, after checks of resuming at any position.

    Batches of any size give equal events.
    """
    first = open_source(source, batch_size=step, **options)
    positions, whole = [first.position], list[Batch]()
    for batch in first:
        whole.append(batch)
        positions.append(batch.position)
    first.close()
    for size in sizes or (1, 3, 1024):
        for i, position in enumerate(positions):
            rest = open_source(source, batch_size=size, **options)
            rest.seek(json.loads(json.dumps(position)))
            assert told(rest) == told(whole[i:])
            rest.close()
    return whole


def told(batches: Any) -> tuple[str, list[tuple[str, str, str | None]]]:
    """Return events and rejected events as texts, in which missing numbers are equal."""
    batches = list(batches)
    roles = [[*zip(b.keys or [None] * len(b), *([] if b.times is None else [b.times]), strict=True)] for b in batches]
    found = repr([events(batches), [each for some in roles for each in some]])
    return found, [(repr(r.origin), r.reason, r.raw) for batch in batches for r in batch.rejected]


def avro_schema(**fields: Any) -> dict[str, Any]:
    """Return a record with fields of these types."""
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Event", "namespace": "com.ex", "fields": named}


def avro(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    """Return an encoded record."""
    fastavro = pytest.importorskip("fastavro")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()
