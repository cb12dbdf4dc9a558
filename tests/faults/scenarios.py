"""Short runs over files for tests of faults."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet
import zstandard

from streamsvm.delayed import segments
from streamsvm.models.archive import read_archive
from streamsvm.monitor import FeatureMonitor
from streamsvm.run import Run, RunConfig
from streamsvm.run.checkpoint import Checkpoint, Snapshot
from streamsvm.run.options import option_of
from tests.commands import ran_here

_LABELS = {True: "UP", False: "DOWN"}


def write_events(path: Path, n: int) -> None:
    """Write labelled events with times, a missing label and two malformed lines."""
    lines = ["a,b,y,t"]
    for i in range(n):
        a, b = (i * 7919 % 1000) / 500 - 1, (i * 104729 % 1000) / 500 - 1
        label = "" if i % 41 == 7 else _LABELS[a + b > 0]
        lines.append(f"{'oops' if i in (5, 32) else round(a, 3)},{b:.3f},{label},{i * 3_600_000}")
    path.write_text("\n".join(lines) + "\n")


def write_joined(folder: Path, n: int) -> None:
    """Write events with keys, and labels that arrive later, too late or never."""
    events, labels = ["id,t,a,b"], []
    for i in range(n):
        a, b = (i * 7919 % 1000) / 500 - 1, (i * 104729 % 1000) / 500 - 1
        events.append(f"k{i},{i * 1000},{'oops' if i == 5 else round(a, 3)},{b:.3f}")
        if i % 11:
            labels.append((i * 1000 + (90_000 if i % 13 == 0 else 4000 + i % 7 * 3000), f"k{i}", _LABELS[a + b > 0]))
    rows = [f"{key},{time},{label}" for time, key, label in sorted(labels)]
    (folder / "events.csv").write_text("\n".join(events) + "\n")
    (folder / "labels.csv").write_text("\n".join(["id,t,y", *rows]) + "\n")


def write_folders(folder: Path) -> None:
    """Split the events and labels of `write_joined` into compressed files."""
    for name in ("events", "labels"):
        head, *lines = (folder / f"{name}.csv").read_text().splitlines()
        (folder / name).mkdir()
        for i, part in enumerate((lines[: len(lines) // 3], lines[len(lines) // 3 :])):
            data = "\n".join([head, *part, ""]).encode()
            (folder / name / f"{i}.csv.gz").write_bytes(gzip.compress(data, mtime=0))


def write_profile(path: Path) -> None:
    """Write a profile of other features, so that a monitor has alarms."""
    rng = np.random.default_rng(0)
    monitor = FeatureMonitor(reference=512)
    monitor.learn_many({"a": rng.normal(5.0, size=512), "b": rng.normal(size=512)})
    monitor.profile().save(path)


def unpacked(path: Path) -> bytes:
    """Return the content of a file. Compressed bytes depend on the flushes."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).readall()
    return {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix, bytes)(data)


@dataclass
class Scenario:
    """A run over files in its working directory.

    Parameters
    ----------
    options
        Settings of the run.
    outputs
        Files and directories of results.
    joined
        Whether labels are a stream of their own.
    earlier
        Settings of an earlier run in the same directory that are different; None without an earlier run.
    first
        Settings of the first run only, such as `reset`.
    n_events
        Number of events.
    """

    options: dict[str, Any]
    outputs: tuple[str, ...] = ("out.csv", "out.csv.rejected.jsonl")
    joined: bool = False
    earlier: dict[str, Any] | None = None
    first: dict[str, Any] = field(default_factory=dict)
    n_events: int = 60

    @property
    def _all(self) -> dict[str, Any]:
        own = {"model": "cpm", "label": "y", "checkpoint": "state/check", "save": "model", "summary": "summary.json"}
        return own | {"checkpoint_every": 20} | self.options

    def prepare(self, folder: Path) -> None:
        """Write the input, and the results of an earlier run if there is one."""
        for name in ("deep", "far"):  # directories in which nothing else is synced
            (folder / name).mkdir(parents=True)
        (folder / "link.csv").symlink_to("far/out.csv")
        write_joined(folder, self.n_events) if self.joined else write_events(folder / "in.csv", self.n_events)
        if self.options["source"].startswith("events?"):
            write_folders(folder)
        if "reference" in self.options:
            write_profile(folder / self.options["reference"])
        if self.earlier is not None:
            with working(folder):
                Run(RunConfig(**self._all | self.earlier)).start()

    def run(self, folder: Path, *, first: bool = False, every: Any = None, **more: Any) -> None:
        """Start or resume the run, with a checkpoint after every `every` events."""
        more |= (self.first if first else {}) | ({} if every is None else {"checkpoint_every": every})
        with working(folder):
            Run(RunConfig(**self._all | more)).start()

    def command(self, folder: Path, *, first: bool = False) -> subprocess.CompletedProcess[str]:
        """Start or resume the run by the command line, in this process."""
        given = self._all | (self.first if first else {})
        source, arguments = given.pop("source"), ["--quiet"]
        for name, value in given.items():
            option, *setting = option_of(name).split()
            arguments += [option] if value is True else [option, "=".join([*setting, str(value)])]
        with working(folder):
            return ran_here("run", source, *arguments, cwd=folder)

    def results(self, folder: Path) -> dict[str, Any]:
        """Return the content of the results, without clock times."""
        summary = json.loads((folder / "summary.json").read_text())
        summary.pop("process")
        model: Any = (folder / "model").read_bytes()
        if "refit" in self.options:  # its header has clock times
            model = {name: array.tobytes() for name, array in read_archive(folder / "model")[1].items()}
        found: dict[str, Any] = {"summary": summary, "model": model}
        for name in self.outputs:
            path = folder / name
            if name.endswith(".parquet") and path.is_dir():
                found[name] = pyarrow.parquet.read_table(path).to_pylist()
            elif name.endswith(".db"):
                with contextlib.closing(sqlite3.connect(path)) as database:
                    found[name] = list(database.iterdump())
            else:
                parts = [part for part in path.rglob("*") if part.is_file()] if path.is_dir() else [path]
                found[name] = {str(part.relative_to(path)): unpacked(part) for part in parts}
        # A run with delayed labels has a random salt, and one with refits clock times.
        if self._all["checkpoint"] and not (self.joined or "refit" in self.options):
            found["checkpoint"] = (folder / "state" / "check" / "checkpoint.safetensors").read_bytes()
        return found


_JOINED = {
    **{"source": "events.csv?batch_size=10", "label_source": "labels.csv?batch_size=10", "join": "id", "time": "t"},
    **{"time_unit": "ms", "label_timeout": "20s", "out": "out.csv", "label_output": "joined.csv", "types": "a:number"},
}

_CSV = {"source": "in.csv?batch_size=10", "out": "out.csv", "types": "a:number", "time": "t", "time_unit": "ms"}

SCENARIOS = {
    "csv": Scenario(_CSV),
    "reset": Scenario(
        _CSV | {"out": "link.csv", "dead_letter": "deep/new/dead.parquet"},
        outputs=("far/out.csv", "deep/new/dead.parquet"),
        earlier={"max_events": 30},
        first={"reset": True},
    ),
    "link": Scenario(_CSV | {"out": "link.csv", "dead_letter": "dead.csv"}, outputs=("far/out.csv", "dead.csv")),
    "gzip": Scenario(
        _CSV | {"out": "deep/out.jsonl.gz", "dead_letter": "dead.csv"}, outputs=("deep/out.jsonl.gz", "dead.csv")
    ),
    "parquet": Scenario(
        _CSV | {"out": "deep/new/out.parquet", "dead_letter": "far/dead.jsonl"},
        outputs=("deep/new/out.parquet", "far/dead.jsonl"),
    ),
    "resume": Scenario(_CSV | {"dead_letter": "dead.csv"}, outputs=("out.csv", "dead.csv"), earlier={"max_events": 30}),
    "parts": Scenario(
        _CSV | {"out": "deep/new/out?format=csv&partition_by=date&rotate_bytes=400", "dead_letter": "dead.csv"},
        outputs=("deep/new/out", "dead.csv"),
        earlier={"max_events": 30},
        first={"reset": True},
    ),
    "alerts": Scenario(
        _CSV
        | {"out": "deep/out.jsonl.zst", "alerts": "far/alerts.csv.bz2", "dead_letter": "dead.csv"}
        | {"reference": "profile.json"},
        outputs=("deep/out.jsonl.zst", "far/alerts.csv.bz2", "dead.csv"),
    ),
    "sqlite": Scenario(
        _CSV | {"out": "sqlite:///deep/out.db?table=a", "dead_letter": "sqlite:///deep/out.db?table=b"},
        outputs=("deep/out.db",),
        earlier={"max_events": 30},
        first={"reset": True},
    ),
    "joined": Scenario(_JOINED, outputs=("out.csv", "joined.csv", "out.csv.rejected.jsonl"), joined=True),
    "refits": Scenario(_CSV | {"refit": "newton,every=20,window=40"}, n_events=80),
    "folders": Scenario(
        _JOINED
        | {"source": "events?batch_size=10&at_end=stop", "label_source": "labels?batch_size=10", "pending_dir": "far"}
        | {"out": "deep/out.zst?format=csv&partition_by=hour&rotate_bytes=400", "dead_letter": "dead.parquet"}
        | {"label_output": "far/joined?format=jsonl&rotate_bytes=900", "query_output": "queries.csv.gz"}
        | {"alerts": "alerts.jsonl.gz", "reference": "profile.json"},
        outputs=("deep/out.zst", "dead.parquet", "far/joined", "queries.csv.gz", "alerts.jsonl.gz"),
        joined=True,
        n_events=140,
    ),
}


@contextlib.contextmanager
def working(folder: Path) -> Iterator[None]:
    """Work in a directory, with small segments of pending events."""
    with contextlib.chdir(folder), mock.patch.object(segments, "SEGMENT", 16):
        yield


@contextlib.contextmanager
def watched(seen: Any) -> Iterator[None]:
    """Call `seen` with each snapshot that was written."""
    write = Checkpoint.write

    def written(checkpoint: Checkpoint, snapshot: Snapshot) -> None:
        write(checkpoint, snapshot)
        seen(snapshot.source)

    with mock.patch.object(Checkpoint, "write", written):
        yield
