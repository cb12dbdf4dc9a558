"""Storage of results: a journal of JSON lines, and a Parquet table.

One process appends each result to the journal. An incomplete line is dropped, and its cell runs again.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulations.storage import Rows, replace


class Store:
    """The records of cells in a folder.

    `drift.jsonl` has the records that are not in `drift.parquet` yet.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._journal = folder / "drift.parquet", folder / "drift.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.records = {record["key"]: record for record in self._kept()}

    def __contains__(self, key: str) -> bool:
        """Return whether a cell is measured."""
        return key in self.records

    def add(self, rows: Rows, run: Mapping[str, Any]) -> None:
        """Store records with the description of their measurement, and sync them to disk."""
        records = [record | {"run": json.dumps(run)} for record in rows.values()]
        with self._journal.open("ab") as file:
            file.writelines(json.dumps(record).encode() + b"\n" for record in records)
            file.flush()
            os.fsync(file.fileno())
        self.records |= {record["key"]: record for record in records}

    def finish(self) -> None:
        """Move all records to the table."""
        import pyarrow
        from pyarrow import parquet

        if not self.records:
            return
        columns = dict.fromkeys(name for record in self.records.values() for name in record)
        rows = sorted(self.records.values(), key=lambda r: (r["scenario"], r["learner"], r["planned"], r["seed"]))
        table = pyarrow.table({name: [row.get(name) for row in rows] for name in columns})
        memory = io.BytesIO()
        parquet.write_table(table, memory, compression="zstd")
        replace(self.path, memory.getvalue())
        self._journal.unlink(missing_ok=True)

    def _kept(self) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        if self.path.exists():
            from pyarrow import parquet

            rows = parquet.read_table(self.path).to_pylist()
            records += [{name: value for name, value in row.items() if value is not None} for row in rows]
        return records + self._whole_lines()

    def _whole_lines(self) -> list[dict[str, Any]]:
        if not self._journal.exists():
            return []
        content = self._journal.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            replace(self._journal, whole)
        return [json.loads(line) for line in whole.splitlines()]
