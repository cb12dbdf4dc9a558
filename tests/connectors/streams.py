"""Common helpers of the connector tests: events as plain values, in all representations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from connectors import Batch, Source, open_source


def write(path: Path, text: str | bytes) -> str:
    """Write a file and return its path."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


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
